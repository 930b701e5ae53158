"""Owns what a learning policy sees of a situation: a short context.

A few dozen features and a decision every five seconds would take days to learn. What decides which profile is best is
how much CPU the latency classes need, whether one of them is beyond help (both from the outlook, which remembers), and
who is there to be taken from; that is the default context. It has no latency in it: a backlog shows in latencies, and a
policy that took it for load would answer yesterday's mistake.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from schemas.settings import ClassSettings

BIAS: Final = "bias"


def default_context(classes: Mapping[str, ClassSettings]) -> tuple[str, ...]:
    """Names of the default context: need and loss of each latency class, and the presence of each throughput class."""
    latency = [name for name, spec in classes.items() if spec.kind == "latency"]
    presences = [f"{name}.present" for name, spec in classes.items() if spec.kind == "throughput"]
    return (*(f"{name}.need" for name in latency), *(f"{name}.lost" for name in latency), *presences)


def read_context(features: Mapping[str, float], names: tuple[str, ...]) -> dict[str, float]:
    """The context by name, always with the same keys: `bias` 1, then each of `names`, 0 for what is not given.

    A `present` feature enters as present - 1: the usual case is the origin, and only an absence adds a direction.
    """
    context = {BIAS: 1.0}
    for name, usual in _usual(names):
        context[name] = float(features.get(name, usual)) - usual
    return context


@lru_cache(maxsize=64)  # one for each policy
def _usual(names: tuple[str, ...]) -> tuple[tuple[str, float], ...]:
    return tuple((name, 1.0 if name.endswith(".present") else 0.0) for name in names if name != BIAS)
