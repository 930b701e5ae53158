"""Owns what exploration may cost: a budget that grows while the best known arm is taken, and pays for every other one.

The idea is that of conservative bandits (Wu, Shariff, Lattimore, Szepesvári, ICML 2016; for linear models Kazerouni,
Ghavamzadeh, Abbasi-Yadkori, Van Roy, NIPS 2017): another arm than the best known one may be tried if, should it turn
out as bad as it may be, all that was earned so far is still no more than a set part below what the best known arm would
have earned.
"""

from dataclasses import dataclass
from typing import Final

from services.decider.core.belief import Floats

WORST_WIDTHS: Final = 1.0
"""As bad as it may be: the mean less so many widths (standard errors if the noise of a reward were 1, which it is not:
it is about 0.3, so these are three)."""

LEAST_EARNED: Final = 0.05
"""Magnitude of a reward on which the share is taken at least: else a node whose rewards are near 0 never explores."""


@dataclass
class Caution:
    """`share` is the part of what is earned that exploring may lose (0-1), `budget` what is left of that, in rewards,
    from -`most` to `most`.
    """

    share: float
    most: float = 1.0
    budget: float = 0.0

    def earn(self, reward: float) -> None:
        """The best known arm was taken."""
        self.budget = min(self.most, self.budget + self.share * max(LEAST_EARNED, abs(reward)))

    def pay(self, expected: float, reward: float) -> None:
        """Another arm was taken, and gave `reward` where the best known one was expected to give `expected`."""
        self.budget = max(-self.most, min(self.most, self.budget - max(0.0, expected - reward)))

    def affordable(self, means: Floats, widths: Floats, best: int) -> list[int]:
        """Which arms may be tried: the best known one, and whose worst fits the budget."""
        best_mean = float(means[best])
        worsts = [
            mean - WORST_WIDTHS * min(width, 1.0) for mean, width in zip(means.tolist(), widths.tolist(), strict=True)
        ]
        return [index for index, worst in enumerate(worsts) if index == best or best_mean - worst <= self.budget]
