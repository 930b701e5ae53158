"""Owns how the order of a decision is told: its questions, and what was answered up to the one that decided."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from services.decider.core.explanation import Answer
from services.decider.core.order import IN_NEED_RATIO, MARGIN, Question, Ruling

_ASKS: Final[Mapping[Question, str]] = {
    "rescue": "is a class to be rescued, and does an arm give it more?",
    "hold": "did weights move in the last cycle?",
    "need": f"does a class that weights can help miss its objective for over {IN_NEED_RATIO:.0%} of its requests?",
    "content": "are all objectives kept, and is nobody there who could use more?",
    "pause": "is nothing to be tried, since something did harm?",
    "caution": "which arms may be tried, as bad as they may be?",
}
_TAKES: Final[Mapping[Question, str]] = {
    "rescue": "yes: the arm that gives it more is taken",
    "hold": "yes: what is seen is still the work of the weights before, so the same once more",
    "need": "yes: the best-scored arm is taken, of those that starve nobody",
    "content": "yes: there is nothing to win by moving",
    "pause": "yes: what is in force stays",
}


def answers(ruling: Ruling, *, pause_lessons: float, budget: float, burnt: Sequence[str]) -> tuple[Answer, ...]:
    """The order of a decision (see `order`) as it was asked: every question up to the one that decided."""
    found = []
    for question, asks in _ASKS.items():
        decides = question == ruling.question
        answer = _TAKES.get(question, "") if decides else "no"
        if question == "pause" and decides:
            answer += f", for {pause_lessons:g} more rewards"
        elif question == "caution":
            tried = len(ruling.among or ())
            answer = (
                f"{tried} {'arm' if tried == 1 else 'arms'}, by what may be lost now ({budget:+.3f}); another than the "
                f"best known one leads only if it is better by {MARGIN:g}"
            )
        found.append(Answer(question=question, asks=asks, answer=answer, decides=decides))
        if decides:
            break
    if burnt and found:
        last = found[-1]
        found[-1] = msgspec.structs.replace(last, answer=f"{last.answer}; burnt: {', '.join(burnt)}")
    return tuple(found)
