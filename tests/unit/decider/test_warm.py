"""The warm start: for whom it is, what it is worth, and that it is shipped."""

import random
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hatchling.builders.wheel import WheelBuilder

from schemas.settings import DEFAULT_CLASSES, ClassSettings, Shared
from services.decider.config import DeciderConfig
from services.decider.core.policy import SnapshotMismatch
from services.decider.core.warm import PRIOR_FILE, read_warm_start
from services.decider.core.zoo import make_policy, meaning_of

MODEL = meaning_of(DeciderConfig(), Shared())
ROOT = Path(__file__).parents[3]


def make(shared=None, **settings):
    return make_policy(DeciderConfig(**settings), shared or Shared()).policy


def test_shipped_prior_is_for_the_default_arms_and_classes_and_says_how_to_make_it_again():
    warm = read_warm_start(MODEL)
    assert warm is not None
    assert warm.size == make().size
    assert warm.provenance.command.startswith("trimtab train ")
    assert warm.provenance.lessons > 1000
    assert f"--seed {warm.provenance.seed} " in warm.provenance.command
    assert warm.provenance.made_at


def test_shipped_prior_is_one_that_lessons_can_give():
    warm = read_warm_start(MODEL)
    precision = warm.precision()
    assert precision.shape == (warm.size, warm.size)
    assert (precision == precision.T).all()
    assert np.linalg.eigvalsh(precision).min() > -1e-3
    assert precision[0, 0] == warm.strength  # the term and the context that are always 1
    assert np.abs(warm.weights()).max() < 5.0


def test_policy_that_starts_warm_believes_what_the_simulator_taught_before_any_lesson(arms):
    warm, cold = make(), make(warm_start=False)
    features = {"latency-critical.need": 0.6, "default.need": 0.1}
    beliefs = {arm.name: (warm.predict(features, arm), cold.predict(features, arm)) for arm in arms[:-1]}
    assert all(known[1] < unknown[1] for known, unknown in beliefs.values())
    assert beliefs["lc32-d10-b1"][0][0] > beliefs["lc1-d1-b3"][0][0] + 0.3  # who needs more CPU gets it


@pytest.mark.parametrize(
    "settings",
    [
        {"profiles": {"p": {"batch": 100}, "q": {"latency-critical": 300}}},
        {"context_features": ("node.busy_ratio",)},
        {"likeness_decades": 0.5},
        {"prior_fall": 0.2},
        {"prior_profile": "lc3-d3-b1"},
        {"warm_start": False},
    ],
)
def test_other_settings_start_cold(settings):
    assert make().warm is not None
    assert make(**settings).warm is None


def test_other_classes_start_cold_and_other_objectives_do_not():
    more = DEFAULT_CLASSES | {"ml": ClassSettings(kind="throughput")}
    assert make(Shared(classes=more)).warm is None
    slower = DEFAULT_CLASSES | {
        "default": msgspec.structs.replace(DEFAULT_CLASSES["default"], objective_p99_seconds=3.0)
    }
    assert make(Shared(classes=slower)).warm is not None


def test_snapshot_of_a_cold_start_does_not_fit_a_warm_one():
    with pytest.raises(SnapshotMismatch, match="model"):
        make().load(make(warm_start=False).save())


def test_river_clones_the_warm_start_too(arms):
    policy = make()
    policy.learn({}, arms[0], 1.0)
    assert policy.clone().predict({}, arms[0]) == make().predict({}, arms[0])


def test_prior_of_another_model_or_version_and_a_missing_file_are_none(tmp_path):
    assert read_warm_start("000000000000") is None
    assert read_warm_start(MODEL, tmp_path / "none.json") is None
    other = msgspec.structs.replace(read_warm_start(MODEL), version=99)
    (tmp_path / "other.json").write_bytes(msgspec.json.encode(other))
    assert read_warm_start(MODEL, tmp_path / "other.json") is None


@pytest.mark.parametrize(
    "damage",
    [
        lambda raw: raw[: len(raw) // 2],
        lambda raw: b"",
        lambda raw: b"[]",
        lambda raw: raw.replace(b'"gram":[1.0,', b'"gram":[null,'),
        lambda raw: raw.replace(b'"gram":[1.0,', b'"gram":['),
        lambda raw: raw.replace(b'"solution":[', b'"solution":[0.0,'),
        lambda raw: raw.replace(b'"size":96', b'"size":95'),
    ],
)
def test_damaged_file_is_an_error_that_names_it(tmp_path, damage):
    raw = PRIOR_FILE.read_bytes()
    path = tmp_path / "prior.json"
    path.write_bytes(damage(raw))
    assert path.read_bytes() != raw
    with pytest.raises(ValueError, match=r"prior\.json: "):
        read_warm_start(MODEL, path)


def test_prior_is_in_the_wheel():
    shipped = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    assert "services/decider/priors/default.json" in shipped
    assert "services/decider/core/warm.py" in shipped
    assert PRIOR_FILE == ROOT / "services/decider/priors/default.json"


def test_warm_and_cold_decide_alike_once_enough_was_learned(arms):
    """The prior is worth sixty lessons: what a node says for long outweighs it."""
    warm, cold = make(), make(warm_start=False)
    rng = random.Random(1)
    worth = {arm.name: -0.8 if arm.name.startswith("lc1-") else 0.1 for arm in arms[:-1]}
    for _ in range(400):
        arm = rng.choice(arms[:-1])
        for policy in (warm, cold):
            policy.learn({}, arm, worth[arm.name])
    for arm in arms[:-1]:
        assert warm.predict({}, arm)[0] == pytest.approx(cold.predict({}, arm)[0], abs=0.25)
