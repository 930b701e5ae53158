"""`trimtab doctor`: what this machine can do, each with the remedy where it cannot, and which pod has which group.

In a service's container it asks for what that service needs; what cannot be looked at from there is `skip`.
"""

import argparse
import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from cli.doctor_place import is_needed, own_service, why_skipped
from cli.doctor_pods import COLUMNS, Named, PodRow, as_columns, look, named_by_file, named_by_state, summary
from cli.order_view import printable, show_rows
from cli.tail import add_bus_flags, as_operator, bus_settings, notice_of_waiting
from hostfs.cgroup import ROOT_GROUP, CgroupTree
from hostfs.files import read_text
from hostfs.mounts import detect
from hostfs.pods import find_pods_root
from hostfs.pressure import Pressure, read_pressure
from hostfs.run_queue import RunQueueReader
from hostfs.tasks import parse_task_schedstat
from lab.cgroup_sandbox import SandboxUnavailable, find_base
from runtime.config import Config, load
from runtime.errors import ConfigError, TrimtabError
from runtime.host_roots import HostRoots, find_roots
from runtime.nats_bus import NatsBus, connect, ignore_events
from runtime.nats_server import find_binary
from runtime.settings import BusSettings, HostSettings, mask_url
from runtime.streams import STATE
from schemas.codec import DecodeError, decode_as
from schemas.messages import State
from schemas.subjects import SERVICES, subject
from services.collector.config import CollectorConfig
from services.collector.sources.root_choice import rival_roots

Status = Literal["ok", "note", "bad", "skip"]

_MOST_NOTES: Final = 4


@dataclass(frozen=True)
class Check:
    """One thing looked at. `bad` stops the agent from steering, a `note` only makes it see less; `skip` says nothing
    of the agent: it cannot be looked at here.
    """

    name: str
    status: Status
    found: str
    remedy: str | None = None


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    add_bus_flags(parser)
    parser.add_argument("--proc-root", help="proc mount (default: host.proc_root, /proc)")
    parser.add_argument(
        "--for",
        dest="service",
        choices=SERVICES,
        help="ask for what this service needs (default: the one whose container this is, else the whole agent)",
    )
    parser.add_argument("-o", "--output", choices=["table", "json", "jsonl"], default="table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints all checks and the pods; 1 if any check is bad."""
    config = load({"collector": CollectorConfig}, path=args.config)
    proc_root, service = args.proc_root or config.host.proc_root, args.service or own_service()
    checks, pods = examine(config, proc_root, bus_settings(args), service)
    if args.output == "table":
        _show(checks, pods)
    else:
        found = [_row(check, pods) for check in checks]
        print(json.dumps(found, indent=2) if args.output == "json" else "\n".join(map(json.dumps, found)))
    bad = sum(check.status == "bad" for check in checks)
    if bad:
        print(f"trimtab doctor: {bad} of {len(checks)} stand in the way of steering", file=sys.stderr)
    return 1 if bad else 0


def _row(check: Check, pods: Sequence[PodRow]) -> dict[str, Any]:
    table = {"pods": [as_columns(row) for row in pods]} if check.name == "pods" else {}
    return asdict(check) | table


def _show(checks: Sequence[Check], pods: Sequence[PodRow]) -> None:
    width = max(len(check.name) for check in checks)
    for check in checks:
        print(f"{check.status:<4}  {check.name.ljust(width)}  {printable(check.found)}")
        if check.remedy and check.status != "ok":
            print(f"      {' ' * width}  -> {printable(check.remedy)}")
    if pods:
        print()
        show_rows([as_columns(row) for row in pods], "table", COLUMNS)


def examine(
    config: Config, proc_root: str, bus: BusSettings, service: str | None = None
) -> tuple[list[Check], list[PodRow]]:
    """All checks that mean something where `service` runs (None: for the whole agent), and the pods' table. Nothing is
    made, moved, ended or removed.
    """
    host = config.host
    is_configured = host.cgroup_root is not None or host.pods_root is not None
    bus_check, state = asyncio.run(_bus(bus, config.shared.node, service))
    checks = [
        *(_here(check, service) for check in (_configured(host) if is_configured else _cgroup(proc_root))),
        _pressure(proc_root),
        _run_queue(proc_root),
        *([_server_binary()] if service is None else []),
        bus_check,
    ]
    try:
        roots = find_roots(host)
    except TrimtabError:  # said by the checks above
        if service is None or config.section("collector", CollectorConfig).workloads is not None:
            return checks, []
        return [*checks, _collector(state, config.shared.loop.tick_seconds)], []
    more, pods = _pods(config, roots, state)
    return [*checks, *more], pods


def _here(check: Check, service: str | None) -> Check:
    """The check, or why it says nothing where this service runs."""
    if service is None or check.status == "ok" or is_needed(check.name, service):
        return check
    return Check(check.name, "skip", *why_skipped(check.name, service))


def _pods(config: Config, roots: HostRoots, state: State | str) -> tuple[list[Check], list[PodRow]]:
    section = config.section("collector", CollectorConfig)
    checks: list[Check] = []
    named: list[Named] | None = None
    if section.workloads is not None:
        try:
            named = named_by_file(section, config.shared, roots)
        except TrimtabError as error:
            what, _, way_out = str(error).partition("; ")
            checks.append(Check("workloads", "bad", what, way_out or None))
    else:
        checks.append(_collector(state, config.shared.loop.tick_seconds))
        named = named_by_state(state) if isinstance(state, State) else None
    pods = look(roots, named)
    found, unresolved = summary(pods, has_names=named is not None)
    remedy = None
    if named is None:
        remedy = "set collector.workloads, or start a collector that reaches the bus: it knows names and classes"
    elif unresolved:
        remedy = "no_group: named, and no such group below the pods root; unnamed: a pod's group that nobody names"
    return [*checks, Check("pods", "ok" if remedy is None else "note", found, remedy)], pods


def _collector(state: State | str, tick_seconds: float) -> Check:
    """What is known of the collector that names the pods."""
    if isinstance(state, str):
        return Check("collector", "note", state, "start the collector, or name the node in `node`")
    age = max(0.0, time.time() - state.at / 1e9)
    notes = f"; {'; '.join(state.notes[:_MOST_NOTES])}" if state.notes else ""
    found = f"its state of cycle {state.cycle} is {age:.0f} s old{notes}"
    if age > 3 * tick_seconds:
        return Check("collector", "note", found, "see whether it still runs: what it named may have changed since")
    return Check("collector", "note" if notes else "ok", found, "docs/subjects.md says what the words mean")


def _configured(host: HostSettings) -> list[Check]:
    """The roots that the configuration names."""
    try:
        roots = find_roots(host)
    except TrimtabError as error:
        what, _, way_out = str(error).partition("; ")
        return [Check("cgroup", "bad", what, way_out or None)]
    kind = "a simulated node" if host.simulated else "v2"
    rivals = rival_roots(roots.cgroup_root) if host.pods_root is None else ()
    checks = [Check("cgroup", "ok", f"{kind} at {roots.cgroup_root}"), _pods_root(roots.pods_root, rivals)]
    if roots.read_only is not None:
        checks.append(
            Check(
                "writable",
                "bad",
                roots.read_only,
                "mount the pods root writable into the actuator; everybody else only reads",
            )
        )
    elif not os.access(os.path.join(roots.cgroup_root, roots.pods_root), os.W_OK, effective_ids=True):
        checks.append(Check("writable", "bad", "this user may not write there", "run it as root, as the actuator is"))
    return checks


def _cgroup(proc_root: str) -> list[Check]:
    host = detect(proc_root)
    if host.root is None:
        return [Check("cgroup", "bad", host.reason or "no cgroup v2", host.remedy)]
    checks = [Check("cgroup", "ok", f"v2 at {host.root} ({host.layout}), cpu controller on {host.cpu_on}")]
    try:
        found = f"this user may write below {find_base(host)}"
    except SandboxUnavailable as error:
        checks.append(Check("writable", "bad", error.reason, error.remedy))
    else:
        checks.append(Check("writable", "ok", found))
    tree = CgroupTree(host.root)
    pods_root = find_pods_root(ROOT_GROUP, tree.children, tree.is_populated)
    if pods_root is None:
        remedy = "start the kubelet, or set host.pods_root; `trimtab demo` brings pods of its own"
        checks.append(Check("pods root", "note", f"no kubepods group below {host.root}", remedy))
    else:
        writable = os.access(os.path.join(host.root, pods_root), os.W_OK)
        shown = f"{pods_root}{'' if writable else ' (not writable by this user)'}"
        checks.append(_pods_root(shown, rival_roots(host.root)))
    return checks


def _pods_root(shown: str, rivals: Sequence[str]) -> Check:
    """The pods root that is taken, and what else might be meant."""
    if not rivals:
        return Check("pods root", "ok", shown)
    found = f"{shown}; several hold running pods: {', '.join(rivals)}"
    return Check("pods root", "note", found, "set host.pods_root to the one of the kubelet that this node is known by")


def _pressure(proc_root: str) -> Check:
    found = read_pressure(f"{proc_root}/pressure/cpu")
    if isinstance(found, Pressure):
        return Check("pressure", "ok", f"PSI is on (some avg10 {found.some.avg10:.1f} %)")
    counted = "the waits of single tasks stand in for it" if _counts_waits(proc_root) else "only the run queue is left"
    return Check(
        "pressure",
        "note",
        f"no PSI: {found.reason}; {counted}",
        found.remedy or f"check that {proc_root}/pressure/cpu can be read",
    )


def _counts_waits(proc_root: str) -> bool:
    """Whether the kernel counts how long a task waited (it needs CONFIG_SCHEDSTATS or delay accounting)."""
    try:
        waits = parse_task_schedstat(read_text(f"{proc_root}/self/schedstat"))
    except OSError:
        return False
    return waits is not None and waits[0] > 0


def _run_queue(proc_root: str) -> Check:
    sample = RunQueueReader(proc_root).sample()
    if sample is None:
        return Check("run queue", "note", "cannot be read", f"mount proc at {proc_root}")
    better = "a kernel with CONFIG_SCHEDSTATS gives a mean instead" if sample.source in ("loadavg", "stat") else None
    return Check("run queue", "ok" if better is None else "note", f"from {sample.source}", better)


def _server_binary() -> Check:
    try:
        return Check("nats-server", "ok", find_binary())
    except TrimtabError as error:
        return Check("nats-server", "note", "none for `up --embedded` and `demo`", str(error))


async def _bus(settings: BusSettings, node: str, service: str | None) -> tuple[Check, State | str]:
    """Whether the bus answers; and the newest state of the node, or why there is none."""
    notice = notice_of_waiting(settings, "doctor")
    try:
        bus = await connect(as_operator(settings), "trimtab-doctor", ignore_events)
    except TrimtabError as error:
        what, _, way_out = str(error).partition("; ")
        if service is None:
            return Check(
                "bus", "note", what, f"{way_out}; or `trimtab up --embedded`"
            ), "no bus, so nothing of a collector"
        # A service's container holds that service's credential alone, and what is asked here takes an operator's.
        status: Status = "skip" if isinstance(error, ConfigError) else "bad"
        return Check("bus", status, what, way_out or None), "no bus, so nothing of a collector"
    finally:
        notice.cancel()
    try:
        state = await _newest_state(bus, node, settings.request_timeout_seconds)
    finally:
        await bus.close()
    return Check("bus", "ok", f"NATS answers at {mask_url(settings.url)}"), state


async def _newest_state(bus: NatsBus, node: str, seconds: float) -> State | str:
    """One message is asked for, which an operator's and an auditor's credentials allow; not a consumer."""
    try:
        async with asyncio.timeout(seconds):
            stored = await bus.jetstream.get_last_msg(STATE, subject("state", node))
        return decode_as(stored.data or b"", State)
    except DecodeError as error:
        return f"the newest state of {node} cannot be read: {error}"
    except Exception as error:  # noqa: BLE001 - nats' own errors are not ours to import: none stored, refused, no stream
        return f"no state of {node} on the bus ({type(error).__name__})"
