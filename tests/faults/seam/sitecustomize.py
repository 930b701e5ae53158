"""Loaded by Python itself in the processes under test (PYTHONPATH): a clock that jumps, a kernel that says no.

`FAULT_CLOCK` names a file with seconds to add to the wall clock. `FAULT_ERRNO` names a file with an errno's name and,
optionally, a part of a path: writes to `cpu.weight` files below it fail with that. No file: nothing is changed.
"""

import errno
import os
import time

_clock, _refusal = os.environ.get("FAULT_CLOCK"), os.environ.get("FAULT_ERRNO")
_time, _time_ns, _write = time.time, time.time_ns, os.write


def _text(path: str | None) -> str:
    try:
        with open(path or "", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def _offset() -> float:
    return float(_text(_clock) or 0.0)


def _shifted() -> float:
    return _time() + _offset()


def _shifted_ns() -> int:
    return _time_ns() + int(_offset() * 1e9)


def _refusing(descriptor: int, data: bytes) -> int:
    word, _, part = _text(_refusal).partition(" ")
    if word:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if path.endswith("/cpu.weight") and part in path:
            with open(f"{_refusal}.hit", "a", encoding="ascii") as file:
                file.write(f"{word} {path}\n")
            number = getattr(errno, word)
            raise OSError(number, os.strerror(number))
    return _write(descriptor, data)


if _clock:
    time.time, time.time_ns = _shifted, _shifted_ns
if _refusal:
    os.write = _refusing
