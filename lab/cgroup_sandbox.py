"""The demo's own corner of the real cgroup tree: plays the kubelet's part, and is removed without a trace.

It makes groups, sets first weights and places processes; steering weights is the actuator's alone (docs/adr/0006).
"""

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from hostfs.cgroup_files import parse_controllers
from hostfs.mounts import CgroupHost, detect

_NAME = re.compile(r"trimtab-demo-(\d+)")
_REMOVE_SECONDS = 5.0


class SandboxUnavailable(Exception):
    """Real cgroups cannot be had here. `remedy` says what would change that."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.remedy = remedy


@dataclass
class CgroupSandbox:
    """A group below `base` with children of its own; `name` is its path below the cgroup root."""

    root: Path
    base: Path
    path: Path
    _undo: list[Callable[[], None]] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The sandbox's path below the cgroup root."""
        return str(self.path.relative_to(self.root))

    def add(self, group: str, weight: int | None = None) -> Path:
        """Makes a group (and those above it) with cpu enabled on the way; its path."""
        here = self.path
        for part in group.split("/"):
            _enable_cpu(here)
            here = here / part
            here.mkdir(exist_ok=True)
        if weight is not None:
            _write(here / "cpu.weight", str(weight))
        return here

    def enter(self, group: str) -> Callable[[], None]:
        """A function that puts the process that calls it into the group."""
        procs = str(self.path / group / "cgroup.procs")

        def join() -> None:
            descriptor = os.open(procs, os.O_WRONLY)
            os.write(descriptor, b"0")
            os.close(descriptor)

        return join

    def remove(self) -> list[str]:
        """Ends what still runs in the sandbox, removes every group, undoes what was changed around it; what is left
        (nothing, unless something outside holds on to it).
        """
        for _ in range(3):
            _kill_all(self.path)
            if _remove_tree(self.path):
                break
        for undo in reversed(self._undo):
            with contextlib.suppress(OSError):
                undo()
        return [str(self.path)] if self.path.exists() else []


def open_sandbox(host: CgroupHost | None = None, pid: int | None = None) -> CgroupSandbox:
    """A fresh sandbox: below the cgroup root for root, else below this process's own, delegated group.

    Removes sandboxes that a killed demo left behind. Raises SandboxUnavailable.
    """
    host = host or detect()
    base = find_base(host)
    remove_stale(base)
    sandbox = CgroupSandbox(Path(host.root or ""), base, base / f"trimtab-demo-{pid or os.getpid()}")
    try:
        _claim_cpu(sandbox)
        sandbox.path.mkdir()
        _enable_cpu(sandbox.path)
        _check_weight(sandbox)
    except OSError as error:
        sandbox.remove()
        raise SandboxUnavailable(
            f"{error.filename or base}: {error.strerror}",
            "run as root, or in a delegated group: systemd-run --user --scope -p Delegate=yes make demo",
        ) from error
    return sandbox


def remove_stale(base: Path) -> None:
    """Removes sandboxes whose process is gone and that are empty. Nothing is killed: a process that cannot be seen here
    may live in another PID namespace, and what runs in its sandbox with it. A killed demo's own processes end by
    themselves (runtime/processes.py).
    """
    for left in base.glob("trimtab-demo-*"):
        found = _NAME.fullmatch(left.name)
        if found and not Path("/proc", found[1]).exists() and _is_empty(left):
            _remove_tree(left)


def find_base(host: CgroupHost) -> Path:
    """Where `open_sandbox` would make its group, by permissions alone; changes nothing. Raises SandboxUnavailable."""
    if host.root is None:
        raise SandboxUnavailable(host.reason or "no cgroup v2", host.remedy or "use a cgroup v2 machine")
    if host.read_only:
        raise SandboxUnavailable(host.reason or "cgroups are read-only", host.remedy or "mount them writable")
    root = Path(host.root)
    if all(_may_write(path) for path in (root, root / "cgroup.subtree_control", root / "cgroup.procs")):
        return root
    own = _own_group()
    base = root / own.lstrip("/")
    if own and _may_write(base) and _may_write(base / "cgroup.subtree_control"):
        return base
    raise SandboxUnavailable(
        f"{root} belongs to root, and this process's own group is not delegated to it",
        "run as root, or in a delegated group: systemd-run --user --scope -p Delegate=yes make demo",
    )


def _may_write(path: Path) -> bool:
    return os.access(path, os.W_OK, effective_ids=True)


def _own_group() -> str:
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            if line.startswith("0::"):
                return line[3:]
    return ""


def _claim_cpu(sandbox: CgroupSandbox) -> None:
    """Makes children of the base have `cpu.weight`; remembers how to undo it. A delegated group's own processes must
    leave it first, since a group with processes cannot hand a controller on.
    """
    base, control = sandbox.base, sandbox.base / "cgroup.subtree_control"
    is_root_group = not (base / "cgroup.type").exists()
    if not is_root_group and (base / "cgroup.procs").read_text(encoding="ascii").strip():
        leaf = base / f"{sandbox.path.name}-shell"
        leaf.mkdir()
        sandbox._undo += [leaf.rmdir, lambda: _move_all(leaf, base)]  # noqa: SLF001 - the sandbox under construction
        _move_all(base, leaf)
    if "cpu" not in parse_controllers(control.read_text(encoding="ascii")):
        _write(control, "+cpu")
        sandbox._undo.append(lambda: _write(control, "-cpu"))  # noqa: SLF001 - as above


def _check_weight(sandbox: CgroupSandbox) -> None:
    probe = sandbox.path / "probe"
    probe.mkdir()
    try:
        _write(probe / "cpu.weight", "200")
    finally:
        probe.rmdir()


def _enable_cpu(group: Path) -> None:
    control = group / "cgroup.subtree_control"
    if "cpu" not in parse_controllers(control.read_text(encoding="ascii")):
        _write(control, "+cpu")


def _move_all(source: Path, target: Path) -> None:
    for pid in (source / "cgroup.procs").read_text(encoding="ascii").split():
        with contextlib.suppress(ProcessLookupError):
            _write(target / "cgroup.procs", pid)


def _write(path: Path, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode("ascii"))
    finally:
        os.close(descriptor)


def _groups_below(path: Path) -> list[Path]:
    """The group and all below it, deepest first."""
    return [Path(folder) for folder, _, _ in os.walk(path, topdown=False)]


def _is_empty(path: Path) -> bool:
    """Whether no group here holds a process. Those of other PID namespaces count: their line is 0 (cgroups(7))."""
    for group in _groups_below(path):
        try:
            if (group / "cgroup.procs").read_text(encoding="ascii").strip():
                return False
        except FileNotFoundError:
            continue
        except OSError:
            return False
    return True


def _kill_all(path: Path) -> None:
    for group in _groups_below(path):
        with contextlib.suppress(OSError):
            for pid in (group / "cgroup.procs").read_text(encoding="ascii").split():
                if int(pid) != os.getpid():
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(pid), signal.SIGKILL)


def _remove_tree(path: Path) -> bool:
    """Removes the groups; a killed process leaves its group a moment later, so this tries for a while."""
    deadline = time.monotonic() + _REMOVE_SECONDS
    while path.exists():
        for group in _groups_below(path):
            with contextlib.suppress(OSError):
                group.rmdir()
        if not path.exists():
            break
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
