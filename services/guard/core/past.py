"""What a guard must still know after a restart: the mode in force, and the changes and rollbacks of late.

Without it a crash would refill the change budget (I2) and close an open breaker.
"""

from collections.abc import Iterable, Sequence

from schemas.messages import Command, Verdict


def last_mode_order(commands: Sequence[Command]) -> Command | None:
    """The newest order that sets a mode; `commands` are oldest first."""
    return next((order for order in reversed(commands) if order.verb == "mode" and order.mode is not None), None)


def rollback_ages(commands: Iterable[Command], now_ns: int) -> list[float]:
    """Ages in seconds, oldest first, of the guard's own rollbacks. What lies in the future happened just now."""
    own = (command for command in commands if command.verb == "rollback" and command.by == "guard")
    return _ages((command.at for command in own), now_ns)


def change_ages(verdicts: Iterable[Verdict], now_ns: int) -> list[float]:
    """Ages in seconds, oldest first, of the changes that were let through."""
    return _ages((verdict.at for verdict in verdicts if verdict.execute), now_ns)


def _ages(stamps_ns: Iterable[int], now_ns: int) -> list[float]:
    return sorted((max(0.0, (now_ns - stamp) / 1e9) for stamp in stamps_ns), reverse=True)
