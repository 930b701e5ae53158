"""A told cycle as a tree: in the order in which it happened."""

from collections.abc import Mapping, Sequence

from lab.explain.told import (
    ClassTold,
    CycleTold,
    DecisionTold,
    GuardTold,
    PolicyTold,
    RewardTold,
    RuleTold,
    SeenTold,
    WrittenTold,
)
from lab.explain.tree import Branch, Tone, table
from schemas.messages import Command

NONE = "-"


def tree_of(told: CycleTold) -> Branch:
    """The whole cycle."""
    at = next((part.at for part in (told.seen, told.decision, told.guard, told.reward) if part is not None), "?")
    parts = [_lost(text) for text in told.missing]
    parts.append(_seen("seen", told.seen) if told.seen else _none(told, "state", "the first look is not in the record"))
    parts += _decision(told.decision) if told.decision else [_none(told, "action")]
    parts.append(_guard(told.guard) if told.guard else _none(told, "verdict"))
    parts.append(_written("written", told.written) if told.written else _none(told, "actuation"))
    parts.append(_after(told) if told.after else _none(told, "state", "no second look is in the record"))
    parts.append(_reward(told.reward) if told.reward else _none(told, "reward"))
    parts += [_written("taken back", undone) for undone in told.undone]
    parts += [_command(command) for command in told.commands]
    return Branch(f"cycle {told.cycle} of {told.node} (boot {told.boot}) at {at}", tuple(parts), "head")


def weights_text(weights: Mapping[str, int] | None) -> str:
    """Class weights in a line."""
    return ", ".join(f"{name} {weight}" for name, weight in weights.items()) if weights else "none"


def _lost(text: str) -> Branch:
    return Branch(text, tone="bad")


def _none(told: CycleTold, kind: str, text: str | None = None) -> Branch:
    """There is none; or what stands in its place cannot be read."""
    text = text or f"no {kind} is in the record"
    unread = told.unread.get(kind, ())
    return _lost(f"{text}, but in its place: {'; '.join(unread)}" if unread else text)


# ---- seen ------------------------------------------------------------------------------------------------------------


def _seen(title: str, seen: SeenTold) -> Branch:
    rows, tones = [], []
    for one in seen.classes:
        rows.append(
            [
                one.name,
                str(one.pods),
                _p99(one),
                _percent(one.over_ratio),
                _waited(one),
                _number(one.cpu_cores, ".2f"),
                _number(one.weight, "d"),
                _percent(one.share),
                ", ".join(one.waited_for) or NONE,
            ]
        )
        tones.append(_tone(one))
    head = ("class", "pods", "P99/objective", "over", "waited", "cores", "weight", "share", "waited for")
    below = list(table(head, rows, tones)) if rows else [Branch("no class has pods")]
    below += [Branch(f"{one.name}: not known how it does ({one.why})", tone="bad") for one in seen.classes if one.why]
    below += [Branch(f"note: {note}", tone="dim") for note in seen.notes]
    if not seen.writable:
        below.append(_lost("the view of the pods was too old to write by"))
    if seen.features:
        below.append(Branch(f"features: {_features(seen.features)}", tone="dim"))
    return Branch(f"{title}: {_contention(seen)}", tuple(below), "head")


def _contention(seen: SeenTold) -> str:
    contention = seen.contention
    words = ["contended" if contention.contended else "not contended"]
    words[0] += f" ({contention.reason})" if contention.reason else ""
    words.append(f"{contention.cpus} CPUs")
    if contention.busy_ratio is not None:
        words.append(f"busy {_percent(contention.busy_ratio)}")
    if contention.pressure_ratio is not None:
        words.append(f"pressure {_percent(contention.pressure_ratio)}")
    if contention.run_queue is not None:
        words.append(f"run queue {contention.run_queue:.2f} a CPU")
    if seen.window_seconds is not None:
        words.append(f"over {seen.window_seconds:.1f} s")
    return ", ".join(words)


def _tone(one: ClassTold) -> Tone:
    return "bad" if one.is_violated else "good" if one.is_violated is False and one.judged_by else ""


def _p99(one: ClassTold) -> str:
    if one.p99_seconds is None and one.objective_seconds is None:
        return NONE
    objective = f"/{one.objective_seconds * 1000:.0f} ms" if one.objective_seconds is not None else " ms"
    return f"{_milliseconds(one)}{objective}"


def _milliseconds(one: ClassTold) -> str:
    if one.p99_seconds is None:
        return "?"
    return f"{'>' if one.p99_is_at_least else ''}{one.p99_seconds * 1000:.0f}"


def _waited(one: ClassTold) -> str:
    if one.waited_ratio is None:
        return NONE
    ceiling = f"/{_percent(one.objective_pressure_ratio)}" if one.objective_pressure_ratio is not None else ""
    return _percent(one.waited_ratio) + ceiling


def _percent(ratio: float | None) -> str:
    return NONE if ratio is None else f"{ratio * 100:.3g} %"


def _number(value: float | None, form: str) -> str:
    return NONE if value is None else format(value, form)


def _features(features: Mapping[str, float]) -> str:
    """What is not zero, since most of a vector is."""
    shown = [f"{name} {value:.3g}" for name, value in features.items() if value != 0.0]
    zeros = len(features) - len(shown)
    return ", ".join(shown) + (f"; {zeros} are 0" if zeros else "")


# ---- decided ---------------------------------------------------------------------------------------------------------


def _decision(decision: DecisionTold) -> list[Branch]:
    parts = []
    if decision.remembered:
        parts.append(Branch(f"remembered: {_features(decision.remembered)}"))
    if decision.masked:
        reasons = [Branch(f"{one.reason}, {one.meaning}: {', '.join(one.arms)}") for one in decision.masked]
        parts.append(Branch(f"masked: {sum(len(one.arms) for one in decision.masked)} arms", tuple(reasons), "head"))
    parts += [_policy(policy, decision) for policy in decision.policies]
    return parts


def _policy(policy: PolicyTold, decision: DecisionTold) -> Branch:
    if policy.arm is None:
        return Branch(f"{policy.role} {_name(policy)}", (_lost(policy.unknown or "it did not choose"),), "head")
    if policy.is_in_charge:
        said = f"{'draws by chance' if policy.explored else 'takes'} {policy.arm}"
        said += f" ({weights_text(decision.weights)})" if decision.weights else ""
    else:
        said = f"would have {'drawn by chance' if policy.explored else 'taken'} {policy.arm}"
    said += f", propensity {_number(policy.propensity, '.4f')}"
    below = [Branch(policy.reason)] if policy.reason else []
    below += [
        Branch(f"{answer.question}: {answer.asks} {answer.answer}", tone="" if answer.decides else "dim")
        for answer in policy.questions
    ]
    below += [Branch(note) for note in policy.notes]
    if 0.0 < policy.epsilon < 1.0:
        draw = f"{policy.leader} leads; with probability {policy.epsilon:g} any of {len(policy.among)} is drawn instead"
        below.append(Branch(f"{draw}: {', '.join(policy.among)}"))
    below.append(_arms(policy))
    if policy.parts:
        below.append(_parts(policy))
    if policy.unknown:
        below.append(_lost(f"why it scores so is not known: {policy.unknown}"))
    if policy.is_in_charge:
        below.append(Branch(_provenance(decision), tone="dim"))
        below += [Branch(decision.event)] if decision.event else []
        below += _trial(decision)
    return Branch(f"{policy.role} {_name(policy)} {said}", tuple(below), "head")


def _name(policy: PolicyTold) -> str:
    return policy.name if policy.name == policy.policy else f"{policy.name} ({policy.policy})"


def _arms(policy: PolicyTold) -> Branch:
    has_means = any(arm.mean is not None for arm in policy.arms)
    head = ["arm", "score", "propensity", *(["mean", "width"] if has_means else [])]
    ranked = sorted(policy.arms, key=lambda arm: -(arm.score if arm.score is not None else arm.propensity))
    rows = [
        [
            arm.arm,
            _number(arm.score, "+.4f"),
            f"{arm.propensity:.4f}",
            *([_number(arm.mean, "+.4f"), _number(arm.width, ".4f")] if has_means else []),
        ]
        for arm in ranked
    ]
    tones: list[Tone] = ["good" if arm.arm == policy.arm else "" for arm in ranked]
    return Branch(f"{len(rows)} {'arm' if len(rows) == 1 else 'arms'} on offer", table(head, rows, tones))


def _parts(policy: PolicyTold) -> Branch:
    head = ["feature", "value", policy.arm or "", *([policy.against, "difference"] if policy.against else [])]
    rows = []
    ordered = sorted(policy.parts, key=lambda part: -abs(part.amount - (part.other or 0.0)))
    for part in ordered:
        row = [part.feature, _number(part.value, ".3g"), f"{part.amount:+.4f}"]
        if policy.against:
            other = part.other or 0.0
            row += [f"{other:+.4f}", f"{part.amount - other:+.4f}"]
        rows.append(row)
    own, other = sum(part.amount for part in policy.parts), sum(part.other or 0.0 for part in policy.parts)
    rows.append(
        ["sum", "", f"{own:+.4f}", *([f"{other:+.4f}", f"{own - other:+.4f}"] if policy.against else [])],
    )
    contrast = f", beside {policy.against}" if policy.against else ""
    return Branch(f"what its mean is made of ({policy.unit}){contrast}", table(head, rows))


def _provenance(decision: DecisionTold) -> str:
    model = f"model {decision.model[:12]}" if decision.model else "no stored model"
    last = f", the last of cycle {decision.last_lesson}" if decision.last_lesson else ""
    heard = f"; the guard was {decision.heard_mode}" if decision.heard_mode else ""
    if decision.heard_changes_left is not None:
        heard += f" with {decision.heard_changes_left} changes left"
    return f"{model} and {decision.lessons} rewards since{last}; run {decision.run or '?'}, seed {decision.seed}{heard}"


def _trial(decision: DecisionTold) -> list[Branch]:
    trial = decision.trial
    if trial is None:
        return []
    text = f"{trial.phase} of {trial.challenger}: block {trial.block}, {trial.in_charge} in charge, {trial.pairs} pairs"
    if trial.difference is not None and trial.low is not None and trial.high is not None:
        text += f", difference {trial.difference:+.4f} [{trial.low:+.4f}, {trial.high:+.4f}]"
    return [Branch(text + (f"; {trial.event}" if trial.event else ""))]


# ---- judged, written, seen again, worth ------------------------------------------------------------------------------


def _guard(guard: GuardTold) -> Branch:
    said = f"guard ({guard.mode}): {guard.outcome}"
    if guard.rule or guard.reason:
        said += f" [{': '.join(word for word in (guard.rule, guard.reason) if word)}]"
    below = []
    if guard.weights:
        below.append(Branch(f"weights {weights_text(guard.weights)}, propensity {_number(guard.propensity, '.4f')}"))
    told = [f"breaker {guard.breaker}"] if guard.breaker else []
    told += [f"{guard.changes_left} changes left"] if guard.changes_left is not None else []
    told += [f"only watched and against it: {', '.join(guard.would_refuse)}"] if guard.would_refuse else []
    if told:
        below.append(Branch("; ".join(told), tone="dim"))
    if guard.rules:
        below.append(Branch("rules, in their order", tuple(_rule(rule) for rule in guard.rules)))
    if guard.unknown:
        below.append(_lost(f"the rules' findings are not told: {guard.unknown}"))
    if guard.agrees is False:
        below.append(_lost("asked again, the rules lead to another verdict than the recorded one (trimtab replay)"))
    return Branch(said, tuple(below), "head")


def _rule(rule: RuleTold) -> Branch:
    watched = " (only watched)" if rule.is_watched else ""
    if rule.said in ("no objection", "not asked"):
        return Branch(f"{rule.rule}{watched}: {rule.said}", tone="dim" if rule.said == "not asked" else "")
    weights = f" → {weights_text(rule.weights)}" if rule.weights else ""
    tone: Tone = "" if rule.said == "allow" else "bad"
    said = "goes on with others" if rule.said == "allow" else rule.said
    reason = f": {rule.reason}" if rule.reason else ""
    return Branch(f"{rule.rule}{watched}: {said}{reason}{weights}", tone=tone)


def _written(title: str, written: WrittenTold) -> Branch:
    said = f"{title}: {written.outcome}"
    if written.rule or written.reason:
        said += f" [{': '.join(word for word in (written.rule, written.reason) if word)}]"
    rows = [
        [
            write.name or write.group,
            _number(write.before, "d"),
            _number(write.wanted, "d"),
            _number(write.after, "d"),
            write.result + (f": {write.reason}" if write.reason else ""),
        ]
        for write in written.writes
    ]
    below = list(table(("pod", "was", "wanted", "read back", "result"), rows)) if rows else []
    if written.overridden:
        below.append(_lost(f"somebody else had replaced our value: {', '.join(written.overridden)}"))
    return Branch(said, tuple(below), "head")


def _after(told: CycleTold) -> Branch:
    """Class by class, before → after."""
    after = told.after
    assert after is not None
    before = {one.name: one for one in told.seen.classes} if told.seen else {}
    rows, tones = [], []
    for one in after.classes:
        was = before.get(one.name)
        rows.append(
            [
                one.name,
                _change(_milliseconds(was) if was else "?", _milliseconds(one)) if one.objective_seconds else NONE,
                _change(_percent(was.over_ratio if was else None), _percent(one.over_ratio)),
                _change(_percent(was.waited_ratio if was else None), _percent(one.waited_ratio)),
                _change(_number(was.cpu_cores if was else None, ".2f"), _number(one.cpu_cores, ".2f")),
                _change(_number(was.weight if was else None, "d"), _number(one.weight, "d")),
                _change(_percent(was.share if was else None), _percent(one.share)),
            ]
        )
        tones.append(_tone(one))
    below = table(("class", "P99 ms", "over", "waited", "cores", "weight", "share"), rows, tones)
    return Branch(f"came after: {_contention(after)}", below, "head")


def _change(was: str, now: str) -> str:
    return now if was == now else f"{was} → {now}"


def _reward(reward: RewardTold) -> Branch:
    if reward.value is None:
        return Branch(f"reward: censored [{reward.reason}]", (Branch(f"never learned: {reward.meaning}"),), "head")
    below: Sequence[Branch]
    if reward.parts:
        rows = [
            [
                part.name,
                _number(None if part.term is None else part.term + 0.0, "+.4f"),
                _number(part.weight, ".4f"),
                f"{part.amount + 0.0:+.4f}",
            ]
            for part in reward.parts
        ]
        below = table(("term", "value", "weight", "amount"), [*rows, ["sum", "", "", _number(reward.total, "+.4f")]])
    else:
        below = tuple(Branch(f"{name} {value:+.4f}") for name, value in reward.terms.items())
    own = [Branch(f"{name} {value:+.4f}", tone="dim") for name, value in reward.terms.items() if "." in name]
    below = (*below, *(own if reward.parts else []))
    if reward.unknown:
        below = (*below, _lost(f"the weights of the terms are not known: {reward.unknown}"))
    return Branch(f"reward: {reward.value:+.4f}", tuple(below), "head")


def _command(command: Command) -> Branch:
    what = " ".join(word for word in (command.verb, command.mode, (command.model or "")[:12]) if word)
    named = f" (id {command.id})" if command.id else ""
    below = [Branch(f"to weights {weights_text(command.weights)}")] if command.weights else []
    if command.p99_before_seconds is not None and command.p99_after_seconds is not None:
        rise = f"{command.p99_before_seconds * 1000:.0f} → {command.p99_after_seconds * 1000:.0f} ms"
        below.append(Branch(f"P99 {rise}"))
    return Branch(f"command: {what} by {command.by}: {command.reason}{named}", tuple(below), "head")
