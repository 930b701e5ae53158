"""The one place that writes to a cgroup file. It opens `cpu.weight` of pod groups below the pods root, nothing else."""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from hostfs.cgroup import check_group
from hostfs.pods import parse_pod_group
from schemas.settings import KERNEL_MAX_WEIGHT, KERNEL_MIN_WEIGHT

_FILE: Final = "cpu.weight"
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_NO_POD: Final = frozenset({"kubepods", "guaranteed", "burstable", "besteffort"})
_GONE: Final = frozenset({errno.ENOENT, errno.ENODEV})
_READ_ONLY: Final = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})

Absent: TypeAlias = Literal["gone", "unreadable"]
"""`gone`: no such group, or it has no weight. `unreadable`: it may be there, and nobody can tell what it holds."""


class Reading(NamedTuple):
    """A group's inode and the bytes of its weight, which are a number in 0..10000 (0: the group is idle)."""

    identity: int
    text: str


@dataclass(frozen=True)
class WriteResult:
    """`after` is what was read back; `error` a word for what went wrong: gone, idle, read_only, refused: …; or
    unreadable, when the write happened and could not be read back.
    """

    after: str | None
    error: str | None = None


class CgroupWriter:
    """Reads and writes weights of groups below one pods root. Raises ValueError for a group that is no pod's."""

    def __init__(self, cgroup_root: str, pods_root: str) -> None:
        self._base = os.path.realpath(os.path.join(cgroup_root, check_group(pods_root)))

    def read(self, group: str) -> Reading | Absent:
        """What the group holds; both parts are of the same group, even if another takes its name meanwhile."""
        _check_pod(group)
        try:
            with self._folder(group) as folder:
                return _read(folder)
        except OSError as error:
            return "gone" if error.errno in _GONE else "unreadable"

    def write(self, group: str, text: str, identity: int) -> WriteResult:
        """Writes the text to the group with this inode and reads it back. Raises ValueError for a text that is no
        weight, too: those are errors of the caller, and nothing is opened.
        """
        _check_pod(group)
        if not _is_weight(text) or int(text) < KERNEL_MIN_WEIGHT:
            raise ValueError(f"{text!r} is no weight in {KERNEL_MIN_WEIGHT}..{KERNEL_MAX_WEIGHT}")
        try:
            with self._folder(group) as folder:
                if os.fstat(folder).st_ino != identity:
                    return WriteResult(None, "gone")
                try:
                    _write(folder, text.encode("ascii"))
                except OSError as error:
                    return WriteResult(None, _word(error, folder))
                return _read_back(folder)
        except OSError as error:
            return WriteResult(None, _word(error, None))

    @contextlib.contextmanager
    def _folder(self, group: str) -> Iterator[int]:
        """The group's open folder, one component at a time: no link is followed on the way."""
        try:
            folder = os.open(self._base, _FOLDER)
        except OSError as error:  # no pods root at all says nothing about this group
            raise OSError(errno.EIO, f"{self._base}: {error.strerror}") from error
        try:
            for component in group.split("/"):
                parent = folder
                try:
                    folder = os.open(component, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)
                finally:
                    os.close(parent)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP):
                raise ValueError(f"{group!r} leads through a link or a file, which no cgroup does") from error
            raise
        try:
            yield folder
        finally:
            os.close(folder)


def _check_pod(group: str) -> None:
    """Raises ValueError for the pods root itself, a QoS group, anything inside a pod's group, and anything outside."""
    check_group(group)
    parent, _, leaf = group.rpartition("/")
    if leaf in _NO_POD or (leaf.endswith(".slice") and leaf.removesuffix(".slice").rpartition("-")[2] in _NO_POD):
        raise ValueError(f"{group!r} is a QoS group: the kubelet's, never written")
    if parent and parse_pod_group(parent) is not None:
        raise ValueError(f"{group!r} is inside a pod's group: weights are written to pods only")


def _read(folder: int) -> Reading | Absent:
    descriptor = os.open(_FILE, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        text = os.read(descriptor, 64).decode("ascii", "replace")
    finally:
        os.close(descriptor)
    return Reading(os.fstat(folder).st_ino, text) if _is_weight(text) else "unreadable"


def _write(folder: int, raw: bytes) -> None:
    descriptor = os.open(_FILE, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        # A kernel's file has no size. An ordinary one, of a simulated node, must never show old digits behind new ones.
        os.write(descriptor, raw.ljust(min(found.st_size, 64)))
        if found.st_size > len(raw):
            os.ftruncate(descriptor, len(raw))
    finally:
        os.close(descriptor)


def _read_back(folder: int) -> WriteResult:
    try:
        seen = _read(folder)
    except OSError as error:
        seen = "gone" if error.errno in _GONE else "unreadable"
    return WriteResult(seen.text) if isinstance(seen, Reading) else WriteResult(None, seen)


def _is_idle(folder: int) -> bool:
    """Whether the group is marked `cpu.idle`, which makes it refuse every weight."""
    try:
        descriptor = os.open("cpu.idle", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            return os.read(descriptor, 8).strip() == b"1"
        finally:
            os.close(descriptor)
    except OSError:
        return False


def _is_weight(text: str) -> bool:
    number = text.strip()
    return number.isascii() and number.isdigit() and len(number) <= len("10000") and int(number) <= KERNEL_MAX_WEIGHT


def _word(error: OSError, folder: int | None) -> str:
    if error.errno in _GONE:
        return "gone"
    if error.errno in _READ_ONLY:
        return "read_only"
    if error.errno == errno.EINVAL and folder is not None and _is_idle(folder):
        return "idle"
    return f"refused: {os.strerror(error.errno or 0)}"
