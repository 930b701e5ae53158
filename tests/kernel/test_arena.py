"""A scenario on the real kernel: played by the five services, whole rows, and every weight as it was."""

from pathlib import Path

import pytest

from lab.arena import scenarios
from lab.arena.cgroup_backend import play

pytestmark = pytest.mark.kernel


@pytest.mark.timeout(500)
async def test_a_steered_run_beats_the_requests_and_leaves_nothing_behind(sandbox, tmp_path):
    root = sandbox.base
    sandbox.remove()  # each run opens one of its own under the same name; the fixture told that it can
    scenario = scenarios.named("mislabelled")
    found = {}
    for policy in ("request-derived", "static:100:10:1"):
        folder = tmp_path / policy.replace(":", "-")
        row, curves = await play(scenario, policy, 1, 20, 2.0, folder)
        assert (row.scenario, row.queue, row.policy, row.seed, row.cycles) == ("mislabelled", "bounded", policy, 1, 20)
        for figures in (curves.scores, curves.p99_lc_ms, curves.batch_share, curves.arms, curves.outcomes):
            assert len(figures) == 20
        assert row.score == pytest.approx(sum(curves.scores) / 20, abs=1e-4)
        assert -1.5 <= row.score <= 0.3
        assert None not in {row.violation_lc, row.violation_default, row.p99_lc_ms, row.p99_default_ms}
        assert 0.0 < row.batch_share <= 1.0
        assert row.batch_cpu_seconds > 0.0
        assert not list(Path(root).glob("trimtab-demo-*"))
        found[policy] = row, curves
    held, steered = found["request-derived"], found["static:100:10:1"]
    assert held[0].changes_per_minute == 0.0
    assert set(held[1].arms) == {"request-derived"}
    assert held[0].violation_lc > 0.9
    assert steered[0].changes_per_minute > 0.0
    assert "applied" in steered[1].outcomes
    assert "given" in steered[1].arms
    assert steered[0].violation_lc < held[0].violation_lc
    assert steered[0].score > held[0].score
