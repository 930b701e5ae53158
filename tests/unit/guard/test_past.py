"""What is read from the audit after a restart."""

import pytest

from services.guard.core.past import BreakerPast, breaker_past, change_ages, class_change_ages
from tests.support.builders import BATCH, BOOT, CRITICAL, START_NS, command, verdict

SECOND = 1_000_000_000


def test_only_the_guard_s_own_rollbacks_are_its_past():
    orders = [
        command(verb="rollback", by="guard", at=START_NS),
        command(verb="rollback", by="operator", at=START_NS),
        command(verb="restore", by="guard", at=START_NS),
    ]
    assert breaker_past(orders, [], START_NS + 3 * SECOND) == BreakerPast((3.0,))


def test_only_executed_verdicts_are_changes_and_the_future_is_now():
    verdicts = [
        verdict(at=START_NS),
        verdict(at=START_NS, execute=False),
        verdict(at=START_NS + 9 * SECOND),
    ]
    assert change_ages(verdicts, START_NS + 5 * SECOND) == [5.0, 0.0]


def test_the_changes_of_a_class_are_those_that_gave_it_another_weight():
    verdicts = [
        verdict(at=START_NS, weights={CRITICAL: 2000, BATCH: 100}, previous_weights={CRITICAL: 1000, BATCH: 100}),
        verdict(at=START_NS + SECOND, weights={BATCH: 200}, previous_weights={CRITICAL: 1000, BATCH: 100}),
        verdict(at=START_NS + 2 * SECOND, weights={BATCH: 300}, previous_weights={BATCH: 100}, execute=False),
        verdict(at=START_NS + 3 * SECOND, weights={CRITICAL: 3000}, previous_weights=None),
        verdict(at=START_NS, weights=None),
    ]
    assert class_change_ages(verdicts, START_NS + 5 * SECOND) == {CRITICAL: [5.0, 2.0], BATCH: [4.0]}


# ---- the breaker ----


def rollback(cycle, boot=BOOT):
    at = START_NS + cycle * SECOND
    return command(verb="rollback", by="guard", cycle=cycle, boot=boot, at=at, id=f"guard-{boot}-{cycle}-regression")


def opening(cycle, boot=BOOT, by="guard", why="breaker"):
    at = START_NS + cycle * SECOND
    return command(verb="restore", by=by, cycle=cycle, boot=boot, at=at, id=f"guard-{boot}-{cycle}-{why}")


def told(cycle, breaker, boot=BOOT, **fields):
    return verdict(cycle=cycle, breaker=breaker, boot=boot, **{"at": START_NS + cycle * SECOND, **fields})


NOW = START_NS + 100 * SECOND
THREE = [rollback(1), rollback(2), rollback(3)]


@pytest.mark.parametrize(
    ("commands", "verdicts", "past"),
    [
        pytest.param([], [], BreakerPast(), id="nothing happened"),
        pytest.param(THREE[:2], [told(3, "closed")], BreakerPast((99.0, 98.0)), id="rollbacks, not enough"),
        pytest.param(
            [*THREE, opening(3)], [told(3, "closed")], BreakerPast((99.0, 98.0, 97.0), 97.0), id="just opened"
        ),
        pytest.param(
            [*THREE, opening(3)], [told(3, "closed"), told(4, "open")], BreakerPast((99.0, 98.0, 97.0), 97.0), id="open"
        ),
        pytest.param(
            [*THREE, opening(3)],
            [told(3, "closed"), told(4, "open"), told(70, "half_open")],
            BreakerPast((99.0, 98.0, 97.0), 97.0),
            id="half open, also with a change under trial or one that was kept a moment ago",
        ),
        pytest.param(
            [*THREE, opening(3), rollback(70), opening(70)],
            [told(4, "open"), told(70, "half_open")],
            BreakerPast((99.0, 98.0, 97.0, 30.0), 30.0),
            id="opened again",
        ),
        pytest.param(
            [*THREE, opening(3), rollback(70), opening(70)],
            [told(4, "open"), told(70, "half_open"), told(71, "open"), told(72, "open")],
            BreakerPast((99.0, 98.0, 97.0, 30.0), 30.0),
            id="opened again, and said so: the cool-down begins with the second opening",
        ),
        pytest.param(
            [*THREE, opening(3), rollback(80)],
            [told(70, "half_open"), told(71, "closed"), told(80, "closed")],
            BreakerPast((20.0,)),
            id="closed, and one rollback since",
        ),
        pytest.param([*THREE, opening(3)], [told(90, "closed")], BreakerPast(), id="closed long ago"),
        pytest.param(
            THREE,
            [told(4, "open"), told(5, "open"), told(6, "half_open")],
            BreakerPast((99.0, 98.0, 97.0), 96.0),
            id="open, though the order got lost: since the first word of it",
        ),
        pytest.param(THREE, [told(4, "open"), told(70, "closed")], BreakerPast(), id="closed, and the order got lost"),
        pytest.param([*THREE, opening(3)], [], BreakerPast((99.0, 98.0, 97.0), 97.0), id="verdicts that say nothing"),
        pytest.param([opening(3, why="blind")], [told(2, "closed")], BreakerPast(), id="another restore"),
        pytest.param([opening(3, by="ann")], [told(2, "closed")], BreakerPast(), id="somebody else's restore"),
        pytest.param(
            [rollback(50, "boot0"), opening(50, "boot0")],
            [told(60, "closed", "boot1", at=START_NS + 60 * SECOND)],
            BreakerPast(),
            id="closed in a later run of the collector",
        ),
        pytest.param(
            [rollback(1, "boot1"), opening(1, "boot1")],
            [told(60, "closed", "boot0", at=START_NS)],
            BreakerPast((99.0,), 99.0),
            id="opened in a later run of the collector",
        ),
        pytest.param(
            [*THREE, opening(3)],
            [told(3, "closed", at=START_NS + 90 * SECOND)],
            BreakerPast((99.0, 98.0, 97.0), 97.0),
            id="a wall clock that was set back in between does not close it",
        ),
    ],
)
def test_where_the_breaker_stood(commands, verdicts, past):
    assert breaker_past(commands, [verdict(breaker=None), *verdicts], NOW) == past
