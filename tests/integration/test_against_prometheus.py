"""Our quantiles beside those of PromQL's `histogram_quantile`, of a real Prometheus that holds the very same lines.

Several hundred generated cases, each a class of one to four pods that are scraped twice: the lines go to Prometheus
with their timestamps, and page by page through the collector's own path. PromQL is not asked for `increase`, which
extrapolates, but for what that starts from: the difference, or all there is where a bucket went back or is new.

Not compared, since they differ on purpose (the last tests say how): buckets that not all pods have, a missing `+Inf`, a
series in which some buckets went back and others did not, and counts that contradict each other in one of several
series. A pod's first scrape is left out too: we add nothing, and the difference asked for here would count all of it.
The pages carry no `_sum`, so that no case is turned away for its unit.
"""

import math
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from services.collector.core.exposition import Exposition, LabelTexts
from services.collector.core.histogram import added, merge, quantile
from services.collector.core.latency import LatencyWindows
from services.collector.core.latency_source import UNITS_PER_SECOND, find_latency
from services.collector.core.page import HistogramPage
from tests.support.prometheus import WHY_NOT, Prometheus, prometheus

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

INF = math.inf
METRIC = "http_latency"
FIRST, SECOND = 1_700_000_000, 1_700_000_060
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
REPORTED = ("p50", "p95", "p99")
WITHIN = 1e-9
CASES_PER_SHAPE = 48

Counts = dict[float, float]
Pod = dict[str, Counts]
"""Cumulative counts by bound and by series, which is its route."""


@dataclass(frozen=True)
class Case:
    """A class of pods at two moments. `spelled` says how each pod writes each bound."""

    name: str
    shape: str
    unit: str
    first: Mapping[str, Pod]
    second: Mapping[str, Pod]
    spelled: Mapping[str, Callable[[float], str]]

    @property
    def per_second(self) -> float:
        return UNITS_PER_SECOND[self.unit]

    @property
    def finite(self) -> list[float]:
        """The finite bounds, as they stand on the pages."""
        return sorted({bound for pod in self.second.values() for c in pod.values() for bound in c if bound != INF})

    @property
    def several_spellings(self) -> bool:
        """Then `sum by (le)` gives several series for a bound, which only `histogram_quantile` puts together."""
        return any(len({spell(bound) for spell in self.spelled.values()}) > 1 for bound in self.finite)

    def lines(self, uid: str, pod: Pod, at: int) -> str:
        """What the pod answers, but for the end."""
        spell = self.spelled[uid]
        text = f"# TYPE {METRIC} histogram\n"
        for route, counts in pod.items():
            labels = f'case="{self.name}",pod="{uid}",route="/v1/{{{route}}}"'
            for bound, count in counts.items():
                text += f'{METRIC}_bucket{{{labels},le="{spell(bound)}"}} {count:.17g} {at}\n'
            text += f"{METRIC}_count{{{labels}}} {max(counts.values()):.17g} {at}\n"
        return text


def even(rng, n):
    return [rng.randint(0, 1000) for _ in range(n)]


def skewed(rng, n):
    return [int(10 ** rng.uniform(0, 9)) for _ in range(n)]


def sparse(rng, n):
    return [rng.randint(1, 50) if rng.random() < 0.2 else 0 for _ in range(n)]


def all_in_the_first(rng, n):
    return [rng.randint(1, 10_000), *[0] * (n - 1)]


def all_beyond_the_last(rng, n):
    return [*[0] * (n - 1), rng.randint(1, 10_000)]


def one_observation(rng, n):
    place = rng.randrange(n)
    return [int(i == place) for i in range(n)]


def none_at_all(rng, n):
    return [0] * n


def quantiles_on_bounds(rng, n):
    """The P50, P90, P95 and P99 of these fall on bounds, where there are enough of those."""
    times, parts = rng.randint(1, 40), [50, 40, 5, 4, 1]
    parts = [*parts[: n - 1], sum(parts[n - 1 :])] if n < len(parts) else [*parts, *[0] * (n - len(parts))]
    return [times * part for part in parts]


SHAPES = (
    even,
    skewed,
    sparse,
    all_in_the_first,
    all_beyond_the_last,
    one_observation,
    none_at_all,
    quantiles_on_bounds,
)


def bounds_of(rng) -> list[float]:
    n = rng.randint(2, 30)
    start = 10 ** rng.uniform(-4, 1)
    kinds = [
        [0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0],
        [start * 2**i for i in range(n)],
        [start * (i + 1) for i in range(n)],
        [rng.uniform(0, 10) for _ in range(n)],
        [0.0, *(10 ** rng.uniform(-3, 3) for _ in range(n - 1))],
        [10 ** rng.uniform(-12, 12) for _ in range(n)],
        [1e-300, 1e-9, 1e9, 1e300],
        [0.1, 0.1 + 2**-50],
    ]
    return sorted(set(rng.choice(kinds)))


def cumulative(bounds, counts) -> Counts:
    so_far, found = 0, {}
    for bound, count in zip([*bounds, INF], counts, strict=True):
        so_far += count
        found[bound] = float(so_far)
    return found


def plus(one: Counts, other: Counts) -> Counts:
    return {bound: one[bound] + other[bound] for bound in one}


def plain(bound: float) -> str:
    return "+Inf" if bound == INF else repr(bound)


def spelling(rng) -> Callable[[float], str]:
    """A way to write bounds that means the same numbers, and stays the same for a pod."""
    shape = rng.choice(["{:g}", "{:.3f}", "{:.17e}"])

    def spell(bound: float) -> str:
        text = shape.format(bound)
        return text if bound != INF and float(text) == bound else plain(bound)

    return spell


def grown(rng, name: str, shape) -> Case:
    """Pods that serve on, with what happens to pods: series come and go, a pod goes, a series begins anew."""
    bounds = bounds_of(rng)
    first: dict[str, Pod] = {}
    second: dict[str, Pod] = {}
    pods = [f"p{i}" for i in range(rng.randint(1, 4))]
    for uid in pods:
        first[uid], second[uid] = {}, {}
        for i in range(rng.choice([1, 1, 2, 3])):
            before = cumulative(bounds, rng.choice([even, skewed, none_at_all])(rng, len(bounds) + 1))
            new = cumulative(bounds, shape(rng, len(bounds) + 1))
            happens = rng.choice(["grows", "grows", "grows", "resets", "comes", "goes"])
            if happens == "resets":  # every bucket goes back
                before = {bound: count + new[INF] + 1 for bound, count in before.items()}
            if i == 0 or happens != "comes":
                first[uid][f"r{i}"] = before
            if i == 0 or happens != "goes":
                second[uid][f"r{i}"] = plus(before, new) if happens in {"grows", "goes"} or i == 0 else new
            if i == 0 and happens == "resets":
                second[uid][f"r{i}"] = new
    if len(pods) > 1 and rng.random() < 0.2:
        del second[pods[-1]]
    mixed = rng.random() < 0.2
    spelled = {uid: spelling(rng) if mixed else plain for uid in pods}
    unit = rng.choice(["seconds", "seconds", "milliseconds"])
    return Case(name, shape.__name__, unit, first, second, spelled)


def torn(rng, name: str) -> Case:
    """One series of a page that was written while it was counted: a bucket may hold less than the one below it."""
    bounds = bounds_of(rng)
    before = cumulative(bounds, even(rng, len(bounds) + 1))
    new = cumulative(bounds, rng.choice([even, sparse, skewed])(rng, len(bounds) + 1))
    new = {bound: max(0.0, count - rng.choice([0, 0, 1, 2, count])) for bound, count in new.items()}
    pods = {"p0": {"r0": before}}, {"p0": {"r0": plus(before, new)}}
    return Case(name, "torn", "seconds", *pods, {"p0": plain})


def generated() -> list[Case]:
    rng = random.Random(20_260_301)
    cases = []
    for i in range(CASES_PER_SHAPE):
        cases.extend(grown(rng, f"{shape.__name__}-{i}", shape) for shape in SHAPES)
        cases.append(torn(rng, f"torn-{i}"))
    return cases


def literal(name: str, first: Mapping[str, Pod], second: Mapping[str, Pod]) -> Case:
    return Case(name, "literal", "seconds", first, second, dict.fromkeys(first, plain))


CASES = generated()
UNCOMMON = literal(
    "uncommon",
    {"a": {"r": {0.1: 0, 1.0: 0, INF: 0}}, "b": {"r": {0.5: 0, 1.0: 0, INF: 0}}},
    {"a": {"r": {0.1: 100, 1.0: 100, INF: 100}}, "b": {"r": {0.5: 50, 1.0: 100, INF: 100}}},
)
ENDLESS = literal("endless", {"a": {"r": {0.1: 0, 1.0: 0}}}, {"a": {"r": {0.1: 50, 1.0: 100}}})
HALF_RESET = literal(
    "half_reset",
    {"a": {"r": {0.1: 500, 1.0: 600, INF: 600}}},
    {"a": {"r": {0.1: 300, 1.0: 700, INF: 800}}},
)
TWO_TORN = literal(
    "two_torn",
    {"a": {"r": {0.1: 0, 1.0: 0, INF: 0}, "s": {0.1: 0, 1.0: 0, INF: 0}}},
    {"a": {"r": {0.1: 40, 1.0: 20, INF: 40}, "s": {0.1: 0, 1.0: 60, INF: 60}}},
)
APART = (UNCOMMON, ENDLESS, HALF_RESET, TWO_TORN)


def counted(buckets: str = "") -> str:
    """PromQL for what was added, over the buckets that this matches: by bound and by case."""
    now, before = (f"{METRIC}_bucket{{{buckets}}} @ {at}" for at in (SECOND, FIRST))
    return f"sum by (le, case) ({now} - {before} >= 0 or {now})"


ALL, WITHIN_BOUNDS = counted('le="+Inf"'), counted('le!="+Inf"')


@dataclass(frozen=True)
class World:
    """The server and our own windows, which saw the same lines."""

    server: Prometheus
    windows: LatencyWindows
    pages: tuple[Mapping[str, HistogramPage], Mapping[str, HistogramPage]]

    def theirs(self, promql: str) -> dict[str, float]:
        """By case."""
        return {labels["case"]: value for labels, value in self.server.query(promql, SECOND)}

    def delta(self, case: Case) -> Counts:
        """Ours: what a class's pods added."""
        before, now = self.pages
        uids = [f"{case.name}/{uid}" for uid in case.second]
        return merge(part for uid in uids if (part := added(before[uid].series, now[uid].series)) is not None)


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Iterator[World]:
    labels = LabelTexts(is_openmetrics=True)
    windows = LatencyWindows(min_requests=1, max_window_seconds=60.0)
    text, collections = "", []
    for at in (FIRST, SECOND):
        pages = {}
        for case in (*CASES, *APART):
            for uid, pod in (case.first if at == FIRST else case.second).items():
                lines = case.lines(uid, pod, at)
                page = find_latency(Exposition(f"{lines}# EOF\n", labels), METRIC, case.unit, ())
                pages[f"{case.name}/{uid}"] = case.name, page
                text += lines
        windows.add(None if at == FIRST else float(SECOND - FIRST), pages)
        collections.append({uid: page for uid, (_, page) in pages.items()})
    header = f"# TYPE {METRIC} histogram\n"
    text = header + text.replace(header, "") + "# EOF\n"
    with prometheus(tmp_path_factory.mktemp("prometheus"), text) as server:
        yield World(server, windows, tuple(collections))


def difference(ours: float, theirs: float) -> float:
    """Relative to the larger of the two."""
    return 0.0 if ours == theirs else abs(ours - theirs) / max(abs(ours), abs(theirs))


def test_the_cases_hold_what_they_promise():
    assert {case.shape for case in CASES} == {*(shape.__name__ for shape in SHAPES), "torn"}
    assert {len(case.first) for case in CASES} == {1, 2, 3, 4}
    assert min(len(case.finite) for case in CASES) == 2
    assert max(len(case.finite) for case in CASES) == 30
    series = [(case.first[uid], case.second[uid]) for case in CASES for uid in case.second]
    assert sum(bool(now.keys() - before.keys()) for before, now in series) > 50
    assert sum(bool(before.keys() - now.keys()) for before, now in series) > 50
    assert sum(any(now[r][INF] < before[r][INF] for r in now.keys() & before.keys()) for before, now in series) > 50
    assert sum(case.first.keys() != case.second.keys() for case in CASES) > 20
    assert sum(case.several_spellings for case in CASES) > 20
    decreasing = [
        counts for case in CASES for pod in case.second.values() for counts in pod.values() if not is_monotone(counts)
    ]
    assert len(decreasing) > 10


def is_monotone(counts: Counts) -> bool:
    in_order = [counts[bound] for bound in sorted(counts)]
    return in_order == sorted(in_order)


def test_quantiles_of_what_was_added_are_those_of_histogram_quantile(world, record_property):
    """Also what a class's message says, which holds three of the four."""
    largest, compared = 0.0, 0
    for label, q in QUANTILES.items():
        theirs = world.theirs(f"histogram_quantile({q}, {counted()})")
        for case in CASES:
            latency = world.windows.latency(case.name, None, may_grow=False)
            ours = quantile(world.delta(case), q)
            if math.isnan(theirs[case.name]):
                assert ours is None, (case.name, label)
                assert latency.reason == "idle", (case.name, label)
                continue
            assert ours is not None, (case.name, label)
            seconds = theirs[case.name] / case.per_second
            largest, compared = max(largest, difference(ours.seconds, seconds)), compared + 1
            assert difference(ours.seconds, seconds) < WITHIN, (case.name, label)
            if ours.saturated:
                assert theirs[case.name] == case.finite[-1], (case.name, label)
                assert ours.seconds == seconds, (case.name, label)
            if label in REPORTED:
                assert getattr(latency, f"{label}_seconds") == ours.seconds, (case.name, label)
                assert (label in latency.saturated) == ours.saturated, (case.name, label)
    assert compared > len(CASES) * len(QUANTILES) * 3 / 4
    pods = sum(len(case.second) for case in CASES)
    text = f"{len(CASES)} histograms of {pods} pods, {compared} quantiles"
    record_property("figure", f"Prometheus {world.server.version()}: {text}, largest relative difference {largest:.3g}")


def test_a_quantile_is_a_lower_bound_where_promql_counts_it_beyond_the_last_bound(world):
    beyond = 0
    for q in QUANTILES.values():
        theirs = world.theirs(f"{q} * max by (case) ({ALL}) > bool max by (case) ({WITHIN_BOUNDS})")
        for case in CASES:
            ours = quantile(world.delta(case), q)
            if ours is not None and not case.several_spellings:
                assert ours.saturated == (theirs[case.name] == 1.0), (case.name, q)
                beyond += ours.saturated
    assert beyond > 100


def test_the_fraction_over_an_objective_that_is_a_bound_is_exact(world, record_property):
    """Where the counts do not contradict each other, which PromQL would repair in `histogram_quantile` alone."""
    found = world.server.query(f"1 - {WITHIN_BOUNDS} / on (case) group_left sum by (case) ({ALL})", SECOND)
    theirs = {(labels["case"], float(labels["le"])): value for labels, value in found}
    compared = 0
    for case in CASES:
        if case.several_spellings or case.shape == "torn":
            continue
        for bound in case.finite:
            latency = world.windows.latency(case.name, bound / case.per_second, may_grow=False)
            fraction = theirs[case.name, bound]
            if math.isnan(fraction):
                assert latency.reason == "idle", (case.name, bound)
            elif bound > 0:  # an objective is
                assert latency.over_ratio == fraction, (case.name, bound)
                compared += 1
    assert compared > 1000
    record_property("figure", f"Prometheus {world.server.version()}: {compared} fractions over a bound, all equal")


def medians(world: World, case: Case) -> tuple[float | None, float]:
    """Ours and theirs."""
    ours = quantile(world.delta(case), 0.5)
    buckets = f'case="{case.name}"'
    return ours and ours.seconds, world.theirs(f"histogram_quantile(0.5, {counted(buckets)})")[case.name]


def test_apart_where_pods_have_other_buckets_we_keep_to_those_that_all_have(world):
    """PromQL adds up what there is, and the pod without a bucket seems to have nothing in it."""
    assert medians(world, UNCOMMON) == (0.5, 0.1)


def test_apart_where_there_is_no_inf_bucket_we_take_the_count(world):
    ours, theirs = medians(world, ENDLESS)
    assert ours == 0.1
    assert math.isnan(theirs)


def test_apart_where_one_bucket_went_back_we_begin_the_whole_series_anew(world):
    """PromQL begins each bucket for itself, and mixes 300 of a new life with 100 and 200 of a difference."""
    assert medians(world, HALF_RESET) == pytest.approx((0.325, 0.05))


def test_apart_where_one_of_several_series_contradicts_itself_we_mend_that_one(world):
    """PromQL mends the sum, where the others have covered the dent."""
    assert medians(world, TWO_TORN) == pytest.approx((0.25, 0.325))
