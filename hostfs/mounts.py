"""Where cgroups are mounted, and whether this node's `cpu` controller can be steered there."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from hostfs.cgroup_files import parse_controllers
from hostfs.files import read_text

Layout: TypeAlias = Literal["unified", "hybrid", "v1", "none"]
CpuOn: TypeAlias = Literal["v2", "v1", "none"]

CGROUP_DIR: Final = "/sys/fs/cgroup"

_UNIFIED_REMEDY: Final = (
    "Boot the node with systemd.unified_cgroup_hierarchy=1, so that cgroup v2 owns the controllers."
)
_MOUNT_REMEDY: Final = "Mount cgroup2 at /sys/fs/cgroup or, in a container, mount the node's /sys/fs/cgroup."
_DELEGATE_REMEDY: Final = (
    "Let the parent group enable cpu (Delegate=cpu in a systemd unit) or, in a container, mount the node's "
    "/sys/fs/cgroup."
)
_READ_ONLY_REMEDY: Final = "Mount the pods' cgroup writable into the process that steers it."

_V1_FLAGS: Final = frozenset({"rw", "ro", "none", "all", "xattr", "noprefix", "clone_children", "cpuset_v2_mode"})
"""Mount options of cgroup v1 that name no controller (kernel: kernel/cgroup/cgroup-v1.c)."""

_OCTAL: Final = re.compile(r"\\([0-3][0-7]{2})")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo. `root` is the folder of the file system that is seen at `mount_point`.

    `mount_options` are of this mount alone, `super_options` of the file system behind it.
    """

    mount_point: str
    root: str
    fstype: str
    mount_options: frozenset[str]
    super_options: frozenset[str]

    @property
    def is_read_only(self) -> bool:
        """Whether writes through this mount fail: either level's `ro` is enough."""
        return "ro" in self.mount_options or "ro" in self.super_options


@dataclass(frozen=True, slots=True, kw_only=True)
class CgroupHost:
    """What this node's cgroups allow.

    `root` is a cgroup2 folder that has the cpu controller; without one it is None and nothing can be observed or
    steered per group. `reason` and `remedy` say, in a sentence each, what stands in the way of that or of writing.
    """

    root: str | None
    layout: Layout
    cpu_on: CpuOn
    read_only: bool = False
    reason: str | None = None
    remedy: str | None = None

    @property
    def is_writable(self) -> bool:
        """Whether weights below `root` can be written as far as mounts tell."""
        return self.root is not None and not self.read_only


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """The mounts in /proc/<pid>/mountinfo, in its order; lines of another form are left out. Source: proc(5)."""
    mounts = []
    for line in text.split("\n"):
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        behind = after.split(" ")
        if not separator or len(fields) < 6 or len(behind) < 3:  # noqa: PLR2004 - fixed fields on either side, proc(5)
            continue
        mounts.append(
            Mount(
                mount_point=_unescape(fields[4]),
                root=_unescape(fields[3]),
                fstype=behind[0],
                mount_options=frozenset(fields[5].split(",")),
                super_options=frozenset(behind[-1].split(",")),
            )
        )
    return tuple(mounts)


def mount_of(mounts: Iterable[Mount], path: str) -> Mount | None:
    """The mount through which an absolute, normal `path` is reached; of several at one place the last, which hides."""
    best: Mount | None = None
    for mount in mounts:
        is_above = path == mount.mount_point or path.startswith(mount.mount_point.rstrip("/") + "/")
        if is_above and (best is None or len(mount.mount_point) >= len(best.mount_point)):
            best = mount
    return best


def find_cgroup_host(
    mountinfo_text: str, controllers_of: Callable[[str], str | None], root: str | None = None
) -> CgroupHost:
    """What the mounts allow; `controllers_of(folder)` is the text of its `cgroup.controllers`, None if unreadable.

    A cgroup2 mount alone proves nothing: on a hybrid node it is there and `cpu` is on v1. What decides is where `cpu`
    is attached. `root` restricts the search to that folder (such as a pods root that is a mount of its own).
    """
    mounts = parse_mountinfo(mountinfo_text)
    folders = _cgroup2_folders(mounts, root)
    layout = _layout(mounts)
    is_cpu_on_v1 = any(mount.fstype == "cgroup" and "cpu" in mount.super_options for mount in mounts)
    controllers = {folder: controllers_of(folder) for folder, _ in folders}
    for folder, mount in folders:
        if "cpu" not in parse_controllers(controllers[folder] or ""):
            continue
        if mount.is_read_only:
            reason = f"{folder} is mounted read-only"
            remedy = _READ_ONLY_REMEDY
            return CgroupHost(root=folder, layout=layout, cpu_on="v2", read_only=True, reason=reason, remedy=remedy)
        return CgroupHost(root=folder, layout=layout, cpu_on="v2")
    cpu_on: CpuOn = "v1" if is_cpu_on_v1 else "none"
    if is_cpu_on_v1:
        reason, remedy = f"{layout}: cpu controller is on v1", _UNIFIED_REMEDY
    elif not folders:
        reason, remedy = (f"{root} is not on cgroup2" if root else "cgroup2 is not mounted"), _MOUNT_REMEDY
    elif all(text is None for text in controllers.values()):
        reason, remedy = f"{folders[0][0]}/cgroup.controllers cannot be read", _MOUNT_REMEDY
    else:
        reason, remedy = f"{folders[0][0]}/cgroup.controllers does not list cpu", _DELEGATE_REMEDY
    is_read_only = bool(folders) and folders[0][1].is_read_only
    return CgroupHost(root=None, layout=layout, cpu_on=cpu_on, read_only=is_read_only, reason=reason, remedy=remedy)


def detect(proc_root: str = "/proc", root: str | None = None) -> CgroupHost:
    """`find_cgroup_host` for this process. Never raises OSError: an unreadable mountinfo is a reason."""
    try:
        mountinfo_text = read_text(f"{proc_root}/self/mountinfo")
    except OSError as error:
        reason = f"{proc_root}/self/mountinfo cannot be read: {error.strerror}"
        return CgroupHost(root=None, layout="none", cpu_on="none", reason=reason, remedy="Mount proc at /proc.")
    return find_cgroup_host(mountinfo_text, _read_controllers, root)


def _read_controllers(folder: str) -> str | None:
    try:
        return read_text(f"{folder}/cgroup.controllers")
    except OSError:
        return None


def _cgroup2_folders(mounts: tuple[Mount, ...], root: str | None) -> list[tuple[str, Mount]]:
    if root is not None:
        root = root.rstrip("/") or "/"
        mount = mount_of(mounts, root)
        return [(root, mount)] if mount is not None and mount.fstype == "cgroup2" else []
    visible = {mount.mount_point: mount for mount in mounts}
    found = [mount for mount in visible.values() if mount.fstype == "cgroup2"]
    # The one that shows most of the tree, then one that can be written, then the usual place.
    found.sort(key=lambda mount: (_depth(mount.root), mount.is_read_only, not mount.mount_point.startswith(CGROUP_DIR)))
    return [(mount.mount_point, mount) for mount in found]


def _depth(root: str) -> int:
    """How far below the reader's own cgroup a mount begins. From a cgroup namespace the node's root is `/../..`."""
    return sum(-1 if component == ".." else 1 for component in root.split("/") if component)


def _layout(mounts: tuple[Mount, ...]) -> Layout:
    base = mount_of(mounts, CGROUP_DIR)
    is_base_tmpfs = base is not None and base.mount_point == CGROUP_DIR and base.fstype == "tmpfs"
    # A v1 mount without a controller (name=systemd) only tracks processes and takes nothing away from v2.
    v1_names = [option for mount in mounts if mount.fstype == "cgroup" for option in mount.super_options]
    has_v1_controllers = any(name not in _V1_FLAGS and "=" not in name for name in v1_names)
    if not any(mount.fstype == "cgroup2" for mount in mounts):
        return "v1" if v1_names else "none"
    return "hybrid" if has_v1_controllers or is_base_tmpfs else "unified"


def _unescape(text: str) -> str:
    return _OCTAL.sub(lambda match: chr(int(match[1], 8)), text) if "\\" in text else text
