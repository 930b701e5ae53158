"""`trimtab <verb>`: the list of verbs, and how errors end.

Exit codes: 0 good, 1 an error, a failed check or an order whose effect was not seen, 2 wrong settings or flags, 3 no
bus, 4 no server, 5 port in use, 6 this machine cannot, 130 interrupted, 141 nobody read the output to its end (what the
shell says of a program that a closed pipe ended), so that `replay … | head` does not call good what was not looked at.
"""

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runtime.errors import TrimtabError
from runtime.flags import FlagParser

_EXTRAS = {"rich": "demo", "numba": "lab", "numpy": "lab", "pyarrow": "export", "river": "lab"}
"""Packages that only some verbs need, and the extra that brings them."""


INTERRUPTED = 130
NOBODY_READS = 141
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO))
"""What writing to a standard output fails with that is a file."""


@dataclass(frozen=True)
class Verb:
    """A verb and its module, which is imported when it is asked for: what one needs must not stop or slow another."""

    name: str
    help: str

    def add_parser(self, verbs: "argparse._SubParsersAction[Any]", *, asked: bool = True) -> None:
        """The verb, with its flags if it is asked for. Raises TrimtabError if its module needs a missing package."""
        parser = verbs.add_parser(self.name, help=self.help)
        if not asked:
            return
        try:
            module = importlib.import_module(f"cli.{self.name}")
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in _EXTRAS:
                raise
            raise TrimtabError(
                f"{self.name}: needs the package {package}; run `pip install 'trimtab[{_EXTRAS[package]}]'`"
            ) from error
        parser.description = module.__doc__
        module.add_flags(parser)


VERBS = (
    Verb("demo", "show the loop on this machine"),
    Verb("up", "run the five services together"),
    Verb("tail", "follow the bus"),
    Verb("mode", "show the mode in force, or order another"),
    Verb("freeze", "return every original and write nothing until a thaw"),
    Verb("thaw", "go back to the mode from before the freeze"),
    Verb("restore", "return every original once"),
    Verb("record", "keep what the streams have in one file"),
    Verb("replay", "decide, judge and reward a recording again, or by another policy"),
    Verb("explain", "tell one cycle, from seen to worth"),
    Verb("audit", "who changed a pod's weight, when and why"),
    Verb("evaluate", "what policies would have earned"),
    Verb("export", "write a recording as a table of decisions"),
    Verb("models", "what the decider has stored; promote or roll back"),
    Verb("compare", "the policy in charge, its shadows and challengers"),
    Verb("creds", "make and show the credentials of the bus"),
    Verb("doctor", "what this machine can do"),
    Verb("bench", "play policies against each other"),
    Verb("report", "show what a bench found, as a table or as a page"),
    Verb("train", "learn a prior for our policy on the simulator"),
)


class _ShowVersion(argparse.Action):
    """Looks the version up when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        metrics = importlib.import_module("runtime.metrics")
        print(f"trimtab {metrics.product_version()}")
        parser.exit()


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb; the exit code."""
    words = sys.argv[1:] if argv is None else argv
    first = next((word for word in words if not word.startswith("-")), None)
    parser = FlagParser(
        prog="trimtab", description="Learns cpu.weight online: latency-critical pods first, batch with what is left."
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verb, code = "", 0
    try:
        try:
            for known in VERBS:
                known.add_parser(verbs, asked=known.name == first)
            args = parser.parse_args(words)
            verb = f" {args.verb}"
            code = args.run(args)
        except TrimtabError as error:
            print(f"trimtab{verb}: {error}", file=sys.stderr)
            code = error.exit_code
        except SystemExit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()  # here, where what goes wrong with it can still be told
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        _give_up_output()
        return code or NOBODY_READS
    except OSError as error:
        if error.errno not in _FULL or error.filename is not None:
            raise
        _give_up_output()
        print(f"trimtab{verb}: the output could not be written: {error.strerror}; make room", file=sys.stderr)
        return code or 1
    return code


def _give_up_output() -> None:
    """What is not yet written goes nowhere, or the flush at the interpreter's exit would fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    sys.exit(main())
