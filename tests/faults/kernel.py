"""The weight files: foreign writers, groups that vanish, and a kernel that says no."""

import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from schemas.messages import Actuation, State, Verdict
from tests.faults.disks import can_mount
from tests.faults.rows import Bench, Fault, simulated_only
from tests.faults.stand import Case, Red, Stand

_SEAM = str(Path(__file__).parent / "seam")
_FOREIGN = "777\n"
_FRESH = "200\n"
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1
_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_PRIVATE = 0x1000, 0x4000, 0x40000


# ---- somebody else's hand ----


async def _foreign(stand: Stand, case: Case) -> None:
    """Writes once a second until the actuator leaves the group to it."""
    pod = next(staged for staged in stand.stage.pods if staged.name == "batch")
    file = stand.stage.file_of("batch")
    case.struck()
    for _ in range(30):
        file.write_text(_FOREIGN)
        last = time.monotonic()
        await stand.until(
            lambda: (
                time.monotonic() > last + 1.0  # noqa: B023 - asked before the loop goes on
                or stand.logged(case, "actuator", "foreign_write", left_alone=True) is not None
            ),
            "a second",
        )
        if stand.logged(case, "actuator", "foreign_write", left_alone=True) is not None:
            break
    seen = await stand.log_line(case, "actuator", "foreign_write", left_alone=True)
    file.write_text(_FOREIGN)
    case.safe(seen)
    stand.expected[pod.group] = _FOREIGN
    since = stand.count()
    await stand.until(lambda: len(stand.whole(since)) >= 3, "whole cycles without that group")
    if file.read_text() != _FOREIGN:
        raise Red("somebody else's write was fought")


def _copied(folder: Path, fresh: Path) -> None:
    """The node puts new files in place of old ones all the time: what goes while it is copied is copied again."""
    for last in (False,) * 20 + (True,):
        try:
            shutil.copytree(folder, fresh)
        except (shutil.Error, FileNotFoundError):
            if last:
                raise
            shutil.rmtree(fresh, ignore_errors=True)
        else:
            return


def _replace_group(stand: Stand, pod: str) -> None:
    """The group goes and comes back under its name, as when a static pod is started anew."""
    folder = stand.stage.file_of(pod).parent
    outside, fresh = (Path(stand.stage.host.cgroup_root).parent / name for name in ("gone", "fresh"))
    _copied(folder, fresh)
    (fresh / "cpu.weight").write_text(_FRESH)
    assert folder.stat().st_ino != fresh.stat().st_ino
    folder.rename(outside)
    fresh.rename(folder)
    shutil.rmtree(outside)
    group = next(staged.group for staged in stand.stage.pods if staged.name == pod)
    stand.expected[group] = _FRESH


def _regrouped(step: str, claim: Callable[[object], bool]) -> Fault:
    async def run(stand: Stand, case: Case) -> None:
        for number in range(5):

            def act() -> None:
                _replace_group(stand, "batch")
                case.struck()

            await stand.at(claim, act, f"the trigger: {step}")
            whole = await stand.whole_cycle(f"a whole cycle after deletion {number + 1}")
        group = next(staged.group for staged in stand.stage.pods if staged.name == "batch")
        await stand.until(
            lambda: any(
                write.group == group and write.result == "applied" and write.before == int(_FRESH)
                for a in stand.of(Actuation, case.since)
                for write in a.writes
            ),
            "the new group's own first weight read and written",
        )
        case.safe("actuation: the new group's own first weight", whole)

    return Fault(
        f"a pod's group deleted and re-created after {step}, 5 times",
        "nothing of the old group is written to the new one; the new one's own first weight returns",
        run,
        cost=15.0,
    )  # fmt: skip


# ---- a kernel that says no ----


def _private_mount(root: str) -> Callable[[], None]:
    """Runs in the child: a mount namespace in which the weights can be made read-only for it alone."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter() -> None:
        libc.unshare(_CLONE_NEWNS)
        libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None)
        libc.mount(root.encode(), root.encode(), None, _MS_BIND, None)

    return enter


def _without_override() -> Callable[[], None]:
    """Runs in the child: root that file permissions hold for."""
    libc = ctypes.CDLL(None, use_errno=True)

    def enter() -> None:
        libc.prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0)

    return enter


async def _prepare_refusals(stand: Stand) -> None:
    altered = stand.stage.alter("actuator")
    altered.env = {"PYTHONPATH": _SEAM, "FAULT_ERRNO": str(stand.run_dir / "refusal")}
    if can_mount() == "":
        drop = _without_override()

        def enter() -> None:
            _private_mount(stand.stage.host.cgroup_root)()
            drop()

        altered.enter = enter


def _refuse(stand: Stand, word: str, part: str = "") -> None:
    fresh = stand.run_dir / "refusal.next"
    fresh.write_text(f"{word} {part}")
    fresh.rename(stand.run_dir / "refusal")


def _allow(stand: Stand) -> None:
    (stand.run_dir / "refusal").unlink(missing_ok=True)


def _failed_for(reason: str) -> Callable[[Actuation], bool]:
    return lambda a: any(write.reason is not None and write.reason.startswith(reason) for write in a.writes)


def _refused(word: str) -> Fault:
    async def run(stand: Stand, case: Case) -> None:
        case.struck()
        _refuse(stand, word)
        try:
            seen = await stand.next(Actuation, _failed_for("refused"), "a write that the kernel refused", case.since)
            reason = next(write.reason for write in seen.writes if write.reason)
            case.safe(f"actuation {seen.outcome}: {reason}")
            before, since = stand.weights(), stand.count()
            await stand.next(Verdict, lambda v: v.execute, "one more verdict to refuse")
            await stand.next(Actuation, lambda a: True, "its actuation", since)
            if stand.weights() != before:
                raise Red("written in spite of the kernel")
        finally:
            _allow(stand)

    return Fault(
        f"{word} from cpu.weight (raised at os.write in the actuator's process)",
        "said, nothing else happens; originals stay known; whole when the kernel takes weights again",
        run,
        cost=10.0,
    )


async def _enodev(stand: Stand, case: Case) -> None:
    """The group goes between open and write, and a new one of its name comes."""
    _refuse(stand, "ENODEV", next(staged.group for staged in stand.stage.pods if staged.name == "monitor"))
    hit = stand.run_dir / "refusal.hit"
    hit.unlink(missing_ok=True)
    case.struck()
    try:
        await stand.until(hit.exists, "ENODEV raised")
        _replace_group(stand, "monitor")
    finally:
        _allow(stand)
    await stand.next(Actuation, _failed_for("gone"), "a write skipped: gone", case.since)
    case.safe("actuation: write skipped, gone")


def _remount(stand: Stand, option: str) -> None:
    pid = stand.pid("actuator")
    root = stand.stage.host.cgroup_root
    subprocess.run(
        ["nsenter", f"--mount=/proc/{pid}/ns/mnt", "mount", "-o", f"remount,bind,{option}", root], check=True
    )


async def _until_restored(stand: Stand, case: Case, heal: Callable[[], object], reason: str) -> None:
    """Ordered to restore what cannot be written: tried again, by itself, until it can."""
    await stand.rig.order("shadow", "while nothing can be written", by="fault suite")
    failed = await stand.next(
        Actuation, lambda a: a.outcome == "restored" and _failed_for(reason)(a), "a restore that failed", case.since
    )
    if stand.weights() == stand.expected:
        raise Red(f"{reason} did not stop a write: {failed}")
    heal()
    await stand.until(lambda: stand.weights() == stand.expected, "originals, tried again by the actuator alone")
    await stand.steer(90.0)  # what was refused is tried again once a minute


async def _erofs(stand: Stand, case: Case) -> None:
    case.struck()
    _remount(stand, "ro")
    try:
        seen = await stand.next(Actuation, _failed_for("read_only"), "a write refused: read-only", case.since)
        case.safe(f"actuation {seen.outcome}: read_only")
        await _until_restored(stand, case, lambda: _remount(stand, "rw"), "read_only")
    except BaseException:
        _remount(stand, "rw")
        raise


async def _eacces(stand: Stand, case: Case) -> None:
    files = [stand.stage.file_of(pod.name) for pod in stand.stage.pods]

    def deny() -> None:
        for file in files:
            os.chmod(file, 0o444)
            if os.geteuid() == 0:
                os.chown(file, 65534, 65534)

    def heal() -> None:
        for file in files:
            if os.geteuid() == 0:
                os.chown(file, 0, 0)
            os.chmod(file, 0o644)

    case.struck()
    deny()
    try:
        seen = await stand.next(Actuation, _failed_for("read_only"), "a write refused: no permission", case.since)
        case.safe(f"actuation {seen.outcome}: read_only")
        await _until_restored(stand, case, heal, "read_only")
    finally:
        heal()


def _only_simulated(cgroup: bool) -> str:
    return simulated_only(cgroup)


BENCHES = (
    Bench(
        "groups",
        "the weight files",
        (
            _regrouped("the state", lambda m: isinstance(m, State) and m.phase == "before"),
            _regrouped("the verdict", lambda m: isinstance(m, Verdict) and m.execute),
            Fault(
                "a foreign writer on the same file at 1 Hz",
                "not fought: left alone after three, its value stays as the new original; cycles stay whole",
                _foreign,
                ends="held",
                cost=15.0,
            ),
        ),
        why_not=_only_simulated,
    ),
    Bench(
        "refusals",
        "the weight files",
        (
            Fault(
                "EROFS: read-only mount (in the actuator's mount namespace)",
                "said, nothing is written; a restore is tried again until it works",
                _erofs,
                cost=80.0,
                why_not=can_mount,
            ),
            _refused("EINVAL"),
            _refused("ERANGE"),
            Fault(
                "ENODEV (raised at os.write), and a new group of that name",
                "that pod is skipped as gone; the new group's own first weight returns",
                _enodev,
            ),
        ),
        _prepare_refusals,
        why_not=_only_simulated,
    ),
    Bench(
        "permissions",
        "the weight files",
        (
            Fault(
                "EACCES: somebody else's files (root without CAP_DAC_OVERRIDE)",
                "said, nothing is written; a restore is tried again until it works",
                _eacces,
                cost=80.0,
            ),
        ),
        _prepare_refusals,
        why_not=_only_simulated,
    ),
)
