"""The decider of one node once more: the same mind, brought to where it was by stored models and recorded rewards.

It begins where it is known what the mind was: at a model that the decider stored and at the first decision after that.
What is lost between two cycles ends it, until the next such place: what a mind forgot to see cannot be made up for.
"""

from dataclasses import dataclass, field
from typing import Final

import msgspec

from lab.replay.compare import Difference, difference
from lab.replay.cycles import Part, Recorded
from lab.replay.lessons import Lessons
from lab.replay.library import Library, NotReplayable
from schemas.messages import Action, Verdict
from services.decider.config import DeciderConfig
from services.decider.core.mind import Heard, Mind, MindState
from services.decider.core.model import Model

_UNDER_WAY_NS: Final = 50_000_000
"""How long before an action a verdict may have been stored that the decider had not heard yet."""

_RUNS: Final = 256

FRESH_NS: Final = 60_000_000_000
"""Age of another run's model up to which its outlook is taken over at a start (services/decider/keeper.py)."""


@dataclass
class Checked:
    """What came of one cycle: `is_compared` says that the action was decided again."""

    is_compared: bool = False
    differences: list[Difference] = field(default_factory=list)


class DeciderReplay:
    """Fed with the cycles of one node in their order. Its counts: models that a mind of ours reached to the byte
    (`verified`), and those that it could not, for want of them or of rewards before them (`unverified`).
    """

    def __init__(self, library: Library) -> None:
        self.verified = 0
        self.unverified = 0
        self.lessons = Lessons()
        self._library = library
        self._mind: Mind | None = None
        self._lost = "the recording begins in the middle of a run; decisions are replayed from its next stored model on"
        self._is_seamless = False
        """Whether the last cycle was handed out whole, so that a change since then happened at this one."""
        self._is_sure = True
        """Whether the mind began where it is known that the decider's did."""
        self._lossy = False
        self._run = ""
        self._model = ""
        self._settings = ""
        self._runs: dict[str, None] = {}
        self._verdicts: list[Part[Verdict]] = []
        self._run_began_ns = 0

    @property
    def mind(self) -> Mind | None:
        """The mind that made the last decision, before any lesson that came after it; None where it is not known."""
        return self._mind

    def lose(self, why: str) -> None:
        """Something is missing that the mind has seen: what it knows is not known any more."""
        self._mind, self._lost, self._is_seamless = None, why, False

    def _lose_at(self, recorded: Recorded, what: str) -> None:
        """As `lose`, but at the ends of the recording: what is not known there has its reason already."""
        if recorded.edge is None:
            self.lose(f"decisions after {recorded} are replayed from the next stored model on: {what}")

    def note_loss(self) -> None:
        """Messages are missing, whichever: what does not fit from here on need not be a difference."""
        self._lossy = True

    def take(self, recorded: Recorded, *, is_whole: bool) -> Checked:
        """Decides a cycle again; `is_whole` says that nothing was stored before the recording. Raises NotReplayable."""
        checked = Checked()
        if recorded.reward is not None:
            self.lessons.add(recorded.reward)
        try:
            if recorded.action is not None:
                self._decide(recorded, recorded.action, checked, is_whole=is_whole)
            elif "action" in recorded.missing:
                self._lose_at(recorded, "its action is missing")
        finally:
            if recorded.verdict is not None:
                self._verdicts = [*self._verdicts[-3:], recorded.verdict]
        return checked

    def _decide(self, recorded: Recorded, part: Part[Action], checked: Checked, *, is_whole: bool) -> None:
        action = part.message
        if not recorded.follows and self._mind is not None:
            self.lose(
                f"decisions from {recorded} on are replayed from the next stored model on: some before it are lost"
            )
        try:
            if not action.run or action.seed is None or action.heard_mode is None:
                raise NotReplayable("recorded by a release that tells too little")
            if recorded.before is None:
                self._lose_at(recorded, "its state is missing")
                raise NotReplayable("the first state of its cycle is missing")
            self._come_to(recorded, part, checked, is_whole=is_whole)
        except NotReplayable as reason:
            if self._mind is not None:
                self.lose(str(reason))
            raise
        finally:
            if action.run != self._run:
                self._run_began_ns = part.stored_ns
            self._run, self._model = action.run, action.model
            self._is_seamless = recorded.before is not None
        assert self._mind is not None
        decided = self._mind.decide(recorded.before.message, self._heard(part))
        ours = msgspec.structs.replace(
            decided,
            at=action.at,
            decide_seconds=action.decide_seconds,
            run=action.run,
            model=action.model,
            settings=self._settings,
            event=action.event,
        )
        if not self._is_sure:
            self._is_sure = True
            if ours.context != action.context:
                self.lose(
                    "the recording begins in the middle of a run; decisions are replayed from its next stored model on"
                )
                raise NotReplayable(self._lost)
        checked.is_compared = True
        found = difference(part, ours)
        if found is not None:
            checked.differences.append(found)

    # ---- where the mind was ----

    def _come_to(self, recorded: Recorded, part: Part[Action], checked: Checked, *, is_whole: bool) -> None:
        """Brings the mind to where it was when it decided this."""
        action = part.message
        if action.run != self._run:
            self._begin_run(recorded, action, is_whole=is_whole)
        elif self._mind is None:
            if action.model == self._model or not (self._is_seamless and recorded.follows):
                raise NotReplayable(self._lost)
            self._begin(self._library.model(action.model), action)
        elif action.model != self._model:
            self._change_model(part, checked)
        assert self._mind is not None
        due = action.lessons - self._mind.lessons
        taught = self.lessons.take(due, part.sequence, action.last_lesson) if due > 0 else []
        for reward in taught:
            self._mind.learn(reward)
        if self._mind.lessons < action.lessons and self._lossy:
            raise NotReplayable("rewards that it learned from are not in the recording")

    def _begin_run(self, recorded: Recorded, action: Action, *, is_whole: bool) -> None:
        """A decider that started: its model was stored when it had taken up what the last one left. Where it could not
        be, the actions name what the last run stored, and its outlook was taken over only if that was fresh.
        """
        is_proven = (self._is_seamless and recorded.follows) or (not self._run and is_whole)
        if action.run in self._runs:
            raise NotReplayable(f"run {action.run} of the decider comes again after another one")
        self._runs[action.run] = None
        while len(self._runs) > _RUNS:
            del self._runs[next(iter(self._runs))]
        if self._run and not is_proven:
            raise NotReplayable("where a run of the decider began is not in the recording")
        model = self._library.model(action.model)
        is_own = model.run == action.run
        if not is_proven and is_own and model.why != "start":
            raise NotReplayable(self._lost)
        self._begin(model, action, outlook=is_own or action.at - model.made_at <= FRESH_NS)
        self._is_sure = is_proven and is_own

    def _begin(self, model: Model, action: Action, *, outlook: bool = True) -> None:
        """A new mind from a stored one."""
        shared, config = self._library.settings("decider", action.settings, DeciderConfig)
        assert action.seed is not None
        mind = Mind(config, shared, action.seed)
        left_out = mind.load(model.mind, outlook=outlook)
        if model.run != action.run:
            mind.mend()
        elif left_out:
            raise NotReplayable(
                "; ".join(f"model {action.model[:12]}: {name}: {why}" for name, why in left_out.items())
            )
        self._mind, self._settings = mind, action.settings
        self._is_sure = True
        self._lossy = False
        self.lessons.forget_place()

    def _change_model(self, part: Part[Action], checked: Checked) -> None:
        """The decider stored what it knew, or was told to go on from something else."""
        action, mind = part.message, self._mind
        assert mind is not None
        try:
            model = self._library.model(action.model)
        except NotReplayable:
            self.unverified += 1
            for reward in self.lessons.take_until(action.last_lesson, part.sequence):
                mind.learn(reward)
            mind.lessons = action.lessons  # counted from a model that nobody can look at
            return
        if model.run != action.run:
            self._obey(model, part)
            return
        if model.why == "order":
            self._begin(model, action)
            return
        for reward in self.lessons.take_until(model.mind.last_lesson, part.sequence):
            mind.learn(reward)
        ours, theirs = _encoder.encode(mind.save()), _encoder.encode(model.mind)
        if ours == theirs:
            self.verified += 1
            mind.began()
            return
        if self._lossy:
            self.unverified += 1
        else:
            checked.differences.append(_model_difference(action, model.mind, mind.save()))
        self._begin(model, action)

    def _obey(self, model: Model, part: Part[Action]) -> None:
        """It was told to go on from another run's model, and could not store that it does."""
        mind, action = self._mind, part.message
        assert mind is not None
        due = self.lessons.take_until(action.last_lesson, part.sequence)
        split = max(0, len(due) - action.lessons)
        for reward in due[:split]:
            mind.learn(reward)
        last = mind.last_lesson
        mind.load(model.mind)
        mind.mend()
        mind.last_lesson = last
        for reward in due[split:]:
            mind.learn(reward)

    # ---- what it had heard ----

    def _heard(self, part: Part[Action]) -> Heard:
        """What the action says that it knew of the guard, if that can be; else what it must have known."""
        action = part.message
        assert action.heard_mode is not None
        told = Heard(action.heard_mode, action.heard_changes_left)
        earlier = [verdict for verdict in self._verdicts if verdict.sequence < part.sequence]
        if self._lossy or not earlier or self._run_began_ns > earlier[-1].stored_ns - _UNDER_WAY_NS:
            return told
        newest = _heard_from(earlier[-1].message, action)
        if told == newest:
            return told
        is_under_way = earlier[-1].stored_ns > part.stored_ns - _UNDER_WAY_NS
        if is_under_way and (len(earlier) == 1 or told == _heard_from(earlier[-2].message, action)):
            return told
        return newest


def _heard_from(verdict: Verdict, action: Action) -> Heard:
    return Heard(verdict.mode, verdict.changes_left if verdict.boot == action.boot else None)


def _model_difference(action: Action, recorded: MindState, replayed: MindState) -> Difference:
    theirs, ours = msgspec.to_builtins(recorded), msgspec.to_builtins(replayed)
    fields = tuple(_unequal_parts(theirs, ours))
    told = [_encoder.encode({path: value for path, value, _ in fields}).decode()]
    told.append(_encoder.encode({path: value for path, _, value in fields}).decode())
    return Difference("model", action.node, action.boot, action.cycle, fields, *told)


def _unequal_parts(theirs: dict[str, object], ours: dict[str, object]) -> list[tuple[str, str, str]]:
    """The parts of two minds that differ, shortened: there are thousands of numbers in one."""
    found = []
    for key in dict.fromkeys((*theirs, *ours)):
        texts = [_encoder.encode(side.get(key)).decode() for side in (theirs, ours)]
        if texts[0] != texts[1]:
            at = next((i for i, (a, b) in enumerate(zip(*texts, strict=False)) if a != b), 0)
            shown = [f"…{text[max(0, at - 40) : at + 40]}…" for text in texts]
            found.append((f"mind.{key}", shown[0], shown[1]))
    return found


_encoder: Final = msgspec.json.Encoder()
