import asyncio

import pytest

import runtime.turns
from runtime.turns import Turns, end, within


async def test_cancelling_the_caller_leaves_the_call_to_finish():
    turns, entered, leave, done = Turns(), asyncio.Event(), asyncio.Event(), []

    async def call() -> None:
        entered.set()
        await leave.wait()
        done.append(True)

    caller = asyncio.create_task(turns.take(call()))
    await entered.wait()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert done == []
    leave.set()
    await turns.finish()
    assert done == [True]


async def test_a_call_that_does_not_end_is_cancelled_after_its_time(monkeypatch):
    monkeypatch.setattr(runtime.turns, "FINISH_SECONDS", 0.01)
    turns, entered, cancelled = Turns(), asyncio.Event(), []

    async def call() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    caller = asyncio.create_task(turns.take(call()))
    await entered.wait()
    await turns.finish()
    assert cancelled == [True]
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_a_call_that_ends_its_own_subscription_does_not_wait_for_itself():
    turns = Turns()
    async with asyncio.timeout(5.0):
        await turns.take(turns.finish())


async def test_what_fails_in_a_call_reaches_the_caller_and_not_finish():
    turns = Turns()

    async def call() -> None:
        raise ValueError("nonsense")

    with pytest.raises(ValueError, match="nonsense"):
        await turns.take(call())
    await turns.finish()


async def test_without_a_call_there_is_nothing_to_wait_for():
    await Turns().finish()


async def test_a_task_that_swallows_a_cancellation_is_ended_all_the_same():
    swallowed = []

    async def stubborn() -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if swallowed:
                    raise
                swallowed.append(True)

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await end(task)
    assert swallowed == [True]
    assert task.cancelled()


async def test_a_call_gives_its_result_within_its_time():
    async def answer() -> int:
        return 42

    assert await within(5.0, answer()) == 42


async def test_a_call_that_takes_too_long_is_ended_even_if_it_swallows_the_cancellation():
    ends = []

    async def stubborn() -> None:
        for _ in range(2):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                ends.append(True)

    with pytest.raises(TimeoutError):
        await within(0.01, stubborn())
    assert ends == [True, True]


async def test_what_a_call_raises_is_raised():
    async def fail() -> None:
        raise ValueError("nonsense")

    with pytest.raises(ValueError, match="nonsense"):
        await within(5.0, fail())


async def test_cancelling_the_wait_ends_the_call():
    entered, ends = asyncio.Event(), []

    async def call() -> None:
        entered.set()
        try:
            await asyncio.Event().wait()
        finally:
            ends.append(True)

    waiting = asyncio.create_task(within(5.0, call()))
    await entered.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert ends == [True]
