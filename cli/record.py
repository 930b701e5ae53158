"""`trimtab record FILE`: what the streams keep, in one file that is replayed, explained and judged without a server.

Run again with the same FILE it goes on behind what is there. Ctrl-C ends it in an orderly way.
"""

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

import msgspec

from cli.inputs import SECTIONS
from cli.order_view import printable, show_rows
from cli.progress_line import ProgressLine
from cli.tail import add_bus_flags, as_operator, bus_settings, notice_of_waiting
from cli.times import moment_ns
from lab.record.items import Header, Settings
from lab.record.recorder import Recorder, Tally, new_header
from lab.record.settings import settings_of
from lab.record.writer import RecordingWriter, create_recording, resume_recording
from runtime.config import load
from runtime.errors import BusError, BusUnreachable, ConfigError
from runtime.nats_bus import NatsBus, connect
from runtime.settings import BusSettings
from schemas.subjects import node_name, node_token

_MOST_NODES: Final = 20


@dataclass(frozen=True)
class _Wish:
    """What is to be recorded."""

    path: Path
    node: str | None
    since_ns: int | None
    until_ns: int | None
    follow: bool
    settings_for: Callable[[str], Settings]
    own: Settings


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the recording; where it is there, it is gone on with")
    add_bus_flags(parser)
    parser.add_argument("--node", default=None, help="one node only")
    parser.add_argument("--since", metavar="WHEN", help="from then on: 2h (ago), or 2026-12-01T03:00Z (default: all)")
    parser.add_argument("--until", metavar="WHEN", help="until then (default: what there is now)")
    parser.add_argument("--follow", action="store_true", help="go on with what comes, until --until or Ctrl-C")
    parser.add_argument("-o", "--output", choices=["table", "json", "jsonl"], default="table", help="of the summary")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Records; a summary on stdout."""
    wish = _wish(args)
    settings = as_operator(bus_settings(args))
    writer, is_new = _open(wish)
    try:
        tally, is_ended = asyncio.run(_record(wish, settings, writer))
    except BaseException:
        if is_new and writer.is_bare:
            wish.path.unlink(missing_ok=True)
        raise
    show_rows([_row(writer, tally)], args.output, ("file", "messages", "cycles", "gaps", "missing", "bytes", "ratio"))
    if is_ended:
        print(f"trimtab record: ended; the same command with {wish.path} goes on from here", file=sys.stderr)
    return 0


def _wish(args: argparse.Namespace) -> _Wish:
    now_ns = time.time_ns()
    try:
        if args.node is not None:
            node_token(args.node)
    except ValueError as error:
        raise ConfigError(f"flag --node: {error}; leave it out for all nodes") from error
    since_ns = None if args.since is None else moment_ns(args.since, "--since", now_ns)
    until_ns = None if args.until is None else moment_ns(args.until, "--until", now_ns)
    if since_ns is not None and until_ns is not None and until_ns <= since_ns:
        raise ConfigError(f"flag --until: {args.until} is not after --since {args.since}")
    config = load(SECTIONS, path=args.config)

    def settings_for(node: str) -> Settings:
        return settings_of(config, node)

    own = settings_for(args.node or config.shared.node)
    return _Wish(args.file, args.node, since_ns, until_ns, args.follow, settings_for, own)


def _open(wish: _Wish) -> tuple[RecordingWriter, bool]:
    """The recording to write, and whether it is new. Raises ConfigError where the file is one of something else."""
    header = new_header(time.time_ns(), [wish.own], node=wish.node, since_ns=wish.since_ns)
    if not wish.path.exists():
        return create_recording(wish.path, header), True
    writer, torn = resume_recording(wish.path)
    if torn is not None:
        print(f"trimtab record: {wish.path}: {torn}", file=sys.stderr)
    found = writer.header
    if found.node != wish.node or found.streams != header.streams:
        writer.abandon()
        raise ConfigError(
            f"{wish.path}: is a recording of {_what(found)}, not of {_what(header)}; give the same --node, or name "
            f"another file"
        )
    if wish.since_ns is not None:
        print(f"trimtab record: {wish.path}: is gone on with; --since is for a new file", file=sys.stderr)
    if all(known.fingerprints != wish.own.fingerprints for known in writer.settings):
        writer.add(msgspec.structs.replace(header, since_ns=found.since_ns))
    return writer, False


def _what(header: Header) -> str:
    who = f"node {header.node}" if header.node is not None else "all nodes"
    return f"{who} from {', '.join(header.streams)}"


async def _record(wish: _Wish, settings: BusSettings, writer: RecordingWriter) -> tuple[Tally, bool]:
    """Records into `writer` and closes it; what was recorded, and whether somebody ended it."""
    stop = asyncio.Event()
    lost: list[str] = []

    def on_event(event: str, detail: str) -> None:
        if event == "closed":
            lost.append(detail)
            stop.set()
        elif event in ("disconnected", "reconnected", "refused"):
            progress.say(f"{event} {detail}")

    progress = _Progress(sys.stderr)
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    notice = notice_of_waiting(settings, "record")
    try:
        bus = await connect(settings, "trimtab-record", on_event)
    except BaseException:
        writer.abandon()
        raise
    finally:
        notice.cancel()
    try:
        with writer:
            recorder = Recorder(
                bus, writer, settings_for=wish.settings_for, say=progress.say, on_progress=progress.show
            )
            await recorder.open()
            await recorder.run(stop, until_ns=wish.until_ns, follow=wish.follow)
            progress.warn(recorder.tally)
            if wish.node is not None and not writer.tracker.messages:
                progress.say(await _nobody(bus, wish.node, writer.header.streams))
    finally:
        progress.close()
        await bus.close()
    if lost:
        raise BusUnreachable(f"bus.url: the server ended the connection for good: {lost[0]}; check the credentials")
    return recorder.tally, stop.is_set()


async def _nobody(bus: NatsBus, node: str, streams: Iterable[str]) -> str:
    """What is said where there was no message of the node: its name may be another."""
    try:
        heard = sorted({node_name(s.rpartition(".")[2]) for stream in streams for s in await bus.subjects(stream)})
    except BusError as error:
        return f"no message of node {node}; which nodes there are cannot be read: {error}"
    more = f" and {len(heard) - _MOST_NODES} more" if len(heard) > _MOST_NODES else ""
    return f"no message of node {node}; nodes heard: {', '.join(heard[:_MOST_NODES]) or 'none'}{more}"


def _row(writer: RecordingWriter, tally: Tally) -> dict[str, object]:
    return {
        "file": str(writer.path),
        "messages": tally.messages,
        "cycles": tally.cycles,
        "gaps": tally.gaps,
        "missing": tally.missing,
        "models": tally.models,
        "bytes": writer.path.stat().st_size,
        "ratio": round(writer.content_bytes / max(1, writer.written_bytes), 1),
        "in_file": sum(writer.tracker.messages.values()),
    }


class _Progress(ProgressLine):
    """How far the recorder is, and once each what it lacks."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(stream, clock)
        self._warned: set[tuple[str, str]] = set()

    def warn(self, tally: Tally) -> None:
        """Tells of settings that the recording does not have, while there is still somebody who knows them."""
        for service, fingerprint in tally.unknown_settings.keys() - self._warned:
            self._warned.add((service, fingerprint))
            self.say(
                f"the {service} runs with settings {fingerprint}, which are not those given here; keep its "
                f"configuration and give it by --config here or to `trimtab replay`, or what it said cannot be replayed"
            )

    def show(self, tally: Tally) -> None:
        """Tells how far it is, if it is time to."""
        self.warn(tally)
        if self.is_due():
            gaps = f", {tally.gaps} gaps" if tally.gaps else ""
            self.tell(f"trimtab record: {tally.messages} messages of {tally.cycles} cycles, {tally.left} to come{gaps}")

    def say(self, text: str) -> None:
        """Tells of something on a line of its own."""
        self.close()
        self._stream.write(f"trimtab record: {printable(text)}\n")
        self._stream.flush()
