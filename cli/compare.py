"""`trimtab compare`: the policy in charge and its shadows, by node, and a trial of a challenger over nodes."""

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

import msgspec

from cli.losses import losses_said
from cli.order_view import printable, show_rows
from cli.recordings import add_record_flags, open_record
from lab.compare import OnNode, OverNodes, compare, over_nodes
from lab.record.items import Stored
from lab.record.source import LIVE
from runtime.errors import TrimtabError
from runtime.streams import AUDIT
from schemas.codec import DecodeError, decode_on
from schemas.messages import Action, AnyMessage, Reward

_READ: Final = "24h"
_COLUMNS: Final = ("node", "policy", "is", "decided", "mean_reward", "rewards", "agreement_ratio", "failed")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    parser.add_argument(
        "recording", nargs="?", default=LIVE, help="what `trimtab record` wrote (default: the streams, live)"
    )
    add_record_flags(parser, with_recording=False)
    parser.add_argument(
        "--since", metavar="WHEN", default=None, help="how far back the streams are read (default: 24h)"
    )
    parser.add_argument("-o", "--output", choices=["table", "json", "jsonl"], default="table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Shows; TrimtabError if there is nothing to compare."""
    with (
        open_record(args, "compare", since=args.since or _READ) as record,
        losses_said(record, args, "compare") as losses,
    ):
        nodes = compare(messages_of(losses.through(record.recording.items()), args.node))
    if not nodes:
        raise TrimtabError("no action is recorded there; start a decider (trimtab up), or name another --node")
    show_comparison(nodes, args.output, losses.told)
    return 0


def messages_of(items: Iterable[object], node: str | None) -> Iterator[AnyMessage]:
    """Actions and rewards of one node, or of all. What cannot be read is left out: it is said among what is lost."""
    for item in items:
        if not isinstance(item, Stored) or item.stream != AUDIT:
            continue
        try:
            message = decode_on(item.subject, item.payload)
        except DecodeError:
            continue
        if isinstance(message, Action | Reward) and node in (None, message.node):
            yield message


def show_comparison(nodes: Mapping[str, OnNode], output: str, lost: Sequence[str] = ()) -> None:
    """A table by node and policy, below it what is told of trials and of what happened; or all of it as JSON, with what
    of the record is `lost`.
    """
    across = over_nodes(nodes)
    if output != "table":
        rows = [_whole(name, node) for name, node in sorted(nodes.items())]
        if across is not None:
            rows.append({"over_nodes": asdict(across)})
        if lost:
            rows.append({"lost": list(lost)})
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
