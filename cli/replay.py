"""`trimtab replay`: what was recorded goes through the real cores again, and must come out the same.

Without --policy and --seed every message is compared to the byte, and the exit code is 0 only if all that was recorded
was there, could be replayed and came out the same. With one of them another policy decides, and what differs is shown.
"""

import argparse
import asyncio
import math
import sys
import time
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, cast

from cli.inputs import SECTIONS
from cli.order_view import printable
from cli.replay_view import Output, Progress, ReplayView
from cli.tail import add_bus_flags, as_operator, bus_settings
from cli.times import moment_ns
from lab.record.file import Recording
from lab.record.items import Entry, Header, Settings
from lab.record.settings import settings_of, versions
from lab.record.source import LIVE, open_source
from lab.replay.other import OtherPolicy, wish_of
from lab.replay.publish import Pace, Publisher
from lab.replay.replayer import Replayer
from runtime.config import load
from runtime.errors import ConfigError
from runtime.metrics import product_version
from runtime.nats_bus import connect
from schemas.subjects import REPLAY_ROOT, node_token, run_token

_FASTEST: Final = 1e6
_SHOWN: Final = 10

_Feed = Callable[[Entry | None], bool]
"""Takes the next entry, or None at the end; whether to go on."""


class _Played(NamedTuple):
    """Whether it came to the end, and whether the server took all that was to be said again."""

    is_through: bool
    is_published: bool


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    add = parser.add_argument
    add("source", metavar="FILE", help=f"a file that `trimtab record` wrote, or {LIVE!r} for what the streams have now")
    add_bus_flags(parser)
    add("--node", default=None, help="one node only")
    add("--since", metavar="WHEN", help=f"of {LIVE!r}: from then on, 2h (ago) or 2026-12-01T03:00Z (default: all)")
    add("--speed", default="instant", metavar="SPEED", help="instant, original, or how many times as fast (instant)")
    add("--policy", metavar="NAME[:KEY=VALUE,…]", help="another policy, or other settings of one, instead")
    add("--seed", type=int, metavar="N", help="other draws than the recorded ones")
    add("--all", action="store_true", help="go on after the first difference, and count")
    add("--first", type=int, default=_SHOWN, metavar="N", help=f"with --policy: cycles that are shown ({_SHOWN})")
    add("--publish", metavar="RUN", help=f"say what was recorded again, under {REPLAY_ROOT}.RUN")
    add("-o", "--output", choices=["table", "json", "jsonl"], default="table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replays; 0 if all agrees, or with another policy; 1 if not."""
    speed = _speed_of(args.speed)
    wish = wish_of(args.policy, args.seed)
    is_other = args.policy is not None or args.seed is not None
    _check(args)
    extra = _extra_settings(args)
    view = ReplayView(cast("Output", args.output), args.first)
    with open_source(
        args.source,
        lambda: as_operator(bus_settings(args)),
        node=args.node,
        since_ns=None if args.since is None else moment_ns(args.since, "--since", time.time_ns()),
        settings_for=_settings_for(args),
        say=_say,
    ) as recording:
        _warn_of_versions(recording.header)
        if is_other:
            other = OtherPolicy(recording.header, wish, node=args.node, extra=extra)
            played = _play(args, recording, speed, _feed_other(other, view))
            view.comparison(other.report)
            return 0 if played.is_published else 1
        replayer = Replayer(recording.header, node=args.node, extra=extra)
        played = _play(args, recording, speed, _feed_same(replayer, view, go_on=args.all))
        view.report(replayer.report, stopped=not played.is_through)
        return 0 if played.is_through and played.is_published and replayer.report.agrees else 1


def _feed_same(replayer: Replayer, view: ReplayView, *, go_on: bool) -> _Feed:
    progress = Progress(sys.stderr)

    def feed(entry: Entry | None) -> bool:
        for found in replayer.end() if entry is None else replayer.take(entry):
            progress.close()
            view.difference(found)
            if not go_on:
                return False
        if entry is None:
            progress.close()
        else:
            progress.show(replayer.report.cycles)
        return True

    return feed


def _feed_other(other: OtherPolicy, view: ReplayView) -> _Feed:
    progress = Progress(sys.stderr)

    def feed(entry: Entry | None) -> bool:
        for found in other.end() if entry is None else other.take(entry):
            progress.close()
            view.otherwise(found)
        if entry is None:
            progress.close()
        else:
            progress.show(other.report.cycles)
        return True

    return feed


def _play(args: argparse.Namespace, recording: Recording, speed: float | None, feed: _Feed) -> _Played:
    """Feeds all of a recording, and says it again if asked to."""
    entries = recording.items()
    if speed is None and args.publish is None:
        return _Played(is_through=all(feed(entry) for entry in entries) and feed(None), is_published=True)
    return asyncio.run(_play_paced(args, entries, speed, feed))


async def _play_paced(args: argparse.Namespace, entries: Iterable[Entry], speed: float | None, feed: _Feed) -> _Played:
    pace = Pace(speed, time.monotonic, asyncio.sleep)
    if args.publish is None:
        return _Played(is_through=await _feed_all(entries, pace, None, feed), is_published=True)
    breaks: list[str] = []

    def on_event(event: str, detail: str) -> None:
        if event in ("disconnected", "closed"):
            breaks.append(detail)

    bus = await connect(as_operator(bus_settings(args)), "trimtab-replay", on_event)
    publisher = Publisher(bus, args.publish, node=args.node)
    refusal: str | None = None
    try:
        is_through = await _feed_all(entries, pace, publisher, feed)
        refusal = await publisher.finish(bus)
    finally:
        await bus.close()
        _say(_published(publisher, args.publish, refusal, breaks))
    return _Played(is_through=is_through, is_published=refusal is None and not breaks)


async def _feed_all(entries: Iterable[Entry], pace: Pace, publisher: Publisher | None, feed: _Feed) -> bool:
    """Each entry when it is time for it; whether it came to the end."""
    for entry in entries:
        await pace.wait_for(entry)
        if publisher is not None:
            await publisher.say(entry)
        if not feed(entry):
            return False
    return feed(None)


def _published(publisher: Publisher, run: str, refusal: str | None, breaks: list[str]) -> str:
    """What became of what was said again."""
    left_out = f", {publisher.left_out} left out that are no messages" if publisher.left_out else ""
    text = f"{publisher.said - publisher.refused} messages published under {REPLAY_ROOT}.{run}{left_out}"
    if refusal is not None:
        text += f"; the server REFUSED {publisher.refused}: {refusal}"
    if breaks:
        text += f"; the connection to {breaks[0]} broke on the way, and what was under way is lost: publish again"
    return text


def _speed_of(text: str) -> float | None:
    """How many times as fast as recorded; None for at once. Raises ConfigError."""
    if text == "instant":
        return None
    if text == "original":
        return 1.0
    try:
        speed = float(text.removesuffix("x"))
    except ValueError:
        speed = math.nan
    if not 0.0 < speed <= _FASTEST:
        raise ConfigError(f"flag --speed: {text!r} is no speed; give instant, original, or a number as in 10")
    return speed


def _check(args: argparse.Namespace) -> None:
    """Raises ConfigError for flags that are out of range or do not go together."""
    for flag, value, token in (("--node", args.node, node_token), ("--publish", args.publish, run_token)):
        try:
            if value is not None:
                token(value)
        except ValueError as error:
            raise ConfigError(f"flag {flag}: {error}") from error
    if args.since is not None and args.source != LIVE:
        raise ConfigError(f"flag --since: only with {LIVE!r}; a recording is replayed from its beginning")
    if args.first < 0:
        raise ConfigError(f"flag --first: {args.first} is no number of cycles; give 0 or more")
    if args.seed is not None and args.seed < 0:
        raise ConfigError(f"flag --seed: {args.seed} is no seed; give 0 or more")


def _settings_for(args: argparse.Namespace) -> Callable[[str], Settings | None]:
    if args.source != LIVE:
        return lambda _: None
    config = load(SECTIONS, path=args.config)
    return lambda node: settings_of(config, node)


def _extra_settings(args: argparse.Namespace) -> list[Settings]:
    """The settings in the file that the person names, for messages that were made under those."""
    if args.config is None:
        return []
    config = load(SECTIONS, path=args.config)
    return [settings_of(config, config.shared.node)]


def _warn_of_versions(header: Header) -> None:
    """Equal bits need equal libraries: says which are not."""
    here = {"trimtab": product_version(), **versions()}
    for name, recorded in {"trimtab": header.trimtab, **header.versions}.items():
        if here.get(name) != recorded:
            _say(
                f"recorded with {name} {recorded}, this is {here.get(name, 'without it')}: numbers may differ for that"
            )


def _say(text: str) -> None:
    print(printable(f"trimtab replay: {text}"), file=sys.stderr, flush=True)
