"""Applies targets to the kernel and takes them back: journal first, then write, then read back.

Holds the ledger, the journal and the writer together; what is decided is decided in `core`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from runtime.logs import Log
from schemas.messages import PodWrite
from services.actuator.cgroup_writer import CgroupWriter
from services.actuator.core.ledger import Entry, Ledger, ledger_of, restore_step
from services.actuator.core.solver import Target
from services.actuator.journal import Journal
from services.actuator.metrics import ActuatorMetrics


@dataclass
class Batch:
    """One application under way: what is settled, what is ready to be written, what the journal must know first."""

    writes: list[PodWrite] = field(default_factory=list)
    overridden: list[str] = field(default_factory=list)
    ready: list[tuple[Target, str]] = field(default_factory=list)
    records: list[Mapping[str, object]] = field(default_factory=list)
    first_writes: bool = False


class Weights:
    """The weights of all pods that were ever written, and the way back to each original."""

    def __init__(
        self,
        writer: CgroupWriter,
        journal: Journal,
        metrics: ActuatorMetrics,
        log: Log,
        *,
        foreign_limit: int,
        yield_seconds: float,
    ) -> None:
        self._writer = writer
        self._journal = journal
        self._metrics = metrics
        self._log = log
        self._foreign_limit = foreign_limit
        self._yield_seconds = yield_seconds
        self._ledger = Ledger()

    @property
    def touched(self) -> bool:
        """Whether any group may hold a weight of ours."""
        return bool(self._ledger.entries)

    def originals(self) -> dict[str, int]:
        """Original weights by group."""
        return self._ledger.originals()

    def recover(self) -> str | None:
        """Takes up an earlier run's journal; a word if it was damaged and set aside. Raises HostError."""
        records, trouble = self._journal.open()
        self._ledger = ledger_of(records)
        return trouble

    def close(self) -> None:
        """Closes the journal."""
        self._journal.close()

    # ---- forth ----

    def apply(self, targets: Sequence[Target], now: float) -> Batch:
        """Writes every target that may be written. Raises HostError, before any write, if the journal fails."""
        batch = Batch()
        for target in targets:
            self._prepare(target, now, batch)
        if batch.records:
            self._journal.append(batch.records, sync=batch.first_writes)
        batch.writes += [self._write(target, before) for target, before in batch.ready]
        for write in batch.writes:
            self._metrics.writes.labels(write.result).inc()
        return batch

    def _prepare(self, target: Target, now: float, batch: Batch) -> None:
        try:
            found = self._writer.read(target.group)
        except ValueError as error:  # a state that names what is no pod group costs that pod, not the cycle
            self._log.error("group_refused", detail=str(error))
            batch.writes.append(_skipped(target, None, "not_a_pod_group"))
            return
        if found is None:
            self._ledger.forget(target.group)
            batch.writes.append(_skipped(target, None, "gone"))
            return
        identity, text = found
        if text.strip() == "0":
            batch.writes.append(_skipped(target, 0, "idle"))
            return
        owner = self._ledger.owner(target.group, identity, text)
        if owner == "foreign":
            self._yield_to_other(target, text, now, batch)
        elif owner == "ours":
            self._ledger.stayed(target.group)
        if self._ledger.left_alone(target.group, now):
            batch.writes.append(_skipped(target, _number(text), "foreign"))
        elif text.strip() == str(target.weight):
            batch.writes.append(_write(target, text, text, "unchanged"))
        else:
            if owner == "new":
                self._begin(target, identity, text, batch)
            batch.records.append({"kind": "intend", "group": target.group, "value": str(target.weight)})
            batch.ready.append((target, text))

    def _begin(self, target: Target, identity: int, text: str, batch: Batch) -> None:
        self._ledger.begin(target.group, identity, text, target.name)
        record = {"kind": "original", "group": target.group, "identity": identity, "value": text, "name": target.name}
        batch.records.append(record)
        batch.first_writes = True

    def _yield_to_other(self, target: Target, text: str, now: float, batch: Batch) -> None:
        self._metrics.foreign.inc()
        batch.overridden.append(target.group)
        batch.records.append({"kind": "rebase", "group": target.group, "value": text})
        left = self._ledger.yielded(target.group, text, now, self._foreign_limit, self._yield_seconds)
        self._log.warning("foreign_write", group=target.group, weight=text.strip(), left_alone=left)

    def _write(self, target: Target, before: str) -> PodWrite:
        wanted = str(target.weight)
        self._ledger.intend(target.group, wanted)
        result = self._writer.write(target.group, wanted)
        if result.error == "gone":
            self._ledger.forget(target.group)
        if result.error is not None:
            return _skipped(target, _number(before), result.error)
        if result.after is None or result.after.strip() != wanted:
            return _write(target, before, result.after, "mismatch", "somebody else wrote in between")
        self._ledger.wrote(target.group, wanted)
        old = _number(before) or target.weight
        self._metrics.step_ratio.observe(max(old, target.weight) / max(1, min(old, target.weight)))
        return _write(target, before, result.after, "applied")

    # ---- back ----

    def restore(self) -> list[PodWrite]:
        """Every original, byte for byte, except over somebody else's value; empties the journal once all is settled.

        Raises HostError if the journal cannot be emptied; the weights are restored by then.
        """
        writes: list[PodWrite] = []
        for entry in list(self._ledger.entries.values()):
            write = self._restore(entry)
            writes.append(write)
            if write.result != "failed":
                self._ledger.forget(entry.group)
        if not self._ledger.entries:
            self._journal.clear()
        return writes

    def _restore(self, entry: Entry) -> PodWrite:
        found = self._writer.read(entry.group)
        identity, current = found if found is not None else (None, None)
        step = restore_step(entry, identity, current)
        target = Target("", entry.name, entry.group, _number(entry.original) or 0)
        if step != "write":
            if step == "foreign":
                self._metrics.foreign.inc()
            return _write(target, current, current, "unchanged" if step == "done" else "skipped", step)
        result = self._writer.write(entry.group, entry.original)
        if result.error == "gone":
            return _write(target, current, None, "skipped", "gone")
        good = result.error is None and result.after is not None and result.after.strip() == entry.original.strip()
        return _write(target, current, result.after, "applied" if good else "failed", result.error)


def _number(text: str | None) -> int | None:
    stripped = (text or "").strip()
    return int(stripped) if stripped.isdigit() else None


def _skipped(target: Target, before: int | None, reason: str) -> PodWrite:
    return PodWrite(
        uid=target.uid,
        group=target.group,
        before=before,
        wanted=target.weight,
        after=before,
        result="skipped",
        reason=reason,
        name=target.name,
    )


def _write(target: Target, before: str | None, after: str | None, result: str, reason: str | None = None) -> PodWrite:
    return PodWrite(
        uid=target.uid,
        group=target.group,
        before=_number(before),
        wanted=target.weight or None,
        after=_number(after),
        result=result,
        reason=reason,
        name=target.name,
    )
