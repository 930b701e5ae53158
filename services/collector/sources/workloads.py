"""Where workloads come from: a protocol, and a static file. Kubernetes (sources/pod_watch.py) is the other source."""

import ipaddress
import os
from typing import Annotated, Literal, Protocol
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

from hostfs.cgroup import check_group
from runtime.config import read_file
from runtime.errors import ConfigError
from runtime.settings import mask_url
from services.collector.core.workload import Workload


class WorkloadSource(Protocol):
    """Says which pods are on this node now."""

    def workloads(self) -> tuple[Workload, ...]:
        """All pods, each once. Never raises or waits: what cannot be read leaves the last good view."""
        ...

    def trouble(self) -> str | None:
        """Why the view is not the newest, or None."""
        ...

    def stale(self) -> str | None:
        """Why nothing may be written on this view, or None."""
        ...

    def start(self) -> None:
        """Begins to follow its source."""
        ...

    def close(self) -> None:
        """Ends that."""
        ...


class _Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    uid: Annotated[str, Meta(max_length=253)]
    group: Annotated[str, Meta(max_length=4096)]
    name: Annotated[str, Meta(max_length=253)] | None = None
    labels: dict[str, str] = {}
    metrics_url: Annotated[str, Meta(max_length=2048)] | None = None
    latency_metric: Annotated[str, Meta(max_length=253)] | None = None
    latency_unit: Literal["seconds", "milliseconds", "microseconds", "nanoseconds"] | None = None
    annotations: dict[str, str] = {}
    address: str | None = None
    ports: tuple[Annotated[int, Meta(ge=1, le=65535)], ...] = ()


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    workloads: tuple[_Entry, ...] = ()


class StaticFile:
    """A YAML file. Read at start, where an error ends the process, and again when it changes, where it does not."""

    def __init__(self, path: str, pods_root: str) -> None:
        self._path = path
        self._pods_root = pods_root
        self._stamp = self._stat()
        self._view = read_workloads(path, pods_root)
        self._trouble: str | None = None

    def workloads(self) -> tuple[Workload, ...]:
        """The file's workloads, read again if it changed."""
        stamp = self._stat()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._view, self._trouble = read_workloads(self._path, self._pods_root), None
            except ConfigError as error:
                self._trouble = str(error)
        return self._view

    def trouble(self) -> str | None:
        """What was wrong with the newest version of the file."""
        return self._trouble

    def stale(self) -> str | None:
        """A file's last good version holds until somebody writes another."""
        return None

    def start(self) -> None:
        """Nothing: it is read when asked."""

    def close(self) -> None:
        """Nothing: it is not kept open."""

    def _stat(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_ino, found.st_mtime_ns, found.st_size


def read_workloads(path: str, pods_root: str) -> tuple[Workload, ...]:
    """The workloads in a file; `pods_root` is the folder that no group may leave. Raises ConfigError."""
    tree = read_file(path)
    try:
        entries = msgspec.convert(tree, _File).workloads
    except (msgspec.ValidationError, UnicodeError) as error:  # half a surrogate pair in a key is no text at all
        raise ConfigError(f"{path}: {error}; see docs/operations.md for the format") from error
    found: list[Workload] = []
    for index, entry in enumerate(entries):
        where = f"{path}: workloads[{index}]"
        _check_text(where, entry)
        _check_group(where, entry.group, pods_root)
        if not entry.uid:
            raise ConfigError(f"{where}.uid: is empty; every pod needs one")
        if entry.metrics_url is not None and not _is_http(entry.metrics_url):
            raise ConfigError(f"{where}.metrics_url: {mask_url(entry.metrics_url)!r} is not an http(s) URL")
        if entry.address is not None and not _is_address(entry.address):
            raise ConfigError(f"{where}.address: {entry.address!r} is not an IP address")
        if any(other.uid == entry.uid or other.group == entry.group for other in found):
            raise ConfigError(f"{where}: uid {entry.uid!r} or group {entry.group!r} is listed twice; drop one")
        around = next((other.group for other in found if _is_inside(entry.group, other.group)), None)
        if around is not None:
            raise ConfigError(
                f"{where}.group: {entry.group!r} and {around!r} lie inside one another; name the pods' groups"
            )
        found.append(
            Workload(
                uid=entry.uid,
                name=entry.name or entry.uid,
                group=entry.group,
                labels=entry.labels,
                metrics_url=entry.metrics_url,
                latency_metric=entry.latency_metric,
                latency_unit=entry.latency_unit,
                annotations=entry.annotations,
                address=entry.address,
                ports=entry.ports,
            )
        )
    return tuple(found)


def _is_inside(group: str, other: str) -> bool:
    return group.startswith(f"{other}/") or other.startswith(f"{group}/")


def _is_http(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port beyond 65535, a bracket that is never closed
        return False


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


_QOS_GROUPS = frozenset({"kubepods", "guaranteed", "burstable", "besteffort"})


def _check_text(where: str, entry: _Entry) -> None:
    """YAML can spell half a surrogate pair, which no message could carry."""
    try:
        msgspec.json.encode(entry)
    except (UnicodeEncodeError, msgspec.EncodeError) as error:
        raise ConfigError(
            f"{where}: holds a character that is no text (half a surrogate pair); write it out"
        ) from error


def _check_group(where: str, group: str, pods_root: str) -> None:
    if group.rpartition("/")[2].removesuffix(".slice").rpartition("-")[2] in _QOS_GROUPS:
        raise ConfigError(f"{where}.group: {group!r} is a QoS group, the kubelet's; name the pod's group below it")
    try:
        check_group(group)
    except ValueError as error:
        raise ConfigError(f"{where}.group: {error}; write a path below the pods root {pods_root}") from error
    path = os.path.join(os.path.realpath(pods_root), group)
    if os.path.realpath(path) != path:
        raise ConfigError(f"{where}.group: {group!r} leads out of the pods root {pods_root} through a link")
