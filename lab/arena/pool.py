"""Owns the processes that a bench's runs are played in: how many at once, and what happens when one dies."""

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from lab.arena.bench import Failed, Heard, Job, Outcome, Player, attempt

if TYPE_CHECKING:
    from collections.abc import Iterator

_DIED: Final = "the process that played it died (out of memory, or killed)"

_ONE_THREAD: Final = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)
"""Each process computes with one thread: there are as many processes as CPUs already."""


def play_in_processes(jobs: Iterable[Job], player: Player, heard: Heard, workers: int) -> None:
    """Plays in `workers` processes (spawned, one thread each), in order, and tells of every outcome as it comes.

    `player` must be importable by name. A process that dies costs the run that killed it: those under way at that
    moment are each played once more, alone. At an interrupt, or any error of `heard`, all processes are ended.
    """
    waiting = deque(jobs)
    while waiting:
        for suspect in _play_some(waiting, player, heard, workers):
            if _play_some(deque([suspect]), player, heard, 1):
                heard(suspect, Failed(_DIED))


def _play_some(waiting: deque[Job], player: Player, heard: Heard, workers: int) -> list[Job]:
    """Plays from the front until none waits, or until a process died: the runs that were under way then."""
    running: dict[Future[Outcome], Job] = {}
    lost: list[Job] = []
    with _pool(workers) as pool:
        while (waiting and not lost) or running:
            while waiting and not lost and len(running) < workers:
                try:
                    future = pool.submit(attempt, player, waiting[0])
                except BrokenProcessPool:
                    if not running:
                        return lost
                    break
                running[future] = waiting.popleft()
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job = running.pop(future)
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    lost.append(job)
                else:
                    heard(job, future.result() if error is None else Failed(f"{type(error).__name__}: {error}"))
    return lost


@contextmanager
def _pool(workers: int) -> "Iterator[ProcessPoolExecutor]":
    """A pool whose processes are gone when it is left, however that happens."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    others = set(multiprocessing.active_children())
    os.environ.update(_ONE_THREAD)
    pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)
    try:
        yield pool
    except BaseException:
        for process in set(multiprocessing.active_children()) - others:
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _begin() -> None:
    """Ctrl-C reaches every process of a terminal: the one that started these decides what it means. If that one is
    killed, these end, too: each holds both ends of the pool's pipes, so none would ever see them closed.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
