"""What several verbs are given: the sections of all services, and a folder to keep a run in."""

import tempfile
from pathlib import Path

from runtime.errors import ConfigError
from schemas.settings import Section
from services.actuator.config import ActuatorConfig
from services.collector.config import CollectorConfig
from services.decider.config import DeciderConfig
from services.guard.config import GuardConfig
from services.rewarder.config import RewarderConfig

SECTIONS: dict[str, type[Section]] = {
    "collector": CollectorConfig,
    "decider": DeciderConfig,
    "guard": GuardConfig,
    "actuator": ActuatorConfig,
    "rewarder": RewarderConfig,
}


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
