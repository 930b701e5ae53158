"""The guard's verdict told: its rules are asked again, in their order, in the situation that the verdict names."""

from dataclasses import dataclass

from lab.explain.moments import at_text
from lab.explain.told import GuardTold, RuleTold
from schemas.messages import Action, State, Verdict
from schemas.settings import Shared
from services.guard.config import GuardConfig
from services.guard.core.known import Stand, situation_of
from services.guard.core.rules import RULES, Finding, Judgement, Rule, Situation, judge


@dataclass(frozen=True)
class _Listened:
    """A rule whose answers are kept. It answers as the rule does."""

    rule: Rule
    heard: dict[str, Finding | None]

    @property
    def name(self) -> str:
        """The rule's name."""
        return self.rule.name

    def __call__(self, action: Action, situation: Situation) -> Finding | None:
        """The rule's answer."""
        finding = self.rule(action, situation)
        self.heard[self.rule.name] = finding
        return finding


def guard_told(
    verdict: Verdict, state: State | None, action: Action | None, found: tuple[Shared, GuardConfig] | str
) -> GuardTold:
    """The verdict and its rules; `found` are the guard's settings, or why they are not known."""
    rules, agrees, unknown = _rules(verdict, state, action, found)
    return GuardTold(
        at=at_text(verdict.at),
        outcome=verdict.outcome,
        execute=verdict.execute,
        mode=verdict.mode,
        breaker=verdict.breaker,
        rule=verdict.rule,
        reason=verdict.reason,
        weights=verdict.weights,
        propensity=verdict.propensity,
        changes_left=verdict.changes_left,
        would_refuse=verdict.would_refuse,
        rules=rules,
        agrees=agrees,
        unknown=unknown,
    )


def _rules(
    verdict: Verdict, state: State | None, action: Action | None, found: tuple[Shared, GuardConfig] | str
) -> tuple[tuple[RuleTold, ...], bool | None, str | None]:
    if isinstance(found, str):
        return (), None, found
    if state is None or verdict.known is None or verdict.breaker is None:
        lacks = "the state that it judged" if state is None else "what it went by: the guard was of an older release"
        return (), None, f"the record lacks {lacks}"
    if action is None:
        why = verdict.known.late or "the record lacks the action" if verdict.outcome == "late" else None
        return (), None, f"no rule was asked: {why}" if why else "the record lacks the action"
    shared, config = found
    situation = situation_of(state, verdict.known, Stand(verdict.mode, verdict.breaker), config, shared)
    heard: dict[str, Finding | None] = {}
    judgement = judge(action, situation, tuple(_Listened(rule, heard) for rule in RULES), watched=config.watch)
    told = tuple(_rule_told(rule, heard, is_watched=rule.name in config.watch) for rule in RULES)
    return told, _agrees(judgement, verdict), None


def _rule_told(rule: Rule, heard: dict[str, Finding | None], *, is_watched: bool) -> RuleTold:
    prevents = " ".join((type(rule).__doc__ or "").split("\n\n")[0].split())
    if rule.name not in heard:
        return RuleTold(rule=rule.name, prevents=prevents, said="not asked", is_watched=is_watched)
    finding = heard[rule.name]
    if finding is None:
        return RuleTold(rule=rule.name, prevents=prevents, said="no objection", is_watched=is_watched)
    return RuleTold(
        rule=rule.name,
        prevents=prevents,
        said=finding.outcome,
        reason=finding.reason,
        weights=dict(finding.weights) if finding.weights is not None else None,
        is_watched=is_watched,
    )


def _agrees(judgement: Judgement, verdict: Verdict) -> bool:
    return (judgement.outcome, judgement.rule, judgement.weights, judgement.execute) == (
        verdict.outcome,
        verdict.rule,
        verdict.weights,
        verdict.execute,
    )
