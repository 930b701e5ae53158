"""What the loop's short words mean, in a sentence each."""

from collections.abc import Mapping
from typing import Final

CENSORED: Final[Mapping[str, str]] = {
    "overrun": "the next cycle began before this one was seen to its end",
    "stopped": "the rewarder was stopped in the middle of it",
    "failed": "the rewarder's own code failed on it; its log says how",
    "no_verdict": "no verdict was heard, so nothing says what was let happen",
    "late": "no action came in time",
    "no_action": "the action that the verdict is about was not heard",
    "refused": "the guard refused it, so nothing of it was tried",
    "shadow": "the mode is shadow: it was decided and not written",
    "no_actuation": "no word came from the actuator, so it is not known what was written",
    "unreachable": "the pod tree allows no weights that give the arm's shares",
    "not_applied": "the actuator did not put it in force",
    "canary": "only the canary's pods had the arm's weights, and the others their own",
    "clamped": "what was executed lies between arms, so it has no propensity",
    "no_after_state": "the second look is missing, so its effect was not seen",
    "overridden": "somebody else wrote a weight meanwhile",
    "partial": "a part of the arm was not in force",
    "no_contention": "nobody waited for CPU, so weights did nothing",
    "no_latency_class": "no class with an objective had pods",
    "no_pressure": "how long the most important class waited for CPU is not known",
    "no_latency": "the latency of the most important class is not known",
    "few_requests": "the most important class served too few requests to be judged by",
    "lost_evidence": "a class fell silent, or more of its pods did: the rest says nothing of it",
    "signal_changed": "a class was judged by another signal after than before",
    "objective_changed": "a class's objective changed in the middle",
    "no_throughput": "what a throughput class used is not known",
}
"""By the reason's first word; what follows a colon there names the class or the rule."""

MASKED: Final[Mapping[str, str]] = {
    "stay": "holding is what the arm in force does already",
    "frozen": "the mode allows no change",
    "rate": "this minute's changes are spent",
    "same": "without pods of some classes it is the same as another arm",
    "no_harm": "it would take from a class that misses its objective",
    "step": "it is further away than one step",
}


def why_censored(reason: str | None) -> str | None:
    """A censor reason as a sentence. A verdict that was not executed names its rule or mode."""
    if reason is None:
        return None
    return CENSORED.get(reason.partition(":")[0], "the verdict was not executed")
