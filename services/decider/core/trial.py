"""Owns the trial of a challenger against the policy in charge: who decides a cycle, and what the rewards say of it.

By switchback: pairs of blocks of cycles, one block for each policy, in an order that is drawn for each pair; the first
cycles of a block do not count, since what was done before them still acts. What is compared is the difference of the
two blocks' mean rewards, pair by pair. One looks after every pair, so the interval must hold at all of them together:
an asymptotic confidence sequence (Waudby-Smith, Arbour, Sinha, Kennedy, Ramdas: Time-uniform central limit theory and
asymptotic confidence sequences, Annals of Statistics 52, 2024; theorem 2.2 and the choice of rho after it).

When all of the interval is above 0 the challenger is promoted and watched: it decides, but in one pair of four the old
one gets its block again, and a new interval begins. All of that below 0: the old one is back. Above 0: it stays, for
good. In the trial itself, below 0 ends it.

By node: a share of the nodes, drawn by name, is the challenger's; they are compared with the others from outside.
"""

import hashlib
import math
import random
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from schemas.messages import Trial

if TYPE_CHECKING:
    from services.decider.config import TrialSettings

WATCHED_EACH: Final = 4
"""Pairs of which one compares while the challenger is watched: an eighth of the cycles is the old policy's."""

_LATE_CYCLES: Final = 2
"""Cycle of the next pair in which a pair is closed: rewards follow a few seconds after their cycle, not a cycle."""

_LEAST_RATIO: Final = 0.25
"""Part of the cycles that count of which a block must have rewards; a pair with fewer in one is passed over."""

_DESIGN_PAIRS: Final = 4
"""Multiple of `min_pairs` for which the interval is narrowest: at the first look it is too early to hope for much."""


class ContestState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that a contest remembers. `settings` is the fingerprint of its settings. `decided` holds, by boot and cycle,
    the pair and the policy of the cycles whose rewards count and may still come; `sums` the rewards of the pairs that
    are not closed: pair, policy, sum, count. `mean` and `spread` are those of the differences (spread: squared
    deviations, summed).
    """

    settings: str
    incumbent: str
    challenger: str
    phase: str
    block: int
    cycle: int
    begins: str
    compares: bool
    watched: int
    watched_since: int
    decided: dict[str, tuple[int, str]]
    sums: list[tuple[int, str, float, int]]
    pairs: int
    mean: float
    spread: float
    is_better: bool
    event: str | None


class Turn(NamedTuple):
    """Who decides a cycle, and what is told of the trial; None when there is nothing to tell any more."""

    in_charge: str
    told: Trial | None


def interval(
    pairs: int, mean: float, spread: float, confidence: float, design_pairs: int
) -> tuple[float, float] | None:
    """Where the mean difference lies, however often one looks; None for fewer than two pairs.

    `spread` is the sum of squared deviations from the mean. Narrowest at `design_pairs`.
    """
    if pairs < 2:  # noqa: PLR2004 - one has no spread
        return None
    alpha = 1.0 - confidence
    rho2 = (-2.0 * math.log(alpha) + math.log(1.0 - 2.0 * math.log(alpha))) / design_pairs
    scaled = pairs * rho2 + 1.0
    deviation = math.sqrt(spread / (pairs - 1))
    width = deviation * math.sqrt(2.0 * scaled / (pairs**2 * rho2) * math.log(math.sqrt(scaled) / alpha))
    return mean - width, mean + width


def is_chosen(node: str, challenger: str, share: float) -> bool:
    """Whether a node is among the share that is the challenger's; the same in every process."""
    drawn = int.from_bytes(hashlib.sha256(f"{challenger}/{node}".encode()).digest()[:8])
    return drawn / 2.0**64 < share


class Contest:
    """One trial. `turn` for every decision, `reward` for every lesson, in their order; nothing else changes it."""

    def __init__(self, settings: "TrialSettings", incumbent: str) -> None:
        assert settings.challenger is not None
        self.settings = settings
        self.incumbent = incumbent
        self.challenger = settings.challenger
        self.phase = "over" if self.challenger == incumbent else "trial"
        self._block = -1
        self._cycle = 0
        self._begins = incumbent
        self._compares = True
        self._watched = 0
        self._watched_since = 0
        self._decided: dict[str, tuple[int, str]] = {}
        self._sums: dict[tuple[int, str], tuple[float, int]] = {}
        self._pairs = 0
        self._mean = 0.0
        self._spread = 0.0
        self._event: str | None = None
        self._is_better = False

    @property
    def champion(self) -> str:
        """Who is in charge but for the other's blocks."""
        return self.challenger if self.phase == "watch" else self.incumbent

    def turn(self, node: str, boot: str, cycle: int, seed: int) -> Turn:
        """The next cycle."""
        if self.phase == "over":
            return Turn(self.incumbent, self._told(self.incumbent) if self._event is not None else None)
        if self.settings.by == "node":
            in_charge = self.challenger if is_chosen(node, self.challenger, self.settings.share) else self.incumbent
            return Turn(in_charge, self._told(in_charge))
        self._advance(boot, seed)
        if self._block % 2 == 0 and self._cycle == min(_LATE_CYCLES, self.settings.block_cycles):
            self._close_before(self._block // 2)
        in_charge = self._in_charge()
        if self.phase != "over" and self._compares and self._cycle > self.settings.washout_cycles:
            self._decided[f"{boot}/{cycle}"] = (self._block // 2, in_charge)
        return Turn(in_charge, self._told(in_charge))

    def reward(self, key: str, value: float) -> None:
        """What the cycle of this boot and number was worth; counted if it counts, once, and if it is a reward."""
        decided = self._decided.pop(key, None)
        if decided is not None and -1.0 <= value <= 1.0:
            total, count = self._sums.get(decided, (0.0, 0))
            self._sums[decided] = (total + value, count + 1)

    def out(self, name: str, why: str) -> None:
        """One of the two cannot decide or learn: the other one has won."""
        if self.phase != "over" and name in (self.challenger, self.incumbent):
            other = self.incumbent if name == self.challenger else self.challenger
            self._end(other, f"{name} is out, {other} is in charge: {why}")

    def put_in_charge(self, name: str) -> None:
        """Somebody has decided: the trial is over. That is told where it was ordered."""
        self._end(name, None)

    def save(self) -> ContestState:
        """All of it."""
        return ContestState(
            settings=fingerprint_of(self.settings),
            incumbent=self.incumbent,
            challenger=self.challenger,
            phase=self.phase,
            block=self._block,
            cycle=self._cycle,
            begins=self._begins,
            compares=self._compares,
            watched=self._watched,
            watched_since=self._watched_since,
            decided=dict(self._decided),
            sums=[(pair, name, total, count) for (pair, name), (total, count) in self._sums.items()],
            pairs=self._pairs,
            mean=self._mean,
            spread=self._spread,
            is_better=self._is_better,
            event=self._event,
        )

    def load(self, state: ContestState) -> bool:
        """Goes on from there; False for a trial with other settings, and then nothing has changed."""
        if state.settings != fingerprint_of(self.settings):
            return False
        self.incumbent, self.challenger, self.phase = state.incumbent, state.challenger, state.phase
        self._block, self._cycle, self._begins = state.block, state.cycle, state.begins
        self._compares, self._watched, self._watched_since = state.compares, state.watched, state.watched_since
        self._decided = dict(state.decided)
        self._sums = {(pair, name): (total, count) for pair, name, total, count in state.sums}
        self._pairs, self._mean, self._spread = state.pairs, state.mean, state.spread
        self._is_better, self._event = state.is_better, state.event
        return True

    # ---- whose turn ----

    def _advance(self, boot: str, seed: int) -> None:
        self._cycle += 1
        if self._block >= 0 and self._cycle <= self.settings.block_cycles:
            return
        self._block, self._cycle = self._block + 1, 1
        if self._block % 2:
            return
        pair = self._block // 2
        rng = random.Random(f"{seed}/{boot}/{pair}")  # noqa: S311 - draws an order, not secrets
        self._begins = rng.choice((self.incumbent, self.challenger))
        if self.phase == "watch":
            place = (pair - self._watched_since) % WATCHED_EACH
            if place == 0:
                self._watched = rng.randrange(WATCHED_EACH)
            self._compares = place == self._watched

    def _in_charge(self) -> str:
        if self.phase == "over" or not self._compares:
            return self.champion
        second = self.challenger if self._begins == self.incumbent else self.incumbent
        return second if self._block % 2 else self._begins

    # ---- what the rewards say ----

    def _close_before(self, pair: int) -> None:
        """Compares the pairs that are over. What comes of their cycles from here on is too late."""
        least = max(1.0, _LEAST_RATIO * (self.settings.block_cycles - self.settings.washout_cycles))
        for closed in sorted({found for found, _ in self._sums if found < pair}):
            ours = self._sums.pop((closed, self.challenger), (0.0, 0))
            theirs = self._sums.pop((closed, self.incumbent), (0.0, 0))
            if min(ours[1], theirs[1]) >= least:
                self._add(ours[0] / ours[1] - theirs[0] / theirs[1])
        self._decided = {key: found for key, found in self._decided.items() if found[0] >= pair}
        self._judge()

    def _add(self, difference: float) -> None:
        """One more difference (Welford's update of mean and squares)."""
        self._pairs += 1
        step = difference - self._mean
        self._mean += step / self._pairs
        self._spread += step * (difference - self._mean)

    def _bounds(self) -> tuple[float, float] | None:
        design = _DESIGN_PAIRS * self.settings.min_pairs
        return interval(self._pairs, self._mean, self._spread, self.settings.confidence, design)

    def _judge(self) -> None:
        bounds = self._bounds() if self._pairs >= self.settings.min_pairs else None
        if bounds is None:
            return
        low, high = bounds
        numbers = f"{self._mean:+.4f} a cycle, {low:+.4f} to {high:+.4f} after {self._pairs} pairs"
        if high < 0.0:
            word = "demoted" if self.phase == "watch" else "the trial ends"
            self._end(self.incumbent, f"{word}: {self.challenger} is worse than {self.incumbent} by {numbers}")
        elif low > 0.0 and self.phase == "watch":
            self._end(self.challenger, f"confirmed: {self.challenger} is better than {self.incumbent} by {numbers}")
        elif low > 0.0 and self.settings.promote:
            self._event = f"promoted: {self.challenger} is better than {self.incumbent} by {numbers}"
            self.phase, self._compares = "watch", False
            self._watched_since = self._block // 2 + 1
            self._pairs, self._mean, self._spread = 0, 0.0, 0.0
            self._decided.clear()
            self._sums.clear()
        elif low > 0.0 and not self._is_better:
            self._is_better = True
            self._event = f"better: {self.challenger} than {self.incumbent} by {numbers}; it is promoted by order only"

    def _end(self, winner: str, event: str | None) -> None:
        self.phase, self.incumbent, self._event = "over", winner, event
        self._decided.clear()
        self._sums.clear()

    def _told(self, in_charge: str) -> Trial:
        bounds = self._bounds()
        event, self._event = self._event, None
        return Trial(
            challenger=self.challenger,
            phase=self.phase,
            block=max(self._block, 0),
            in_charge=in_charge,
            pairs=self._pairs,
            difference=self._mean if self._pairs else None,
            low=bounds[0] if bounds is not None else None,
            high=bounds[1] if bounds is not None else None,
            event=event,
            incumbent=self.incumbent,
        )


def fingerprint_of(settings: "TrialSettings") -> str:
    """Of the settings that a trial goes on with."""
    return hashlib.sha256(msgspec.json.encode(settings, order="deterministic")).hexdigest()[:12]
