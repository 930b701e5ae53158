import pytest

from lab.record.file import read_recording
from lab.replay.made import Plan, make_recording
from services.decider.config import DeciderConfig
from tests.unit.lab.replay.tape import Tape

PLAN = Plan(
    cycles=70,
    scenario="flood",
    restarts=(40,),
    late=(20,),
    decider=DeciderConfig(seed=1, checkpoint_seconds=60.0, policy="linucb"),
)
"""Long enough for a few stored models before and after a decider that starts anew, and one cycle that it misses."""


@pytest.fixture(scope="session")
def recording_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("replay") / "made.recording"
    make_recording(path, PLAN)
    return path


@pytest.fixture(scope="session")
def tape(recording_path):
    recording = read_recording(recording_path)
    return Tape(recording.header, tuple(recording.items()))
