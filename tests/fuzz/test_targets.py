"""A few examples of every target. `make fuzz` runs as many as fit into its time."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.targets import TARGETS

EXAMPLES = {"whole": 40, "windows": 60, "long-pages": 40}
"""Of the slow ones. Making theirs smaller takes minutes: `make fuzz ARGS="--target whole"` does it, and stops in time."""


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_but_documented_errors_comes_out_of(name):
    target = TARGETS[name]
    phases = [Phase.reuse, Phase.generate] if name in EXAMPLES else [Phase.reuse, Phase.generate, Phase.shrink]

    @settings(max_examples=EXAMPLES.get(name, 150), phases=phases, suppress_health_check=list(HealthCheck))
    @given(drawn=target.inputs)
    def run(drawn):
        target(drawn)

    run()
