"""Which arms may be offered, and why the others may not."""

import pytest

from schemas.messages import ClassState, Latency
from schemas.settings import DEFAULT_CLASSES, ClassSettings, Shared, WeightSettings
from services.decider.core.arms import build_arms
from services.decider.core.mask import Masks, mask
from services.decider.core.policy import HOLD, Arm

LIMITS = WeightSettings()
ARMS = build_arms(Shared(), {})
LC, D, B = "latency-critical", "default", "batch"
FINE = ClassState(pods=1, latency=Latency(over_ratio=0.0, p99_seconds=0.02))
SLOW = ClassState(pods=1, latency=Latency(over_ratio=0.3))
CALM = {LC: FINE, D: FINE, B: ClassState(pods=3)}


def weights(lc, d, b):
    return {LC: lc, D: d, B: b}


def masked(current, classes=CALM, arms=ARMS, settings=DEFAULT_CLASSES, **more):
    return mask(arms, current, classes, settings=settings, limits=LIMITS, **more)


def allowed(*args, **more):
    return [arm.name for arm in masked(*args, **more).allowed]


def test_all_is_allowed_while_the_weights_are_unknown():
    result = masked(None)
    assert [arm.name for arm in result.allowed] == ["hold", *(arm.name for arm in ARMS[:-1])]
    assert result.reasons == {}


def test_from_equal_weights_only_one_half_decade_is_reachable():
    result = masked(weights(100, 100, 100))
    assert [arm.name for arm in result.allowed] == ["lc1-d1-b1", "lc3-d3-b1", "lc1-d1-b3"]
    assert result.reasons["lc10-d3-b1"] == "step"
    assert result.reasons["hold"] == "stay"


def test_ratios_count_and_not_the_scale():
    assert allowed(weights(500, 500, 500)) == allowed(weights(100, 100, 100))


def test_hold_stays_and_comes_first_while_no_arm_is_in_force():
    assert allowed(weights(150, 100, 100))[0] == "hold"


def test_step_masks_nothing_where_no_other_arm_is_within_it():
    arms = (Arm("far", weights(10_000, 100, 100)), Arm("further", weights(10_000, 316, 100)), HOLD)
    result = masked(weights(100, 100, 2000), arms=arms)
    assert [arm.name for arm in result.allowed] == ["hold", "far", "further"]


def test_arm_in_force_does_not_count_as_reachable_goal():
    arms = (Arm("here", weights(100, 100, 100)), Arm("far", weights(10_000, 100, 100)), HOLD)
    assert allowed(weights(100, 100, 100), arms=arms) == ["here", "far"]


@pytest.mark.parametrize("changes_left", [0, -1])
def test_spent_change_budget_leaves_the_arm_in_force(changes_left):
    result = masked(weights(100, 100, 100), changes_left=changes_left)
    assert [arm.name for arm in result.allowed] == ["lc1-d1-b1"]
    assert {reason for name, reason in result.reasons.items() if name != "hold"} == {"rate"}


def test_spent_change_budget_leaves_hold_between_arms():
    assert allowed(weights(150, 100, 100), changes_left=0) == ["hold"]


def test_one_change_left_is_enough_to_move():
    assert "lc3-d3-b1" in allowed(weights(100, 100, 100), changes_left=1)


def test_frozen_mode_offers_no_change():
    result = masked(weights(100, 100, 100), mode="frozen")
    assert [arm.name for arm in result.allowed] == ["lc1-d1-b1"]
    assert result.reasons["lc3-d3-b1"] == "frozen"


def test_violated_class_is_never_given_a_smaller_share():
    result = masked(weights(1000, 316, 100), {LC: SLOW, D: FINE, B: ClassState(pods=3)})
    assert result.reasons["lc3-d3-b1"] == "no_harm"
    assert result.reasons["lc10-d10-b1"] == "no_harm"
    assert [arm.name for arm in result.allowed] == ["lc10-d3-b1", "lc32-d10-b1", "lc32-d3-b1"]


def test_kept_objectives_mask_no_exploration():
    assert "no_harm" not in masked(weights(1000, 316, 100)).reasons.values()


def test_of_two_violated_classes_both_are_spared_while_a_way_remains():
    result = masked(weights(316, 100, 1000 // 3), {LC: SLOW, D: SLOW, B: ClassState(pods=3)})
    for arm in result.allowed[1:]:
        total = sum(arm.weights.values())
        assert arm.weights[LC] / total > 316 / 749 * 0.99
        assert arm.weights[D] / total > 100 / 749 * 0.99


def test_of_two_violated_classes_the_more_important_wins_where_no_way_suits_both():
    arms = (
        Arm("here", weights(1000, 1000, 100)),
        Arm("lc", weights(1000, 316, 100)),
        Arm("d", weights(316, 1000, 100)),
    )
    classes = {LC: SLOW, D: SLOW, B: ClassState(pods=1)}
    assert allowed(weights(1000, 1000, 100), classes, arms) == ["here", "lc"]
    swapped = {LC: ClassSettings(objective_p99_seconds=0.1, importance=0.2), **{k: DEFAULT_CLASSES[k] for k in (D, B)}}
    assert allowed(weights(1000, 1000, 100), classes, arms, settings=swapped) == ["here", "d"]


def test_most_important_violated_class_never_yields():
    arms = (Arm("here", weights(10_000, 100, 100)), Arm("less", weights(3162, 100, 100)))
    assert allowed(weights(10_000, 100, 100), {LC: SLOW, D: SLOW, B: ClassState(pods=1)}, arms) == ["here"]


def test_arms_that_differ_only_in_absent_classes_are_one():
    classes = {LC: FINE, D: FINE, B: ClassState(pods=0)}
    result = masked({LC: 316, D: 100}, classes)
    assert result.allowed[0].name == "lc10-d3-b1"
    assert result.reasons["lc32-d10-b1"] == "same"
    shares = [arm.weights[LC] / arm.weights[D] for arm in result.allowed]
    assert len({round(share, 1) for share in shares}) == len(shares)


def test_of_several_arms_in_force_the_one_that_fits_the_absent_classes_is_kept():
    classes = {LC: FINE, D: FINE, B: ClassState(pods=0)}
    assert masked(weights(1000, 316, 100), classes).allowed[0].name == "lc10-d3-b1"


def test_lonely_class_leaves_nothing_to_decide():
    classes = {LC: SLOW, D: ClassState(), B: ClassState()}
    assert allowed(weights(1000, 316, 100), classes) == ["lc10-d3-b1"]


def test_node_without_pods_leaves_nothing_to_decide():
    assert allowed(None, {}) == ["hold"]


def test_class_that_just_appeared_without_a_weight_masks_nothing_by_it():
    result = masked({LC: 100, D: 100}, CALM)
    assert result.allowed[0] is HOLD
    assert "lc1-d1-b3" in {arm.name for arm in result.allowed}


def test_the_fraction_of_requests_decides_for_the_mask_as_it_does_for_the_reward():
    kept = ClassState(pods=1, latency=Latency(over_ratio=0.0, p99_seconds=0.3, saturated=("p99",)))
    result = masked(weights(1000, 316, 100), {LC: kept, D: FINE, B: ClassState(pods=3)})
    assert "no_harm" not in result.reasons.values()


# ---- a class that no weights can save ----


def test_lost_class_yields_to_all_others():
    both_slow = {LC: SLOW, D: SLOW, B: ClassState(pods=1)}
    arms = (
        Arm("here", weights(1000, 1000, 100)),
        Arm("lc", weights(1000, 316, 100)),
        Arm("d", weights(316, 1000, 100)),
    )
    assert allowed(weights(1000, 1000, 100), both_slow, arms) == ["here", "lc"]
    assert allowed(weights(1000, 1000, 100), both_slow, arms, lost={LC}) == ["here", "d"]
    assert allowed(weights(1000, 1000, 100), both_slow, arms, lost={LC, D}) == ["here", "lc", "d"]


# ---- a class that its ceiling judges ----

WITH_CEILING = {**DEFAULT_CLASSES, LC: ClassSettings(objective_p99_seconds=0.1, objective_pressure_ratio=0.1)}


def waited(ratio):
    return ClassState(pods=1, latency=Latency(reason="no_source"), waited_ratio=ratio, judged_by="pressure")


def test_a_class_that_waits_above_its_ceiling_is_never_given_a_smaller_share():
    latency_says = masked(weights(1000, 316, 100), {LC: SLOW, D: FINE, B: ClassState(pods=3)})
    seen = {LC: waited(0.101), D: FINE, B: ClassState(pods=3)}
    pressure_says = masked(weights(1000, 316, 100), seen, settings=WITH_CEILING)
    assert pressure_says == latency_says
    assert pressure_says.reasons["lc3-d3-b1"] == "no_harm"


@pytest.mark.parametrize("ratio", [0.1, 0.0, None])
def test_a_wait_within_the_ceiling_or_unknown_masks_no_exploration(ratio):
    seen = {LC: waited(ratio), D: FINE, B: ClassState(pods=3)}
    result = masked(weights(1000, 316, 100), seen, settings=WITH_CEILING)
    assert "no_harm" not in result.reasons.values()


def test_of_two_violated_classes_the_more_important_wins_by_whichever_signal():
    arms = (
        Arm("here", weights(1000, 1000, 100)),
        Arm("lc", weights(1000, 316, 100)),
        Arm("d", weights(316, 1000, 100)),
    )
    seen = {LC: waited(0.5), D: SLOW, B: ClassState(pods=1)}
    assert allowed(weights(1000, 1000, 100), seen, arms, settings=WITH_CEILING) == ["here", "lc"]


# ---- why there is no choice ----


def test_where_there_is_a_choice_nothing_is_alone():
    assert masked(weights(100, 100, 100)).why_alone() is None


@pytest.mark.parametrize("here", [weights(150, 100, 100), weights(100, 100, 100)])
def test_what_is_alone_says_which_reasons_leave_only_it(here):
    assert masked(here, changes_left=0).why_alone() == "all else is masked: rate"


def test_what_would_harm_leaves_no_choice_near_or_far():
    arms = (
        Arm("here", weights(10_000, 100, 100)),
        Arm("less", weights(3162, 100, 100)),
        Arm("far", weights(100, 100, 100)),
    )
    result = masked(weights(10_000, 100, 100), {LC: SLOW, D: FINE, B: ClassState(pods=1)}, arms)
    assert result.why_alone() == "all else is masked: no_harm"


def test_a_way_out_that_is_far_is_open_where_everything_near_would_harm():
    """A batch pod that somebody else set to 555 and that is left alone: the arms with batch at 100 are beyond a step,
    the ones within it take from the class that misses its objective.
    """
    arms = (Arm("near", weights(100, 100, 555)), Arm("far", weights(10_000, 100, 100)))
    result = masked(weights(316, 100, 555), {LC: SLOW, D: FINE, B: ClassState(pods=1)}, arms)
    assert [arm.name for arm in result.allowed] == ["hold", "far"]
    assert result.reasons == {"near": "no_harm"}


def test_a_lonely_class_is_told_so():
    classes = {LC: SLOW, D: ClassState(), B: ClassState()}
    assert masked(weights(1000, 316, 100), classes).why_alone() == "all else is masked: same"


def test_masks_that_keep_their_answers_give_those_of_a_mask_made_anew():
    """Each thing that a mask depends on moves alone, and back."""
    kept = Masks(ARMS, DEFAULT_CLASSES, LIMITS)
    slow = {LC: SLOW, D: FINE, B: ClassState(pods=3)}
    gone = {LC: FINE, D: FINE, B: ClassState(pods=0)}
    here = weights(1000, 316, 100)
    asked = [
        (here, CALM, {}),
        (here, slow, {}),
        (here, slow, {"lost": {LC}}),
        (here, gone, {}),
        (here, CALM, {"mode": "frozen"}),
        (here, CALM, {"changes_left": 0}),
        (here, CALM, {"changes_left": 1}),
        (weights(316, 316, 100), CALM, {}),
        (None, CALM, {}),
    ]
    for current, classes, more in (*asked, *asked):
        assert kept.at(current, classes, **more) == masked(current, classes, **more)
    answers = [kept.at(current, classes, **more) for current, classes, more in asked]
    assert len({(tuple(arm.name for arm in one.allowed), tuple(one.reasons.items())) for one in answers}) == 7
