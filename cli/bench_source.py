"""What results were made with: the commit of the source, the machine, and the versions of what computes."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

from hostfs.files import read_text

_PACKAGES: Final = ("numpy", "numba", "river", "gymnasium", "vowpalwabbit")
_GIT_SECONDS: Final = 5.0


def commit_of_source() -> str:
    """The commit of the source that runs, with `+` if files differ from it; empty where it is no checkout."""
    root = Path(__file__).resolve().parents[1]
    if not (root / ".git").exists():
        return ""
    try:
        commit = _git(root, "rev-parse", "--short=12", "HEAD")
        changed = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return ""
    return f"{commit}+" if changed else commit


def _git(root: Path, *words: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(root), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=_GIT_SECONDS).stdout.strip()


def describe_machine() -> str:
    """CPU, how many this process may use, and the kernel."""
    try:
        lines = read_text("/proc/cpuinfo").splitlines()
    except OSError:
        lines = []
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine()
    )
    return f"{model}, {len(os.sched_getaffinity(0))} CPUs, {platform.system()} {platform.release()}"


def package_versions() -> dict[str, str]:
    """Python, and what is installed of the packages that figures depend on."""
    found = {"Python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found
