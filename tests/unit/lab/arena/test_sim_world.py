"""The simulated node as the loop sees it: states like a collector's, weights in force, what a cycle came to."""

import pytest

from lab.arena.scenario import Scenario, ServicePod, SpinnerPod, constant
from lab.arena.scenarios import named, names
from lab.arena.sim_world import TOP_BUCKET_SECONDS, SimWorld, shared_settings
from schemas.codec import decode, encode
from schemas.features import feature_names
from schemas.settings import DEFAULT_CLASSES

CRITICAL, DEFAULT, BATCH = "latency-critical", "default", "batch"
FAVOUR = {CRITICAL: 10_000, DEFAULT: 10_000, BATCH: 100}
STARVE = {CRITICAL: 100, DEFAULT: 100, BATCH: 10_000}


def service(name, cls, rate=100.0, millicpu=250, work_seconds=0.005):
    return ServicePod(name=name, cls=cls, request_millicpu=millicpu, rate=constant(rate), work_seconds=work_seconds)


def node(*pods, **fields):
    return Scenario(name="made", text="made up", pods=pods, **fields)


BURN = SpinnerPod(name="burn", cls=BATCH, request_millicpu=4000, processes=constant(4.0))
USUAL = node(service("api", CRITICAL), service("web", DEFAULT, 40.0, 500), BURN)


def cycle(world, weights=None):
    """A whole cycle; its two looks and what it came to."""
    before = world.before()
    if weights is not None:
        world.apply(weights)
    return before, world.after(), world.finish()


@pytest.mark.parametrize("name", names())
def test_states_are_valid_messages_with_all_features(name):
    world = SimWorld(named(name), 1)
    for number in range(1, 4):
        before, then, _ = cycle(world, FAVOUR if number == 2 else None)
        for phase, state in (("before", before), ("after", then)):
            assert decode(encode(state)) == state
            assert (state.phase, state.cycle) == (phase, number)
            assert tuple(state.features) == feature_names(tuple(DEFAULT_CLASSES))
            assert all(-1.0 <= value <= 1.0 for value in state.features.values())


def test_of_the_first_look_nothing_is_known_but_the_pods_and_their_weights():
    first = SimWorld(USUAL, 1).before()
    seen = first.classes[CRITICAL]
    assert (seen.latency.reason, seen.cpu_cores, seen.waited_ratio) == ("first_look", None, None)
    assert (first.window_seconds, first.contention.contended) == (None, False)
    assert {pod.name: pod.weight for pod in first.pods} == {"api": 10, "web": 20, "burn": 157}


def test_the_second_look_is_of_the_settle_time_and_the_first_of_the_rest_of_the_cycle():
    world = SimWorld(USUAL, 1, cycle_seconds=10.0)
    cycle(world)
    before, then, _ = cycle(world)
    assert (before.window_seconds, then.window_seconds) == (6.0, 4.0)
    assert then.classes[CRITICAL].latency.window_seconds == 4.0


def test_a_first_look_grows_over_several_windows_for_the_sake_of_requests_and_a_second_one_does_not():
    world = SimWorld(node(service("api", CRITICAL, rate=3.0), BURN), 1)
    for _ in range(5):
        cycle(world, FAVOUR)
    before, then, _ = cycle(world)
    assert before.classes[CRITICAL].latency.requests >= 20
    assert before.classes[CRITICAL].latency.window_seconds > 3.0
    assert (then.classes[CRITICAL].latency.window_seconds, then.classes[CRITICAL].latency.reason) == (
        2.0,
        "few_requests",
    )


def test_class_weights_are_split_among_pods_as_their_first_ones_and_told_as_writes():
    world = SimWorld(node(service("a", CRITICAL, millicpu=300), service("b", CRITICAL, millicpu=100), BURN), 1)
    first = {pod.name: pod.weight for pod in world.before().pods}
    writes = world.apply({CRITICAL: 4000, BATCH: 100})
    assert {write.name: write.before for write in writes} == first
    pods = {pod.group: pod.weight for pod in world.after().pods}
    assert {write.group: write.after for write in writes} == pods
    assert pods["burstable/poda"] + pods["burstable/podb"] == pytest.approx(4000, abs=1)
    assert pods["burstable/poda"] / pods["burstable/podb"] == pytest.approx(first["a"] / first["b"], rel=0.01)
    assert world.class_weights() == {CRITICAL: 4000, BATCH: 100}


def test_weights_take_effect():
    starved, favoured = SimWorld(USUAL, 1), SimWorld(USUAL, 1)
    for _ in range(3):
        bad, good = cycle(starved, STARVE)[2], cycle(favoured, FAVOUR)[2]
    assert good.violation_lc < 0.1
    assert bad.violation_lc > 0.9
    assert bad.batch_share > good.batch_share


def test_a_class_without_pods_is_absent_and_has_no_part_in_the_weights():
    """Though a profile names it: what is in force is read over who is there, as on a node."""
    world = SimWorld(node(service("api", CRITICAL), service("web", DEFAULT)), 1)
    cycle(world, {CRITICAL: 1000, DEFAULT: 1000, BATCH: 100})
    before, _, outcome = cycle(world)
    assert world.class_weights() == {CRITICAL: 100, DEFAULT: 100}
    assert (before.classes[BATCH].pods, before.classes[BATCH].weight) == (0, None)
    assert [before.classes[name].share for name in (CRITICAL, DEFAULT, BATCH)] == [0.5, 0.5, None]
    assert before.features["batch.present"] == 0.0
    assert outcome.batch_share == 0.0


def test_a_service_class_without_requests_misses_nothing():
    world = SimWorld(node(service("api", CRITICAL, rate=0.0), BURN), 1)
    before, then, outcome = [cycle(world) for _ in range(2)][-1]
    assert (outcome.violation_lc, outcome.violation_default, outcome.ended[CRITICAL]) == (None, None, 0)
    assert outcome.score == pytest.approx(0.3 * outcome.batch_share)
    assert {state.classes[CRITICAL].latency.p99_seconds for state in (before, then)} == {None}


def test_unbounded_a_class_that_is_starved_of_all_answers_has_missed_them_all():
    """Requests of two seconds of CPU each, at a hundredth of the node: none ends for many cycles."""
    slow = service("api", CRITICAL, rate=4.0, work_seconds=2.0)
    world = SimWorld(node(slow, BURN, queue="unbounded"), 1)
    outcomes = [cycle(world, STARVE)[2] for _ in range(4)]
    silent = [outcome for outcome in outcomes[1:] if outcome.ended[CRITICAL] == 0]
    assert silent
    assert {(outcome.violation_lc, outcome.score) for outcome in silent} == {(1.0, -1.0)}


def test_bounded_what_is_turned_away_is_missed():
    world = SimWorld(node(service("api", CRITICAL, rate=900.0), BURN), 1)
    outcome = [cycle(world, STARVE)[2] for _ in range(3)][-1]
    assert outcome.ended[CRITICAL] > len(outcome.latencies[CRITICAL])
    assert outcome.violation_lc == pytest.approx(1.0, abs=0.01)


def test_a_quantile_beyond_the_last_bucket_is_known_to_be_at_least_that():
    world = SimWorld(node(service("api", CRITICAL, rate=300.0), BURN, queue="unbounded"), 1)
    for _ in range(12):
        before = cycle(world, STARVE)[0]
    shown = before.classes[CRITICAL].latency
    assert (shown.p99_seconds, shown.saturated[-1:]) == (TOP_BUCKET_SECONDS, ("p99",))
    assert shown.over_ratio == 1.0


def test_restoring_puts_the_first_weights_back_and_a_rollback_those_of_before():
    world = SimWorld(USUAL, 1)
    first = world.before().pods
    world.apply(FAVOUR)
    assert world.after().pods != first
    world.restore()
    world.finish()
    assert world.before().pods == first
    world.apply(FAVOUR)
    world.after()
    world.finish()
    favoured = world.before().pods
    world.apply(STARVE)
    world.after()
    world.roll_back(FAVOUR)
    world.finish()
    assert world.before().pods == favoured


def test_what_was_done_last_is_told_as_the_actuator_would():
    world = SimWorld(USUAL, 1)
    assert world.before().previous is None
    ways = (lambda: world.apply(FAVOUR, "arm"), lambda: None, lambda: world.roll_back(STARVE), world.restore)
    told = []
    for way in ways:
        way()
        world.after()
        world.finish()
        seen = world.before()
        told.append((seen.previous.outcome, seen.previous.cycle, seen.features["node.previous_applied"]))
    assert told == [("applied", 1, 1.0), ("held", 2, 0.0), ("rolled_back", 3, 0.0), ("restored", 4, 0.0)]


def test_objectives_are_the_scenario_s_and_those_it_does_not_name_are_the_defaults():
    shared = shared_settings(node(service("api", CRITICAL), objectives={CRITICAL: 0.03}), 4.0)
    assert shared.classes[CRITICAL].objective_p99_seconds == 0.03
    assert shared.classes[DEFAULT].objective_p99_seconds == DEFAULT_CLASSES[DEFAULT].objective_p99_seconds
    assert (shared.loop.tick_seconds, shared.loop.settle_seconds) == (4.0, 1.6)
