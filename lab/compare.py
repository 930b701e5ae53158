"""Owns the comparison of policies that decide side by side: by node, and over nodes.

From messages alone, in the order of their stream: actions say who decided and what the others would have done, rewards
what it was worth. How sure a trial by turns is on one node, its actions say (services/decider/core/trial.py).
Over nodes each node counts once: by turns, its difference; by node, its mean (Welch's t interval: nodes differ in
spread). Nodes are few and their loads differ, so there is no answer from fewer than LEAST_NODES on each side.
"""

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from lab.arena.statistics import mean_interval, t_quantile
from schemas.messages import Action, AnyMessage, Reward, Trial

LEAST_NODES: Final = 4
"""Nodes on each side. Of three a t interval says little more than that it is wide."""

LEAST_REWARDS: Final = 30
"""Rewards by which a node counts, for each policy that is compared there."""

_WAITING: Final = 10_000
"""Cycles whose reward may still come. Many nodes' cycles of some minutes."""


@dataclass
class Standing:
    """One policy on one node: cycles in which it decided and their rewards; cycles in which it only said what it would
    have done, and in how many of those it was what was done. `failed` counts those in which it could not say.
    """

    decided: int = 0
    rewards: int = 0
    total: float = 0.0
    asked: int = 0
    agreed: int = 0
    failed: int = 0

    @property
    def mean_reward(self) -> float | None:
        """Of the cycles that it decided, None without any."""
        return self.total / self.rewards if self.rewards else None

    @property
    def agreement_ratio(self) -> float | None:
        """Of the cycles that others decided, None without any."""
        return self.agreed / self.asked if self.asked else None


@dataclass
class OnNode:
    """What is known of one node: its policies by name, who is in charge, the last word of the trial, and what happened
    in it (cycle and event).
    """

    policies: dict[str, Standing] = field(default_factory=dict)
    champion: str = ""
    trial: Trial | None = None
    events: list[tuple[int, str]] = field(default_factory=list)

    def standing(self, name: str) -> Standing:
        """The policy's, new if it was not heard of."""
        return self.policies.setdefault(name, Standing())


@dataclass(frozen=True)
class OverNodes:
    """The challenger's mean reward less the other's, over nodes: `low` to `high` is its 95 % interval. `refused` says
    why there is none. `nodes` counts those on which the challenger decided, `others` those without it (by node).
    """

    challenger: str
    nodes: int
    others: int | None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    refused: str | None = None


_MOST_EVENTS: Final = 100


def compare(messages: Iterable[AnyMessage]) -> dict[str, OnNode]:
    """What the messages say, by node. Rewards of cycles whose action is not among them are passed over."""
    nodes: dict[str, OnNode] = {}
    waiting: OrderedDict[tuple[str, str, int], Standing] = OrderedDict()
    for message in messages:
        if isinstance(message, Action):
            decided = _take(nodes.setdefault(message.node, OnNode()), message)
            waiting[message.node, message.boot, message.cycle] = decided
            while len(waiting) > _WAITING:
                waiting.popitem(last=False)
        elif isinstance(message, Reward) and message.outcome == "joined" and message.value is not None:
            standing = waiting.pop((message.node, message.boot, message.cycle), None)
            if standing is not None and math.isfinite(message.value):
                standing.rewards += 1
                standing.total += message.value
    return nodes


def _take(node: OnNode, action: Action) -> Standing:
    """Counts one action; the standing of who decided it."""
    trial = action.trial
    decided = node.standing(action.in_charge)
    decided.decided += 1
    node.champion = action.champion or action.policy
    for other, shadow in action.shadows.items():
        standing = node.standing(other)
        if shadow.error is not None:
            standing.failed += 1
        else:
            standing.asked += 1
            standing.agreed += shadow.arm == action.arm
    node.trial = _trial_after(node.trial, trial)
    if trial is not None and trial.event is not None:
        node.events = [*node.events, (action.cycle, trial.event)][-_MOST_EVENTS:]
    if action.event is not None:
        node.events = [*node.events, (action.cycle, action.event)][-_MOST_EVENTS:]
    return decided


def _trial_after(last: Trial | None, told: Trial | None) -> Trial | None:
    """The last word of a trial: one of which nothing more is told is over, as an order ends it. Who was in charge
    before stays so, though a challenger that has won is told as that in the end.
    """
    if last is None:
        return told
    if told is None:
        return msgspec.structs.replace(last, phase="over")
    if told.phase == "over" and told.challenger == last.challenger:
        return msgspec.structs.replace(told, incumbent=last.incumbent)
    return told


def over_nodes(nodes: Mapping[str, OnNode]) -> OverNodes | None:
    """The challenger against the other over all nodes that try it; None where no trial is told of.

    Where both decided on each node, the nodes' differences are compared; else the means of those that it decides on
    with the means of the others.
    """
    tried = [node for node in nodes.values() if node.trial is not None]
    if not tried:
        return None
    trial = tried[0].trial
    assert trial is not None
    ours, theirs = trial.challenger, trial.incumbent
    with_both = [node for node in tried if _counts(node, ours) and _counts(node, theirs)]
    if with_both:
        differences = [_mean(node, ours) - _mean(node, theirs) for node in with_both]
        if len(differences) < LEAST_NODES:
            return OverNodes(ours, len(differences), None, refused=_too_few(len(differences), "that both decide on"))
        found = mean_interval(differences)
        return OverNodes(ours, len(differences), None, found.mean, found.low, found.high)
    here = [_mean(node, ours) for node in tried if _counts(node, ours)]
    there = [_mean(node, theirs) for node in tried if _counts(node, theirs)]
    for count, what in ((len(here), f"of {ours}"), (len(there), f"of {theirs}")):
        if count < LEAST_NODES:
            return OverNodes(ours, len(here), len(there), refused=_too_few(count, what))
    difference, low, high = _welch(here, there)
    return OverNodes(ours, len(here), len(there), difference, low, high)


def _counts(node: OnNode, name: str) -> bool:
    return name in node.policies and node.policies[name].rewards >= LEAST_REWARDS


def _mean(node: OnNode, name: str) -> float:
    mean = node.policies[name].mean_reward
    assert mean is not None
    return mean


def _too_few(count: int, what: str) -> str:
    return f"{count} nodes {what} with {LEAST_REWARDS} rewards or more; it takes {LEAST_NODES}"


def _welch(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """The difference of two means and its 95 % interval, by Welch's degrees of freedom, rounded down."""
    means, errors = [], []
    for values in (ours, theirs):
        mean = math.fsum(values) / len(values)
        means.append(mean)
        errors.append(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values))
    difference, variance = means[0] - means[1], sum(errors)
    if variance == 0.0:
        return difference, difference, difference
    parts = sum(error**2 / (len(values) - 1) for error, values in zip(errors, (ours, theirs), strict=True))
    width = t_quantile(max(1, int(variance**2 / parts))) * math.sqrt(variance)
    return difference, difference - width, difference + width
