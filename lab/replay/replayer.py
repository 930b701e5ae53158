"""A recording through the services' cores again: every action, verdict and reward, compared to the byte."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from lab.record.items import Entry, Header, ModelCopy, Settings
from lab.replay.compare import Difference, difference
from lab.replay.cycles import Cycles, Recorded, Told, Trouble
from lab.replay.decider import DeciderReplay, Links
from lab.replay.judged import reward_again, verdict_again
from lab.replay.library import Library, NotReplayable
from runtime.errors import TrimtabError
from services.decider.config import DeciderConfig

KINDS: Final = ("action", "verdict", "reward")

_MOST_TOLD: Final = 200


@dataclass
class Count:
    """Of one kind of message: how many were recorded, agree, differ, and why the rest could not be replayed."""

    recorded: int = 0
    agree: int = 0
    differ: int = 0
    not_replayed: Counter[str] = field(default_factory=Counter)
    cut_off: int = 0
    """Of cycles at the ends of the recording, which are not whole in it."""


@dataclass
class Report:
    """What a replay found so far. `incomplete` and `troubles` are the first of them in words; the counts are of all."""

    counts: dict[str, Count] = field(default_factory=lambda: {kind: Count() for kind in KINDS})
    cycles: int = 0
    edges: Counter[str] = field(default_factory=Counter)
    incomplete: list[str] = field(default_factory=list)
    incomplete_cycles: int = 0
    troubles: list[str] = field(default_factory=list)
    trouble_count: int = 0
    models_verified: int = 0
    models_differ: int = 0
    models_unverified: int = 0
    restarts: Links = field(default_factory=Links)
    orders: Links = field(default_factory=Links)

    @property
    def differ(self) -> int:
        """Messages and models that came out otherwise."""
        return self.models_differ + sum(count.differ for count in self.counts.values())

    @property
    def not_replayed(self) -> int:
        """Messages that could not be replayed, beside those at the ends."""
        return sum(count.not_replayed.total() for count in self.counts.values())

    @property
    def agrees(self) -> bool:
        """Whether there was something, all of it was there, was replayed, and came out the same."""
        something = any(count.agree for count in self.counts.values())
        return something and not (self.differ or self.not_replayed or self.incomplete_cycles or self.trouble_count)


class Replayer:
    """Fed with the entries of a recording in their order; hands out each difference as it finds it. `node`: this one
    only. `extra` are settings that the recording does not have.
    """

    def __init__(self, header: Header, *, node: str | None = None, extra: Iterable[Settings] = ()) -> None:
        self.report = Report()
        self._library = Library(extra)
        self._library.add(header)
        self._cycles = Cycles(header, node)
        self._deciders: dict[str, DeciderReplay] = {}
        self._is_lossy = False

    def take(self, entry: Entry) -> Iterator[Difference]:
        """The differences that one more entry shows. Raises ConfigError where recorded settings are not for this
        release.
        """
        for told in self._cycles.take(entry):
            yield from self._told(told)

    def end(self) -> Iterator[Difference]:
        """The differences in what is left when no more entries come."""
        for told in self._cycles.end():
            yield from self._told(told)

    def _told(self, told: Told) -> Iterator[Difference]:
        if isinstance(told, Recorded):
            yield from self._replay(told)
        elif isinstance(told, Trouble):
            self._note(told)
        elif isinstance(told, Header | ModelCopy):
            self._library.add(told)

    def _note(self, trouble: Trouble) -> None:
        report = self.report
        report.trouble_count += 1
        if len(report.troubles) < _MOST_TOLD:
            report.troubles.append(trouble.text)
        if not trouble.is_behind_all:
            self._lose()

    def _lose(self) -> None:
        self._is_lossy = True
        for decider in self._deciders.values():
            decider.note_loss()

    def _replay(self, recorded: Recorded) -> Iterator[Difference]:
        report = self.report
        report.cycles += 1
        decider = self._deciders.get(recorded.node)
        if decider is None:
            decider = self._deciders[recorded.node] = DeciderReplay(
                self._library, self.report.restarts, self.report.orders
            )
            if self._is_lossy:
                decider.note_loss()
        if recorded.edge is not None:
            report.edges[recorded.edge] += 1
        elif recorded.missing:
            report.incomplete_cycles += 1
            if len(report.incomplete) < _MOST_TOLD:
                report.incomplete.append(f"{recorded}: no {', no '.join(recorded.missing)}")
            decider.note_loss()
        yield from self._actions(recorded, decider)
        yield from self._count(recorded, "verdict", lambda: self._verdict(recorded))
        yield from self._count(recorded, "reward", lambda: self._reward(recorded))

    def _actions(self, recorded: Recorded, decider: DeciderReplay) -> Iterator[Difference]:
        """The mind sees every cycle, also those without an action."""
        before = decider.verified, decider.unverified

        def decide() -> list[Difference]:
            try:
                return decider.take(recorded, is_whole=self._cycles.is_whole).differences
            except NotReplayable:
                if recorded.action is not None:  # unknown settings are the reason, before any that follows from them
                    self._library.settings("decider", recorded.action.message.settings, DeciderConfig)
                raise

        if recorded.action is None:
            decide()
            return
        yield from self._count(recorded, "action", decide)
        self.report.models_verified += decider.verified - before[0]
        self.report.models_unverified += decider.unverified - before[1]

    def _verdict(self, recorded: Recorded) -> list[Difference]:
        assert recorded.verdict is not None
        found = difference(recorded.verdict, verdict_again(recorded, self._library))
        return [found] if found is not None else []

    def _reward(self, recorded: Recorded) -> list[Difference]:
        assert recorded.reward is not None
        found = difference(recorded.reward, reward_again(recorded, self._library))
        return [found] if found is not None else []

    def _count(self, recorded: Recorded, kind: str, again: Callable[[], list[Difference]]) -> Iterator[Difference]:
        if getattr(recorded, kind) is None:
            return
        count = self.report.counts[kind]
        count.recorded += 1
        try:
            found = again()
        except NotReplayable as reason:
            if recorded.edge is not None:
                count.cut_off += 1
            else:
                count.not_replayed[str(reason)] += 1
            return
        except TrimtabError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a core raises on what was recorded is what is to be told
            count.not_replayed[f"the replay failed with {type(error).__name__}: {error}"] += 1
            return
        if not found:
            count.agree += 1
            return
        models = [one for one in found if one.kind == "model"]
        self.report.models_differ += len(models)
        if len(models) < len(found):
            count.differ += 1
        else:
            count.agree += 1
        yield from found
