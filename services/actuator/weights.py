"""Applies targets to the kernel and takes them back: journal first, then write, then read back.

Holds the ledger, the journal and the writer together; what is decided is decided in `core`.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from runtime.errors import HostError
from runtime.logs import Log
from schemas.messages import PodWrite
from services.actuator.cgroup_writer import CgroupWriter, Reading
from services.actuator.core.ledger import Entry, Ledger, Owner, ledger_of, restore_step
from services.actuator.core.outcome import number, pod_write
from services.actuator.core.records import Intend, Original, Rebase, Record
from services.actuator.core.solver import Target
from services.actuator.journal import Journal
from services.actuator.metrics import ActuatorMetrics

_COMPACT_BYTES: Final = 1 << 20
"""Size at which the journal is written anew: a few thousand groups, or some hours of changes."""


@dataclass(frozen=True)
class Ready:
    """One write to be made: `text` over what was read; `ours` is what the group may hold by our hand until then."""

    target: Target
    found: Reading
    text: str
    ours: frozenset[str]


@dataclass
class Batch:
    """One application under way: what is settled, what is ready to be written, what the journal must know first.

    `overridden` are the groups where somebody replaced our value. `late` says why nothing was written after all.
    """

    writes: list[PodWrite] = field(default_factory=list)
    ready: list[Ready] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    overridden: list[str] = field(default_factory=list)
    late: str | None = None

    @property
    def refused_everywhere(self) -> bool:
        """Whether writes were tried and all that came of it is that nothing may be written here (WT-05)."""
        tried = [write for write in self.writes if write.result in ("applied", "failed", "mismatch")]
        return bool(tried) and all(write.reason == "read_only" for write in tried)


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
        return self._ledger.touched

    @property
    def groups(self) -> frozenset[str]:
        """All groups whose originals are kept."""
        return frozenset(self._ledger.entries)

    def originals(self) -> dict[str, int]:
        """Original weights by group."""
        return self._ledger.originals()

    def recover(self) -> str | None:
        """Takes up an earlier run's journal; a word if it was damaged and set aside. Raises HostError."""
        records, trouble = self._journal.open()
        if self._journal.was_torn and trouble is None:
            self._log.warning("journal_torn", detail="its last line was cut off and is left out")
        self._ledger = ledger_of(records)
        return trouble

    def lost(self) -> str | None:
        """Why some originals may not be known any more, or None."""
        return self._journal.lost()

    def close(self) -> None:
        """Closes the journal."""
        self._journal.close()

    # ---- forth ----

    def apply(
        self,
        targets: Sequence[Target],
        now: float,
        *,
        too_late: Callable[[], str | None] = lambda: None,
        only_ours: bool = False,
    ) -> Batch:
        """Writes every target that may be written. Raises HostError, before any write, if the journal fails.

        `too_late` is asked once more when the journal is on disk, which can take its time. With `only_ours` nothing
        but a value of ours is written over: elsewhere a rollback has nothing to undo.
        """
        self._prune(targets)
        batch = Batch()
        for target in targets:
            self._prepare(target, now, batch, only_ours=only_ours)
        self._record(batch.records)
        for group in batch.overridden:
            self._count_foreign(group, now)
        batch.late = too_late() if batch.ready else None
        for ready in batch.ready:
            batch.writes.append(self._write(ready, now, batch) if batch.late is None else self._leave(ready))
        batch.writes.sort(key=lambda write: write.group)
        self._leave_denied_alone(batch, now)
        for write in batch.writes:
            self._metrics.writes.labels(write.result).inc()
        return batch

    def _prepare(self, target: Target, now: float, batch: Batch, *, only_ours: bool) -> None:
        group = target.group
        try:
            found = self._writer.read(group)
        except ValueError as error:  # a state that names what is no pod group costs that pod, not the cycle
            self._log.error("group_refused", detail=str(error))
            batch.writes.append(_skipped(target, None, "not_a_pod_group"))
            return
        if not isinstance(found, Reading):
            if found == "gone":
                self._ledger.vanished(group)
            batch.writes.append(_skipped(target, None, found))
            return
        if found.text.strip() == "0":
            batch.writes.append(_skipped(target, found.text, "idle"))
            return
        owner = self._ledger.owner(group, found.identity, found.text)
        why_not = self._why_not(target, found, owner, now, batch)
        if only_ours and owner != "ours":
            why_not = "foreign" if owner in ("foreign", "moved") else "not_ours"
        if why_not is not None:
            batch.writes.append(_skipped(target, found.text, why_not))
        elif found.text.strip() == str(target.weight):
            batch.writes.append(pod_write(target, found.text, found.text, "unchanged"))
        else:
            self._intend(target, found, owner, batch)

    def _why_not(self, target: Target, found: Reading, owner: Owner, now: float, batch: Batch) -> str | None:
        """Settles whose value is there, and says why the group is not written."""
        group, identity = target.group, found.identity
        if owner == "ours":
            self._ledger.stayed(group)
        elif owner in ("foreign", "moved"):
            batch.records.append(Rebase(group=group, value=found.text))
        if owner == "foreign":
            batch.overridden.append(group)
            if self._ledger.is_last_straw(group, identity, self._foreign_limit):
                return "foreign"
        return self._ledger.left_alone(group, identity, now)

    def _intend(self, target: Target, found: Reading, owner: Owner, batch: Batch) -> None:
        """Back at its original weight a group gets the original's bytes, not our spelling of them."""
        group, identity = target.group, found.identity
        if owner == "new":
            batch.records.append(Original(group=group, identity=identity, value=found.text, name=target.name))
        original = self._ledger.original(group, identity, found.text)
        text = original if original.strip() == str(target.weight) else str(target.weight)
        ours = frozenset({found.text.strip()}) if owner == "ours" else frozenset[str]()
        batch.records.append(Intend(group=group, values=tuple(sorted(ours | {text.strip()}))))
        batch.ready.append(Ready(target, found, text, ours))

    def _record(self, records: Sequence[Record]) -> None:
        """The journal first, then the ledger: if the journal fails, nothing has changed. Raises HostError."""
        if not records:
            return
        if self._journal.size_bytes > _COMPACT_BYTES or not self._journal.is_sound:
            self._journal.rewrite(self._ledger.records())
        self._journal.append(records, sync=any(isinstance(record, Original) for record in records))
        for record in records:
            self._ledger.take(record)

    def _write(self, ready: Ready, now: float, batch: Batch) -> PodWrite:
        target, before, wanted = ready.target, ready.found.text, ready.text.strip()
        result = self._writer.write(target.group, ready.text, ready.found.identity)
        if result.error == "gone":
            self._ledger.vanished(target.group)
            return _skipped(target, before, "gone")
        if result.error == "unreadable":
            return pod_write(target, before, None, "failed", result.error)
        if result.error is not None:
            self._ledger.not_written(target.group, ready.ours)
            return pod_write(target, before, before, "skipped" if result.error == "idle" else "failed", result.error)
        assert result.after is not None
        if result.after.strip() != wanted:
            self._overwritten_at_once(target.group, result.after, now, batch)
            return pod_write(target, before, result.after, "mismatch", "somebody else wrote in between")
        self._ledger.wrote(target.group, wanted)
        old = number(before) or target.weight
        self._metrics.step_ratio.observe(max(old, target.weight) / max(1, min(old, target.weight)))
        return pod_write(target, before, result.after, "applied")

    def _leave(self, ready: Ready) -> PodWrite:
        self._ledger.not_written(ready.target.group, ready.ours)
        return _skipped(ready.target, ready.found.text, "deadline")

    # ---- somebody else ----

    def _count_foreign(self, group: str, now: float) -> None:
        entry = self._ledger.entries[group]
        self._metrics.foreign.inc()
        left = self._ledger.overwritten(group, entry.identity, now, self._foreign_limit, self._yield_seconds)
        self._log.warning("foreign_write", group=group, weight=entry.original.strip(), left_alone=left)

    def _overwritten_at_once(self, group: str, value: str, now: float, batch: Batch) -> None:
        """Our write was gone by the time it was read back. If the journal cannot be told it knows our value alone,
        which restoring then does not find: the other's value stays either way.
        """
        record = Rebase(group=group, value=value)
        try:
            self._record([record])
        except HostError as error:
            self._log.error("journal_failed", detail=str(error))
            self._ledger.take(record)
        batch.overridden.append(group)
        self._count_foreign(group, now)

    def _leave_denied_alone(self, batch: Batch, now: float) -> None:
        """A group that refuses where others do not is left alone, so that it is not tried in every cycle."""
        if batch.refused_everywhere:
            return
        denied = {write.group for write in batch.writes if write.result == "failed" and write.reason == "read_only"}
        for ready in batch.ready:
            if ready.target.group in denied:
                until = now + self._yield_seconds
                self._ledger.leave_alone(ready.target.group, ready.found.identity, until, "read_only")

    def _prune(self, targets: Iterable[Target]) -> None:
        """Forgets groups that are gone and will never be a target again."""
        known = {group: found.identity for group, found in (self._ledger.others | self._ledger.entries).items()}
        for group in known.keys() - {target.group for target in targets}:
            identity, _, is_known = self._look(group)
            if is_known and identity != known[group]:
                self._ledger.vanished(group)

    # ---- back ----

    def release(self, kept: Collection[str]) -> list[PodWrite]:
        """Returns the originals of all groups but these: what is no target any more (a pod that was opted out, or has
        lost its class) keeps nothing of ours.
        """
        groups = self._ledger.entries.keys() - set(kept)
        return self._return(groups) if groups else []

    def release_only(self, left: Mapping[str, str]) -> list[PodWrite]:
        """Returns the originals of these groups, as far as they were ever written. `left` says why, by group, which is
        the reason of each that is `released`.
        """
        groups = self._ledger.entries.keys() & left.keys()
        writes = self._return(groups) if groups else []
        return [
            replace(write, result="released", reason=left[write.group]) if write.result == "applied" else write
            for write in writes
        ]

    def restore(self) -> list[PodWrite]:
        """Every original, byte for byte, except over somebody else's value. What could not be written or read stays
        in the journal, so that it can be tried again, by this process or the next.
        """
        return self._return(self._ledger.entries.keys())

    def _return(self, groups: Collection[str]) -> list[PodWrite]:
        writes: list[PodWrite] = []
        for entry in [entry for group, entry in self._ledger.entries.items() if group in groups]:
            write = self._restore(entry)
            writes.append(write)
            if write.result != "failed":
                self._ledger.forget(entry.group)
        try:
            self._journal.rewrite(self._ledger.records())
        except HostError as error:  # the old journal leads to the same originals
            self._log.error("journal_failed", detail=str(error))
        return writes

    def _restore(self, entry: Entry) -> PodWrite:
        target = Target("", entry.name, entry.group, number(entry.original) or 0)
        identity, current, is_known = self._look(entry.group)
        if not is_known:
            return pod_write(target, None, None, "failed", "unreadable")
        step = restore_step(entry, identity, current)
        if step == "write" and identity is not None:
            return self._write_original(entry, target, identity, current)
        if step == "foreign":
            self._metrics.foreign.inc()
        return pod_write(target, current, current, "unchanged" if step == "done" else "skipped", step)

    def _write_original(self, entry: Entry, target: Target, identity: int, current: str | None) -> PodWrite:
        try:
            result = self._writer.write(entry.group, entry.original, identity)
        except ValueError as error:  # the journal's word, and no weight: it can never be written
            self._log.error("original_refused", group=entry.group, detail=str(error))
            return pod_write(target, current, current, "skipped", "refused")
        if result.error == "gone":
            return pod_write(target, current, None, "skipped", "gone")
        if result.error is not None or result.after is None:
            return pod_write(target, current, result.after, "failed", result.error)
        if result.after.strip() != entry.original.strip():
            return pod_write(target, current, result.after, "skipped", "foreign")
        return pod_write(target, current, result.after, "applied")

    def _look(self, group: str) -> tuple[int | None, str | None, bool]:
        """Inode and text, None if it is gone or no pod's group; and whether that could be told."""
        try:
            found = self._writer.read(group)
        except ValueError:
            return None, None, True
        return (*found, True) if isinstance(found, Reading) else (None, None, found == "gone")


def _skipped(target: Target, before: str | None, reason: str) -> PodWrite:
    return pod_write(target, before, before, "skipped", reason)
