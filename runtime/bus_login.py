"""Who we are to the NATS server and how we know it: keys, JWT, TLS and the private inbox, from its settings."""

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runtime.errors import BusUnreachable, ConfigError
from runtime.nkeys import UserKey
from runtime.settings import BusSettings, mask_url
from schemas.subjects import SERVICES

_INBOX: Final = re.compile(r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*")
_BLOCK: Final = "-----BEGIN {0}-----\\s+(\\S+)\\s+-+END {0}-+"  # a .creds file closes its blocks with six dashes
_SERVICE: Final = "{service}"
_OPERATOR: Final = "operator"
REFUSED: Final = "Authorization Violation"
NO_TLS: Final = "the server offers no TLS"


@dataclass(frozen=True)
class Login:
    """What nats-py is given. Without a `sign` there is no key."""

    inbox_prefix: str
    public_key: str | None = None
    sign: Callable[[str], bytes] | None = None
    jwt: Callable[[], bytes] | None = None
    tls: ssl.SSLContext | None = None
    server_name: str | None = None


def log_in(settings: BusSettings, name: str) -> Login:
    """Reads the files that the settings name. Raises ConfigError: which setting, what is wrong, the way out.

    `name` is the connection's, `trimtab-<service>-<node>` or `trimtab-<verb>`. In `bus.nkey_seed_file`,
    `bus.credentials_file` and `bus.inbox_prefix`, `{service}` is that service, or `operator` for a verb.
    """
    who = _who(name)
    key: UserKey | None = None
    jwt: bytes | None = None
    if settings.nkey_seed_file is not None and settings.credentials_file is not None:
        raise ConfigError("bus.credentials_file: is set beside bus.nkey_seed_file; keep the one that the server knows")
    if settings.nkey_seed_file is not None:
        path = settings.nkey_seed_file.replace(_SERVICE, who)
        text = _read("bus.nkey_seed_file", path)
        key = _key("bus.nkey_seed_file", path, text.strip())
    elif settings.credentials_file is not None:
        path = settings.credentials_file.replace(_SERVICE, who)
        text = _read("bus.credentials_file", path)
        jwt = _block("NATS USER JWT", path, text).encode()
        key = _key("bus.credentials_file", path, _block("USER NKEY SEED", path, text))
    return Login(
        inbox_prefix=_inbox_prefix(settings, name, who),
        public_key=key.public if key is not None and jwt is None else None,
        sign=key.sign if key is not None else None,
        jwt=None if jwt is None else lambda: jwt,
        tls=_tls(settings),
        server_name=settings.tls_server_name,
    )


def _who(name: str) -> str:
    first = name.removeprefix("trimtab-").partition("-")[0]
    return first if first in SERVICES else _OPERATOR


def _inbox_prefix(settings: BusSettings, name: str, who: str) -> str:
    if settings.inbox_prefix is None:
        return f"_INBOX_{name.replace('-', '_').replace('.', '_')}"
    prefix = settings.inbox_prefix.replace(_SERVICE, who)
    if not _INBOX.fullmatch(prefix):
        raise ConfigError(
            f"bus.inbox_prefix: {prefix!r} cannot begin a subject; use letters, digits, '-' and '_', like _INBOX_{who}"
        )
    return prefix


def _read(setting: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{setting}: {path}: {error.strerror}; name a file that this user may read") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{setting}: {path}: is not a text; {_files_are(setting)}") from error


def _key(setting: str, path: str, seed: str) -> UserKey:
    try:
        return UserKey(seed)
    except ValueError as error:
        raise ConfigError(f"{setting}: {path}: holds no user's seed ({error}); {_files_are(setting)}") from error


def _block(title: str, path: str, text: str) -> str:
    found = re.search(_BLOCK.format(title), text)
    if found is None:
        raise ConfigError(f"bus.credentials_file: {path}: has no block {title!r}; {_files_are('bus.credentials_file')}")
    return found[1]


def _files_are(setting: str) -> str:
    if setting == "bus.nkey_seed_file":
        return "it must be one line that begins with SU, as `trimtab creds init` makes it"
    return "it must be a .creds file, as `nsc generate creds` makes it"


def _tls(settings: BusSettings) -> ssl.SSLContext | None:
    ca_file, cert_file, key_file = settings.tls_ca_file, settings.tls_cert_file, settings.tls_key_file
    if key_file is not None and cert_file is None:
        raise ConfigError("bus.tls_key_file: has no certificate; set bus.tls_cert_file too")
    if ca_file is None and cert_file is None:
        if settings.tls_server_name is not None:
            raise ConfigError("bus.tls_server_name: without TLS nobody proves a name; set bus.tls_ca_file too")
        return None
    try:
        context = ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(_tls_trouble("bus.tls_ca_file", ca_file, error, "certificates in PEM")) from error
    if cert_file is not None:
        try:
            context.load_cert_chain(cert_file, key_file)
        except OSError as error:
            names = cert_file if key_file is None else f"{cert_file}, {key_file}"
            wanted = "a certificate and its key in PEM (bus.tls_key_file, where the key has a file of its own)"
            raise ConfigError(_tls_trouble("bus.tls_cert_file", names, error, wanted)) from error
    return context


def _tls_trouble(setting: str, path: str | None, error: OSError, wanted: str) -> str:
    if isinstance(error, ssl.SSLError):
        return f"{setting}: {path}: cannot be used ({error.reason or error}); it must hold {wanted}"
    return f"{setting}: {path}: {error.strerror}; name a file that this user may read, with {wanted}"


def unreachable(settings: BusSettings, reason: str, login: Login) -> BusUnreachable:
    """The error for a connection that did not come about, from the last reason that was heard."""
    where = mask_url(settings.url)
    if REFUSED in reason and login.public_key is not None:
        return BusUnreachable(
            f"bus.nkey_seed_file: {where} does not know the key {login.public_key}; give the server this user, or name "
            f"the file that the server's configuration was made with"
        )
    if REFUSED in reason:
        return BusUnreachable(
            f"bus.url: {where} refuses these credentials ({reason}); "
            f"set bus.nkey_seed_file, bus.credentials_file, bus.user and bus.password, or bus.token"
        )
    if NO_TLS in reason:
        return BusUnreachable(
            f"bus.tls_ca_file: {where} offers no TLS, and nothing was said to it; "
            f"configure TLS there, or unset bus.tls_*"
        )
    if "CERTIFICATE_VERIFY_FAILED" in reason:
        return BusUnreachable(
            f"bus.tls_ca_file: {where} is not trusted ({_tls_words(reason)}); name the CA that signed its certificate, "
            f"and in bus.url (or bus.tls_server_name) a name that the certificate bears"
        )
    return BusUnreachable(
        f"bus.url: no NATS server at {where} within {settings.connect_timeout_seconds:g} s ({reason}); "
        f"start one (nats-server -js), or set --nats-url"
    )


def _tls_words(reason: str) -> str:
    """OpenSSL's own words out of Python's: `… certificate verify failed: unable to get … (_ssl.c:1006)`."""
    return reason.rpartition("failed: ")[2].partition(" (_ssl")[0]
