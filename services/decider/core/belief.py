"""Owns a discounted Bayesian belief about a linear reward: prior, lessons, means and widths. Numbers only.

With prior precision P, prior weights u, discount g and lessons (x, r, c), c the part that a lesson counts:
    V = P + sum g^(n-i) c x x'     W = P + sum g^(2(n-i)) c^2 x x'     w = V^-1 (P u + sum g^(n-i) c x r)
    mean = w.x     width = sqrt(x' V^-1 W V^-1 x)
Discount and width are D-LinUCB's (Russac, Vernade, Cappé, NeurIPS 2019, algorithm 1). The width is that of the mean
alone: it goes to zero as lessons come in. P is added anew in every solve and never decays: a direction that was not
seen for long returns to the prior, not to infinity (RV-03).

No inverse is made: V = LL' is factored once a lesson, and what is asked is solved by L. Where that would take too long
for a decision, V^-1 W V^-1 is worked out with the lesson.
"""

from typing import Final, cast

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

MOST_SOLVED: Final = 128
"""Largest size of which a decision solves what it asks: 20 µs more for the decision, 200 less for the lesson at 96. The
work grows with the square of the size, and at 400 would cost a decision 0.3 ms."""

Floats = npt.NDArray[np.float64]


class Belief:
    """About rewards of vectors of `size` numbers. `precision` is P (symmetric, positive), `weights` are u.

    A vector is terms ⊗ context: what is asked is asked of many terms in one context.
    """

    def __init__(self, precision: Floats, weights: Floats, discount: float) -> None:
        self.size = len(weights)
        self.precision = precision
        self.discount = discount
        self._pull = precision @ weights
        self.gram: Floats = np.zeros((self.size, self.size))
        self.gram_squared: Floats = np.zeros((self.size, self.size))
        self.moment: Floats = np.zeros(self.size)
        self._sums: Floats = np.empty((2, self.size, self.size))  # V and W as solved last
        self._solved: _Solved | None = None

    def learn(self, vector: Floats, reward: float) -> None:
        """One lesson; all earlier ones count `discount` as much as before."""
        outer = np.dot(vector[:, None], vector[None, :])  # each is one product; `*` takes thrice as long
        self.gram *= self.discount  # in place: new matrices cost as much as the sums
        self.gram += outer
        self.gram_squared *= self.discount**2
        self.gram_squared += outer
        self.moment = self.discount * self.moment + vector * reward
        self._solved = None
        self._solve()  # now, when nobody waits for a decision

    def forget(self, kept_ratio: float) -> None:
        """All lessons so far count `kept_ratio` as much as before (0-1)."""
        self.gram = kept_ratio * self.gram
        self.gram_squared = kept_ratio**2 * self.gram_squared
        self.moment = kept_ratio * self.moment
        self._solved = None

    def replace(self, gram: Floats, gram_squared: Floats, moment: Floats) -> None:
        """Other lessons, as sums. They are its own from then on."""
        self.gram, self.gram_squared, self.moment = gram, gram_squared, moment
        self._solved = None

    def expect(self, terms: Floats, context: Floats) -> Floats:
        """The mean for each row of terms, in this context."""
        return terms @ (self._solve().weights.reshape(-1, len(context)) @ context)

    def about(self, terms: Floats, context: Floats) -> tuple[Floats, Floats]:
        """Mean and width for each row of terms, in this context."""
        solved = self._solve()
        if solved.covariance is None:
            reached = solved.divide((terms[:, :, None] * context).reshape(len(terms), self.size))
            variances = np.add.reduce((reached @ solved.squared) * reached, axis=1)
        else:
            variances = _contracted(solved.covariance, terms, context)
        return self.expect(terms, context), np.sqrt(np.maximum(variances, 0.0))

    def _solve(self) -> "_Solved":
        """V has no eigenvalue below P's, so that it has a factor, and bounded weights, whatever was learned."""
        if self._solved is None:
            gram, squared = self._sums
            np.add(self.precision, self.gram, out=gram)
            np.add(self.precision, self.gram_squared, out=squared)
            self._solved = _Solved(gram, squared, self._pull + self.moment)
        return self._solved


class _Solved:
    """V by its factor, W as `squared`, the weights, and above MOST_SOLVED the covariance V^-1 W V^-1."""

    def __init__(self, gram: Floats, squared: Floats, pull: Floats) -> None:
        self._factor, failed_at = lapack.dpotrf(gram.T, lower=True, clean=False)  # .T: LAPACK's order, V is symmetric
        # No V fails, but if one did, the node still had an answer.
        self._inverse = cast("Floats", np.linalg.pinv(gram, hermitian=True)) if failed_at else None
        self.squared = squared
        self.weights: Floats = self.divide(pull[None, :])[0]
        self.covariance = self.divide(self.divide(squared).T) if len(pull) > MOST_SOLVED else None

    def divide(self, vectors: Floats) -> Floats:
        """V^-1 x for each row x."""
        if self._inverse is not None:
            return vectors @ self._inverse
        columns, _ = lapack.dpotrs(self._factor, vectors.T, lower=True)
        return cast("Floats", columns.T)


def _contracted(covariance: Floats, terms: Floats, context: Floats) -> Floats:
    """The forms x' C x for each x = terms ⊗ context.

    All share the context, so C is contracted with it once for both its sides: that leaves as many rows and columns as
    there are terms, and is the only work on a matrix of full size.
    """
    count, names = terms.shape[1], len(context)
    once = (covariance.reshape(-1, names) @ context).reshape(count, names, count)
    twice = once.transpose(0, 2, 1) @ context
    return cast("Floats", np.einsum("ai,ai->a", terms @ twice, terms))
