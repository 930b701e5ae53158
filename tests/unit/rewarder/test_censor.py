"""Every reason for which a cycle is not learned from, and their order."""

import msgspec
import pytest

from schemas.messages import Contention
from schemas.settings import DEFAULT_CLASSES
from services.rewarder.core.censor import Cycle, censor_reason
from tests.support.builders import (
    BATCH,
    CRITICAL,
    DEFAULT,
    action,
    actuation,
    after,
    batch_state,
    class_state,
    hold,
    latency,
    pod,
    state,
    verdict,
    waiting,
    write,
)


def reason(cycle, *, min_requests=20, require_contention=True):
    return censor_reason(cycle, DEFAULT_CLASSES, min_requests=min_requests, require_contention=require_contention)


def cycle(**parts):
    """A cycle that can be learned from, but for the given parts."""
    before = state()
    defaults = {
        "before": before,
        "action": action(),
        "verdict": verdict(),
        "actuation": actuation(),
        "after": after(before),
    }
    return Cycle(**{**defaults, **parts})


def seen(**classes):
    """The second look with these classes changed."""
    return after(state(), classes={**state().classes, **{name.replace("_", "-"): at for name, at in classes.items()}})


IDLE = Contention(contended=False)


def test_a_whole_cycle_is_learned_from():
    assert reason(cycle()) is None


def test_a_hold_that_was_chosen_is_learned_from():
    held = cycle(
        action=hold(),
        verdict=verdict(outcome="hold", rule="hold", execute=False, weights=None),
        actuation=actuation(outcome="held", weights=None, writes=()),
        after=msgspec.structs.replace(state(), phase="after"),
    )
    assert reason(held) is None


def test_an_arm_that_was_in_force_already_is_learned_from():
    in_force = cycle(
        verdict=verdict(outcome="hold", rule="unchanged", execute=False, weights=None),
        actuation=actuation(outcome="held", weights=None, writes=()),
        after=msgspec.structs.replace(state(), phase="after"),
    )
    assert reason(in_force) is None


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ({"verdict": None}, "no_verdict"),
        ({"verdict": verdict(outcome="late", rule="budget", execute=False, weights=None)}, "late"),
        ({"verdict": verdict(outcome="late", execute=False, weights=None), "action": None}, "late"),
        ({"action": None}, "no_action"),
        ({"verdict": verdict(outcome="refuse", rule="rate", execute=False, weights=None)}, "refused: rate"),
        ({"verdict": verdict(outcome="hold", rule="contention", execute=False, weights=None)}, "no_contention"),
        ({"verdict": verdict(rule="shadow", mode="shadow", execute=False)}, "shadow"),
        ({"verdict": verdict(outcome="clamp", rule="shadow", mode="shadow", execute=False)}, "shadow"),
        ({"actuation": None}, "no_actuation"),
        ({"actuation": actuation(outcome="skipped", rule="deadline")}, "not_applied: deadline"),
        ({"actuation": actuation(outcome="failed", reason="EROFS")}, "not_applied: EROFS"),
        ({"actuation": actuation(outcome="restored", reason="stop")}, "not_applied: stop"),
        ({"actuation": actuation(outcome="rolled_back")}, "not_applied: rolled_back"),
        ({"verdict": verdict(outcome="clamp", rule="max_step", propensity=None)}, "clamped"),
        ({"verdict": verdict(mode="canary", canary_ratio=0.2)}, "canary"),
        ({"verdict": verdict(mode="canary", canary_ratio=0.2, outcome="clamp", propensity=None)}, "canary"),
        ({"verdict": verdict(mode="canary", outcome="hold", rule="unchanged", execute=False)}, "canary"),
        ({"verdict": verdict(mode="canary", outcome="hold", rule="canary", execute=False)}, "canary"),
        ({"verdict": verdict(mode="canary", outcome="refuse", rule="rate", execute=False)}, "refused: rate"),
        ({"after": None}, "no_after_state"),
    ],
)
def test_what_did_not_happen_is_not_learned(parts, word):
    assert reason(cycle(**parts)) == word


def test_what_did_not_happen_comes_before_what_was_not_seen():
    assert reason(cycle(verdict=None, actuation=None, after=None)) == "no_verdict"
    assert reason(cycle(actuation=None, after=None)) == "no_actuation"


# ---- WT-04 ----


@pytest.mark.parametrize("weight", [39, 9000])
def test_wt_04_a_weight_that_somebody_put_back_is_overridden(weight):
    foreign = after(state(), pods=(pod("api", weight=weight), pod("job", BATCH, 100)))
    assert reason(cycle(after=foreign)) == "overridden"


def test_wt_04_a_weight_that_we_did_not_write_counts_too():
    foreign = after(state(), pods=(pod("api", weight=2000), pod("job", BATCH, 39)))
    assert reason(cycle(after=foreign)) == "overridden"


def test_wt_04_a_write_that_did_not_read_back_is_overridden_though_it_stays():
    writes = (write(), write("job", 100, 39, wanted=200, result="mismatch"))
    stays = after(state(), pods=(pod("api", weight=2000), pod("job", BATCH, 39)))
    assert reason(cycle(actuation=actuation(writes=writes), after=stays)) == "overridden"


def test_wt_04_in_a_cycle_that_held_too():
    held = cycle(
        action=hold(),
        verdict=verdict(outcome="hold", rule="hold", execute=False, weights=None),
        actuation=actuation(outcome="held", weights=None, writes=()),
        after=after(state(), pods=(pod("api", weight=39), pod("job", BATCH, 100))),
    )
    assert reason(held) == "overridden"


@pytest.mark.parametrize(
    "pods",
    [
        (pod("job", BATCH, 100),),  # api is gone
        (pod("api", weight=None), pod("job", BATCH, 100)),  # its weight cannot be read
        (pod("api", weight=2000), pod("job", BATCH, 100), pod("new", weight=100)),
    ],
)
def test_wt_04_pods_that_come_and_go_override_nothing(pods):
    assert reason(cycle(after=after(state(), pods=pods))) is None


def test_wt_04_pods_without_a_class_are_nobody_s_business():
    before = state(pods=(pod("api"), pod("stray", None, 500)))
    strayed = after(before, pods=(pod("api", weight=2000), pod("stray", None, 700)))
    assert reason(cycle(before=before, after=strayed)) is None


def test_wt_04_a_value_of_ours_that_had_been_replaced_is_overridden_though_the_write_stays():
    assert reason(cycle(actuation=actuation(overridden=("pod-api",)))) == "overridden"


# ---- whether the whole arm was in force ----


def left(**fields):
    """A write of `api` that changed nothing, beside one of `job` that was in force already."""
    return write("api", 1000, 1000, wanted=2000, **fields), write("job", 100, 100, result="unchanged")


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"result": "skipped", "reason": "foreign"}, "partial: foreign"),
        ({"result": "skipped", "reason": "idle"}, "partial: idle"),
        ({"result": "failed", "reason": "refused: EINVAL"}, "partial: refused: EINVAL"),
        ({"result": "failed"}, "partial: failed"),
        ({"result": "skipped", "reason": "gone"}, None),
        ({"result": "failed", "reason": "gone"}, "partial: gone"),
    ],
)
@pytest.mark.parametrize("outcome", ["held", "applied"])
def test_an_arm_that_was_only_partly_executed_is_not_learned(fields, word, outcome):
    stays = after(state(), pods=(pod("api"), pod("job", BATCH, 100)))
    assert reason(cycle(actuation=actuation(outcome=outcome, writes=left(**fields)), after=stays)) == word


def test_what_somebody_else_did_is_said_before_what_was_left_undone():
    writes = left(result="skipped", reason="foreign")
    stays = after(state(), pods=(pod("api"), pod("job", BATCH, 100)))
    assert reason(cycle(actuation=actuation(writes=writes, overridden=("pod-api",)), after=stays)) == "overridden"


@pytest.mark.parametrize("outcome", ["applied", "held", "skipped"])
def test_weights_that_no_pod_s_weight_can_reach_are_not_learned(outcome):
    assert reason(cycle(actuation=actuation(outcome=outcome, rule="unreachable"))) == "unreachable"


# ---- contention ----


def test_contention_in_either_look_is_enough():
    before = state(contention=IDLE)
    assert reason(cycle(before=before)) is None
    assert reason(cycle(after=after(state(), contention=IDLE))) is None


def test_without_contention_nothing_is_learned_unless_it_is_not_required():
    calm = cycle(before=state(contention=IDLE), after=after(state(), contention=IDLE))
    assert reason(calm) == "no_contention"
    assert reason(calm, require_contention=False) is None


# ---- evidence ----


def test_pm_01_a_class_without_latency_is_not_learned_from():
    nothing = seen(latency_critical=class_state(latency=latency(None, reason="idle")))
    assert reason(cycle(after=nothing)) == f"no_latency: {CRITICAL}: idle"


def test_pm_01_latency_without_a_reason_is_unknown():
    nothing = seen(latency_critical=class_state(latency=latency(None)))
    assert reason(cycle(after=nothing)) == f"no_latency: {CRITICAL}: unknown"


def test_the_fraction_of_requests_over_the_objective_alone_is_evidence():
    assert reason(cycle(after=seen(latency_critical=class_state(latency=latency(None, over_ratio=0.2))))) is None


@pytest.mark.parametrize(("requests", "word"), [(19, f"few_requests: {CRITICAL}: 19"), (20, None)])
def test_few_requests_are_no_evidence(requests, word):
    few = seen(latency_critical=class_state(latency=latency(0.05, requests=requests)))
    assert reason(cycle(after=few)) == word


def test_a_less_important_class_may_be_silent():
    assert reason(cycle(after=seen(default=class_state(latency=latency(None))))) is None


def test_without_the_important_class_the_next_one_must_be_seen():
    silent = class_state(latency=latency(None, reason="idle"))
    only = after(state(), classes={DEFAULT: silent, CRITICAL: class_state(pods=0), BATCH: batch_state()})
    assert reason(cycle(after=only)) == f"no_latency: {DEFAULT}: idle"


def test_of_equally_important_classes_all_must_be_seen():
    classes = {**DEFAULT_CLASSES, "other": DEFAULT_CLASSES[CRITICAL]}
    silent = after(state(), classes={CRITICAL: class_state(), "other": class_state(latency=latency(None))})
    word = censor_reason(cycle(after=silent), classes, min_requests=20, require_contention=True)
    assert word == "no_latency: other: unknown"


@pytest.mark.parametrize(
    "classes", [{}, {BATCH: batch_state()}, {CRITICAL: class_state(pods=0)}, {"gold": class_state()}]
)
def test_without_a_latency_class_there_is_nothing_to_judge_by(classes):
    assert reason(cycle(after=after(state(), classes=classes))) == "no_latency_class"


def test_pm_01_throughput_that_is_unknown_is_not_nothing():
    assert reason(cycle(after=seen(batch=batch_state(cpu_cores=None)))) == f"no_throughput: {BATCH}"
    assert reason(cycle(after=seen(batch=batch_state(cpu_cores=0.0)))) is None
    assert reason(cycle(after=seen(batch=batch_state(pods=0, cpu_cores=None)))) is None


# ---- evidence where pressure judges ----


def test_where_pressure_judges_no_request_is_needed():
    few = latency(None, requests=3, reason="no_metric")
    for then in (waiting(0.4), waiting(0.0), waiting(0.4, latency=few)):
        assert reason(cycle(before=seen(latency_critical=waiting(0.4)), after=seen(latency_critical=then))) is None


def test_two_looks_that_different_signals_judge_are_not_learned_from():
    """Latency before and a wait after, or the other way round: a broken objective would turn into a kept one."""
    assert reason(cycle(after=seen(latency_critical=waiting(0.2)))) == f"signal_changed: {CRITICAL}"
    before = seen(latency_critical=waiting(0.9))
    assert reason(cycle(before=before, after=seen())) == f"signal_changed: {CRITICAL}"


def test_pm_01_a_wait_that_is_unknown_is_not_learned_from():
    assert reason(cycle(after=seen(latency_critical=waiting(None)))) == f"no_pressure: {CRITICAL}"


def test_a_class_without_latency_and_without_a_ceiling_has_no_evidence_in_its_wait():
    alone = class_state(latency=latency(None, reason="no_source"), waited_ratio=0.4)
    assert reason(cycle(after=seen(latency_critical=alone))) == f"no_latency: {CRITICAL}: no_source"


def test_pm_05_a_lower_bound_below_the_objective_is_not_learned_from():
    bound = latency(0.05, saturated=("p99",), over_ratio=None, reason="beyond_buckets")
    assert reason(cycle(after=seen(latency_critical=class_state(latency=bound)))) == (
        f"no_latency: {CRITICAL}: beyond_buckets"
    )
    reached = latency(0.1, saturated=("p99",), over_ratio=None, reason="beyond_buckets")
    assert reason(cycle(after=seen(latency_critical=class_state(latency=reached)))) is None


def test_where_pressure_judges_contention_is_still_required():
    waited = {**state().classes, CRITICAL: waiting(0.4)}
    calm = cycle(before=state(contention=IDLE), after=after(state(), contention=IDLE, classes=waited))
    assert reason(calm) == "no_contention"


def test_a_less_important_class_that_pressure_judges_may_be_unknown():
    was = state(classes={**state().classes, DEFAULT: waiting(None)})
    assert reason(cycle(before=was, after=after(was))) is None


@pytest.mark.parametrize(
    ("before", "then", "word"),
    [
        (waiting(0.4), waiting(0.4), None),
        (waiting(0.4), waiting(None), f"lost_evidence: {DEFAULT}"),
        (waiting(0.4), class_state(latency=latency(None, reason="first_scrape")), f"lost_evidence: {DEFAULT}"),
        (waiting(0.4), class_state(latency=latency()), f"signal_changed: {DEFAULT}"),
        (waiting(0.4), waiting(None, pods=0), None),
        (class_state(), waiting(0.4), f"signal_changed: {DEFAULT}"),  # its page lost the metric
        (class_state(), waiting(None), f"lost_evidence: {DEFAULT}"),
    ],
)
def test_a_less_important_class_whose_wait_was_known_must_not_become_unknown(before, then, word):
    was = state(classes={**state().classes, DEFAULT: before})
    now = after(was, classes={**was.classes, DEFAULT: then})
    assert reason(cycle(before=was, after=now)) == word


# ---- a less important class that fell silent ----


def looks(before, then, *, pods=1):
    """A cycle in which the less important class showed these latencies before and after."""
    was = state(classes={**state().classes, DEFAULT: class_state(latency=before)})
    now = after(was, classes={**was.classes, DEFAULT: class_state(pods=pods, latency=then)})
    return reason(cycle(before=was, after=now))


def rate(per_second, seconds=2.0):
    """Too few requests for a quantile."""
    return latency(None, requests=round((per_second or 0.0) * seconds), requests_per_second=per_second,
                   window_seconds=seconds, reason="few_requests")  # fmt: skip


LOST = f"lost_evidence: {DEFAULT}"


@pytest.mark.parametrize(
    ("before", "then", "word"),
    [
        (latency(), rate(0.0), LOST),
        (latency(), rate(49.0), LOST),
        (latency(), rate(50.0), None),
        (latency(), rate(None), LOST),
        (latency(), latency(0.05, requests_per_second=1.0), None),  # seen, however little: its latency judges it
        (latency(), latency(None, over_ratio=0.5, requests_per_second=1.0), None),
        (rate(5.0), rate(2.0), LOST),
        (rate(5.0), rate(3.0), None),
        (rate(2.0), rate(0.0), None),  # four were to be expected: none can be chance
        (rate(0.0), rate(None), None),
        (rate(None), rate(None), None),
    ],
)
def test_a_class_that_served_and_falls_silent_is_not_paid_for(before, then, word):
    assert looks(before, then) == word


def test_a_class_that_left_the_node_did_not_fall_silent():
    assert looks(latency(), latency(None, requests_per_second=None, reason="no_pods"), pods=0) is None


def test_the_most_important_class_is_named_by_why_its_latency_is_not_known():
    silent = seen(latency_critical=class_state(latency=rate(0.0)))
    assert reason(cycle(after=silent)) == f"no_latency: {CRITICAL}: few_requests"


@pytest.mark.parametrize(
    ("before", "then", "is_lost"),
    [(0, 0, False), (0, 1, True), (1, 1, False), (1, 2, True), (2, 1, False), (3, 0, False)],
)
def test_a_class_of_which_more_pods_are_silent_after_than_before_has_lost_evidence(before, then, is_lost):
    """The slowest of a class are often those that do not answer, so the others' numbers are no better for it."""
    word = looks(latency(silent_pods=before), latency(silent_pods=then))
    assert word == (LOST if is_lost else None)
    was = state(classes={**state().classes, CRITICAL: class_state(latency=latency(silent_pods=before))})
    now = after(was, classes={**was.classes, CRITICAL: class_state(latency=latency(silent_pods=then))})
    assert reason(cycle(before=was, after=now)) == (f"lost_evidence: {CRITICAL}" if is_lost else None)


# ---- an objective that pods bring with them ----


@pytest.mark.parametrize(("then", "now"), [(0.1, 0.05), (0.05, 0.1), (0.1, None)])
@pytest.mark.parametrize("name", [CRITICAL, DEFAULT])
def test_two_looks_with_different_objectives_are_not_learned_from(then, now, name):
    was = state(classes={**state().classes, name: class_state(objective_seconds=then)})
    found = after(was, classes={**was.classes, name: class_state(objective_seconds=now)})
    assert reason(cycle(before=was, after=found)) == f"objective_changed: {name}"


def test_an_objective_that_is_the_same_in_both_looks_is_whatever_it_is():
    was = state(classes={**state().classes, CRITICAL: class_state(objective_seconds=0.025)})
    assert reason(cycle(before=was, after=after(was))) is None


def test_where_pressure_judges_a_changed_objective_does_not_matter():
    was = state(classes={**state().classes, CRITICAL: waiting(0.2, objective_seconds=0.1)})
    now = after(was, classes={**was.classes, CRITICAL: waiting(0.2, objective_seconds=0.05)})
    assert reason(cycle(before=was, after=now)) is None


@pytest.mark.parametrize(("skip", "word"), [("exclusive_cpus", None), (None, "overridden")])
def test_a_pod_that_is_not_steered_may_be_written_by_anybody(skip, word):
    pods = (*state().pods, pod("pinned", CRITICAL, 100, skip=skip))
    was = state(pods=pods)
    now = after(was)
    resized = msgspec.structs.replace(now, pods=(*now.pods, pod("pinned", CRITICAL, 200, skip=skip)))
    assert reason(cycle(before=was, after=resized)) == word
