"""A rogue on the decider's subject, beside the real decider or in its place."""

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Callable

import msgspec

from lab.rig import NODE
from runtime.bus import Received
from runtime.nats_bus import connect, ignore_events
from runtime.settings import BusSettings
from schemas.codec import DecodeError, decode, encode
from schemas.messages import Action, Actuation, Command, Heartbeat, State, Verdict
from schemas.subjects import subject, subject_of
from tests.faults.rows import Bench, Fault
from tests.faults.stand import Case, Red, Stand

_DROPPED = "trimtab_messages_dropped_total"
_SUBJECT = subject("action", NODE)
_CYCLES = 3
_FORGED = "forged"

Answers = Callable[[State], list[bytes]]


def _action(state: State, **fields: object) -> Action:
    known: dict[str, object] = {
        "node": state.node,
        "boot": state.boot,
        "cycle": state.cycle,
        "at": time.time_ns(),
        "policy": "rogue",
        "arm": "rogue",
        "weights": {"latency-critical": 1000, "default": 200, "batch": 100},
    }
    return Action(**{**known, **fields})  # type: ignore[arg-type]


def _garbage(state: State) -> list[bytes]:
    whole = encode(_action(state))
    return [b"", b"\xff\xfe\x00", whole[: len(whole) // 2], b"[" * 5000, b"{}", b"x" * 900_000, os.urandom(512)]


def _nan(state: State) -> list[bytes]:
    whole = encode(_action(state))
    return [
        whole.replace(b'"propensity":1.0', b'"propensity":NaN'),
        whole.replace(b'"propensity":1.0', b'"propensity":1e999'),
        whole.replace(b'"batch":100', b'"batch":NaN'),
        whole.replace(b'"batch":100', b'"batch":-Infinity'),
    ]


def _out_of_bounds(state: State) -> list[bytes]:
    weights = ({"batch": 10**9, "latency-critical": 1}, {"batch": 0, "latency-critical": -5}, {"batch": 2**62})
    return [encode(_action(state, weights={"default": 100, **weights[state.cycle % 3]}))]


def _strange_class(state: State) -> list[bytes]:
    return [encode(_action(state, weights={"latency-critical": 1000, "../../system.slice": 100}))]


def _other_node(state: State) -> list[bytes]:
    return [encode(_action(state, node="somebody-else"))]


def _too_often(state: State) -> list[bytes]:
    return [
        encode(_action(state, weights={"latency-critical": 300 + n, "default": 200, "batch": 100})) for n in range(200)
    ]


def _future(state: State) -> list[bytes]:
    return [encode(_action(state, cycle=state.cycle + 1000 + n)) for n in range(50)]


def _good(state: State) -> list[bytes]:
    return [encode(_action(state))]


@contextlib.asynccontextmanager
async def _rogue(stand: Stand, answers: Answers, delay_seconds: float) -> AsyncIterator[None]:
    """A process of its own would publish no other bytes: this is a connection of its own."""
    bus = await connect(BusSettings(url=stand.rig.url), "rogue", ignore_events)
    later: set[asyncio.Task[None]] = set()

    async def say(state: State) -> None:
        await asyncio.sleep(delay_seconds)
        for payload in answers(state):
            await bus.publish(_SUBJECT, payload)

    async def hear(received: Received) -> None:
        with contextlib.suppress(DecodeError):
            state = decode(received.payload)
            if isinstance(state, State) and state.phase == "before":
                task = asyncio.create_task(say(state))
                later.add(task)
                task.add_done_callback(later.discard)

    await bus.subscribe(subject("state", NODE), hear)
    try:
        yield
    finally:
        await asyncio.gather(*later, return_exceptions=True)
        await bus.close()


def _row(
    name: str,
    answers: Answers,
    expected: str,
    *,
    verdict: Callable[[Verdict], bool],
    dropped: str | None,
    may_move: bool = False,
    beside: bool = False,
    delay_seconds: float = 0.0,
) -> Fault:
    """`verdict` is what the guard must say in three cycles; `dropped` the reason that its counter must show."""

    async def run(stand: Stand, case: Case) -> None:
        before = await stand.metric("guard", _DROPPED, kind="action", reason=dropped or "")
        decider = stand.pid("decider")
        if not beside:
            os.kill(decider, signal.SIGSTOP)
        try:
            # A cycle that the real decider has begun may still be carried out.
            await stand.next(State, lambda s: s.phase == "before", "the next cycle")
            case.struck()
            async with _rogue(stand, answers, delay_seconds):
                first = await stand.next(State, lambda s: s.phase == "before", "a cycle for the rogue")
                since = stand.count()
                await stand.until(
                    lambda: sum(verdict(v) for v in stand.of(Verdict, since)) >= 1, "the guard's answer", 20.0
                )
                seen = next(v for v in stand.of(Verdict, since) if verdict(v))
                case.safe(f"verdict {seen.outcome}{f', rule {seen.rule}' if seen.rule else ''}")
                await stand.until(
                    lambda: sum(verdict(v) for v in stand.of(Verdict, since)) >= _CYCLES, "the guard's answers", 30.0
                )
                moved = [a for a in stand.applied(since) if a.boot == first.boot and a.cycle >= first.cycle]
                if moved and not may_move:
                    raise Red(f"the rogue moved weights in cycle {moved[0].cycle}")
                if dropped is not None:
                    counter = await stand.counted(before, "guard", _DROPPED, kind="action", reason=dropped)
                    case.result.seen_in += f"; {counter.split('metric ')[1].split(' ')[0]}"
        finally:
            if not beside:
                os.kill(decider, signal.SIGCONT)

    return Fault(f"{name}, {'beside' if beside else 'in place of'} the real decider", expected, run, cost=9.0)


def _late(verdict: Verdict) -> bool:
    return verdict.outcome == "late"


def _moves(verdict: Verdict) -> bool:
    return verdict.outcome in ("allow", "clamp", "hold")


async def _stolen(stand: Stand, case: Case) -> None:
    """Whoever has the decider's key says what the guard says."""
    refused: list[str] = []
    settings = msgspec.structs.replace(stand.login, url=stand.rig.url)
    bus = await connect(settings, f"trimtab-decider-{NODE}", lambda event, detail: refused.append(f"{event}: {detail}"))

    async def forge(received: Received) -> None:
        with contextlib.suppress(DecodeError):
            state = decode(received.payload)
            if not isinstance(state, State) or state.phase != "before":
                return
            ids = {"node": state.node, "boot": state.boot, "cycle": state.cycle, "at": time.time_ns()}
            forged = (
                Verdict(
                    **ids, outcome="allow", execute=True, mode="active", arm=_FORGED, deadline=time.time_ns() + 10**9,
                    weights={"latency-critical": 9999, "default": 100, "batch": 100},
                ),
                Command(**ids, verb="mode", by=_FORGED, reason=_FORGED, mode="frozen"),
                Heartbeat(**ids, service="guard", mode="active"),
            )  # fmt: skip
            for message in forged:
                await bus.publish(subject_of(message), encode(message))

    try:
        case.struck()
        await bus.subscribe(subject("state", NODE), forge)
        since = stand.count()
        await stand.until(lambda: any("verdict" in each for each in refused), "the server's refusal")
        await stand.until(lambda: len(stand.applied(since)) >= _CYCLES, "the loop, undisturbed")
        heard = [m for m in stand.of(Verdict, since) + stand.of(Actuation, since) if m.arm == _FORGED]
        orders = [m for m in stand.of(Command, since) if m.by == _FORGED]
        if heard or orders:
            raise Red(f"forged and delivered: {(heard + orders)[0]}")
        case.safe(next(each for each in refused if "verdict" in each)[:64])
    finally:
        await bus.close()


BENCHES = (
    Bench(
        "deciders",
        "rogue deciders",
        (
            _row("garbage", _garbage, "late; nothing moves", verdict=_late, dropped="decode"),
            _row("NaN and infinity", _nan, "late; nothing moves", verdict=_late, dropped="decode"),
            _row("somebody else's node name", _other_node, "late; nothing moves", verdict=_late, dropped="other_node"),
            _row(
                "0.25 s late (budget 0.1 s)", _good, "late; nothing moves", verdict=_late, dropped="late",
                delay_seconds=0.25,
            ),
            _row("cycles of the future", _future, "late; nothing moves", verdict=_late, dropped=None),
            _row(
                "weights out of bounds", _out_of_bounds, "refused; nothing moves",
                verdict=lambda v: v.outcome == "refuse", dropped=None,
            ),
            _row(
                "a class that is a path", _strange_class, "refused; nothing moves",
                verdict=lambda v: v.outcome == "refuse" and v.rule == "known_classes", dropped=None,
            ),
            _row(
                "200 actions a cycle", _too_often, "the first counts, at most one application", verdict=_moves,
                dropped="duplicate", may_move=True,
            ),
            _row(
                "garbage", _garbage, "the loop goes on", verdict=_moves, dropped="decode", may_move=True, beside=True
            ),
            _row(
                "somebody else's node name", _other_node, "the loop goes on", verdict=_moves, dropped="other_node",
                may_move=True, beside=True,
            ),
            _row(
                "200 actions a cycle", _too_often, "at most one application a cycle", verdict=_moves,
                dropped="duplicate", may_move=True, beside=True,
            ),
        ),
    ),
    Bench(
        "stolen-subject",
        "rogue deciders",
        (
            Fault(
                "as the guard, with the decider's own credential",
                "verdicts, orders and heartbeats are refused by the server; nothing moves by them",
                _stolen,
            ),
        ),
        credentials=True,
    ),
)  # fmt: skip
