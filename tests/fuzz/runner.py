"""`make fuzz`: the targets in turn, batch after batch with new seeds, until the time is up."""

import argparse
import random
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.targets import TARGETS, Target

BATCH_EXAMPLES = 400
"""Most examples under one seed: enough for Hypothesis to get from small ones to large ones."""

TURN_SECONDS = 8.0
"""Longest turn of one target."""

SHRINK_SECONDS = 30.0
"""Longest search for a smaller input that fails as well."""

PROGRESS_SECONDS = 3.0

ROOT = str(Path(__file__).parents[2])


class _TurnIsOver(KeyboardInterrupt):
    """Hypothesis takes a KeyboardInterrupt for no failure and lets it through at once."""


@dataclass
class Failure:
    """The smallest input so far with which one line raised one kind of exception."""

    drawn: str
    report: str


@dataclass
class Score:
    """What came of one target."""

    examples: int = 0
    seconds: float = 0.0
    failures: dict[str, Failure] = field(default_factory=dict)

    def keep(self, drawn: str, error: BaseException) -> None:
        key = f"{type(error).__name__} in {_place(error)}"
        known = self.failures.get(key)
        if known is None or (len(drawn), drawn) < (len(known.drawn), known.drawn):
            report = "".join(traceback.format_exception(error, limit=-8))
            self.failures[key] = Failure(drawn, report)


@dataclass
class Fuzzing:
    """One run over `targets`, for `seconds`. A target that failed has no further turn."""

    targets: Mapping[str, Target]
    seconds: float
    seed: int
    scores: dict[str, Score] = field(default_factory=dict)
    _shown: float = 0.0

    def run(self) -> int:
        """0 without a failure, 1 with one, 130 where a person ended it before."""
        self.scores = {name: Score() for name in self.targets}
        _say(f"fuzzing {', '.join(self.targets)} for {self.seconds:g} s, seed {self.seed}")
        started = self._shown = time.monotonic()
        until, seed, ended = started + self.seconds, self.seed, 0
        try:
            while time.monotonic() < until and (left := [name for name in self.targets if not self._failed(name)]):
                turn = min(TURN_SECONDS, self.seconds / len(self.targets))
                for name in left:
                    seed += 1
                    self._turn(name, seed, started, min(until, time.monotonic() + turn), until)
        except KeyboardInterrupt:
            _say("interrupted")
            ended = 130
        self._show_table()
        return 1 if any(self._failed(name) for name in self.targets) else ended

    def _failed(self, name: str) -> bool:
        return bool(self.scores[name].failures)

    def _turn(self, name: str, seed: int, started: float, end: float, until: float) -> None:
        target, score, begun = self.targets[name], self.scores[name], time.monotonic()

        @hypothesis.seed(seed)
        @settings(
            max_examples=BATCH_EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(target.inputs)
        def batch(drawn: object) -> None:
            nonlocal end
            now = time.monotonic()
            if now >= end:
                raise _TurnIsOver
            if now >= self._shown + PROGRESS_SECONDS:
                self._shown = now
                total = sum(each.examples for each in self.scores.values())
                _say(f"{now - started:.0f} of {self.seconds:g} s: {name}, {score.examples} examples of {total} in all")
            score.examples += 1
            try:
                target(drawn)
            except Exception as error:
                if not score.failures:
                    end = min(until, now + SHRINK_SECONDS)
                score.keep(repr(drawn), error)
                raise

        try:
            batch()
        except _TurnIsOver:
            pass
        except Exception:
            if not score.failures:
                raise  # not the code that is tested: the target itself
        finally:
            score.seconds += time.monotonic() - begun
            for key, failure in score.failures.items():
                _print(
                    f"\nFAILED {name} (seed {seed}): {key}\n{failure.report}\nOnce more:\n{_again(name, failure.drawn)}\n"
                )

    def _show_table(self) -> None:
        _print(f"{'target':<14} {'examples':>9} {'seconds':>8}  failures")
        for name, score in self.scores.items():
            _print(f"{name:<14} {score.examples:>9} {score.seconds:>8.1f}  {len(score.failures)}")
        seconds, examples = (sum(getattr(each, of) for each in self.scores.values()) for of in ("seconds", "examples"))
        _print(
            f"{'in all':<14} {examples:>9} {seconds:>8.1f}  {sum(len(each.failures) for each in self.scores.values())}"
        )


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make fuzz ARGS=…", description=__doc__, allow_abbrev=False)
    parser.add_argument("--seconds", type=float, default=600.0, help="time to run for, in seconds (600)")
    parser.add_argument("--seed", type=int, help="begin with this seed (else a new one, which is shown)")
    parser.add_argument("--target", choices=TARGETS, action="append", help="run this one only; may be repeated")
    options = parser.parse_args(arguments)
    chosen = {name: target for name, target in TARGETS.items() if name in (options.target or TARGETS)}
    seed = options.seed if options.seed is not None else random.SystemRandom().randrange(10**9)
    return Fuzzing(chosen, options.seconds, seed).run()


def _place(error: BaseException) -> str:
    """The last line of the project's own in the traceback, the harness apart if it can be."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(ROOT)]
    own = [frame for frame in frames if "/tests/" not in frame.filename and "/.venv/" not in frame.filename]
    frame = (frames if isinstance(error, AssertionError) and not own else own or frames)[-1]
    return f"{frame.filename.removeprefix(ROOT)[1:]}:{frame.lineno}"


def _again(name: str, drawn: str) -> str:
    """What a person pastes into a shell to see it again."""
    return f".venv/bin/python - <<'END'\nfrom tests.fuzz.targets import check\ncheck({name!r}, {drawn})\nEND"


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
