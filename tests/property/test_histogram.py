"""Histograms for every set of counts: quantiles and fractions behave, merging is a sum."""

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import decode, encode
from schemas.messages import ClassState
from services.collector.core.histogram import added, merge, over, quantile, total
from services.collector.core.latency import LatencyWindows
from services.collector.core.page import HistogramPage, SummaryPage, SummarySeries
from tests.support.builders import state

INF = math.inf
BOUNDS = (0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0)


@st.composite
def histograms(draw, *, bounds=None, least=0):
    """Cumulative counts over some of the usual bounds."""
    chosen = bounds or draw(st.lists(st.sampled_from(BOUNDS), unique=True, min_size=1))
    counts = draw(st.lists(st.integers(0, 1000), min_size=len(chosen) + 1, max_size=len(chosen) + 1))
    found, so_far = {}, least
    for bound, count in zip([*sorted(chosen), INF], counts, strict=True):
        so_far += count
        found[bound] = float(so_far)
    return found


@st.composite
def growing(draw):
    """One series at three moments, never reset."""
    first = draw(histograms())
    steps = [draw(histograms(bounds=[bound for bound in first if bound != INF])) for _ in range(2)]
    second = {bound: first[bound] + steps[0][bound] for bound in first}
    return first, second, {bound: second[bound] + steps[1][bound] for bound in first}


ratios = st.floats(0.0, 1.0)
limits = st.floats(-1.0, 100.0)


@given(histograms(), ratios)
def test_a_quantile_lies_within_the_bounds_and_is_finite(buckets, q):
    found = quantile(buckets, q)
    if total(buckets) == 0:
        assert found is None
        return
    assert found is not None
    assert 0.0 <= found.seconds <= max(bound for bound in buckets if bound != INF)


@given(histograms(least=1), ratios, ratios)
def test_quantiles_grow_with_q(buckets, one, other):
    low, high = quantile(buckets, min(one, other)), quantile(buckets, max(one, other))
    assert low is not None
    assert high is not None
    assert low.seconds <= high.seconds + 1e-9
    assert high.saturated >= low.saturated


def last(buckets):
    return max(bound for bound in buckets if bound != INF)


@given(histograms(least=1), limits, limits)
def test_the_fraction_over_a_limit_falls_with_the_limit_and_is_unknown_only_beyond_the_last_bound(buckets, one, other):
    low, high = over(buckets, min(one, other)), over(buckets, max(one, other))
    for limit, fraction in ((min(one, other), low), (max(one, other), high)):
        is_open = limit > last(buckets) and buckets[INF] > buckets[last(buckets)]
        assert (fraction is None) is is_open
        assert fraction is None or 0.0 <= fraction <= 1.0
    if low is not None and high is not None:
        assert high <= low + 1e-9


@given(histograms(least=1), ratios)
def test_as_many_are_over_a_quantile_as_it_says(buckets, q):
    found = quantile(buckets, q)
    assert found is not None
    fraction = over(buckets, found.seconds)
    assert fraction is not None
    if not found.saturated:
        assert fraction <= 1.0 - q + 1e-6
    if found.saturated:
        assert fraction >= 1.0 - q - 1e-6


@given(st.lists(histograms(), min_size=3, max_size=3))
def test_merging_is_associative_and_commutative(three):
    a, b, c = three
    assert merge([merge([a, b]), c]) == merge([a, merge([b, c])]) == merge([c, b, a]) == merge([a, b, c])


@given(st.lists(histograms(), max_size=5))
def test_merging_loses_no_observation_and_stays_cumulative(parts):
    found = merge(parts)
    assert total(found) == sum(total(part) for part in parts)
    counts = [found[bound] for bound in sorted(found)]
    assert counts == sorted(counts)


@given(growing())
def test_two_windows_add_up_to_the_one_over_both(three):
    first, second, third = ({(): buckets} for buckets in three)
    parts = [added(first, second), added(second, third)]
    whole = added(first, third)
    assert whole is not None
    assert merge(part for part in parts if part) == whole


keys = st.tuples(st.sampled_from("abc"))
pages = st.dictionaries(keys, histograms(), max_size=3)


@given(pages, pages, st.sets(keys))
def test_whatever_two_pages_say_the_difference_is_a_histogram(before, now, gone):
    found = added(before, now, gone - before.keys())
    if found is None:
        return
    counts = [found[bound] for bound in sorted(found)]
    assert counts == sorted(counts)
    assert all(count >= 0 for count in counts)


def served(counts):
    """A page of one pod whose series were asked so often, half of them quick."""
    return HistogramPage("m_seconds", {(key,): {0.1: n // 2, 1.0: n, INF: n} for key, n in counts.items()})


@given(st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 50)), min_size=1, max_size=12), st.booleans())
def test_windows_count_what_was_served_after_the_first_page_where_nothing_was_reset_or_missed(steps, is_declared_only):
    windows, counts, counted, first = LatencyWindows(1, 1e9), {} if is_declared_only else {"a": 0}, 0, None
    for number, step in enumerate(steps):
        for key, n in step.items():  # a series is made when it is asked first, and stays
            counts[key] = counts.get(key, 0) + n
        windows.add(5.0 if number else None, {"uid": ("api", served(counts))})
        first = sum(counts.values()) if first is None else first
        counted += windows.latency("api", None, may_grow=False).requests
    assert counted == sum(counts.values()) - first


texts = st.sampled_from(["m_seconds", "n_seconds"])
wild_counts = st.floats(0, 1e308)
wild_pages = st.dictionaries(
    keys,
    st.builds(
        lambda finite, most: {**finite, INF: most},
        st.dictionaries(st.sampled_from((0.0, *BOUNDS, 1e308)), wild_counts, max_size=4),
        wild_counts,
    ),
    max_size=3,
)
any_page = st.one_of(
    st.builds(HistogramPage, texts, st.one_of(pages, wild_pages)),
    st.builds(
        SummaryPage,
        texts,
        st.dictionaries(
            keys,
            st.builds(
                SummarySeries,
                st.floats(0, 1e308),
                st.dictionaries(st.sampled_from([0.5, 0.95, 0.99]), st.floats(0, 1e308)),
            ),
            max_size=3,
        ),
    ),
)
collections = st.tuples(
    st.floats(1e-3, 1e4), st.dictionaries(st.sampled_from("xyz"), st.tuples(st.sampled_from(["api", "web"]), any_page))
)


@given(st.lists(collections, max_size=8), st.booleans(), st.sampled_from([None, 0.1, 100.0]))
def test_whatever_pods_say_latency_is_finite_or_unknown_with_a_reason(rounds, may_grow, objective):
    windows = LatencyWindows(5, 100.0)
    for number, (elapsed, found) in enumerate(rounds):
        windows.add(elapsed if number else None, found)
        for name in ("api", "web"):
            latency = windows.latency(name, objective, may_grow=may_grow)
            assert decode(encode(state(classes={"api": ClassState(latency=latency)}))).classes["api"].latency == latency
            assert latency.requests >= 0
            assert latency.reason is not None or latency.p99_seconds is not None
            assert latency.over_ratio is None or 0.0 <= latency.over_ratio <= 1.0
            known = [n for n in (latency.p50_seconds, latency.p95_seconds, latency.p99_seconds) if n is not None]
            if latency.source == "histogram":
                assert all(low <= high * (1 + 1e-9) for low, high in pairwise(known))


@given(
    st.dictionaries(st.sampled_from([*BOUNDS, INF]), st.floats(0, 1e9)),
    ratios,
    limits,
)
def test_even_contradictory_counts_give_numbers_or_none(buckets, q, limit):
    found, fraction = quantile(buckets, q), over(buckets, limit)
    assert found is None or math.isfinite(found.seconds)
    assert fraction is None or 0.0 <= fraction <= 1.0
