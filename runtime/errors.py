"""The one error tree. Every error is one line that says what, where and the way out, and has an exit code.

TrimtabError              1
├── ConfigError           2   a setting, a file or a flag is wrong
├── BusError              3
│   ├── BusUnreachable    3   no server answered in time
│   └── BusDown           3   the connection is down at the moment: nothing is queued for later
├── ServerError           4   the embedded nats-server did not start or died
├── PortInUse             5   another process listens there
└── HostError             6   this machine cannot do what was asked (cgroups, permissions)
"""

from typing import ClassVar


class TrimtabError(Exception):
    """Base of all errors that a person is meant to read."""

    exit_code: ClassVar[int] = 1


class ConfigError(TrimtabError):
    """A setting, a file or a flag is wrong."""

    exit_code = 2


class BusError(TrimtabError):
    """The message bus did not do what was asked."""

    exit_code = 3


class BusUnreachable(BusError):
    """No server answered in time."""


class BusDown(BusError):
    """The connection is down at the moment; the message was not sent and will not be sent later."""


class ServerError(TrimtabError):
    """The embedded nats-server did not start or died."""

    exit_code = 4


class PortInUse(TrimtabError):
    """Another process listens on the port."""

    exit_code = 5


class HostError(TrimtabError):
    """This machine cannot do what was asked."""

    exit_code = 6
