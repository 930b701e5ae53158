"""A batch child: works on one block until it is killed, counts into shared memory, dies with its parent."""

import ctypes
import hashlib
import mmap
import os
import random
import signal
import socket
import sys
import time
import zlib
from collections.abc import Callable, Mapping
from typing import Final, NoReturn

PUBLISH_SECONDS: Final = 0.1
"""Between two looks at the parent and two updates of the CPU time; blocks are counted one by one."""

_PR_SET_PDEATHSIG: Final = 1
_WORDS_PER_CHILD: Final = 8
"""Eight words of eight bytes: a cache line of its own for every child, so that counting disturbs no other."""


def compress(block: bytes) -> object:
    """Deflate the block at zlib's default level."""
    return zlib.compress(block)


def digest(block: bytes) -> object:
    """SHA-256 of the block."""
    return hashlib.sha256(block).digest()


BLOCK_WORK: Final[Mapping[str, Callable[[bytes], object]]] = {"compress": compress, "hash": digest}


class Progress:
    """What the children have done, in memory shared across fork. Each word has one writer, so there is no lock."""

    def __init__(self, children: int) -> None:
        self._words = memoryview(mmap.mmap(-1, children * _WORDS_PER_CHILD * 8)).cast("Q")

    def count(self, child: int, blocks: int) -> None:
        """The child has finished `blocks` blocks so far."""
        self._words[child * _WORDS_PER_CHILD] = blocks

    def use_cpu(self, child: int, nanoseconds: int) -> None:
        """The child has used so much CPU time so far."""
        self._words[child * _WORDS_PER_CHILD + 1] = nanoseconds

    def work(self) -> int:
        """Blocks finished by all children."""
        return sum(self._words[::_WORDS_PER_CHILD])

    def cpu_seconds(self) -> float:
        """CPU seconds of all children, at most PUBLISH_SECONDS and a block behind."""
        return sum(self._words[1::_WORDS_PER_CHILD]) / 1e9


def make_block(size_bytes: int) -> bytes:
    """A block of word-like text that compresses to about a third, the same on every machine."""
    rng = random.Random(size_bytes)  # noqa: S311  # load, not secrets
    words = [bytes(rng.choices(b"etaoinshrdlu", k=rng.randint(2, 9))) for _ in range(2000)]
    text = b" ".join(rng.choices(words, k=size_bytes // 3 + 1))
    return text[:size_bytes]


def fork_child(
    work: Callable[[bytes], object], block: bytes, progress: Progress, index: int, listener: socket.socket
) -> int:
    """Fork a child that does `work` on `block` for ever, as child number `index`. Returns its pid, in the parent only.

    Call it before any thread or event loop exists. `listener` is closed in the child, so that the port is the parent's.
    """
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            listener.close()
            _work_until_orphaned(work, block, progress, index, parent)
        except BaseException as error:  # noqa: BLE001  # nothing may unwind into the parent's code
            sys.stderr.write(f"batch child: {type(error).__name__}: {error}\n")
        finally:
            os._exit(1)
    return pid


def _work_until_orphaned(
    work: Callable[[bytes], object], block: bytes, progress: Progress, index: int, parent: int
) -> NoReturn:
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, signal.SIG_DFL)
    # Where the kernel offers no such signal, the look at the parent's pid below does alone.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    blocks = 0
    publish_at = 0.0
    while True:
        now = time.monotonic()
        if now >= publish_at:
            if os.getppid() != parent:
                os._exit(0)
            progress.use_cpu(index, time.process_time_ns())
            publish_at = now + PUBLISH_SECONDS
        work(block)
        blocks += 1
        progress.count(index, blocks)
