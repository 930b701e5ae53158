"""What the guard never lets through, for any proposal in any situation and for any order of messages."""

import asyncio
from collections import Counter
from fractions import Fraction
from itertools import combinations

import msgspec
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from schemas.canary import is_canary
from schemas.messages import Command, Contention, State, Verdict
from schemas.profile import on_profile_scale
from schemas.runs import Runs
from schemas.settings import DEFAULT_CLASSES, WeightSettings
from services.guard.core.change_budget import ChangeBudget
from services.guard.core.excuses import Excuses
from services.guard.core.regression import compare, find_regression
from services.guard.core.rules import RULES, WATCHABLE, Bounds, Situation, judge
from services.guard.core.state_age import StateAges
from tests.support.builders import (
    BATCH,
    CRITICAL,
    DEFAULT,
    action,
    actuation,
    after,
    class_state,
    command,
    latency,
    pod,
    state,
    waiting,
    with_p99,
)
from tests.support.services import guard_in

untimed = settings(deadline=None)

KNOWN = (CRITICAL, DEFAULT, BATCH)
odd = st.sampled_from([-(10**400), -(2**63), -1, 0, 1, 99, 10_001, 50_000, 2**63 - 1, 10**400])
usual_weight = st.integers(100, 10_000)
usual_weights = st.dictionaries(st.sampled_from(KNOWN), usual_weight, min_size=1)
odd_weights = st.dictionaries(st.sampled_from((*KNOWN, "gold", "")), st.one_of(usual_weight, odd))
any_limits = st.builds(
    lambda low, width, ratio: WeightSettings(
        min_weight=low, max_weight=min(10_000, low + width), max_step_ratio=ratio, max_changes_per_minute=8.0
    ),
    st.sampled_from([1, 2, 100, 5000]),
    st.integers(1, 9_999),
    st.floats(1.0, 100.0, exclude_min=True),
)
ages = st.floats(0.0, 1e9)
spoils = st.one_of(
    *(
        st.tuples(st.just(field), values)
        for field, values in {
            "weights_in_force": odd_weights,
            "weightless": st.sampled_from(KNOWN),
            "mode": st.sampled_from(["shadow", "canary", "frozen"]),
            "limits": any_limits,
            "state_age_seconds": ages,
            "answer_seconds": ages,
            "changes_left": st.just(0),
            "contended": st.just(False),
            "writable": st.just(False),
            "require_contention": st.just(False),
            "breaker_open": st.just("open"),
            "since_moved_seconds": ages,
        }.items()
    )
)


def situation(in_force, spoilt):
    """A situation in which nobody objects to a usual proposal, but for what is spoilt."""
    fields = {
        "mode": "active",
        "limits": WeightSettings(),
        "state_age_seconds": 0.01,
        "answer_seconds": 0.05,
        "changes_left": 8,
        "require_contention": True,
        "since_moved_seconds": 5.0,
        **dict(spoilt),
    }
    in_force = {**in_force, **fields.pop("weights_in_force", {})}
    if (weightless := fields.pop("weightless", None)) is not None:
        in_force[weightless] = None
    seen = state(
        classes={name: class_state(weight=weight) for name, weight in in_force.items()},
        contention=Contention(contended=fields.pop("contended", True)),
        writable=fields.pop("writable", True),
    )
    return Situation(state=seen, classes=frozenset(KNOWN), max_state_age_seconds=10.0, budget_seconds=0.1, **fields)


any_situation = st.builds(situation, usual_weights, st.lists(spoils, max_size=2))
any_action = st.builds(
    lambda weights: action(weights=weights), st.one_of(usual_weights, usual_weights, odd_weights, st.none())
)


@given(any_action, any_situation)
@settings(deadline=None, max_examples=600)
def test_nothing_is_executed_that_any_invariant_forbids(proposal, where):
    judged = judge(proposal, where)
    event(f"{judged.outcome}, {judged.rule}")
    if not judged.execute:
        assert judged.weights is None or where.mode == "shadow"
        return
    assert where.mode in ("active", "canary")
    assert where.breaker_open is None
    assert where.state.writable
    assert where.answer_seconds <= where.budget_seconds
    assert where.state_age_seconds <= where.max_state_age_seconds
    assert where.state_age_seconds <= where.since_moved_seconds
    assert where.changes_left > 0
    assert where.state.contention.contended or not where.require_contention
    assert_moves(proposal.weights, judged.weights, where.current, where.limits)


def assert_moves(proposed, executed, current, limits):
    """Within bounds and step, from what is in force toward what was proposed, and at least one class moves."""
    assert executed
    present = {name: weight for name, weight in proposed.items() if name in current}
    proposed = proposed if present == proposed else on_profile_scale(present, limits)
    for name, weight in executed.items():
        assert name in KNOWN
        assert isinstance(weight, int)
        assert limits.min_weight <= weight <= limits.max_weight
        assert max(weight / current[name], current[name] / weight) <= limits.max_step_ratio * (1 + 1e-8)
        assert min(current[name], proposed[name]) <= weight <= max(current[name], proposed[name])
    assert any(weight != current[name] for name, weight in executed.items())


three = st.fixed_dictionaries(dict.fromkeys(KNOWN, usual_weight))


@given(three, three, st.one_of(st.just(4.0), st.floats(1.01, 20.0)))
@untimed
@example(dict.fromkeys(KNOWN, 100), {CRITICAL: 10_000, DEFAULT: 9_999, BATCH: 100}, 4.0)
def test_a_clamp_keeps_the_order_of_classes(current, proposed, ratio):
    where = Situation(
        state=state(classes={name: class_state(weight=weight) for name, weight in current.items()}),
        mode="active",
        limits=WeightSettings(max_step_ratio=ratio),
        classes=frozenset(KNOWN),
        state_age_seconds=0.0,
        max_state_age_seconds=10.0,
        answer_seconds=0.0,
        budget_seconds=0.1,
        changes_left=1,
        require_contention=True,
    )
    judged = judge(action(weights=proposed), where)
    if judged.outcome == "hold":  # so small a step that rounding leaves nothing of it, or none was proposed
        return
    assert_moves(proposed, judged.weights, current, where.limits)
    for one, other in combinations(KNOWN, 2):
        low, high = sorted((one, other), key=lambda name: (current[name], proposed[name]))
        if proposed[low] <= proposed[high]:
            assert judged.weights[low] <= judged.weights[high]


@given(st.floats(0.01, 30.0), st.lists(st.floats(0.0, 100.0), max_size=60))
@untimed
def test_i2_no_window_holds_more_changes_than_the_rate(per_minute, gaps):
    budget, now, changes = ChangeBudget(per_minute), 0.0, []
    for gap in gaps:
        now += gap
        if budget.left(now) > 0:
            budget.spend(now)
            changes.append(now)
    window = 60.0 * max(1.0, 1.0 / per_minute)
    for first in changes:
        assert sum(first <= at < first + window for at in changes) <= max(1, int(per_minute))
    assert bool(changes) is bool(gaps)


@given(
    st.lists(st.floats(0.0, 60.0), min_size=1, max_size=20),
    st.floats(0.0, 120.0),
    st.sampled_from([-3600.0, -200.0, 0.0, 200.0, 3600.0]),
)
@untimed
def test_i3_no_clock_step_makes_a_state_look_fresher_than_it_is(delays, stepped_at, step):
    """States every 5 s, each delivered after a delay and never before the one before it; one step of the wall clock."""

    def wall_ns(now):
        return round((1e6 + now + (step if now >= stepped_at else 0.0)) * 1e9)

    of, arrival = StateAges(0.0, skew_seconds=5.0), 0.0
    for number, delay in enumerate(delays, start=1):
        made = 5.0 * number
        arrival = max(arrival, made + delay)
        age = of.age_seconds(wall_ns(made), wall_ns(arrival), arrival)
        assert age >= arrival - made - 1e-5
        if made >= stepped_at or arrival < stepped_at:  # the step does not lie between the two
            assert abs(age - (arrival - made)) < 1e-5


seconds = st.none() | st.floats(allow_nan=True, allow_infinity=True)


@given(seconds, seconds, st.floats(0.01, 10.0))
@untimed
def test_pm_02_only_two_finite_numbers_can_keep_a_change(before, then, limit):
    if compare(before, then, limit) == "keep":
        assert 0.0 < before < float("inf")
        assert 0.0 <= then <= before * (1.0 + limit)


any_latency = st.builds(
    latency,
    st.none() | st.sampled_from([0.05, 0.1, 0.12, 0.2, 1.0]) | st.floats(0.0, 1e308),
    requests=st.sampled_from([20, 100]) | st.integers(0, 100),
    saturated=st.sampled_from([(), (), ("p99",), ("p95", "p99")]),
)
any_seen = st.builds(
    lambda seen, judge, waited, ceiling, source: waiting(
        waited, ceiling, waited_source=source, latency=seen, judged_by=judge
    ),
    any_latency,
    st.sampled_from(["latency", "pressure"]),
    st.none() | st.sampled_from([0.0, 0.05, 0.2, 0.3, 0.5, 1.0]) | st.floats(0.0, 1.0),
    st.sampled_from([0.0, 0.1, 0.3, 1.0]),
    st.sampled_from(["pressure", "pressure", "run_delay"]),
)
any_classes = st.fixed_dictionaries({CRITICAL: any_seen}, optional={DEFAULT: any_seen, BATCH: any_seen})


@given(any_classes, any_classes)
@settings(deadline=None, max_examples=400)
def test_a_regression_is_named_exactly_when_there_is_one(before, then):
    evidence, regression = find_regression(
        state(classes=before), state(classes=then), limit_ratio=0.2, floor_ratio=0.0, wait_ratio=0.3, min_requests=20
    )
    assert (evidence == "regressed") is (regression is not None)
    if regression is not None:
        event(regression.signal)
        was, now = before[regression.name], then[regression.name]
        assert regression.signal == was.judged_by == now.judged_by
        if regression.signal == "latency":
            assert regression.after > regression.before * 1.2 > 0.0
            assert was.latency.requests >= 20 <= now.latency.requests
        else:
            assert regression.after > regression.before + 0.3
            assert regression.after > was.objective_pressure_ratio
            assert was.waited_source == now.waited_source


@given(any_classes, any_classes)
@settings(deadline=None, max_examples=400)
def test_a_change_is_kept_only_if_no_class_got_worse_and_all_were_seen_again_by_the_same_signal(before, then):
    evidence, _ = find_regression(
        state(classes=before), state(classes=then), limit_ratio=0.2, floor_ratio=0.0, wait_ratio=0.3, min_requests=20
    )
    event(evidence)
    if evidence != "keep":
        return
    for name, was in before.items():
        now = then.get(name)
        if was.judged_by == "pressure" and was.waited_ratio is not None:
            assert now is not None
            assert (now.judged_by, now.waited_source) == ("pressure", was.waited_source)
            assert now.waited_ratio <= max(was.waited_ratio + 0.3 + 1e-8, was.objective_pressure_ratio)
        elif was.judged_by == "latency" and was.latency.requests > 0:
            assert now is not None
            assert now.judged_by == "latency"
            assert now.latency.p99_seconds <= was.latency.p99_seconds * 1.2


# ---- excuses: what a decider that means harm could hide behind ----

over_ratios = st.none() | st.sampled_from([0.0, 0.01, 0.05, 0.11, 0.5, 0.91, 1.0]) | st.floats(0.0, 1.0)
excusable = st.builds(
    lambda over, p99, pods, weight, requests, judged_by: class_state(
        pods=pods,
        weight=weight,
        judged_by=judged_by,
        waited_ratio=0.2,
        objective_pressure_ratio=0.1,
        latency=latency(p99, requests=requests, over_ratio=over),
    ),
    over_ratios,
    st.floats(0.001, 10.0),
    st.integers(0, 3),
    st.none() | st.integers(0, 10_000),
    st.sampled_from([0, 50, 500]),
    st.sampled_from(["latency", "latency", "latency", "pressure", None]),
)
LATENCY_CLASSES = (CRITICAL, DEFAULT, "gold")
importances = st.sampled_from([0.1, 0.4, 0.5, 0.9, 1.0])
weights_of_four = st.tuples(*[st.integers(100, 10_000)] * 4)
usual_pods = st.just((1, 1, 1, 1)) | st.tuples(*[st.integers(1, 3)] * 4)


@st.composite
def takings(draw):
    """A class that keeps its objective, and a change of class weights alone that takes from its part and makes its P99
    exceed the objective of 0.1 s and its own by more than a fifth; whatever all others show, before and after.
    """
    settings_of = {
        name: msgspec.structs.replace(DEFAULT_CLASSES[DEFAULT], importance=draw(importances))
        for name in LATENCY_CLASSES
    }
    settings_of[BATCH] = DEFAULT_CLASSES[BATCH]
    pods = draw(usual_pods)
    less, more = sorted((draw(weights_of_four), draw(weights_of_four)), key=lambda four: four[0] / sum(four))
    assume(less[0] * sum(more) < more[0] * sum(less))
    before, then = (
        {
            name: msgspec.structs.replace(draw(excusable), pods=count, weight=weight)
            for name, count, weight in zip(settings_of, pods, weights, strict=True)
        }
        for weights in (more, less)
    )
    p99 = draw(st.floats(0.001, 1.0))
    risen = max(0.1, p99 * 1.2) * draw(st.floats(1.001, 100.0))
    kept = latency(p99, over_ratio=draw(st.floats(0.0, 0.01)))
    missed = latency(risen, over_ratio=draw(over_ratios))
    before[CRITICAL] = msgspec.structs.replace(before[CRITICAL], latency=kept, judged_by="latency")
    then[CRITICAL] = msgspec.structs.replace(then[CRITICAL], latency=missed, judged_by="latency")
    return settings_of, before, then


def judged(settings_of, before, then, **fields):
    return find_regression(
        state(classes=before),
        state(classes=then),
        limit_ratio=0.2,
        floor_ratio=1.0,
        wait_ratio=0.3,
        min_requests=100,
        excuses=Excuses(settings_of, **{"lost_ratio": 0.9, **fields}),
    )


@given(takings())
@settings(deadline=None, max_examples=600)
def test_the_most_important_class_that_keeps_its_objective_cannot_be_starved_whatever_the_others_show(taking):
    settings_of, before, then = taking
    settings_of[CRITICAL] = msgspec.structs.replace(settings_of[CRITICAL], importance=1.0)
    evidence, _ = judged(settings_of, before, then)
    assert evidence == "regressed"


@given(takings())
@settings(deadline=None, max_examples=600)
def test_no_class_that_keeps_its_objective_is_starved_but_for_a_more_important_one_in_need_that_gets_half(taking):
    settings_of, before, then = taking
    evidence, _ = judged(settings_of, before, then)
    event(evidence)
    if evidence == "regressed":
        return
    assert evidence == "unknown"
    part_of, now = (
        {name: Fraction(seen.weight, sum(each.weight for each in look.values())) for name, seen in look.items()}
        for look in (before, then)
    )
    gained = sum(
        max(Fraction(0), now[name] - part_of[name])
        for name in LATENCY_CLASSES
        if settings_of[name].importance > settings_of[CRITICAL].importance
        and (before[name].latency.over_ratio or 0.0) > 0.1
    )
    assert float(gained) >= 0.5 * float(part_of[CRITICAL] - now[CRITICAL]) - 1e-9


@given(takings())
@settings(deadline=None, max_examples=300)
def test_in_a_canary_nothing_but_having_been_lost_excuses(taking):
    assert judged(*taking, node_wide=False)[0] == "regressed"


@given(
    st.fixed_dictionaries({CRITICAL: excusable}, optional={DEFAULT: excusable, BATCH: excusable}),
    st.dictionaries(st.sampled_from(KNOWN), excusable),
    st.booleans(),
)
@settings(deadline=None, max_examples=400)
def test_an_excuse_only_ever_turns_a_regression_into_not_knowing(before, then, node_wide):
    counts_all = {"limit_ratio": 0.2, "floor_ratio": 0.0, "wait_ratio": 0.3, "min_requests": 20}
    strict, worst = find_regression(state(classes=before), state(classes=then), **counts_all)
    excuses = Excuses(DEFAULT_CLASSES, 0.9, node_wide=node_wide)
    evidence, found = find_regression(state(classes=before), state(classes=then), **counts_all, excuses=excuses)
    event(f"{strict} {evidence}")
    if strict != "regressed":
        assert (evidence, found) == (strict, worst)
    else:
        assert evidence in ("regressed", "unknown")


# ---- the service, under any order of messages ----

p99s = st.sampled_from([0.1, 0.2, 0.2, None])
outcomes = st.sampled_from(["applied", "applied", "applied", "failed", "restored"])


def ordinary(number, boot, outcome, p99):
    """The steps of one cycle as they usually come."""
    return [
        ("state", boot, number),
        ("action", boot, number),
        ("advance", 0.05),
        ("actuation", boot, number, outcome),
        ("advance", 2.0),
        ("after", boot, number, p99),
        ("advance", 2.95),
    ]


cycles = st.lists(st.tuples(outcomes, p99s), min_size=1, max_size=6).map(
    lambda found: [
        step
        for index, (outcome, p99) in enumerate(found)
        for step in ordinary(index % 4 + 1, f"boot{index // 4}", outcome, p99)
    ]
)
intrusions = st.one_of(
    st.tuples(st.just("mode"), st.sampled_from(["active", "shadow", "frozen"])),
    st.tuples(st.just("advance"), st.sampled_from([0.05, 0.1, 1.0, 40.0])),
    st.tuples(st.just("step"), st.sampled_from([-3600.0, 3600.0])),
)


@st.composite
def scripts(draw):
    """Ordinary cycles in which steps are left out, repeated anywhere and swapped, and the world intrudes."""
    script = draw(cycles)
    place = st.integers(0, len(script) - 1)
    for number in draw(st.lists(place, max_size=2, unique=True).map(lambda found: sorted(found, reverse=True))):
        if len(script) > 1:
            del script[number]
    for number, where in draw(st.lists(st.tuples(place, place), max_size=4)):
        script.insert(where, script[number % len(script)])
    for one, other in draw(st.lists(st.tuples(place, place), max_size=3)):
        here, there = one % len(script), other % len(script)
        script[here], script[there] = script[there], script[here]
    for where, step in draw(st.lists(st.tuples(place, intrusions), max_size=2)):
        script.insert(where, step)
    return script


def message_of(step, at):
    kind, boot, number, *rest = step
    before = with_p99(state(boot=boot, cycle=number, at=at), 0.1)
    if kind == "state":
        return before
    if kind == "action":
        return action(boot=boot, cycle=number, at=at)
    if kind == "actuation":
        return actuation(boot=boot, cycle=number, outcome=rest[0], at=at)
    return with_p99(after(before), rest[0])


async def play(script):
    """Plays the script; returns the states in their order and the guard's verdicts and orders."""
    states, times = set(), []
    heard = 0
    async with guard_in(settings={"weights.max_changes_per_minute": 2}) as guard:
        for count, step in enumerate(script):
            if step[0] == "advance":
                await guard.advance(step[1])
            elif step[0] == "step":
                guard.clock.step_wall(step[1])
            elif step[0] == "mode":
                await guard.inject(command(verb="mode", mode=step[1], id=str(count)))
            else:
                message = message_of(step, guard.at())
                if isinstance(message, State) and message.phase == "before":
                    states.add((message.boot, message.cycle))
                    heard += 1
                await guard.inject(message)
            executed = sum(verdict.execute for verdict in guard.sent(Verdict))
            times += [guard.clock.monotonic()] * (executed - len(times))
        await guard.advance(1.0)
        dropped = guard.dropped("state", "duplicate") + guard.dropped("state", "stray")
        assert len(guard.sent(Verdict)) == heard - dropped
        return states, guard.sent(Verdict), guard.sent(Command), times


@given(scripts())
@settings(deadline=None, max_examples=150)
def test_i6_each_cycle_is_judged_once_and_rolled_back_at_most_once_in_any_order_of_messages(script):
    states, verdicts, orders, times = asyncio.run(play(script))
    judged = [(verdict.boot, verdict.cycle) for verdict in verdicts]
    assert len(set(judged)) == len(judged)
    assert set(judged) <= states
    for run in {boot for boot, _ in judged}:
        cycles = [cycle for boot, cycle in judged if boot == run]
        assert cycles == sorted(cycles)
    assert bool(judged) is bool(states)
    assert all(verdict.mode in ("active", "canary") for verdict in verdicts if verdict.execute)
    assert max(Counter((o.boot, o.cycle, o.verb, o.id) for o in orders).values(), default=0) <= 1
    for first in times:
        assert sum(first <= at < first + 60.0 for at in times) <= 2
    event(f"{min(len(times), 3)} changes, {sum(o.verb == 'rollback' for o in orders)} rollbacks")


# ---- rules one by one, watched, and over whole runs ----

odd64 = st.sampled_from([-(2**63), -1, 0, 1, 99, 10_001, 50_000, 2**63 - 1])
wild_weights = st.dictionaries(st.sampled_from((*KNOWN, "gold", "")), st.one_of(usual_weight, odd64))
wild_pods = st.lists(
    st.builds(
        pod,
        st.sampled_from(["api", "web", "x", "job", "db", "cron"]),
        st.sampled_from((*KNOWN, "gold", None)),
        st.one_of(st.none(), usual_weight, odd64),
        skip=st.sampled_from([None, None, "idle"]),
    ),
    max_size=6,
)


def spoil_more(where, in_force, pods, fields):
    seen = msgspec.structs.replace(
        where.state,
        classes={name: class_state(weight=weight) for name, weight in in_force.items()},
        pods=tuple(pods),
    )
    return msgspec.structs.replace(where, state=seen, **fields)


more_spoils = st.lists(
    st.one_of(
        *(
            st.tuples(st.just(field), values)
            for field, values in {
                "limits": any_limits,
                "mode": st.sampled_from(["shadow", "canary", "frozen"]),
                "canary_ratio": st.sampled_from([0.1, 0.5, 1.0]),
                "profiles": st.dictionaries(st.sampled_from("ab"), usual_weights, max_size=2),
                "class_changes_left": st.dictionaries(st.sampled_from(KNOWN), st.integers(0, 1)),
                "changes_left": st.just(0),
            }.items()
        )
    ),
    max_size=2,
).map(dict)
wild_situation = st.builds(
    spoil_more,
    st.builds(situation, usual_weights, st.just([])),
    st.one_of(usual_weights, usual_weights, wild_weights),
    wild_pods,
    st.builds(lambda fields, least: {**fields, "min_share_ratio": least}, more_spoils, st.floats(0.0, 0.5)),
)
wild_action = st.builds(
    lambda weights: action(weights=weights), st.one_of(*[usual_weights] * 4, wild_weights, st.none())
)
watches = st.sets(st.sampled_from(WATCHABLE))


@given(wild_action, wild_situation, watches)
@settings(deadline=None, max_examples=600)
def test_whatever_is_asked_and_watched_there_is_an_answer(proposal, where, watched):
    judged = judge(proposal, where, watched=watched)
    event(f"{judged.outcome}, {judged.rule}, {len(judged.would_refuse)} noted")
    assert set(judged.would_refuse) <= watched
    assert judged.rule not in watched
    assert not judged.execute or where.mode in ("active", "canary")
    assert not judged.execute or judged.weights


@given(wild_action, wild_situation)
@settings(deadline=None, max_examples=400)
def test_every_rule_alone_answers_and_none_widens_a_proposal(proposal, where):
    for rule in RULES:
        if proposal.weights is None and rule.name not in ("budget", "freshness", "frozen", "writable", "hold"):
            continue
        finding = rule(proposal, where)
        if finding is None or finding.outcome not in ("allow", "clamp"):
            continue
        assert set(finding.weights) <= set(proposal.weights)
        if finding.outcome == "clamp" and Bounds()(proposal, where) is None:
            for name, weight in finding.weights.items():
                here, there = where.current[name], proposal.weights[name]
                assert min(here, there) <= weight <= max(here, there)


mostly_all = st.one_of(
    st.fixed_dictionaries(dict.fromkeys(KNOWN, usual_weight)),
    st.fixed_dictionaries({CRITICAL: usual_weight, BATCH: usual_weight}),
    usual_weights,
)
nearly_sound = st.builds(
    spoil_more,
    st.builds(situation, usual_weights, st.just([])),
    mostly_all,
    wild_pods,
    st.fixed_dictionaries(
        {"min_share_ratio": st.floats(0.0, 0.2)},
        optional={"limits": any_limits, "canary_ratio": st.just(0.5)},
    ),
)


@given(mostly_all.map(lambda weights: action(weights=weights)), nearly_sound)
@settings(deadline=None, max_examples=800)
@example(
    action(weights={CRITICAL: 37, BATCH: 2}),
    spoil_more(
        situation({}, []),
        {CRITICAL: 30, BATCH: 1},
        [],
        {"min_share_ratio": 1 / 31.5, "limits": WeightSettings(min_weight=1, max_step_ratio=1.26)},
    ),
)
def test_no_class_is_starved_by_what_is_executed(proposal, where):
    judged = judge(proposal, where)
    if not judged.weights:
        return
    event(f"{judged.outcome} with {len(where.current)} classes")
    then = {**where.current, **judged.weights}
    for name, weight in where.current.items():
        share, share_now = Fraction(then[name], sum(then.values())), Fraction(weight, sum(where.current.values()))
        assert share >= min(Fraction(str(where.min_share_ratio)), share_now)
        assert judged.weights.get(name, where.limits.min_weight) in range(
            where.limits.min_weight, where.limits.max_weight + 1
        )
        assert max(then[name] / weight, weight / then[name]) <= where.limits.max_step_ratio * (1 + 1e-8)


@given(wild_action, wild_situation, watches)
@settings(deadline=None, max_examples=400)
def test_what_passes_all_rules_is_the_same_whatever_is_watched(proposal, where, watched):
    enforced = judge(proposal, where)
    if enforced.outcome == "allow":
        assert judge(proposal, where, watched=watched) == enforced


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 12.0),
            st.sampled_from(["a", "b"]),
            st.one_of(st.integers(0, 40), st.sampled_from([10**6, 2**63 - 1])),
        ),
        max_size=40,
    )
)
@untimed
def test_i6_no_cycle_is_accepted_twice_and_the_real_collector_is_never_locked_out(strays):
    """Whatever was said before: once the strays are silent, the collector is heard within two ticks, and stays so."""
    runs, now, accepted = Runs(5.0), 0.0, []
    for gap, boot, cycle in strays:
        now += gap
        if runs.refuses(boot, cycle, now) is None:
            accepted.append((boot, cycle))
            assert runs.is_current(boot, cycle)
    assert len(set(accepted)) == len(accepted)
    told = [runs.refuses("real", cycle, now + 5.0 * cycle) for cycle in range(1, 6)]
    assert told == [None] * 5


@given(st.integers(1, 6), st.lists(st.tuples(st.integers(1, 60), st.floats(0.01, 0.99)), max_size=6))
@untimed
def test_a_stray_costs_the_real_collector_at_most_one_cycle(first, strays):
    """The collector ticks every 5 s; strays, each of another boot, fall anywhere in between."""
    said = [(5.0 * cycle, "real", cycle) for cycle in range(first, first + 60)]
    said += [(5.0 * (tick + part), f"stray{number}", 1) for number, (tick, part) in enumerate(strays)]
    runs = Runs(5.0)
    told = [(boot, runs.refuses(boot, cycle, at)) for at, boot, cycle in sorted(said)]
    assert sum(word is not None for boot, word in told if boot == "real") <= len(strays)


shares_of = st.floats(0.0, 1.0)


@given(st.text(max_size=60), shares_of, shares_of)
def test_who_is_in_a_canary_is_in_every_larger_one(uid, one, other):
    small, large = sorted((one, other))
    assert not is_canary(uid, small) or is_canary(uid, large)
    assert is_canary(uid, 1.0)
    assert not is_canary(uid, 0.0)
