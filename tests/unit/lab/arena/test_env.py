"""The Gymnasium environment: the library's own checker, and what its docstring promises."""

import math
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from lab.arena.env import ENV_ID, NodeWeight
from lab.arena.scenarios import named
from lab.arena.sim_world import shared_settings
from schemas.features import feature_names
from schemas.settings import DEFAULT_CLASSES
from services.decider.core.arms import build_arms


def play(env, actions, seed=1, **reset):
    first, _ = env.reset(seed=seed, **reset)
    steps = [env.step(action) for action in actions]
    return [first, *(step[0] for step in steps)], [step[1] for step in steps], [step[4] for step in steps]


def test_it_passes_the_librarys_checker_without_a_warning(recwarn):
    env = gymnasium.make(ENV_ID, scenario="flood")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    assert [str(warning.message) for warning in recwarn] == []


def test_observations_are_the_features_of_the_default_classes():
    env = NodeWeight("noisy-neighbour")
    names = feature_names(tuple(DEFAULT_CLASSES))
    assert env.observation_space.shape == (len(names),)
    seen, _, _ = play(env, [0, 5, 5])
    at = {name: index for index, name in enumerate(names)}
    assert [observation[at["bias"]] for observation in seen] == [1.0] * 4
    assert [observation[at["latency-critical.latency_missing"]] for observation in seen] == [1.0, 0.0, 0.0, 0.0]
    assert [observation[at["node.previous_applied"]] for observation in seen] == [0.0, 1.0, 1.0, 0.0]


def test_every_action_is_a_profile_and_is_put_in_force():
    env = NodeWeight("steady")
    assert len(env.arms) == env.action_space.n >= 12
    assert [*env.arms, "hold"] == [arm.name for arm in build_arms(shared_settings(named("steady")), {})]
    names = feature_names(tuple(DEFAULT_CLASSES))
    for action, arm in enumerate(env.arms):
        seen, _, _ = play(env, [action])
        ratio = {part.rstrip("0123456789."): float(part.lstrip("lcdb")) for part in arm.split("-")}
        share = seen[-1][names.index("latency-critical.share")]
        assert share == pytest.approx(ratio["lc"] / sum(ratio.values()), abs=0.02)


def test_better_weights_are_worth_more():
    """Where a batch pod with a large request takes the CPU from a service with a small one."""
    env = NodeWeight("mislabelled", cycles=30)
    best = max(range(len(NodeWeight().arms)), key=lambda action: float(np.mean(play(env, [action] * 30)[1][10:])))
    worst = min(range(len(NodeWeight().arms)), key=lambda action: float(np.mean(play(env, [action] * 30)[1][10:])))
    name = {"best": env.arms[best], "worst": env.arms[worst]}
    favours_service = {key: float(arm.split("-")[0].lstrip("lc")) for key, arm in name.items()}
    assert favours_service["best"] > favours_service["worst"]
    _, good, shown = play(env, [best] * 30)
    assert all(-1.0 <= value <= 1.0 for value in good)
    assert {"violation", "severity", "throughput", "oscillation"} <= set(shown[-1]["reward_terms"])
    assert shown[-1]["score"] > play(env, [worst] * 30)[2][-1]["score"]


def test_the_mask_offers_what_the_decider_would():
    env = NodeWeight("steady")
    _, shown = env.reset(seed=1)
    for _ in range(10):
        assert shown["action_mask"].dtype == np.int8
        assert shown["action_mask"].shape == (len(env.arms),)
        action = env.action_space.sample(shown["action_mask"])
        assert shown["action_mask"][action] == 1
        shown = env.step(action)[4]
        assert shown["action_mask"][action] == 1, "what is in force may stay"
    assert shown["action_mask"].sum() < len(env.arms), "not everything is one step away"


def test_the_same_seed_gives_the_same_episode_and_another_gives_another():
    runs = [play(NodeWeight("flood"), [1, 7, 3, 3, 0], seed=seed) for seed in (4, 4, 5)]
    assert np.array_equal(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1]
    assert not np.array_equal(runs[0][0], runs[2][0])


def test_the_time_limit_truncates_and_never_terminates():
    env = NodeWeight("quiet", cycles=3)
    for _ in range(2):
        env.reset(seed=1)
        assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]


def test_options_choose_another_scenario_from_then_on():
    env = NodeWeight("quiet", render_mode="ansi")
    env.reset(seed=1)
    assert env.render() == "quiet: start"
    env.reset(seed=1, options={"scenario": "flood", "queue": "unbounded"})
    assert env.render() == "flood: start"
    env.reset(seed=2)
    assert env.render() == "flood: start"
    env.step(0)
    assert env.render().startswith(f"flood cycle 1: {env.arms[0]}, reward ")
    env.reset(options={"scenario": named("gen:3")})
    assert env.render() == "gen:3: start"


def test_the_queue_alone_can_be_chosen_and_a_scenario_given_whole_keeps_its_own():
    def scores(env, **reset):
        env.reset(seed=1, **reset)
        return [env.step(1)[4]["score"] for _ in range(12)]

    expected = {queue: scores(NodeWeight("flood", queue=queue)) for queue in ("bounded", "unbounded")}
    assert expected["bounded"] != expected["unbounded"]
    env = NodeWeight("flood")
    assert scores(env, options={"queue": "unbounded"}) == expected["unbounded"]
    assert scores(env) == expected["unbounded"], "from then on"
    assert scores(env, options={"queue": "bounded"}) == expected["bounded"]
    whole = named("flood", "unbounded")
    assert scores(NodeWeight(whole)) == expected["unbounded"]
    assert scores(env, options={"scenario": whole}) == expected["unbounded"]
    assert scores(env, options={"scenario": whole, "queue": "bounded"}) == expected["bounded"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"queue": "weird"}, "queue 'weird'; known: bounded, unbounded"),
        ({"queue": None}, "queue None; known"),
        ({"scenario": "flood", "queue": "weird"}, "queue 'weird'"),
        ({"scenario": "nowhere"}, "unknown scenario 'nowhere'"),
        ({"scenario": 3}, "scenario 3: give a name"),
        ({"scenarios": "flood"}, "options: 'scenarios' is not known; known: queue, scenario"),
    ],
)
def test_options_that_do_not_exist_are_refused_and_change_nothing(options, words):
    env = NodeWeight("quiet", render_mode="ansi")
    before = play(env, [3])[0]
    with pytest.raises(ValueError, match=words):
        env.reset(options=options)
    assert np.array_equal(play(env, [3])[0], before)
    assert env.render().startswith("quiet cycle 1: ")


@pytest.mark.parametrize("action", [-1, 1.5, np.int64(-1), np.float64(1.0), 10**30, None, "1"])
def test_what_is_no_action_is_refused_and_nothing_happens(action):
    env = NodeWeight("quiet", cycles=2)
    env.reset(seed=1)
    with pytest.raises(ValueError, match=rf"action .*: give a whole number from 0 to {len(env.arms) - 1}"):
        env.step(action)
    with pytest.raises(ValueError, match="action"):
        env.step(len(env.arms))
    assert [env.step(last)[3] for last in (0, np.int64(len(env.arms) - 1))] == [False, True]


def test_what_cannot_be_played_is_refused():
    with pytest.raises(ValueError, match="queue 'weird'; known: bounded, unbounded"):
        NodeWeight(queue="weird")
    with pytest.raises(ValueError, match="queue 'weird'; known: bounded, unbounded"):
        NodeWeight(named("flood"), queue="weird")
    with pytest.raises(ValueError, match="unknown scenario 'nowhere'"):
        NodeWeight("nowhere")
    with pytest.raises(ValueError, match="cycles"):
        NodeWeight(cycles=0)
    for seconds in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="cycle_seconds"):
            NodeWeight(cycle_seconds=seconds)
    with pytest.raises(ValueError, match="render_mode 'human'"):
        NodeWeight(render_mode="human")
    with pytest.raises(gymnasium.error.ResetNeeded):
        NodeWeight().step(0)
    assert NodeWeight().render() is None
