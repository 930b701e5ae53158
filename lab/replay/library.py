"""What a replay looks up in a recording: settings by their fingerprint, and models by their digest."""

from collections import OrderedDict
from collections.abc import Iterable
from typing import Final, TypeVar

from lab.record.items import Header, ModelCopy, Settings
from lab.record.settings import find_settings
from schemas.settings import Section, Shared
from services.decider.core.model import Model, decode_model
from services.decider.core.snapshot import SnapshotMismatch

S = TypeVar("S", bound=Section)

_MODELS: Final = 256
"""Models whose bytes are kept: each is asked for once, soon after it came."""


class NotReplayable(Exception):
    """Why a message cannot be replayed, in words that are the same for all messages of that reason."""


class Library:
    """Filled from headers and model copies as they come. `extra` are settings that a person gave beside."""

    def __init__(self, extra: Iterable[Settings] = ()) -> None:
        self._settings: list[Settings] = list(extra)
        self._found: dict[tuple[str, str], tuple[Shared, Section]] = {}
        self._models: OrderedDict[str, ModelCopy] = OrderedDict()

    def add(self, item: Header | ModelCopy) -> None:
        """Takes in what a header or a model's copy tells."""
        if isinstance(item, Header):
            self._settings.extend(item.settings)
            return
        self._models[item.digest] = item
        while len(self._models) > _MODELS:
            self._models.popitem(last=False)

    def settings(self, service: str, fingerprint: str, kind: type[S]) -> tuple[Shared, S]:
        """The settings that a service's messages name. Raises NotReplayable where nobody has them, ConfigError where
        this release does not take them.
        """
        found = self._found.get((service, fingerprint))
        if found is None:
            if not fingerprint:
                raise NotReplayable("recorded by a release that tells too little")
            new = find_settings(self._settings, service, fingerprint, kind)
            if new is None:
                raise NotReplayable(f"settings {fingerprint} of the {service} unknown; give their file by --config")
            found = self._found[service, fingerprint] = new
        shared, section = found
        assert isinstance(section, kind)
        return shared, section

    def model(self, digest: str) -> Model:
        """The model that an action names. Raises NotReplayable."""
        if not digest:
            raise NotReplayable("the decider could store no model to begin from")
        copy = self._models.get(digest)
        if copy is None or copy.payload is None:
            why = f": {copy.reason}" if copy is not None and copy.reason else ""
            raise NotReplayable(f"model {digest[:12]} is not in the recording{why}")
        try:
            return decode_model(copy.payload, digest)
        except SnapshotMismatch as error:
            raise NotReplayable(f"model {digest[:12]}: {error}") from error
