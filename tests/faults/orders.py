"""Orders of a mode: replayed, old, from the future, kept out of the store, or flooded away with the guard killed after.

The file of these rigs says `mode: active`: a freeze that is lost lets weights move.
"""

import asyncio
import os
import secrets
import shutil
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from nats.js.errors import NotFoundError

from lab.rig import NODE
from runtime.streams import AUDIT, ORDERS, ensure_streams
from schemas.codec import encode
from schemas.messages import Command, Heartbeat, Mode, Verdict
from schemas.subjects import message_id, subject_of
from tests.faults.rows import Bench, Fault
from tests.faults.server import kill_server
from tests.faults.stand import Case, Red, Stand

DROPPED = "trimtab_messages_dropped_total"
_HOUR = 3600
_CYCLES = 3
_FLOOD = 10_500
"""More than the server keeps of a node's orders: nothing from before is there any more."""

_AT_ONCE, _PACED = 500, 50
"""How many orders are published at once: more than an inbox takes, and so few that the suite can play other rows."""

Given = Callable[[Stand, Command], Awaitable[None]]
"""Gives an order in a way of its own; the second argument is the order that was given, and stored, before it."""


def order(mode: Mode, later_seconds: int = 0) -> Command:
    """An operator's order, dated so much later than now."""
    return Command(
        node=NODE,
        boot="operator",
        cycle=0,
        at=time.time_ns() + later_seconds * 1_000_000_000,
        verb="mode",
        by="fault suite",
        reason="a fault",
        mode=mode,
        id=secrets.token_hex(4),
    )


async def give(stand: Stand, command: Command, msg_id: str | None = None) -> None:
    """As whoever may publish orders can: under any message id, or none."""
    assert stand.rig.bus is not None
    await stand.rig.bus.publish(subject_of(command), encode(command), msg_id=msg_id)


async def give_stored(stand: Stand, command: Command) -> None:
    """As `trimtab mode` does."""
    assert stand.rig.bus is not None
    await stand.rig.bus.publish_stored(subject_of(command), encode(command), msg_id=message_id(command), stream=ORDERS)


async def freeze(stand: Stand) -> Command:
    """A freeze that is stored and obeyed, and originals in every file."""
    command = order("frozen")
    await give_stored(stand, command)
    await until_frozen(stand)
    return command


async def until_frozen(stand: Stand) -> None:
    """The guard says so, and originals are in every file."""
    await stand.next(Verdict, lambda v: v.mode == "frozen", "a verdict in mode frozen")
    await stand.until(lambda: stand.weights() == stand.expected, "originals, since it is frozen")


async def stays(stand: Stand, mode: Mode) -> None:
    """A few cycles more in this mode; Red if one is in another."""
    since = stand.count()
    await stand.until(lambda: len(stand.of(Verdict, since)) >= _CYCLES, f"verdicts in mode {mode}")
    other = next((v for v in stand.of(Verdict, since) if v.mode != mode), None)
    if other is not None:
        raise Red(f"cycle {other.cycle} was judged in mode {other.mode}, not {mode}")
    if mode == "frozen" and (stand.applied(since) or stand.weights() != stand.expected):
        raise Red("a weight moved while frozen")


async def frozen_with_a_new_guard(stand: Stand) -> str:
    """Kills the guard; the next one must know of the freeze."""
    old = {beat.boot for beat in stand.of(Heartbeat) if beat.service == "guard"}
    since = stand.count()
    os.kill(stand.pid("guard"), signal.SIGKILL)
    beat = await stand.next(Heartbeat, lambda b: b.service == "guard" and b.boot not in old, "a new guard", since)
    if beat.mode != "frozen":
        raise Red(f"the new guard begins in mode {beat.mode}: the freeze is forgotten")
    await stays(stand, "frozen")
    return "heartbeat of a new guard, mode frozen"


# ---- an order to move that must not ----


async def _again(stand: Stand, before: Command) -> None:
    await give(stand, before)


async def _old(stand: Stand, before: Command) -> None:
    await give(stand, order("active", -_HOUR))


async def _early(stand: Stand, before: Command) -> None:
    await give(stand, order("active", _HOUR))


async def _under_its_id(stand: Stand, before: Command) -> None:
    """The server takes it for the one before, hands it on, and does not store it."""
    await give(stand, order("active"), message_id(before))


async def _without_a_stream(stand: Stand, before: Command) -> None:
    assert stand.rig.bus is not None
    await stand.rig.bus.jetstream.delete_stream(ORDERS)
    await give(stand, order("active"))


def _moves_nothing(how: str, given: Given, word: str) -> Fault:
    """`word`: under which reason the guard counts it."""

    async def run(stand: Stand, case: Case) -> None:
        earlier = order("active")
        await give_stored(stand, earlier)
        await freeze(stand)
        count = await stand.metric("guard", DROPPED, kind="command", reason=word)
        case.struck()
        await given(stand, earlier)
        try:
            case.safe(await stand.counted(count, "guard", DROPPED, kind="command", reason=word))
            await stays(stand, "frozen")
        finally:
            assert stand.rig.bus is not None
            await ensure_streams(stand.rig.bus.jetstream)
        if word != "not_stored":  # it is in the stream, for whoever comes next
            await frozen_with_a_new_guard(stand)
        await stand.steer()

    more = "" if word == "not_stored" else ", nor by the next guard"
    return Fault(
        f"frozen, and an order `active` {how}", f"never obeyed{more}; counted as {word}; the loop goes on", run,
        cost=16.0,
    )  # fmt: skip


# ---- an order to stand still ----


async def _freeze_old(stand: Stand, before: Command) -> None:
    await give(stand, order("frozen", -_HOUR))


async def _freeze_early(stand: Stand, before: Command) -> None:
    await give(stand, order("frozen", _HOUR))


async def _freeze_under_its_id(stand: Stand, before: Command) -> None:
    await give(stand, order("frozen"), message_id(before))


async def _freeze_without_a_stream(stand: Stand, before: Command) -> None:
    assert stand.rig.bus is not None
    await stand.rig.bus.jetstream.delete_stream(ORDERS)
    await give(stand, order("frozen"))


def _stops(how: str, given: Given) -> Fault:
    async def run(stand: Stand, case: Case) -> None:
        earlier = order("active")
        await give_stored(stand, earlier)
        since = stand.count()
        case.struck()
        await given(stand, earlier)
        try:
            told = await stand.next(Verdict, lambda v: v.mode == "frozen", "a verdict in mode frozen", since)
            back = await stand.originals(case, "the freeze")
            case.safe(f"verdict {told.outcome}, mode frozen", back)
            await stays(stand, "frozen")
        finally:
            assert stand.rig.bus is not None
            await ensure_streams(stand.rig.bus.jetstream)
        await stand.steer()

    return Fault(f"an order `frozen` {how}", "obeyed as soon as it is heard: originals return", run, cost=10.0)


async def _freeze_again(stand: Stand, case: Case) -> None:
    """Recorded before it was lifted, and given again by whoever has the recording."""
    earlier = await freeze(stand)
    await stand.steer()
    count = await stand.metric("guard", DROPPED, kind="command", reason="duplicate")
    since = stand.count()
    case.struck()
    await give(stand, earlier)
    case.safe(await stand.counted(count, "guard", DROPPED, kind="command", reason="duplicate"))
    await stays(stand, "active")
    await stand.until(lambda: bool(stand.applied(since)), "writes go on")


# ---- a freeze that must not be lost ----


async def _flood(stand: Stand, case: Case) -> None:
    """Nobody's rollbacks, as many as a rogue with the right to order can send, until the freeze is out of the stream."""
    assert stand.rig.bus is not None
    bus = stand.rig.bus
    await freeze(stand)
    place = (await bus.jetstream.get_last_msg(ORDERS, subject_of(order("frozen")))).seq
    assert place is not None
    case.struck()
    await _pour(stand, _FLOOD, _PACED)
    try:
        await bus.jetstream.get_msg(ORDERS, place)
    except NotFoundError:
        pass
    else:
        raise Red("the freeze itself is still in the stream: the flood was too small")
    await stays(stand, "frozen")
    case.safe(await frozen_with_a_new_guard(stand))
    await stand.steer()


async def _pour(stand: Stand, many: int, at_once: int = _AT_ONCE) -> None:
    nobody = msgspec.structs.replace(order("active"), boot="flood", verb="rollback", mode=None)
    heard = stand.count()
    for first in range(0, many, at_once):
        for _ in range(at_once):
            await give(stand, msgspec.structs.replace(nobody, id=f"flood-{secrets.token_hex(6)}"))
        await stand.until(lambda: stand.count() >= heard + first + at_once, "the flood, heard here")  # noqa: B023


async def _in_a_flood(stand: Stand, case: Case) -> None:
    """More orders than an inbox takes come around it: guard and actuator may not hear it."""
    case.struck()
    await _pour(stand, _AT_ONCE)
    await asyncio.gather(_pour(stand, 2 * _AT_ONCE), give(stand, order("frozen")))
    back = await stand.originals(case, "the freeze")
    told = await stand.next(Verdict, lambda v: v.mode == "frozen", "a verdict in mode frozen")
    case.safe(f"verdict {told.outcome}, mode frozen", back)
    await stays(stand, "frozen")
    await stand.steer()


async def _audit_gone(stand: Stand, case: Case) -> None:
    """As after a limit in bytes was reached, or an administrator's mistake."""
    assert stand.rig.bus is not None
    js = stand.rig.bus.jetstream
    await freeze(stand)
    case.struck()
    await js.delete_stream(AUDIT)
    await ensure_streams(js)
    case.safe(await frozen_with_a_new_guard(stand))
    await stand.steer()


async def _store_gone(stand: Stand, case: Case) -> None:
    """The guard outlives the store, gives what holds to the new one, and is killed."""
    await freeze(stand)
    await kill_server(stand)
    since = stand.count()
    case.struck()
    await asyncio.to_thread(shutil.rmtree, stand.run_dir / "nats" / "jetstream")
    await stand.rig.server.start()
    await stand.whole_cycle()
    await stand.next(Command, lambda c: c.mode == "frozen", "the guard gives the freeze to the new store", since)
    case.safe(await frozen_with_a_new_guard(stand))
    await stand.steer()


def _active_in_the_file(run_dir: Path) -> tuple[str, ...]:
    return ("mode=active",)


BENCHES = (
    Bench(
        "orders-to-move",
        "orders of a mode",
        (
            _moves_nothing("replayed (the same id)", _again, "duplicate"),
            _moves_nothing("of an hour ago", _old, "stale"),
            _moves_nothing("of an hour ahead", _early, "future"),
            _moves_nothing("under a Nats-Msg-Id that was used before", _under_its_id, "not_stored"),
            _moves_nothing("while the stream of orders is not there", _without_a_stream, "not_stored"),
        ),
        flags=_active_in_the_file,
    ),
    Bench(
        "orders-to-stop",
        "orders of a mode",
        (
            _stops("of an hour ago", _freeze_old),
            _stops("of an hour ahead", _freeze_early),
            _stops("under a Nats-Msg-Id that was used before", _freeze_under_its_id),
            _stops("while the stream of orders is not there", _freeze_without_a_stream),
            Fault(
                "an order `frozen` replayed after it was lifted (the same id)",
                "dropped as a duplicate by guard and actuator; writes go on",
                _freeze_again,
                cost=10.0,
            ),
        ),
        flags=_active_in_the_file,
    ),
    Bench(
        "orders-lost",
        "orders of a mode",
        (
            Fault(
                "frozen, the audit deleted and made again, and the guard killed",
                "the next guard is frozen, though its file says active",
                _audit_gone,
                cost=15.0,
            ),
            Fault(
                "frozen, the server started without its store, and the guard killed",
                "the guard gives the freeze to the new store; the next guard is frozen",
                _store_gone,
                cost=20.0,
            ),
            Fault(
                f"an order `frozen` among {3 * _AT_ONCE} others at once",
                "obeyed, heard or found in the stream: originals return",
                _in_a_flood,
                cost=12.0,
            ),
            Fault(
                f"frozen, {_FLOOD} other orders (the server keeps 10000 of a node), and the guard killed",
                "the guard says the freeze again in time; the next guard is frozen",
                _flood,
                cost=30.0,
            ),
        ),
        flags=_active_in_the_file,
    ),
)
