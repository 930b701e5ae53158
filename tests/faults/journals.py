"""Journals that cannot be trusted when the actuator comes back: damaged, damaged twice, of another boot."""

import os
import signal
from pathlib import Path

from services.actuator.core.journal_format import header
from tests.faults.rows import Bench, Fault
from tests.faults.stand import Case, Red, Stand

_LOST = "trimtab_actuator_originals_lost"
_READY_AGAIN_SECONDS = 60.0


def _journal(stand: Stand) -> Path:
    return stand.run_dir / "journal"


async def _killed(stand: Stand, case: Case) -> None:
    """SIGKILL of the actuator while weights of ours are in force, and its end: the next one is not there yet."""
    child = stand.rig.fleet.supervisor.children["actuator"]
    await stand.strike(case, lambda: os.kill(child.pid, signal.SIGKILL))
    await child.process.wait()


async def _damaged(stand: Stand, case: Case) -> bytes:
    """What the damaged journal holds. What was in force then counts as original from now on."""
    await _killed(stand, case)
    spoilt = b"damaged\n" + _journal(stand).read_bytes()
    _journal(stand).write_bytes(spoilt)
    stand.expected = stand.weights()
    return spoilt


async def _until_readiness(stand: Stand, *, ready: bool, names: tuple[str, ...] = ()) -> str:
    said: list[str] = []

    async def is_so() -> bool:
        try:
            text = await stand.page("actuator", "/readyz")
        except (OSError, TimeoutError):  # it has not begun to listen
            return False
        said[:] = [text]
        return text.startswith("ready") == ready and all(name in text for name in names)

    await stand.until_async(is_so, f"readiness {ready}, {', '.join(names)}", _READY_AGAIN_SECONDS)
    return said[0]


async def _looked_at(stand: Stand, true: dict[str, str]) -> None:
    """What an operator does: compares, writes what is right, and removes what was set aside."""
    await stand.rest()  # to the originals of that moment
    for pod in stand.stage.pods:
        stand.stage.file_of(pod.name).write_text(true[pod.group])
    stand.expected = true
    for path in stand.run_dir.glob("journal.set-aside*"):
        path.unlink()
    await _until_readiness(stand, ready=True)
    if await stand.metric("actuator", _LOST):
        raise Red(f"{_LOST} stays")
    await stand.steer()


async def _damaged_once(stand: Stand, case: Case) -> None:
    true = dict(stand.expected)
    spoilt = await _damaged(stand, case)
    case.safe(await stand.log_line(case, "actuator", "journal_set_aside"))
    await _until_readiness(stand, ready=False, names=("journal.set-aside",))
    case.result.seen_in += "; /readyz: originals"
    if await stand.metric("actuator", _LOST) != 1:
        raise Red(f"{_LOST} is not 1")
    if (stand.run_dir / "journal.set-aside").read_bytes() != spoilt:
        raise Red("what was set aside is not what was found")
    await stand.whole_cycle()
    await _looked_at(stand, true)


async def _damaged_twice(stand: Stand, case: Case) -> None:
    true = dict(stand.expected)
    first = await _damaged(stand, case)
    await _until_readiness(stand, ready=False, names=("journal.set-aside",))
    await stand.until(lambda: bool(stand.whole(case.since)), "a whole cycle in between")
    second = await _damaged(stand, case)
    await _until_readiness(stand, ready=False, names=("journal.set-aside", "journal.set-aside.2"))
    case.safe("/readyz: journal.set-aside, journal.set-aside.2")
    found = [(stand.run_dir / name).read_bytes() for name in ("journal.set-aside", "journal.set-aside.2")]
    if found != [first, second]:
        raise Red("the second damaged journal was written over the first")
    await _looked_at(stand, true)


async def _another_boot(stand: Stand, case: Case) -> None:
    """What a reboot leaves: a journal of before, and groups with their first weights."""
    await _killed(stand, case)
    _, _, rest = _journal(stand).read_bytes().partition(b"\n")
    old = header("another-boot") + rest
    _journal(stand).write_bytes(old)
    for pod in stand.stage.pods:
        stand.stage.file_of(pod.name).write_text(stand.expected[pod.group])
    seen = await stand.log_line(case, "actuator", "journal_set_aside")
    await _until_readiness(stand, ready=True)
    if (stand.run_dir / "journal.other-boot").read_bytes() != old or list(stand.run_dir.glob("journal.set-aside*")):
        raise Red("it was not put aside as of another boot")
    if await stand.metric("actuator", _LOST):
        raise Red("nothing is lost with the journal of another boot, and it says so")
    case.safe(f"{seen}; ready, journal.other-boot")


BENCHES = (
    Bench(
        "journals",
        "damaged journals",
        (
            Fault(
                "journal damaged while the actuator is down",
                "set aside, said by log, metric and readiness; the weights of that moment return at the end; ready "
                "again when the file is removed",
                _damaged_once,
                cost=25.0,
            ),
            Fault(
                "journal damaged twice",
                "both are kept, and named by readiness; the weights of that moment return at the end",
                _damaged_twice,
                cost=35.0,
            ),
            Fault(
                "journal of another boot", "put aside as .other-boot; ready, nothing is written on its word",
                _another_boot, cost=12.0,
            ),
        ),
    ),
)  # fmt: skip
