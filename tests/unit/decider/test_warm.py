"""The warm start: for whom it is, what it is worth, and that it is shipped."""

import random
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hatchling.builders.wheel import WheelBuilder

from schemas.settings import DEFAULT_CLASSES, ClassSettings, Shared
from services.decider.config import DeciderConfig
from services.decider.core import warm as warm_module
from services.decider.core.policy import SnapshotMismatch
from services.decider.core.snapshot import DamagedPrior
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


def damaged(path, **changes):
    """The shipped prior with some fields replaced, as a file."""
    prior = msgspec.json.decode(PRIOR_FILE.read_bytes())
    prior.update(changes)
    path.write_bytes(msgspec.json.encode({name: value for name, value in prior.items() if value is not None}))
    return path


def gram_with(row, column, value):
    gram = list(read_warm_start(MODEL).gram)
    gram[row * (row + 1) // 2 + column] = value
    return gram


TOLD = msgspec.json.decode(PRIOR_FILE.read_bytes())["provenance"]
CHANGES = {
    "negative strength": ({"strength": -1.0}, "strength: -1 is not more than 0"),
    "no strength": ({"strength": 0.0}, "strength: 0 is not more than 0"),
    "endless strength": ({"strength": 1e300}, r"strength: 1e\+300 is not .* at most 10000"),
    "a variance below zero": ({"gram": gram_with(5, 5, -0.5)}, "gram: no mean of lessons has an eigenvalue of -0"),
    "more correlation than there can be": (
        {"gram": gram_with(5, 2, 3.0)},
        "gram: no mean of lessons has an eigenvalue",
    ),
    "a huge product": ({"gram": gram_with(5, 5, 1e300)}, "gram: a number beyond 100"),
    "a huge negative weight": ({"solution": [-1e300] * 96}, "solution: a number beyond 100"),
    "another size that fits itself": ({"size": 4, "gram": [1.0] * 10, "solution": [0.0] * 4}, "size: 4 terms, .* 96"),
    "a size below zero": ({"size": -1, "gram": [], "solution": []}, "size: -1"),
    "no provenance": ({"provenance": None}, "missing required field `provenance`"),
    "no command": ({"provenance": {**TOLD, "command": " "}}, "provenance.command: empty"),
    "no version": ({"provenance": {**TOLD, "trimtab": ""}}, "provenance.trimtab: empty"),
    "no date": ({"provenance": {**TOLD, "made_at": ""}}, "provenance.made_at: empty"),
    "no lessons": ({"provenance": {**TOLD, "lessons": 0}}, "provenance.lessons: 0"),
}


@pytest.mark.parametrize("case", CHANGES)
def test_prior_that_no_lessons_give_is_refused_with_its_file_and_reason(tmp_path, case):
    changes, words = CHANGES[case]
    path = damaged(tmp_path / "prior.json", **changes)
    with pytest.raises(ValueError, match=rf"prior\.json: .*{words}"):
        read_warm_start(MODEL, path, size=96)


def test_size_below_one_is_refused_whoever_asks(tmp_path):
    for size in (0, -1):
        path = damaged(tmp_path / "prior.json", size=size, gram=[], solution=[])
        with pytest.raises(ValueError, match=rf"size: {size} is outside 1 to 1024"):
            read_warm_start(MODEL, path)


def test_rounding_to_five_digits_is_no_damage(tmp_path):
    """What is left of a direction that no lesson had: rounding may put it a little below zero."""
    gram = read_warm_start(MODEL).gram
    flat = [0.0 if index in range(5 * 6 // 2, 6 * 7 // 2) else value for index, value in enumerate(gram)]
    for row in range(6, 96):
        flat[row * (row + 1) // 2 + 5] = 0.0
    flat[5 * 6 // 2 + 5] = -1e-5
    assert read_warm_start(MODEL, damaged(tmp_path / "prior.json", gram=flat)) is not None
    flat[5 * 6 // 2 + 5] = -1e-3
    with pytest.raises(ValueError, match=r"eigenvalue of -0\.001"):
        read_warm_start(MODEL, damaged(tmp_path / "prior.json", gram=flat))


def test_file_that_cannot_be_read_is_damage(tmp_path):
    with pytest.raises(DamagedPrior, match="cannot be read: Is a directory"):
        read_warm_start(MODEL, tmp_path)


@pytest.mark.parametrize("case", CHANGES)
def test_policy_with_a_damaged_prior_starts_cold_and_tells_why_once(tmp_path, monkeypatch, case):
    changes, words = CHANGES[case]
    monkeypatch.setattr(warm_module, "PRIOR_FILE", damaged(tmp_path / "prior.json", **changes))
    told = []
    made = make_policy(DeciderConfig(), Shared(), set_aside=told.append).policy
    (damage,) = told
    assert re.search(rf"prior\.json: .*{words}", str(damage))
    assert made.warm is None
    assert made.identity == make(warm_start=False).identity


def test_whoever_compares_policies_hears_of_a_damaged_prior_as_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(warm_module, "PRIOR_FILE", damaged(tmp_path / "prior.json", strength=-1.0))
    with pytest.raises(DamagedPrior, match="strength"):
        make()
    assert make(warm_start=False).warm is None


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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda warm: {"solution": [20.0 * number for number in warm.solution]}, "solution: over its lessons"),
        (lambda warm: {"solution": [99.0] * warm.size}, "solution: over its lessons"),
        (lambda warm: {"gram": [0.0] * len(warm.gram)}, "gram: its first number is 0"),
    ],
    ids=["twenty times as much", "99 everywhere", "of no lessons"],
)
def test_a_prior_that_predicts_what_is_no_reward_is_refused(tmp_path, change, words):
    shipped = read_warm_start(MODEL)
    path = tmp_path / "prior.json"
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(shipped, **change(shipped))))
    with pytest.raises(DamagedPrior, match=re.escape(words)):
        read_warm_start(MODEL, path)
