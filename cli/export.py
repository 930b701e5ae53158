"""`trimtab export FILE OUT`: a recording as a table of decisions, one row each, for the tools of others."""

import argparse
import importlib
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from cli.order_view import printable
from lab.record.export import Counts, Decisions
from lab.record.file import Recording, read_recording
from runtime.errors import ConfigError, TrimtabError


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    parser.add_argument("file", type=Path, metavar="FILE", help="what `trimtab record FILE` wrote")
    parser.add_argument("out", type=Path, metavar="OUT", nargs="?", help="the Parquet file to write")
    parser.add_argument(
        "-o", "--output", choices=["parquet", "jsonl"], default="parquet", help="jsonl: lines on stdout, or in OUT"
    )
    parser.add_argument("--strict", action="store_true", help="end with an error where the recording is damaged")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exports; what was met on the way on stderr."""
    if args.output == "parquet" and args.out is None:
        raise ConfigError("OUT: name the Parquet file to write, or take -o jsonl for lines on stdout")
    if args.out is not None and args.out.exists() and args.file.exists() and args.out.samefile(args.file):
        raise ConfigError(f"OUT: {args.out} is the recording that is read; name another file")
    recording = read_recording(args.file)
    decisions = Decisions(recording.items(strict=args.strict))
    if args.output == "jsonl":
        _write_lines(args.out, decisions)
    else:
        if importlib.util.find_spec("pyarrow") is None:
            raise TrimtabError(
                "export: needs the package pyarrow; run `pip install 'trimtab[export]'`, or take -o jsonl"
            )
        parquet = importlib.import_module("lab.record.parquet")
        parquet.write_parquet(args.out, decisions, lambda: _about(recording, decisions.counts))
    _tell(args.file, decisions.counts)
    return 0


def _write_lines(out: Path | None, decisions: Decisions) -> None:
    encoder = msgspec.json.Encoder()
    if out is None:
        for row in decisions:
            print(encoder.encode(row).decode())
        return
    try:
        with out.open("wb") as file:
            for row in decisions:
                file.write(encoder.encode(row) + b"\n")
    except OSError as error:
        raise TrimtabError(f"{out}: {error.strerror}; name a file that this user may write") from error


def _about(recording: Recording, counts: Counts) -> Mapping[str, str]:
    """What the table is of, for its metadata."""
    header = recording.header
    told: dict[str, object] = {
        "format": header.format,
        "schema": header.schema,
        "version": header.trimtab,
        "versions": header.versions,
        "node": header.node,
        "settings": [settings.fingerprints for settings in header.settings],
        "counts": counts,
    }
    return {f"trimtab.{name}": msgspec.json.encode(value).decode() for name, value in told.items()}


def _tell(path: Path, counts: Counts) -> None:
    parts = [f"{counts.rows} decisions"]
    parts += [
        f"{number} {words}"
        for number, words in (
            (counts.gaps, "gaps"),
            (counts.damages, "damages"),
            (counts.unread, "messages that cannot be read"),
            (counts.late, "messages too late for their row"),
            (counts.repeated, "messages of a kind that their cycle had already"),
        )
        if number
    ]
    print(f"trimtab export: {', '.join(parts)}", file=sys.stderr)
    for text in counts.damage:
        print(f"trimtab export: {path}: {printable(text)}", file=sys.stderr)
