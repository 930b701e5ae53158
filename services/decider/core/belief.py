"""Owns a discounted Bayesian belief about a linear reward: prior, lessons, means and widths. Numbers only.

With prior precision P, prior weights u, discount g and lessons (x, r, c), c the part that a lesson counts:
    V = P + sum g^(n-i) c x x'     W = P + sum g^(2(n-i)) c^2 x x'     w = V^-1 (P u + sum g^(n-i) c x r)
    mean = w.x     width = sqrt(x' V^-1 W V^-1 x)
Discount and width are D-LinUCB's (Russac, Vernade, Cappé, NeurIPS 2019, algorithm 1). The width is that of the mean
alone: it goes to zero as lessons come in. P is added anew in every solve and never decays: a direction that was not
seen for long returns to the prior, not to infinity (RV-03).
"""

import numpy as np
import numpy.typing as npt

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
        self._solved: tuple[Floats, Floats] | None = None

    def learn(self, vector: Floats, reward: float) -> None:
        """One lesson; all earlier ones count `discount` as much as before."""
        outer = np.outer(vector, vector)
        self.gram = self.discount * self.gram + outer
        self.gram_squared = self.discount**2 * self.gram_squared + outer
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
        """Other lessons, as sums."""
        self.gram, self.gram_squared, self.moment = gram, gram_squared, moment
        self._solved = None

    def expect(self, terms: Floats, context: Floats) -> Floats:
        """The mean for each row of terms, in this context."""
        weights, _ = self._solve()
        return terms @ (weights.reshape(-1, len(context)) @ context)

    def about(self, terms: Floats, context: Floats) -> tuple[Floats, Floats]:
        """Mean and width for each row of terms, in this context.

        All x = terms ⊗ context share the context, so the covariance is contracted with it once for both its sides: that
        leaves as many rows and columns as there are terms, and is the only work on a matrix of `size`.
        """
        _, covariance = self._solve()
        count, names = terms.shape[1], len(context)
        once = (covariance.reshape(-1, names) @ context).reshape(count, names, count)
        twice = once.transpose(0, 2, 1) @ context
        variances = np.einsum("ai,ai->a", terms @ twice, terms)
        return self.expect(terms, context), np.sqrt(np.maximum(variances, 0.0))

    def _solve(self) -> tuple[Floats, Floats]:
        """Weights and covariance. V has no eigenvalue below P's, so its inverse is bounded whatever was learned."""
        if self._solved is None:
            inverse = np.linalg.inv(self.precision + self.gram)
            covariance = inverse @ (self.precision + self.gram_squared) @ inverse
            self._solved = inverse @ (self._pull + self.moment), covariance
        return self._solved
