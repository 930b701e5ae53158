"""Every rule alone, and their order."""

import math

import msgspec
import pytest

from schemas import messages
from schemas.settings import WeightSettings
from services.guard.core.rules import (
    RULES,
    WATCHABLE,
    Bounds,
    Budget,
    Canary,
    ClassRate,
    Contention,
    Freshness,
    Frozen,
    KnownClasses,
    KnownProfile,
    MaxStep,
    MinShare,
    Proposed,
    Rate,
    Situation,
    Unchanged,
    Writable,
    changed,
    judge,
    toward,
)
from tests.support.builders import BATCH, CRITICAL, DEFAULT, PROPOSED, action, batch_state, class_state, hold, state


def situation(**fields):
    """Nobody objects to `action()` here."""
    defaults = {
        "state": state(),
        "mode": "active",
        "limits": WeightSettings(),
        "classes": frozenset({CRITICAL, DEFAULT, BATCH}),
        "state_age_seconds": 0.01,
        "max_state_age_seconds": 10.0,
        "answer_seconds": 0.05,
        "budget_seconds": 0.1,
        "changes_left": 8,
        "require_contention": True,
    }
    return Situation(**{**defaults, **fields})


def weighing(**weights):
    """A situation with these weights in force."""
    classes = {CRITICAL: class_state(weight=weights["critical"]), BATCH: batch_state(weight=weights["batch"])}
    return situation(state=state(classes=classes))


def proposing(critical, batch=100):
    return action(weights={CRITICAL: critical, BATCH: batch})


# ---- all together ----


def test_what_nobody_objects_to_is_allowed():
    judged = judge(action(), situation())
    assert (judged.outcome, judged.execute, judged.weights, judged.rule) == ("allow", True, PROPOSED, None)


def test_canary_executes():
    assert judge(action(), situation(mode="canary")).execute


def test_shadow_decides_and_executes_nothing():
    judged = judge(action(), situation(mode="shadow"))
    assert (judged.outcome, judged.execute, judged.weights, judged.rule) == ("allow", False, PROPOSED, "shadow")


def test_shadow_shows_a_clamp_and_executes_nothing():
    judged = judge(proposing(9000), situation(mode="shadow"))
    assert (judged.outcome, judged.execute, judged.weights) == ("clamp", False, {CRITICAL: 4000, BATCH: 100})


def test_shadow_still_refuses_what_active_would():
    assert judge(proposing(10_001), situation(mode="shadow")).outcome == "refuse"


OBJECTIONS = [
    ("budget", {"answer_seconds": 0.11}),
    ("freshness", {"state_age_seconds": 10.1}),
    ("breaker", {"breaker_open": "the breaker is open"}),
    ("frozen", {"mode": "frozen"}),
]


@pytest.mark.parametrize("first", range(len(OBJECTIONS)))
def test_of_several_objections_the_first_in_the_order_speaks(first):
    fields = {}
    for _, more in OBJECTIONS[first:]:
        fields |= more
    assert judge(action(), situation(**fields)).rule == OBJECTIONS[first][0]


def test_the_order_of_the_rules():
    names = [rule.name for rule in RULES]
    assert names == [
        "budget",
        "freshness",
        "frozen",
        "writable",
        "hold",
        "canary",
        "known_classes",
        "bounds",
        "known_profile",
        "contention",
        "present_classes",
        "min_share",
        "max_step",
        "unchanged",
        "rate",
        "class_rate",
    ]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_every_rule_says_first_what_it_prevents_and_cannot_be_changed(rule):
    assert type(rule).__doc__.startswith("Prevents ")
    with pytest.raises(AttributeError):
        rule.name = "other"


def test_a_weight_out_of_bounds_is_refused_even_where_a_clamp_would_bring_it_back():
    assert judge(proposing(40_000), situation()).rule == "bounds"


def test_the_rate_is_asked_after_the_clamp():
    judged = judge(proposing(9000), situation(changes_left=0))
    assert (judged.outcome, judged.rule, judged.weights) == ("refuse", "rate", None)


def test_what_is_in_force_does_not_need_the_rate():
    judged = judge(proposing(1000), situation(changes_left=0))
    assert (judged.outcome, judged.rule) == ("hold", "unchanged")


def test_a_clamp_is_executed_and_named():
    judged = judge(proposing(9000), situation())
    assert (judged.outcome, judged.rule, judged.execute) == ("clamp", "max_step", True)


def test_classes_without_pods_are_left_out_of_what_is_executed():
    judged = judge(action(weights={CRITICAL: 2000, DEFAULT: 300, BATCH: 100}), situation())
    assert judged.weights == PROPOSED


@pytest.mark.parametrize("weight", [0, -1, None])
def test_a_class_whose_weight_is_no_weight_is_left_out(weight):
    classes = {CRITICAL: class_state(), DEFAULT: class_state(weight=100), BATCH: batch_state(weight=weight)}
    proposed = action(weights={CRITICAL: 2000, DEFAULT: 100, BATCH: 100})
    judged = judge(proposed, situation(state=state(classes=classes)))
    assert (judged.outcome, judged.weights) == ("allow", {CRITICAL: 2000, DEFAULT: 100})


def test_a_profile_in_force_is_no_change_where_a_class_of_it_has_no_pods():
    """10 : 3 : 1 without batch is 3.16 : 1 between the others, and stands at that."""
    classes = {CRITICAL: class_state(weight=316), DEFAULT: class_state(weight=100)}
    judged = judge(action(weights={CRITICAL: 1000, DEFAULT: 316, BATCH: 100}), situation(state=state(classes=classes)))
    assert (judged.outcome, judged.rule) == ("hold", "unchanged")


def test_one_class_alone_has_nothing_to_be_weighed_against():
    classes = {CRITICAL: class_state(weight=100)}
    judged = judge(action(weights={CRITICAL: 10_000, BATCH: 100}), situation(state=state(classes=classes)))
    assert (judged.outcome, judged.rule) == ("hold", "unchanged")


# ---- each alone ----


@pytest.mark.parametrize(("answer_seconds", "outcome"), [(0.0, None), (0.1, None), (0.1001, "late"), (5.0, "late")])
def test_an_answer_beyond_the_budget_is_late(answer_seconds, outcome):
    finding = Budget()(action(), situation(answer_seconds=answer_seconds))
    assert (finding and finding.outcome) == outcome


@pytest.mark.parametrize(("age", "refused"), [(0.0, False), (10.0, False), (10.001, True), (3600.0, True)])
def test_i3_a_state_older_than_two_ticks_is_refused(age, refused):
    finding = Freshness()(action(), situation(state_age_seconds=age))
    assert (finding is not None) is refused


@pytest.mark.parametrize(("age", "moved", "refused"), [(0.1, 0.2, False), (0.2, 0.2, False), (0.3, 0.2, True)])
def test_i2_a_state_from_before_the_last_change_is_refused(age, moved, refused):
    finding = Freshness()(action(), situation(state_age_seconds=age, since_moved_seconds=moved))
    assert (finding is not None) is refused


def test_frozen_refuses():
    finding = Frozen()(action(), situation(mode="frozen"))
    assert (finding.rule, finding.outcome) == ("frozen", "refuse")


def test_an_open_breaker_refuses_in_its_own_name_and_words():
    finding = Frozen()(action(), situation(breaker_open="open for another 3 s"))
    assert (finding.rule, finding.outcome, finding.reason) == ("breaker", "refuse", "open for another 3 s")


@pytest.mark.parametrize("mode", ["shadow", "canary", "active"])
def test_other_modes_do_not_stand_still(mode):
    assert Frozen()(action(), situation(mode=mode)) is None


def test_wt_05_nothing_is_credited_where_nothing_can_be_written():
    finding = Writable()(action(), situation(state=state(writable=False)))
    assert (finding.rule, finding.outcome) == ("writable", "refuse")


def test_a_proposal_to_hold_is_held_with_its_reason():
    finding = Proposed()(hold(reason="nothing better"), situation())
    assert (finding.outcome, finding.reason) == ("hold", "nothing better")
    assert judge(hold(), situation()).execute is False


def test_an_unknown_class_is_refused():
    finding = KnownClasses()(action(weights={CRITICAL: 2000, "gold": 100}), situation())
    assert (finding.outcome, finding.reason) == ("refuse", "unknown class 'gold'")


@pytest.mark.parametrize("weights", [{}, {DEFAULT: 300}])
def test_a_proposal_for_no_class_that_is_here_is_refused(weights):
    assert KnownClasses()(action(weights=weights), situation()).outcome == "refuse"


@pytest.mark.parametrize("weight", [-(2**63), -3, 0, 1, 99, 10_001, 11_443, 38_144, 2**63 - 1])
def test_wt_02_a_weight_outside_the_bounds_is_refused(weight):
    finding = Bounds()(proposing(weight), situation())
    assert (finding.rule, finding.outcome, finding.weights) == ("bounds", "refuse", None)


@pytest.mark.parametrize("weight", [100, 101, 9999, 10_000])
def test_a_weight_within_the_bounds_is_not(weight):
    assert Bounds()(proposing(weight), situation()) is None


def test_bounds_are_asked_of_absent_classes_too():
    assert Bounds()(action(weights={CRITICAL: 1000, DEFAULT: 99}), situation()).rule == "bounds"


def test_without_contention_it_is_held():
    idle = state(contention=messages.Contention(contended=False, reason="the node idles"))
    finding = Contention()(action(), situation(state=idle))
    assert (finding.outcome, finding.reason) == ("hold", "the node idles")
    assert Contention()(action(), situation(state=idle, require_contention=False)) is None


@pytest.mark.parametrize(
    ("start", "proposed", "executed"),
    [
        (1000, 4000, None),  # the ratio itself is allowed
        (1000, 4001, 4000),
        (1000, 250, None),
        (1000, 249, 250),
        (1000, 10_000, 4000),
        (4000, 100, 1000),
        (333, 1334, 1332),  # 1333 would be a step of 4.003
        (401, 100, 101),  # 100 would be a step of 4.01
        (100, 10_000, 400),
    ],
)
def test_a_step_is_clamped_to_the_ratio(start, proposed, executed):
    finding = MaxStep()(proposing(proposed), weighing(critical=start, batch=100))
    assert (finding and finding.weights[CRITICAL]) == executed


def test_a_clamp_takes_every_class_the_same_part_of_the_way():
    finding = MaxStep()(proposing(1600, batch=400), weighing(critical=100, batch=100))
    assert finding.weights == {CRITICAL: 400, BATCH: 200}  # half the way, in ratios, of sixteen and of four


def test_a_clamp_keeps_what_stays():
    finding = MaxStep()(proposing(9000, batch=150), weighing(critical=100, batch=150))
    assert finding.weights[BATCH] == 150


@pytest.mark.parametrize("start", [24, 40_001, 2**62, pytest.param(10**400, id="huge")])
def test_i2_where_no_step_leads_into_the_bounds_it_is_refused(start):
    finding = MaxStep()(proposing(1000), weighing(critical=start, batch=100))
    assert (finding.outcome, finding.weights) == ("refuse", None)


@pytest.mark.parametrize(("start", "executed"), [(25, 100), (40_000, 10_000)])
def test_from_just_outside_one_step_leads_into_the_bounds(start, executed):
    assert judge(proposing(1000), weighing(critical=start, batch=100)).weights[CRITICAL] == executed


def test_a_clamp_leads_every_class_into_the_bounds():
    finding = MaxStep()(proposing(400), weighing(critical=25, batch=26))
    assert finding.weights == {CRITICAL: 100, BATCH: 100}  # half of batch's way would end at 51


@pytest.mark.parametrize(("min_weight", "start", "target"), [(1, 1, 10_000), (1, 3, 1), (1, 2, 1)])
def test_small_weights_keep_the_ratio_when_rounded(min_weight, start, target):
    limits = WeightSettings(min_weight=min_weight, max_step_ratio=1.5)
    weight = toward(start, target, math.log(1.5) / abs(math.log(target / start)), limits)
    assert start / 1.5 <= weight <= start * 1.5


def test_what_is_in_force_is_held():
    finding = Unchanged()(proposing(1000), situation())
    assert (finding.rule, finding.outcome) == ("unchanged", "hold")
    assert Unchanged()(proposing(1001), situation()) is None


def test_a_used_up_rate_refuses():
    assert Rate()(action(), situation(changes_left=0)).outcome == "refuse"
    assert Rate()(action(), situation(changes_left=1)) is None


# ---- known_profile ----

CALM = {
    "calm": {CRITICAL: 1000, DEFAULT: 300, BATCH: 100},
    "even": {"default": 200},
    "warm": {CRITICAL: 400, DEFAULT: 200},
}


@pytest.mark.parametrize(
    ("weights", "refused"),
    [
        ({CRITICAL: 1000, BATCH: 100}, False),  # calm, over the classes with pods
        ({CRITICAL: 2000, BATCH: 200}, False),  # the same ratios
        ({CRITICAL: 1000, DEFAULT: 9999, BATCH: 100}, False),  # an absent class does not matter
        ({CRITICAL: 150, BATCH: 150}, False),  # even: what it does not name weighs as `default`
        ({CRITICAL: 200, BATCH: 100}, False),  # warm: batch is not named, and weighs as `default` there
        ({CRITICAL: 400, BATCH: 100}, True),
        ({CRITICAL: 1001, BATCH: 100}, True),
        ({CRITICAL: 100, BATCH: 1000}, True),
        ({CRITICAL: -(2**63), BATCH: 100}, True),
        ({BATCH: 100}, True),  # a class with pods is left out
    ],
)
def test_only_ratios_of_a_listed_profile_may_be_asked_for(weights, refused):
    finding = KnownProfile()(action(weights=weights), situation(profiles=CALM))
    assert (finding is not None) is refused
    assert finding is None or (finding.rule, finding.outcome) == ("known_profile", "refuse")


def test_without_a_list_any_profile_may_be_asked_for():
    assert KnownProfile()(proposing(1234), situation()) is None


def test_a_step_toward_a_listed_profile_need_not_be_one():
    where = weighing(critical=100, batch=100)
    judged = judge(proposing(1000), msgspec.structs.replace(where, profiles=CALM))
    assert (judged.outcome, judged.weights) == ("clamp", {CRITICAL: 400, BATCH: 100})


# ---- min_share ----


def shares(least, critical=1000, batch=100, **more):
    return msgspec.structs.replace(weighing(critical=critical, batch=batch), min_share_ratio=least, **more)


@pytest.mark.parametrize(("critical", "refused"), [(1900, False), (1901, True), (10_000, True)])
def test_no_class_with_pods_is_left_less_than_the_least_share(critical, refused):
    finding = MinShare()(proposing(critical), shares(0.05))
    assert (finding is not None) is refused


def test_who_is_left_too_little_is_named():
    finding = MinShare()(proposing(10_000), shares(0.05))
    assert (finding.outcome, finding.reason) == (
        "refuse",
        "batch: would be left 0.99% of the class weights, the least is 5.00%",
    )


@pytest.mark.parametrize(("critical", "refused"), [(5000, False), (9999, False), (10_000, False), (10_001, True)])
def test_a_class_that_has_less_than_the_least_may_be_raised_and_not_lowered(critical, refused):
    assert (MinShare()(proposing(critical), shares(0.05, critical=10_000)) is not None) is refused


def test_a_class_that_is_not_named_counts_with_what_it_has():
    assert MinShare()(action(weights={CRITICAL: 4000}), shares(0.05)).reason.startswith("batch: ")


def test_a_profile_that_starves_is_refused_before_a_step_toward_it_is_made():
    assert judge(proposing(10_000), shares(0.05, critical=100)).rule == "min_share"


def test_a_step_out_of_starvation_is_let_through():
    judged = judge(proposing(100), shares(0.05, critical=10_000))
    assert (judged.outcome, judged.weights) == ("clamp", {CRITICAL: 2500, BATCH: 100})


def test_a_step_whose_rounding_would_starve_a_class_is_refused():
    """A third of the way from 1 : 30 to 2 : 37 ends at 1 : 32, below the least share that both ends keep."""
    limits = WeightSettings(min_weight=1, max_step_ratio=1.26)
    where = msgspec.structs.replace(shares(1 / 31.5, critical=30, batch=1), limits=limits)
    judged = judge(action(weights={CRITICAL: 37, BATCH: 2}), where)
    assert (judged.outcome, judged.rule, judged.weights) == ("refuse", "min_share", None)


# ---- class_rate ----


def test_a_class_whose_changes_are_used_up_is_not_changed():
    left = {CRITICAL: 0, BATCH: 3}
    finding = ClassRate()(proposing(2000), situation(class_changes_left=left))
    assert (finding.rule, finding.outcome) == ("class_rate", "refuse")
    assert finding.reason.startswith(CRITICAL)


@pytest.mark.parametrize("left", [{}, {CRITICAL: 1, BATCH: 0}, {DEFAULT: 0}])
def test_a_class_that_does_not_change_needs_no_budget(left):
    assert ClassRate()(proposing(2000), situation(class_changes_left=left)) is None


def test_what_changes_are_the_classes_with_pods_that_get_another_weight():
    assert changed(action(weights={CRITICAL: 1000, DEFAULT: 7, BATCH: 200}), situation()) == [BATCH]


# ---- canary ----


def test_outside_a_canary_the_rule_of_the_canary_is_silent():
    assert Canary()(action(), situation(state=state(classes={}))) is None


# ---- watching ----

STARVED = {"min_share_ratio": 0.2, "class_changes_left": {CRITICAL: 0}, "changes_left": 0, "profiles": CALM}


def test_a_watched_rule_is_noted_and_has_no_effect():
    judged = judge(action(), situation(changes_left=0), watched=["rate"])
    assert (judged.outcome, judged.rule, judged.execute, judged.weights) == ("allow", None, True, PROPOSED)
    assert judged.would_refuse == ("rate",)


def test_watched_rules_are_noted_in_their_order_each_once():
    watched = ["rate", "class_rate", "min_share", "known_profile", "max_step", "unchanged"]
    judged = judge(proposing(9000), situation(**STARVED), watched=watched)
    assert judged.would_refuse == ("known_profile", "min_share", "max_step", "rate", "class_rate")
    assert judged.weights == {CRITICAL: 9000, BATCH: 100}


def test_a_rule_that_is_enforced_ends_the_matter_and_tells_what_was_noted_before():
    judged = judge(proposing(9000), situation(**STARVED), watched=["known_profile"])
    assert (judged.outcome, judged.rule, judged.execute) == ("refuse", "min_share", False)
    assert judged.would_refuse == ("known_profile",)


def test_a_rule_that_would_not_have_objected_is_not_noted():
    assert judge(action(), situation(), watched=WATCHABLE).would_refuse == ()


def test_a_watched_step_is_not_clamped():
    judged = judge(proposing(9000), situation(), watched=["max_step"])
    assert (judged.outcome, judged.weights, judged.would_refuse) == (
        "allow",
        {CRITICAL: 9000, BATCH: 100},
        ("max_step",),
    )


def test_what_a_clamp_leaves_is_asked_about_and_noted_once():
    limits = WeightSettings(min_weight=1, max_step_ratio=1.26)
    where = msgspec.structs.replace(shares(1 / 31.5, critical=30, batch=1), limits=limits)
    judged = judge(action(weights={CRITICAL: 37, BATCH: 2}), where, watched=["min_share"])
    assert (judged.outcome, judged.execute, judged.would_refuse) == ("clamp", True, ("min_share",))


def test_unknown_classes_alone_leave_nothing_to_do_where_they_are_watched():
    judged = judge(action(weights={"gold": 100}), situation(), watched=["known_classes", "unchanged"])
    assert (judged.outcome, judged.execute, judged.weights) == ("hold", False, None)
    assert judged.would_refuse == ("known_classes", "unchanged")


@pytest.mark.parametrize("weight", [0, -1, -(2**63)])
def test_a_weight_that_is_none_goes_nowhere_though_bounds_are_watched(weight):
    judged = judge(proposing(weight), situation(), watched=["bounds"])
    assert (judged.outcome, judged.rule, judged.would_refuse) == ("refuse", "max_step", ("bounds",))


def test_in_shadow_what_is_watched_is_noted_too():
    judged = judge(action(), situation(mode="shadow", changes_left=0), watched=["rate"])
    assert (judged.execute, judged.would_refuse) == (False, ("rate",))


def test_judging_changes_nothing_it_was_given():
    proposal, where = proposing(9000), situation()
    copy = msgspec.json.decode(msgspec.json.encode(proposal), type=type(proposal))
    judge(proposal, where)
    assert proposal == copy
