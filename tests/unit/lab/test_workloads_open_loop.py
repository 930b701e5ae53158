import asyncio
import selectors

import pytest

from lab.workloads.open_loop import OpenLoop


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self):
        self.now = 1000.0
        loop = self

        class Selector(selectors.SelectSelector):
            def select(self, timeout=None):
                loop.now += timeout or 0.0
                return super().select(0)

        super().__init__(Selector())

    def time(self):
        return self.now


def play(arrivals, start_request, script=lambda loop, open_loop: None):
    async def body():
        loop = asyncio.get_running_loop()
        started = []

        def start(due):
            started.append((due - 1000.0, loop.time() - 1000.0))
            start_request(loop)

        open_loop = OpenLoop(iter(arrivals), start)
        script(loop, open_loop)
        open_loop.start()
        await open_loop.finished.wait()
        return started, open_loop

    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(body())


def test_every_request_is_started_when_it_is_due():
    started, open_loop = play([0.25, 0.5, 3.0], lambda loop: None)
    assert [due for due, _ in started] == pytest.approx([0.25, 0.5, 3.0])
    assert [at for _, at in started] == pytest.approx([0.25, 0.5, 3.0])
    assert open_loop.max_lag_seconds == pytest.approx(0, abs=1e-6)


def test_requests_that_came_late_are_all_started_with_the_time_they_were_due():
    def starve_once(loop):
        if loop.now < 1000.6:
            loop.now += 1.0

    started, open_loop = play([0.5, 0.6, 0.7, 1.4, 9.0], starve_once)
    assert [due for due, _ in started] == pytest.approx([0.5, 0.6, 0.7, 1.4, 9.0])
    assert [at for _, at in started] == pytest.approx([0.5, 1.5, 1.5, 1.5, 9.0])
    assert open_loop.max_lag_seconds == pytest.approx(0.9)


def test_a_pause_leaves_arrivals_out_and_the_schedule_goes_on():
    def pause_from_one_to_three(loop, open_loop):
        loop.call_at(1001.0, open_loop.pause)
        loop.call_at(1003.0, open_loop.resume)

    started, open_loop = play([0.5, 1.5, 2.5, 3.5, 4.5], lambda loop: None, pause_from_one_to_three)
    assert [at for _, at in started] == pytest.approx([0.5, 3.5, 4.5])
    assert open_loop.started_requests == 3


def test_what_was_due_before_a_pause_is_sent_although_the_signal_came_first():
    def late_pause(loop, open_loop):
        def pause():
            loop.now += 1.0  # the loop was kept from its CPU; 1.5 and 1.9 are overdue
            open_loop.pause()

        loop.call_at(1001.0, pause)

    started, _ = play([0.5, 1.5, 1.9, 2.5], lambda loop: None, late_pause)
    assert [due for due, _ in started] == pytest.approx([0.5, 1.5, 1.9])


def test_a_loop_that_was_stopped_starts_no_more():
    started, _ = play([0.5, 1.5, 2.5], lambda loop: None, lambda loop, open_loop: loop.call_at(1001.0, open_loop.stop))
    assert [due for due, _ in started] == pytest.approx([0.5])


def test_a_schedule_without_arrivals_is_finished_at_once():
    assert play([], lambda loop: None)[0] == []
