# ruff: noqa: INP001 - a script of an image, no part of a package
"""Which lines of requirements.lock one image needs: `python lock_subset.py NAME...` prints them, hashes and all.

A name is an extra of pyproject.toml, or `group:NAME` for a dependency group alone; without any it is what every service
needs. Nothing is resolved anew: the lock's own `# via` lines say who asked for each package. Standard library only,
since it runs before anything is installed.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

GROUP: Final = "group:"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class SubsetError(Exception):
    """The lock and pyproject.toml do not belong together, or a name is in neither."""


@dataclass(frozen=True)
class Entry:
    """One pinned package: its lines in the lock, and the packages that asked for it."""

    name: str
    lines: tuple[str, ...]
    via: frozenset[str]


def canonical(name: str) -> str:
    """The one spelling of a package's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_lock(text: str) -> tuple[Entry, ...]:
    """The lock's entries in its order. Several entries of one name are one package under different markers."""
    blocks: list[list[str]] = []
    for line in text.splitlines():
        if line and not line.startswith((" ", "#")):
            blocks.append([line])
        elif blocks and line.strip():
            blocks[-1].append(line)
    return tuple(_entry(block) for block in blocks)


def _entry(block: Sequence[str]) -> Entry:
    pinned = tuple(line for line in block if not line.lstrip().startswith("#"))
    comments = [line.strip().lstrip("#").strip() for line in block[len(pinned) :]]
    askers = [comment.removeprefix("via").strip() for comment in comments]
    return Entry(_name_of(block[0]), pinned, frozenset(canonical(asker) for asker in askers if asker))


def _name_of(requirement: str) -> str:
    match = _NAME.match(requirement)
    if match is None:
        raise SubsetError(f"no package is named in {requirement!r}")
    return canonical(match[0])


def roots(project: Mapping[str, Any], wanted: Iterable[str]) -> set[str]:
    """The packages that pyproject.toml itself asks for. Raises SubsetError for an extra or group that is not there."""
    names = list(wanted)
    extras, groups = project["project"]["optional-dependencies"], project["dependency-groups"]
    asked: list[object] = [] if any(name.startswith(GROUP) for name in names) else [*project["project"]["dependencies"]]
    for name in names:
        table = groups if name.startswith(GROUP) else extras
        if name.removeprefix(GROUP) not in table:
            raise SubsetError(f"{name}: not in pyproject.toml; there are {', '.join([*extras, *map(_group, groups)])}")
        asked += table[name.removeprefix(GROUP)]
    included = [requirement for requirement in asked if not isinstance(requirement, str)]
    if included:
        raise SubsetError(f"{included[0]}: name the groups that a group includes one by one")
    return {_name_of(str(requirement)) for requirement in asked}


def _group(name: str) -> str:
    return GROUP + name


def subset(entries: Sequence[Entry], wanted: set[str]) -> tuple[Entry, ...]:
    """The entries of these packages and of all that they ask for. Raises SubsetError for one that is not locked."""
    missing = wanted - {entry.name for entry in entries}
    if missing:
        raise SubsetError(f"not in the lock: {', '.join(sorted(missing))}; run `make lock`")
    found = set(wanted)
    while True:
        more = {entry.name for entry in entries if entry.name not in found and entry.via & found}
        if not more:
            return tuple(entry for entry in entries if entry.name in found)
        found |= more


def main(argv: Sequence[str]) -> int:
    """Reads both files of the working directory; the exit code."""
    try:
        project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))
        entries = parse_lock(Path("requirements.lock").read_text(encoding="utf-8"))
        chosen = subset(entries, roots(project, argv))
    except (SubsetError, OSError) as error:
        sys.stderr.write(f"lock_subset: {error}\n")
        return 1
    sys.stdout.write("".join(f"{line}\n" for entry in chosen for line in entry.lines))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
