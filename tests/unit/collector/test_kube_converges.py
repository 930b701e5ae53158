"""Property: whatever is duplicated, reordered or replayed, the table ends as the API has it."""

from hypothesis import given
from hypothesis import strategies as st

from services.collector.core.pods_known import PodsKnown
from tests.support.kube_objects import CLASS_LABEL, bookmark, event, pod_list, pod_object

CLASSES = ("batch", "default", "latency-critical")
OPERATIONS = st.lists(
    st.tuples(st.sampled_from(["ADDED", "MODIFIED", "DELETED"]), st.integers(0, 5), st.sampled_from(CLASSES)),
    min_size=1,
    max_size=30,
)


def history_of(operations):
    """What the API did: (version, kind, uid, class), every version once. A uid that was deleted never returns."""
    alive: dict[str, str] = {}
    dead: set[str] = set()
    told = []
    for number, (wanted, slot, cls) in enumerate(operations):
        uid = f"u{slot}-{sum(one.startswith(f'u{slot}-') for one in dead)}"
        kind = "ADDED" if uid not in alive else "MODIFIED" if wanted == "ADDED" else wanted
        if kind == "DELETED":
            del alive[uid]
            dead.add(uid)
        else:
            alive[uid] = cls
        told.append((98 + 3 * number, kind, uid, cls))
    return told


def truth_at(told, version):
    """The API's pods at a version: class and own version by uid."""
    alive = {}
    for at, kind, uid, cls in told:
        if at <= version:
            alive.pop(uid, None)
            if kind != "DELETED":
                alive[uid] = (cls, at)
    return alive


def list_at(told, version):
    return pod_list(version, *(pod_object(uid, uid, at, cls) for uid, (cls, at) in truth_at(told, version).items()))


def event_of(entry):
    at, kind, uid, cls = entry
    return event(kind, pod_object(uid, uid, at, cls))


@given(OPERATIONS, st.data())
def test_any_order_duplication_and_replay_converges_to_the_api(operations, draw):
    told = history_of(operations)
    end = told[-1][0]
    versions = st.integers(90, end)
    table = PodsKnown()
    lists = [*draw.draw(st.lists(versions, max_size=3)), draw.draw(versions)]
    for number, version in enumerate(lists):
        table.replace(list_at(told, version))
        assert table.version == str(version)
        is_last = number == len(lists) - 1
        extra = draw.draw(st.lists(st.sampled_from(told), max_size=20))
        due = [entry for entry in told if entry[0] > version] if is_last else []
        for entry in draw.draw(st.permutations(due + extra)):
            table.apply(event_of(entry))
            table.apply(None)
        if is_last:
            table.apply(bookmark(end))
    assert {pod.uid: pod.workload.labels[CLASS_LABEL] for pod in table.pods} == {
        uid: cls for uid, (cls, _) in truth_at(told, end).items()
    }
    assert table.version == str(end)


@given(OPERATIONS, st.data())
def test_events_in_order_show_every_state_of_the_api(operations, draw):
    told = history_of(operations)
    start = draw.draw(st.integers(90, told[-1][0]))
    table = PodsKnown()
    table.replace(list_at(told, start))
    for entry in told:
        table.apply(event_of(entry))
        now = max(start, entry[0])
        assert {pod.uid for pod in table.pods} == set(truth_at(told, now))
