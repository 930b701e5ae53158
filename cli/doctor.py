"""`trimtab doctor`: what this machine can do, each with the remedy where it cannot."""

import argparse
import asyncio
import json
import os
import sys
from dataclasses import asdict, dataclass
from typing import Literal

from cli.tail import add_bus_flags, bus_settings
from hostfs.cgroup import ROOT_GROUP, CgroupTree
from hostfs.files import read_text
from hostfs.mounts import detect
from hostfs.pods import find_pods_root
from hostfs.pressure import Pressure, read_pressure
from hostfs.run_queue import RunQueueReader
from hostfs.tasks import parse_task_schedstat
from lab.cgroup_sandbox import SandboxUnavailable, find_base
from runtime.config import load
from runtime.errors import TrimtabError
from runtime.host_roots import find_roots
from runtime.nats_bus import connect, ignore_events
from runtime.nats_server import find_binary
from runtime.settings import BusSettings, HostSettings, mask_url

Status = Literal["ok", "note", "bad"]


@dataclass(frozen=True)
class Check:
    """One thing looked at. `bad` stops the agent from steering, a `note` only makes it see less."""

    name: str
    status: Status
    found: str
    remedy: str | None = None


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    add_bus_flags(parser)
    parser.add_argument("--proc-root", help="proc mount (default: host.proc_root, /proc)")
    parser.add_argument("-o", "--output", choices=["table", "json", "jsonl"], default="table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints all checks; 1 if any is bad."""
    host = load({}, path=args.config).host
    checks = examine(host, args.proc_root or host.proc_root, bus_settings(args))
    if args.output == "json":
        print(json.dumps([asdict(check) for check in checks], indent=2))
    elif args.output == "jsonl":
        for check in checks:
            print(json.dumps(asdict(check)))
    else:
        width = max(len(check.name) for check in checks)
        for check in checks:
            print(f"{check.status:<4}  {check.name.ljust(width)}  {check.found}")
            if check.remedy and check.status != "ok":
                print(f"      {' ' * width}  -> {check.remedy}")
    bad = sum(check.status == "bad" for check in checks)
    if bad:
        print(f"trimtab doctor: {bad} of {len(checks)} stand in the way of steering", file=sys.stderr)
    return 1 if bad else 0


def examine(host: HostSettings, proc_root: str, bus: BusSettings) -> list[Check]:
    """All checks. Nothing is made, moved, ended or removed."""
    is_configured = host.cgroup_root is not None or host.pods_root is not None
    return [
        *(_configured(host) if is_configured else _cgroup(proc_root)),
        _pressure(proc_root),
        _run_queue(proc_root),
        _server_binary(),
        asyncio.run(_bus(bus)),
    ]


def _configured(host: HostSettings) -> list[Check]:
    """The roots that the configuration names."""
    try:
        roots = find_roots(host)
    except TrimtabError as error:
        what, _, way_out = str(error).partition("; ")
        return [Check("cgroup", "bad", what, way_out or None)]
    kind = "a simulated node" if host.simulated else "v2"
    checks = [Check("cgroup", "ok", f"{kind} at {roots.cgroup_root}"), Check("pods root", "ok", roots.pods_root)]
    if roots.read_only is not None:
        checks.append(Check("writable", "bad", roots.read_only, "mount the pods root writable into the actuator"))
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
    pods_root = find_pods_root(ROOT_GROUP, tree.children)
    if pods_root is None:
        remedy = "start the kubelet, or set host.pods_root; `trimtab demo` brings pods of its own"
        checks.append(Check("pods root", "note", f"no kubepods group below {host.root}", remedy))
    else:
        writable = os.access(os.path.join(host.root, pods_root), os.W_OK)
        checks.append(Check("pods root", "ok", f"{pods_root}{'' if writable else ' (not writable by this user)'}"))
    return checks


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


async def _bus(settings: BusSettings) -> Check:
    try:
        bus = await connect(settings, "trimtab-doctor", ignore_events)
    except TrimtabError as error:
        what, _, way_out = str(error).partition("; ")
        return Check("bus", "note", what, f"{way_out}; or `trimtab up --embedded`")
    await bus.close()
    return Check("bus", "ok", f"NATS answers at {mask_url(settings.url)}")
