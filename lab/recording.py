"""A recording of the bus: one JSON line per message, in the order in which it was heard."""

from pathlib import Path

import msgspec

from runtime.bus import Received


class Recording:
    """Appends `{"at": unix_ns, "subject": …, "message": {…}}` lines; readable while it grows."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab")
        self.messages = 0

    def add(self, received: Received, at_ns: int) -> None:
        """Adds one message; what is no JSON is kept as text."""
        try:
            message: object = msgspec.json.decode(received.payload)
        except msgspec.DecodeError:
            message = received.payload.decode("utf-8", "replace")
        line = msgspec.json.encode({"at": at_ns, "subject": received.subject, "message": message})
        self._file.write(line + b"\n")
        self._file.flush()
        self.messages += 1

    def close(self) -> None:
        """Closes the file."""
        self._file.close()
