"""Which events are asked for: of one pod, of a stretch of time."""

from collections.abc import Collection, Iterable, Sequence

from lab.audit.events import Event
from runtime.errors import TrimtabError

_NAMED = 8


def uids_of(wanted: str, events: Iterable[Event]) -> frozenset[str]:
    """The uids of the pods that have this name, uid or cgroup; a name that was taken again has more than one. Raises
    TrimtabError for one that none of the events, which tell of every pod, knows.
    """
    names: dict[str, None] = {}
    found = set()
    for event in events:
        if event.uid is None or event.pod is None or event.group is None:
            continue
        names[event.pod] = None
        name = event.pod.rpartition("/")[2]
        if wanted in (event.uid, event.pod, name, event.group, event.group.rpartition("/")[2]):
            found.add(event.uid)
    if not found:
        raise TrimtabError(f"flag --pod: the record has no pod {wanted}; it has {some_of(names)}")
    return frozenset(found)


def some_of(names: Collection[str]) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(list(names)[:_NAMED]) + more or "none at all"


def asked_for(
    events: Iterable[Event], uids: frozenset[str] | None, since_ns: int | None, until_ns: int | None
) -> Sequence[Event]:
    """Those of the pods, and of none, within the time; in their order."""
    return [
        event
        for event in events
        if (uids is None or event.uid is None or event.uid in uids)
        and (since_ns is None or event.at_ns >= since_ns)
        and (until_ns is None or event.at_ns < until_ns)
    ]
