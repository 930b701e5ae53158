"""What holds for the reward of any cycle, and for any order of a cycle's messages."""

import asyncio
import math
from collections import Counter

import msgspec
from hypothesis import event, given, settings
from hypothesis import strategies as st

from schemas.messages import Contention, Latency, Reward
from schemas.objective import has_evidence, is_violated
from schemas.order import CycleOrder
from schemas.settings import ClassSettings
from services.rewarder.core.censor import Cycle, censor_reason
from services.rewarder.core.reward import RewardWeights, reward, severity
from tests.support.builders import (
    BATCH,
    CRITICAL,
    DEFAULT,
    action,
    actuation,
    after,
    batch_state,
    class_state,
    latency,
    state,
    verdict,
    waiting,
)
from tests.support.services import rewarder

untimed = settings(deadline=None)
WEIGHTS = RewardWeights(violation=0.3, severity=0.7, throughput=1.0, oscillation=0.05)
NAMES = (CRITICAL, DEFAULT, BATCH)
SPECS = {
    CRITICAL: ClassSettings(objective_p99_seconds=0.1, objective_pressure_ratio=0.1),
    DEFAULT: ClassSettings(objective_p99_seconds=0.5, objective_pressure_ratio=0.3, importance=0.5),
    BATCH: ClassSettings(kind="throughput"),
}

ratios, p99s = st.floats(0.0, 1.0), st.floats(0.001, 100.0)
a_latency = st.builds(
    lambda p99, over, requests: latency(p99, over_ratio=over, requests=requests),
    st.none() | p99s,
    st.none() | ratios,
    st.integers(0, 100),
)
pods_seen, cores_seen = st.integers(0, 3), st.none() | st.floats(0.0, 16.0)
a_class = st.builds(
    lambda seen, pods, cores: class_state(latency=seen, pods=pods, cpu_cores=cores), a_latency, pods_seen, cores_seen
) | st.builds(
    lambda waited, pods, cores: waiting(waited, pods=pods, cpu_cores=cores),
    st.none() | st.sampled_from([0.0, 0.1, 1.0]) | ratios,
    pods_seen,
    cores_seen,
)
classes_seen = st.dictionaries(st.sampled_from(NAMES), a_class)
importances = st.sampled_from([0.01, 1.0])
ceilings = st.sampled_from([0.1, 0.3])
specs = st.fixed_dictionaries(
    {
        CRITICAL: st.builds(
            ClassSettings, objective_p99_seconds=st.just(0.1), objective_pressure_ratio=ceilings, importance=importances
        ),
        DEFAULT: st.builds(
            ClassSettings, objective_p99_seconds=st.just(0.5), objective_pressure_ratio=ceilings, importance=importances
        ),
        BATCH: st.just(ClassSettings(kind="throughput")),
    }
)
allowed_weights = st.builds(
    lambda violation, part, throughput, oscillation: RewardWeights(
        violation=violation, severity=part * (1.0 - violation), throughput=throughput, oscillation=oscillation
    ),
    st.floats(0.05, 1.0),
    ratios,
    ratios,
    st.floats(0.0, 0.25),
)
class_weights = st.sampled_from([100, 10_000]) | st.integers(100, 10_000)
far = st.just({CRITICAL: 10_000, BATCH: 10_000})
moves = st.none() | far | st.dictionaries(st.sampled_from(NAMES), class_weights)
cpus = st.integers(1, 16)
setups = st.tuples(cpus, specs, allowed_weights)


def look(classes, count):
    return state(classes=classes, contention=Contention(contended=True, cpus=count))


def is_broken(classes, of):
    return any(
        name in classes and classes[name].pods > 0 and is_violated(classes[name], spec)
        for name, spec in of.items()
        if spec.kind == "latency"
    )


@given(classes_seen, classes_seen, moves, setups)
@untimed
def test_the_value_and_every_term_are_finite_and_within_one(before, then, moved_to, setup):
    count, of, weights = setup
    worth = reward(look(before, count), look(then, count), moved_to, of, weights)
    for number in (worth.value, *worth.terms.values()):
        assert math.isfinite(number)
        assert -1.0 <= number <= 1.0
    assert {"violation", "severity", "throughput", "oscillation"} <= set(worth.terms)


anything = st.floats(allow_nan=False, allow_infinity=False)
whole = st.integers(-(2**63), 2**63 - 1)
odd_class = st.builds(
    lambda p99, over, waited, judge, cores, weight: class_state(
        latency=msgspec.structs.replace(latency(p99), over_ratio=over),
        waited_ratio=waited,
        judged_by=judge,
        cpu_cores=cores,
        weight=weight,
    ),
    anything,
    anything,
    anything,
    st.sampled_from(["latency", "pressure", None]),
    anything,
    whole,
)


@given(
    st.dictionaries(st.sampled_from(NAMES), odd_class),
    st.dictionaries(st.sampled_from(NAMES), odd_class),
    st.dictionaries(st.sampled_from(NAMES), whole),
    whole,
)
@untimed
def test_i7_whatever_a_message_can_hold_gives_a_reward_that_can_be_sent(before, then, moved_to, count):
    worth = reward(look(before, count), look(then, count), moved_to, SPECS, WEIGHTS)
    assert all(math.isfinite(number) and -1.0 <= number <= 1.0 for number in (worth.value, *worth.terms.values()))


broken_latency = st.one_of(
    st.builds(
        lambda over, p99: latency(p99, over_ratio=over), st.just(0.0101) | st.floats(0.0101, 1.0), st.none() | p99s
    ),
    st.builds(lambda p99: latency(p99, over_ratio=None), st.just(0.5001) | st.floats(0.5001, 100.0)),
)
kept_latency = st.one_of(
    st.builds(lambda over, p99: latency(p99, over_ratio=over), st.floats(0.0, 0.01), st.none() | p99s),
    st.builds(lambda p99: latency(p99, over_ratio=None), st.none() | st.floats(0.0, 0.1)),
)
LATENCY_CLASSES = st.sampled_from((CRITICAL, DEFAULT))
kept_class = st.builds(lambda seen: class_state(latency=seen), kept_latency) | st.builds(
    waiting, st.none() | st.just(0.1) | st.floats(0.0, 0.1)
)
broken_class = st.builds(lambda seen: class_state(latency=seen), broken_latency) | st.builds(
    waiting, st.just(0.3001) | st.floats(0.3001, 1.0)
)
kept_cycles = st.builds(
    lambda classes, cores: {**classes, BATCH: batch_state(cpu_cores=cores)},
    st.dictionaries(LATENCY_CLASSES, kept_class),
    st.none() | st.just(0.0) | st.floats(0.0, 16.0),
)
broken_cycles = st.builds(
    lambda classes, name, seen: {**classes, name: seen}, classes_seen | kept_cycles, LATENCY_CLASSES, broken_class
)


@given(st.tuples(broken_cycles, moves), st.tuples(kept_cycles, moves), setups)
@settings(deadline=None, max_examples=300)
def test_objectives_first_any_broken_cycle_is_worth_less_than_any_unbroken_one(broken, kept, setup):
    count, of, weights = setup
    values = [
        reward(state(), look(classes, count), moved_to, of, weights).value for classes, moved_to in (broken, kept)
    ]
    assert values[0] < values[1]


@given(classes_seen, st.floats(0.0, 16.0), st.floats(0.0, 16.0), moves, cpus)
@untimed
def test_throughput_decides_among_unbroken_cycles_and_only_there(classes, less, more, moved_to, count):
    less, more = sorted((less, more))
    values = [
        reward(state(), look({**classes, BATCH: batch_state(cpu_cores=cores)}, count), moved_to, SPECS, WEIGHTS)
        for cores in (less, more)
    ]
    if is_broken(classes, SPECS):
        assert values[0].value == values[1].value
    elif min(1.0, more / count) > min(1.0, less / count) + 1e-9:
        assert values[0].value < values[1].value


@given(st.tuples(ratios, ratios), st.tuples(p99s, p99s), st.sampled_from(["both", "ratio", "p99"]))
@untimed
def test_severity_never_falls_when_a_number_gets_worse(overs, seconds, known):
    def severe(over, p99):
        seen = latency(None if known == "ratio" else p99, over_ratio=None if known == "p99" else over)
        return severity(class_state(latency=seen), SPECS[CRITICAL])

    best, worst = sorted(overs), sorted(seconds)
    assert 0.0 <= severe(best[0], worst[0]) <= severe(best[1], worst[0]) <= severe(best[1], worst[1]) <= 1.0


@given(st.floats(0.0101, 1.0), st.floats(0.0101, 1.0), p99s, p99s, classes_seen)
@untimed
def test_a_worse_violation_is_never_worth_more(one, other, p99, later, classes):
    over, seconds = sorted((one, other)), sorted((p99, later))
    values = [
        reward(
            state(),
            look({**classes, CRITICAL: class_state(latency=latency(at, over_ratio=part))}, 2),
            None,
            SPECS,
            WEIGHTS,
        ).value
        for part, at in zip(over, seconds, strict=True)
    ]
    assert values[1] <= values[0] < 0.0


@given(ratios, ratios, ratios, classes_seen)
@untimed
def test_a_longer_wait_is_never_less_severe_and_never_worth_more(one, other, ceiling, classes):
    spec = ClassSettings(objective_pressure_ratio=ceiling)
    waits = [waiting(waited, ceiling) for waited in sorted((one, other))]
    less, more = (severity(seen, spec) for seen in waits)
    assert 0.0 <= less <= more <= 1.0
    of = {**SPECS, CRITICAL: spec}
    values = [reward(state(), look({**classes, CRITICAL: seen}, 2), None, of, WEIGHTS).value for seen in waits]
    assert values[1] <= values[0]


@given(classes_seen, moves, moves)
@untimed
def test_of_two_cycles_that_look_alike_the_one_that_moved_less_is_worth_more(classes, one, other):
    worths = [reward(state(), look(classes, 2), moved_to, SPECS, WEIGHTS) for moved_to in (one, other)]
    less, more = sorted(worths, key=lambda worth: -worth.terms["oscillation"])
    assert less.value >= more.value
    assert less.value - more.value <= 0.05 + 1e-9


@given(classes_seen, classes_seen)
@settings(deadline=None, max_examples=300)
def test_pm_01_what_is_learned_had_all_its_evidence(before, then):
    looked = state(classes=before)
    cycle = Cycle(looked, action(), verdict(), actuation(writes=()), after(looked, classes=then, pods=()))
    reason = censor_reason(cycle, SPECS, min_requests=20, require_contention=True)
    event(str(reason).split(":", 1)[0])
    if reason is not None:
        return
    present = {name: seen for name, seen in then.items() if seen.pods > 0}
    top = present.get(CRITICAL) or present[DEFAULT]
    assert top.judged_by == "pressure" or top.latency.requests >= 20
    assert has_evidence(top)
    for name in (CRITICAL, DEFAULT):
        was, now = before.get(name, class_state(latency=Latency())), present.get(name)
        if now is None or has_evidence(now):
            continue
        rate = was.latency.requests_per_second or 0.0
        assert was.judged_by == "latency" or was.waited_ratio is None
        if was.judged_by == "latency" and rate * 5.0 >= 5.0:
            assert now.latency.requests_per_second >= rate / 2
    assert BATCH not in present or present[BATCH].cpu_cores is not None


# ---- the service, under any order of messages ----

numbers = st.integers(1, 4)
scripted = st.one_of(
    st.tuples(st.just("state"), numbers),
    st.tuples(st.sampled_from(["action", "verdict", "applied", "restored", "rolled_back", "after"]), numbers),
    st.tuples(st.just("advance"), st.sampled_from([0.1, 1.0, 2.0, 5.0])),
)
WHOLE = ("state", "action", "verdict", "applied", "settle", "after")


@st.composite
def scripts(draw):
    """Whole cycles with anything thrown in."""
    script = [
        ("advance", 2.0) if kind == "settle" else (kind, number)
        for number in range(1, draw(numbers) + 1)
        for kind in WHOLE
        if draw(st.integers(0, 9)) > 0
    ]
    for where, step in draw(st.lists(st.tuples(st.integers(0, 30), scripted), max_size=6)):
        script.insert(where, step)
    return script


def message_of(kind, number):
    if kind == "state":
        return state(cycle=number)
    if kind == "after":
        return after(state(cycle=number))
    if kind == "action":
        return action(cycle=number)
    return verdict(cycle=number) if kind == "verdict" else actuation(cycle=number, outcome=kind)


async def play(script):
    async with rewarder() as made:
        for kind, value in script:
            if kind == "advance":
                await made.advance(value)
            else:
                await made.inject(message_of(kind, value))
        await made.stop()
        return made.sent(Reward)


@given(scripts())
@settings(deadline=None, max_examples=150)
def test_every_cycle_ends_with_exactly_one_reward_in_any_order_of_messages(script):
    rewards = asyncio.run(play(script))
    order = CycleOrder()
    begun = [number for kind, number in script if kind == "state" and order.accept("boot1", number)]
    assert Counter(made.cycle for made in rewards) == Counter(begun)
    for made in rewards:
        event(made.reason or "joined")
        assert (made.outcome == "joined") is (made.reason is None) is (made.value is not None)
        if made.outcome == "joined":
            assert (made.verdict, made.actuation, made.arm) == ("allow", "applied", "favour")
