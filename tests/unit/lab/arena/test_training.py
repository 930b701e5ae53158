"""The training of the warm start: reproducible by seed, and honest about what it was made of."""

import msgspec
import numpy as np
import pytest

from lab.arena import training
from lab.arena.training import STRENGTH, train
from schemas.settings import Shared
from services.decider.config import DeciderConfig
from services.decider.core.linucb import LinUCB
from services.decider.core.warm import WARM_VERSION, WarmStart
from services.decider.core.zoo import make_policy, meaning_of


def trained(path, seed=1, scenarios=4, cycles=30, **fields):
    """What a short training made, and the bytes of its file."""
    made = train(seed=seed, scenarios=scenarios, cycles=cycles, out=str(path), progress=lambda *_: None, **fields)
    return made, path.read_bytes()


def test_the_same_seed_makes_the_same_file_but_for_the_day(tmp_path):
    first, raw = trained(tmp_path / "a.json")
    _, again = trained(tmp_path / "b.json")
    day = first.provenance.made_at.encode()
    assert raw.replace(day, b"") == again.replace(day, b"")


def test_another_seed_makes_other_numbers(tmp_path):
    assert trained(tmp_path / "a.json", 1)[0].solution != trained(tmp_path / "b.json", 2)[0].solution


def test_the_file_is_what_the_decider_reads_and_says_how_it_was_made(tmp_path):
    made, raw = trained(tmp_path / "a.json", 3, 2, 40, commit="abc1234")
    assert msgspec.json.decode(raw, type=WarmStart) == made
    assert (made.version, made.strength, made.model) == (WARM_VERSION, STRENGTH, meaning_of(DeciderConfig(), Shared()))
    how = made.provenance
    assert (how.seed, how.scenarios, how.cycles, how.commit) == (3, 2, 40, "abc1234")
    assert how.command == "trimtab train --seed 3 --scenarios 2 --cycles 40"
    assert 0 < how.lessons <= 2 * 40
    policy = make_policy(DeciderConfig(warm_start=False), Shared()).policy
    assert isinstance(policy, LinUCB)
    assert made.size == len(made.solution) == policy.size
    assert len(made.gram) == made.size * (made.size + 1) // 2


def test_the_numbers_are_finite_and_the_lessons_a_matrix_of_squares(tmp_path):
    made, _ = trained(tmp_path / "a.json")
    square = np.zeros((made.size, made.size))
    square[np.tril_indices(made.size)] = made.gram
    square = square + np.tril(square, -1).T
    assert np.isfinite(square).all()
    assert np.isfinite(made.solution).all()
    assert np.linalg.eigvalsh(square).min() > -1e-4 * np.linalg.eigvalsh(square).max()


def test_progress_is_told_scenario_by_scenario(tmp_path):
    told = []
    train(seed=1, scenarios=3, cycles=30, out=str(tmp_path / "a.json"), progress=lambda *numbers: told.append(numbers))
    assert told == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.parametrize(("scenarios", "cycles"), [(0, 100), (2, 0)])
def test_without_lessons_there_is_an_error_and_no_file(tmp_path, scenarios, cycles):
    with pytest.raises(ValueError, match="no lessons"):
        trained(tmp_path / "a.json", 1, scenarios, cycles)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_is_an_error(tmp_path):
    with pytest.raises(OSError, match="missing"):
        trained(tmp_path / "missing" / "a.json", 1, 2, 30)


def test_nothing_that_the_bench_plays_is_trained_on(tmp_path, monkeypatch):
    """Neither a named scenario nor a generated one below the first of training."""
    assert training.FIRST_SCENARIO == 100_000
    asked = []
    original = training.generated
    monkeypatch.setattr(training, "FIRST_SCENARIO", 10**9)
    monkeypatch.setattr(training, "generated", lambda seed, queue: asked.append((seed, queue)) or original(seed, queue))
    trained(tmp_path / "a.json", scenarios=4, cycles=5)
    assert len({seed for seed, _ in asked}) == 4
    assert min(seed for seed, _ in asked) >= 10**9
    assert [queue for _, queue in asked] == ["unbounded", "bounded"] * 2
