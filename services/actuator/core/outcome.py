"""How a cycle's writes add up to one outcome."""

from collections.abc import Sequence

from schemas.messages import ActuationOutcome, PodWrite


def outcome_of(writes: Sequence[PodWrite]) -> tuple[ActuationOutcome, str | None]:
    """The outcome and, where nothing changed, why: one applied write makes the cycle applied; all in force already is
    held; nothing to write is skipped; the rest failed.
    """
    results = {write.result for write in writes}
    if "applied" in results:
        return "applied", None
    if not writes:
        return "skipped", "no pod of these classes can be written"
    if results == {"unchanged"}:
        return "held", None
    return "failed", next((write.reason for write in writes if write.reason), None)
