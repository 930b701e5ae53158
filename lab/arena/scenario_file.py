"""Owns reading a scenario from a file: JSON or YAML, with the fields of lab/arena/scenario.py."""

from pathlib import Path
from typing import Final

import msgspec

from lab.arena.scenario import Scenario
from runtime.errors import ConfigError
from runtime.yaml_text import one_line, parse_yaml

ENDINGS: Final = (".json", ".yaml", ".yml")
MAX_BYTES: Final = 1 << 20
"""A thousand points for each of sixteen pods are half of that."""


def is_file_name(word: str) -> bool:
    """Whether a person's word means a file: by its ending."""
    return word.lower().endswith(ENDINGS)


def read_scenario(path: str) -> Scenario:
    """The scenario in a file. Raises ValueError of one line that names the file and, if it was read, the field."""
    raw = _read(path)
    try:
        if path.lower().endswith(".json"):
            return msgspec.json.decode(raw, type=Scenario)
        return msgspec.convert(parse_yaml(raw.decode("utf-8"), path), Scenario)
    except ConfigError as error:
        raise ValueError(str(error)) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text") from error
    except RecursionError as error:
        raise ValueError(f"{path}: nested too deeply") from error
    except (msgspec.MsgspecError, OverflowError) as error:
        raise ValueError(f"{path}: {one_line(str(error))}") from error


def _read(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no name of a file"
        raise ValueError(f"{path}: cannot be read: {reason}; name a JSON or YAML file of a scenario") from error
    if len(raw) > MAX_BYTES:
        raise ValueError(f"{path}: larger than {MAX_BYTES >> 20} MiB; no scenario needs as much")
    return raw
