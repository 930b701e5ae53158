"""Histograms for every set of counts: quantiles and fractions behave, merging is a sum."""

import math

from hypothesis import given
from hypothesis import strategies as st

from services.collector.core.histogram import added, merge, over, quantile, total

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


@given(histograms(least=1), limits, limits)
def test_the_fraction_over_a_limit_is_one_and_falls_with_the_limit(buckets, one, other):
    low, high = over(buckets, min(one, other)), over(buckets, max(one, other))
    assert low is not None
    assert high is not None
    assert 0.0 <= high <= low + 1e-9 <= 1.0 + 2e-9


@given(histograms(least=1), ratios)
def test_as_many_are_over_a_quantile_as_it_says(buckets, q):
    found = quantile(buckets, q)
    assert found is not None
    fraction = over(buckets, found.seconds)
    assert fraction is not None
    if not found.saturated and found.seconds > 0:
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


@given(
    st.dictionaries(st.tuples(st.sampled_from("ab")), histograms(), max_size=2),
    st.dictionaries(st.tuples(st.sampled_from("ab")), histograms(), max_size=2),
)
def test_whatever_two_pages_say_the_difference_is_a_histogram(before, now):
    found = added(before, now)
    if found is None:
        return
    counts = [found[bound] for bound in sorted(found)]
    assert counts == sorted(counts)
    assert all(count >= 0 for count in counts)


@given(
    st.dictionaries(st.sampled_from([*BOUNDS, INF]), st.floats(0, 1e9)),
    ratios,
    limits,
)
def test_even_contradictory_counts_give_numbers_or_none(buckets, q, limit):
    found, fraction = quantile(buckets, q), over(buckets, limit)
    assert found is None or math.isfinite(found.seconds)
    assert fraction is None or 0.0 <= fraction <= 1.0
