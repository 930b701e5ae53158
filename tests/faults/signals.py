"""SIGKILL, SIGSTOP and SIGTERM of each service at each step of a cycle, and SIGKILL of all five at once."""

import os
import signal
from collections.abc import Awaitable, Callable

from schemas.messages import Action, Actuation, AnyMessage, Command, Heartbeat, Reward, State, Verdict
from schemas.subjects import SERVICES
from tests.faults.rows import Bench, Fault
from tests.faults.stand import Case, Red, Stand

STEPS: dict[str, Callable[[AnyMessage], bool]] = {
    "the state": lambda m: isinstance(m, State) and m.phase == "before",
    "the action": lambda m: isinstance(m, Action),
    "the verdict": lambda m: isinstance(m, Verdict) and m.execute,
    "the actuation": lambda m: isinstance(m, Actuation) and m.outcome == "applied",
    "the after-state": lambda m: isinstance(m, State) and m.phase == "after",
}
"""The message after which the signal is sent, by the step's name."""

HELD_CYCLES = 3


def _ended(service: str, signum: signal.Signals, step: str) -> Fault:
    """The service ends and is started again."""
    killed = signum == signal.SIGKILL

    async def run(stand: Stand, case: Case) -> None:
        old = {beat.boot for beat in stand.of(Heartbeat) if beat.service == service}
        pid = stand.pid(service)
        await stand.strike(case, lambda: os.kill(pid, signum), STEPS[step])
        since = stand.count()
        back = None
        seen = ""
        if service == "actuator":
            back = await stand.originals(case, "the actuator's way out or its restart")
            seen = await stand.log_line(case, "actuator", "restored", why="restart" if killed else "stop", failed=0)
        elif not killed:
            seen = await stand.log_line(case, service, "stopped")
        await stand.next(
            Heartbeat, lambda beat: beat.service == service and beat.boot not in old, f"a new {service}", since
        )
        whole = await stand.whole_cycle()
        case.safe(seen or f"heartbeat of a new {service}", whole if back is None else back)

    expected = f"started again, the loop is whole{'; the originals return meanwhile' if service == 'actuator' else ''}"
    return Fault(f"{signum.name} {service} after {step}", expected, run, cost=7.0)


def _all_killed(step: str) -> Fault:
    async def run(stand: Stand, case: Case) -> None:
        pids = stand.rig.fleet.pids()

        def kill() -> None:
            for pid in pids.values():
                os.kill(pid, signal.SIGKILL)

        await stand.strike(case, kill, STEPS[step])
        back = await stand.originals(case, "from the journal")
        seen = await stand.log_line(case, "actuator", "restored", why="restart", failed=0)
        await stand.whole_cycle()
        case.safe(seen, back)

    return Fault(
        f"SIGKILL all five after {step}", "originals return from the journal, then the loop is whole", run, cost=10.0
    )


async def _guard_silent(stand: Stand, case: Case) -> None:
    back = await stand.originals(case, "the dead man")
    case.safe(await stand.log_line(case, "actuator", "dead_man"), back)


async def _collector_silent(stand: Stand, case: Case) -> None:
    back = await stand.originals(case, "the guard is blind")
    order = await stand.next(Command, lambda c: c.verb == "restore", "the guard's order to restore", case.since)
    case.safe(f"command restore: {order.reason}"[:48], back)


async def _decider_silent(stand: Stand, case: Case) -> None:
    since = stand.count()
    late = await stand.next(Verdict, lambda v: v.outcome == "late", "a verdict late", since)
    case.safe(f"verdict late, rule {late.rule}")
    await stand.until(
        lambda: sum(v.outcome == "late" for v in stand.of(Verdict, since)) >= HELD_CYCLES, "every verdict late"
    )
    begun = stand.kinds(since)
    if any(v.execute for v in stand.of(Verdict, since) if (v.boot, v.cycle) in begun):
        raise Red("a verdict without an action moved something")


async def _rewarder_silent(stand: Stand, case: Case) -> None:
    since = stand.count()
    await stand.next(Verdict, lambda v: True, "a verdict without a rewarder")
    case.safe("no reward; verdicts and actuations go on")
    await stand.until(lambda: len(stand.of(Verdict, since)) >= HELD_CYCLES, "verdicts without a rewarder")
    if any(kinds["reward"] for kinds in stand.kinds(since).values()):  # of a cycle that began before it may be one
        raise Red("a stopped rewarder rewards")


async def _actuator_silent(stand: Stand, case: Case) -> None:
    since = stand.count()
    beats = [at.at for at in stand.heard if isinstance(at.message, Heartbeat) and at.message.service == "actuator"]
    await stand.until(lambda: sum(v.execute for v in stand.of(Verdict, since)) >= HELD_CYCLES, "verdicts to be missed")
    begun = stand.kinds(since)
    if any((a.boot, a.cycle) in begun for a in stand.applied(since)):
        raise Red("a stopped actuator writes")
    await stand.next(Reward, lambda r: r.reason == "no_actuation", "a reward censored: no_actuation", since)
    case.safe("no heartbeat, no write; reward no_actuation", max(beats))
    case.result.safe_seconds = max(0.0, case.result.safe_seconds or 0.0)  # safe from the stop on


SILENT: dict[str, tuple[Callable[[Stand, Case], Awaitable[None]], str]] = {
    "collector": (_collector_silent, "the guard, blind for 4 ticks, orders the originals back; whole after SIGCONT"),
    "decider": (_decider_silent, "verdicts are late and move nothing; whole after SIGCONT"),
    "guard": (_guard_silent, "the actuator's dead man returns the originals; whole after SIGCONT"),
    "actuator": (_actuator_silent, "nothing is written meanwhile, nor late after SIGCONT; then whole"),
    "rewarder": (_rewarder_silent, "the guard goes on judging, nothing is learned; whole after SIGCONT"),
}


def _stopped(service: str, step: str) -> Fault:
    silent, expected = SILENT[service]

    async def run(stand: Stand, case: Case) -> None:
        pid = stand.pid(service)
        try:
            await stand.strike(case, lambda: os.kill(pid, signal.SIGSTOP), STEPS[step])
            await silent(stand, case)
        finally:
            os.kill(pid, signal.SIGCONT)

    return Fault(f"SIGSTOP {service} after {step}", expected, run, cost=9.0)


def _restarts(signum: signal.Signals) -> tuple[Bench, ...]:
    """Two rigs, so that they can run side by side."""
    return tuple(
        Bench(
            f"{signum.name.lower()}-{number}",
            f"{signum.name} and a new start",
            tuple(_ended(service, signum, step) for service in services for step in STEPS),
        )
        for number, services in enumerate(_HALVES, 1)
    )


_HALVES = (SERVICES[:3], SERVICES[3:])

BENCHES = (
    *_restarts(signal.SIGKILL),
    Bench("all-killed", "SIGKILL and a new start", tuple(_all_killed(step) for step in STEPS)),
    *_restarts(signal.SIGTERM),
    *(
        Bench(
            f"sigstop-{number}",
            "SIGSTOP, and SIGCONT later",
            tuple(_stopped(service, step) for service in services for step in STEPS),
        )
        for number, services in enumerate(_HALVES, 1)
    ),
)
