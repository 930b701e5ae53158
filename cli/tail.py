"""`trimtab tail`: follows the bus, one readable line per message."""

import argparse
import asyncio
import math
import os
import signal
import sys
from typing import Final, Literal, cast

import msgspec

from cli.story import line_of
from runtime.bus import Received
from runtime.config import load
from runtime.errors import BusUnreachable, ConfigError
from runtime.nats_bus import connect
from runtime.settings import BusSettings, mask_url
from schemas.codec import DecodeError, decode_on
from schemas.messages import Heartbeat
from schemas.subjects import KINDS, ROOT, node_token

Format = Literal["table", "json", "jsonl"]
LONGEST_WAIT_SECONDS: Final = 10.0
"""Seconds for the first connection, whatever more the services are given: a person is waiting. 10: on a node whose CPUs
are all taken, where an order matters most, the server and this process get theirs late."""

_PATIENCE_SECONDS: Final = 1.0
"""Seconds of silence after which a person at a terminal is told what is waited for."""

_LONGEST_TIMEOUT_SECONDS: Final = 3600.0


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    add_bus_flags(parser)
    parser.add_argument("--node", default=None, help="one node only")
    parser.add_argument("--kind", action="append", choices=KINDS, help="one kind only; may be repeated")
    parser.add_argument("--heartbeats", action="store_true", help="show heartbeats too")
    parser.add_argument("--count", type=int, default=0, help="end after so many messages (default: never)")
    parser.add_argument(
        "-o", "--output", choices=["table", "json", "jsonl"], default="table", help="lines, or the messages themselves"
    )
    parser.set_defaults(run=run)


def add_bus_flags(parser: argparse.ArgumentParser) -> None:
    """The flags by which a verb that only looks finds its bus."""
    parser.add_argument("--config", metavar="FILE", default=os.environ.get("TRIMTAB_CONFIG"), help="YAML configuration")
    parser.add_argument("--nats-url", metavar="URL", help=f"NATS server (default: bus.url, {BusSettings().url})")
    parser.add_argument(
        "--timeout",
        type=_timeout_seconds,
        metavar="SECONDS",
        help=f"how long to wait for NATS: to connect, and for each of its answers (default: "
        f"bus.connect_timeout_seconds but at most {LONGEST_WAIT_SECONDS:g}, and bus.request_timeout_seconds)",
    )


def _timeout_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0.0 < seconds <= _LONGEST_TIMEOUT_SECONDS:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no number of seconds above 0, {_LONGEST_TIMEOUT_SECONDS:g} at most"
        )
    return seconds


def bus_settings(args: argparse.Namespace) -> BusSettings:
    """Where the bus is, as the services are told; nothing is declared there. Raises ConfigError."""
    overrides = [("bus.url", args.nats_url, "--nats-url")] if args.nats_url is not None else []
    found = load({}, path=args.config, overrides=overrides).bus
    connect_seconds = args.timeout or min(found.connect_timeout_seconds, LONGEST_WAIT_SECONDS)
    return msgspec.structs.replace(
        found,
        declare_streams=False,
        connect_timeout_seconds=connect_seconds,
        request_timeout_seconds=args.timeout or found.request_timeout_seconds,
    )


def as_operator(settings: BusSettings) -> BusSettings:
    """The settings, where the operator's seed that they name for the verbs is here. Raises ConfigError in a container
    that has its service's seed alone.
    """
    path = (settings.nkey_seed_file or "").replace("{service}", "operator")
    if path != (settings.nkey_seed_file or "") and not os.path.exists(path):
        raise ConfigError(
            f"bus.nkey_seed_file: {path}: No such file or directory; verbs speak as the operator: hand its seed in, "
            f"as in `TRIMTAB_BUS__NKEY_SEED_FILE=/dev/stdin trimtab mode < operator.seed`"
        )
    return settings


def notice_of_waiting(settings: BusSettings, verb: str) -> asyncio.TimerHandle:
    """Tells a person at a terminal, after a second, that NATS is waited for; cancel it when NATS has answered."""

    def say() -> None:
        if sys.stderr.isatty():
            seconds = settings.connect_timeout_seconds
            text = f"trimtab {verb}: waiting up to {seconds:g} s for NATS at {mask_url(settings.url)} (--timeout)"
            print(text, file=sys.stderr, flush=True)

    return asyncio.get_running_loop().call_later(_PATIENCE_SECONDS, say)


def run(args: argparse.Namespace) -> int:
    """Follows until interrupted or until `--count` messages were shown."""
    if args.count < 0:
        raise ConfigError(f"flag --count: {args.count} is no number of messages; leave it out to follow for ever")
    try:
        node = node_token(args.node) if args.node is not None else "*"
    except ValueError as error:
        raise ConfigError(f"flag --node: {error}; leave it out for all nodes") from error
    kinds = [f"{ROOT}.{kind}.{node}" for kind in args.kind or (KINDS if args.node is not None else ())]
    if kinds and args.heartbeats:
        kinds.append(f"{ROOT}.heartbeat.*.{node}")
    asyncio.run(_follow(args, as_operator(bus_settings(args)), kinds or [f"{ROOT}.>"]))
    return 0


async def _follow(args: argparse.Namespace, settings: BusSettings, subjects: list[str]) -> None:
    follower = _Follower(cast("Format", args.output), args.count, heartbeats=args.heartbeats)
    notice = notice_of_waiting(settings, "tail")
    bus = await connect(settings, "trimtab-tail", follower.on_event)
    notice.cancel()
    for signum in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signum, follower.end)
    try:
        for subject in subjects:
            await bus.subscribe(subject, follower.show, limit=10_000)
        await follower.ended
    finally:
        await bus.close()


class _Follower:
    """Prints messages until it has shown `count` of them (0: for ever), nobody reads, or the bus is gone for good."""

    def __init__(self, output: Format, count: int, *, heartbeats: bool) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._output = output
        self._count = count
        self._heartbeats = heartbeats
        self._shown = 0

    def end(self) -> None:
        """Nothing is shown from now on."""
        if not self.ended.done():
            self.ended.set_result(None)

    def on_event(self, event: str, detail: str) -> None:
        """Tells of the connection's troubles; the last one is an error."""
        if event in ("disconnected", "reconnected", "slow_consumer"):
            print(f"trimtab tail: {event} {detail}", file=sys.stderr, flush=True)
        elif event == "closed" and not self.ended.done():
            text = f"bus.url: the server ended the connection for good: {detail}; check the credentials"
            self.ended.set_exception(BusUnreachable(text))

    async def show(self, received: Received) -> None:
        """Prints one message, if it is one to be shown."""
        text = None if self.ended.done() else _line(received, self._output, heartbeats=self._heartbeats)
        if text is None:
            return
        try:
            print(text, flush=True)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the flush at exit fails once more
            self.end()
            return
        self._shown += 1
        if self._shown == self._count:
            self.end()


def _line(received: Received, output: Format, *, heartbeats: bool) -> str | None:
    try:
        message = decode_on(received.subject, received.payload)
    except DecodeError as error:
        return f"     ?  {received.subject}: {error}" if output == "table" else None
    if isinstance(message, Heartbeat) and not heartbeats:
        return None
    return line_of(message) if output == "table" else received.payload.decode()
