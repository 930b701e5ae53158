"""`trimtab creds`: makes, shows and puts to use one credential per service, with least permissions (docs/access.md)."""

import argparse
import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from cli.certificates import Pair, check_host, make_ca, make_server
from cli.server_files import ACCESS, PORT, SERVER, TLS, access_text, server_text, tls_folder_in
from cli.tail import add_bus_flags, bus_settings, notice_of_waiting
from runtime.access import ADMIN, PEOPLE, Access, access_of
from runtime.errors import ConfigError
from runtime.nats_bus import connect, ignore_events
from runtime.nkeys import UserKey, new_seed
from runtime.settings import BusSettings
from runtime.streams import KEY_VALUES, OBJECTS, STREAMS
from schemas.subjects import SERVICES, node_name, node_token

_SEED: Final = ".seed"
_CA: Final = ("ca.pem", "ca.key")
_TLS: Final = (*_CA, *TLS)
_LOOPBACK: Final = "127.0.0.1"
_ALWAYS: Final = ("localhost", _LOOPBACK, "::1")
"""Names that every server certificate bears."""


@dataclass(frozen=True)
class Credential:
    """A key and what it may do."""

    access: Access
    seed: str

    @property
    def public_key(self) -> str:
        """What the server knows it by."""
        return UserKey(self.seed).public


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The verb's own verbs and their flags."""
    verbs = parser.add_subparsers(dest="creds_verb", required=True, metavar="VERB")
    init = verbs.add_parser("init", help="make keys, certificates and the server's configuration")
    init.add_argument("dir", type=Path, metavar="DIR", help="folder for them, for the owner alone")
    init.add_argument("--node", action="append", default=[], metavar="NAME", help="credentials of one node; repeatable")
    init.add_argument("--host", action="append", default=[], metavar="NAME", help="name of the server; repeatable")
    init.add_argument("--no-tls", action="store_true", help="no certificates: the server stays on loopback")
    again = init.add_mutually_exclusive_group()
    again.add_argument("--force", action="store_true", help="throw away what is there: every key becomes another")
    again.add_argument("--keep-keys", action="store_true", help="keep keys and CA; the rest anew, and what is missing")
    init.set_defaults(run=run_init)
    show = verbs.add_parser("show", help="list credentials and what each may do")
    show.add_argument("dir", type=Path, metavar="DIR")
    show.add_argument("-o", "--output", choices=["table", "json", "jsonl"], default="table")
    show.set_defaults(run=run_show)
    declare = verbs.add_parser("declare", help="make the streams with the admin's credential")
    declare.add_argument("dir", type=Path, metavar="DIR")
    add_bus_flags(declare)
    declare.set_defaults(run=run_declare)


# ---- init ------------------------------------------------------------------------------------------------------------


def run_init(args: argparse.Namespace) -> int:
    """Makes everything before it writes anything."""
    folder: Path = args.dir.absolute()
    hosts = list(dict.fromkeys([*_ALWAYS, *args.host]))
    for host in hosts:
        check_host(host)
    if args.no_tls and args.host:
        raise ConfigError("flag --host: names the server in its certificate, and --no-tls makes none; leave one out")
    before = _existing(folder)
    left = _ours(folder)
    if left and not (args.force or args.keep_keys):
        raise ConfigError(
            f"{folder}: holds {left[0].name} and {len(left) - 1} more from before; choose another folder, --keep-keys "
            f"to add to it, or --force to throw all its keys away"
        )
    kept = before if args.keep_keys else {}
    wanted = _wanted(args.node, kept)
    credentials = [kept.get(access.name) or Credential(access, new_seed()) for access in wanted]
    files = {f"{credential.access.name}{_SEED}": f"{credential.seed}\n".encode() for credential in credentials}
    if not args.no_tls:
        files.update(_certificates(folder, hosts, keep=args.keep_keys))
    users = [(credential.access, credential.public_key) for credential in credentials]
    files[ACCESS] = access_text(users, None if args.no_tls else folder).encode()
    files[SERVER] = server_text(folder, "0.0.0.0" if args.host else _LOOPBACK).encode()  # noqa: S104 - asked for
    gone = [path for path in left if path.name not in files]
    _write(folder, files, gone)
    _tell(folder, credentials, before, gone)
    print(_settings(folder, args.host, args.node, tls=not args.no_tls))
    return 0


def _wanted(nodes: list[str], kept: dict[str, Credential]) -> list[Access]:
    try:
        tokens = {node_token(node): node for node in nodes}
    except ValueError as error:
        raise ConfigError(f"flag --node: {error}") from error
    named = [access_of(service, node) for node in tokens.values() for service in SERVICES]
    missing = [] if named or kept else [access_of(service) for service in SERVICES]
    people = [access_of(role) for role in PEOPLE]
    everyone = [credential.access for credential in kept.values()] + named + missing + people
    return sorted({access.name: access for access in everyone}.values(), key=lambda access: access.name)


def _existing(folder: Path) -> dict[str, Credential]:
    """The credentials in a folder, by name. Raises ConfigError for a file that is none."""
    found = {}
    for path in sorted(folder.glob(f"*{_SEED}")):
        role, _, token = path.stem.partition("_")
        try:
            seed = path.read_text(encoding="utf-8").strip()
            UserKey(seed)
            access = access_of(role, node_name(token) if token else None)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path}: is no credential of ours ({error}); take it out of the folder") from error
        found[access.name] = Credential(access, seed)
    return dict(sorted(found.items()))


def _ours(folder: Path) -> list[Path]:
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        return []
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}; choose a folder that this user may write") from error
    return [folder / name for name in names if name.endswith(_SEED) or name in (*_TLS, ACCESS, SERVER)]


def _certificates(folder: Path, hosts: list[str], *, keep: bool) -> dict[str, bytes]:
    certificate, key = (folder / name for name in _CA)
    if keep and certificate.exists() and key.exists():
        ca = Pair(certificate.read_bytes(), key.read_bytes())
    else:
        ca = make_ca()
    server = make_server(ca, hosts)
    return dict(zip(_TLS, (ca.certificate, ca.key, server.certificate, server.key), strict=True))


def _write(folder: Path, files: dict[str, bytes], gone: list[Path]) -> None:
    """All of it for the owner alone; each file is whole or not there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.chmod(0o700)
        for name, content in files.items():
            fresh = folder / f".{name}.new"
            fresh.unlink(missing_ok=True)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
            fresh.replace(folder / name)
        for path in gone:
            path.unlink()
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror}; choose a folder that this user may write") from error


def _tell(folder: Path, credentials: list[Credential], before: dict[str, Credential], gone: list[Path]) -> None:
    def say(text: str) -> None:
        print(f"trimtab creds: {text}", file=sys.stderr)

    for credential in credentials:
        name, old = credential.access.name, before.get(credential.access.name)
        if old is None:
            say(f"new key: {name} {credential.public_key}")
        elif old.seed != credential.seed:
            say(f"new key: {name} {credential.public_key}, the old one {old.public_key} is thrown away")
        else:
            say(f"kept: {name} {credential.public_key}")
    for path in gone:
        say(f"removed: {path.name}")
    say(f"next: nats-server -c {folder / SERVER}, then once: trimtab creds declare {folder}")
    say("then give each service its own seed and none of the others; every bus section:")


def _settings(folder: Path, hosts: list[str], nodes: list[str], *, tls: bool) -> str:
    """What to set, as YAML; `{service}` is taken literally by the settings."""
    suffix = f"_{node_token(nodes[0])}" if nodes else ""
    lines = [
        "bus:",
        f"  url: {'tls' if tls else 'nats'}://{hosts[0] if hosts else _LOOPBACK}:{PORT}",
        f"  nkey_seed_file: {json.dumps(str(folder / f'{{service}}{suffix}{_SEED}'))}",
        f'  inbox_prefix: "_INBOX_{{service}}{suffix}"',
        *([f"  tls_ca_file: {json.dumps(str(folder / _CA[0]))}"] if tls else []),
        "  declare_streams: false",
    ]
    if len(nodes) > 1:
        lines.insert(0, f"# node {nodes[0]}; the others in the same way: {', '.join(nodes[1:])}")
    return "\n".join(lines)


# ---- show, declare ---------------------------------------------------------------------------------------------------


def run_show(args: argparse.Namespace) -> int:
    """Lists what the server's configuration was made from; 1 if that configuration is another one."""
    folder: Path = args.dir.absolute()
    credentials = list(_of(folder).values())
    if args.output == "table":
        rows = [("CREDENTIAL", "MAY", "SUBJECT")]
        for credential in credentials:
            access = credential.access
            rows.append((access.name, "is", f"{credential.public_key}, bus.inbox_prefix {access.inbox_prefix}"))
            rows += [(access.name, "publish", subject) for subject in access.publish]
            rows += [(access.name, "subscribe", subject) for subject in access.subscribe]
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        print("\n".join(f"{name.ljust(widths[0])}  {may.ljust(widths[1])}  {what}" for name, may, what in rows))
    else:
        items = [_item(credential) for credential in credentials]
        print(json.dumps(items, indent=2) if args.output == "json" else "\n".join(map(json.dumps, items)))
    return _compare(folder, credentials)


def _compare(folder: Path, credentials: list[Credential]) -> int:
    """Says where the server's configuration is another than these credentials ask for, which is 1, and where it only
    looks for the server's certificate in a folder that is not here: that may be right where the server runs.
    """
    users = [(credential.access, credential.public_key) for credential in credentials]
    try:
        text = (folder / ACCESS).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        text = ""
    tls_folder = tls_folder_in(text)
    anew = f"`trimtab creds init {folder} --keep-keys`, with the flags of before, makes it anew"
    if text != access_text(users, tls_folder):
        print(
            f"trimtab creds show: {folder / ACCESS} says something else; {anew}, then have the server reload",
            file=sys.stderr,
        )
        return 1
    missing = [] if tls_folder is None else [str(path) for name in TLS if not os.path.exists(path := tls_folder / name)]
    if missing:
        print(
            f"trimtab creds show: {folder / ACCESS} is right but for its place: it names {' and '.join(missing)}, not "
            f"to be found here; if the server runs on this machine, {anew}",
            file=sys.stderr,
        )
    return 0


def _item(credential: Credential) -> dict[str, object]:
    access = credential.access
    return {
        "name": access.name,
        "public_key": credential.public_key,
        "inbox_prefix": access.inbox_prefix,
        "publish": access.publish,
        "subscribe": access.subscribe,
    }


def _of(folder: Path) -> dict[str, Credential]:
    found = _existing(folder)
    if not found:
        raise ConfigError(f"{folder}: holds no credentials; make some with `trimtab creds init {folder}`")
    return found


def run_declare(args: argparse.Namespace) -> int:
    """Makes missing streams and buckets on the server, as the admin."""
    folder: Path = args.dir.absolute()
    admin = _of(folder).get(ADMIN)
    if admin is None:
        raise ConfigError(f"{folder}: holds no {ADMIN}{_SEED}, which alone may make streams; use the folder that does")
    ca = folder / _CA[0]
    found = bus_settings(args)
    settings = msgspec.structs.replace(
        found,
        nkey_seed_file=str(folder / f"{ADMIN}{_SEED}"),
        credentials_file=None,
        inbox_prefix=admin.access.inbox_prefix,
        tls_ca_file=str(ca) if ca.exists() else found.tls_ca_file,
        declare_streams=True,
    )
    asyncio.run(_declare(settings))
    names = [stream.name for stream in STREAMS] + list(KEY_VALUES) + list(OBJECTS)
    print("\n".join(names))
    return 0


async def _declare(settings: BusSettings) -> None:
    notice = notice_of_waiting(settings, "creds declare")
    bus = await connect(settings, "trimtab-creds", ignore_events)
    notice.cancel()
    await bus.close()
