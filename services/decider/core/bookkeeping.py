"""Owns the saved form of what River's policy base keeps: pulls and the mean reward per arm, and which River it is."""
# ruff: noqa: SLF001 - River has no public way to its counts; a snapshot is tied to River's exact version

from collections.abc import Sequence

from river import bandit, stats
from river.__version__ import __version__ as RIVER_VERSION  # noqa: N812 - a constant of ours from here on

__all__ = ["RIVER_VERSION", "load_counts", "save_counts"]


def save_counts(policy: bandit.base.Policy, names: Sequence[str]) -> list[float]:
    """Pulls and mean reward of each arm, flat in the order of `names`."""
    flat: list[float] = []
    for name in names:
        mean = policy._rewards[name] if name in policy._rewards else stats.Mean()
        flat += [float(policy._counts[name]), float(mean.get() or 0.0) if isinstance(mean, stats.Mean) else 0.0]
    return flat


def load_counts(policy: bandit.base.Policy, names: Sequence[str], updates: int, flat: Sequence[float]) -> None:
    """The inverse of `save_counts`."""
    policy._n = updates
    policy._counts.clear()
    policy._rewards.clear()
    for name, count, value in zip(names, flat[::2], flat[1::2], strict=True):
        if count > 0.0:
            mean = stats.Mean()
            mean.update(value, count)
            policy._counts[name] = int(count)
            policy._rewards[name] = mean
