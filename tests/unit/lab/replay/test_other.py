"""Another policy decides from the recorded contexts, taught by the recorded rewards."""

from dataclasses import replace

import msgspec
import pytest

from lab.record.file import read_recording
from lab.replay.made import Plan, make_recording
from lab.replay.other import OtherPolicy, config_of, wish_of
from runtime.errors import ConfigError
from schemas.settings import Shared
from services.decider.config import DeciderConfig, PolicySettings, TrialSettings
from services.decider.core.zoo import POLICIES
from tests.unit.lab.replay.conftest import PLAN
from tests.unit.lab.replay.tape import Tape


def compared(tape, text, seed=None, **options):
    other = OtherPolicy(tape.header, wish_of(text, seed), **options)
    found = [one for item in tape.items for one in other.take(item)]
    return other.report, found + list(other.end())


@pytest.mark.parametrize("policy", [name for name in POLICIES if name not in ("vowpal", "river-linucb")])
def test_every_policy_decides_each_cycle_that_was_decided(tape, policy):
    report, found = compared(tape, policy)
    assert report.cycles == PLAN.cycles - len(PLAN.late)
    assert report.same + len(found) == report.cycles
    assert report.policy == policy
    assert sum(counts[0] for counts in report.arms.values()) == report.cycles
    assert sum(counts[1] for counts in report.arms.values()) == report.cycles
    assert 0.0 <= report.agreement_ratio <= 1.0
    assert dict(report.not_decided) == {"no action was recorded": len(PLAN.late)}


def test_another_policy_differs_and_says_where(tape):
    report, found = compared(tape, "hold")
    moved = [m for m in tape.messages("action").values() if m.arm != "hold"]
    assert len(found) > 10
    assert {one.other for one in found} <= {"hold", *(m.arm for m in moved)}
    assert all(one.recorded != one.other for one in found)
    assert report.propensity_mean < 1.0


def test_the_recorded_policy_chooses_mostly_as_it_did_and_always_with_the_same_draws_until_it_starts_anew(tape):
    report, found = compared(tape, None, seed=1)
    assert [one for one in found if one.cycle < PLAN.late[0]] == []
    assert report.agreement_ratio > 0.8


def test_it_learns_what_was_recorded(tape):
    """Without rewards it decides as one that never learned."""
    items = tuple(item for index, item in enumerate(tape.items) if index not in tape.messages("reward"))
    taught, _ = compared(tape, "epsilon-greedy:epsilon=0", seed=3)
    untaught, _ = compared(replace(tape, items=items), "epsilon-greedy:epsilon=0", seed=3)
    assert {arm: counts[1] for arm, counts in taught.arms.items() if counts[1]} != {
        arm: counts[1] for arm, counts in untaught.arms.items() if counts[1]
    }


def test_settings_of_a_policy_are_taken_over_the_recorded_ones():
    wish = wish_of("linucb:exploration=0.7,warm_start=false,prior_profile=null", 4)
    assert (wish.policy, wish.seed) == ("linucb", 4)
    config = config_of(DeciderConfig(epsilon=0.2, seed=9), wish, Shared())
    assert (config.exploration, config.warm_start, config.epsilon) == (0.7, False, 0.2)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("no-such", "is not known; known are linucb"),
        ("linucb:speed=1", "'speed=1' is no key=value; keys are"),
        ("linucb:epsilon", "is no key=value"),
        ("linucb:epsilon=2", "epsilon"),
        ("linucb:policy=hold", "is no key=value"),
        ("static:static_profile=none-such", "no profile"),
    ],
)
def test_what_is_no_policy_is_said(text, words):
    with pytest.raises(ConfigError, match=r"^flag --policy: ") as raised:
        config_of(DeciderConfig(), wish_of(text, None), Shared())
    assert words in str(raised.value)


TRIAL = DeciderConfig(
    policy="hold",
    shadows={"good": PolicySettings(policy="linucb")},
    trial=TrialSettings(challenger="good", block_cycles=6, washout_cycles=2),
)


@pytest.mark.parametrize("text", ["linucb", "good", None])
def test_the_trial_of_a_recording_is_no_obstacle(text):
    if text == "good":
        with pytest.raises(ConfigError, match="'good' is not known"):  # a shadow's name is no policy's
            config_of(TRIAL, wish_of(text, 4), Shared())
        return
    config = config_of(TRIAL, wish_of(text, 4), Shared())
    assert (config.policy, config.shadows, config.trial) == (text or "hold", {}, TrialSettings())


@pytest.fixture(scope="module")
def on_trial(tmp_path_factory):
    path = tmp_path_factory.mktemp("trial") / "trial.recording"
    make_recording(path, Plan(cycles=30, scenario="flood", decider=msgspec.structs.replace(TRIAL, seed=1)))
    recording = read_recording(path)
    return Tape(recording.header, tuple(recording.items()))


def test_other_draws_leave_the_trial_out_and_say_so(on_trial):
    assert {m.champion for m in on_trial.messages("action").values()} == {"hold"}
    report, _ = compared(on_trial, None, seed=7)
    assert report.cycles == 30
    assert report.notes == ["the trial of good is left out: hold, which was in charge, decides alone here"]
    report, _ = compared(on_trial, "linucb")
    assert (report.cycles, report.notes) == (30, [])


def test_what_is_lost_is_told(tape):
    index = tape.find("before", 16)
    report, _ = compared(tape.without(index), "hold")
    assert report.trouble_count == 1
    assert report.not_decided["no state"] == 1


def test_unknown_settings_are_told(tape):
    header = msgspec.structs.replace(tape.header, settings=())
    report, _ = compared(replace(tape, header=header), "hold")
    assert report.cycles == 0
    assert report.agreement_ratio is None
    assert any("--config" in reason for reason in report.not_decided)
