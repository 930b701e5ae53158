# ruff: noqa: INP001 - a script of an image, no part of a package
"""Docker's health check: exit code 0 if the service on this port answers /healthz with 200. Kubernetes asks itself."""

import socket
import sys
from typing import Final

TIMEOUT_SECONDS: Final = 2.0


def is_healthy(port: int) -> bool:
    """Whether the process on loopback says that its loop turns. Never raises for one that does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS) as connection:
            connection.sendall(b"GET /healthz HTTP/1.0\r\n\r\n")
            return connection.makefile("rb").readline().split(b" ")[1:2] == [b"200"]
    except OSError:
        return False


if __name__ == "__main__":
    sys.exit(0 if is_healthy(int(sys.argv[1])) else 1)
