"""The table of the fault suite: when a row is green, what an application must not be, and which rows there are."""

from dataclasses import replace

import msgspec
import pytest

from hostfs.mounts import CgroupHost
from schemas.messages import Action, Actuation, AnyMessage, Reward, State, Verdict
from tests.faults.run import choose, find_node
from tests.faults.story import lost_of, misapplied, whole_of
from tests.faults.suite import BENCHES
from tests.faults.table import Result, exit_code, render

GOOD = Result(
    "signals", "SIGKILL guard", "whole again", "heartbeat", safe_seconds=1.5, originals=True, once=True, lost=2
)
SECOND = 1_000_000_000


def verdict(cycle: int = 1, *, execute: bool = True) -> Verdict:
    return Verdict(
        node="n", boot="b", cycle=cycle, at=0, outcome="allow", execute=execute, mode="active", deadline=10 * SECOND
    )


def replace_verdict(messages: list[AnyMessage], outcome: str) -> list[AnyMessage]:
    return [
        msgspec.structs.replace(message, outcome=outcome) if isinstance(message, Verdict) else message
        for message in messages
    ]


def actuation(cycle: int = 1, *, at_seconds: float = 9.0, outcome: str = "applied") -> Actuation:
    return Actuation(node="n", boot="b", cycle=cycle, at=int(at_seconds * SECOND), outcome=outcome)


def test_a_row_is_green_when_all_that_it_promises_was_seen():
    assert GOOD.verdict == "ok"
    assert exit_code([GOOD]) == 0


@pytest.mark.parametrize(
    "missing",
    [
        {"seen_in": ""},
        {"safe_seconds": None},
        {"originals": None},
        {"originals": False},
        {"once": None},
        {"once": False},
        {"left": "process 7"},
        {"trouble": "not within 45 s"},
    ],
)
def test_a_row_is_red_when_one_part_is_missing(missing):
    row = replace(GOOD, **missing)
    assert row.verdict == "RED"
    assert exit_code([GOOD, row]) == 1


def test_a_row_that_cannot_be_run_here_is_said_and_does_not_make_the_suite_red():
    row = Result("disks", "ENOSPC", "nothing is written", not_run="needs root")
    assert row.verdict == "not run"
    assert exit_code([GOOD, row]) == 0
    assert "    needs root" in render([GOOD, row]).split("\n")


def test_a_suite_of_which_nothing_ran_is_not_green():
    assert exit_code([Result("disks", "ENOSPC", "nothing is written", not_run="needs root")]) == 1
    assert exit_code([]) == 1


def test_the_table_has_a_line_a_row_below_its_family_and_says_why_it_is_red():
    red = replace(GOOD, family="server", fault="paused", trouble="not within 45 s: originals back")
    lines = render([GOOD, red]).split("\n")
    row = next(line for line in lines if line.startswith("SIGKILL guard"))
    assert row.split() == ["SIGKILL", "guard", "heartbeat", "1.5", "s", "intact", "yes", "2", "none", "ok"]
    at = lines.index("server:")
    assert lines[at + 1].startswith("paused")
    assert lines[at + 2] == "    not within 45 s: originals back; expected: whole again"
    assert "1 ok, 1 red, 0 not run" in lines


def test_what_a_rig_left_behind_is_told_below_its_row():
    lines = render([replace(GOOD, left="process 7: nats-server")]).split("\n")
    assert "    left behind: process 7: nats-server" in lines
    assert lines[lines.index("signals:") + 1].split()[-2:] == ["BELOW", "RED"]


def test_one_application_a_cycle_within_its_deadline_is_as_it_must_be():
    assert misapplied([actuation(1), actuation(2)], [verdict(1), verdict(2)]) == ""


def test_a_cycle_that_is_applied_twice_is_found():
    assert "2 times" in misapplied([actuation(), actuation()], [verdict()])


def test_an_application_without_a_verdict_that_allows_it_is_found():
    assert "without a verdict" in misapplied([actuation()], [verdict(execute=False)])
    assert "without a verdict" in misapplied([actuation(2)], [verdict(1)])


def test_an_application_after_the_deadline_is_found():
    assert "1.00 s after its deadline" in misapplied([actuation(at_seconds=11.0)], [verdict()])


def test_a_skip_after_the_deadline_and_a_rollback_are_no_applications():
    others = [actuation(at_seconds=11.0, outcome="skipped"), actuation(outcome="rolled_back"), actuation()]
    assert misapplied(others, [verdict()]) == ""


def cycle(number: int) -> list[AnyMessage]:
    ids = {"node": "n", "boot": "b", "cycle": number, "at": 0}
    return [
        State(**ids, phase="before"),
        Action(**ids, policy="p", arm="a"),
        verdict(number),
        actuation(number),
        State(**ids, phase="after"),
        Reward(**ids, outcome="joined"),
    ]


def test_what_is_missing_is_counted_up_to_the_last_whole_cycle():
    without_action_and_reward = [cycle(2)[0], *cycle(2)[2:5]]
    under_way = cycle(4)[:2]
    messages = [*cycle(1), *without_action_and_reward, *cycle(3), *under_way]
    assert whole_of(messages) == [("b", 1), ("b", 3)]
    assert lost_of(messages) == 2


def test_a_cycle_that_was_late_is_not_whole():
    late = replace_verdict(cycle(1), "late")
    assert whole_of(late) == []


def test_every_row_has_a_name_of_its_own_and_says_what_is_expected():
    names = [(bench.family, fault.name) for bench in BENCHES for fault in bench.faults]
    assert len(set(names)) == len(names)
    assert len({bench.name for bench in BENCHES}) == len(BENCHES)
    assert all(fault.expected for bench in BENCHES for fault in bench.faults)


def test_real_cgroups_are_not_asked_for_where_simulation_is():
    assert find_node(simulate=True) == (False, "a simulated node's files (asked for with --simulate)")


def test_where_there_are_no_real_cgroups_it_says_why_and_what_would_help():
    nowhere = CgroupHost(root=None, layout="none", cpu_on="none", reason="no cgroup v2 is mounted", remedy="mount it")
    is_real, said = find_node(simulate=False, host=nowhere)
    assert not is_real
    assert said == "a simulated node's files, no real cgroups: no cgroup v2 is mounted. To use those: mount it"


def test_rows_are_chosen_by_family_and_name():
    assert [fault.name for _, faults in choose(["paused"]) for fault in faults] == ["paused 30 s (SIGSTOP)"]
    assert [bench.family for bench, _ in choose(["^clock jumps"])] == ["clock jumps"]
    assert choose(["no such row"]) == []
    assert sum(len(faults) for _, faults in choose([])) == sum(len(bench.faults) for bench in BENCHES)
