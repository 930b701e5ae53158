"""`trimtab evaluate RECORDING --policy A --policy B`: what policies would have earned, or why the recording cannot say.

The estimators, their intervals and when they refuse are described in docs/evaluation.md. 0: every policy has an answer
from at least one estimator. 1: for a policy all of them refused.
"""

import argparse
import sys
from typing import Final

import msgspec

from cli.order_view import printable
from cli.recordings import add_record_flags, open_record
from lab.ope.evaluate import MAX_TARGETS, evaluate
from lab.ope.recorded import LoggedRecording
from lab.ope.report import LOGGED, Report, table_lines
from lab.replay.other import wish_of
from runtime.errors import ConfigError, TrimtabError

_SEED: Final = 1


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    parser.add_argument("recording", metavar="RECORDING", help="what `trimtab record` wrote, or live: the streams")
    parser.add_argument(
        "--policy",
        action="append",
        required=True,
        metavar="NAME[:key=value,…]",
        help="a policy to judge, with settings other than the recorded ones; may be repeated",
    )
    parser.add_argument("--seed", type=int, default=None, help="of the policies' draws (default: the recorded one)")
    add_record_flags(parser, with_recording=False)
    parser.add_argument("--since", metavar="WHEN", help="how far back the streams are read: 2h (ago) (default: all)")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table", help="tables, or all of it")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Judges; 1 if for one of the policies every estimator refused."""
    wishes = {text: wish_of(text, args.seed) for text in args.policy}
    if LOGGED in wishes:
        raise ConfigError(f"flag --policy: {LOGGED} is what the recording itself earned, and is always shown")
    if len(wishes) > MAX_TARGETS:
        raise ConfigError(f"flag --policy: {len(wishes)} policies are too many; name at most {MAX_TARGETS}")
    with open_record(args, "evaluate", since=args.since) as record:
        log = LoggedRecording(record.recording.header, wishes, args.node, (record.own,))
        for entry in record.recording.items():
            log.take(entry)
        log.end()
    for text in _notes(log):
        print(f"trimtab evaluate: {printable(text)}", file=sys.stderr)
    try:
        report = evaluate(log.logged(), log.targets(), seed=args.seed if args.seed is not None else _SEED)
    except ValueError as error:
        way_out = (
            "`trimtab replay` tells which messages are not sound"
            if log.has_rows
            else "record for longer, in mode active"
        )
        raise TrimtabError(f"{args.recording}: {error}; {way_out}") from error
    _show(report, args.output)
    answered = [any(one.value is not None for one in judged.estimates) for judged in report.policies]
    return 0 if all(answered) else 1


def _notes(log: LoggedRecording) -> list[str]:
    notes = [f"left out: {count} decisions: {reason}" for reason, count in log.left_out.most_common()]
    if log.censored:
        told = ", ".join(f"{reason} {count}" for reason, count in log.censored.most_common(5))
        notes.append(f"not judged, since they have no reward: {told}")
    return [*log.troubles, *notes]


def _show(report: Report, output: str) -> None:
    if output == "json":
        print(msgspec.json.format(msgspec.json.encode(report)).decode())
        return
    for line in table_lines(report):
        print(printable(line))
