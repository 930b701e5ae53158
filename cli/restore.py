"""`trimtab restore`: every original returns once; the loop goes on. To keep them: `trimtab freeze`."""

import argparse

from cli.orders import Wish, add_order_flags, run_order


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    parser.add_argument("reason", nargs="?", help="why, for the audit")
    add_order_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Orders the originals back; 1 if the actuator did not say that they are."""
    return run_order(args, "restore", Wish(None, args.reason, args.by))
