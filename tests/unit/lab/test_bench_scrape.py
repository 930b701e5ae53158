"""The scrape benchmark: its pages are what it says, its client takes them all in, and its figures follow the rounds."""

import gzip
import json
import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lab.bench_pages import KINDS, METRIC, SAMPLES, page_of, serving
from lab.bench_scrape import Figure, Round, collect_rounds, figures_of, measure, show

BUCKET = f"{METRIC}_bucket"


def samples(page: str) -> list:
    return [sample for family in text_string_to_metric_families(page) for sample in family.samples]


def text_of(kind: str, pod: int, scrape: int) -> str:
    body = page_of(kind)(pod, scrape)
    return (gzip.decompress(body) if kind == "usual-gzip" else body).decode()


def label_texts(page: str) -> set[str]:
    return set(re.findall(r"\{(.*),le=", page))


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_every_kind_has_2000_samples_and_a_series_only_once(kind):
    found = samples(text_of(kind, 1, 3))
    assert len(found) == SAMPLES == 2000
    assert len({(sample.name, *sorted(sample.labels.items())) for sample in found}) == 2000


def test_a_usual_page_has_12_series_of_14_latency_buckets_among_other_metrics():
    found = samples(text_of("usual", 0, 0))
    latency = [sample for sample in found if sample.name == BUCKET]
    assert len(latency) == 12 * 14
    assert len({(sample.labels["method"], sample.labels["route"]) for sample in latency}) == 12
    assert len({sample.name for sample in found}) > 40


def test_gzip_is_the_usual_page():
    assert text_of("usual-gzip", 5, 2) == text_of("usual", 5, 2)


@pytest.mark.parametrize("kind", ["buckets", "buckets-own-label"])
def test_nothing_but_latency_buckets_in_125_series(kind):
    page = text_of(kind, 7, 0)
    assert {sample.name for sample in samples(page)} == {BUCKET}
    assert len(label_texts(page)) == 125


def test_label_texts_are_the_pods_own_only_where_the_kind_says_so():
    assert label_texts(text_of("buckets", 1, 0)) == label_texts(text_of("buckets", 2, 0))
    assert label_texts(text_of("buckets-own-label", 1, 0)).isdisjoint(label_texts(text_of("buckets-own-label", 2, 0)))
    assert label_texts(text_of("buckets-own-label", 1, 0)) == label_texts(text_of("buckets-own-label", 1, 1))


def test_the_hostile_pod_is_one_and_keeps_one_of_2000_series():
    first, second = (text_of("one-hostile", 0, scrape) for scrape in (0, 1))
    assert first.count(BUCKET) == 10_000
    assert len(label_texts(first)) == 2000
    assert label_texts(first) & label_texts(second) == {'session="first",route="/"'}
    assert text_of("one-hostile", 1, 0) == text_of("usual", 1, 0)


@pytest.mark.parametrize("kind", KINDS)
def test_buckets_are_cumulative_and_all_of_them_grow_from_scrape_to_scrape(kind):
    before, after = (
        [sample for sample in samples(text_of(kind, 1, scrape)) if sample.name == BUCKET] for scrape in (0, 1)
    )
    assert all(old.labels == new.labels and old.value < new.value for old, new in zip(before, after, strict=True))
    series: dict[tuple, list[tuple[float, float]]] = {}
    for sample in after:
        key = tuple(value for name, value in sample.labels.items() if name != "le")
        series.setdefault(key, []).append((float(sample.labels["le"]), sample.value))
    assert all(line == sorted(line) and sorted(n for _, n in line) == [n for _, n in line] for line in series.values())


@pytest.mark.parametrize("kind", KINDS)
async def test_the_client_takes_in_every_page_of_every_pod(kind):
    async with serving(kind, 3) as ports:
        rounds = await collect_rounds(ports, 2)
    assert [(each.missing, each.errors) for each in rounds] == [(0, []), (0, [])]
    assert all(each.cpu > 0 and each.wall > 0 and each.rss_mib > 1 for each in rounds)


async def test_a_pod_that_does_not_answer_is_counted_with_its_reason():
    async with serving("usual", 1) as gone:
        pass
    async with serving("usual", 2) as ports:
        rounds = await collect_rounds([*ports, *gone], 2)
    assert [each.missing for each in rounds] == [1, 1]
    (word,) = rounds[1].errors
    assert word.startswith("unreachable: ")
    assert "Connection refused" in word


async def test_server_and_client_are_processes_of_their_own_and_half_stopped_ones_come_to_an_end():
    rounds = await measure("usual", pods=2, rounds=2, is_halved=True)
    assert [each.missing for each in rounds] == [0, 0]


def test_figures_of_rounds_put_the_first_apart_and_take_the_costliest_pair():
    cpus = (0.9, 0.4, 0.5, 1.0)
    rounds = [Round(cpu, cpu + 1, missing, 50.0 + cpu) for cpu, missing in zip(cpus, (0, 3, 0, 1), strict=True)]
    figures = {figure.name.partition(": ")[2]: figure.value for figure in figures_of("usual", rounds)}
    assert figures == pytest.approx(
        {
            "pods missing, worst round": 3,
            "first round": 900,
            "later rounds": 500,
            "later rounds, wall time": 1500,
            "costliest cycle of two rounds": 1.5,
            "memory added after round 1": 0.1,
        }
    )


def test_a_cycle_over_half_a_core_and_a_missing_pod_are_over_budget(monkeypatch):
    def verdicts(cpu: float, missing: int) -> dict[str, str]:
        rounds = [Round(cpu, cpu, missing, 50.0)] * 2
        return {figure.name.partition(": ")[2]: figure.verdict for figure in figures_of("usual", rounds)}

    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1})
    assert verdicts(1.25, 0)["costliest cycle of two rounds"] == "within"
    assert verdicts(1.26, 0)["costliest cycle of two rounds"] == "OVER"
    assert verdicts(0.1, 0)["pods missing, worst round"] == "within"
    assert verdicts(0.1, 1)["pods missing, worst round"] == "OVER"
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0})
    assert not verdicts(0.1, 1)["pods missing, worst round"]  # the server has no CPU of its own: nobody is judged


def test_show_prints_and_writes_every_figure_and_fails_over_a_budget(tmp_path, capsys):
    kept, over, plain = (
        Figure("kept", 1.0, "ms", 1.0),
        Figure("over it", 2.0, "s CPU", 1.5),
        Figure("plain", 3.0, "MiB"),
    )
    assert show([kept, plain], tmp_path / "figures.json") == 0
    assert json.loads((tmp_path / "figures.json").read_text()) == [
        {"name": "kept", "value": 1.0, "unit": "ms", "budget": 1.0},
        {"name": "plain", "value": 3.0, "unit": "MiB", "budget": None},
    ]
    capsys.readouterr()
    assert show([kept, over], None) == 1
    assert capsys.readouterr().out.splitlines() == [
        "kept          1.00 ms  budget 1: within",
        "over it       2.00 s CPU  budget 1.5: OVER",
    ]
