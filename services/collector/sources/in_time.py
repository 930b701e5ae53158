"""Other people's programs under a time limit: the client's library waits for a login program for ever."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path


def in_time(work: Callable[[], object], seconds: float) -> None:
    """Does the work in a thread of its own and waits for it; raises what it raises. After so many seconds it raises
    TimeoutError and ends the programs that the work has started, with which its thread ends too.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - it is raised again, by whoever waits
            errors.append(error)

    thread = threading.Thread(target=run, name="login", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        _end_children_of(thread)
        raise TimeoutError(f"not done in {seconds:g} s")
    for error in errors:
        raise error


def _end_children_of(thread: threading.Thread) -> None:
    """Ends the processes that this thread has started (proc(5): /proc/<pid>/task/<tid>/children)."""
    with suppress(OSError, ValueError):  # a kernel without that file: they are left alone
        for child in Path(f"/proc/self/task/{thread.native_id}/children").read_text(encoding="ascii").split():
            os.kill(int(child), signal.SIGKILL)
