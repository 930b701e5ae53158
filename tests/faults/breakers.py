"""The breaker: pages that tell of a P99 that rises with every change, and a guard that is killed in each of its states."""

import itertools
import json
import os
import signal
from pathlib import Path

from schemas.messages import Actuation, Command, Heartbeat, Verdict
from tests.faults.pages import LyingEndpoint
from tests.faults.rows import Bench, Fault
from tests.faults.stand import Case, Red, Stand

COOL_DOWN_SECONDS = 12.0
TRIAL_SECONDS = 6.0
_ROLLBACKS = 2
_TRIALS = 2
_REQUESTS = 400
"""Requests that every look finds more than the one before."""

_WORSE = {"latency-critical": 100, "default": 100, "batch": 10_000}
"""The only profile there is: by it both services lose to batch."""

_SECONDS = (0.01, *(0.5 * 2**step for step in range(20)))
"""How long requests take at most: with originals, and after so many changes."""


class Told:
    """A pod's page, made up: requests are fast, or slower with every change of weights, or there are none."""

    def __init__(self, stand: Stand, pod: str) -> None:
        self._stand = stand
        self._pod = pod
        self._counts = [0] * len(_SECONDS)
        self._step = 0
        self._seen: dict[str, str] = {}
        self.rises = False
        """Whether requests take longer after every change, until originals are back."""

        self.quiet = False
        """Whether no requests come: then there is no evidence."""

    def __call__(self, page: str) -> str:
        """The page; it ignores the real one."""
        weights = self._stand.weights()
        if not self.rises or weights == self._stand.expected:
            self._step = 0
        elif weights != self._seen:
            self._step = min(self._step + 1, len(_SECONDS) - 1)
        self._seen = weights
        if not self.quiet:
            self._counts[self._step] += _REQUESTS
        name = next(staged.latency_metric for staged in self._stand.stage.pods if staged.name == self._pod)
        total = sum(self._counts)
        lines = [f"# TYPE {name} histogram"]
        for le, count in zip(_SECONDS, itertools.accumulate(self._counts), strict=True):
            lines.append(f'{name}_bucket{{le="{le}"}} {count}')
        lines += [f'{name}_bucket{{le="+Inf"}} {total}', f"{name}_sum {total}", f"{name}_count {total}", ""]
        return "\n".join(lines)


async def _prepare(stand: Stand) -> None:
    for pod in ("api", "monitor"):
        endpoint, told = LyingEndpoint(stand, pod), Told(stand, pod)
        endpoint.lie = told
        stand.gear[pod] = told
        stand.stage.pages[pod] = await endpoint.start()
        stand.undo.append(endpoint.close)


def _tell(stand: Stand, *, rises: bool = False, quiet: bool = False) -> None:
    for pod in ("api", "monitor"):
        stand.gear[pod].rises, stand.gear[pod].quiet = rises and pod == "api", quiet


def _is_opening(message: object) -> bool:
    return isinstance(message, Command) and message.by == "guard" and (message.id or "").endswith("-breaker")


def _is_half_open_restore(command: Command) -> bool:
    return command.by == "guard" and (command.id or "").endswith("-half_open")


async def _opened(stand: Stand) -> int:
    """The breaker has opened, since every change made P99 rise; the number of messages heard when it did."""
    await stand.rest()
    _tell(stand, rises=True)
    since = stand.count()
    await stand.rig.order("active", "every change makes it worse", by="fault suite")
    await stand.next(Command, _is_opening, f"{_ROLLBACKS} rollbacks, and the breaker opens", since)
    await stand.until(lambda: stand.weights() == stand.expected, "originals, since the breaker opened")
    return since


def _openings(stand: Stand, since: int) -> list[Command]:
    return [command for command in stand.of(Command, since) if _is_opening(command)]


def _one_change_each(stand: Stand, since: int) -> int:
    """How many changes were made after the first opening; Red if two of them were less than a cool-down apart."""
    opened_at = _openings(stand, since)[0].at
    before = [a.at for a in stand.applied(since) if a.at <= opened_at]
    after = [a.at for a in stand.applied(since) if a.at > opened_at]
    moments = [*before[-1:], *after]
    for earlier, later in itertools.pairwise(moments):
        if (later - earlier) / 1e9 < COOL_DOWN_SECONDS:
            raise Red(f"two changes {(later - earlier) / 1e9:.1f} s apart: the cool-down is {COOL_DOWN_SECONDS:g} s")
    return len(after)


async def _new_guard(stand: Stand, old: set[str], since: int) -> None:
    await stand.next(Heartbeat, lambda b: b.service == "guard" and b.boot not in old, "a new guard", since)


def _guards(stand: Stand) -> set[str]:
    return {beat.boot for beat in stand.of(Heartbeat) if beat.service == "guard"}


async def _trials(stand: Stand, since: int, openings: int) -> None:
    """Until it has opened so often, each time after one change; then everything is well again."""
    await stand.until(lambda: len(_openings(stand, since)) >= openings, f"{openings} openings", 90.0)
    await stand.until(lambda: stand.weights() == stand.expected, "originals, since it opened again")
    made = _one_change_each(stand, since)
    if made != openings - 1:
        raise Red(f"{made} changes for {openings - 1} openings of a half-open breaker")


async def _rises(stand: Stand, case: Case) -> None:
    case.struck()
    try:
        since = await _opened(stand)
        case.safe("command restore: the breaker opened")
        await _trials(stand, since, 1 + _TRIALS)
    finally:
        _tell(stand)


async def _without_evidence(stand: Stand, case: Case) -> None:
    case.struck()
    try:
        since = await _opened(stand)
        _tell(stand, quiet=True)
        given_up = await stand.next(
            Command, lambda c: _is_opening(c) and "no evidence" in c.reason, "the trial is given up", since
        )
        case.safe(f"command restore: {given_up.reason}"[:72])
        await _trials(stand, since, 2)
    finally:
        _tell(stand)


async def _killed_open(stand: Stand, case: Case) -> None:
    try:
        await stand.rest()
        _tell(stand, rises=True)
        old, since, pid = _guards(stand), stand.count(), stand.pid("guard")
        await stand.rig.order("active", "every change makes it worse", by="fault suite")

        def kill() -> None:
            os.kill(pid, signal.SIGKILL)
            case.struck()

        await stand.at(_is_opening, kill, "the breaker opens")
        killed = stand.count()
        back = await stand.originals(case, "the order of the opening breaker")
        await _new_guard(stand, old, killed)
        told = await stand.next(Verdict, lambda v: v.breaker is not None, "a verdict of the new guard")
        if told.breaker != "open" or told.execute:
            raise Red(f"the new guard's breaker is {told.breaker}")
        case.safe("verdict of a new guard: breaker open", back)
        await _trials(stand, since, 2)
    finally:
        _tell(stand)


async def _killed_half_open(stand: Stand, case: Case) -> None:
    """Without a decider nothing is tried: it stays half open until the guard is gone."""
    decider = stand.pid("decider")
    try:
        since = await _opened(stand)
        os.kill(decider, signal.SIGSTOP)
        old, pid = _guards(stand), stand.pid("guard")

        def kill() -> None:
            os.kill(pid, signal.SIGKILL)
            case.struck()

        await stand.at(lambda m: isinstance(m, Verdict) and m.breaker == "half_open", kill, "the breaker is half open")
        killed = stand.count()
        order = await stand.next(Command, _is_half_open_restore, "the new guard's order to restore", killed)
        await _new_guard(stand, old, killed)
        back = await stand.originals(case, "nothing was tried")
        case.safe(f"command restore: {order.reason}"[:72], back)
        os.kill(decider, signal.SIGCONT)
        await _trials(stand, since, 2)
    finally:
        os.kill(decider, signal.SIGCONT)
        _tell(stand)


async def _killed_under_trial(stand: Stand, case: Case) -> None:
    try:
        since = await _opened(stand)
        _tell(stand, quiet=True)
        old, pid, opened = _guards(stand), stand.pid("guard"), stand.count()

        def kill() -> None:
            os.kill(pid, signal.SIGKILL)
            case.struck()

        await stand.at(lambda m: isinstance(m, Actuation) and m.outcome == "applied", kill, "the change under trial")
        killed = stand.count()
        order = await stand.next(Command, _is_half_open_restore, "the new guard's order to restore", killed)
        ordered = stand.count()
        back = await stand.originals(case, "the change under trial")
        case.safe(f"command restore: {order.reason}"[:72], back)
        _one_change_each(stand, since)
        if len([a for timed in stand.heard[opened:ordered] if (a := timed.message) in stand.applied(opened)]) != 1:
            raise Red("more than one change before the restore")
        await _new_guard(stand, old, killed)
        _tell(stand, rises=True)
        await stand.until(lambda: len(_openings(stand, since)) >= 2, "it opens again", 90.0)
        await stand.until(lambda: stand.weights() == stand.expected, "originals, since it opened again")
        made = len([a for a in stand.of(Actuation, killed) if a.outcome == "applied"])
        if made > 1:
            raise Red(f"{made} changes by the new guard before its breaker opened again")
    finally:
        _tell(stand)


def _flags(run_dir: Path) -> tuple[str, ...]:
    return (
        f"guard.rollbacks_to_open={_ROLLBACKS}",
        f"guard.cool_down_seconds={COOL_DOWN_SECONDS}",
        f"guard.trial_seconds={TRIAL_SECONDS}",
        # Every change takes from who gets slower: a class that was given more would be excused for its load.
        "decider.policy=static",
        "decider.static_profile=worse",
        f"decider.profiles={json.dumps({'worse': _WORSE})}",
        # These pages come from the suite's own process, which has much to do beside: time for its answers.
        "loop.tick_seconds=2.0",
        "loop.settle_seconds=0.8",
        "collector.scrape_timeout_seconds=0.35",
        "actuator.dead_man_seconds=6.0",
    )


_ONE_EACH = f"originals return, and at most one change comes in each cool-down of {COOL_DOWN_SECONDS:g} s"

BENCHES = (
    Bench(
        "breaker-1",
        "the breaker",
        (
            Fault("P99 rises after every change", f"the breaker opens, again after each trial; {_ONE_EACH}", _rises,
                  cost=35.0),
            Fault("no requests while a change is under trial", f"the trial is given up, and it opens again; {_ONE_EACH}",
                  _without_evidence, cost=30.0),
            Fault("SIGKILL guard when the breaker opens", f"the next guard's is open; {_ONE_EACH}", _killed_open,
                  cost=30.0),
        ),
        _prepare,
        _flags,
    ),
    Bench(
        "breaker-2",
        "the breaker",
        (
            Fault("SIGKILL guard while it is half open", f"the next guard orders all back; {_ONE_EACH}",
                  _killed_half_open, cost=35.0),
            Fault(
                "SIGKILL guard with a change under trial",
                "the next guard orders it back before it tries another one, once",
                _killed_under_trial,
                cost=35.0,
            ),
        ),
        _prepare,
        _flags,
    ),
)  # fmt: skip
