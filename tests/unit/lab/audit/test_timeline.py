"""The record as events: every change of a weight with who, why, on whose word and under which model; and what is lost."""

import msgspec
import pytest

from lab.audit.events import ByAction, ByCommand, ByItself, ByOther
from lab.audit.lines import branch_of
from lab.audit.timeline import Timeline
from lab.explain.tree import draw
from lab.record.items import Damage
from schemas.messages import Trial
from tests.support import builders
from tests.support.builders import pod, write
from tests.support.records import Loop, Record, at_of


def events_of(record: Record, node=None):
    timeline = Timeline(node)
    found = [event for item in record.items for event in timeline.take(item)]
    return found + list(timeline.end())


def told(record: Record) -> list[str]:
    return [event.text for event in events_of(record)]


def of_kind(record: Record, kind: str):
    return [event for event in events_of(record) if event.kind == kind]


def seen(cycle: int, weight: int, phase="before", **fields):
    pods = (pod("api", weight=weight), pod("job", builders.BATCH, 100))
    return builders.state(cycle=cycle, at=at_of(cycle), phase=phase, pods=pods, **fields)


def whole(cycle: int = 1, **action):
    """A cycle in which the pod `api` goes from 1000 to 2000."""
    at = at_of(cycle)
    told_by = {"run": "run1", "model": "abcdef0123456789", "lessons": 12, "champion": "main", **action}
    return [
        seen(cycle, 1000),
        builders.action(cycle=cycle, at=at, **told_by),
        builders.verdict(cycle=cycle, at=at, breaker="closed"),
        builders.actuation(cycle=cycle, at=at),
    ]


def test_a_change_names_policy_arm_model_and_verdict():
    (change,) = of_kind(Record(*whole(explored=True)), "change")
    assert (change.pod, change.uid, change.before, change.after, change.outcome) == (
        "api",
        "uid-api",
        1000,
        2000,
        "applied",
    )
    assert change.cause == ByAction(
        policy="test",
        in_charge="main",
        champion="main",
        arm="favour",
        weights=builders.PROPOSED,
        propensity=0.5,
        explored=True,
        run="run1",
        model="abcdef0123456789",
        lessons=12,
        outcome="allow",
        mode="active",
        breaker="closed",
    )
    text = "\n".join(draw(branch_of(change), 200))
    for part in (
        "main (test), which drew by chance favour, propensity 0.5000",
        "abcdef0123456789 and 12 rewards since",
    ):
        assert part in text
    assert "the guard said allow in mode active, breaker closed" in text


def test_a_change_that_the_guard_clamped_says_why_it_has_no_propensity():
    record = Record(seen(1, 1000), builders.action(), builders.verdict(outcome="clamp", propensity=None))
    (change,) = of_kind(record.keep(builders.actuation()), "change")
    text = "\n".join(draw(branch_of(change), 200))
    assert "took favour, without a propensity as the guard said clamp" in text


def test_in_a_trial_a_change_is_on_the_word_of_whose_turn_it_was():
    trial = Trial(challenger="bold", phase="trial", block=3, in_charge="bold", incumbent="main")
    (change,) = of_kind(Record(*whole(trial=trial)), "change")
    assert (change.cause.in_charge, change.cause.champion, change.cause.policy) == ("bold", "main", "test")
    text = "\n".join(draw(branch_of(change), 200))
    assert "on the word of policy bold (test), in charge here by a trial (champion: main), which took favour" in text


def test_what_was_not_written_is_no_change():
    same = write(before=2000, after=2000, result="unchanged")
    failed = write("job", 100, 100, wanted=200, result="failed", reason="read_only")
    again = write("web", 300, 300)
    record = Record(builders.actuation(writes=(same, failed, again)))
    assert of_kind(record, "change") == []


def test_a_change_whose_action_and_verdict_are_lost_says_so():
    record = Record(seen(1, 1000)).lose(count=2).keep(builders.actuation())
    (change,) = of_kind(record, "change")
    assert (change.cause.policy, change.cause.outcome) == (None, None)
    assert "\n".join(draw(branch_of(change), 200)).count("the record does not have it") == 3


def test_the_action_of_another_boot_is_not_the_cause():
    record = Record(builders.action(boot="other"), builders.actuation())
    assert of_kind(record, "change")[0].cause.policy is None


def test_a_rollback_is_on_the_guards_word():
    order = builders.command(verb="rollback", by="guard", reason="P99 rose", cycle=1)
    other = builders.command(verb="rollback", by="guard", reason="another one", cycle=2, id="c2")
    back = builders.actuation(outcome="rolled_back", at=at_of(2), writes=(write("api", 2000, 1000),))
    record = Record(*whole(), order, other, back)
    change = of_kind(record, "change")[-1]
    assert (change.before, change.after, change.outcome) == (2000, 1000, "rolled_back")
    assert change.cause == ByCommand(verb="rollback", by="guard", reason="P99 rose", id="c1")


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("command: restore by alice: lunch", ByCommand(verb="restore", by="alice", reason="lunch", id="r")),
        ("command: mode by bob: night", ByCommand(verb="mode", by="bob", reason="night", id="m", mode="frozen")),
        ("the guard's mode is frozen", ByCommand(verb="mode", by="bob", reason="night", id="m", mode="frozen")),
        ("the guard's mode is shadow", ByItself(reason="the guard's mode is shadow")),
        ("dead_man", ByItself(reason="dead_man")),
    ],
)
def test_a_restore_is_on_the_word_of_who_ordered_it_or_nobodys(reason, cause):
    orders = (
        builders.command(boot="operator", cycle=0, by="alice", reason="lunch", id="r"),
        builders.command(boot="operator", cycle=0, verb="mode", mode="frozen", by="bob", reason="night", id="m"),
        builders.command(boot="operator", cycle=0, by="carol", reason="tea", id="t"),
    )
    back = builders.actuation(outcome="restored", reason=reason, writes=(write("api", 2000, 10),))
    assert of_kind(Record(*orders, back), "change")[0].cause == cause


def test_what_a_restore_wrote_belongs_to_the_pod_of_its_group_though_it_has_no_uid():
    """A restore knows groups only; a group that no pod has, such as an empty QoS group, also has no uid."""
    nameless = msgspec.structs.replace(write("api", 2000, 10), uid="", name="")
    stray = builders.state(cycle=2, at=at_of(2), pods=(pod("api"), msgspec.structs.replace(pod("besteffort"), uid="")))
    back = builders.actuation(cycle=2, at=at_of(2), outcome="restored", reason="stop", writes=(nameless,))
    changes = of_kind(Record(*whole(), stray, back), "change")
    assert [(change.pod, change.uid) for change in changes] == [("api", "uid-api")] * 2


def test_an_order_is_told_with_who_and_its_id():
    record = Record(builders.command(verb="mode", mode="canary", by="bob", reason="try", id="x7"))
    assert told(record) == ["order: mode canary by bob: try (id x7)"]


def test_a_foreign_write_is_told_as_theirs_once():
    """Met by the actuator: the value that it found was not ours. What it wrote over is our change again."""
    over = builders.actuation(
        cycle=3, at=at_of(3), overridden=("pod-api",), writes=(write("api", before=50, after=2000),)
    )
    record = Record(*whole(), over)
    foreign, change = [event for event in events_of(record) if event.cycle == 3]
    assert (foreign.kind, foreign.before, foreign.after) == ("foreign", 2000, 50)
    assert isinstance(foreign.cause, ByOther)
    assert (change.kind, change.before, change.after) == ("change", 50, 2000)


def test_a_value_replaced_as_we_wrote_is_theirs_and_no_change_of_ours():
    mixed = write("api", 1000, 70, wanted=2000, result="mismatch", reason="somebody else wrote in between")
    record = Record(builders.actuation(overridden=("pod-api",), writes=(mixed,)))
    (event,) = events_of(record)
    assert (event.kind, event.before, event.after) == ("foreign", 2000, 70)


def test_a_weight_that_nobody_set_is_told_when_it_is_seen_twice():
    record = Record(*whole(), seen(1, 2000, "after"), seen(2, 77), seen(2, 77, "after"))
    (event,) = of_kind(record, "unexplained")
    assert (event.before, event.after, event.cycle, event.at_ns) == (2000, 77, 2, at_of(2))
    assert "somebody else, or an actuator that restored after a crash" in event.text
    met = builders.actuation(cycle=3, overridden=("pod-api",), writes=(write("api", before=77, after=2000),))
    record.keep(met)
    assert [event.kind for event in events_of(record) if event.cycle == 3] == ["change"]


def test_one_look_from_before_our_write_is_nothing_to_wonder_at():
    record = Record(*whole(), seen(2, 1000), seen(2, 2000, "after"), seen(3, 1000), seen(3, 2000, "after"))
    assert of_kind(record, "unexplained") == []


def test_what_is_lost_is_told_where_it_falls():
    record = Record(*whole()).lose(count=3).keep(seen(2, 2000), builders.reward(cycle=9, at=at_of(9)))
    kinds = [event.kind for event in events_of(record)]
    assert kinds == ["change", "gap"]
    gap = events_of(record)[1]
    assert gap.text == (
        "nothing is known between 2023-11-14T22:13:25.000Z and 2023-11-14T22:14:05.000Z: "
        "3 messages are missing: TRIMTAB_AUDIT 4 to 6 (they had aged)"
    )


def test_a_gap_at_the_end_and_at_the_beginning_are_told_too():
    (first,) = of_kind(Record().lose().keep(builders.action(at=at_of(1))), "gap")
    assert first.text.startswith("nothing is known before 2023-11-14T22:13:25.000Z: 1 message is missing")
    (last,) = of_kind(Record(builders.action(at=at_of(1))).lose(), "gap")
    assert last.text.startswith("nothing is known after 2023-11-14T22:13:25.000Z")


def test_damage_is_a_gap_and_a_recording_that_is_not_closed_is_none():
    record = Record(builders.action(at=at_of(1)))
    record.items.append(Damage(kind="changed", block=3, offset=99, reason="bytes differ", after={"TRIMTAB_AUDIT": 9}))
    record.keep(builders.action(cycle=5, at=at_of(5)))
    record.items.append(Damage(kind="unclosed", block=4, offset=120, reason="not closed"))
    (gap,) = of_kind(record, "gap")
    assert "block 3 at byte 99: bytes differ" in gap.text


def test_what_changed_while_nothing_is_known_is_not_called_somebody_elses():
    record = Record(*whole()).lose(count=3).keep(builders.action(cycle=4, at=at_of(4)))
    record.keep(seen(5, 4000), seen(5, 4000, "after"))
    (event,) = of_kind(record, "unexplained")
    assert (event.before, event.after) == (2000, 4000)
    assert "while nothing is known" in event.text


def test_a_mode_in_force_is_told_with_its_order():
    order = builders.command(boot="operator", cycle=0, verb="mode", mode="active", by="bob", reason="go")
    record = Record(builders.verdict(mode="shadow"), order, builders.verdict(cycle=2), builders.verdict(cycle=3))
    (event,) = of_kind(record, "mode")
    assert event.text == "mode shadow → active, by order of bob: go"
    (event,) = of_kind(Record(builders.verdict(), builders.verdict(cycle=2, mode="frozen")), "mode")
    assert event.text == "mode active → frozen, no order in the record says so"


def test_models_are_told_as_they_change_and_why():
    def action(cycle, run, model):
        return builders.action(cycle=cycle, run=run, model=model)

    order = builders.command(boot="operator", cycle=0, verb="model", model="cc", by="bob", reason="better")
    record = Record(action(1, "r1", "aa"), action(2, "r1", "aa"), action(3, "r1", "bb"), action(4, "r2", "bb"))
    record.keep(order, action(5, "r2", "cc"))
    assert [event.text for event in of_kind(record, "model")] == [
        "the decider goes on from model bb",
        "the decider started anew (run r2), from model bb",
        "the decider goes on from model cc; by order of bob: better",
    ]
    assert of_kind(record, "model")[-1].cause.by == "bob"


def test_another_policy_in_charge_is_told_with_its_order_and_the_deciders_own_words():
    order = builders.command(boot="operator", cycle=0, verb="model", model="bold", by="bob", reason="better")
    record = Record(
        builders.action(champion="main"), order, builders.action(cycle=2, champion="bold", event="so it is")
    )
    (event,) = of_kind(record, "model")
    assert event.text == "policy bold is in charge instead of main; so it is; by order of bob: better"
    assert event.cause == ByCommand(verb="model", by="bob", reason="better", id="c1")


def test_an_order_that_the_deciders_own_words_name_is_not_told_twice():
    order = builders.command(boot="operator", cycle=0, verb="model", model="bold", by="bob", reason="better")
    told_so = "goes on from bold on the word of bob: better"
    record = Record(builders.action(champion="main"), order, builders.action(cycle=2, champion="bold", event=told_so))
    (event,) = of_kind(record, "model")
    assert event.text == f"policy bold is in charge instead of main; {told_so}"
    assert event.cause.by == "bob"


def test_steps_of_a_trial_are_told():
    trial = Trial(challenger="bold", phase="watch", block=9, in_charge="bold", event="promoted: +0.03 [+0.01, +0.05]")
    quiet = msgspec.structs.replace(trial, event=None)
    record = Record(builders.action(trial=trial), builders.action(cycle=2, trial=quiet))
    (event,) = of_kind(record, "trial")
    assert event.text == "trial of bold: promoted: +0.03 [+0.01, +0.05]"


def test_a_clock_that_is_set_back_reorders_nothing():
    record = Record(*whole(100))
    later = [msgspec.structs.replace(message, at=at_of(2)) for message in whole(101)]
    back = builders.write("api", 2000, 500)
    later[-1] = msgspec.structs.replace(later[-1], writes=(back,))
    record.keep(*later)
    changes = of_kind(record, "change")
    assert [change.cycle for change in changes] == [100, 101]
    assert changes[0].at_ns > changes[1].at_ns
    assert [change.stretch for change in changes] == [0, 1]


def test_other_nodes_are_left_out():
    record = Record(builders.actuation(node="a"), builders.actuation(node="b"))
    assert {event.node for event in events_of(record, "b")} == {"b"}


def test_a_loop_on_the_real_cores_has_no_change_that_nobody_made():
    record = Loop().record(60)
    kinds = {event.kind for event in events_of(record)}
    assert kinds == {"change"}
    for event in events_of(record):
        assert event.cause.policy == "linucb"
        assert event.cause.model
