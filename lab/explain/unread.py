"""A message of a record that cannot be read: where it is, whose it would be, and what is wrong with it."""

from typing import NamedTuple

from lab.record.items import Stored
from schemas.codec import DecodeError
from schemas.subjects import KINDS, ROOT, node_name


class Unread(NamedTuple):
    """Kind and node are those of the subject, since what the bytes say of themselves is not believed; empty where it is
    no subject of a node's loop.
    """

    stream: str
    sequence: int
    subject: str
    error: str
    stored_ns: int

    @property
    def kind(self) -> str:
        """What is told on its subject."""
        return self._words[0]

    @property
    def node(self) -> str:
        """The node whose subject it is."""
        return node_name(self._words[1])

    @property
    def place(self) -> str:
        """Where it is."""
        return f"{self.stream} {self.sequence}"

    def __str__(self) -> str:
        """In a line."""
        return f"{self.place} on {self.subject} cannot be read: {self.error}"

    @property
    def _words(self) -> tuple[str, str]:
        root, _, rest = self.subject.partition(f"{ROOT}.")
        kind, _, token = rest.partition(".")
        return (kind, token) if not root and kind in KINDS and token and "." not in token else ("", "")


def unread(item: Stored, error: DecodeError) -> Unread:
    """What is known of it."""
    return Unread(item.stream, item.sequence, item.subject, str(error), item.stored_ns)
