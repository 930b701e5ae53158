"""How a kernel file is read: whole, unbuffered, bounded, as text that keeps any byte.

Kernel files have no size until they are read and may fail between open and read, so `open()` with its stat, buffer and
decoder costs more than twice as much and helps nothing.
"""

import errno
import os
from typing import Final

CHUNK_BYTES: Final = 4096
"""One read: a page, which holds every per-group file."""

MAX_BYTES: Final = 16 * 1024 * 1024
"""Largest file taken: `/proc/schedstat` of 4096 CPUs stays below it; more is a mistaken path."""


def read_text(path: str) -> str:
    """The whole file at `path`. Raises OSError as the kernel gives it, and EFBIG above MAX_BYTES."""
    return _read_and_close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))


def read_at(name: str, dir_fd: int) -> str:
    """The whole file `name` in the open directory, never through a symbolic link (ELOOP). Raises as `read_text`."""
    return _read_and_close(os.open(name, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=dir_fd))


def _read_and_close(fd: int) -> str:
    try:
        # A short read is not the end: sequence files return fewer bytes than asked for whenever the next record
        # does not fit. Only an empty read is.
        raw = os.read(fd, CHUNK_BYTES)
        if raw:
            while more := os.read(fd, CHUNK_BYTES if len(raw) < CHUNK_BYTES else 16 * CHUNK_BYTES):
                raw += more
                if len(raw) > MAX_BYTES:
                    raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
    finally:
        os.close(fd)
    return raw.decode("utf-8", "surrogateescape")
