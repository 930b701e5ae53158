"""Which states are of the collector's run in progress, and which are strays: forged, replayed, or of a run that ended.

A run is one numbering of cycles: a boot, and within it a stretch without a jump. The run that speaks keeps the floor:
another one, and a cycle that is far ahead, is heard only once the run in progress has been silent for four fifths of a
tick. A collector that starts anew is always later than that, since its first state is a tick after its start; so a
restart costs no cycle. One stray state costs none either, unless it falls into that silence: then the real run has the
floor again after one more tick. No run is locked out for good, and within each a cycle is accepted at most once and in
order, whoever had the floor in between (I6).
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

_MEMORY: Final = 256
_QUIET_TICKS: Final = 0.8
_REACH: Final = 16
"""Cycles that may be missing at once. More of them take time, in which nobody speaks."""


@dataclass
class _Run:
    boot: str
    first: int
    newest: int


class Runs:
    """Says of each state whether it is the next of the run in progress. Times are monotonic seconds."""

    def __init__(self, tick_seconds: float) -> None:
        self._tick_seconds = tick_seconds
        self._current: _Run | None = None
        self._heard_at = 0.0
        self._runs: OrderedDict[tuple[str, int], _Run] = OrderedDict()

    @property
    def boot(self) -> str | None:
        """The boot of the run in progress."""
        return self._current.boot if self._current is not None else None

    @property
    def cycle(self) -> int:
        """The newest cycle accepted in it."""
        return self._current.newest if self._current is not None else 0

    def is_current(self, boot: str, cycle: int) -> bool:
        """Whether this is the newest cycle accepted."""
        return self._current is not None and (boot, cycle) == (self.boot, self.cycle)

    def refuses(self, boot: str, cycle: int, now: float) -> str | None:
        """None if this is the next state, which is then remembered; else why it is not: `duplicate` (seen, or overtaken
        in its run) or `stray`.
        """
        run, is_quiet = self._run_of(boot, cycle), now - self._heard_at >= _QUIET_TICKS * self._tick_seconds
        if run is not None and cycle <= run.newest:
            return "duplicate"
        if self._current is not None and run is not self._current and not is_quiet:
            return "stray"
        if run is None:
            run = self._runs[boot, cycle] = _Run(boot, cycle, cycle)
        run.newest = cycle
        self._runs.move_to_end((run.boot, run.first))
        while len(self._runs) > _MEMORY:
            self._runs.popitem(last=False)
        self._current, self._heard_at = run, now
        return None

    def _run_of(self, boot: str, cycle: int) -> _Run | None:
        """The run that this cycle belongs to; None for one that would begin with it."""
        runs = [run for run in self._runs.values() if run.boot == boot]
        begun = max((run for run in runs if run.first <= cycle), key=lambda run: run.first, default=None)
        if begun is not None:
            return begun if cycle <= begun.newest + _REACH else None
        following = min(runs, key=lambda run: run.first, default=None)
        return following if following is not None and cycle >= following.first - _REACH else None
