"""Which service's container the doctor runs in, and which of its checks mean nothing there."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Final

from schemas.subjects import SERVICES

_MODULE: Final = "services."

NEEDED_BY: Final[Mapping[str, frozenset[str]]] = {
    "cgroup": frozenset({"collector", "actuator"}),
    "pods root": frozenset({"collector", "actuator"}),
    "writable": frozenset({"actuator"}),
}
"""The checks that stop a steering agent and yet say nothing in other services' containers, which have no such mount."""


def own_service(proc_root: str = "/proc") -> str | None:
    """The service that is process 1 of this process's own container; None on a machine, whose process 1 is another."""
    try:
        with open(f"{proc_root}/1/cmdline", "rb") as file:
            words = file.read(4096).decode(errors="replace").split("\0")
    except OSError:
        return None
    return service_of(words)


def service_of(words: Sequence[str]) -> str | None:
    """The service that a command line of the form `python -m services.guard …` runs."""
    for flag, module in pairwise(words):
        if flag == "-m":
            name = module.removeprefix(_MODULE)
            return name if module.startswith(_MODULE) and name in SERVICES else None
    return None


def is_needed(check: str, service: str | None) -> bool:
    """Whether a check means anything where this service runs; None is a machine of its own, where all of them do."""
    return service is None or check not in NEEDED_BY or service in NEEDED_BY[check]


def why_skipped(check: str, service: str) -> tuple[str, str]:
    """What is said instead of a check that cannot be made here, and where it can."""
    where = "actuator's" if check == "writable" else "actuator's or the collector's"
    found = f"the {service} only reads" if service == "collector" else f"the {service} has no part in the groups"
    return found, f"run `trimtab doctor` in the {where} container"
