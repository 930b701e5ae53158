"""Children that are started again when they die, told apart when they cannot start, and never outlive their parent."""

import asyncio
import os
import select
import signal
import sys
from collections.abc import AsyncIterator

import pytest

import runtime.processes
from runtime.errors import TrimtabError
from runtime.processes import Child, Spec, Supervisor, spawn
from tests.support.heard import Heard

FOREVER = ["sleep", "600"]


def shell(script: str, *arguments: str) -> list[str]:
    return ["/bin/sh", "-c", script, "sh", *arguments]


@pytest.fixture
async def watched() -> AsyncIterator[tuple[Supervisor, Heard[dict[str, int]]]]:
    changes: Heard[dict[str, int]] = Heard()
    supervisor = Supervisor(on_change=changes.add)
    yield supervisor, changes
    await supervisor.stop_all()


async def ended(descriptor: int) -> None:
    """Waits for the end of the process behind a pidfd, which need not be our child."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_reader(descriptor, over.set)
    try:
        async with asyncio.timeout(10.0):
            await over.wait()
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


async def within(awaitable, seconds: float = 10.0):
    async with asyncio.timeout(seconds):
        return await awaitable


# ---- supervision ----


async def test_a_killed_child_is_started_again_with_a_new_pid_and_told(watched):
    supervisor, changes = watched
    await supervisor.start(Spec("worker", FOREVER))
    first = supervisor.pids()["worker"]
    assert changes.items == [{"worker": first}]
    os.kill(first, signal.SIGKILL)
    await changes.until(lambda seen: len(seen) == 2)
    second = changes.items[1]["worker"]
    assert second != first
    assert supervisor.pids() == {"worker": second}
    assert supervisor.children["worker"].alive
    assert supervisor.restarts == {"worker": 1}
    assert not supervisor.failed.done()


async def test_one_childs_death_leaves_the_others_alone(watched):
    supervisor, changes = watched
    for name in ("a", "b"):
        await supervisor.start(Spec(name, FOREVER))
    before = supervisor.pids()
    os.kill(before["a"], signal.SIGKILL)
    await changes.until(lambda seen: len(seen) == 3)
    assert supervisor.pids()["b"] == before["b"]
    assert supervisor.pids()["a"] != before["a"]


@pytest.mark.parametrize("code", [2, 3, 4, 5, 6])
async def test_a_child_that_cannot_start_is_told_with_its_last_words_and_not_tried_again(watched, tmp_path, code):
    supervisor, changes = watched
    log = tmp_path / "log"
    await supervisor.start(Spec("guard", shell(f"echo first; echo 'trimtab guard: wrong' >&2; exit {code}"), log=log))
    assert await within(supervisor.failed) == f"guard ended with code {code}: trimtab guard: wrong"
    assert len(changes.items) == 1
    assert supervisor.restarts == {}


@pytest.mark.parametrize("code", [0, 1, 7])
async def test_any_other_end_is_an_accident_and_the_child_is_started_again(watched, tmp_path, code):
    supervisor, changes = watched
    mark = tmp_path / "once"
    script = f"if [ -e $1 ]; then exec sleep 600; fi; : > $1; exit {code}"
    await supervisor.start(Spec("guard", shell(script, str(mark))))
    await changes.until(lambda seen: len(seen) == 2)
    assert not supervisor.failed.done()


async def test_a_child_that_had_started_well_is_started_again_whatever_its_code(watched, tmp_path, monkeypatch):
    monkeypatch.setattr(runtime.processes, "START_SECONDS", 0.0)
    supervisor, changes = watched
    mark = tmp_path / "once"
    await supervisor.start(Spec("guard", shell("if [ -e $1 ]; then exec sleep 600; fi; : > $1; exit 3", str(mark))))
    await changes.until(lambda seen: len(seen) == 2)
    assert not supervisor.failed.done()


async def test_a_child_without_a_log_still_fails_with_a_reason(watched):
    supervisor, _ = watched
    await supervisor.start(Spec("guard", shell("exit 2")))
    assert await within(supervisor.failed) == "guard ended with code 2: see its output"


async def test_a_child_that_nobody_can_watch_any_more_is_told():
    calls = []

    def full_disk(pids: dict[str, int]) -> None:
        calls.append(pids)
        if len(calls) > 1:
            raise OSError("no space left on device")

    supervisor = Supervisor(on_change=full_disk)
    await supervisor.start(Spec("guard", FOREVER))
    os.kill(supervisor.pids()["guard"], signal.SIGKILL)
    assert await within(supervisor.failed) == "guard is no longer watched: OSError: no space left on device"
    await supervisor.stop_all()
    assert not supervisor.children["guard"].alive


async def test_a_stopped_child_stays_stopped(watched):
    supervisor, changes = watched
    await supervisor.start(Spec("guard", FOREVER))
    await supervisor.stop("guard")
    await supervisor.stop("guard")
    await supervisor.stop("never-started")
    assert not supervisor.children["guard"].alive
    assert len(changes.items) == 1


async def test_all_are_stopped_in_order_the_rest_last(watched, tmp_path):
    supervisor, _ = watched
    ready, ends = tmp_path / "ready", tmp_path / "ends"
    os.mkfifo(ready)
    script = f"trap 'echo $1 >> {ends}; exit 0' TERM; echo > {ready}; while :; do sleep 0.02; done"
    for name in ("collector", "extra", "actuator"):
        await supervisor.start(Spec(name, shell(script, name)))
        await within(asyncio.to_thread(ready.read_text))
    await supervisor.stop_all(["actuator", "absent", "collector"])
    assert ends.read_text().split() == ["actuator", "collector", "extra"]


# ---- one child ----


async def test_a_child_that_ignores_sigterm_is_killed_after_its_time(tmp_path):
    ready = tmp_path / "ready"
    os.mkfifo(ready)
    child = await spawn("deaf", shell(f"trap '' TERM; echo > {ready}; exec sleep 600"))
    await within(asyncio.to_thread(ready.read_text))
    assert await child.stop(0.05) == -signal.SIGKILL
    assert not child.alive


async def test_a_child_that_ended_already_gives_its_code():
    child = await spawn("quick", shell("exit 7"))
    await within(child.process.wait())
    assert await child.stop() == 7


async def test_output_goes_to_the_log_and_is_appended(tmp_path):
    log = tmp_path / "log"
    for word in ("one", "two"):
        child = await spawn("talker", shell("echo $1; echo $1 >&2", word), log=log)
        await within(child.process.wait())
        child.close()
    assert log.read_text().split() == ["one", "one", "two", "two"]


async def test_pipes_connect_the_parent():
    child = await spawn("echo", ["cat"], pipes=True)
    out, _ = await within(child.process.communicate(b"there and back"))
    assert out == b"there and back"
    child.close()


async def test_enter_runs_in_the_child_before_its_program(tmp_path):
    child = await spawn("inside", ["pwd"], log=tmp_path / "log", enter=lambda: os.chdir("/proc"))
    await within(child.process.wait())
    child.close()
    assert (tmp_path / "log").read_text() == "/proc\n"


@pytest.mark.parametrize(
    ("argv", "log"),
    [(["/no/such/program"], None), (FOREVER, "/no/such/folder/log"), (["/proc/version"], None)],
)
async def test_a_child_that_cannot_be_started_is_one_line_and_leaks_nothing(argv, log, tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(TrimtabError) as caught:
        await spawn("worker", argv, log=type(tmp_path)(log) if log else None)
    assert str(caught.value).startswith(f"worker: cannot start {argv[0]}: ")
    assert len(str(caught.value).splitlines()) == 1
    assert len(os.listdir("/proc/self/fd")) == before


async def test_an_enter_that_fails_is_a_child_that_cannot_start():
    def refuse() -> None:
        raise PermissionError("no such group")

    with pytest.raises(TrimtabError, match="worker: cannot start sleep"):
        await spawn("worker", FOREVER, enter=refuse)


async def test_stopping_lets_go_of_every_descriptor():
    before = len(os.listdir("/proc/self/fd"))
    children: list[Child] = [await spawn("w", FOREVER) for _ in range(5)]
    for child in children:
        await child.stop()
    assert len(os.listdir("/proc/self/fd")) == before


# ---- never longer than the parent ----

PARENT = """
import asyncio, sys
from runtime.processes import spawn

async def main():
    deaf = ["/bin/sh", "-c", "trap '' TERM; echo $$; read x </proc/self/fd/$TRIMTAB_LIFELINE_FD"]
    by_signal = await spawn("by-signal", ["sleep", "600"])
    by_lifeline = await spawn("by-lifeline", deaf, pipes=True)
    await by_lifeline.process.stdout.readline()
    print(by_signal.pid, by_lifeline.pid, flush=True)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_children_end_when_their_parent_is_killed():
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, stdout=asyncio.subprocess.PIPE)
    children = [os.pidfd_open(int(pid)) for pid in (await within(parent.stdout.readline())).split()]
    assert select.select(children, [], [], 0)[0] == []  # readable would mean ended
    parent.kill()
    await parent.wait()
    for child in children:
        await ended(child)


async def test_one_childs_lifeline_is_not_held_open_by_another():
    first = await spawn("first", shell("trap '' TERM; read x </proc/self/fd/$TRIMTAB_LIFELINE_FD; exit 9"))
    second = await spawn("second", FOREVER)
    first.close()
    assert await within(first.process.wait()) == 9
    await second.stop()
