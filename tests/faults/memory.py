"""The memory limit reached: a real control group with less memory than the process wants, and the kernel's OOM killer."""

import contextlib
import os
import secrets
import signal
from collections.abc import Callable
from pathlib import Path

from lab.rig import NODE
from schemas.messages import Heartbeat
from schemas.subjects import SERVICES, subject
from tests.faults.rows import Bench, Fault
from tests.faults.stand import Case, Red, Stand

_V1, _V2 = Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")


def _base() -> tuple[Path, str] | None:
    """Where groups with a memory limit can be made, and the limit's file."""
    for base, limit in ((_V1, "memory.limit_in_bytes"), (_V2, "memory.max")):
        probe = base / f"trimtab-faults-{secrets.token_hex(4)}"
        try:
            probe.mkdir()
        except OSError:
            continue
        try:
            if (probe / limit).exists() and os.access(probe / limit, os.W_OK):
                return base, limit
        finally:
            probe.rmdir()
    return None


def _no_memory_group() -> str:
    return "" if _base() is not None else "needs a control group with a memory limit (root)"


def _row(service: str) -> Fault:
    async def run(stand: Stand, case: Case) -> None:
        found = _base()
        assert found is not None
        base, limit = found
        group = base / f"trimtab-faults-{secrets.token_hex(4)}"
        group.mkdir()
        stand.undo.append(lambda: group.rmdir() if group.exists() else None)  # said, where that fails
        child = stand.rig.fleet.supervisor.children[service]
        try:
            old = {beat.boot for beat in stand.of(Heartbeat) if beat.service == service}
            (group / limit).write_text("65536")
            case.struck()
            (group / "cgroup.procs").write_text(str(child.pid))
            await _feed(stand, service, lambda: child.process.returncode is not None)
            since = stand.count()
            back = None
            if service == "actuator":
                back = await stand.originals(case, "from the journal")
                await stand.log_line(case, "actuator", "restored", why="restart", failed=0)
            await stand.next(Heartbeat, lambda b: b.service == service and b.boot not in old, f"a new {service}", since)
            whole = await stand.whole_cycle()
            if child.process.returncode != -signal.SIGKILL:
                raise Red(f"the {service} ended with {child.process.returncode}, not by the kernel's hand")
            case.safe(f"exit code {child.process.returncode}, a new {service}", whole if back is None else back)
        finally:
            if child.process.returncode is None:
                (base / "cgroup.procs").write_text(str(child.pid))
            await stand.until(lambda: _removed(group), "the end of the group")

    return Fault(
        f"out of memory: {service} (64 KiB more, and no further)",
        f"the kernel kills it; as after SIGKILL{': the originals return' if service == 'actuator' else ''}",
        run,
        why_not=_no_memory_group,
    )


async def _feed(stand: Stand, service: str, is_over: Callable[[], bool]) -> None:
    """Large messages, which cost memory to take, until the process is gone."""
    assert stand.rig.bus is not None
    kind = {"collector": "actuation", "decider": "state", "actuator": "verdict"}.get(service, "action")
    for _ in range(50):
        await stand.rig.bus.publish(subject(kind, NODE), b"x" * 900_000)
        with contextlib.suppress(Red):
            await stand.until(is_over, f"the end of the {service}", 0.5)
            return
    raise Red(f"the {service} lives on without memory")


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError:
        return False
    return True


BENCHES = (Bench("memory", "memory limit", tuple(_row(service) for service in SERVICES)),)
