"""How the writes of a cycle add up."""

import pytest

from schemas.messages import PodWrite
from services.actuator.core.outcome import number, outcome_of


def writes(*results):
    return [PodWrite(uid="u", group="g", result=result, reason=f"why {result}") for result in results]


@pytest.mark.parametrize(
    ("results", "outcome", "reason"),
    [
        (["applied", "failed", "skipped"], "applied", None),
        (["unchanged", "unchanged"], "held", None),
        (["unchanged", "skipped"], "held", None),
        (["unchanged", "failed"], "failed", "why unchanged"),
        (["mismatch"], "failed", "why mismatch"),
        (["skipped"], "failed", "why skipped"),
        ([], "skipped", "no pod of these classes can be written"),
    ],
)
def test_the_outcome_of_a_cycle(results, outcome, reason):
    assert outcome_of(writes(*results)) == (outcome, reason)


@pytest.mark.parametrize(("text", "value"), [("100\n", 100), ("", None), (None, None), ("max", None)])
def test_the_number_in_a_weight_file(text, value):
    assert number(text) == value
