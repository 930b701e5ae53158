"""`trimtab train`: a prior for our policy, learned on the simulator over random scenarios; one seed, one result."""

import argparse
import importlib
import sys
from pathlib import Path

from cli.bench import need_lab
from cli.bench_progress import Progress
from cli.bench_source import commit_of_source
from cli.inputs import check_output_file
from runtime.errors import ConfigError, TrimtabError


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    parser.add_argument("--seed", type=int, default=1, help="seed of scenarios and loads (default: 1)")
    parser.add_argument("--scenarios", type=int, default=200, metavar="N", help="random scenarios (default: 200)")
    parser.add_argument("--cycles", type=int, default=200, metavar="N", help="cycles of each (default: 200)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="write the snapshot there")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Trains; the path of the snapshot on stdout."""
    need_lab("train")
    if args.seed < 0:
        raise ConfigError(f"flag --seed {args.seed}: give 0 or more")
    for flag, value in (("--scenarios", args.scenarios), ("--cycles", args.cycles)):
        if value < 1:
            raise ConfigError(f"flag {flag} {value}: give at least 1")
    check_output_file(args.out, "--out")
    training = importlib.import_module("lab.arena.training")
    progress = Progress(args.scenarios, sys.stderr, what="trimtab train")

    def on_progress(done: int, _total: int) -> None:
        progress.reached(done)

    sizes = f"--seed {args.seed} --scenarios {args.scenarios} --cycles {args.cycles}"
    try:
        training.train(
            seed=args.seed,
            scenarios=args.scenarios,
            cycles=args.cycles,
            out=str(args.out),
            progress=on_progress,
            command=f"trimtab train {sizes}",
            commit=commit_of_source(),
        )
    except OSError as error:
        raise TrimtabError(f"flag --out: {args.out}: {error.strerror}; name a file that this user may write") from error
    except ValueError as error:
        raise TrimtabError(f"{error}") from error
    finally:
        progress.close()
    print(args.out)
    return 0
