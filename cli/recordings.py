"""What the verbs that read a record have in common: where it is, and the settings that it does not have."""

import argparse
import contextlib
import sys
import time
from collections.abc import Iterator
from typing import NamedTuple

from cli.inputs import SECTIONS
from cli.order_view import printable
from cli.tail import add_bus_flags, as_operator, bus_settings
from cli.times import moment_ns
from lab.record.file import Recording
from lab.record.items import Settings
from lab.record.settings import settings_of
from lab.record.source import LIVE, open_source
from runtime.config import load
from runtime.errors import ConfigError
from schemas.subjects import node_token


class Record(NamedTuple):
    """A record to read, and the settings of this machine's configuration, for messages that were made under them."""

    recording: Recording
    own: Settings


def add_record_flags(parser: argparse.ArgumentParser, *, with_recording: bool = True) -> None:
    """The flags by which a verb finds its record; without `--recording` where that is not a flag."""
    if with_recording:
        parser.add_argument(
            "--recording", metavar="FILE", default=LIVE, help="what `trimtab record` wrote (default: the streams, live)"
        )
    parser.add_argument("--node", default=None, help="one node only")
    add_bus_flags(parser)


@contextlib.contextmanager
def open_record(args: argparse.Namespace, verb: str, *, since: str | None = None) -> Iterator[Record]:
    """The record in `--recording`, or of what the streams have since then. Raises TrimtabError."""
    try:
        if args.node is not None:
            node_token(args.node)
    except ValueError as error:
        raise ConfigError(f"flag --node: {error}; leave it out where the record is of one node") from error
    since_ns = None if since is None else moment_ns(since, "--since", time.time_ns())
    config = load(SECTIONS, path=args.config)

    def settings_for(node: str) -> Settings:
        return settings_of(config, node)

    def say(text: str) -> None:
        print(f"trimtab {verb}: {printable(text)}", file=sys.stderr, flush=True)

    with open_source(
        args.recording,
        lambda: as_operator(bus_settings(args)),
        node=args.node,
        since_ns=since_ns,
        settings_for=settings_for,
        say=say,
    ) as recording:
        yield Record(recording, settings_for(args.node or config.shared.node))
