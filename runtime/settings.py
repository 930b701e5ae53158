"""The settings of the runtime itself: bus, HTTP ports, logs, and where the kernel's files are."""

import re
from typing import Annotated, Literal

from msgspec import Meta

from schemas.settings import Seconds, Section, SettingsError
from schemas.subjects import SERVICES

SECRET_FIELDS = frozenset({"password", "token"})
"""Names of settings whose values are never printed."""

_USERINFO = re.compile(r"(^|//)((?!//).)*@")  # up to the last @ before the next address: a password may hold one


def mask_url(url: str) -> str:
    """The URL, or several separated by commas, without users and passwords."""
    return _USERINFO.sub(r"\1***@", url)


class BusSettings(Section, frozen=True, kw_only=True):
    """How to reach NATS."""

    url: str = "nats://127.0.0.1:4222"
    """Server address, or several separated by commas. Loopback, since that is where a sidecar or `trimtab up` is."""

    user: str | None = None
    password: str | None = None
    token: str | None = None
    """Credentials, where the server wants them; better a file:"""

    nkey_seed_file: str | None = None
    """File with the seed of an NKey, as `trimtab creds init` makes it. `{service}` in it is the service's name, or
    `operator` for the verbs of `trimtab`: one configuration then serves all five."""

    credentials_file: str | None = None
    """File with a user's JWT and seed (`.creds`), for servers with accounts; `{service}` as above."""

    inbox_prefix: str | None = None
    """Where answers arrive: the subject that this credential alone may read; `{service}` as above. None: one by the
    connection's name, for servers without permissions."""

    tls_ca_file: str | None = None
    """PEM file with the certificates that may vouch for the server. Setting it makes TLS a must: a server that offers
    none is refused. None: TLS only if the server asks for it, with the system's certificates."""

    tls_cert_file: str | None = None
    """PEM file with our own certificate, for servers that want one."""

    tls_key_file: str | None = None
    """Its key. None: it is in the same file."""

    tls_server_name: str | None = None
    """The name that the server's certificate must bear. None: the one in `url`."""

    connect_timeout_seconds: Seconds = 10.0
    """Seconds to wait for the first connection before giving up. 10: a server that starts beside us is up by then."""

    reconnect_wait_seconds: Seconds = 0.5
    """Seconds between attempts to connect again. 0.5: well inside a tick."""

    request_timeout_seconds: Seconds = 5.0
    """Seconds to wait for JetStream's answers."""

    declare_streams: bool = True
    """Make missing streams at start. Off where an operator owns them and this account may not."""


class HttpSettings(Section, frozen=True, kw_only=True):
    """Where /healthz, /readyz and /metrics are served."""

    host: str = "127.0.0.1"
    """Address to listen on. Loopback; in a pod set 0.0.0.0 so that the kubelet's probes reach it."""

    base_port: Annotated[int, Meta(ge=0, le=65_530)] = 9401
    """Port of the collector; the others follow in order (decider +1, guard +2, actuator +3, rewarder +4). 0: any."""

    def port_of(self, service: str) -> int:
        """The port of one service; 0 means that the system picks one."""
        return self.base_port + SERVICES.index(service) if self.base_port else 0


class LogSettings(Section, frozen=True, kw_only=True):
    """What is logged and how."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity logged."""

    format: Literal["auto", "json", "console"] = "auto"
    """`auto`: console lines on a terminal, JSON otherwise."""


class HostSettings(Section, frozen=True, kw_only=True):
    """Where this node's kernel files are."""

    cgroup_root: str | None = None
    """The cgroup2 mount. None: found from mountinfo, and refused unless the cpu controller is there."""

    proc_root: str = "/proc"
    """The proc mount of the host."""

    pods_root: str | None = None
    """Group below `cgroup_root` that holds the pods; nothing outside it is ever written. None: found."""

    simulated: bool = False
    """The files belong to a simulated node (`lab/simnode.py`): skip the check that they are a cgroup2 file system."""

    def check(self) -> None:
        """Raises SettingsError for a pods root that leaves the cgroup root."""
        if self.pods_root is not None:
            parts = self.pods_root.split("/")
            if self.pods_root.startswith("/") or any(part in ("", ".", "..") for part in parts):
                raise SettingsError(
                    f"host.pods_root: {self.pods_root!r} must be a path below the cgroup root, like kubepods.slice"
                )
