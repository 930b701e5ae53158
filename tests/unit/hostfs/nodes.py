"""Folders that look like nodes' cgroup trees, in the words of the case file (docs of the cases: CG-*)."""

from collections.abc import Mapping
from pathlib import Path

UID1, UID2 = "3f0c7b52-6a3e-4d0b-9a57-0d3c6a1f2e11", "b7e1d940-22c8-4f6a-8a1b-5c90e3f7a402"
UID1_, UID2_ = UID1.replace("-", "_"), UID2.replace("-", "_")
STATIC = "9d1c0b7a5e3f42688f0e6c2b4a1d7f35"
C1, C2, S1, N1 = "c1" * 32, "c2" * 32, "5a" * 32, "0d" * 32
POPULATED, EMPTY = {"cgroup.events": "populated 1\nfrozen 0\n"}, {"cgroup.events": "populated 0\nfrozen 0\n"}


def grow(root: Path, group: str, files: Mapping[str, str] | None = None) -> Path:
    """Makes a group, and all above it, with these files."""
    folder = root / group.lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (files or {}).items():
        (folder / name).write_text(text)
    return folder


def cpus(text: str, weight: int = 39) -> dict[str, str]:
    """The files of a container's group that was given these CPUs."""
    return {"cpuset.cpus": text, "cpu.weight": f"{weight}\n"}
