"""The search for the best static profile: its grid, and that giving up early never changes what is found."""

import random

import pytest
from msgspec.structs import replace

from lab.arena.episode import best_static, play_static
from lab.arena.hindsight import BEST_SCORE, Search, static_profiles
from lab.arena.scenarios import named
from schemas.settings import Shared

NAMES = ("latency-critical", "default", "batch")


def ratios(profiles):
    return {tuple(profile[name] / 100 for name in NAMES) for profile in profiles}


def test_the_grid_has_half_decades_ties_on_half_steps_and_each_ratio_once():
    profiles = static_profiles(Shared())
    assert len(profiles) == len(ratios(profiles)) == 85
    for wanted in ((5, 5, 1), (1, 20, 20), (50, 1, 1), (1, 1, 2), (3.16, 31.62, 1), (100, 10, 1), (1, 100, 3.16)):
        assert wanted in ratios(profiles)
    assert all(min(profile.values()) == 100 and max(profile.values()) <= 10_000 for profile in profiles)
    assert static_profiles(Shared()) == profiles


def test_a_class_without_pods_makes_no_further_profiles():
    two = static_profiles(Shared(), ("latency-critical", "batch"))
    found = {profile["latency-critical"] / profile["batch"] for profile in two}
    assert len(two) == len(found) < 25
    assert {1.0, 5.0, 0.2, 100.0, 0.01} <= found
    assert len(static_profiles(Shared(), ("batch",))) == 1
    assert len(static_profiles(Shared(), NAMES)) == 85


def exhaustive(phases, runs):
    """The best overall and in each phase, without ever giving up; the first of equals."""
    best = max(runs, key=lambda run: sum(runs[run]))
    best_in = {}
    for phase in phases:
        part = {run: sum(s for s, p in zip(scores, phases, strict=True) if p == phase) for run, scores in runs.items()}
        best_in[phase] = max(part, key=part.__getitem__)
    return best, best_in


@pytest.mark.parametrize("seed", range(40))
def test_what_is_found_is_what_playing_all_to_the_end_would_find(seed):
    rng = random.Random(seed)
    phases = [rng.choice("ab") for _ in range(rng.randrange(1, 60))]
    runs = {}
    for number in range(1, 12):
        level = {phase: rng.choice((-1.5, -0.5, 0.0, 0.2)) for phase in "ab"}
        runs[number] = [min(BEST_SCORE, max(-1.5, level[phase] + rng.uniform(-0.3, 0.3))) for phase in phases]
    search, asked = Search(phases), 0
    for number, scores in runs.items():

        def counted(scores=scores):
            nonlocal asked
            for score in scores:
                asked += 1
                yield score

        search.look({"batch": number}, counted())
    best, best_in = exhaustive(phases, runs)
    assert search.best == ({"batch": best}, pytest.approx(sum(runs[best]) / len(phases)))
    assert {phase: profile["batch"] for phase, (profile, _) in search.best_in.items()} == best_in
    assert search.tried == len(runs)
    assert asked <= len(phases) * len(runs)


def test_a_profile_that_cannot_win_is_not_played_to_its_end():
    search = Search(["all"] * 100)
    search.look({"batch": 1}, [0.2] * 100)
    asked = []
    search.look({"batch": 2}, (asked.append(cycle) or -1.0 for cycle in range(100)))
    # After n cycles it can still have (0.3 x (100 - n) - n) / 100: below 0.2 from n = 8 on.
    assert len(asked) == 8
    assert search.best == ({"batch": 1}, pytest.approx(0.2))


def test_a_profile_that_can_win_a_phase_only_is_played_to_its_end():
    search = Search(["a"] * 5 + ["b"] * 5)
    search.look({"batch": 1}, [0.2] * 5 + [-0.5] * 5)
    search.look({"batch": 2}, [-1.5] * 5 + [-0.4] * 5)
    assert search.best[0] == {"batch": 1}
    assert search.best_in["b"] == ({"batch": 2}, pytest.approx(-0.4))
    assert search.per_phase_score() == pytest.approx(-0.1)


def test_with_pods_of_two_classes_the_best_is_that_of_the_whole_grid():
    whole = named("mislabelled")
    scenario = replace(whole, pods=tuple(pod for pod in whole.pods if pod.cls != "default"))
    best = best_static(scenario, 3, 12)
    all_of_them = [
        sum(outcome.score for outcome in play_static(scenario, profile, 3, 12)) / 12
        for profile in static_profiles(Shared())
    ]
    assert best.tried < len(all_of_them)
    assert best.score == pytest.approx(max(all_of_them), abs=1e-9)
