"""What several verbs are given: the sections of all services, and a folder to keep a run in."""

import tempfile
from pathlib import Path

from lab.sections import SECTIONS
from runtime.errors import ConfigError

__all__ = ["SECTIONS", "check_output_file", "make_run_dir"]


def make_run_dir(wanted: Path | None, prefix: str) -> Path:
    """The folder for a run's files, made if it is missing; a temporary one if none is wanted. Raises ConfigError."""
    run_dir = (wanted or Path(tempfile.mkdtemp(prefix=prefix))).absolute()
    try:
        run_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=run_dir):
            pass
    except OSError as error:
        raise ConfigError(
            f"flag --run-dir: {run_dir}: {error.strerror}; choose a directory that this user may write"
        ) from error
    return run_dir


def check_output_file(path: Path | None, flag: str) -> None:
    """Raises ConfigError for a file that could not be written in the end."""
    if path is None:
        return
    is_new = not path.exists()
    try:
        with path.open("ab"):
            pass
        if is_new:
            path.unlink()
    except OSError as error:
        raise ConfigError(f"flag {flag}: {path}: {error.strerror}; name a file that this user may write") from error
