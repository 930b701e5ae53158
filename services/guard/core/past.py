"""What a guard must still know after a restart: its breaker, and the changes of late.

Without it a crash would refill the change budgets (I2) and close an open breaker.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from schemas.messages import Command, Verdict

BREAKER_OPENED: Final = "breaker"
"""The last word of the id of the order that an opening breaker gives."""


@dataclass(frozen=True)
class BreakerPast:
    """Ages in seconds: of the rollbacks that count, oldest first, and of the opening that no close followed."""

    rollbacks: tuple[float, ...] = ()
    opened: float | None = None


def breaker_past(commands: Sequence[Command], verdicts: Sequence[Verdict], now_ns: int) -> BreakerPast:
    """Where the breaker stood, from the guard's own orders and its word in its verdicts; both are oldest first.

    An opening is an order; a close shows in the verdicts that follow it. What lies in the future happened just now. A
    close of which no verdict tells is not believed: then another change is tried first.
    """
    own = [command for command in commands if command.by == "guard"]
    rollbacks = [command for command in own if command.verb == "rollback"]
    telling = [verdict for verdict in verdicts if verdict.breaker is not None]
    opening = next((order for order in reversed(own) if _is_opening(order)), None)
    if opening is not None and all(_is_later(opening, verdict) for verdict in telling[-1:]):
        return BreakerPast(_ages((order.at for order in rollbacks), now_ns), _age(opening.at, now_ns))
    if telling and telling[-1].breaker != "closed":
        since = list(takewhile(lambda verdict: verdict.breaker != "closed", reversed(telling)))[-1]
        # The newest opening counts, also one after a failed trial; the streak stands in where the order is lost.
        opened = _age(opening.at if opening is not None else since.at, now_ns)
        return BreakerPast(_ages((order.at for order in rollbacks), now_ns), opened)
    unsound = next((verdict for verdict in reversed(telling) if verdict.breaker != "closed"), None)
    counted = [order for order in rollbacks if unsound is None or _is_later(order, unsound)]
    if opening is not None:  # it has closed since, with a clean slate
        counted = [order for order in counted if order.at > opening.at]
    return BreakerPast(_ages((order.at for order in counted), now_ns))


def change_ages(verdicts: Iterable[Verdict], now_ns: int) -> list[float]:
    """Ages in seconds, oldest first, of the changes that were let through."""
    return list(_ages((verdict.at for verdict in verdicts if verdict.execute), now_ns))


def class_change_ages(verdicts: Iterable[Verdict], now_ns: int) -> dict[str, list[float]]:
    """The same by class, for the classes whose weight was to become another one."""
    stamps: dict[str, list[int]] = {}
    for verdict in verdicts:
        for name in changed_classes(verdict.weights or {}, verdict.previous_weights or {}) if verdict.execute else ():
            stamps.setdefault(name, []).append(verdict.at)
    return {name: list(_ages(found, now_ns)) for name, found in stamps.items()}


def changed_classes(weights: Mapping[str, int], before: Mapping[str, int]) -> list[str]:
    """The classes that get another weight than they had."""
    return [name for name, weight in weights.items() if before.get(name) != weight]


def _is_opening(order: Command) -> bool:
    return order.verb == "restore" and (order.id or "").endswith(f"-{BREAKER_OPENED}")


def _is_later(order: Command, verdict: Verdict) -> bool:
    """Of one run the cycle tells, and in it the verdict came first; only across runs the wall clock."""
    if order.boot == verdict.boot:
        return order.cycle >= verdict.cycle
    return order.at > verdict.at


def _ages(stamps_ns: Iterable[int], now_ns: int) -> tuple[float, ...]:
    return tuple(sorted((_age(stamp, now_ns) for stamp in stamps_ns), reverse=True))


def _age(stamp_ns: int, now_ns: int) -> float:
    return max(0.0, (now_ns - stamp_ns) / 1e9)
