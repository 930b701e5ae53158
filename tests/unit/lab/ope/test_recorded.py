"""A recording becomes a log: what was executed with its propensity, and what each policy would have done there."""

import msgspec
import numpy as np
import pytest

from lab.ope.recorded import LoggedRecording
from lab.replay.other import wish_of
from runtime.errors import ConfigError
from services.decider.config import DeciderConfig
from tests.support import builders
from tests.support.records import Loop, Record, header_of

DRAWING = DeciderConfig(seed=5, policy="epsilon-greedy", epsilon=0.5)


@pytest.fixture(scope="module")
def night():
    return Loop(DRAWING).record(80)


def logged_of(record: Record, *policies: str, decider=DRAWING, header=None) -> LoggedRecording:
    wishes = {text: wish_of(text, None) for text in policies}
    found = LoggedRecording(header or header_of(decider), wishes)
    for item in record.items:
        found.take(item)
    found.end()
    return found


def test_the_recorded_policy_has_the_recorded_propensities(night):
    """It begins where it began and learns what it learned, so it decides as it did: bit for bit."""
    found = logged_of(night, "epsilon-greedy")
    log = found.logged()
    np.testing.assert_array_equal(found.targets()["epsilon-greedy"].pi_e, log.pi_b)
    assert len(set(log.pscore)) > 2


def test_rows_are_the_decisions_with_a_reward(night):
    rewards = [item for item in night.items if b'"type":"reward"' in getattr(item, "payload", b"")]
    joined = [item for item in rewards if b'"joined"' in item.payload]
    log = logged_of(night, "hold").logged()
    assert len(log) == len(joined) > 40
    assert log.censored == len(rewards) - len(joined)
    assert log.weighable.all()
    np.testing.assert_array_equal(log.pscore, log.pscore_in_pi_b)


def test_a_policy_that_never_draws_is_sure_of_one_arm_on_offer(night):
    found = logged_of(night, "hold", "static")
    log = found.logged()
    for target in found.targets().values():
        assert set(target.pi_e.max(axis=1)) == {1.0}
        assert not (target.pi_e > 0.0)[log.masked].any()


def test_a_policy_learns_on_the_way_and_never_from_the_reward_it_is_judged_on(night):
    rows = logged_of(night, "epsilon-greedy:epsilon=0").targets()["epsilon-greedy:epsilon=0"].pi_e
    assert (rows[1:] != rows[:-1]).any()
    record = Loop(DRAWING).record(80)
    index = max(i for i, item in enumerate(record.items) if b'"joined"' in getattr(item, "payload", b""))
    forged = msgspec.json.decode(record.items[index].payload)
    forged["value"] = -1.0
    record.items[index] = msgspec.structs.replace(record.items[index], payload=msgspec.json.encode(forged))
    again = logged_of(record, "epsilon-greedy:epsilon=0")
    np.testing.assert_array_equal(again.targets()["epsilon-greedy:epsilon=0"].pi_e, rows)
    assert again.logged().reward[-1] == -1.0


def test_two_settings_of_one_policy_are_two(night):
    found = logged_of(night, "epsilon-greedy:epsilon=0.2", "epsilon-greedy:epsilon=0.4").targets()
    first, second = found.values()
    assert first.pi_e[first.pi_e > 0].min() < second.pi_e[second.pi_e > 0].min()


def test_a_run_is_a_stretch_without_a_missing_cycle(night):
    log = logged_of(night, "hold").logged()
    step = np.diff(log.cycle)
    np.testing.assert_array_equal(np.diff(log.run) > 0, step > 1)


def test_two_boots_and_two_nodes_are_never_one_run():
    record = Record()
    for boot in ("one", "two"):
        record.keep(*[m for cycle in range(1, 6) for m in Loop(DRAWING, boot=boot).cycle(cycle)])
    log = logged_of(record, "hold").logged()
    assert len(set(log.run)) >= 2


def test_what_never_varies_is_no_context(night):
    found = logged_of(night, "hold")
    assert (found.logged().context.std(axis=0) > 0.0).all()


def test_unknown_settings_leave_the_decisions_out_and_say_so(night):
    other = header_of(DeciderConfig(seed=6))
    found = logged_of(night, "hold", header=other)
    assert sum(found.left_out.values()) > 40
    assert "settings" in next(iter(found.left_out))
    with pytest.raises(ValueError, match="at least one decision with a reward"):
        found.logged()


def test_a_policy_that_nobody_knows_is_a_wrong_flag(night):
    with pytest.raises(ConfigError, match="flag --policy"):
        logged_of(night, "brilliant")


def test_censored_decisions_are_counted_by_their_reason():
    loop = Loop(DRAWING)
    record = Record(*loop.cycle(1))
    *rest, reward = loop.cycle(2)
    censored = msgspec.structs.replace(reward, outcome="censored", value=None, reason="few_requests: web: 3")
    record.keep(*rest, censored, *loop.cycle(3)[:-1], builders.state(cycle=4))
    assert logged_of(record, "hold").censored["few_requests"] == 1
