"""One cgroup v2 tree, read group by group. A group that is gone is None; nothing here writes or leaves the root."""

import errno
import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from hostfs.cgroup_files import (
    CpuMax,
    CpuMaxUnknown,
    CpuStat,
    parse_controllers,
    parse_cpu_max,
    parse_cpu_stat,
    parse_flag,
    parse_memory,
    parse_weight,
)
from hostfs.counters import parse_keyed
from hostfs.files import read_at
from hostfs.pressure import Pressure, PressureAbsent, absent_because, pressure_in

__all__ = [
    "ROOT_GROUP",
    "CgroupTree",
    "CpuMax",
    "CpuMaxUnknown",
    "CpuStat",
    "GroupReading",
    "Problem",
    "check_group",
    "parse_controllers",
    "parse_cpu_max",
    "parse_cpu_stat",
    "parse_flag",
    "parse_memory",
    "parse_weight",
]

ROOT_GROUP: Final = ""
"""The tree's own root, where a method takes a group. `check_group` refuses it: it is no group below the root."""

ReadFile: TypeAlias = Callable[[str, int], str]
"""Reads the file of that name in an open directory; raises OSError. The seam for failures that only a kernel makes."""

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_GONE: Final = frozenset({errno.ENOENT, errno.ENODEV})
_SHORT: Final = 8
_MOST_LISTS: Final = 4096


@dataclass(frozen=True, slots=True)
class GroupReading:
    """One group at one moment. All files are of the same incarnation of the group, the one with this `inode`.

    `weight` is None where the parent has not enabled the cpu controller and 0 while `idle`. `idle` is None before
    kernel 5.15. `stat` is None only if the kernel's text made no sense. `memory_bytes` is None without that controller.
    `skip` is why a pod's weight is left alone, where the tree around the group tells (hostfs/pod_tree.py).
    """

    group: str
    inode: int
    weight: int | None
    idle: bool | None
    stat: CpuStat | None
    pressure: Pressure | PressureAbsent
    memory_bytes: int | None
    skip: str | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """How often one errno came up, and the file of the last time."""

    count: int
    path: str


def check_group(group: str) -> str:
    """`group` itself, if it names a group below the root: components joined by "/", relative, in one spelling only.

    Raises ValueError for an absolute path, an empty path, empty, "." and ".." components, NUL, and text that no file
    name can hold.
    """
    if "\0" in group:
        raise ValueError(f"cgroup {group!r} contains a NUL")
    for component in group.split("/"):
        if component in ("", ".", ".."):
            raise ValueError(f"cgroup {group!r} is not a plain path relative to the cgroup root")
    os.fsencode(group)  # a UnicodeEncodeError is a ValueError
    return group


class CgroupTree:
    """The groups below `root`, a cgroup v2 mount, a group in one, or a folder that looks like one.

    A group is its path relative to the root with "/" between components, or ROOT_GROUP. Every method raises ValueError
    for anything else and OSError never: a group or file that is gone is None (or empty, or False), and so is one that
    cannot be read, which `problems` then remembers by errno. Symbolic links are not followed: a cgroup tree has none.
    """

    def __init__(self, root: str, read_file: ReadFile = read_at) -> None:
        self.root = root
        self.problems: dict[int, Problem] = {}
        self._read_file = read_file
        self._listed: dict[str, tuple[int, int, tuple[str, ...]]] = {}

    def read(self, group: str, name: str) -> str | None:
        """The text of one file of the group; None if it is gone, empty or unreadable."""
        if "/" in check_group(name):
            raise ValueError(f"{name!r} is not the name of a file in a cgroup")
        fd = self._open(group)
        if fd is None:
            return None
        try:
            return self._text(fd, group, name) or None
        finally:
            os.close(fd)

    def reading(self, group: str) -> GroupReading | None:
        """All that a tick wants to know of the group, or None if it is gone. Costs about 15 system calls."""
        fd = self._open(group)
        if fd is None:
            return None
        try:
            weight = parse_weight(self._text(fd, group, "cpu.weight"))
            idle = parse_flag(self._text(fd, group, "cpu.idle"))
            pressure = self._pressure(fd, group)
            memory_bytes = parse_memory(self._text(fd, group, "memory.current"))
            # Every group has a cpu.stat, so the last read tells whether the group outlived the ones before: if it
            # did, a weight that is None means "no cpu controller here" and not "gone meanwhile".
            stat = self._text(fd, group, "cpu.stat")
            if not stat:
                return None
            inode = os.fstat(fd).st_ino
        finally:
            os.close(fd)
        return GroupReading(group, inode, weight, idle, parse_cpu_stat(stat), pressure, memory_bytes)

    def children(self, group: str) -> list[str]:
        """The groups directly below, sorted, as groups (so relative to the root as well).

        A group holds scores of files beside them. A short list that is known is therefore only checked: a folder's link
        count is that of its folders and two (kernel: fs/kernfs/inode.c), so if it is as before and all are still there,
        there are no others. File systems that do not count show 1.
        """
        fd = self._open(group)
        if fd is None:
            self._listed.pop(group, None)
            return []
        try:
            found = os.fstat(fd)
            known = self._listed.get(group)
            if known is None or known[:2] != (found.st_ino, found.st_nlink) or not _all_there(known[2], fd):
                with os.scandir(fd) as entries:
                    names = sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
                known = (found.st_ino, found.st_nlink, tuple(names))
                self._remember_list(group, known)
        except OSError as error:
            self._remember(error, group)
            return []
        finally:
            os.close(fd)
        prefix = f"{group}/" if group else ""
        return [prefix + name for name in known[2]]

    def has_cpu_controller(self, parent: str) -> bool:
        """Whether the children of `parent` have a `cpu.weight`: it must be enabled in the parent's subtree_control."""
        return "cpu" in parse_controllers(self.read(parent, "cgroup.subtree_control") or "")

    def is_populated(self, group: str) -> bool | None:
        """Whether any process is in the group or below it; None if that cannot be told."""
        populated = parse_keyed(self.read(group, "cgroup.events") or "").get("populated")
        return None if populated is None else populated > 0

    def inode(self, group: str) -> int | None:
        """The group's inode number, which a group made anew under the same path does not share."""
        fd = self._open(group)
        if fd is None:
            return None
        try:
            return os.fstat(fd).st_ino
        finally:
            os.close(fd)

    def _open(self, group: str) -> int | None:
        components = check_group(group).split("/") if group else []
        try:
            fd = os.open(self.root, _DIRECTORY)
            # One component at a time: O_NOFOLLOW guards the last one only.
            for component in components:
                parent = fd
                try:
                    fd = os.open(component, _DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
                finally:
                    os.close(parent)
        except OSError as error:
            self._remember(error, group)
            return None
        return fd

    def _text(self, fd: int, group: str, name: str) -> str:
        try:
            return self._read_file(name, fd)
        except OSError as error:
            self._remember(error, f"{group}/{name}")
            return ""

    def _pressure(self, fd: int, group: str) -> Pressure | PressureAbsent:
        try:
            return pressure_in(self._read_file("cpu.pressure", fd))
        except OSError as error:
            absent = absent_because(error)
            if absent.reason == "unreadable":
                self._remember(error, f"{group}/cpu.pressure")
            return absent

    def _remember_list(self, group: str, listed: tuple[int, int, tuple[str, ...]]) -> None:
        _, links, names = listed
        if len(names) > _SHORT or links != len(names) + 2:
            self._listed.pop(group, None)
            return
        if len(self._listed) >= _MOST_LISTS:
            self._listed.clear()
        self._listed[group] = listed

    def _remember(self, error: OSError, path: str) -> None:
        number = error.errno or 0
        if number not in _GONE:
            before = self.problems.get(number)
            self.problems[number] = Problem(1 if before is None else before.count + 1, path)


def _all_there(names: tuple[str, ...], folder: int) -> bool:
    try:
        return all(stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode) for name in names)
    except OSError:
        return False
