"""The configuration of a nats-server with one user per credential, as text."""

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from runtime.access import Access

ACCESS: Final = "access.conf"
SERVER: Final = "nats-server.conf"
CERTIFICATE, KEY = TLS = ("server.pem", "server.key")
PORT: Final = 4222


def access_text(users: Iterable[tuple[Access, str]], tls_folder: Path | None) -> str:
    """Users by their public keys, and TLS where there is a folder with the server's certificate. Nothing is secret.

    Whoever is not named may not even connect.
    """
    lines = ["# Made by `trimtab creds init`: who may connect, and what each may publish and subscribe to."]
    if tls_folder is not None:
        lines += [
            "tls {",
            f"  cert_file: {json.dumps(str(tls_folder / CERTIFICATE))}",
            f"  key_file: {json.dumps(str(tls_folder / KEY))}",
            '  min_version: "1.2"',
            "  timeout: 5",
            "}",
        ]
    lines += ["authorization {", "  timeout: 5", "  users: ["]
    for access, public_key in users:
        lines += [
            f"    # {access.name}",
            "    {",
            f"      nkey: {public_key}",
            "      permissions: {",
            *_allow("publish", access.publish),
            *_allow("subscribe", access.subscribe),
            "      }",
            "    }",
        ]
    return "\n".join([*lines, "  ]", "}", ""])


def tls_folder_in(text: str) -> Path | None:
    """The folder that an `access_text` was made with; None where it was made without TLS. It stays when files move."""
    found = re.search(r'^  cert_file: ("(?:[^"\\]|\\.)*")$', text, re.MULTILINE)
    try:
        return None if found is None else Path(json.loads(found[1])).parent
    except ValueError:  # the server knows escapes that we never write
        return None


def _allow(what: str, subjects: Sequence[str]) -> list[str]:
    assert subjects  # an empty list would allow everything
    listed = [f"          {json.dumps(subject)}" for subject in subjects]
    return [f"        {what}: {{", "          allow: [", *(f"  {line}" for line in listed), "          ]", "        }"]


def server_text(folder: Path, host: str) -> str:
    """Address, JetStream and limits; the users are included."""
    store = json.dumps(str(folder / "jetstream"))
    return "\n".join(
        [
            "# Made by `trimtab creds init`. Start: nats-server -c nats-server.conf",
            "server_name: trimtab",
            f'listen: "{host}:{PORT}"',
            "jetstream {",
            f"  store_dir: {store}",
            "  max_memory_store: 64MB",
            "  max_file_store: 4GB  # the streams may hold 3 GiB, models and modes the rest",
            "}",
            "max_payload: 1MB  # a message is at most 1 000 000 bytes",
            'write_deadline: "2s"',
            f'include "{ACCESS}"',
            "",
        ]
    )
