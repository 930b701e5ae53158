"""What a row and a bench are: a fault with its expected end state, and faults that share a rig."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.stand import Case, Stand


def _no_reason() -> str:
    return ""


def _no_reason_for(cgroup: bool) -> str:
    return ""


async def nothing(stand: Stand) -> None:
    """For a rig as it comes."""


def no_flags(run_dir: Path) -> tuple[str, ...]:
    """For a rig as it comes."""
    return ()


def simulated_only(cgroup: bool) -> str:
    """For rows that put other files in the kernel's place."""
    return "needs the simulated node's files" if cgroup else ""


@dataclass(frozen=True)
class Fault:
    """One row. `run` strikes, waits for the safe state, and heals. `ends` is `whole` where the loop must be whole and
    write after that, `held` where a whole cycle that writes nothing will do. `cost` is about how many seconds it takes.
    """

    name: str
    expected: str
    run: Callable[[Stand, Case], Awaitable[None]]
    ends: str = "whole"
    cost: float = 7.0
    why_not: Callable[[], str] = _no_reason


@dataclass(frozen=True)
class Bench:
    """Rows on one rig. `prepare` runs before it starts; `flags` are settings for all services."""

    name: str
    family: str
    faults: tuple[Fault, ...]
    prepare: Callable[[Stand], Awaitable[None]] = nothing
    flags: Callable[[Path], tuple[str, ...]] = no_flags
    why_not: Callable[[bool], str] = _no_reason_for
    credentials: bool = False
    """Whether the server knows its users, each with least permissions."""
