"""`trimtab report FILE`: what `trimtab bench` found, as a table, and as one page of HTML that can be forwarded."""

import argparse
import sys
from pathlib import Path

from cli.inputs import check_output_file
from cli.order_view import printable, show_rows
from lab.arena.report.page import render
from lab.arena.report.summary import as_record, cells, columns_of, summarise
from lab.arena.results import Results, read_results
from runtime.errors import ConfigError, TrimtabError
from runtime.yaml_text import one_line


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's flags."""
    parser.add_argument("file", type=Path, metavar="FILE", help="what `trimtab bench --json FILE` wrote")
    parser.add_argument("--html", type=Path, metavar="OUT", help="write the report there, one page")
    parser.add_argument("-o", "--output", choices=["table", "json", "jsonl"], default="table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Shows the summary, and writes the page if it is wanted."""
    results = _read(args.file)
    if args.html is not None and args.html.exists() and args.html.samefile(args.file):
        raise ConfigError(f"flag --html: {args.html} is the file that is read; name another")
    check_output_file(args.html, "--html")
    if args.html is not None:
        write_page(args.html, results)
    show(results, args.output)
    for note in results.notes:
        print(f"trimtab report: {printable(note)}", file=sys.stderr)
    return 0


def _read(path: Path) -> Results:
    try:
        return read_results(str(path))
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}; name a file that `trimtab bench --json FILE` wrote") from error
    except ValueError as error:
        words = one_line(f"{path}: {error}")
        raise ConfigError(f"{words}; name a file that `trimtab bench --json FILE` wrote") from error


def show(results: Results, output: str) -> None:
    """The summary on stdout: one line per scenario x policy."""
    lines = summarise(results)
    show_rows([cells(line) if output == "table" else as_record(line) for line in lines], output, columns_of(lines))


def write_page(path: Path, results: Results) -> None:
    """Writes the report. Raises TrimtabError."""
    try:
        path.write_text(render(results), encoding="utf-8")
    except OSError as error:
        raise TrimtabError(f"flag --html: {path}: {error.strerror}; name a file that this user may write") from error
