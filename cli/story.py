"""One readable line per message: the bus as a story."""

from schemas.messages import (
    Action,
    Actuation,
    AnyMessage,
    ClassState,
    CollectRequest,
    Command,
    Heartbeat,
    Reward,
    State,
    Verdict,
)
from schemas.subjects import kind_of


def line_of(message: AnyMessage) -> str:
    """The message in one line: cycle, who speaks, what is said. What a terminal would obey is shown as `?`."""
    line = f"{message.cycle:>6}  {kind_of(message):<9}  {text_of(message)}"
    return line if line.isprintable() else "".join(sign if sign.isprintable() else "?" for sign in line)


def text_of(message: AnyMessage) -> str:  # noqa: PLR0911 - one case a kind
    """What the message says, without cycle and kind."""
    match message:
        case State():
            return f"{message.phase:<6} {_classes(message)}; {message.contention.reason or 'contention unknown'}"
        case Action():
            how = "explores" if message.explored else "picks"
            to = _weights(message.weights) if message.weights else message.reason or "holds"
            return f"{message.policy} {how} {message.arm} ({to}) with probability {message.propensity:.2f}"
        case Verdict():
            what = f"{message.outcome} {_weights(message.weights)}".strip()
            return f"{what}{_because(message.rule, message.reason)}"
        case Actuation():
            return f"{message.outcome}{_written(message)}{_because(message.rule, message.reason)}"
        case Reward(outcome="joined"):
            terms = ", ".join(f"{name} {value + 0.0:+.2f}" for name, value in message.terms.items() if "." not in name)
            return f"{message.value:+.3f} for {message.arm} ({terms})"
        case Reward():
            return f"censored: {message.reason}"
        case Command():
            target = f" {message.mode}" if message.mode else ""
            return f"{message.verb}{target} by {message.by}: {message.reason}"
        case CollectRequest():
            return "the rewarder asks the collector to look again"
        case Heartbeat():
            return f"{message.service} is {message.status}"


def _classes(state: State) -> str:
    parts = []
    for name, seen in state.classes.items():
        if seen.pods == 0:
            continue
        cores = f" {seen.cpu_cores:.2f} cores" if seen.cpu_cores is not None else ""
        weight = f" weight {seen.weight}" if seen.weight is not None else ""
        parts.append(f"{name}{_judged_by(seen)}{cores}{weight}")
    return ", ".join(parts) or "no pods"


def _judged_by(seen: ClassState) -> str:
    """The number that judges the class, or that it is not known."""
    latency, ceiling = seen.latency, seen.objective_pressure_ratio
    if seen.judged_by == "pressure":
        waited = f"{seen.waited_ratio * 100:.0f} %" if seen.waited_ratio is not None else "unknown"
        return f" waited {waited}" + (f" (ceiling {ceiling * 100:.3g} %)" if ceiling is not None else "")
    if latency.p99_seconds is not None:
        at_least = ">" if "p99" in latency.saturated else ""
        return f" P99 {at_least}{latency.p99_seconds * 1000:.0f} ms"
    return f" P99 unknown ({latency.reason})" if seen.judged_by == "latency" and latency.reason else ""


def _weights(weights: dict[str, int] | None) -> str:
    return ":".join(str(weight) for weight in weights.values()) if weights else ""


def _written(actuation: Actuation) -> str:
    changed = [write for write in actuation.writes if write.result == "applied"]
    if not changed:
        return ""
    shown = ", ".join(f"{write.name or write.group} {write.before}→{write.after}" for write in changed[:4])
    more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""  # noqa: PLR2004 - as many as fit on a line
    return f" {shown}{more}"


def _because(rule: str | None, reason: str | None) -> str:
    if rule and reason:
        return f" [{rule}: {reason}]"
    return f" [{rule or reason}]" if rule or reason else ""
