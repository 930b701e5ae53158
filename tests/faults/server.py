"""The NATS server: killed, started again with and without its store, paused."""

import asyncio
import os
import shutil
import signal

from runtime.streams import STREAMS
from tests.faults.rows import Bench, Fault
from tests.faults.stand import DEAD_MAN_SECONDS, Case, Red, Stand

PAUSE_SECONDS = 30.0


def _server_pid(stand: Stand) -> int:
    assert stand.rig.server.child is not None
    return stand.rig.server.child.pid


async def kill_server(stand: Stand, case: Case | None = None) -> None:
    """SIGKILL, and its end; for a row, when weights of ours are in force."""
    if case is None:
        os.kill(_server_pid(stand), signal.SIGKILL)
    else:
        await stand.strike(case, lambda: os.kill(_server_pid(stand), signal.SIGKILL))
    assert stand.rig.server.child is not None
    await stand.rig.server.child.process.wait()


async def _down_until_back(stand: Stand, case: Case) -> None:
    await kill_server(stand, case)
    back = await stand.originals(case, "the dead man, without a bus")
    case.safe(await stand.log_line(case, "actuator", "dead_man"), back)


async def _with_store(stand: Stand, case: Case) -> None:
    await _down_until_back(stand, case)
    await stand.rig.server.start()


async def _without_store(stand: Stand, case: Case) -> None:
    await _down_until_back(stand, case)
    await asyncio.to_thread(shutil.rmtree, stand.run_dir / "nats" / "jetstream")
    await stand.rig.server.start()
    await stand.whole_cycle()
    assert stand.rig.bus is not None
    js = stand.rig.bus.jetstream
    for stream in STREAMS:  # made again by whoever came first; the guard gives the mode in force to the one of orders

        async def has_some(name: str = stream.name) -> bool:
            return bool((await js.stream_info(name)).state.messages)

        await stand.until_async(has_some, f"{stream.name} filled after a server without its store")


async def _at_once(stand: Stand, case: Case) -> None:
    await kill_server(stand, case)
    await stand.rig.server.start()
    whole = await stand.whole_cycle()
    case.safe(await stand.log_line(case, "guard", "bus_reconnected"), whole)


async def _paused(stand: Stand, case: Case) -> None:
    pid = _server_pid(stand)
    await stand.strike(case, lambda: os.kill(pid, signal.SIGSTOP))
    try:
        paused = asyncio.create_task(asyncio.sleep(PAUSE_SECONDS))
        back = await stand.originals(case, "the dead man, while the server is paused")
        case.safe(await stand.log_line(case, "actuator", "dead_man"), back)
        await paused
        if stand.weights() != stand.expected:
            raise Red("a weight moved while the server was paused")
    finally:
        os.kill(pid, signal.SIGCONT)


BENCHES = (
    Bench(
        "server",
        "nats-server",
        (
            Fault("killed, started again at once with its store", "whole as soon as all have reconnected", _at_once),
            Fault(
                "killed, started again later with its store",
                f"originals after {DEAD_MAN_SECONDS:g} s without a bus; whole after the start",
                _with_store,
                cost=10.0,
            ),
            Fault(
                "killed, started again later without its store",
                "originals without a bus; streams made again, whole after the start",
                _without_store,
                cost=12.0,
            ),
            Fault(
                f"paused {PAUSE_SECONDS:g} s (SIGSTOP)",
                "originals without a bus; nothing late is written after SIGCONT; then whole",
                _paused,
                cost=45.0,
            ),
        ),
    ),
)
