"""Closing a rig, and ending a demo and a fleet: everything is closed, and what failed is said."""

import asyncio
import contextlib
import sys
from pathlib import Path

import pytest

from lab import demo as demo_module
from lab.demo import Demo, DemoOptions, Watcher
from lab.rig import Rig, RigOptions, common_settings
from lab.sim_stage import SimStage
from runtime import fleet as fleet_module
from runtime import nats_server
from runtime.errors import HostError, ServerError, TrimtabError
from runtime.fleet import Fleet
from runtime.processes import Spec


class ScriptedFleet(Fleet):
    """Five idle processes; the actuator ends with code 1 and restores as its script says."""

    restore = "pass"

    def _spec(self, name: str) -> Spec:
        script = (
            "import os, signal, sys\n"
            f"if '--restore' in sys.argv: {self.restore}\n"
            "if '--restore' in sys.argv: sys.exit()\n"
            f"signal.signal(signal.SIGTERM, lambda *_: os._exit({int(name == 'actuator')}))\n"
            f"open({str(self.run_dir / name)!r}, 'w').close()\n"
            "signal.pause()\n"
        )
        return Spec(name, [sys.executable, "-c", script], log=self.run_dir / "logs" / f"{name}.log")


async def started(tmp_path: Path, restore: str) -> ScriptedFleet:
    fleet = ScriptedFleet(tmp_path / "trimtab.yaml", tmp_path)
    fleet.restore = restore
    await fleet.start()
    while not all((tmp_path / name).exists() for name in fleet_module.SERVICES):
        await asyncio.sleep(0.01)
    return fleet


def all_ended(fleet: Fleet) -> bool:
    return not any(child.alive for child in fleet.supervisor.children.values())


async def test_a_last_restore_that_works_is_no_trouble(tmp_path):
    fleet = await started(tmp_path, f"open({str(tmp_path / 'restored')!r}, 'w').close()")
    await fleet.stop()
    assert (tmp_path / "restored").exists()


async def test_a_last_restore_that_fails_is_an_error_with_the_way_out_once_all_are_ended(tmp_path):
    fleet = await started(tmp_path, "sys.exit('2 of 3 weights could not be restored')")
    with pytest.raises(HostError) as failed:
        await fleet.stop()
    text = str(failed.value)
    assert "2 of 3 weights could not be restored" in text
    assert "--restore" in text
    assert str(tmp_path / "logs" / "actuator.log") in text
    assert failed.value.exit_code == 6
    assert all_ended(fleet)


async def test_a_last_restore_that_hangs_is_ended_and_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_module, "_RESTORE_SECONDS", 0.2)
    fleet = await started(tmp_path, "signal.pause()")
    with pytest.raises(HostError, match=r"no end after 0\.2 s"):
        await fleet.stop()
    assert all_ended(fleet)


class FailingStage(SimStage):
    """Every question and every order fails."""

    def weights(self) -> dict[str, str]:
        raise OSError("unreadable")

    async def close(self) -> list[str]:
        self.asked_to_close = True
        return ["/a/group"]


async def test_a_rig_closes_everything_whatever_fails_and_tells_of_each(tmp_path, monkeypatch):
    stage = FailingStage(seed=1)
    rig = Rig(stage, RigOptions(tmp_path))
    rig.fleet = await started(tmp_path, "sys.exit('no restore')")
    rig.originals = {"pod": "100\n"}
    await rig.start_server()
    assert not await rig.close()
    assert not rig.server.alive
    assert stage.asked_to_close
    assert rig.recording._file.closed
    assert [any(word in trouble for trouble in rig.troubles) for word in ("no restore", "unreadable", "/a/group")] == [
        True
    ] * 3


async def test_a_rig_that_never_started_closes_without_a_word(tmp_path):
    rig = Rig(SimStage(seed=1), RigOptions(tmp_path))
    assert await rig.close()
    assert rig.troubles == []


def demo_of(tmp_path: Path) -> Demo:
    return Demo(DemoOptions(30.0, tmp_path, force_simulation=True), Watcher())


async def test_a_demo_without_a_server_ends_with_that_one_error(tmp_path, monkeypatch):
    def nothing() -> str:
        raise ServerError("no nats-server on PATH")

    monkeypatch.setattr(nats_server, "find_binary", nothing)
    demo = demo_of(tmp_path)
    with pytest.raises(ServerError, match="no nats-server on PATH"):
        await demo.run()
    assert demo.restored is None


async def test_a_demo_cancelled_again_and_again_still_waits_for_its_clean_up():
    began, may_end = asyncio.Event(), asyncio.Event()
    ended = False

    async def clean_up() -> None:
        nonlocal ended
        began.set()
        await may_end.wait()
        ended = True

    waiting = asyncio.ensure_future(demo_module._to_the_end(clean_up()))
    await began.wait()
    for _ in range(3):
        waiting.cancel()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not waiting.done()
    may_end.set()
    with contextlib.suppress(asyncio.CancelledError):
        await waiting
    assert ended
    assert waiting.cancelled()


@pytest.mark.parametrize(("tick", "answer"), [(1.0, 0.5), (2.0, 1.0), (5.0, 1.5)])
def test_the_rewarder_waits_for_answers_as_long_as_the_tick_allows(tick, answer):
    settings = common_settings(tick, seed=1)
    assert settings["rewarder"] == {"min_requests": 10, "answer_timeout_seconds": answer}
    assert settings["collector"]["min_requests"] == 10


async def test_a_demo_whose_folder_fails_it_is_one_line_and_closes_its_stage(tmp_path):
    (tmp_path / "logs").write_text("a file where a folder should be")
    with pytest.raises(TrimtabError, match=r"File exists; choose another --run-dir"):
        await demo_of(tmp_path).run()
