"""Bad input as people meet it: one line that says what, where and the way out; nothing written, nothing left running.

Every case runs real processes. A case that several programs share runs them side by side.
"""

import asyncio
import json
import os
import random
import signal
import socket
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
import pytest_asyncio

from runtime.nats_bus import NatsBus, connect, ignore_events
from runtime.nats_server import EmbeddedServer
from runtime.settings import BusSettings
from schemas.codec import decode, encode
from schemas.messages import AnyMessage
from schemas.subjects import ROOT, SERVICES, message_id, subject_of
from tests.support import builders

DEADLINE_SECONDS = 45.0
ALL = (*SERVICES, "up")
SOME = ("guard", "up")
"""Where all programs run the same code, one service and the fleet speak for the rest."""
MARK = "CLI_ERRORS_MARK"
IMPATIENT = {"TRIMTAB_BUS__CONNECT_TIMEOUT_SECONDS": "0.3"}

# ---- running ---------------------------------------------------------------------------------------------------------


class Ended(NamedTuple):
    """How a program ended. `complaints` are the lines on stderr that are no log lines."""

    code: int
    out: str
    err: str

    @property
    def complaints(self) -> list[str]:
        return [line for line in self.err.splitlines() if not line.startswith("{")]


def argv_of(target: str) -> list[str]:
    """The command line of a service or of a verb of `trimtab`."""
    if target in SERVICES:
        return [sys.executable, "-m", f"services.{target}"]
    return [sys.executable, "-m", "cli", target]


def environment(mark: str, **more: str) -> dict[str, str]:
    """This process's environment without settings of ours, marked so that children can be found by it."""
    return {name: text for name, text in os.environ.items() if not name.startswith("TRIMTAB_")} | {MARK: mark, **more}


def marked(mark: str) -> list[str]:
    """The command lines of all processes that inherited this mark."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


@asynccontextmanager
async def started(target: str, *flags: str, env: Mapping[str, str]) -> AsyncIterator[asyncio.subprocess.Process]:
    """A running program; killed at the end if it still runs."""
    process = await asyncio.create_subprocess_exec(
        *argv_of(target),
        *flags,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def run(target: str, *flags: str, patience_seconds: float = DEADLINE_SECONDS, **env: str) -> Ended:
    """Runs to the end, which is asked for with SIGTERM when patience is over. Fails if a process is left behind."""
    mark = uuid.uuid4().hex
    async with started(target, *flags, env=environment(mark, **env)) as process:
        ending = asyncio.ensure_future(process.communicate())
        if not (await asyncio.wait({ending}, timeout=patience_seconds))[0]:
            process.terminate()
        async with asyncio.timeout(DEADLINE_SECONDS):
            out, err = await ending
    assert marked(mark) == []
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


# ---- a node ----------------------------------------------------------------------------------------------------------


@dataclass
class Node:
    """A folder that stands in for a kernel, a workload file and a configuration that fits them."""

    folder: Path
    url: str
    settings: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.settings = {
            "version": 1,
            "bus": {"url": self.url, "connect_timeout_seconds": 5.0},
            "http": {"base_port": 0},
            "host": {"cgroup_root": str(self.folder / "cgroup"), "pods_root": "kubepods", "simulated": True},
            "collector": {"workloads": str(self.folder / "workloads.yaml")},
            "actuator": {"journal": str(self.folder / "journal")},
        }
        for group in ("", "kubepods", "kubepods/pod-api"):
            folder = self.folder / "cgroup" / group
            folder.mkdir(parents=True)
            (folder / "cgroup.controllers").write_text("cpu memory\n")
            (folder / "cgroup.subtree_control").write_text("cpu memory\n")
            (folder / "cpu.weight").write_text("100\n")
            (folder / "cpu.stat").write_text("usage_usec 0\nuser_usec 0\nsystem_usec 0\n")
        self.list_workloads(group="pod-api")

    def list_workloads(self, **fields: object) -> None:
        entry = {"uid": "uid-api", "labels": {"trimtab.dev/workload-class": "latency-critical"}, **fields}
        (self.folder / "workloads.yaml").write_bytes(msgspec.yaml.encode({"workloads": [entry]}))

    def config(self, section: str = "", **settings: object) -> str:
        """Path of a configuration: the fitting one, with these settings in one section or at the top."""
        tree = {key: dict(value) if isinstance(value, dict) else value for key, value in self.settings.items()}
        (tree.setdefault(section, {}) if section else tree).update(settings)
        path = self.folder / f"{uuid.uuid4().hex}.yaml"
        path.write_bytes(msgspec.yaml.encode(tree))
        return str(path)

    def kernel_files(self) -> dict[str, tuple[bytes, int]]:
        """Every file below the cgroup root with what it holds and when it was written."""
        files = (path for path in (self.folder / "cgroup").rglob("*") if path.is_file())
        return {str(path): (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    server = EmbeddedServer(tmp_path_factory.mktemp("nats"))
    yield await server.start()
    await server.stop()


@pytest.fixture
def node(tmp_path: Path, url: str) -> Iterator[Node]:
    made = Node(tmp_path / "node", url)
    before = made.kernel_files()
    yield made
    assert made.kernel_files() == before, "something was written below the cgroup root"


@pytest.fixture
def busy_port() -> Iterator[int]:
    """A port that is taken; the next ones are below those that the kernel gives out, so that nobody else takes them."""
    for port in random.sample(range(20_000, 30_000), 100):
        with socket.socket() as listener:
            try:
                listener.bind(("127.0.0.1", port))
            except OSError:
                continue
            listener.listen()
            yield port
            return
    raise AssertionError("a hundred ports are taken")


async def refused(targets: Sequence[str], flags: Sequence[str], code: int, *words: str) -> None:
    """Each target ends with this code and one line that holds all words."""
    for target, ended in zip(targets, await asyncio.gather(*(run(target, *flags) for target in targets)), strict=True):
        check_refusal(target, ended, code, words)


def check_refusal(target: str, ended: Ended, code: int, words: Sequence[str]) -> None:
    assert ended.code == code, f"{target}: {ended}"
    assert ended.out == "", f"{target}: {ended}"
    assert len(ended.complaints) == 1, f"{target}: {ended}"
    line = ended.complaints[0]
    assert line.startswith(f"trimtab {target}: "), line
    for word in words:
        assert word in line, f"{target}: {word!r} is not in {line!r}"


# ---- settings, files and flags: the same words from every program ---------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """One wrong setting: section, field, value, and what the complaint must name beside them."""

    section: str
    name: str
    value: object
    words: tuple[str, ...]


WRONG_SETTINGS = {
    "unknown_field": Setting("loop", "tik_seconds", 5, ("loop.tik_seconds", "known are", "tick_seconds")),
    "unknown_section": Setting("", "lop", {"tick_seconds": 5}, ("'lop'", "known are", "loop")),
    "weight_0": Setting("weights", "min_weight", 0, ("weights.min_weight", ">= 1")),
    "weight_10001": Setting("weights", "max_weight", 10_001, ("weights.max_weight", "<= 10000")),
    "class_without_objective": Setting("classes", "web", {"kind": "latency"}, ("classes.web", "objective_p99_seconds")),
    "contradiction": Setting("loop", "tick_seconds", 1.5, ("loop.tick_seconds", "must be more than")),
    "pods_root_outside": Setting("host", "pods_root", "../etc", ("host.pods_root", "below the cgroup root")),
}


@pytest.mark.parametrize("case", WRONG_SETTINGS)
async def test_a_wrong_setting_is_one_line_that_says_where(node: Node, case: str) -> None:
    setting = WRONG_SETTINGS[case]
    path = node.config(setting.section, **{setting.name: setting.value})
    first = list(WRONG_SETTINGS).index(case) % len(SERVICES)
    others = (SERVICES[first], SERVICES[(first + 2) % len(SERVICES)])  # each service is asked twice at least
    await refused((*others, "up"), ["--config", path], 2, path, *setting.words)


async def test_a_profile_with_a_weight_of_10001_is_refused_where_profiles_are_read(node: Node) -> None:
    path = node.config("decider", profiles={"high": {"batch": 10_001}})
    await refused(("decider", "up"), ["--config", path], 2, path, "decider.profiles.high.batch", "<= 10000")


async def test_a_configuration_that_is_not_there(tmp_path: Path) -> None:
    path = str(tmp_path / "missing.yaml")
    await refused((*ALL, "tail", "doctor"), ["--config", path], 2, path, "No such file", "--config")


async def test_a_configuration_that_is_a_folder(tmp_path: Path) -> None:
    await refused(SOME, ["--config", str(tmp_path)], 2, str(tmp_path), "directory", "--config")


async def test_a_configuration_that_is_no_yaml(tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_text("loop: {tick_seconds: 5\nnode: x: y\n")
    await refused(SOME, ["--config", str(path)], 2, str(path), "not valid YAML", "line 2")


async def test_a_set_flag_without_a_value(node: Node) -> None:
    flags = ["--config", node.config(), "--set", "loop.tick_seconds"]
    await refused(SOME, flags, 2, "--set", "loop.tick_seconds", "section.field=value")


async def test_a_set_flag_for_a_setting_that_does_not_exist(node: Node) -> None:
    flags = ["--config", node.config(), "--set", "nothing.at_all=1"]
    await refused(SOME, flags, 2, "--set", "nothing.at_all", "section.field=value")


async def test_a_set_flag_with_a_value_of_another_type(node: Node) -> None:
    flags = ["--config", node.config(), "--set", "loop.tick_seconds=soon"]
    await refused(ALL, flags, 2, "--set", "loop.tick_seconds", "expected `float`")


# ---- the bus, the ports, the node -----------------------------------------------------------------------------------


async def test_an_unreachable_server(node: Node) -> None:
    path = node.config("bus", url="nats://127.0.0.1:1", connect_timeout_seconds=0.5)
    await refused(ALL, ["--config", path], 3, "bus.url", "nats://127.0.0.1:1", "nats-server -js", "--nats-url")


async def test_an_address_that_is_none(node: Node) -> None:
    path = node.config("bus", url="nats://127.0.0.1:port", connect_timeout_seconds=0.5)
    await refused(SOME, ["--config", path], 3, "bus.url", "nats://127.0.0.1:port", "--nats-url")


async def test_a_port_in_use(node: Node, busy_port: int) -> None:
    flags = ["--config", node.config(), "--http-port", str(busy_port)]
    await refused(SERVICES, flags, 5, str(busy_port), "--http-port", "stop")


async def test_a_port_in_use_ends_all_services_with_the_code_of_the_one_that_needs_it(
    node: Node, busy_port: int, tmp_path: Path
) -> None:
    flags = ["--config", node.config("http", base_port=busy_port), "--run-dir", str(tmp_path / "run")]
    await refused(("up",), flags, 5, "collector", str(busy_port), "stop")


async def test_the_embedded_servers_port_in_use(node: Node, busy_port: int, tmp_path: Path) -> None:
    flags = ["--config", node.config(), "--embedded", "--port", str(busy_port), "--run-dir", str(tmp_path / "run")]
    await refused(("up",), flags, 5, str(busy_port), "--port")


async def test_a_port_that_is_none(node: Node) -> None:
    await refused(("guard",), ["--config", node.config(), "--http-port", "70000"], 2, "70000", "--http-port")


OUTSIDE: dict[str, tuple[str, Callable[[Node], object]]] = {
    "parents": ("../../etc", lambda node: None),
    "absolute": ("/etc", lambda node: None),
    "link": ("way-out", lambda node: (node.folder / "cgroup/kubepods/way-out").symlink_to("/etc")),
}


@pytest.mark.parametrize("case", OUTSIDE)
async def test_a_workload_outside_the_pods_root(node: Node, case: str) -> None:
    group, prepare = OUTSIDE[case]
    prepare(node)
    node.list_workloads(group=group)
    words = (str(node.folder / "workloads.yaml"), "workloads[0].group", repr(group), "pods root")
    await refused(("collector", "up"), ["--config", node.config()], 2, *words)


async def test_a_workload_file_with_an_unknown_field(node: Node) -> None:
    node.list_workloads(group="pod-api", klass="batch")
    words = (str(node.folder / "workloads.yaml"), "klass", "docs/operations.md")
    await refused(("collector", "up"), ["--config", node.config()], 2, *words)


async def test_no_workload_file(node: Node) -> None:
    path = node.config("collector", workloads=None)
    await refused(("collector", "up"), ["--config", path], 2, "collector.workloads", "YAML file")


async def test_a_cgroup_root_without_pods(node: Node) -> None:
    path = node.config("host", pods_root="elsewhere")
    await refused(("collector", "actuator", "up"), ["--config", path], 6, "host.pods_root", "elsewhere", "ls ")


async def test_a_journal_that_cannot_be_written(node: Node) -> None:
    path = node.config("actuator", journal=str(node.folder / "workloads.yaml" / "journal"))
    await refused(("actuator",), ["--config", path], 6, "actuator.journal", "writable path")


async def test_two_actuators_on_one_journal(node: Node) -> None:
    flags = ["--config", node.config()]
    mark = uuid.uuid4().hex
    async with started("actuator", *flags, env=environment(mark)) as first, asyncio.timeout(DEADLINE_SECONDS):
        assert first.stderr is not None
        while b'"started"' not in await first.stderr.readline():
            pass
        await refused(("actuator",), flags, 6, "actuator.journal", "another actuator", "stop that one")
        first.terminate()
        await first.communicate()
        assert first.returncode == 0
    assert marked(mark) == []


# ---- up, and when nothing is wrong ----------------------------------------------------------------------------------


async def test_a_run_dir_that_cannot_be_made(node: Node) -> None:
    run_dir = node.folder / "workloads.yaml" / "run"
    flags = ["--config", node.config(), "--run-dir", str(run_dir)]
    await refused(("up",), flags, 2, "--run-dir", str(run_dir), "choose a directory")


async def test_a_port_without_the_server_that_it_is_for(node: Node) -> None:
    await refused(("up",), ["--config", node.config(), "--port", "4333"], 2, "--port", "--embedded")


async def test_up_runs_until_told_to_stop_and_leaves_nothing(node: Node, tmp_path: Path) -> None:
    mark, run_dir = uuid.uuid4().hex, tmp_path / "run"
    flags = ["--config", node.config(), "--embedded", "--port", "0", "--run-dir", str(run_dir)]
    async with started("up", *flags, env=environment(mark)) as process, asyncio.timeout(DEADLINE_SECONDS):
        assert process.stderr is not None
        first = (await process.stderr.readline()).decode()
        assert first == f"trimtab up: five services run; logs and pids.json in {run_dir}\n"
        pids = json.loads((run_dir / "pids.json").read_text())
        assert set(pids) == set(SERVICES)
        assert len(marked(mark)) == 1 + 1 + len(SERVICES)
        process.send_signal(signal.SIGTERM)
        out, err = await process.communicate()
        assert (process.returncode, out, err) == (0, b"", b"")
    assert marked(mark) == []


async def test_up_says_so_when_nobody_could_return_the_weights_in_the_end(node: Node, tmp_path: Path) -> None:
    mark, run_dir, config = uuid.uuid4().hex, tmp_path / "run", node.config()
    flags = ["--config", config, "--run-dir", str(run_dir)]
    async with started("up", *flags, env=environment(mark)) as process, asyncio.timeout(DEADLINE_SECONDS):
        assert process.stderr is not None
        assert b"five services run" in await process.stderr.readline()
        Path(config).write_text("version: 99\n")  # neither a new actuator nor the last restore can start with it
        os.kill(json.loads((run_dir / "pids.json").read_text())["actuator"], signal.SIGKILL)
        process.send_signal(signal.SIGTERM)
        out, err = await process.communicate()
    check_refusal(
        "up", Ended(process.returncode or 0, out.decode(), err.decode()), 6, ("weights may not be", "--restore", "99")
    )
    assert marked(mark) == []


# ---- demo -----------------------------------------------------------------------------------------------------------

DEMO_FLAGS: dict[str, tuple[list[str], int, tuple[str, ...]]] = {
    "short": (["--duration", "3"], 2, ("--duration 3", "30 to 3600")),
    "endless": (["--duration", "inf"], 2, ("--duration inf", "30 to 3600")),
    "no_number": (["--duration", "nan"], 2, ("--duration nan", "30 to 3600")),
    "tick": (["--tick", "0.1"], 2, ("--tick 0.1", "1 to a twelfth")),
    "port": (["--port", "70000"], 2, ("--port", "70000", "65535")),
}


@pytest.mark.parametrize("case", DEMO_FLAGS)
async def test_a_demo_that_cannot_be(case: str, tmp_path: Path) -> None:
    flags, code, words = DEMO_FLAGS[case]
    await refused(("demo",), ["--simulate", "--run-dir", str(tmp_path / "run"), *flags], code, *words)
    assert not (tmp_path / "run").exists()


async def test_the_demos_port_in_use(busy_port: int, tmp_path: Path) -> None:
    flags = ["--simulate", "--run-dir", str(tmp_path / "run"), "--port", str(busy_port)]
    await refused(("demo",), flags, 5, "--port", str(busy_port), "choose another")
    assert not (tmp_path / "run").exists()


async def test_the_demos_run_dir_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    flags = ["--simulate", "--duration", "30", "--run-dir", str(tmp_path / "file/run")]
    await refused(("demo",), flags, 2, "--run-dir", str(tmp_path / "file/run"))


async def test_the_demos_figures_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "missing/figures.json"
    flags = ["--simulate", "--duration", "30", "--run-dir", str(tmp_path / "run"), "--json", str(path)]
    check_refusal("demo", await run("demo", *flags, patience_seconds=3.0), 2, ("--json", str(path)))


@pytest.mark.parametrize("assignment", ["loop.tick_seconds", "nothing.at_all=1", "weights.max_step_ratio=wide"])
async def test_the_demo_is_given_a_setting_that_is_wrong(tmp_path: Path, assignment: str) -> None:
    flags = ["--simulate", "--duration", "30", "--run-dir", str(tmp_path / "run"), "--set", assignment]
    await refused(("demo",), flags, 2, "--set", assignment.partition("=")[0])


# ---- flags that no parser knows -------------------------------------------------------------------------------------


@pytest.mark.parametrize("flags", [["--no-such-flag"], ["--set"], ["--config"]])
async def test_a_flag_that_cannot_be_parsed(flags: list[str]) -> None:
    targets = ("guard", "up", "demo", "tail") if flags == ["--no-such-flag"] else ("guard", "up")
    for target, ended in zip(targets, await asyncio.gather(*(run(target, *flags) for target in targets)), strict=True):
        assert (ended.code, ended.out, len(ended.complaints)) == (2, "", 1), f"{target}: {ended}"
        assert flags[0] in ended.complaints[0]
        assert "--help" in ended.complaints[0]


# ---- tail -----------------------------------------------------------------------------------------------------------


async def tail(url: str, messages: Sequence[AnyMessage | bytes], *flags: str) -> Ended:
    """What `trimtab tail` shows of messages that are published over and over until it has had enough."""
    bus: NatsBus = await connect(BusSettings(url=url), "test-tail", ignore_events)
    mark = uuid.uuid4().hex
    async with started("tail", "--nats-url", url, *flags, env=environment(mark)) as process:
        ending = asyncio.ensure_future(process.communicate())
        async with asyncio.timeout(DEADLINE_SECONDS):
            while not ending.done():
                for message in messages:
                    if isinstance(message, bytes):
                        await bus.publish(f"{ROOT}.state.{builders.NODE}", message)
                    else:
                        await bus.publish(subject_of(message), encode(message), msg_id=message_id(message))
                await asyncio.wait({ending}, timeout=0.05)
        out, err = ending.result()
    await bus.close()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode())


async def test_tail_shows_messages_as_they_were_sent_and_ends_after_the_count(url: str) -> None:
    verdict = builders.verdict()
    ended = await tail(url, [verdict], "--count", "3", "-o", "jsonl")
    assert (ended.code, ended.err) == (0, "")
    assert [decode(line.encode()) for line in ended.out.splitlines()] == [verdict] * 3


async def test_tail_shows_the_node_and_the_kinds_that_were_asked_for(url: str) -> None:
    wanted = builders.reward(node="node-2")
    others = [builders.reward(), builders.verdict(node="node-2"), builders.heartbeat(node="node-2"), b"{"]
    ended = await tail(url, [*others, wanted], "--node", "node-2", "--kind", "reward", "--count", "2", "-o", "jsonl")
    assert [decode(line.encode()) for line in ended.out.splitlines()] == [wanted] * 2


async def test_tail_shows_heartbeats_when_asked_and_what_cannot_be_read(url: str) -> None:
    ended = await tail(url, [builders.heartbeat(), b"{"], "--heartbeats", "--count", "6")
    lines = ended.out.splitlines()
    assert any("guard is ok" in line for line in lines)
    assert any(f"?  {ROOT}.state.node-1: " in line for line in lines)


async def test_tail_on_an_unreachable_server_hides_the_password() -> None:
    ended = await run("tail", "--nats-url", "nats://me:hush@127.0.0.1:1", **IMPATIENT)
    check_refusal("tail", ended, 3, ("bus.url", "127.0.0.1:1", "nats-server -js"))
    assert "hush" not in ended.err


async def test_tail_takes_the_bus_from_configuration_and_environment(node: Node, tmp_path: Path) -> None:
    from_file = node.config("bus", url="nats://127.0.0.1:1", connect_timeout_seconds=0.2)
    in_file, in_env = await asyncio.gather(
        run("tail", "--config", from_file),
        run("tail", "--config", from_file, TRIMTAB_BUS__URL="nats://127.0.0.1:2"),
    )
    check_refusal("tail", in_file, 3, ("nats://127.0.0.1:1",))
    check_refusal("tail", in_env, 3, ("nats://127.0.0.1:2",))


async def test_tail_refuses_what_it_cannot_follow() -> None:
    await refused(("tail",), ["--count", "-1"], 2, "--count", "-1")
    await refused(("tail",), ["--node", "Not.A_Node"], 2, "--node", "Not.A_Node", "DNS-1123")


# ---- doctor ---------------------------------------------------------------------------------------------------------


async def test_doctor_says_what_it_found_and_what_helps(url: str) -> None:
    ended = await run("doctor", "-o", "json", "--nats-url", url)
    checks = json.loads(ended.out)
    assert {"cgroup", "pressure", "run queue", "nats-server", "bus"} <= {check["name"] for check in checks}
    for check in checks:
        assert set(check) - {"pods"} == {"name", "status", "found", "remedy"}
        assert check["status"] in ("ok", "note", "bad")
        assert check["found"]
        assert check["remedy"] or check["status"] == "ok", check
    bus = next(check for check in checks if check["name"] == "bus")
    assert bus == {"name": "bus", "status": "ok", "found": f"NATS answers at {url}", "remedy": None}
    assert ended.code == (1 if any(check["status"] == "bad" for check in checks) else 0)


async def test_doctor_shows_one_check_a_line_and_no_password(tmp_path: Path) -> None:
    flags = ["-o", "jsonl", "--nats-url", "nats://me:hush@127.0.0.1:1", "--proc-root", str(tmp_path)]
    ended = await run("doctor", *flags, **IMPATIENT)
    checks = {check["name"]: check for check in map(json.loads, ended.out.splitlines())}
    assert checks["cgroup"]["status"] == "bad"
    assert checks["bus"]["status"] == "note"
    assert "nats-server -js" in checks["bus"]["remedy"]
    assert ended.code == 1
    assert len(ended.complaints) == 1
    assert "hush" not in ended.out + ended.err


async def test_doctor_looks_where_the_configuration_points(node: Node) -> None:
    ended = await run("doctor", "-o", "json", "--config", node.config("bus", url="nats://127.0.0.1:1"), **IMPATIENT)
    checks = {check["name"]: check for check in json.loads(ended.out)}
    assert checks["cgroup"]["status"] == "ok"
    assert checks["cgroup"]["found"].startswith("a simulated node at ")
    assert checks["pods root"]["status"] == "ok"
    assert ended.code == 0


# ---- --print-config -------------------------------------------------------------------------------------------------


async def test_print_config_shows_where_every_value_came_from_and_no_secret(node: Node) -> None:
    settings = {"url": "nats://me:hush@127.0.0.1:4222", "password": "hush", "user": "me"}
    path = node.config("bus", **settings)
    flags = ["--config", path, "--print-config", "--set", "loop.tick_seconds=7"]
    env = {"TRIMTAB_LOOP__TICK_SECONDS": "6", "TRIMTAB_LOOP__SETTLE_SECONDS": "2.5"}
    shown = await asyncio.gather(*(run(target, *flags, **env) for target in ALL))
    for target, ended in zip(ALL, shown, strict=True):
        assert (ended.code, ended.err) == (0, ""), target
        lines = ended.out.splitlines()
        assert "loop.tick_seconds: 7.0  # flag --set" in lines
        assert "loop.settle_seconds: 2.5  # env TRIMTAB_LOOP__SETTLE_SECONDS" in lines
        assert f'bus.url: "nats://***@127.0.0.1:4222"  # file {path}' in lines
        assert f'bus.password: "***"  # file {path}' in lines
        assert "loop.decision_budget_seconds: 0.1  # default" in lines
        assert "hush" not in ended.out
        sections = {line.split(".")[0] for line in lines}
        assert sections & set(SERVICES) == (set(SERVICES) if target == "up" else {target})
