"""The weight that one pod group should have."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Target:
    """The weight that one pod group should have."""

    uid: str
    name: str
    group: str
    weight: int
