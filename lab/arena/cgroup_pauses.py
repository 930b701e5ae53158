"""Owns when this machine stood still: a virtual one on a busy host does, and then every latency in it is the host's."""

import contextlib
import os
import threading
import time
from collections.abc import Sequence
from typing import Final, Self

from lab.latency_records import RequestRecord

Pause = tuple[float, float]
"""From when to when, in Unix seconds."""

_NAP_SECONDS: Final = 0.005
PAUSE_SECONDS: Final = 0.03
"""How late a thread that comes before all others must wake for a pause: a few ticks of a 100 Hz kernel."""

_GUARD_SECONDS: Final = 0.05
_LONGEST_GUARD_SECONDS: Final = 1.0


class PauseWatch:
    """A thread of real-time priority that naps and notes when it wakes far too late. Where it may not have that
    priority it watches nothing, and `works` is False: late wakes would be the load's as well.
    """

    def __init__(self) -> None:
        self.pauses: list[Pause] = []
        self.works = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="pauses", daemon=True)

    def __enter__(self) -> Self:
        """Begins to watch."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Ends."""
        self._stopping.set()
        self._thread.join()

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))  # 0: this thread alone
            self.works = True
        last = time.time()
        while self.works and not self._stopping.is_set():
            time.sleep(_NAP_SECONDS)
            now = time.time()
            if now - last > _NAP_SECONDS + PAUSE_SECONDS:
                self.pauses.append((last, now))
            last = now


def outside(records: Sequence[RequestRecord], pauses: Sequence[Pause]) -> list[RequestRecord]:
    """The requests that were not due in a pause, shortly before one, or so soon after one that what had piled up in it
    was still there (as long again, up to a second). Only when a request was due decides, and not how long it took:
    leaving out the slow ones would make any machine fast.
    """
    spans = [
        (start - _GUARD_SECONDS, end + min(_LONGEST_GUARD_SECONDS, _GUARD_SECONDS + end - start))
        for start, end in pauses
    ]
    return [
        record for record in records if not any(start <= record.scheduled_unix_seconds <= end for start, end in spans)
    ]
