import asyncio
import time

from runtime.clock import ManualClock, SystemClock, settle


async def test_sleepers_wake_in_the_order_of_their_times_and_see_their_own():
    clock = ManualClock()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.monotonic()))

    async with asyncio.TaskGroup() as group:
        for name, seconds in [("late", 3.0), ("early", 1.0), ("same", 1.0), ("now", 0.0), ("past", -1.0)]:
            group.create_task(sleeper(name, seconds))
        await settle()
        assert woken == [("now", 0.0), ("past", 0.0)]
        await clock.advance(2.0)
        assert woken[2:] == [("early", 1.0), ("same", 1.0)]
        await clock.advance(1.0)
    assert woken[-1] == ("late", 3.0)


async def test_a_sleeper_that_sleeps_again_is_woken_again_in_one_advance():
    clock = ManualClock()
    ticks: list[float] = []

    async def ticker() -> None:
        while True:
            await clock.sleep(5.0)
            ticks.append(clock.monotonic())

    task = asyncio.create_task(ticker())
    await settle()
    await clock.advance(15.0)
    assert ticks == [5.0, 10.0, 15.0]
    task.cancel()


async def test_na_09_the_wall_clock_steps_without_the_monotonic_one():
    clock = ManualClock(start_ns=100_000_000_000)
    clock.step_wall(-2.5)
    assert clock.now_ns() == 97_500_000_000
    assert clock.monotonic() == 0.0
    await clock.advance(2.1)
    assert clock.now_ns() == 99_600_000_000
    assert clock.monotonic() == 2.1


async def test_the_systems_clock_is_the_systems():
    clock = SystemClock()
    before = clock.monotonic()
    await clock.sleep(-1.0)
    assert clock.monotonic() >= before
    assert abs(clock.now_ns() - time.time_ns()) < 60e9
