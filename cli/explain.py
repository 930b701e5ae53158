"""`trimtab explain CYCLE`: one cycle as a tree: seen, remembered, scored and why, judged, written, and worth."""

import argparse
import os
import sys
from typing import Final

import msgspec

from cli.losses import losses_said
from cli.recordings import Record, add_record_flags, open_record
from lab.explain.cycle import Known, cycle_told
from lab.explain.gather import find_cycle, gather
from lab.explain.lines import tree_of
from lab.explain.losses import Losses
from lab.explain.minds import mind_before
from lab.explain.settings import guard_settings, rewarder_settings
from lab.explain.told import CycleTold
from lab.explain.tree import draw
from runtime.errors import ConfigError

WIDTH: Final = 100
"""Signs a line: what two windows side by side have."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    parser.add_argument("cycle", metavar="CYCLE", help="57, boot/57, last, or a time (UTC): 03:12, 2026-12-01T03:12Z")
    add_record_flags(parser)
    parser.add_argument("--boot", default=None, help="the run of the collector that numbered the cycle (default: last)")
    parser.add_argument("--since", metavar="WHEN", help="how far back the streams are read: 2h (ago) (default: all)")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="a tree, or all of it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Shows the cycle. 1 if the record does not have it."""
    wanted = args.cycle
    if args.boot is not None:
        if not wanted.isdigit():
            raise ConfigError(f"flag --boot: it goes with a cycle's number, not with {wanted!r}")
        wanted = f"{args.boot}/{wanted}"
    with (
        open_record(args, "explain", since=args.since) as record,
        losses_said(record, args, "explain") as losses,
    ):
        told = _explain(record, wanted, args.node, losses)
    if args.output == "json":
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
        return 0
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for line in draw(tree_of(told), WIDTH, colour=colour):
        print(line)
    return 0


def _explain(record: Record, wanted: str, node: str | None, losses: Losses) -> CycleTold:
    recording = record.recording
    cycle = find_cycle(lambda: losses.through(recording.items()), wanted, node)
    messages = gather(recording.items, cycle)
    mind, library = mind_before(recording.header, recording.items, cycle, [record.own])
    told = cycle_told(
        messages, Known(mind, guard_settings(library, messages.verdict), rewarder_settings(library, messages.reward))
    )
    return msgspec.structs.replace(told, lost=losses.told)
