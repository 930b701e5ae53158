"""`trimtab compare`: the policy in charge and its shadows, by node, and a trial of a challenger over nodes."""

import argparse
import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import msgspec

from cli.order_view import printable, show_rows
from cli.orders import node_of
from cli.tail import add_bus_flags, as_operator, bus_settings, notice_of_waiting
from lab.compare import OnNode, OverNodes, compare, over_nodes
from runtime.bus import Bus
from runtime.errors import ConfigError, TrimtabError
from runtime.nats_bus import connect, ignore_events
from runtime.settings import BusSettings
from runtime.streams import AUDIT, MODELS
from schemas.codec import DecodeError, decode
from schemas.messages import AnyMessage
from schemas.subjects import node_name, subject

LIVE: Final = "live"
_COLUMNS: Final = ("node", "policy", "is", "decided", "mean_reward", "rewards", "agreement_ratio", "failed")
_KINDS: Final = ("action", "reward")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    parser.add_argument("source", nargs="?", default=LIVE, choices=[LIVE], help="where to read: the streams, as now")
    add_bus_flags(parser)
    parser.add_argument("--node", default=None, help="one node only (default: all that have stored a model)")
    parser.add_argument("--last", type=int, default=2000, metavar="CYCLES", help="newest cycles (default: 2000)")
    parser.add_argument("-o", "--output", choices=["table", "json", "jsonl"], default="table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Shows; 1 if there is nothing to compare."""
    if not 1 <= args.last <= 100_000:  # noqa: PLR2004 - what the bus reads at once
        raise ConfigError(f"flag --last: {args.last} is no number of cycles from 1 to 100000")
    node = node_of(args) if args.node is not None else None
    messages = asyncio.run(_read(as_operator(bus_settings(args)), node, args.last))
    nodes = compare(messages)
    if not nodes:
        raise TrimtabError("no action is stored there; start a decider (trimtab up), or name another --node")
    show_comparison(nodes, args.output)
    return 0


async def _read(settings: BusSettings, node: str | None, last: int) -> list[AnyMessage]:
    notice = notice_of_waiting(settings, "compare")
    bus = await connect(settings, "trimtab-compare", ignore_events)
    notice.cancel()
    try:
        return await stored_messages(bus, node, last)
    finally:
        await bus.close()


async def stored_messages(bus: Bus, node: str | None, last: int) -> list[AnyMessage]:
    """Actions and rewards of one node, or of all that have stored a model, as they were stored."""
    tokens = {name.partition("/")[0] for name in await bus.list_objects(MODELS, "")} if node is None else set()
    found = []
    for each in [node] if node is not None else sorted(node_name(token) for token in tokens):
        for kind in _KINDS:
            found += await bus.stored(AUDIT, subject(kind, each), last)
    messages: list[AnyMessage] = []
    for item in sorted(found, key=lambda item: item.stored_ns):
        try:
            messages.append(decode(item.payload))
        except DecodeError:
            continue
    return messages


def show_comparison(nodes: Mapping[str, OnNode], output: str) -> None:
    """A table by node and policy, below it what is told of trials and of what happened; or all of it as JSON."""
    across = over_nodes(nodes)
    if output != "table":
        rows = [_whole(name, node) for name, node in sorted(nodes.items())]
        if across is not None:
            rows.append({"over_nodes": asdict(across)})
        show_rows(rows, output, ())
        return
    show_rows([row for name, node in sorted(nodes.items()) for row in _rows(name, node)], "table", _COLUMNS)
    for line in told_of(nodes, across):
        print(printable(line))


def told_of(nodes: Mapping[str, OnNode], across: OverNodes | None) -> Sequence[str]:
    """What is said below the table: the trial of each node, its events, and the comparison over nodes."""
    lines = []
    for name, node in sorted(nodes.items()):
        if (trial := node.trial) is not None:
            so_far = f"{trial.challenger} against {trial.incumbent}, {trial.phase}, {trial.pairs} pairs"
            lines.append(f"{name}: {so_far}: {_interval(trial.difference, trial.low, trial.high)}")
        lines += [f"{name}: cycle {cycle}: {event}" for cycle, event in node.events]
    if across is not None:
        whom = f"{across.nodes} nodes" if across.others is None else f"{across.nodes} nodes against {across.others}"
        said = across.refused or _interval(across.difference, across.low, across.high)
        lines.append(f"over nodes: {across.challenger}, {whom}: {said}")
    return lines


def _interval(difference: float | None, low: float | None, high: float | None) -> str:
    if difference is None:
        return "nothing compared yet"
    if low is None or high is None:
        return f"{difference:+.4f} a cycle, too few for an interval"
    return f"{difference:+.4f} a cycle, {low:+.4f} to {high:+.4f}"


def _rows(name: str, node: OnNode) -> list[dict[str, Any]]:
    rows = []
    for policy, standing in node.policies.items():
        mean, agreement = standing.mean_reward, standing.agreement_ratio
        rows.append(
            {
                "node": name,
                "policy": policy,
                "is": _part(policy, node),
                "decided": standing.decided,
                "mean_reward": None if mean is None else f"{mean:+.4f}",
                "rewards": standing.rewards,
                "agreement_ratio": None if agreement is None else f"{agreement:.3f}",
                "failed": standing.failed,
            }
        )
    return rows


def _part(policy: str, node: OnNode) -> str:
    if policy == node.champion:
        return "champion"
    in_trial = node.trial is not None and node.trial.phase != "over" and policy == node.trial.challenger
    return "challenger" if in_trial else "shadow"


def _whole(name: str, node: OnNode) -> dict[str, Any]:
    return {
        "node": name,
        "champion": node.champion,
        "policies": [
            {
                "policy": policy,
                "is": _part(policy, node),
                **asdict(standing),
                "mean_reward": standing.mean_reward,
                "agreement_ratio": standing.agreement_ratio,
            }
            for policy, standing in node.policies.items()
        ],
        "trial": msgspec.to_builtins(node.trial) if node.trial is not None else None,
        "events": [{"cycle": cycle, "event": event} for cycle, event in node.events],
    }
