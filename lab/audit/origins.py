"""Where the stored models that a record has came from: of which run, from which other one, by which order."""

import hashlib
from collections import OrderedDict
from typing import Final

from lab.record.items import ModelCopy
from lab.record.models import Origin, origin_of

_MODELS: Final = 4096
"""Models whose origin is remembered: some hundred bytes each."""


class Origins:
    """Fed with the copies of models in a record; bounded."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Origin] = OrderedDict()

    def take(self, copy: ModelCopy) -> None:
        """One more. Whose bytes are not there, or are not those of its digest, tells nothing."""
        if copy.payload is None or hashlib.sha256(copy.payload).hexdigest() != copy.digest:
            return
        origin = origin_of(copy.payload)
        if origin is None:
            return
        self._known[copy.digest] = origin
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
