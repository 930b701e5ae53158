"""The named scenarios: how they are called, and that each shows on the simulated node what its text says."""

from functools import cache

import msgspec
import numpy as np
import pytest

from lab.arena import scenarios
from lab.arena.episode import play_static
from lab.arena.scenario import Scenario, ServicePod, SpinnerPod
from lab.arena.sim_world import CycleOutcome

NAMES = (
    "quiet",
    "steady",
    "diurnal",
    "flash-sale",
    "swap",
    "flood",
    "noisy-neighbour",
    "runaway",
    "mislabelled",
)
SEED = 11


def demand(scenario: Scenario, cycle: float) -> float:
    """The services' part of the node's CPUs."""
    services = [pod for pod in scenario.pods if isinstance(pod, ServicePod)]
    return sum(pod.rate.at(cycle) * pod.work_seconds for pod in services) / scenario.cores


@cache
def played(name: str, ratios: str | None, queue: str = "bounded") -> tuple[CycleOutcome, ...]:
    """200 cycles under fixed weights lc:default:batch, or those of the requests."""
    scenario = scenarios.named(name, queue)
    profile = None
    if ratios is not None:
        classes = ("latency-critical", "default", "batch")
        profile = {cls: 100 * int(part) for cls, part in zip(classes, ratios.split(":"), strict=True)}
    return tuple(play_static(scenario, profile, SEED, 200))


def missed(name: str, ratios: str | None, cls: str, phase: str | None = None) -> float:
    scenario = scenarios.named(name)
    outcomes = [
        outcome
        for cycle, outcome in enumerate(played(name, ratios))
        if phase is None or scenario.phase_at(cycle) == phase
    ]
    return sum(outcome.missed[cls] for outcome in outcomes) / sum(outcome.ended[cls] for outcome in outcomes)


def score(name: str, ratios: str | None) -> float:
    return float(np.mean([outcome.score for outcome in played(name, ratios)]))


def test_there_are_nine_names_in_a_fixed_order():
    assert scenarios.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_each_is_there_with_either_queue_and_reads_back_from_yaml(name):
    for queue in ("bounded", "unbounded"):
        scenario = scenarios.named(name, queue)
        assert (scenario.name, scenario.queue, scenario.cores) == (name, queue, 2)
        assert msgspec.yaml.decode(msgspec.yaml.encode(scenario), type=Scenario) == scenario
    assert scenario.pods == scenarios.named(name).pods


def test_an_unknown_name_is_told_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown scenario 'floood'; known: quiet, steady, .*mislabelled, gen:SEED"):
        scenarios.named("floood")


@pytest.mark.parametrize("name", ["gen:", "gen:x", "gen:-1", "gen:1.5", "gen:²"])
def test_a_generated_one_needs_a_whole_number(name):
    with pytest.raises(ValueError, match="after gen: comes a whole number"):
        scenarios.named(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("swap,flood", ("swap", "flood")),
        ("all", NAMES),
        (" flood , gen:17,flood ", ("flood", "gen:17")),
        ("gen:3,all", ("gen:3", *NAMES)),
    ],
)
def test_words_are_resolved_in_their_order_and_each_once(text, expected):
    found = scenarios.resolve(text, "unbounded")
    assert tuple(scenario.name for scenario in found) == expected
    assert {scenario.queue for scenario in found} == {"unbounded"}


@pytest.mark.parametrize("text", ["", " , "])
def test_no_name_at_all_is_an_error(text):
    with pytest.raises(ValueError, match="no scenario named; known: all, quiet"):
        scenarios.resolve(text)


def test_one_unknown_name_among_others_is_an_error():
    with pytest.raises(ValueError, match="unknown scenario 'nope'"):
        scenarios.resolve("swap,nope")


@pytest.mark.parametrize("name", NAMES)
def test_requests_are_small_and_contradict_priority(name):
    pods = {pod.name: pod for pod in scenarios.named(name).pods}
    assert pods["batch"].request_millicpu >= 8 * pods["web"].request_millicpu >= 8 * pods["api"].request_millicpu
    for pod in pods.values():
        if isinstance(pod, ServicePod):
            assert 0.002 <= pod.work_seconds <= 0.010


@pytest.mark.parametrize("name", [name for name in NAMES if name not in {"quiet", "flood", "flash-sale", "diurnal"}])
def test_services_need_between_40_and_85_percent_of_the_node(name):
    scenario = scenarios.named(name)
    assert all(0.4 <= demand(scenario, cycle) <= 0.85 for cycle in range(400))


def test_a_day_goes_from_18_to_80_percent_and_back():
    scenario = scenarios.named("diurnal")
    assert demand(scenario, 0) == demand(scenario, 200) == pytest.approx(0.175)
    assert demand(scenario, 100) == pytest.approx(0.8)
    assert demand(scenario, 50) == pytest.approx(0.4875, abs=0.001)


def test_the_flash_sale_passes_the_capacity_for_ten_cycles_of_80():
    scenario = scenarios.named("flash-sale")
    beyond = [cycle for cycle in range(160) if demand(scenario, cycle) > 1.0]
    assert beyond == [*range(30, 40), *range(110, 120)]
    assert demand(scenario, 0) == demand(scenario, 29) == demand(scenario, 40) == pytest.approx(0.55)


def test_only_quiet_does_not_matter_and_there_it_is_so():
    assert [name for name in NAMES if not scenarios.named(name).matters] == ["quiet"]
    scores = [score("quiet", ratios) for ratios in (None, "1:1:1", "100:10:1", "1:1:100", "1:100:1")]
    assert max(scores) - min(scores) < 0.002


@pytest.mark.parametrize("name", [name for name in NAMES if name not in {"quiet", "flood"}])
def test_a_good_profile_beats_the_requests_by_far(name):
    assert max(score(name, "100:10:1"), score(name, "100:100:1")) > score(name, None) + 0.5


@pytest.mark.parametrize("name", ["quiet", "steady", "diurnal", "swap", "noisy-neighbour", "runaway", "mislabelled"])
def test_both_objectives_can_be_kept_all_the_time(name):
    for cls in ("latency-critical", "default"):
        assert missed(name, "100:100:1", cls) <= 0.01


def test_in_the_flood_the_best_single_profile_scores_minus_1_and_the_best_per_phase_minus_3_quarters():
    api_first, web_first = score("flood", "100:10:1"), score("flood", "10:100:1")
    assert api_first == pytest.approx(-1.0, abs=0.02)
    assert web_first == pytest.approx(-1.25, abs=0.02)
    assert score("flood", "100:100:1") == pytest.approx(-1.5, abs=0.02)
    assert missed("flood", "10:100:1", "default", "api-flooded") <= 0.01
    assert missed("flood", "10:100:1", "latency-critical", "api-flooded") >= 0.99
    assert missed("flood", "100:10:1", "latency-critical", "web-flooded") <= 0.01
    assert missed("flood", "100:10:1", "default", "web-flooded") >= 0.99


def test_an_unbounded_flood_leaves_the_api_lost_in_the_second_half_too():
    second = played("flood", "100:10:1", "unbounded")[100:]
    assert all(outcome.violation_lc == 1.0 for outcome in second)


def test_the_flash_sale_is_over_by_cycle_50_where_batch_comes_last():
    for queue in ("bounded", "unbounded"):
        outcomes = played("flash-sale", "100:100:1", queue)
        assert np.mean([outcome.violation_lc for outcome in outcomes[32:40]]) > 0.9
        assert np.mean([outcome.violation_lc for outcome in outcomes[50:80]]) < 0.01


def test_in_the_swap_what_is_good_for_one_phase_hurts_in_the_other():
    assert missed("swap", "10:3:1", "latency-critical", "api-busy") <= 0.02
    assert missed("swap", "10:3:1", "default", "web-busy") > 0.5
    assert missed("swap", "10:100:1", "default", "web-busy") <= 0.01
    assert missed("swap", "10:100:1", "latency-critical", "web-busy") > 0.05


def test_the_neighbour_hurts_only_while_it_is_there():
    assert missed("noisy-neighbour", None, "latency-critical", "neighbour") > 0.9
    assert missed("noisy-neighbour", None, "latency-critical", "alone") < 0.05


def test_while_the_pod_runs_wild_its_class_must_not_come_first():
    assert missed("runaway", "100:10:1", "default", "calm") <= 0.01
    assert missed("runaway", "100:10:1", "default", "wild") > 0.9
    for cls in ("latency-critical", "default"):
        assert missed("runaway", "100:100:1", cls, "wild") <= 0.01


def test_batch_and_the_wild_pod_come_and_go_as_the_texts_say():
    spinning = {
        (scenario.name, pod.name): [round(pod.processes.at(cycle)) for cycle in (0, 39, 40, 49, 69, 70, 80)]
        for scenario in scenarios.resolve("quiet,runaway,noisy-neighbour")
        for pod in scenario.pods
        if isinstance(pod, SpinnerPod)
    }
    assert spinning["quiet", "batch"] == [0, 0, 1, 1, 0, 0, 0]
    assert spinning["runaway", "wild"] == [0, 0, 3, 3, 3, 0, 0]
    assert spinning["noisy-neighbour", "batch"] == [0, 6, 6, 6, 0, 6, 6]
