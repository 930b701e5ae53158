"""Owns how one run of an experiment is played: a variant or a static profile, in a scenario, with a seed.

Runs are the bench's jobs, so that the bench's processes play them; the policy of a job is the name of a variant, or
`static:` and the name of a profile.
"""

from collections.abc import Sequence
from typing import Final

from msgspec import structs

from lab.arena.bench import Job, Played
from lab.arena.episode import Settings, play_static, run, summary
from lab.arena.experiment_variants import VARIANTS
from lab.arena.hindsight import static_profiles
from lab.arena.results import Curves
from lab.arena.scenario import Curve, Pod, Scenario, ServicePod
from lab.arena.score import cycle_score
from lab.arena.sim_world import CycleOutcome
from schemas.settings import Shared

STATIC: Final = "static:"
CYCLE_SECONDS: Final = 5.0
"""What a cycle of a scenario's curves is, and of the number of cycles that is asked for."""

BACK_WITHIN: Final = 5
"""Cycles. A load that comes and goes does so over ten and more: who is back sooner has followed noise."""


def play(job: Job) -> Played:
    """One run; of a variant with its curves. KeyError for what is neither a variant nor a profile."""
    if job.policy.startswith(STATIC):
        profile = static_named()[job.policy.removeprefix(STATIC)]
        outcomes = play_static(job.scenario, profile, job.seed, job.cycles)
        row = summary(job.scenario, job.policy, job.seed, outcomes, CYCLE_SECONDS)
        return Played(row, tuple(outcome.score for outcome in outcomes))
    variant = VARIANTS[job.policy]
    scenario, cycles, block = job.scenario, job.cycles, 1
    if variant.block_seconds is not None:
        block = round(variant.block_seconds / variant.cycle_seconds)
        cycles = block * int(cycles * CYCLE_SECONDS / variant.block_seconds)
        scenario = stretched(scenario, CYCLE_SECONDS / variant.cycle_seconds)
    settings = Settings(
        decider=variant.decider,
        guard=variant.guard,
        rewarder=variant.rewarder,
        cycle_seconds=variant.cycle_seconds,
        guarded=variant.guarded,
    )
    with variant.in_force():
        done = run(scenario, job.policy, settings, job.seed, cycles, make=variant.make)
    scores = block_scores(done.outcomes, block)
    return Played(structs.replace(done.row, score=sum(scores) / max(1, len(scores))), tuple(scores), done.curves)


def static_named() -> dict[str, dict[str, int]]:
    """Class weights of the grid of static profiles, by name: the ratios of the default classes, as arms are named."""
    named = {}
    for profile in static_profiles(Shared()):
        lowest = min(profile.values())
        words = ("".join(part[:1] for part in name.split("-")) for name in profile)
        named[
            "-".join(f"{word}{weight / lowest:.0f}" for word, weight in zip(words, profile.values(), strict=True))
        ] = profile
    return named


def stretched(scenario: Scenario, factor: float) -> Scenario:
    """The same over `factor` times as many cycles: with cycles as much shorter, all happens at the same second."""
    return structs.replace(
        scenario,
        pods=tuple(_stretched_pod(pod, factor) for pod in scenario.pods),
        phases=tuple((name, cycle * factor) for name, cycle in scenario.phases),
        phase_period=None if scenario.phase_period is None else scenario.phase_period * factor,
    )


def block_scores(outcomes: Sequence[CycleOutcome], size: int) -> list[float]:
    """The scores of stretches of `size` cycles each, as if each were one; what is left over at the end is left out."""
    scores = []
    for start in range(0, len(outcomes) - size + 1, size):
        block = outcomes[start : start + size]
        share = sum(outcome.batch_share for outcome in block) / size
        scores.append(cycle_score(_missed_ratio(block, "latency-critical"), _missed_ratio(block, "default"), share))
    return scores


def changes_in(curves: Curves) -> tuple[int, int]:
    """How often the weights were changed, and how many of these changes were taken back within BACK_WITHIN cycles: by
    the guard, or by going back to the weights before.
    """
    changed = back = 0
    for cycle, word in enumerate(curves.outcomes):
        if word not in ("applied", "rolled_back"):
            continue
        changed += 1
        before, now = curves.arms[max(0, cycle - 1)], curves.arms[cycle]
        later = curves.arms[cycle + 1 : cycle + 1 + BACK_WITHIN]
        back += word == "rolled_back" or (before != now and before in later)
    return changed, back


def _missed_ratio(block: Sequence[CycleOutcome], name: str) -> float | None:
    """Of all requests that ended. If none did: 1 if the class was stuck in any of the cycles, None if it was idle."""
    if ended := sum(outcome.ended[name] for outcome in block):
        return sum(outcome.missed[name] for outcome in block) / ended
    ratios = [outcome.violation_lc if name == "latency-critical" else outcome.violation_default for outcome in block]
    return 1.0 if any(ratio is not None for ratio in ratios) else None


def _stretched_pod(pod: Pod, factor: float) -> Pod:
    if isinstance(pod, ServicePod):
        return structs.replace(pod, rate=_stretched_curve(pod.rate, factor))
    return structs.replace(pod, processes=_stretched_curve(pod.processes, factor))


def _stretched_curve(curve: Curve, factor: float) -> Curve:
    points = tuple((cycle * factor, value) for cycle, value in curve.points)
    return Curve(points, curve.shape, None if curve.period is None else curve.period * factor)
