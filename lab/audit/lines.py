"""Events and answers as small trees: what happened, and on whose word."""

from lab.audit.answer import InForce
from lab.audit.events import ByAction, ByCommand, ByItself, ByOther, Cause, Event
from lab.explain.lines import weights_text
from lab.explain.tree import Branch, Tone

_TONES: dict[str, Tone] = {"change": "head", "foreign": "bad", "unexplained": "bad", "gap": "bad"}
_UNKNOWN = "the record does not have it"


def branch_of(event: Event, following: object = None) -> Branch:
    """One event, with what led to it; unless that led to the one that follows, too, which then tells it."""
    where = f"{event.boot}/{event.cycle}" if event.cycle else event.boot
    is_told = isinstance(following, Event) and (following.kind, following.at_ns, following.cause) == (
        event.kind,
        event.at_ns,
        event.cause,
    )
    below = cause_branches(event.cause) if event.kind == "change" and event.cause is not None and not is_told else ()
    return Branch(f"{event.at}  {where}  {event.text}", below, _TONES.get(event.kind, ""))


def cause_branches(cause: Cause) -> tuple[Branch, ...]:
    """Why, on whose word, under which model."""
    match cause:
        case ByCommand():
            named = f" (id {cause.id})" if cause.id else ""
            what = " ".join(word for word in (cause.verb, cause.mode) if word)
            return (Branch(f"on the word of {cause.by}: {what}{named}, since: {cause.reason}"),)
        case ByItself() | ByOther():
            return (Branch(f"on nobody's word: {cause.reason}"),)
        case ByAction():
            return (Branch(_decided(cause)), Branch(_model(cause)), Branch(_let_by(cause)))


def answer_branch(answer: InForce) -> Branch:
    """A pod at a moment."""
    parts = [Branch(answer.note, tone="dim")] if answer.note else []
    if answer.change is not None:
        parts.append(branch_of(answer.change))
    if answer.meanwhile:
        parts.append(Branch("at that time, and lost since", tuple(branch_of(event) for event in answer.meanwhile)))
    weight = "?" if answer.weight is None else str(answer.weight)
    return Branch(f"{answer.pod} ({answer.uid}) on {answer.node} at {answer.at}: weight {weight}", tuple(parts), "head")


def _decided(cause: ByAction) -> str:
    if cause.policy is None:
        return f"arm {cause.arm or '?'}; who proposed it: {_UNKNOWN}"
    how = "drew by chance" if cause.explored else "took"
    name = cause.policy if cause.policy == cause.in_charge else f"{cause.in_charge} ({cause.policy})"
    if cause.in_charge != cause.champion:
        name += f", in charge here by a trial (champion: {cause.champion})"
    propensity = ""
    if cause.propensity is not None:
        propensity = f", propensity {cause.propensity:.4f}"
    elif cause.outcome is not None:
        propensity = f", without a propensity as the guard said {cause.outcome}"
    why = f": {cause.why}" if cause.why else ""
    return f"on the word of policy {name}, which {how} {cause.arm}{propensity}{why}"


def _model(cause: ByAction) -> str:
    if cause.policy is None:
        return f"under which model: {_UNKNOWN}"
    model = f"model {cause.model}" if cause.model else "no stored model"
    return f"under {model} and {cause.lessons} rewards since, run {cause.run or '?'}"


def _let_by(cause: ByAction) -> str:
    if cause.outcome is None:
        return f"weights {weights_text(cause.weights)}; the guard's verdict: {_UNKNOWN}"
    why = f" [{': '.join(word for word in (cause.rule, cause.reason) if word)}]" if cause.rule or cause.reason else ""
    breaker = f", breaker {cause.breaker}" if cause.breaker else ""
    weights = f": weights {weights_text(cause.weights)}"
    return f"the guard said {cause.outcome}{why} in mode {cause.mode}{breaker}{weights}"
