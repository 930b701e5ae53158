"""Whether a model that a run began with, or that came of an order, follows from those that it says it comes of.

Made again as the decider makes it (services/decider/keeper.py, service.py): a mind is loaded from the model before,
learns the rewards that were learned then, does what was ordered, and must be what was stored, to the byte.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec

from lab.replay.compare import NOTHING, Difference
from lab.replay.library import Library, NotReplayable
from lab.replay.past import Past, Unproven
from schemas.messages import Action, Reward
from schemas.settings import Shared
from services.decider.config import DeciderConfig
from services.decider.core.mind import Mind, MindState
from services.decider.core.model import Model, encode_model

FRESH_NS: Final = 60_000_000_000
"""Age of another run's model up to which its outlook is taken over at a start (services/decider/keeper.py)."""

_SLOW_NS: Final = 30_000_000_000
"""How long after it took over a model a decider may store what it begins with."""

_MOST_STEPS: Final = 16
_LATE_LESSONS: Final = 3
"""Lessons that may have come while the model of an order was being stored."""

_MakeMind: TypeAlias = Callable[[], Mind]


class Live(NamedTuple):
    """The mind of the replay where an order came: the model that it began from, and what it had not learned yet."""

    mind: Mind
    digest: str
    due: Callable[[Model], list[Reward]]


class _Step(NamedTuple):
    """Minds as they may have been before what was ordered, and the lessons since. `is_sure`: nothing that they learned
    is known to be lost.
    """

    minds: Sequence[_MakeMind]
    due: list[Reward]
    is_sure: bool


class Origins:
    """Of one node. `past` is fed by whoever feeds the replay."""

    def __init__(self, library: Library, past: Past) -> None:
        self._library = library
        self._past = past

    def check(
        self, digest: str, action: Action, found: list[Difference], *, is_whole: bool, live: Live | None = None
    ) -> str | None:
        """Makes the model again, and those of the same run that it comes of, back to another run's model, of which it
        gives the digest, to a fresh mind, or to the `live` one. What differs is added to `found`. Raises Unproven where
        something for it is missing.
        """
        shared, config = self._library.settings("decider", action.settings, DeciderConfig)
        new: _MakeMind = lambda: Mind(config, shared, action.seed or 0)  # noqa: E731
        for _ in range(_MOST_STEPS):
            model = self._model(digest)
            _require(model, action, shared)
            base_digest = model.replaced if model.why == "order" else model.parent
            is_live = live is not None and base_digest == live.digest
            base = self._model(base_digest) if base_digest is not None and not is_live else None
            is_end = base is None or base.run != model.run
            if live is not None and is_live:
                step = _Step([lambda: _copy_of(live.mind, new)], live.due(model), is_sure=True)
            elif base is None or is_end:
                step = self._started(model, base, new, config.history, is_whole=is_whole)
            else:
                step = self._went_on(model, base, new)
            if model.why != "order" and base is not None and model.order != base.order:
                raise Unproven(f"model {digest[:12]} comes of an order whose own model is not stored")
            difference = self._compare(digest, model, step, action)
            if difference is not None:
                if not step.is_sure:
                    raise Unproven("rewards that it learned are not in the recording")
                found.append(difference)
            if is_end:
                return base_digest if base is not None else None
            assert base_digest is not None
            digest = base_digest
        raise Unproven(f"more than {_MOST_STEPS} models are behind it")

    def _model(self, digest: str) -> Model:
        try:
            return self._library.model(digest)
        except NotReplayable as reason:
            raise Unproven(f"the model it went on from is missing: {reason}") from reason

    # ---- what was before ----

    def _started(self, model: Model, base: Model | None, new: _MakeMind, history: int, *, is_whole: bool) -> _Step:
        """A new mind that took over another run's model, or none, and learned again what came after it."""
        last, made_at = (base.mind.last_lesson, base.made_at) if base is not None else (None, 0)
        parts = self._past.relearned(last, made_at, model.mind.last_lesson, history, is_whole=is_whole)

        def made(*, outlook: bool) -> Mind:
            mind = new()
            if base is not None:
                mind.load(base.mind, outlook=outlook)
                mind.mend()
            for part in parts:
                mind.learn(part.message)
            return mind

        age_ns = model.made_at - made_at
        is_fresh = 0 <= age_ns <= FRESH_NS
        outlooks = (False, True) if FRESH_NS < age_ns <= FRESH_NS + _SLOW_NS else (is_fresh,)
        minds = [lambda outlook=outlook: made(outlook=outlook) for outlook in outlooks]
        return _Step(minds, [], self._past.is_sound(parts))

    def _went_on(self, model: Model, base: Model, new: _MakeMind) -> _Step:
        """The mind of another model of the same run, and the lessons since."""
        parts = self._past.between(base.mind.last_lesson, model.mind.last_lesson, model.lessons)
        if model.why == "order" and base.mind.last_lesson is None and not model.lessons:
            parts = []  # its last lesson is that of the model that was ordered

        def made() -> Mind:
            mind = new()
            mind.load(base.mind, outlook=True)
            return mind

        return _Step([made], [part.message for part in parts], self._past.is_sound(parts))

    # ---- what was made of it ----

    def _compare(self, digest: str, model: Model, step: _Step, action: Action) -> Difference | None:
        """None where one of what it can have become is what was stored; else how the first of them differs."""
        first: MindState | None = None
        for make in step.minds:
            for ours in self._outcomes(make, model, step.due):
                if _encoder.encode(ours) == _encoder.encode(model.mind):
                    return None
                first = first or ours
        assert first is not None
        return model_difference(action, digest, model, first)

    def _outcomes(self, make: _MakeMind, model: Model, due: list[Reward]) -> Iterator[MindState]:
        """What a mind can have become: it is not told which lessons came before what was ordered."""
        if model.why != "order":
            yield _after(make(), due, len(due), lambda _: None)
            return
        if model.parent == model.replaced:
            for late in range(min(len(due), model.lessons, _LATE_LESSONS) + 1):
                yield _after(make(), due, len(due) - late, lambda mind: _put_in_charge(mind, model.mind.champion))
        if model.parent is not None:
            wanted = self._model(model.parent)
            yield _after(make(), due, max(0, len(due) - model.lessons), lambda mind: go_on_from(mind, wanted))


def _after(mind: Mind, due: list[Reward], split: int, change: Callable[[Mind], None]) -> MindState:
    """What a mind knows after some lessons, a change, and the others."""
    for reward in due[:split]:
        mind.learn(reward)
    change(mind)
    for reward in due[split:]:
        mind.learn(reward)
    return mind.save()


def _put_in_charge(mind: Mind, name: str) -> None:
    if name in mind.policies:
        mind.put_in_charge(name)


def go_on_from(mind: Mind, model: Model) -> None:
    """What an order to go on from a model does to a mind."""
    last = mind.last_lesson
    mind.load(model.mind)
    mind.mend()
    if last is not None:
        mind.last_lesson = last


def _copy_of(mind: Mind, new: _MakeMind) -> Mind:
    copy = new()
    copy.load(mind.save(), outlook=True)
    return copy


def _require(model: Model, action: Action, shared: Shared) -> None:
    if model.run != action.run or model.node != shared.node:
        raise Unproven("the model that it began with is not its own")


def model_difference(action: Action, digest: str, recorded: Model, ours: MindState) -> Difference:
    """In what a stored model is not what the replay makes of what was before; with the digests of both."""
    again, _ = encode_model(msgspec.structs.replace(recorded, mind=ours))
    leaves = list(_unequal(msgspec.to_builtins(recorded.mind), msgspec.to_builtins(ours), "mind"))
    fields = (("digest", _text(digest), _text(again)), *leaves)
    behind = {"why": recorded.why, "parent": recorded.parent, "replaced": recorded.replaced}
    told = [
        _text({"digest": name, **behind, "differs": {path: sides[side] for path, *sides in leaves}})
        for side, name in enumerate((digest, again))
    ]
    return Difference("model", action.node, action.boot, action.cycle, fields, *told)


def _unequal(theirs: object, ours: object, path: str) -> Iterator[tuple[str, str, str]]:
    """The parts of two minds that differ, shortened: there are thousands of numbers in one."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in dict.fromkeys((*theirs, *ours)):
            yield from _unequal(theirs.get(key, NOTHING), ours.get(key, NOTHING), f"{path}.{key}")
        return
    texts = _text(theirs), _text(ours)
    if texts[0] != texts[1]:
        pairs = enumerate(zip(*texts, strict=False))
        at = next((place for place, (one, other) in pairs if one != other), min(len(text) for text in texts))
        yield path, _shown(texts[0], at), _shown(texts[1], at)


def _shown(text: str, at: int) -> str:
    return text if len(text) <= _SHORT else f"…{text[max(0, at - 40) : at + 40]}…"


def _text(value: object) -> str:
    return NOTHING if value is NOTHING else _encoder.encode(value).decode()


_SHORT: Final = 80
_encoder: Final = msgspec.json.Encoder()
