"""What the journal records. The ledger is the sum of its records: live and after a crash they mean the same."""

from typing import TypeAlias

import msgspec


class Original(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="original"):
    """A group is about to be written for the first time: `value` is what it held. `identity` is its inode."""

    group: str
    identity: int
    value: str
    name: str = ""


class Intend(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="intend"):
    """A group is about to be written: from now on it may hold any of `values` by our hand, and no other."""

    group: str
    values: tuple[str, ...]


class Rebase(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="rebase"):
    """Somebody else wrote `value` to the group: it is the original now, and nothing of ours is there."""

    group: str
    value: str


Record: TypeAlias = Original | Intend | Rebase
