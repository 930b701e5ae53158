"""Appending lines to a record file, a buffer at a time: few system calls, never older than half a second."""

import asyncio
from pathlib import Path
from typing import Final

from lab.workloads.process import WorkloadError

FLUSH_SECONDS: Final = 0.4
"""Seconds between flushes. Under the promised 0.5, with room for a late timer."""

MAX_BUFFERED_LINES: Final = 4096


class RecordWriter:
    """Appends lines to `path`; without a path it drops them. The formats are in `lab/latency_records.py`.

    Raises WorkloadError when the file cannot be opened or written.
    """

    def __init__(self, path: Path | None) -> None:
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        try:
            self._file = None if path is None else path.open("ab")
            if path is not None and _ends_in_cut_line(path):
                self._lines.append("\n")
        except OSError as error:
            raise WorkloadError(f"cannot open record file {path}: {error.strerror}") from error

    def add_request(self, scheduled_unix_seconds: float, latency_seconds: float, status: str) -> None:
        """Append one request line."""
        self._add(f'[{scheduled_unix_seconds:.6f},{latency_seconds:.6f},"{status}"]\n')

    def add_work(self, at_unix_seconds: float, work: int) -> None:
        """Append one line of cumulative work."""
        self._add(f'{{"at":{at_unix_seconds:.6f},"work":{work}}}\n')

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Flush every FLUSH_SECONDS from now on."""
        self.flush()
        if self._file is not None:
            self._timer = loop.call_later(FLUSH_SECONDS, self.start, loop)

    def flush(self) -> None:
        """Hand everything buffered to the kernel, in one write and only whole lines."""
        if self._file is None or not self._lines:
            return
        try:
            self._file.write("".join(self._lines).encode())
            self._file.flush()
        except OSError as error:
            raise WorkloadError(f"cannot write record file {self._file.name}: {error.strerror}") from error
        self._lines.clear()

    def close(self) -> None:
        """Flush for the last time and close."""
        if self._timer is not None:
            self._timer.cancel()
        self.flush()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _add(self, line: str) -> None:
        if self._file is None:
            return
        self._lines.append(line)
        if len(self._lines) >= MAX_BUFFERED_LINES:
            self.flush()


def _ends_in_cut_line(path: Path) -> bool:
    """Whether an earlier writer died within a line, which the next line must not be glued to."""
    with path.open("rb") as file:
        if file.seek(0, 2) == 0:
            return False
        file.seek(-1, 2)
        return file.read(1) != b"\n"
