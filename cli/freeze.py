"""`trimtab freeze`: every original returns and nothing is written until a thaw, also across restarts."""

import argparse

from cli.orders import Wish, add_order_flags, run_order


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    parser.add_argument("reason", nargs="?", help="why, for the audit")
    add_order_flags(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Orders `frozen`; 1 if it is not seen in force."""
    return run_order(args, "freeze", Wish("frozen", args.reason, args.by))
