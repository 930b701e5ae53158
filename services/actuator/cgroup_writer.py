"""The one place that writes to a cgroup file. It opens `cpu.weight` of pod groups below the pods root, nothing else."""

import errno
import os
import stat
from dataclasses import dataclass

from hostfs.cgroup import check_group

_FILE = "cpu.weight"
_QOS_GROUPS = frozenset({"guaranteed", "burstable", "besteffort"})
_GONE = frozenset({errno.ENOENT, errno.ENODEV})
_READ_ONLY = frozenset({errno.EROFS, errno.EACCES, errno.EPERM})


@dataclass(frozen=True)
class WriteResult:
    """`after` is what was read back; `error` a word for what went wrong: gone, idle, read_only, refused."""

    after: str | None
    error: str | None = None


class CgroupWriter:
    """Reads and writes weights of groups below one pods root."""

    def __init__(self, cgroup_root: str, pods_root: str) -> None:
        self._base = os.path.realpath(os.path.join(cgroup_root, check_group(pods_root)))

    def read(self, group: str) -> tuple[int, str] | None:
        """Identity (inode) and `cpu.weight` as read; None if the group is gone or has no such file."""
        path = self._path(group)
        try:
            identity = os.stat(path).st_ino
            descriptor = os.open(os.path.join(path, _FILE), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                text = os.read(descriptor, 64).decode("ascii", "replace")
            finally:
                os.close(descriptor)
        except OSError:
            return None
        return (identity, text) if text.strip() else None

    def is_idle(self, group: str) -> bool:
        """Whether the group is marked `cpu.idle`, which makes it refuse every weight."""
        try:
            with open(os.path.join(self._path(group), "cpu.idle"), encoding="ascii") as file:
                return file.read().strip() == "1"
        except OSError:
            return False

    def writable(self, group: str) -> bool:
        """Whether this process may write the group's weight, as far as permissions and the mount tell."""
        return os.access(os.path.join(self._path(group), _FILE), os.W_OK)

    def write(self, group: str, text: str) -> WriteResult:
        """Writes the text and reads it back. Raises ValueError for a group that is not a pod's or a text that is no
        weight: those are errors of the caller, and nothing is opened.
        """
        path = self._path(group)
        if not text.strip().isdigit() or not 1 <= int(text) <= 10_000:  # noqa: PLR2004 - the kernel's range
            raise ValueError(f"{text!r} is no weight in 1..10000")
        try:
            descriptor = os.open(os.path.join(path, _FILE), os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if stat.S_ISREG(os.fstat(descriptor).st_mode):
                    os.write(descriptor, text.encode("ascii"))
                    if os.fstat(descriptor).st_size > len(text):  # an ordinary file of a simulated node
                        os.ftruncate(descriptor, len(text))
            finally:
                os.close(descriptor)
        except OSError as error:
            return WriteResult(None, self._word(error, group))
        seen = self.read(group)
        return WriteResult(seen[1], None) if seen else WriteResult(None, "gone")

    def _word(self, error: OSError, group: str) -> str:
        if error.errno in _GONE:
            return "gone"
        if error.errno in _READ_ONLY:
            return "read_only"
        if error.errno == errno.EINVAL and self.is_idle(group):
            return "idle"
        return f"refused: {os.strerror(error.errno or 0)}"

    def _path(self, group: str) -> str:
        """The group's folder. Raises ValueError for the pods root itself, a QoS group, or anything outside."""
        check_group(group)
        leaf = group.rpartition("/")[2]
        qos = leaf.removesuffix(".slice").rpartition("-")[2]
        if leaf in _QOS_GROUPS or (leaf.endswith(".slice") and qos in (*_QOS_GROUPS, "kubepods")):
            raise ValueError(f"{group!r} is a QoS group: the kubelet's, never written")
        path = os.path.join(self._base, group)
        if os.path.realpath(path) != path:
            raise ValueError(f"{group!r} leads out of the pods root through a link")
        return path
