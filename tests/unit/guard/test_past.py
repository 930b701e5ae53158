"""What is read from the audit after a restart."""

from services.guard.core.past import change_ages, last_mode_order, rollback_ages
from tests.support.builders import START_NS, command, verdict

SECOND = 1_000_000_000


def test_the_newest_order_of_a_mode_counts_whatever_came_after():
    orders = [
        command(verb="mode", mode="active"),
        command(verb="mode", mode="canary", by="ann"),
        command(verb="rollback"),
        command(verb="mode", mode=None),
    ]
    assert last_mode_order(orders).by == "ann"


def test_there_may_be_no_order_of_a_mode():
    assert last_mode_order([command(verb="restore")]) is None


def test_only_the_guard_s_own_rollbacks_are_its_past():
    orders = [
        command(verb="rollback", by="guard", at=START_NS),
        command(verb="rollback", by="operator", at=START_NS),
        command(verb="restore", by="guard", at=START_NS),
    ]
    assert rollback_ages(orders, START_NS + 3 * SECOND) == [3.0]


def test_only_executed_verdicts_are_changes_and_the_future_is_now():
    verdicts = [
        verdict(at=START_NS),
        verdict(at=START_NS, execute=False),
        verdict(at=START_NS + 9 * SECOND),
    ]
    assert change_ages(verdicts, START_NS + 5 * SECOND) == [5.0, 0.0]
