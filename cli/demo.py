"""`trimtab demo`: the whole loop on this machine in two and a half minutes."""

import argparse
import asyncio
import contextlib
import itertools
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec

from cli.demo_view import LiveView, closing_table, view_for
from cli.inputs import SECTIONS, check_output_file, make_run_dir
from lab.demo import Demo, DemoOptions, check_options
from lab.demo_report import Report
from lab.rig import common_settings
from runtime.config import load
from runtime.flags import assignments


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    parser.add_argument("--duration", type=float, default=150.0, metavar="SECONDS", help="length in all (default: 150)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="keep everything of the run there")
    parser.add_argument("--port", type=int, default=0, help="port of the NATS server (default: any free one)")
    parser.add_argument("--seed", type=int, default=1, help="seed of load and policy (default: 1)")
    parser.add_argument("--tick", type=float, default=2.0, metavar="SECONDS", help="seconds a cycle (default: 2)")
    parser.add_argument("--simulate", action="store_true", help="use the simulated node even where cgroups are real")
    parser.add_argument(
        "--without-metrics",
        action="store_true",
        help="no pod has a metrics endpoint: the loop steers by the kernel's pressure alone",
    )
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="a setting of the services")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the demo; prints the closing table on stdout."""
    check_output_file(args.json, "--json")
    options = DemoOptions(
        duration_seconds=args.duration,
        run_dir=args.run_dir or Path(),
        port=args.port,
        seed=args.seed,
        tick_seconds=args.tick,
        force_simulation=args.simulate,
        metrics=not args.without_metrics,
        set_flags=tuple(part for assignment in args.set for part in ("--set", assignment)),
    )
    check_options(options)
    _check_settings(options, args.set)
    options = replace(options, run_dir=make_run_dir(args.run_dir, "trimtab-demo-"))
    view = view_for(sys.stderr.isatty())
    demo = Demo(options, view)
    try:
        report = asyncio.run(_run(demo))
    finally:
        if isinstance(view, LiveView):
            view.close()
    if report is None:
        return _interrupted(demo.restored, options.run_dir)
    if args.json is not None:
        args.json.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    print(closing_table(report))
    return 0 if report.restored else 1


def _check_settings(options: DemoOptions, texts: list[str]) -> None:
    """Raises ConfigError for `--set` flags that the services would refuse, before anything starts."""
    with tempfile.NamedTemporaryFile("wb", suffix=".yaml") as file:
        file.write(msgspec.yaml.encode(common_settings(options.tick_seconds, options.seed)))
        file.flush()
        load(SECTIONS, path=file.name, overrides=assignments(texts), env={})


def _interrupted(restored: bool | None, run_dir: Path) -> int:  # noqa: FBT001 - as the demo tells it
    """Says how a signal left the machine; the exit code."""
    if restored is False:
        how = f"NOT everything is as it was: see above, and the logs in {run_dir / 'logs'}"
    else:
        how = "nothing was changed" if restored is None else "the weights and the machine are as they were"
    print(f"trimtab demo: interrupted; {how}", file=sys.stderr)
    return 1 if restored is False else 130


async def _run(demo: Demo) -> Report | None:
    """The report, or None if a signal ended it. Only the first signal does: the clean-up is never cut short."""
    task = asyncio.ensure_future(demo.run())
    loop = asyncio.get_running_loop()
    signals = itertools.count(1)

    def stop() -> None:
        match next(signals):
            case 1:
                task.cancel()
            case 2:
                demo.watcher.say("already stopping")

    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signum, stop)
    with contextlib.suppress(asyncio.CancelledError):
        return await task
    return None
