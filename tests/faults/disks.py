"""Full disks: below the journal and below the server's store."""

import asyncio
import contextlib
import os
import re
import resource
import signal
import subprocess
from pathlib import Path

import msgspec

from runtime.errors import BusError
from schemas.messages import Actuation, Command, Heartbeat, State, Verdict
from tests.faults.orders import DROPPED, frozen_with_a_new_guard, give, give_stored, order, stays
from tests.faults.rows import Bench, Fault
from tests.faults.server import kill_server
from tests.faults.stand import Case, Red, Stand

_JOURNAL_DISK = "journal-disk"
_FILLER = "filler"
_LAST_PAGE_ORDERS = 100


def can_mount() -> str:
    """Why no tmpfs can be mounted here, or nothing."""
    return "" if os.geteuid() == 0 and not subprocess.call(
        ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], stderr=subprocess.DEVNULL
    ) else "needs root and the right to mount a tmpfs"  # fmt: skip


def mount(stand: Stand, folder: Path, size: str) -> None:
    """A small disk of its own; unmounted at the rig's end."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "trimtab-faults", str(folder)], check=True)
    stand.undo.append(lambda: subprocess.run(["umount", str(folder)], check=True))


def fill(folder: Path) -> None:
    """Until nothing more goes in."""
    with (folder / _FILLER).open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 64, 1):
            with contextlib.suppress(OSError):
                while True:
                    file.write(b"\0" * size)


def _free(folder: Path) -> None:
    (folder / _FILLER).unlink(missing_ok=True)


def _knows(journal: bytes, group: str, weight: str) -> bool:
    """Whether the journal says that this weight is ours."""
    return any(group.encode() in line and f'"{weight}"'.encode() in line for line in journal.split(b"\n"))


async def _no_write(stand: Stand, case: Case, journal: Path) -> None:
    failed = await stand.next(
        Actuation, lambda a: a.rule == "journal", "an actuation that failed for the journal", case.since
    )
    verdict = next(
        timed
        for timed in stand.heard
        if isinstance(timed.message, Verdict)
        and (timed.message.boot, timed.message.cycle) == (failed.boot, failed.cycle)
    )
    case.struck_at = verdict.at  # the full disk is met with the first record that does not fit
    case.safe(f"actuation {failed.outcome}, rule {failed.rule}")
    since = stand.count()
    await stand.until(lambda: len(stand.of(Actuation, since)) >= 2, "the next actuations")
    weights, known = stand.weights(), journal.read_bytes()
    for group, weight in weights.items():
        if weight != stand.expected[group] and not _knows(known, group, weight.strip()):
            raise Red(f"{group} holds {weight.strip()}, and the journal does not know it")


async def _efbig(stand: Stand, case: Case) -> None:
    pid = stand.pid("actuator")
    journal = stand.run_dir / "journal"
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    case.struck()
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (journal.stat().st_size + 1, before[1]))
    try:
        await _no_write(stand, case, journal)
        await stand.rest()  # the way back needs no journal
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
    await stand.steer()


async def _enospc(stand: Stand, case: Case) -> None:
    disk = stand.run_dir / _JOURNAL_DISK
    case.struck()
    await asyncio.to_thread(fill, disk)
    try:
        await _no_write(stand, case, disk / "journal")
        await stand.rest()
    finally:
        _free(disk)
    await stand.steer()


async def _enospc_and_killed(stand: Stand, case: Case) -> None:
    """The disk is full when the actuator comes back."""
    disk = stand.run_dir / _JOURNAL_DISK
    await asyncio.to_thread(fill, disk)
    try:
        pid = stand.pid("actuator")
        await stand.strike(case, lambda: os.kill(pid, signal.SIGKILL), lambda m: isinstance(m, State))
        back = await stand.originals(case, "from the journal, on a full disk")
        case.safe(await stand.log_line(case, "actuator", "restored", why="restart", failed=0), back)
    finally:
        _free(disk)


async def _read_only_and_killed(stand: Stand, case: Case) -> None:
    """What a kernel does to a disk with errors, between the actuator's end and its new start."""
    disk = stand.run_dir / _JOURNAL_DISK
    child = stand.rig.fleet.supervisor.children["actuator"]
    await stand.strike(case, lambda: os.kill(child.pid, signal.SIGKILL), lambda m: isinstance(m, State))
    await child.process.wait()
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    try:
        back = await stand.originals(case, "from the journal, on a read-only disk")
        case.safe(await stand.log_line(case, "actuator", "restored", why="restart", failed=0), back)
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)


def _store(stand: Stand) -> Path:
    return stand.run_dir / "nats" / "jetstream"


async def _store_complains(stand: Stand) -> str:
    log = stand.run_dir / "nats" / "nats-server.log"
    said: list[str] = []

    def complained() -> bool:
        text = log.read_text(errors="replace")
        said[:] = re.findall(
            r"no space left|out of space|insufficient (?:storage )?resources|JetStream.*disabled", text
        )
        return bool(said)

    await stand.until(complained, "the server says that its disk is full", 60.0)
    return f"nats-server.log: {said[0]}"


async def _new_disk(stand: Stand) -> None:
    """What an operator does: makes room, and starts the server again."""
    _free(_store(stand))
    await kill_server(stand)
    await stand.rig.server.start()


async def _store_full(stand: Stand, case: Case) -> None:
    case.struck()
    await asyncio.to_thread(fill, _store(stand))
    try:
        seen = await _store_complains(stand)
        whole = await stand.whole_cycle("a whole cycle with a full store")
        case.safe(seen, whole)
        await stand.rest()  # orders reach the actuator, too
    finally:
        await _new_disk(stand)
    await stand.steer()


async def _store_full_and_guard_killed(stand: Stand, case: Case) -> None:
    await asyncio.to_thread(fill, _store(stand))
    try:
        await _store_complains(stand)
        old = {beat.boot for beat in stand.of(Heartbeat) if beat.service == "guard"}
        pid = stand.pid("guard")
        await stand.strike(case, lambda: os.kill(pid, signal.SIGKILL))
        await stand.until(
            lambda: (
                stand.back_since(case.struck_at) is not None
                or any(b.service == "guard" and b.boot not in old for b in stand.of(Heartbeat))
            ),
            "a new guard, or originals",
        )
        back = stand.back_since(case.struck_at)
        case.safe("originals: the dead man" if back is not None else "heartbeat of a new guard", back)
    finally:
        await _new_disk(stand)
    await stand.steer()  # a guard that could not read the last order waits for one


async def _last_page_full(stand: Stand) -> None:
    """A full disk leaves the rest of each file's last page: orders that mean nothing take it."""
    nobody = msgspec.structs.replace(order("active"), boot="nobody", verb="rollback", mode=None)
    with contextlib.suppress(BusError):
        for number in range(_LAST_PAGE_ORDERS):
            await give_stored(stand, msgspec.structs.replace(nobody, id=f"page-{number}"))
        raise Red(f"{_LAST_PAGE_ORDERS} orders are stored on a full disk")


async def _store_full_and_frozen(stand: Stand, case: Case) -> None:
    """What cannot be stored stops the loop and never starts it; with room again the guard has the freeze stored."""
    await asyncio.to_thread(fill, _store(stand))
    try:
        await _store_complains(stand)
        await _last_page_full(stand)
        since = stand.count()
        case.struck()
        await give(stand, order("frozen"))
        await stand.next(Verdict, lambda v: v.mode == "frozen", "a verdict in mode frozen", since)
        back = await stand.originals(case, "the freeze, on a full store")
        count = await stand.metric("guard", DROPPED, kind="command", reason="not_stored")
        await give(stand, order("active"))
        case.safe(await stand.counted(count, "guard", DROPPED, kind="command", reason="not_stored"), back)
        await stays(stand, "frozen")
    finally:
        since = stand.count()
        await _new_disk(stand)
    await stand.next(Command, lambda c: c.mode == "frozen", "the guard gives the freeze to the server", since)
    await stays(stand, "frozen")
    await frozen_with_a_new_guard(stand)
    await stand.steer()


async def _small_journal_disk(stand: Stand) -> None:
    mount(stand, stand.run_dir / _JOURNAL_DISK, "64k")


async def _small_store(stand: Stand) -> None:
    mount(stand, _store(stand), "16m")


def _mountable(cgroup: bool) -> str:
    return can_mount()


BENCHES = (
    Bench(
        "file-size",
        "full disks",
        (
            Fault(
                "journal: EFBIG (RLIMIT_FSIZE on the actuator)",
                "nothing is written without the journal; the originals return all the same; whole with room again",
                _efbig,
                cost=15.0,
            ),
        ),
    ),
    Bench(
        "journal-disk",
        "full disks",
        (
            Fault(
                "journal: ENOSPC (a full tmpfs)",
                "nothing is written without the journal; the originals return all the same; whole with room again",
                _enospc,
                cost=35.0,
            ),
            Fault(
                "journal: ENOSPC, and the actuator killed",
                "the originals return from the journal that is there, though it cannot be written",
                _enospc_and_killed,
                cost=15.0,
            ),
            Fault(
                "journal: EROFS (read-only remount), and the actuator killed",
                "the originals return from the journal that is there, though it cannot be written",
                _read_only_and_killed,
                cost=15.0,
            ),
        ),
        _small_journal_disk,
        lambda run_dir: (f"actuator.journal={run_dir / _JOURNAL_DISK / 'journal'}",),
        _mountable,
    ),
    Bench(
        "store-disk",
        "full disks",
        (
            Fault(
                "server's store: ENOSPC (a full tmpfs)",
                "the loop goes on, unrecorded; whole after room and a new start of the server",
                _store_full,
                cost=30.0,
            ),
            Fault(
                "server's store: ENOSPC, and the guard killed",
                "a new guard, or the originals by the dead man; whole after room and a new start of the server",
                _store_full_and_guard_killed,
                cost=30.0,
            ),
            Fault(
                "server's store: ENOSPC, an order `frozen`, and one `active` after it",
                "the first is obeyed, the second is not and counted as not_stored; with room again the freeze is "
                "stored, and a new guard is frozen, too",
                _store_full_and_frozen,
                cost=40.0,
            ),
        ),
        _small_store,
        lambda run_dir: ("mode=active",),  # a freeze that is lost lets weights move
        why_not=_mountable,
    ),
)
