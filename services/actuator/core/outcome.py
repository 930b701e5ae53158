"""What is said of one group's write, and how a cycle's writes add up to one outcome."""

from collections.abc import Sequence

from schemas.messages import ActuationOutcome, PodWrite
from services.actuator.core.solver import Target


def pod_write(
    target: Target, before: str | None, after: str | None, result: str, reason: str | None = None
) -> PodWrite:
    """One group's part of an actuation, from the texts of its file."""
    return PodWrite(
        uid=target.uid,
        group=target.group,
        before=number(before),
        wanted=target.weight or None,
        after=number(after),
        result=result,
        reason=reason,
        name=target.name,
    )


def number(text: str | None) -> int | None:
    """The number in the text of a weight file; None if it is none."""
    stripped = (text or "").strip()
    return int(stripped) if stripped.isdigit() else None


def outcome_of(writes: Sequence[PodWrite]) -> tuple[ActuationOutcome, str | None]:
    """The outcome and, where nothing changed, why: one applied write makes the cycle applied; all that can be written
    in force already is held; nothing to write is skipped; the rest failed.
    """
    results = {write.result for write in writes}
    if "applied" in results:
        return "applied", None
    if not writes:
        return "skipped", "no pod of these classes can be written"
    if "unchanged" in results and results <= {"unchanged", "skipped"}:
        return "held", None
    return "failed", next((write.reason for write in writes if write.reason), None)
