"""`trimtab tail`: follows the bus, one readable line per message."""

import argparse
import asyncio
import signal
import sys
from typing import Literal, cast

from cli.story import line_of
from runtime.bus import Received
from runtime.nats_bus import connect
from runtime.settings import BusSettings
from schemas.codec import DecodeError, decode
from schemas.messages import Heartbeat
from schemas.subjects import KINDS, ROOT, node_token

Format = Literal["table", "json", "jsonl"]


def add_parser(verbs: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """The verb and its flags."""
    parser = verbs.add_parser("tail", help="follow the bus", description=__doc__)
    parser.add_argument("--nats-url", default=BusSettings().url, help="NATS server (default: %(default)s)")
    parser.add_argument("--node", default=None, help="one node only")
    parser.add_argument("--kind", action="append", choices=KINDS, help="one kind only; may be repeated")
    parser.add_argument("--heartbeats", action="store_true", help="show heartbeats too")
    parser.add_argument("--count", type=int, default=0, help="end after so many messages (default: never)")
    parser.add_argument(
        "-o", "--output", choices=["table", "json", "jsonl"], default="table", help="lines, or the messages themselves"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Follows until interrupted or until `--count` messages were shown."""
    return asyncio.run(_follow(args))


async def _follow(args: argparse.Namespace) -> int:
    stop = asyncio.Event()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, stop.set)
    settings = BusSettings(url=args.nats_url, declare_streams=False)

    def on_event(event: str, detail: str) -> None:
        if event in ("disconnected", "reconnected", "slow_consumer"):
            print(f"trimtab tail: {event} {detail}", file=sys.stderr, flush=True)

    bus = await connect(settings, "trimtab-tail", on_event)
    shown = 0

    async def show(received: Received) -> None:
        nonlocal shown
        if stop.is_set():
            return
        text = _line(received, cast("Format", args.output), heartbeats=args.heartbeats)
        if text is None:
            return
        try:
            print(text, flush=True)
        except BrokenPipeError:
            stop.set()
            return
        shown += 1
        if args.count and shown >= args.count:
            stop.set()

    node = node_token(args.node) if args.node else "*"
    subjects = [f"{ROOT}.{kind}.{node}" for kind in args.kind] if args.kind else [f"{ROOT}.>"]
    for subject in subjects:
        await bus.subscribe(subject, show, limit=10_000)
    await stop.wait()
    await bus.close()
    return 0


def _line(received: Received, output: Format, *, heartbeats: bool) -> str | None:
    try:
        message = decode(received.payload)
    except DecodeError as error:
        return f"     ?  {received.subject}: {error}" if output == "table" else None
    if isinstance(message, Heartbeat) and not heartbeats:
        return None
    return line_of(message) if output == "table" else received.payload.decode()
