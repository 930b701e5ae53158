"""What an action tells of its decider: from which model and run on, who is in charge, and on whose order."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from lab.audit.events import ByCommand, Event, by_command, event_of
from lab.audit.orders import ModelOrders, Place, Teller, Word
from lab.audit.origins import Origins
from schemas.messages import Action


class _Last(NamedTuple):
    run: str
    model: str
    champion: str


class Models:
    """One node's decider, action by action. `orders` are those that it was given."""

    def __init__(self, origins: Origins) -> None:
        self.orders = ModelOrders()
        self._origins = origins
        self._last: _Last | None = None
        self._order: str | None = None
        self._learned = ("", 0)

    def take(self, action: Action, place: Place, stretch: int) -> Iterator[Event]:
        """The events of one more action. Where it tells of several orders, each has an event of its own."""
        now = _Last(action.run, action.model, action.champion or action.policy)
        last, self._last = self._last, now
        words = self._words(action, place, last)
        told = self._told(action, last, now)
        self._remember(action)
        abouts = [index for index, word in enumerate(words) if word.is_about_one]
        at = 0
        for index in abouts[:-1]:
            yield _event(action, [word.text for word in words[at : index + 1]], words[index], stretch)
            at = index + 1
        told += [word.text for word in words[at:] if word.text]
        if told:
            yield _event(action, told, words[abouts[-1]] if abouts else Word(""), stretch)

    def _told(self, action: Action, last: _Last | None, now: _Last) -> list[str]:
        """What is another than in the action before."""
        if last is None:
            return []
        model = now.model[:12] or "none stored"
        told = []
        if last.run != now.run:
            told.append(self._started(action, model))
        elif last.model != now.model:
            told.append(f"the decider goes on from model {model}")
        if last.champion != now.champion:
            told.append(f"policy {now.champion} is in charge instead of {last.champion}")
        return told

    def _started(self, action: Action, model: str) -> str:
        run, lessons = self._learned
        if not lessons or not self._origins.is_fresh(action.model, action.run):
            return f"the decider started anew (run {action.run}), from model {model}"
        knows = action.policy_updates
        came = f"model {model} comes of none before it, though run {run} had learned from {lessons} rewards"
        if knows >= lessons:
            return (
                f"the decider began anew and learned again (run {action.run}): {came}; of the stream's it knows {knows}"
            )
        return f"the decider began anew without what was learned (run {action.run}): {came}; it knows of {knows} now"

    # ---- on whose order ----

    def _words(self, action: Action, place: Place, last: _Last | None) -> Sequence[Word]:
        """The action's own words, each with its order; where they name none, the one that led to what has changed."""
        origin = self._origins.of(action.model)
        is_new = last is not None and last.model != action.model
        is_for_one = origin is not None and origin.why == "order" and origin.run == action.run
        stored_for = origin.order if origin is not None and is_new and is_for_one else None
        teller = Teller(place, action.run, action.model, stored_for)
        words = self.orders.words(action.event or "", teller)
        if last is None or any(word.is_about_one for word in words):
            return words
        untold = self._untold(action, last, teller)
        return words if untold is None else [*words, untold]

    def _untold(self, action: Action, last: _Last, teller: Teller) -> Word | None:
        """By the model that is named, which knows its order; else by the words that are new in the action."""
        origin = self._origins.of(action.model)
        if origin is not None:
            is_another = origin.order is not None and origin.order != self._order
            is_since = origin.why == "order" or self._origins.of(last.model) is not None
            return self.orders.with_id(origin.order or "", teller) if is_another and is_since else None
        if action.trial is not None and action.trial.event is not None:
            return None
        now = (action.model, action.champion or action.policy)
        return self.orders.naming({word for word in now if word and word not in last}, teller)

    def _remember(self, action: Action) -> None:
        origin = self._origins.of(action.model)
        if origin is not None:
            self._order = origin.order
        if action.policy_updates or action.run == self._learned[0]:
            self._learned = (action.run, action.policy_updates)


def _event(action: Action, told: list[str], word: Word, stretch: int) -> Event:
    """With the order where the decider's own words do not tell it, and with why none is named."""
    cause: ByCommand | None = None
    parts = [part for part in told if part]
    if word.order is not None:
        cause = by_command(word.order)
        if not word.is_own:
            parts.append(f"by order of {word.order.by}: {word.order.reason}")
    if word.doubt is not None:
        parts.append(word.doubt)
    return event_of("model", action, "; ".join(parts), stretch, cause=cause)
