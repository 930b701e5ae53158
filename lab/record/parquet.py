"""Decisions as a Parquet file, written in row groups: memory does not grow with it."""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from lab.record.export import Decision
from runtime.errors import TrimtabError

GROUP_ROWS: Final = 2000
"""Rows of a group. 2000: some megabytes of memory, and few enough groups for a reader to skip by."""

_TEXT, _NUMBER, _WHOLE, _TRUTH = pa.string(), pa.float64(), pa.int64(), pa.bool_()
_WEIGHTS = pa.map_(_TEXT, _WHOLE)
_NUMBERS = pa.map_(_TEXT, _NUMBER)
SCHEMA: Final = pa.schema(
    {
        "node": _TEXT,
        "boot": _TEXT,
        "cycle": _WHOLE,
        "ts": pa.timestamp("us", "UTC"),
        "policy": _TEXT,
        "in_charge": _TEXT,
        "policy_updates": _WHOLE,
        "model": _TEXT,
        "run": _TEXT,
        "context": _NUMBERS,
        "action_set": pa.list_(_TEXT),
        "pi_b": pa.list_(_NUMBER),
        "masked": pa.map_(_TEXT, _TEXT),
        "action": _TEXT,
        "action_weights": _WEIGHTS,
        "propensity": _NUMBER,
        "explored": _TRUTH,
        "executed_arm": _TEXT,
        "executed_weights": _WEIGHTS,
        "pscore": _NUMBER,
        "reward": _NUMBER,
        "reward_terms": _NUMBERS,
        "outcome": _TEXT,
        "censored_reason": _TEXT,
        "mode": _TEXT,
        "verdict": _TEXT,
        "verdict_rule": _TEXT,
        "actuation": _TEXT,
        "actuation_rule": _TEXT,
        "taken_back": _TEXT,
        "contended": _TRUTH,
        "delay_seconds": _NUMBER,
        "decide_seconds": _NUMBER,
        "gap_before": _TRUTH,
        "features_schema": _TEXT,
        "schema": _WHOLE,
    }
)
"""The columns, in their order (docs/recording.md)."""


def write_parquet(
    path: str | os.PathLike[str],
    decisions: Iterable[Decision],
    about: Callable[[], Mapping[str, str]],
) -> None:
    """Writes the decisions, and `about` as it is after the last of them into the file's metadata. The file is there
    when it is whole, not before. Raises TrimtabError when the disk does not take it.
    """
    place = Path(path)
    partial = place.with_name(f".{place.name}.partial")
    try:
        with pq.ParquetWriter(partial, SCHEMA, compression="zstd") as writer:
            for rows in _groups(decisions):
                writer.write_table(pa.Table.from_pylist([_plain(row) for row in rows], schema=SCHEMA))
            writer.add_key_value_metadata(dict(about()))
        partial.replace(place)
    except OSError as error:
        reason = error.strerror or str(error)
        raise TrimtabError(f"{place}: {reason}; name a file that this user may write, on a disk with room") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def _groups(decisions: Iterable[Decision]) -> Iterator[list[Decision]]:
    rest = iter(decisions)
    while rows := list(islice(rest, GROUP_ROWS)):
        yield rows


def _plain(row: Decision) -> dict[str, Any]:
    """The row as pyarrow takes it: a map is a list of pairs."""
    plain = {
        name: list(value.items()) if isinstance(value, dict) else value
        for name, value in msgspec.structs.asdict(row).items()
    }
    del plain["ts_ns"]
    plain["ts"] = row.ts_ns // 1000  # to read what is finer than Python's own times needs pandas
    return plain
