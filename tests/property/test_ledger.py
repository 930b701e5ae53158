"""Restoring after any history of our writes, others' writes, vanished groups and crashes at any moment (I1, I4, I5).

The real `Weights` run on a folder that looks like a cgroup tree. A crash is an exception that nothing catches: before or
after a kernel write, or in the middle of appending to the journal, of which only a part is in the file then.
"""

import itertools
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from prometheus_client import CollectorRegistry

from runtime.logs import get_log
from services.actuator.cgroup_writer import CgroupWriter
from services.actuator.core.journal_format import lines_of, records_of
from services.actuator.core.ledger import ledger_of
from services.actuator.core.solver import Target
from services.actuator.journal import Journal
from services.actuator.metrics import ActuatorMetrics
from services.actuator.weights import Weights

BOOT = "boot-1"
GROUPS = ("burstable/pod-a", "burstable/pod-b", "pod-c")
OURS = st.sampled_from([1, 500, 501, 502, 10_000])
THEIRS = st.sampled_from(["39\n", "40\n", "41\n", "100\n"])


class Crash(BaseException):
    """SIGKILL."""


@dataclass
class Kernel:
    """What a group should hold after a restore: `original`, if we wrote last; else what somebody else wrote."""

    original: str
    ours: bool = False


class Journalled(Journal):
    """A journal that can die in the middle of an append."""

    torn_after: int | None = None

    def append(self, records, *, sync):
        if self.torn_after is not None:
            block = lines_of(records)
            os.write(self._descriptor, block[: self.torn_after % len(block)])
            raise Crash
        super().append(records, sync=sync)


class Watched(CgroupWriter):
    """A writer that can die before or after a write, and that holds every write against the journal's file."""

    def __init__(self, machine):
        super().__init__(str(machine.root), "kubepods")
        self.machine = machine
        self.dies_at: tuple[int, bool] | None = None
        self.count = 0

    def write(self, group, text, identity):
        self.count += 1
        dies, after = (self.dies_at[0] == self.count, self.dies_at[1]) if self.dies_at else (False, False)
        if dies and not after:
            raise Crash
        self.machine.is_journalled(group, text, identity)
        before = self.machine.text_of(group)
        result = super().write(group, text, identity)
        if result.error is None:
            self.machine.we_wrote(group, before, text)
        if dies:
            raise Crash
        return result


class Restoring(RuleBasedStateMachine):
    @initialize()
    def start(self):
        shared_memory = "/dev/shm" if os.path.isdir("/dev/shm") else None
        self.path = Path(tempfile.mkdtemp(prefix="trimtab-ledger-", dir=shared_memory))
        self.root, self.graves = self.path / "cgroup", self.path / "graves"
        (self.root / "kubepods").mkdir(parents=True)
        self.graves.mkdir()
        self.numbers = itertools.count()
        self.now = 0.0
        self.kernel: dict[str, Kernel] = {}
        self.restoring = False
        for group in GROUPS:
            self._add(group, "100\n")
        self._boot()

    def teardown(self):
        if hasattr(self, "path"):
            self.weights.close()
            shutil.rmtree(self.path)

    # ---- the world ----

    def _add(self, group, text):
        folder = self.graves / str(next(self.numbers))
        folder.mkdir()
        (folder / "cpu.weight").write_text(text)
        place = self.root / "kubepods" / group
        place.parent.mkdir(exist_ok=True)
        folder.rename(place)
        self.kernel[group] = Kernel(text)

    def _remove(self, group):
        (self.root / "kubepods" / group).rename(self.graves / str(next(self.numbers)))  # its inode stays taken
        del self.kernel[group]

    def text_of(self, group):
        return (self.root / "kubepods" / group / "cpu.weight").read_text()

    def we_wrote(self, group, before, text):
        known = self.kernel[group]
        if not known.ours:
            known.original = before
        known.ours = not self.restoring

    def is_journalled(self, group, text, identity):
        entry = ledger_of(records_of((self.path / "journal").read_bytes(), BOOT)).entries.get(group)
        assert entry is not None, "written without a journalled original"
        assert entry.identity == identity
        assert entry.original == text if self.restoring else text.strip() in entry.ours

    # ---- the actuator ----

    def _boot(self):
        self.journal, self.writer = Journalled(self.path / "journal", BOOT), Watched(self)
        self.weights = Weights(
            self.writer,
            self.journal,
            ActuatorMetrics(CollectorRegistry()),
            get_log("actuator"),
            foreign_limit=3,
            yield_seconds=30.0,
        )
        assert self.weights.recover() is None

    def _killed(self):
        self.journal.close()
        self._boot()

    def _targets(self, wanted):
        return [Target(f"u-{group}", group, group, weight) for group, weight in wanted.items()]

    def _apply(self, wanted, *, only_ours=False):
        self.now += 5.0
        try:
            self.weights.apply(self._targets(wanted), self.now, only_ours=only_ours)
        except Crash:
            self._killed()
        else:
            self.writer.dies_at = self.journal.torn_after = None

    wanted = st.dictionaries(st.sampled_from(GROUPS), OURS, min_size=1)

    @rule(wanted=wanted)
    def applies(self, wanted):
        self._apply(wanted)

    @rule(wanted=wanted)
    def rolls_back(self, wanted):
        self._apply(wanted, only_ours=True)

    @rule(wanted=st.dictionaries(st.sampled_from(GROUPS), st.sampled_from([39, 40, 100]), min_size=1))
    def applies_what_looks_like_an_original(self, wanted):
        self._apply(
            {group: w for group, w in wanted.items() if self.kernel.get(group, Kernel("")).original == f"{w}\n"}
        )

    @rule(wanted=wanted, number=st.integers(1, 3), after=st.booleans())
    def dies_at_a_write(self, wanted, number, after):
        self.writer.count, self.writer.dies_at = 0, (number, after)
        self._apply(wanted)

    @rule(wanted=wanted, at=st.integers(0, 2000))
    def dies_while_appending(self, wanted, at):
        self.journal.torn_after = at
        self._apply(wanted)

    @rule()
    def is_killed_between_two_cycles(self):
        self._killed()

    @rule(number=st.integers(1, 3), after=st.booleans())
    def dies_while_restoring(self, number, after):
        self.writer.count, self.writer.dies_at = 0, (number, after)
        self.restoring = True
        try:
            self.weights.restore()
        except Crash:
            self._killed()
        else:
            self.writer.dies_at = None
        self.restoring = False

    @rule()
    def restores(self):
        self.restoring = True
        writes = self.weights.restore()
        self.restoring = False
        assert all(write.result != "failed" for write in writes)
        assert not self.weights.touched
        for group, known in self.kernel.items():
            assert self.text_of(group) == known.original, f"{group}: what was there before us is not there again"
            known.ours = False

    @rule()
    def restarts_and_restores(self):
        self._killed()
        self.restores()

    # ---- somebody else ----

    @rule(group=st.sampled_from(GROUPS), text=THEIRS)
    def somebody_writes(self, group, text):
        if group in self.kernel:
            (self.root / "kubepods" / group / "cpu.weight").write_text(text)
            self.kernel[group] = Kernel(text)

    @rule(group=st.sampled_from(GROUPS))
    def a_group_vanishes(self, group):
        if group in self.kernel:
            self._remove(group)

    @rule(group=st.sampled_from(GROUPS), text=st.sampled_from(["100\n", "55\n", "500\n"]))
    def a_group_is_made_anew(self, group, text):
        if group in self.kernel:
            self._remove(group)
        self._add(group, text)

    @invariant()
    def nobody_elses_value_is_lost(self):
        for group, known in getattr(self, "kernel", {}).items():
            if not known.ours:
                assert self.text_of(group) == known.original


Restoring.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestRestoring = Restoring.TestCase
