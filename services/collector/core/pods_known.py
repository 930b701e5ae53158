"""The pods of this node as the API tells them: a list, then events, in whatever order and however often they come.

Versions decide, not arrival: an event changes a pod only if it is newer than what is known of that uid and newer than
the list. Versions are compared as numbers where both are decimal (as Kubernetes' are); others go by arrival.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

from services.collector.core.kube_pod import KubePod, OddPod, identity, kube_pod, node_of

Outcome: TypeAlias = Literal["changed", "same", "nothing", "relist"]
"""What an event did: changed the pods, changed none of them, said nothing at all (so it proves nothing either), or
showed that events are missing.
"""

MAX_PODS: Final = 2048
"""Most pods held; a kubelet runs 110 unless told otherwise, and hardly ever more than 500."""

_MAX_GONE: Final = 4 * MAX_PODS
_MAX_DIGITS: Final = 40
_SHOWN: Final = 3
_KINDS: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})


@dataclass(frozen=True, slots=True)
class _Known:
    version: str | None
    pod: KubePod | None
    odd: str | None = None


@dataclass
class PodsKnown:
    """Pods by uid. `version` is where to resume watching: the newest version heard of, None before a list.

    `node` is whose pods these are: others are not taken. `label_keys` are the labels that are kept, None: all.
    """

    node: str | None = None
    label_keys: Collection[str] | None = None
    version: str | None = None
    _listed: str | None = None
    _known: dict[str, _Known] = field(default_factory=dict)
    _gone: dict[str, None] = field(default_factory=dict)
    _has_more: bool = False
    _has_others: bool = False

    def replace(self, listed: object) -> None:
        """Takes a whole list: what is not in it is gone. `items` may come one by one. Raises ValueError for what is no
        list of pods, or has no version to watch from, and whatever `items` raise; it keeps the pods then.
        """
        items = listed.get("items", False) if isinstance(listed, Mapping) else False
        if items is None:
            items = []
        if not isinstance(items, Iterable) or isinstance(items, Mapping | str | bytes):
            raise ValueError("the answer is no list of pods")  # noqa: TRY004 - text from outside, not our argument
        _, version = identity(listed)
        if version is None:
            raise ValueError("the list has no resourceVersion to watch from")
        new = PodsKnown(self.node, self.label_keys)
        for obj in items:
            new._add(obj)
        self.version = self._listed = version
        self._known, self._gone = new._known, {}
        self._has_more, self._has_others = new._has_more, new._has_others

    def apply(self, event: object) -> Outcome:
        """Takes one event of a watch. None and blank text are no events; BOOKMARK moves the resume version only."""
        if event is None or (isinstance(event, str | bytes) and not event.strip()):
            return "nothing"
        if not isinstance(event, Mapping):
            return "relist"
        kind, obj = event.get("type"), event.get("object")
        if kind == "ERROR":
            return "relist"
        uid, version = identity(obj)
        if kind == "BOOKMARK" and version is not None:
            self._move_to(version)
            return "same"
        if not isinstance(kind, str) or kind not in _KINDS or uid is None:
            return "nothing"
        if kind == "DELETED" or self._is_elsewhere(obj):
            outcome = self._remove(uid, version)
        else:
            outcome = self._upsert(uid, version, obj)
        self._move_to(version)
        return outcome

    @property
    def pods(self) -> tuple[KubePod, ...]:
        """All pods, by name."""
        found = [known.pod for known in self._known.values() if known.pod is not None]
        return tuple(sorted(found, key=lambda pod: (pod.workload.name, pod.uid)))

    @property
    def note(self) -> str | None:
        """Which pods were left out because of what they are like, or None."""
        odd = sorted(known.odd for known in self._known.values() if known.odd is not None)
        if self._has_more:
            odd.append(f"some without uid, or beyond {MAX_PODS}")
        if self._has_others:
            odd.append("some of other nodes, which were not asked for")
        return f"{len(odd)} left out: {'; '.join(odd[:_SHOWN])}" if odd else None

    def _add(self, obj: object) -> None:
        """One pod of a list."""
        uid, version = identity(obj)
        if uid is None:
            self._has_more = True
        elif not self._is_elsewhere(obj):
            known = self._known.get(uid)
            if known is None or _is_newer(version, known.version):
                self._put(uid, version, obj)

    def _is_elsewhere(self, obj: object) -> bool:
        """Whether it is another node's pod: then whoever answers knows nothing of the selector, or a pod has left."""
        node = node_of(obj)
        is_elsewhere = self.node is not None and node is not None and node != self.node
        self._has_others |= is_elsewhere
        return is_elsewhere

    def _upsert(self, uid: str, version: str | None, obj: object) -> Outcome:
        known = self._known.get(uid)
        since = known.version if known is not None else None
        if uid in self._gone or not _is_newer(version, self._listed) or not _is_newer(version, since):
            return "same"
        before = known.pod if known is not None else None
        self._put(uid, version, obj)
        after = self._known.get(uid)
        return "same" if before == (after.pod if after is not None else None) else "changed"

    def _remove(self, uid: str, version: str | None) -> Outcome:
        known = self._known.get(uid)
        if known is None:
            # It may be that its ADDED is still to come, late: a uid that was deleted never returns.
            if _is_newer(version, self._listed):
                self._forget(uid)
            return "same"
        # Before Kubernetes 1.9 the event bore the pod's last version and not that of its deletion.
        is_own = version is not None and version == known.version
        if not is_own and not (_is_newer(version, known.version) and _is_newer(version, self._listed)):
            return "same"
        del self._known[uid]
        self._forget(uid)
        return "changed"

    def _put(self, uid: str, version: str | None, obj: object) -> None:
        if uid not in self._known and len(self._known) >= MAX_PODS:
            self._has_more = True
            return
        try:
            self._known[uid] = _Known(version, kube_pod(obj, self.label_keys))
        except OddPod as error:
            self._known[uid] = _Known(version, None, f"{uid}: {error}")

    def _forget(self, uid: str) -> None:
        self._gone[uid] = None
        if len(self._gone) > _MAX_GONE:
            del self._gone[next(iter(self._gone))]

    def _move_to(self, version: str | None) -> None:
        if version is not None and _is_newer(version, self.version):
            self.version = version


def _is_newer(version: str | None, than: str | None) -> bool:
    """Whether a version is newer; where that cannot be told, anything else than the same is."""
    if version is None or than is None:
        return True
    numbers = _number(version), _number(than)
    if numbers[0] is None or numbers[1] is None:
        return version != than
    return numbers[0] > numbers[1]


def _number(version: str) -> int | None:
    return int(version) if version.isascii() and version.isdigit() and len(version) <= _MAX_DIGITS else None
