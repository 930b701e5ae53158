"""Which change was in force at a moment, though it happened earlier, and whatever clocks did."""

import msgspec
import pytest

from lab.audit.answer import in_force
from lab.audit.lines import answer_branch
from lab.audit.select import asked_for, uids_of
from lab.audit.timeline import Timeline
from lab.explain.moments import moment_of
from lab.explain.tree import draw
from runtime.errors import TrimtabError
from tests.support import builders
from tests.support.builders import write
from tests.support.records import Record, at_of
from tests.unit.lab.audit.test_timeline import seen


def moved(cycle: int, before: int, after: int, at: int | None = None):
    at = at_of(cycle) if at is None else at
    return [
        msgspec.structs.replace(seen(cycle, before), at=at),
        builders.actuation(cycle=cycle, at=at, writes=(write("api", before, after),)),
    ]


def answers(record: Record, text: str, pod: str | None = "api"):
    timeline = Timeline()
    events = [event for item in record.items for event in timeline.take(item)] + list(timeline.end())
    first_seen = list(timeline.first_seen.values())
    uids = uids_of(pod, [*first_seen, *events]) if pod is not None else None
    moment = moment_of(text, timeline.newest_ns, "--at")
    return in_force(events, asked_for(first_seen, uids, None, None), timeline.spans, moment)


def night() -> Record:
    """22:13:25, 22:14:10 and 22:21:40."""
    return Record(*moved(1, 1000, 2000), *moved(10, 2000, 4000), *moved(100, 4000, 500))


@pytest.mark.parametrize(
    ("text", "cycle", "weight"),
    [
        ("22:13:26", 1, 2000),
        ("22:14:11", 10, 4000),
        ("22:20", 10, 4000),
        ("22:21:40", 10, 4000),
        ("22:21:41", 100, 500),
    ],
)
def test_the_change_in_force_is_found_though_it_happened_earlier(text, cycle, weight):
    record = night()
    record.keep(seen(101, 500))
    (answer,) = answers(record, text)
    assert (answer.change.cycle, answer.weight) == (cycle, weight)


def test_what_changes_within_the_moment_is_told_beside():
    record = night()
    record.keep(seen(130, 500))
    (answer,) = answers(record, "22:21")
    assert (answer.change.cycle, answer.weight) == (10, 4000)
    assert [event.cycle for event in answer.meanwhile] == [100]
    assert "4000 → 500" in "\n".join(draw(answer_branch(answer)))


def test_before_the_first_change_it_is_the_weight_first_seen():
    record = Record(seen(1, 1000), *moved(100, 1000, 2000))
    (answer,) = answers(record, "22:15")
    assert (answer.change, answer.weight) == (None, 1000)
    assert "no change of it is in the record before that" in answer.note


def test_before_the_record_nothing_is_known():
    assert answers(night(), "22:12") == ()
    assert answers(Record(*moved(20, 1, 2)), "2023-11-14T22:13:20Z") == ()


def test_what_is_lost_since_the_change_is_told():
    """In the middle of the gap, too: whatever was in force then may be lost."""
    record = Record(*moved(1, 1000, 2000), *moved(2, 2000, 2500)).lose().keep(*moved(50, 2500, 3000))
    record.lose().keep(builders.action(cycle=60, at=at_of(60)), seen(100, 3000))
    lost = {text: answers(record, text)[0] for text in ("22:13:28", "22:15", "22:17:32", "22:19")}
    assert [answer.change.cycle for answer in lost.values()] == [1, 2, 50, 50]
    assert [[event.from_ns for event in answer.meanwhile] for answer in lost.values()] == [
        [],
        [at_of(2)],
        [at_of(50)],
        [at_of(50)],
    ]


def test_a_time_that_came_twice_has_two_answers():
    """The clock goes to 22:21:40 and is set back to 22:14:10: what is later in the record is later."""
    record = Record(*moved(1, 1000, 2000), *moved(100, 2000, 4000), seen(101, 4000))
    record.keep(*moved(102, 4000, 8000, at=at_of(10)), msgspec.structs.replace(seen(103, 8000), at=at_of(40)))
    first, second = answers(record, "22:15")
    assert (first.change.cycle, first.weight) == (1, 2000)
    assert (second.change.cycle, second.weight) == (102, 8000)
    assert "second coming" in second.note
    (late,) = answers(record, "2023-11-14T22:21:43Z")
    assert late.change.cycle == 100


def test_all_pods_without_a_name():
    assert {answer.pod for answer in answers(night(), "22:15", None)} == {"api", "job"}


@pytest.mark.parametrize("name", ["api", "uid-api", "pod-api"])
def test_a_pod_is_known_by_name_uid_and_cgroup(name):
    assert [answer.pod for answer in answers(night(), "22:15", name)] == ["api"]


def test_a_pod_that_the_record_does_not_have_is_told_with_those_that_it_has():
    with pytest.raises(TrimtabError, match="no pod web; it has api, job"):
        answers(night(), "22:15", "web")
