"""Orders of a model, and which of them a decider's words are about: named only where one alone fits them.

An action tells what became of an order in the words of services/decider/core/words.py: who gave it, what it names, and
where it was obeyed its reason. Orders are obeyed as they were given, each once in a run of the decider, but for the
newest one, which a run that begins without it obeys again. So of orders with the same words the ones that are left are
those behind the last one that was told of.
"""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from schemas.messages import Command
from services.decider.core.words import LONGEST_EVENT, not_obeyed, obeyed

_ORDERS: Final = 256
_AND: Final = "; "

_OBEYED: Final = re.compile(re.escape(obeyed("WORD", "WHO")).replace("WORD", ".{1,64}?").replace("WHO", ".*?"))
_REFUSED: Final = re.compile(re.escape(not_obeyed("WORD", "WHO")).replace("WORD", ".{1,64}?").replace("WHO", ".*?"))

NOT_THERE: Final = "the record does not have that order"


class Place(NamedTuple):
    """Where in a record something is: counted in its order, and stored when. Of two streams one may be told a second
    late, so that what was stored before may stand behind.
    """

    number: int
    stored_ns: int

    def is_before(self, other: "Place") -> bool:
        """Whether it was there when the other was stored."""
        return self.number < other.number or self.stored_ns <= other.stored_ns


class Teller(NamedTuple):
    """An action as far as it tells of orders. `model` is the one that it names, `stored_for` the order that this model,
    if it is a new one, was stored for.
    """

    place: Place
    run: str
    model: str = ""
    stored_for: str | None = None


@dataclass
class _Given:
    """One order. `runs` are those of the decider that told of it."""

    place: Place
    command: Command
    runs: set[str] = field(default_factory=set)

    @property
    def id(self) -> str:
        """As the decider calls it."""
        return self.command.id or str(self.command.at)

    @property
    def obeyed(self) -> str:
        return obeyed(self.command.model, self.command.by) + self.command.reason

    @property
    def refused(self) -> str:
        return not_obeyed(self.command.model, self.command.by)


class Word(NamedTuple):
    """A part of what a decider told. `order` is the one that it is about; `doubt` why none is named, though it is about
    an order.
    """

    text: str
    order: Command | None = None
    doubt: str | None = None

    @property
    def is_own(self) -> bool:
        """Whether the decider itself says here that it is about an order, and whose."""
        return bool(_OBEYED.match(self.text) or _REFUSED.match(self.text))

    @property
    def is_about_one(self) -> bool:
        """Whether it is about an order at all."""
        return self.order is not None or self.doubt is not None


class ModelOrders:
    """The orders of a model that one node was given, in their order; bounded."""

    def __init__(self) -> None:
        self._given: list[_Given] = []

    def give(self, command: Command, place: Place) -> None:
        """One more order."""
        self._given = [*self._given, _Given(place, command)][-_ORDERS:]

    def words(self, event: str, teller: Teller) -> Sequence[Word]:
        """An action's event in its parts, each with its order."""
        parts = self._parts(event)
        left = self._left(teller)
        last = max((index for index, (text, _) in enumerate(parts) if _OBEYED.match(text)), default=None)
        words = [
            _word(text, [one for one in fitting if one in left], teller if index == last else None)
            for index, (text, fitting) in enumerate(parts)
        ]
        for word in words:
            self._use(word.order, teller.run)
        return words

    def with_id(self, order: str, teller: Teller) -> Word:
        """The order that a stored model names."""
        found = next((one.command for one in self._given if one.id == order), None)
        self._use(found, teller.run)
        return Word("", found, None if found is not None else f"by an order, {order}: {NOT_THERE}")

    def naming(self, wanted: Collection[str], teller: Teller) -> Word | None:
        """The order of one of these models or policies, if there is one that nothing was told of yet."""
        fitting = [one for one in self._left(teller) if not one.runs and one.command.model in wanted]
        if not fitting:
            return None
        word = _one_of("", fitting)
        self._use(word.order, teller.run)
        return word

    def _left(self, teller: Teller) -> list[_Given]:
        """Those that may be obeyed by then: behind the last one that was told of, which another run may obey again."""
        told = max((index for index, one in enumerate(self._given) if one.runs), default=-1)
        return [
            one
            for index, one in enumerate(self._given)
            if one.place.is_before(teller.place) and (index > told or (index == told and teller.run not in one.runs))
        ]

    def _use(self, order: Command | None, run: str) -> None:
        for one in self._given:
            if one.command is order:
                one.runs.add(run)

    # ---- the words ----

    def _parts(self, event: str) -> list[tuple[str, list[_Given]]]:
        parts = []
        at = 0
        while at < len(event):
            text, fitting = self._part(event[at:], is_cut=len(event) >= LONGEST_EVENT)
            parts.append((text, fitting))
            at += len(text) + len(_AND)
        return parts

    def _part(self, rest: str, *, is_cut: bool) -> tuple[str, list[_Given]]:
        """The part that begins here. A reason may hold any words: the longest that fits is the one, and behind a reason
        that the record does not have nothing is told apart.
        """
        if _OBEYED.match(rest):
            lengths = [_fits(rest, one, is_cut=is_cut) for one in self._given]
            longest = max(lengths, default=0)
            if not longest:
                return rest, []
            return rest[:longest], [one for one, fits in zip(self._given, lengths, strict=True) if fits == longest]
        ends = [
            found.start()
            for found in re.finditer(_AND, rest)
            if _OBEYED.match(rest, found.end()) or _REFUSED.match(rest, found.end())
        ]
        text = rest[: ends[0]] if ends else rest
        return text, [one for one in self._given if text.startswith(one.refused)]


def _fits(rest: str, one: _Given, *, is_cut: bool) -> int:
    """How many signs of the rest are this order's words; 0 where it tells of another one."""
    words = one.obeyed
    if rest == words or rest.startswith(words + _AND):
        return len(words)
    head = len(words) - len(one.command.reason)
    return len(rest) if is_cut and len(rest) >= head and words.startswith(rest) else 0


def _word(text: str, fitting: list[_Given], teller: Teller | None) -> Word:
    """Of several that fit the model says which; it also says where none of them can be it."""
    word = Word(text)
    if not word.is_own:
        return word
    if (
        teller is not None
        and teller.stored_for is not None
        and all(one.command.model != teller.model for one in fitting)
    ):
        fitting = [one for one in fitting if one.id == teller.stored_for]
    if len(fitting) > 1:
        fitting = [one for one in fitting if not one.runs]
    return _one_of(text, fitting)


def _one_of(text: str, fitting: list[_Given]) -> Word:
    if not fitting:
        return Word(text, None, NOT_THERE)
    if len(fitting) > 1:
        ids = " and ".join(one.id for one in fitting)
        return Word(text, None, f"which of the orders {ids} it was cannot be told: they fit equally")
    return Word(text, fitting[0].command)
