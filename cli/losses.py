"""How a verb that answers from a record says, beside its answer, what of that record is lost."""

import argparse
import contextlib
import sys
from collections.abc import Iterator

from cli.order_view import printable
from cli.recordings import Record
from lab.explain.losses import Losses


@contextlib.contextmanager
def losses_said(record: Record, args: argparse.Namespace, verb: str) -> Iterator[Losses]:
    """Said on stderr in the end, also where there is no answer: that may be why."""
    losses = Losses(record.recording.header, args.node)
    try:
        yield losses
    finally:
        if losses.line is not None:
            print(f"trimtab {verb}: {printable(losses.line)}", file=sys.stderr)
