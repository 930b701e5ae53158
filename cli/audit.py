"""`trimtab audit`: who changed a pod's weight, when, why, on whose word, under which model; from the record alone."""

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Final

import msgspec

from cli.losses import losses_said
from cli.recordings import add_record_flags, open_record
from cli.times import moment_ns
from lab.audit.answer import InForce, in_force
from lab.audit.events import Event
from lab.audit.lines import answer_branch, branch_of
from lab.audit.select import asked_for, some_of, uids_of
from lab.audit.timeline import Timeline
from lab.explain.moments import at_text, is_moment, moment_of
from lab.explain.tree import draw
from runtime.errors import ConfigError, TrimtabError

WIDTH: Final = 100


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    add_record_flags(parser)
    parser.add_argument("--pod", metavar="NAME|UID", help="one pod only, by its name, uid or cgroup")
    parser.add_argument("--at", metavar="TIME", help="what was in force then (UTC): 03:12, 2026-12-01T03:12:07Z")
    parser.add_argument("--since", metavar="TIME", help="from then on: 2h (ago), 03:12, 2026-12-01T03:12Z")
    parser.add_argument("--until", metavar="TIME", help="up to then")
    parser.add_argument(
        "-o", "--output", choices=["table", "json", "jsonl"], default="table", help="text, or all of it"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Shows the timeline, or with `--at` what was in force. 1 if the record does not have it."""
    if args.at is not None and (args.since is not None or args.until is not None):
        raise ConfigError("flag --at: it is one moment; leave out --since and --until, or leave out --at")
    ago = args.since if args.since is not None and not is_moment(args.since) else None
    timeline = Timeline(args.node)
    events: list[Event] = []
    with open_record(args, "audit", since=ago) as record, losses_said(record, args, "audit") as losses:
        for entry in losses.through(record.recording.items()):
            events += timeline.take(entry)
        events += timeline.end()
    if args.node is not None and args.node not in timeline.names:
        raise TrimtabError(f"flag --node: the record has no node {args.node}; it has {some_of(timeline.names)}")
    first_seen = list(timeline.first_seen.values())
    uids = uids_of(args.pod, [*first_seen, *events]) if args.pod is not None else None
    if args.at is None:
        since_ns, until_ns = (
            _edge(text, timeline.newest_ns, flag) for text, flag in ((args.since, "--since"), (args.until, "--until"))
        )
        if since_ns is not None and until_ns is not None and until_ns <= since_ns:
            order = f"{at_text(until_ns)} is not after --since {at_text(since_ns)}"
            raise ConfigError(f"flag --until: {order}; swap them, or write the day, too")
        _show(asked_for(events, uids, since_ns, until_ns), args.output)
        return 0
    moment = moment_of(args.at, timeline.newest_ns, "--at")
    answers = in_force(events, asked_for(first_seen, uids, None, None), timeline.spans, moment)
    if not answers:
        raise TrimtabError(f"flag --at {args.at}: the record knows of no weight by then; it begins later")
    _show(answers, args.output)
    return 0


def _edge(text: str | None, newest_ns: int, flag: str) -> int | None:
    """A moment's beginning; what is ago is before the record's end."""
    if text is None:
        return None
    return moment_of(text, newest_ns, flag).start_ns if is_moment(text) else moment_ns(text, flag, newest_ns)


def _show(told: Sequence[Event | InForce], output: str) -> None:
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(told)).decode())
        return
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    for index, one in enumerate(told):
        if output == "jsonl":
            print(msgspec.json.encode(one).decode())
            continue
        following = told[index + 1] if index + 1 < len(told) else None
        branch = branch_of(one, following) if isinstance(one, Event) else answer_branch(one)
        for line in draw(branch, WIDTH, colour=colour):
            print(line)
    if not told and output == "table":
        print("trimtab audit: nothing of that is in the record", file=sys.stderr)
