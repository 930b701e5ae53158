"""A scenario on the real kernel: played by the five services, whole rows, and every weight as it was."""

from pathlib import Path
from statistics import fmean

import pytest

from lab.arena import scenarios
from lab.arena.cgroup_backend import play

pytestmark = pytest.mark.kernel

_CYCLES = 18
_TICK_SECONDS = 1.5
_LOAD_RATIO = 0.5
"""Of the requests: system calls are dear in a guest, and the full load saturates a busy one without any batch."""


@pytest.mark.timeout(400)
async def test_a_steered_run_leaves_the_requests_behind_for_the_better_and_no_group(sandbox, tmp_path):
    root = sandbox.base
    sandbox.remove()  # the run opens one of its own under the same name; the fixture told that it can
    scenario = scenarios.named("mislabelled")
    row, curves = await play(scenario, "static:100:10:1", 1, _CYCLES, _TICK_SECONDS, tmp_path, _LOAD_RATIO)
    assert not list(Path(root).glob("trimtab-demo-*"))
    assert (row.scenario, row.queue, row.policy, row.cycles) == ("mislabelled", "bounded", "static:100:10:1", _CYCLES)
    for figures in (curves.scores, curves.p99_lc_ms, curves.batch_share, curves.arms, curves.outcomes):
        assert len(figures) == _CYCLES
    assert row.score == pytest.approx(sum(curves.scores) / _CYCLES, abs=1e-4)
    assert None not in {row.violation_lc, row.violation_default, row.p99_lc_ms, row.p99_lc_settled_ms}
    shares = (row.batch_share, row.batch_share_settled, row.services_share_settled, row.clients_share_settled)
    assert all(0.0 < share < 1.0 for share in (*shares, row.agent_share_settled))
    assert sum(shares[1:]) + row.agent_share_settled <= 1.05  # counters and the clock are not read as one
    assert row.batch_cpu_seconds > 0.0
    # The agent is told to steer once the load is there, and may move fourfold at a time.
    assert curves.arms[0] == "request-derived"
    assert set(curves.arms[-5:]) == {"given"}
    assert row.changes_per_minute > 0.0
    assert "applied" in curves.outcomes
    assert curves.scores[0] < -0.9
    assert fmean(curves.scores[-5:]) > curves.scores[0]
