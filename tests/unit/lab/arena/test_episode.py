"""A run through the services' cores: what is played, what is learned, what the guard takes back."""

import msgspec
import pytest

from lab.arena.episode import (
    DECIDERS,
    POLICIES,
    REQUEST_DERIVED,
    Settings,
    best_static,
    play,
    play_static,
    run,
)
from lab.arena.hindsight import static_profiles
from lab.arena.scenario import Curve, Scenario, ServicePod, SpinnerPod, constant
from lab.arena.scenarios import named
from lab.arena.sim_world import shared_settings
from schemas.features import feature_names
from schemas.settings import DEFAULT_CLASSES
from services.decider.core.policy import HOLD, Choice
from services.guard.config import GuardConfig

CRITICAL, DEFAULT, BATCH = "latency-critical", "default", "batch"
CALM = ServicePod(name="api", cls=CRITICAL, request_millicpu=1000, rate=constant(150.0), work_seconds=0.004)
BURN = SpinnerPod(name="burn", cls=BATCH, request_millicpu=1000, processes=constant(4.0))
NODE = Scenario(name="made", text="made up", pods=(CALM, BURN))
"""The API needs 30 % of the node, has half of it, and is well."""

STATE_FEATURES = set(feature_names(tuple(DEFAULT_CLASSES)))
WORSE, BETTER = "lc1-d1-b3", "lc3-d3-b1"


class Scripted:
    """A policy that asks for what stands in its script, cycle by cycle, and then holds. It keeps what it was taught."""

    def __init__(self, *script):
        self.script = script
        self.seen = []
        self.lessons = []

    name = "scripted"
    updates = 0

    def decide(self, features, arms, rng):
        number = len(self.seen)
        self.seen.append((dict(features), [arm.name for arm in arms]))
        arm = self.script[number] if number < len(self.script) else None
        arm = arm or HOLD.name
        return Choice(arm=arm, propensity=1.0, propensities={arm: 1.0}, scores={}, explored=False)

    def learn(self, features, arm, reward):
        self.lessons.append((len(self.seen) - 1, arm.name, dict(features), reward))


def scripted(*script, scenario=NODE, cycles=None, decider=DECIDERS["trimtab-cold"], guarded=True, **guard):
    """A run of a script under a guard with these settings; the policy and the episode."""
    policy = Scripted(*script)
    settings = Settings(decider, GuardConfig(**guard), guarded=guarded)
    episode = run(scenario, "scripted", settings, 1, cycles or len(script), make=lambda config, shared: policy)
    return policy, episode


@pytest.mark.parametrize("name", ["flash-sale", "swap", "noisy-neighbour"])
def test_to_hold_is_what_the_requests_give(name):
    held = play(named(name), REQUEST_DERIVED, 3, 30)
    static = [outcome.score for outcome in play_static(named(name), None, 3, 30)]
    assert held.scores == pytest.approx(static)
    assert len(set(held.scores)) > 1
    assert held.row.score == pytest.approx(sum(static) / 30)


@pytest.mark.parametrize("policy", ["trimtab-cold", "epsilon-greedy"])
def test_the_same_seed_gives_the_same_run_and_another_one_another(policy):
    first, again, other = (play(named("steady"), policy, seed, 25) for seed in (1, 1, 2))
    assert first.curves == again.curves
    assert msgspec.structs.replace(first.row, seconds=0.0) == msgspec.structs.replace(again.row, seconds=0.0)
    assert first.scores != other.scores


def test_every_policy_can_be_played_and_no_other():
    for policy in POLICIES:
        assert len(play(NODE, policy, 1, 3).scores) == 3
    with pytest.raises(KeyError):
        play(NODE, "better", 1, 3)


def test_a_row_is_complete_and_agrees_with_its_curves():
    episode = play(named("runaway"), "step", 4, 40)
    row, curves = episode.row, episode.curves
    assert (row.scenario, row.queue, row.policy, row.seed, row.cycles) == ("runaway", "bounded", "step", 4, 40)
    assert row.score == pytest.approx(sum(curves.scores) / 40, abs=1e-4)
    assert {len(curve) for curve in (curves.scores, curves.p99_lc_ms, curves.batch_share, curves.arms)} == {40}
    assert 0.0 <= row.violation_lc <= 1.0
    assert 0.0 <= row.violation_default <= 1.0
    assert row.batch_cpu_seconds == pytest.approx(row.batch_share * 40 * 5.0 * 2)
    assert row.changes_per_minute == pytest.approx(sum(o in ("applied", "rolled_back") for o in curves.outcomes) * 0.3)
    assert row.rollbacks == curves.outcomes.count("rolled_back")
    assert min(row.p99_lc_ms, row.p99_default_ms) > 0.0
    assert row.seconds > 0.0
    missing = {name for name, value in msgspec.structs.asdict(row).items() if value is None}
    assert missing == {"regret_static", "regret_phase", "clients_share_settled", "agent_share_settled"}


def test_a_run_without_requests_has_no_violation_and_no_p99():
    quiet = msgspec.structs.replace(CALM, rate=constant(0.0))
    row = play(msgspec.structs.replace(NODE, pods=(quiet, BURN)), REQUEST_DERIVED, 1, 3).row
    assert (row.violation_lc, row.violation_default, row.p99_lc_ms, row.p99_default_ms) == (None,) * 4


# ---- what is decided, carried out and learned ----


def test_what_is_taught_is_the_state_and_the_context_of_the_cycle():
    policy, episode = scripted(None, BETTER, None, None, None)
    assert episode.curves.outcomes == ("hold", "applied", "hold", "hold", "hold")
    assert [(cycle, arm) for cycle, arm, _, _ in policy.lessons] == [
        (0, "hold"),
        (1, BETTER),
        *((n, "hold") for n in (2, 3, 4)),
    ]
    for cycle, _, features, reward in policy.lessons:
        assert features == policy.seen[cycle][0]
        assert features["bias"] == 1.0
        assert features.keys() > STATE_FEATURES
        assert -1.0 <= reward <= 1.0


def test_a_clamped_cycle_teaches_nothing():
    """From 1:1 to 100:1 is 25 times what one step allows."""
    policy, episode = scripted(None, "lc100-d100-b1", None)
    assert episode.curves.outcomes[1] == "applied"
    assert episode.curves.arms[1] not in ("lc100-d100-b1", episode.curves.arms[0])
    assert [cycle for cycle, *_ in policy.lessons] == [0, 2]


def test_a_refused_cycle_changes_and_teaches_nothing():
    idle = msgspec.structs.replace(NODE, pods=(CALM,))
    policy, episode = scripted(None, BETTER, None, scenario=idle)
    assert policy.lessons == []
    assert episode.row.changes_per_minute == 0.0


def test_no_more_changes_than_the_rate_and_the_policy_is_told_in_time():
    """Eight a minute: of the ninth the mask knows, since the verdict of the eighth told."""
    policy, episode = scripted(None, *[BETTER, "lc1-d1-b1"] * 6, guarded=False)
    assert episode.curves.outcomes[1:9] == ("applied",) * 8
    assert (episode.curves.outcomes[9], episode.curves.outcomes[11]) == ("rate", "rate")
    offered = [len(names) for _, names in policy.seen]
    assert min(offered[1:9]) > 1
    assert offered[9] == 1


# ---- what the guard takes back ----


def test_a_change_that_makes_a_class_miss_its_objective_is_taken_back():
    policy, episode = scripted(None, WORSE, None, None)
    assert episode.curves.outcomes == ("hold", "rolled_back", "hold", "hold")
    assert (episode.row.rollbacks, len(set(episode.curves.arms))) == (1, 1)
    assert policy.seen[2][0]["node.previous_applied"] == 0.0


def test_without_the_guard_it_stays():
    _, episode = scripted(None, WORSE, None, None, guarded=False)
    assert episode.curves.outcomes == ("hold", "applied", "hold", "hold")
    assert episode.curves.arms[1:] == (WORSE,) * 3
    assert episode.row.rollbacks == 0


def test_three_rollbacks_open_the_breaker_originals_return_and_nothing_is_tried_for_a_minute():
    gaps = [None] * 4
    script = [None, BETTER, *gaps, WORSE, *gaps, WORSE, *gaps, WORSE]
    _, episode = scripted(*script, *[BETTER] * 14)
    first, better = episode.curves.arms[0], episode.curves.arms[1]
    assert first != better
    opened = len(script) - 1
    assert [n for n, word in enumerate(episode.curves.outcomes) if word == "rolled_back"] == [6, 11, opened]
    assert episode.curves.arms[2:opened] == (better,) * (opened - 2)
    assert episode.curves.arms[opened] == first
    after = episode.curves.outcomes[opened + 1 :]
    assert after[:12] == ("breaker",) * 12
    assert after[12] == "applied"


def fading(rate, until=1000.0):
    """The node, with fewer requests from cycle 4 on until a later one."""
    fades = msgspec.structs.replace(CALM, rate=Curve(((0.0, 150.0), (4.0, rate), (until, 150.0))))
    return msgspec.structs.replace(NODE, pods=(fades, BURN))


def half_open(*then, scenario, **guard):
    """A run whose breaker opens in cycle 1, is half open from cycle 3 on, and of which the rest is given from 4 on."""
    script = [None, WORSE, None, None, *then]
    _, episode = scripted(*script, scenario=scenario, rollbacks_to_open=1, cool_down_seconds=5.0, **guard)
    assert episode.curves.outcomes[1] == "rolled_back"
    return episode.curves


def test_a_half_open_breaker_tries_one_change_until_it_is_judged():
    """Thirty requests in a second look and 45 in a first one are no evidence."""
    curves = half_open(BETTER, WORSE, WORSE, WORSE, None, WORSE, scenario=fading(15.0, until=7.0))
    assert curves.outcomes[4:10] == ("applied", "breaker", "breaker", "breaker", "hold", "rolled_back")


def test_the_next_cycle_s_first_look_judges_a_trial_too():
    """A second look has 80 requests, too few; a first one 120."""
    curves = half_open(BETTER, "lc1-d1-b1", scenario=fading(40.0))
    assert curves.outcomes[4:6] == ("applied", "applied")


def test_a_trial_that_got_worse_opens_it_again_at_once():
    curves = half_open(WORSE, BETTER, BETTER, scenario=NODE)
    assert curves.outcomes[4:7] == ("rolled_back", "breaker", "applied")
    assert curves.arms[4] == curves.arms[0]


def test_a_trial_without_evidence_is_given_up_and_originals_return():
    curves = half_open(BETTER, *[None] * 6, BETTER, scenario=fading(15.0), trial_seconds=15.0)
    assert [n for n, arm in enumerate(curves.arms) if arm != curves.arms[0]] == [4, 5, 6, 11]
    assert curves.outcomes[11] == "applied"


def test_a_trial_under_which_no_more_is_missed_than_before_has_stood_it_at_its_end():
    """From cycle 4 on far more requests come than can be served, with or without the change: all are late."""
    drowned = msgspec.structs.replace(CALM, rate=Curve(((0.0, 150.0), (2.0, 4000.0))))
    node = msgspec.structs.replace(NODE, pods=(drowned, BURN), queue="unbounded")
    curves = half_open(BETTER, *[None] * 4, WORSE, scenario=node, trial_seconds=15.0)
    assert curves.outcomes[4:9] == ("applied", "breaker", "breaker", "hold", "hold")
    assert curves.arms[4:9] == (BETTER,) * 5


# ---- static profiles ----


def test_the_grid_has_every_ratio_once_and_all_that_policies_may_choose():
    shared = shared_settings(NODE)
    profiles = static_profiles(shared)
    ratios = {tuple(weight / min(profile.values()) for weight in profile.values()) for profile in profiles}
    assert len(ratios) == len(profiles)
    assert {(1.0, 1.0, 1.0), (100.0, 100.0, 1.0), (1.0, 1.0, 100.0), (100.0, 1.0, 10.0)} <= ratios


def test_the_best_static_profile_is_the_best_of_its_grid_and_of_each_phase():
    scenario, seed, cycles = named("noisy-neighbour"), 2, 40
    best = best_static(scenario, seed, cycles)
    scores = {}
    for profile in static_profiles(shared_settings(scenario)):
        scores[tuple(profile.items())] = [outcome.score for outcome in play_static(scenario, profile, seed, cycles)]
    means = {profile: sum(each) / cycles for profile, each in scores.items()}
    assert best.tried == len(scores)
    assert best.score == max(means.values()) == means[tuple(best.profile.items())]
    phases = [scenario.phase_at(cycle) for cycle in range(cycles)]
    assert set(best.phases) == set(phases)
    assert len(best.phases) > 1
    for name, (profile, value) in best.phases.items():
        own = [
            sum(score for score, phase in zip(each, phases, strict=True) if phase == name) / phases.count(name)
            for each in scores.values()
        ]
        assert value == pytest.approx(max(own))
        assert tuple(profile.items()) in scores
    weighed = sum(value * phases.count(name) for name, (_, value) in best.phases.items()) / cycles
    assert best.per_phase_score == pytest.approx(weighed)
    assert best.per_phase_score >= best.score
