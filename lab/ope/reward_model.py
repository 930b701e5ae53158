"""Owns the doubly robust estimator's model of rewards: ridge regression on context x arm, fitted crosswise over blocks.

Pure. Sources: Hoerl, Kennard (Technometrics 1970) for ridge; Chernozhukov et al. (Econometrics Journal 2018) for
cross-fitting; blocks instead of random folds since the rows of a log depend on those beside them.
"""

import numpy as np

from lab.ope.logged import Floats, Logged

FOLDS = 5
"""Blocks that the log is cut into. 5: each prediction learns from four fifths of the log."""

RIDGE = 10.0
"""Rows' worth of pull towards the mean reward, per term. 10: an arm seen a few times stays near what all arms do."""


def fit_rewards(logged: Logged, folds: int = FOLDS, ridge: float = RIDGE, arm_terms: Floats | None = None) -> Floats:
    """The reward of every arm in every context (n x k), predicted for each block of rows by a model of the others.

    Terms are (1, context scaled to deviation 1) x `arm_terms` (k x m). Without these: one term that all arms share and
    one for each, so that an arm says only how it differs. Predictions stay within the rewards that the model saw.
    Raises ValueError for fewer than two folds, fewer rows than folds, a ridge that is not positive, terms of another
    shape.
    """
    n, k = logged.pi_b.shape
    if not 2 <= folds <= n:  # noqa: PLR2004
        raise ValueError(f"folds must be 2 to {n}, the rows of the log; it is {folds}")
    if not (np.isfinite(ridge) and ridge > 0.0):
        raise ValueError("ridge must be above 0: without it an arm that was never taken has no prediction")
    terms = np.hstack([np.ones((k, 1)), np.eye(k)]) if arm_terms is None else arm_terms
    if terms.ndim != 2 or len(terms) != k or not np.isfinite(terms).all():  # noqa: PLR2004
        raise ValueError(f"arm_terms must be {k} rows of finite terms, one for each arm")
    rows = _design(logged.context)
    fold = np.arange(n) * folds // n
    size, width = rows.shape[1], terms.shape[1]
    grams = np.zeros((folds, size, width, size, width))
    moments = np.zeros((folds, size, width))
    sums = np.zeros((folds, size, width))
    for block in range(folds):
        for arm in range(k):
            own = (fold == block) & (logged.action == arm)
            seen = rows[own]
            grams[block] += np.einsum("ij,a,b->iajb", seen.T @ seen, terms[arm], terms[arm])
            moments[block] += np.outer(seen.T @ logged.reward[own], terms[arm])
            sums[block] += np.outer(seen.sum(axis=0), terms[arm])
    q_hat = np.empty((n, k))
    for block in range(folds):
        others = np.arange(folds) != block
        learned = logged.reward[fold != block]
        mean = learned.mean()
        gram = grams[others].sum(axis=0).reshape(size * width, size * width)
        moment = (moments[others] - mean * sums[others]).sum(axis=0).reshape(size * width)
        theta = np.linalg.solve(gram + ridge * np.eye(size * width), moment).reshape(size, width)
        predicted = mean + rows[fold == block] @ theta @ terms.T
        q_hat[fold == block] = np.clip(predicted, learned.min(), learned.max())
    return q_hat


def _design(context: Floats) -> Floats:
    """1 and the context, each column with mean 0 and deviation 1; constant columns are 0."""
    centred = context - context.mean(axis=0)
    spread = centred.std(axis=0)
    flat = spread <= 1e-12 * np.maximum(1.0, np.abs(context).max(axis=0, initial=0.0))
    scaled = np.where(flat, 0.0, centred / np.where(flat, 1.0, spread))
    return np.hstack([np.ones((len(context), 1)), scaled])
