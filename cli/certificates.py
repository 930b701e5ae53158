"""A certificate authority of one's own and the server certificate that it signs, made by the `openssl` program."""

import ipaddress
import re
import secrets
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from runtime.errors import ConfigError, HostError

_DAYS: Final = 3650
"""Ten years: the loop must not stop on a day that nobody remembers. `--keep-keys` makes the server's anew."""
_SECONDS: Final = 30.0
_HOST_NAME: Final = re.compile(r"(?=.{1,253}\Z)(?:\*\.)?[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*")
_CONFIG: Final = """\
[req]
distinguished_name = name
prompt = no
[name]
CN = {name}
[ca]
basicConstraints = critical, CA:TRUE, pathlen:0
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = {names}
"""


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, in PEM."""

    certificate: bytes
    key: bytes


def check_host(name: str) -> None:
    """Raises ConfigError for what can stand in no certificate."""
    if not _is_address(name) and not _HOST_NAME.fullmatch(name):
        raise ConfigError(f"flag --host: {name!r} is neither a host's name nor an address; leave out scheme and port")


def make_ca() -> Pair:
    """A new authority. Raises HostError."""
    with tempfile.TemporaryDirectory(prefix="trimtab-ca-") as folder:
        key = _new_key(folder, "ca.key")
        config = _config(folder, "trimtab certificate authority", "DNS:unused")
        request = ["-new", "-x509", "-sha256", "-key", "ca.key", "-config", config, "-extensions", "ca"]
        _openssl(folder, "req", *request, *_lifetime(), "-out", "ca.pem")
        return Pair(Path(folder, "ca.pem").read_bytes(), key)


def make_server(ca: Pair, hosts: list[str]) -> Pair:
    """A new key and certificate for a server that answers to these names and addresses. Raises HostError."""
    with tempfile.TemporaryDirectory(prefix="trimtab-server-") as folder:
        _write(folder, "ca.pem", ca.certificate)
        _write(folder, "ca.key", ca.key)
        key = _new_key(folder, "server.key")
        names = ", ".join(f"{'IP' if _is_address(host) else 'DNS'}:{host}" for host in hosts)
        config = _config(folder, "trimtab nats-server", names)
        _openssl(folder, "req", "-new", "-sha256", "-key", "server.key", "-config", config, "-out", "server.csr")
        authority = ["-CA", "ca.pem", "-CAkey", "ca.key", *_lifetime()]
        extensions = ["-extfile", config, "-extensions", "server"]
        _openssl(folder, "x509", "-req", "-sha256", "-in", "server.csr", *authority, *extensions, "-out", "server.pem")
        return Pair(Path(folder, "server.pem").read_bytes(), key)


def _lifetime() -> list[str]:
    return ["-days", str(_DAYS), "-set_serial", f"0x{secrets.token_hex(15)}"]


def _new_key(folder: str, name: str) -> bytes:
    _openssl(folder, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", name)
    return Path(folder, name).read_bytes()


def _config(folder: str, name: str, names: str) -> str:
    _write(folder, "openssl.cnf", _CONFIG.format(name=name, names=names).encode())
    return "openssl.cnf"


def _write(folder: str, name: str, content: bytes) -> None:
    Path(folder, name).write_bytes(content)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _openssl(folder: str, *arguments: str) -> None:
    program = shutil.which("openssl")
    if program is None:
        raise HostError(
            "no openssl on PATH, which makes the certificates; install it (Debian: apt-get install openssl), or give "
            "--no-tls and keep the server on loopback"
        )
    try:
        subprocess.run([program, *arguments], cwd=folder, check=True, capture_output=True, timeout=_SECONDS)
    except subprocess.CalledProcessError as error:
        words = error.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise HostError(f"openssl {arguments[0]}: {words or 'it said nothing'}; update it, or give --no-tls") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(f"openssl {arguments[0]}: {error}; try again, or give --no-tls") from error
