"""The belief against its own formula, written out plainly."""

import numpy as np
import pytest

from services.decider.core.belief import MOST_SOLVED, Belief


def plain(belief, lessons, pull, vectors):
    """Mean and width of each vector by the formulas of the module's text, lesson by lesson."""
    v = belief.precision.copy()
    w, moment = v.copy(), pull.copy()
    for age, (vector, reward, part) in enumerate(reversed(lessons)):
        kept = belief.discount**age * part
        v += kept * np.outer(vector, vector)
        w += belief.discount ** (2 * age) * part**2 * np.outer(vector, vector)
        moment += kept * vector * reward
    inverse = np.linalg.inv(v)
    covariance = inverse @ w @ inverse
    return vectors @ inverse @ moment, np.sqrt([vector @ covariance @ vector for vector in vectors])


@pytest.mark.parametrize(("terms", "names"), [(1, 1), (16, 6), (16, 25), (5, 1), (1, 7)])
def test_means_and_widths_are_those_of_the_plain_way(terms, names):
    rng = np.random.default_rng(terms + names)
    size = terms * names
    prior = rng.normal(size=size)
    root = rng.normal(size=(size, size))
    precision = root @ root.T / size + 0.5 * np.eye(size)
    belief = Belief(precision, prior, 0.9)
    lessons = [(rng.normal(size=size), float(rng.normal()), 1.0) for _ in range(12)]
    for vector, reward, _ in lessons:
        belief.learn(vector, reward)
    asked, context = rng.normal(size=(15, terms)), rng.normal(size=names)
    vectors = np.stack([np.outer(row, context).ravel() for row in asked])
    means, widths = plain(belief, lessons, precision @ prior, vectors)
    found_means, found_widths = belief.about(asked, context)
    assert found_means == pytest.approx(means, rel=1e-9, abs=1e-9)
    assert found_widths == pytest.approx(widths, rel=1e-9)
    assert belief.expect(asked, context).tolist() == found_means.tolist()


def test_what_is_forgotten_counts_less_and_the_prior_as_ever():
    rng = np.random.default_rng(5)
    belief = Belief(0.5 * np.eye(6), np.zeros(6), 0.9)
    lessons = [(rng.normal(size=6), float(rng.normal()), 0.2) for _ in range(4)]
    for vector, reward, _ in lessons:
        belief.learn(vector, reward)
    belief.forget(0.2)
    terms, context = rng.normal(size=(3, 2)), rng.normal(size=3)
    vectors = np.stack([np.outer(row, context).ravel() for row in terms])
    means, widths = plain(belief, lessons, np.zeros(6), vectors)
    found = belief.about(terms, context)
    assert found[0] == pytest.approx(means)
    assert found[1] == pytest.approx(widths)


@pytest.mark.parametrize("size", [4, 2 * (MOST_SOLVED // 2 + 1)])
@pytest.mark.parametrize("lowest", [1.0, 0.0, -1.0])
def test_a_precision_that_no_prior_may_have_still_gives_numbers(size, lowest):
    belief = Belief(np.diag([lowest, 0.0] * (size // 2)), np.zeros(size), 1.0)
    terms, context = np.eye(2), np.ones(size // 2)
    asked = belief.about(terms, context)
    belief.learn(np.eye(size)[0], 0.5)
    for means, widths in (asked, belief.about(terms, context)):
        assert np.isfinite(means).all()
        assert np.isfinite(widths).all()


def test_a_direction_without_a_prior_is_answered_by_the_lessons_in_it():
    belief = Belief(np.zeros((2, 2)), np.zeros(2), 1.0)
    belief.learn(np.array([1.0, 0.0]), 0.5)
    means, widths = belief.about(np.eye(2), np.ones(1))
    assert means == pytest.approx([0.5, 0.0])
    assert widths == pytest.approx([1.0, 0.0])
