"""`python -m lab.record_demo`: a recorded run of the five processes on the simulated node, replayed to the byte.

Starts a NATS server, the simulated node and the services at a short tick; kills the decider in the middle, so that it
starts anew from its stored model; ends the services; records the streams with `trimtab record`; replays the file with
`trimtab replay`, whose exit code it ends with.
"""

import argparse
import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lab.rig import Rig, RigOptions
from lab.sim_stage import SimStage
from runtime.errors import ConfigError, TrimtabError
from schemas.messages import AnyMessage, Reward, State

_SHORTEST_TICK_SECONDS: Final = 0.25
"""The settle time and the decision budget must end within a tick."""

_SAY_SECONDS: Final = 10.0
_LEAST_CYCLES: Final = 20
_SLOWEST: Final = 4.0
"""So many times the planned length is waited for the cycles."""


@dataclass(frozen=True)
class Options:
    """What a person asks for."""

    file: Path
    cycles: int
    tick_seconds: float
    seed: int
    run_dir: Path


class _Counter:
    """How many cycles there were, and ended."""

    def __init__(self) -> None:
        self.states = 0
        self.rewards = 0
        self.moved = asyncio.Event()

    def __call__(self, message: AnyMessage) -> None:
        self.states += isinstance(message, State) and message.phase == "before"
        self.rewards += isinstance(message, Reward)
        self.moved.set()

    async def reach(self, cycles: int) -> None:
        """Waits for so many rewards."""
        told_at = time.monotonic()
        while self.rewards < cycles:
            self.moved.clear()
            await self.moved.wait()
            if time.monotonic() - told_at >= _SAY_SECONDS:
                told_at = time.monotonic()
                _say(f"{self.rewards} cycles")


async def record(options: Options) -> None:
    """The run and its recording. Raises TrimtabError."""
    counter, tick = _Counter(), options.tick_seconds
    flags = {
        "loop.settle_seconds": round(0.32 * tick, 4),
        "loop.decision_budget_seconds": round(0.2 * tick, 4),
        "collector.scrape_timeout_seconds": round(0.12 * tick, 4),
        "decider.checkpoint_seconds": max(5.0, options.cycles * tick / 20),
        "collector.min_requests": 1,
        "rewarder.min_requests": 1,
    }
    words = tuple(word for name, value in flags.items() for word in ("--set", f"{name}={value}"))
    rig = Rig(SimStage(options.seed), RigOptions(options.run_dir, 0, options.seed, tick, words), on_message=counter)
    try:
        await rig.start()
        await rig.stage.start_batch()
        await rig.order("active", "the recorded run begins", by="record_demo")
        limit = _SLOWEST * options.cycles * tick + 60.0
        async with asyncio.timeout(limit):
            await counter.reach(options.cycles // 2)
            pid = rig.fleet.pids()["decider"]
            os.kill(pid, signal.SIGKILL)
            _say(f"{counter.rewards} cycles; the decider (pid {pid}) is killed and starts anew from its stored model")
            await counter.reach(options.cycles)
        await rig.fleet.stop()
        _say(f"{counter.states} cycles; recording")
        config = str(options.run_dir / "trimtab.yaml")
        settings = ("--config", config, "--nats-url", rig.url)
        await _trimtab("record", str(options.file), *settings, env=_as_env(flags))
    except TimeoutError as error:
        raise TrimtabError(f"only {counter.rewards} cycles in {limit:.0f} s; see {options.run_dir / 'logs'}") from error
    finally:
        is_closed = await rig.close()
        for trouble in rig.troubles if not is_closed else ():
            _say(trouble)


def _as_env(flags: dict[str, float]) -> dict[str, str]:
    """The services' flags as settings of the recorder, which notes them beside what they did."""
    return {f"TRIMTAB_{name.upper().replace('.', '__')}": str(value) for name, value in flags.items()}


async def _trimtab(*words: str, env: dict[str, str] | None = None) -> None:
    """Runs a verb. Raises TrimtabError unless it ends with 0."""
    own = {name: text for name, text in os.environ.items() if not name.startswith("TRIMTAB_")}
    argv = (sys.executable, "-m", "cli", *words)
    process = await asyncio.create_subprocess_exec(*argv, env={**own, **(env or {})})
    try:
        code = await process.wait()
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
    if code != 0:
        raise TrimtabError(f"`trimtab {' '.join(words)}` ended with {code}")


def main() -> int:
    """Records and replays; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab.record_demo", description=__doc__)
    parser.add_argument("file", type=Path, metavar="FILE", help="the recording; must not be there yet")
    parser.add_argument("--cycles", type=int, default=2000, help="how many (2000)")
    parser.add_argument("--tick", type=float, default=0.25, metavar="SECONDS", help="seconds a cycle (0.25)")
    parser.add_argument("--seed", type=int, default=1, help="of load and policy (1)")
    parser.add_argument("--run-dir", type=Path, metavar="DIR", help="keep configuration and logs there")
    args = parser.parse_args()
    try:
        return _run(args)
    except TrimtabError as error:
        _say(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _run(args: argparse.Namespace) -> int:
    if args.file.exists():
        raise ConfigError(f"{args.file}: is there already; name a new file")
    if args.cycles < _LEAST_CYCLES or args.tick < _SHORTEST_TICK_SECONDS:
        raise ConfigError(f"give at least --cycles {_LEAST_CYCLES} and --tick {_SHORTEST_TICK_SECONDS}")
    run_dir = args.run_dir or Path(tempfile.mkdtemp(prefix="trimtab-record-demo-"))
    _say(f"{args.cycles} cycles of {args.tick:g} s; logs in {run_dir}")
    asyncio.run(record(Options(args.file, args.cycles, args.tick, args.seed, run_dir.absolute())))
    asyncio.run(_trimtab("replay", str(args.file)))
    return 0


def _say(text: str) -> None:
    print(f"record_demo: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
