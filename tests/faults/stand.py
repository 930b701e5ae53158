"""A rig under watch: what was heard and when, what the weight files held and when, what the logs and metrics say."""

import asyncio
import contextlib
import itertools
import json
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client.parser import text_string_to_metric_families

from lab.rig import Rig, RigOptions
from runtime.settings import BusSettings
from schemas.messages import Actuation, AnyMessage, Verdict
from tests.faults.stage import FaultCgroupStage, FaultSimStage
from tests.faults.story import Key, kinds_of, lost_of, misapplied, whole_of
from tests.faults.table import Result

M = TypeVar("M", bound=AnyMessage)

TICK_SECONDS = 1.0
DEAD_MAN_SECONDS = 3.0
WAIT_SECONDS = 45.0
"""Longest wait for one thing. 45: a busy machine starts five services in fifteen."""

FLAGS = (
    "loop.settle_seconds=0.4",
    "http.base_port=0",  # several rigs run side by side
    f"actuator.dead_man_seconds={DEAD_MAN_SECONDS}",
    "guard.blind_after_ticks=4",
    "guard.rollbacks_to_open=100",  # the breaker has its own tests; open, it would hold up the rows that follow
    "decider.epsilon=1.0",  # every cycle another profile: a write to be broken in each
)


class Red(Exception):
    """A row did not end as it must."""


@dataclass(frozen=True)
class Timed:
    """One message and when it was heard, in monotonic seconds."""

    at: float
    message: AnyMessage


@dataclass
class Case:
    """One row under way."""

    result: Result
    since: int
    """Index of the first message of the row."""

    log_offsets: dict[str, int]
    struck_at: float = 0.0
    ends: str = "whole"
    """Before the row is over a cycle that begins after the fault must be whole, and with `whole` have written."""

    def struck(self) -> None:
        """The fault is there now."""
        self.struck_at = time.monotonic()

    def safe(self, seen_in: str, at: float | None = None) -> None:
        """The expected end state is there, and this showed it."""
        self.result.safe_seconds = (time.monotonic() if at is None else at) - self.struck_at
        self.result.seen_in = seen_in


@dataclass
class Stand:
    """Opened once, closed once; one row at a time."""

    run_dir: Path
    flags: tuple[str, ...] = ()
    cgroup: bool = False
    patience: float = 1.0
    """Times as long as written is waited for everything, on a slow machine. What is asserted does not change."""

    credentials: bool = False
    """Whether the server knows its users (`trimtab creds init`)."""

    heard: list[Timed] = field(default_factory=list)
    seen: list[tuple[float, dict[str, str]]] = field(default_factory=list)
    """When the weights became what."""

    expected: dict[str, str] = field(default_factory=dict)
    """What every weight must be in the end, by group. A row that plays a foreign writer changes it."""

    undo: list[Callable[[], object]] = field(default_factory=list)
    gear: dict[str, Any] = field(default_factory=dict)
    """What a bench has prepared for its rows."""

    rig: Rig = field(init=False)
    stage: FaultSimStage | FaultCgroupStage = field(init=False)
    _trap: Callable[[AnyMessage], bool] | None = None
    _stir: asyncio.Event = field(default_factory=asyncio.Event)
    _watching: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self.run_dir.mkdir(parents=True)
        self.stage = FaultCgroupStage(3600.0, 1) if self.cgroup else FaultSimStage(seed=1)
        flags = [part for flag in (*FLAGS, *self.flags) for part in ("--set", flag)]
        options = RigOptions(self.run_dir, tick_seconds=TICK_SECONDS, flags=tuple(flags))
        if self.credentials:
            folder = self.run_dir / "creds"
            _creds("init", folder)
            options = replace(options, access=folder / "access.conf", bus=self.login)
        self.rig = Rig(self.stage, options, self._hear)

    # ---- life ----

    @property
    def login(self) -> BusSettings:
        """How to reach a server that knows its users."""
        folder = self.run_dir / "creds"
        return BusSettings(
            nkey_seed_file=str(folder / "{service}.seed"),
            inbox_prefix="_INBOX_{service}",
            tls_ca_file=str(folder / "ca.pem"),
            declare_streams=False,
        )

    async def open(self) -> None:
        if self.credentials:
            url = await self.rig.start_server()
            await asyncio.to_thread(_creds, "declare", self.run_dir / "creds", "--nats-url", url)
        await self.rig.start()
        self.expected = dict(self.rig.originals)
        self._watching = asyncio.create_task(self._watch())
        await self.rig.stage.start_batch()

    async def close(self, *, keep: bool) -> str:
        """Ends everything; what was left behind, or was not as it must be."""
        left: list[str] = []
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        self.rig.originals = dict(self.expected)
        if not await self.rig.close():
            left += self.rig.troubles
        for back in reversed(self.undo):
            try:
                back()
            except (OSError, subprocess.SubprocessError) as error:
                left.append(f"{type(error).__name__}: {error}")
        left += [f"process {pid}: {name}" for pid, name in processes_of(str(self.run_dir))]
        left += [f"mount {line}" for line in Path("/proc/mounts").read_text().split("\n") if str(self.run_dir) in line]
        if not keep:
            await asyncio.to_thread(shutil.rmtree, self.run_dir, ignore_errors=True)
            left += [str(self.run_dir)] if self.run_dir.exists() else []
        return "; ".join(left)

    # ---- what is going on ----

    def _hear(self, message: AnyMessage) -> None:
        self.heard.append(Timed(time.monotonic(), message))
        if self._trap is not None and self._trap(message):
            self._trap = None
        self._stir.set()

    async def _watch(self) -> None:
        while True:
            weights = self.stage.weights()
            if not self.seen or self.seen[-1][1] != weights:
                self.seen.append((time.monotonic(), weights))
                self._stir.set()
            await asyncio.sleep(0.01)

    def weights(self) -> dict[str, str]:
        return self.stage.weights()

    def pid(self, service: str) -> int:
        return self.rig.fleet.pids()[service]

    async def until(self, claim: Callable[[], bool], what: str, seconds: float = WAIT_SECONDS) -> None:
        """Returns when the claim is true; asked again after every message, every write and every 50 ms."""
        end = time.monotonic() + seconds * self.patience
        while not claim():
            if self.rig.fleet.supervisor.failed is not None and self.rig.failed.done():
                raise Red(f"a service was given up: {self.rig.failed.result()}")
            left = end - time.monotonic()
            if left <= 0:
                raise Red(f"not within {seconds * self.patience:g} s: {what}")
            self._stir.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(0.05, left)):
                    await self._stir.wait()

    async def until_async(self, claim: Callable[[], Awaitable[bool]], what: str, seconds: float = WAIT_SECONDS) -> None:
        """As `until`, for a claim that takes an answer from somebody; asked ten times a second."""
        end = time.monotonic() + seconds * self.patience
        while not await claim():
            if time.monotonic() > end:
                raise Red(f"not within {seconds * self.patience:g} s: {what}")
            await asyncio.sleep(0.1)

    def count(self) -> int:
        return len(self.heard)

    def of(self, kind: type[M], since: int = 0) -> list[M]:
        return [timed.message for timed in self.heard[since:] if isinstance(timed.message, kind)]

    async def next(self, kind: type[M], claim: Callable[[M], bool], what: str, since: int | None = None) -> M:
        """The first such message from `since` on (default: from now on)."""
        start = self.count() if since is None else since

        def found() -> list[M]:
            return [message for message in self.of(kind, start) if claim(message)]

        await self.until(lambda: bool(found()), what)
        return found()[0]

    async def at(self, claim: Callable[[AnyMessage], bool], act: Callable[[], object], what: str) -> None:
        """Acts at once, in the very call that hears the message."""
        done = False

        def trap(message: AnyMessage) -> bool:
            nonlocal done
            if claim(message):
                act()
                done = True
            return done

        self._trap = trap
        await self.until(lambda: done, what)

    def back_since(self, moment: float) -> float | None:
        """When every weight was what it must be, at or after this moment; None: not yet."""
        now = self.seen[-1]
        if now[0] < moment and now[1] == self.expected:
            return moment
        seen = next((at for at, weights in self.seen if at >= moment and weights == self.expected), None)
        return self._found_back(moment) if seen is None else seen

    def _found_back(self, moment: float) -> float | None:
        """When it was heard that a write found the original in every file: on a busy machine they may come and
        go between two looks of ours.
        """
        originals = {group: text.strip() for group, text in self.expected.items()}
        for timed in itertools.takewhile(lambda timed: timed.at > moment, reversed(self.heard)):
            told = timed.message
            if isinstance(told, Actuation) and {each.group: str(each.before) for each in told.writes} == originals:
                return timed.at
        return None

    async def originals(self, case: Case, what: str) -> float:
        """Waits until the original bytes are in every file; when they were."""
        await self.until(lambda: self.back_since(case.struck_at) is not None, f"originals back ({what})")
        found = self.back_since(case.struck_at)
        assert found is not None
        return found

    # ---- cycles ----

    def kinds(self, since: int) -> dict[Key, Counter[str]]:
        """The kinds heard of each cycle whose first state came at `since` or later, in that order."""
        return kinds_of(timed.message for timed in self.heard[since:])

    def applied(self, since: int) -> list[Actuation]:
        return [each for each in self.of(Actuation, since) if each.outcome == "applied"]

    def whole(self, since: int) -> list[Key]:
        """Cycles begun at `since` or later that are whole and were in time."""
        return whole_of([timed.message for timed in self.heard[since:]])

    async def whole_cycle(self, what: str = "a whole cycle", since: int | None = None) -> float:
        """Waits for a cycle that begins from now on and is whole; when it was."""
        start = self.count() if since is None else since
        await self.until(lambda: bool(self.whole(start)), what)
        return time.monotonic()

    async def strike(
        self, case: Case, act: Callable[[], object], claim: Callable[[AnyMessage], bool] | None = None
    ) -> None:
        """Acts at once when such a message is heard (default: an application) while weights of ours are in force."""

        def due(message: AnyMessage) -> bool:
            wanted = _is_applied(message) if claim is None else claim(message)
            return wanted and self.weights() != self.expected

        def struck() -> None:
            act()
            case.struck()

        await self.at(due, struck, "the moment to strike")

    async def steer(self, seconds: float = WAIT_SECONDS) -> None:
        """Mode active, and weights of ours in force: something to lose."""
        await self.until(lambda: self.rig.bus is not None and self.rig.bus.connected, "the listener's own connection")
        start = self.count()
        await self.rig.order("active", "a fault comes", by="fault suite")

        def moved() -> bool:
            return bool(self.applied(start)) and self.weights() != self.expected

        await self.until(moved, "weights of ours in force", seconds)

    async def rest(self) -> None:
        """Mode shadow, and every original in its file."""
        await self.rig.order("shadow", "the row is over", by="fault suite")
        await self.until(lambda: self.weights() == self.expected, "originals back after the row (mode shadow)")

    # ---- rows ----

    def begin(self, result: Result) -> Case:
        return Case(result, self.count(), {path.stem: path.stat().st_size for path in self._logs()})

    async def play(self, case: Case, run: Callable[["Stand", Case], object]) -> None:
        """One row, from weights in force to originals back. Raises Red."""
        await self.steer()
        case.since = self.count()
        outcome = run(self, case)
        await outcome  # type: ignore[misc]
        healed = self.count()
        if case.ends == "whole":
            await self.until(
                lambda: bool(set(self.whole(healed)) & {(a.boot, a.cycle) for a in self.applied(healed)}),
                "a whole cycle with a write after the fault",
            )
        else:
            await self.whole_cycle("a whole cycle after the fault")
        self.judge(case)
        await self.rest()
        case.result.originals = True

    def judge(self, case: Case) -> None:
        """Applications and losses, over what was heard in the row."""
        trouble = misapplied(self.of(Actuation, case.since), self.of(Verdict))
        case.result.once = not trouble
        if trouble:
            raise Red(trouble)
        case.result.lost = lost_of([timed.message for timed in self.heard[case.since :]])

    # ---- logs and metrics ----

    def _logs(self) -> Iterable[Path]:
        return (self.run_dir / "logs").glob("*.log")

    def logged(self, case: Case, service: str, event: str, **fields: object) -> dict[str, object] | None:
        """The first such line of the service's log in this row."""
        path = self.run_dir / "logs" / f"{service}.log"
        with contextlib.suppress(OSError), path.open("rb") as file:
            file.seek(case.log_offsets.get(service, 0))
            for raw in file:
                with contextlib.suppress(ValueError):
                    line = json.loads(raw)
                    if line.get("event") == event and all(line.get(key) == value for key, value in fields.items()):
                        return dict(line)
        return None

    async def log_line(self, case: Case, service: str, event: str, **fields: object) -> str:
        """Waits for that line; its short form."""
        await self.until(
            lambda: self.logged(case, service, event, **fields) is not None,
            f"{service}.log: {event} {' '.join(f'{key}={value}' for key, value in fields.items())}",
        )
        said = " ".join(f"{key}={value}" for key, value in fields.items())
        return f"{service}.log: {event} {said}".strip()

    async def metric(self, service: str, name: str, **labels: str) -> float:
        """A sample of the service's /metrics; 0 if it has none yet."""
        text = await self.page(service, "/metrics")
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                if sample.name == name and all(sample.labels.get(key) == value for key, value in labels.items()):
                    return float(sample.value)
        return 0.0

    async def page(self, service: str, path: str) -> str:
        """What the service's HTTP server says there, whatever the status."""
        text = await asyncio.to_thread((self.run_dir / "logs" / f"{service}.log").read_text, errors="replace")
        ports = []
        for raw in text.split("\n"):
            with contextlib.suppress(ValueError):
                line = json.loads(raw)
                if line.get("event") == "started":
                    ports.append(int(line["port"]))
        reader, writer = await asyncio.open_connection("127.0.0.1", ports[-1])
        try:
            writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            async with asyncio.timeout(5.0 * self.patience):
                page = (await reader.read()).decode()
        finally:
            writer.close()
        return page.partition("\r\n\r\n")[2]

    async def counted(self, before: float, service: str, name: str, **labels: str) -> str:
        """Waits until the counter is above `before`; its short form."""
        end = time.monotonic() + WAIT_SECONDS * self.patience
        while (now := await self.metric(service, name, **labels)) <= before:
            if time.monotonic() > end:
                raise Red(f"{service}: {name}{labels} stays at {before:g}")
            await asyncio.sleep(0.1)
        said = ",".join(labels.values())
        return f"{service} metric {name.removeprefix('trimtab_')}{{{said}}} +{now - before:g}"


def _is_applied(message: AnyMessage) -> bool:
    return isinstance(message, Actuation) and message.outcome == "applied"


def _creds(verb: str, folder: Path, *flags: str) -> None:
    argv = [sys.executable, "-m", "cli", "creds", verb, str(folder), *flags]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    if done.returncode:
        raise Red(f"{' '.join(argv[2:5])}: {done.stderr.strip()}")


def processes_of(text: str) -> list[tuple[int, str]]:
    """Processes whose command line holds this text."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            line = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if text in line:
                found.append((int(path.parent.name), line.strip()[:80]))
    return found
