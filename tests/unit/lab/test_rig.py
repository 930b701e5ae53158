"""A run's folder: an earlier run's files are set aside, never mixed with this one's."""

import msgspec

from lab.rig import common_settings, set_aside
from runtime.config import load
from services.collector.config import CollectorConfig
from services.guard.config import GuardConfig


def test_an_earlier_run_is_set_aside_whole_and_each_one_by_itself(tmp_path):
    for number in (1, 2):
        (tmp_path / "recording.jsonl").write_text(f"run {number}")
        (tmp_path / "nats").mkdir()
        assert set_aside(tmp_path) == tmp_path / f"earlier-{number}"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["earlier-1", "earlier-2"]
    assert (tmp_path / "earlier-2/recording.jsonl").read_text() == "run 2"
    assert (tmp_path / "earlier-2/nats").is_dir()


def test_a_folder_without_a_run_in_it_is_left_as_it_is(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert set_aside(tmp_path) is None
    assert set_aside(tmp_path / "missing") is None
    assert (tmp_path / "notes.txt").exists()


def test_the_settings_of_every_tick_are_valid(tmp_path):
    for tick in (1.0, 2.0, 5.0, 12.5):
        file = tmp_path / "trimtab.yaml"
        file.write_bytes(msgspec.yaml.encode(common_settings(tick, 1)))
        load({"collector": CollectorConfig, "guard": GuardConfig}, path=str(file), env={})
