"""What each policy scored and why: from the action's own words, and from the policies as they were."""

from collections.abc import Mapping

import msgspec

from lab.explain.moments import at_text
from lab.explain.told import ArmTold, DecisionTold, MaskedTold, PartTold, PolicyTold
from lab.explain.words import MASKED
from schemas.messages import Action, State
from services.decider.core.explanation import ArmExplained, Explanation, explain
from services.decider.core.mind import Mind
from services.decider.core.policy import HOLD, Arm

SAME: float = 1e-9
"""Scores closer than this are the same: what a decision is explained by must be what it was made by."""


def decision_told(action: Action, state: State | None, mind: Mind | str) -> DecisionTold:
    """The decision; `mind` is the decider's as it was just before it, or why that is not known."""
    return DecisionTold(
        at=at_text(action.at),
        arm=action.arm,
        weights=action.weights,
        in_charge=action.in_charge,
        champion=action.champion or action.policy,
        model=action.model,
        lessons=action.lessons,
        last_lesson=action.last_lesson,
        run=action.run,
        seed=action.seed,
        heard_mode=action.heard_mode,
        heard_changes_left=action.heard_changes_left,
        remembered=dict(action.context),
        masked=_masked(action.masked),
        policies=_policies(action, state, mind),
        event=action.event,
        trial=action.trial,
    )


def _masked(masked: Mapping[str, str]) -> tuple[MaskedTold, ...]:
    by_reason: dict[str, list[str]] = {}
    for arm, reason in masked.items():
        by_reason.setdefault(reason, []).append(arm)
    return tuple(
        MaskedTold(reason=reason, meaning=MASKED.get(reason, reason), arms=tuple(arms))
        for reason, arms in by_reason.items()
    )


def _policies(action: Action, state: State | None, mind: Mind | str) -> tuple[PolicyTold, ...]:
    told = [
        PolicyTold(
            name=action.in_charge,
            policy=action.policy,
            role=_role(action.in_charge, action),
            is_in_charge=True,
            arm=action.arm,
            propensity=action.propensity,
            explored=action.explored,
            updates=action.policy_updates,
            reason=action.reason,
            arms=_arms(action.propensities, action.scores),
        )
    ]
    told += [
        PolicyTold(
            name=name,
            policy=shadow.policy,
            role=_role(name, action),
            is_in_charge=False,
            arm=shadow.arm,
            propensity=shadow.propensity,
            explored=shadow.explored,
            updates=shadow.policy_updates,
            arms=_arms(shadow.propensities, shadow.scores),
            unknown=f"it failed: {shadow.error}" if shadow.error is not None else None,
        )
        for name, shadow in action.shadows.items()
    ]
    return tuple(one if one.unknown is not None else _with_reasons(one, action, state, mind) for one in told)


def _role(name: str, action: Action) -> str:
    """What it is, whoever's turn it was."""
    trial = action.trial
    if name == (action.champion or action.policy):
        return "champion"
    if trial is None or trial.phase == "over":
        return "shadow"
    return {trial.challenger: "challenger", trial.incumbent: "incumbent"}.get(name, "shadow")


def _arms(propensities: Mapping[str, float], scores: Mapping[str, float]) -> tuple[ArmTold, ...]:
    return tuple(
        ArmTold(arm=name, propensity=propensity, score=scores.get(name)) for name, propensity in propensities.items()
    )


def _with_reasons(told: PolicyTold, action: Action, state: State | None, mind: Mind | str) -> PolicyTold:
    """The same with what the policy itself tells, if it is known as it was."""
    found = mind if isinstance(mind, str) else _explanation(told.name, action, state, mind)
    if isinstance(found, Explanation):
        by_name = {arm.arm: arm for arm in found.arms}
        gap = max((abs(by_name[arm.arm].score - arm.score) for arm in told.arms if arm.score is not None), default=0.0)
        if gap <= SAME:
            return _joined(told, found, by_name)
        found = f"the policy as the record leads to it scores otherwise, by up to {gap:.3g}: it was another one"
    return msgspec.structs.replace(told, unknown=found)


def _explanation(name: str, action: Action, state: State | None, mind: Mind) -> Explanation | str:
    if state is None:
        return "the record lacks the state that it was made from"
    policy = mind.policies.get(name)
    if policy is None:
        return "the recorded settings have no such policy"
    arms: dict[str, Arm] = {HOLD.name: HOLD, **{arm.name: arm for arm in mind.arms}}
    if not action.propensities or any(arm not in arms for arm in action.propensities):
        return "the recorded settings have other arms"
    features = (state.features if state.features_schema == mind.schema else {}) | action.context
    told = explain(policy, features, [arms[arm] for arm in action.propensities])
    return told if told is not None else "a policy of this kind tells no reasons"


def _joined(told: PolicyTold, found: Explanation, by_name: Mapping[str, ArmExplained]) -> PolicyTold:
    chosen = by_name.get(told.arm or "")
    against = _against(told.arm, found)
    others = {part.feature: part.amount for part in against.contributions} if against is not None else {}
    return msgspec.structs.replace(
        told,
        arms=tuple(
            msgspec.structs.replace(arm, mean=by_name[arm.arm].mean, width=by_name[arm.arm].width) for arm in told.arms
        ),
        unit=found.unit,
        parts=tuple(
            PartTold(feature=part.feature, value=part.value, amount=part.amount, other=others.get(part.feature))
            for part in (chosen.contributions if chosen is not None else ())
        ),
        against=against.arm if against is not None else None,
        leader=found.leader,
        among=found.among,
        epsilon=found.epsilon,
        questions=found.questions,
        notes=found.notes,
    )


def _against(chosen: str | None, found: Explanation) -> ArmExplained | None:
    """What the chosen arm is held against: the first, which changes nothing; if that was chosen, the second best."""
    first, *others = found.arms
    return first if chosen != first.arm else max(others, key=lambda arm: arm.score, default=None)
