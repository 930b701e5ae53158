"""The decider of one node once more: the same mind, brought to where it was by stored models and recorded rewards.

It begins where it is known what the mind was: at a model that the decider stored and at the first decision after that.
What is lost between two cycles ends it, until the next such place: what a mind forgot to see cannot be made up for.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import msgspec

from lab.replay.compare import Difference, difference
from lab.replay.cycles import Part, Recorded
from lab.replay.lessons import Lessons
from lab.replay.library import Library, NotReplayable
from lab.replay.origins import FRESH_NS, Live, Origins, go_on_from, model_difference
from lab.replay.past import Past, Unproven
from schemas.messages import Action, Reward, Verdict
from services.decider.config import DeciderConfig
from services.decider.core.mind import Heard, Mind
from services.decider.core.model import Model

_UNDER_WAY_NS: Final = 50_000_000
"""How long before an action a verdict may have been stored that the decider had not heard yet."""

_RUNS: Final = 256
_REACHED: Final = 1024
_MOST_REASONS: Final = 200


@dataclass
class Links:
    """Of the starts of runs, or of orders: how many follow from the models that they name, how many do not, and how
    many could not be checked, with the first of the reasons. `forgotten` tells of starts that follow from no model
    though there was something to go on from.
    """

    verified: int = 0
    differ: int = 0
    unverified: int = 0
    reasons: list[str] = field(default_factory=list)
    forgotten: list[str] = field(default_factory=list)

    def leave(self, reason: str) -> None:
        """Counts one that cannot be checked."""
        self.unverified += 1
        if len(self.reasons) < _MOST_REASONS:
            self.reasons.append(reason)


@dataclass
class Checked:
    """What came of one cycle: `is_compared` says that the action was decided again."""

    is_compared: bool = False
    differences: list[Difference] = field(default_factory=list)


class DeciderReplay:
    """Fed with the cycles of one node in their order. Its counts: models that a mind of ours reached to the byte
    (`verified`), and those that it could not, for want of them or of rewards before them (`unverified`). `restarts` and
    `orders` are counted into, if given.
    """

    def __init__(self, library: Library, restarts: Links | None = None, orders: Links | None = None) -> None:
        self.verified = 0
        self.unverified = 0
        self.restarts = restarts or Links()
        self.orders = orders or Links()
        self.lessons = Lessons()
        self._past = Past()
        self._origins = Origins(library, self._past)
        self._reached: dict[str, None] = {}
        self._order: str | None = None
        self._is_order_known = True
        self._decided_at = 0
        self._found: list[Difference] = []
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
        self._past.note_loss()

    def take(self, recorded: Recorded, *, is_whole: bool) -> Checked:
        """Decides a cycle again; `is_whole` says that nothing was stored before the recording. Raises NotReplayable."""
        checked = Checked()
        if recorded.reward is not None:
            self.lessons.add(recorded.reward)
            self._past.add(recorded.reward)
        try:
            if recorded.action is not None:
                self._decide(recorded, recorded.action, checked, is_whole=is_whole)
            elif "action" in recorded.missing:
                self._lose_at(recorded, "its action is missing")
        finally:
            if recorded.verdict is not None:
                self._verdicts = [*self._verdicts[-3:], recorded.verdict]
        if recorded.action is not None:
            checked.differences[:0] = self._found
            self._found = []
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
            self._decided_at = action.at
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
            self._begin_run(recorded, part, is_whole=is_whole)
        elif self._mind is None:
            if action.model == self._model or not (self._is_seamless and recorded.follows):
                raise NotReplayable(self._lost)
            self._begin(self._library.model(action.model), action)
        elif action.model != self._model:
            self._change_model(recorded, part, checked)
        assert self._mind is not None
        due = action.lessons - self._mind.lessons
        taught = self.lessons.take(due, part.sequence, action.last_lesson) if due > 0 else []
        for reward in taught:
            self._mind.learn(reward)
        if self._mind.lessons < action.lessons and self._lossy:
            raise NotReplayable("rewards that it learned from are not in the recording")

    def _begin_run(self, recorded: Recorded, part: Part[Action], *, is_whole: bool) -> None:
        """A decider that started: its model was stored when it had taken up what the last one left. Where it could not
        be, the actions name what the last run stored, and its outlook was taken over only if that was fresh.
        """
        action = part.message
        is_first = not self._run
        is_proven = (self._is_seamless and recorded.follows) or (is_first and is_whole)
        if action.run in self._runs:
            raise NotReplayable(f"run {action.run} of the decider comes again after another one")
        self._runs[action.run] = None
        while len(self._runs) > _RUNS:
            del self._runs[next(iter(self._runs))]
        try:
            if not is_first and not is_proven:
                raise NotReplayable("where a run of the decider began is not in the recording")
            model = self._library.model(action.model)
        except NotReplayable as reason:
            if not is_first or is_proven:
                self.restarts.leave(f"{recorded}: {reason}")
            raise
        is_own = model.run == action.run
        if not is_proven and is_own and model.why not in ("start", "order"):
            raise NotReplayable(self._lost)
        with self._linked(self.restarts, str(recorded), must_be=is_proven):
            base = self._check_start(part, is_own=is_own, is_whole=is_whole)
            if base is None:
                self._note_forgotten(model, recorded)
        self._begin(model, action, outlook=is_own or action.at - model.made_at <= FRESH_NS)
        self._is_sure = is_proven and is_own

    def _check_start(self, part: Part[Action], *, is_own: bool, is_whole: bool) -> str | None:
        """Whether what a run began with follows from the model that it went on from, and that one from what the run
        before it had become. Where its own could not be stored, the first of it is what the replay does itself. The
        digest of the model that it went on from, None where it began afresh.
        """
        action = part.message
        base: str | None = action.model
        if is_own:
            base = self._origins.check(action.model, action, self._found, is_whole=is_whole)
        if self._run and base is not None and base not in self._reached:
            self._check_end(base, part)
        return base

    def _note_forgotten(self, model: Model, recorded: Recorded) -> None:
        """A fresh start is right where there is nothing to go on from, and else a loss."""
        if self._mind is None or len(self.restarts.forgotten) >= _MOST_REASONS:
            return
        for name, policy in self._mind.policies.items():
            left = model.mind.policies[name].updates if name in model.mind.policies else 0
            if left < policy.updates:
                self.restarts.forgotten.append(
                    f"{recorded}: the decider went on from no model, and of {policy.updates} lessons of {name} {left} "
                    f"are left"
                )

    def _check_end(self, digest: str, part: Part[Action]) -> None:
        """Whether the model that a run left is what its mind had become."""
        model, mind = self._library.model(digest), self._mind
        if model.run != self._run:
            raise Unproven(f"model {digest[:12]}, which it went on from, is of a run that decided nothing here")
        if mind is None:
            raise Unproven("what the run before it knew in the end is not known")
        if not self._is_of_last_order(model) or model.made_at < self._decided_at:
            raise Unproven(f"model {digest[:12]}, which it went on from, is of a moment that no action tells of")
        for reward in self._since(model, mind, part):
            mind.learn(reward)
        if _encoder.encode(mind.save()) == _encoder.encode(model.mind):
            self._reach(digest, model)
        elif self._lossy or not (model.mind.last_lesson is None or self._past.knows(model.mind.last_lesson)):
            raise Unproven("what the run before it had seen or learned is not all in the recording")
        else:
            self._found.append(model_difference(part.message, digest, model, mind.save()))

    @contextmanager
    def _linked(self, links: Links, where: str, *, must_be: bool = True) -> Iterator[None]:
        """Counts what comes of a check. Unless it `must_be`, what cannot be checked is none: it may have been before
        the recording.
        """
        before = len(self._found)
        try:
            yield
        except (Unproven, NotReplayable) as reason:
            if must_be and len(self._found) == before:
                links.leave(f"{where}: {reason}")
        else:
            links.verified += len(self._found) == before
        links.differ += len(self._found) > before

    def _since(self, model: Model, mind: Mind, part: Part[Action]) -> list[Reward]:
        """What the mind has not learned yet of what a model knows that comes of it."""
        return self.lessons.take_until(model.mind.last_lesson, part.sequence, model.lessons - mind.lessons)

    def _is_of_last_order(self, model: Model) -> bool:
        """Whether no order came between the last model and this one, as far as it is known."""
        return not self._is_order_known or model.order == self._order

    def _reach(self, digest: str, model: Model) -> None:
        self._order, self._is_order_known = model.order, True
        self._reached[digest] = None
        while len(self._reached) > _REACHED:
            del self._reached[next(iter(self._reached))]

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
        self._reach(action.model, model)
        self._is_sure = True
        self._lossy = False
        self.lessons.forget_place()

    def _change_model(self, recorded: Recorded, part: Part[Action], checked: Checked) -> None:
        """The decider stored what it knew, or was told to go on from something else."""
        action, mind = part.message, self._mind
        assert mind is not None
        try:
            model = self._library.model(action.model)
        except NotReplayable:  # it may be of an order: what the mind became then is not known
            self.unverified += 1
            raise
        if model.run != action.run or action.model in self._reached:
            self._obey(model, part)
            self._reach(action.model, model)
            self._is_order_known = False
            return
        if model.why == "order":
            live = Live(mind, self._model, lambda first: self._since(first, mind, part))
            with self._linked(self.orders, str(recorded)):
                found: list[Difference] = []
                self._origins.check(action.model, action, found, is_whole=False, live=live)
                if found and self._lossy:
                    raise Unproven("what the decider had seen or learned before is not all in the recording")
                self._found += found
            self._begin(model, action)
            return
        if not self._is_of_last_order(model):
            self.unverified += 1
            self.orders.leave(f"{recorded}: the model that it went on from is not in the recording")
            self._begin(model, action)
            return
        for reward in self._since(model, mind, part):
            mind.learn(reward)
        if _encoder.encode(mind.save()) == _encoder.encode(model.mind):
            self.verified += 1
            mind.began()
            self._reach(action.model, model)
            return
        if self._lossy:
            self.unverified += 1
        else:
            checked.differences.append(model_difference(action, action.model, model, mind.save()))
        self._begin(model, action)

    def _obey(self, model: Model, part: Part[Action]) -> None:
        """It was told to go on from another run's model, and could not store that it does."""
        mind, action = self._mind, part.message
        assert mind is not None
        due = self.lessons.take_until(action.last_lesson, part.sequence, action.lessons)
        split = max(0, len(due) - action.lessons)
        for reward in due[:split]:
            mind.learn(reward)
        go_on_from(mind, model)
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


_encoder: Final = msgspec.json.Encoder()
