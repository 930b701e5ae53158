"""Where the stored models that a record has came from: of which run, from which other one, by which order."""

import hashlib
from collections import OrderedDict
from typing import Final

import msgspec

from lab.record.items import ModelCopy

_MODELS: Final = 4096
"""Models whose origin is remembered: some hundred bytes each."""


class Origin(msgspec.Struct, frozen=True):
    """What of a stored model says where it came from (services/decider/core/model.py)."""

    run: str = ""
    why: str = ""
    parent: str | None = None
    order: str | None = None


_decoder: Final = msgspec.json.Decoder(Origin)


class Origins:
    """Fed with the copies of models in a record; bounded."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Origin] = OrderedDict()

    def take(self, copy: ModelCopy) -> None:
        """One more. Whose bytes are not there, or are not those of its digest, tells nothing."""
        if copy.payload is None or hashlib.sha256(copy.payload).hexdigest() != copy.digest:
            return
        try:
            self._known[copy.digest] = _decoder.decode(copy.payload)
        except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
            return
        while len(self._known) > _MODELS:
            self._known.popitem(last=False)

    def of(self, digest: str) -> Origin | None:
        """None where the record does not say."""
        return self._known.get(digest)

    def is_fresh(self, digest: str, run: str) -> bool:
        """Whether a run that names this model began with none before it. Not where that cannot be seen.

        Without a digest it had neither one to go on from nor a place to store its own.
        """
        if not digest:
            return True
        seen: set[str] = set()
        while (origin := self._known.get(digest)) is not None and origin.run == run and digest not in seen:
            if origin.parent is None:
                return True
            seen.add(digest)
            digest = origin.parent
        return False
