"""Orders where the bus has credentials: the environment of `deploy/overlays/secured`, a real server, a live guard.

What docs/access.md tells people to type, typed. In a container only its service's seed lies; the operator's comes by hand.
"""

import asyncio
import json
import os
import shutil
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import yaml

from cli.__main__ import main
from runtime.nats_server import EmbeddedServer

DEPLOY = Path(__file__).parents[3] / "deploy"
NODE = "worker-3.eu"
DEADLINE_SECONDS = 60.0
WAIT = ("--wait", "30")
"""An effect that comes ends the wait."""

pytestmark = pytest.mark.timeout(180)


def container_environment(service: str, folder: Path, url: str) -> dict[str, str]:
    """What the overlay sets in a service's container, whose mount is `folder` here."""
    patch = yaml.safe_load((DEPLOY / "overlays/secured/agent.yaml").read_text())
    container = next(one for one in patch["spec"]["template"]["spec"]["containers"] if one["name"] == service)
    (mount,) = container["volumeMounts"]
    given = {one["name"]: one["value"].replace(mount["mountPath"], str(folder)) for one in container["env"]}
    clean = {name: text for name, text in os.environ.items() if not name.startswith("TRIMTAB_")}
    return {**clean, **given, "TRIMTAB_BUS__URL": url, "TRIMTAB_NODE": NODE, "TRIMTAB_HTTP__BASE_PORT": "0"}


async def trimtab(*words: str, env: dict[str, str], stdin: bytes = b"") -> tuple[int, str, str]:
    """A verb, run to its end."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "cli", *words),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
    )
    async with asyncio.timeout(DEADLINE_SECONDS):
        out, err = await process.communicate(stdin)
    return process.returncode or 0, out.decode(), err.decode()


async def test_with_the_operators_seed_on_standard_input_a_container_gives_orders(tmp_path, capsys):
    creds, mounted = tmp_path / "creds", tmp_path / "mounted"
    assert main(["creds", "init", str(creds), "--host", "trimtab-nats.trimtab.svc", "--host", "127.0.0.1"]) == 0
    mounted.mkdir()
    for name in ("ca.pem", "guard.seed"):
        shutil.copy(creds / name, mounted)
    seed = (creds / "operator.seed").read_bytes()
    async with AsyncExitStack() as stack:
        server = EmbeddedServer(tmp_path / "nats", access=creds / "access.conf")
        url = await server.start()
        stack.push_async_callback(server.stop)
        assert await asyncio.to_thread(main, ["creds", "declare", str(creds), "--nats-url", url]) == 0
        env = container_environment("guard", mounted, url)
        guard = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "services.guard"), env=env, stderr=asyncio.subprocess.PIPE
        )
        stack.push_async_callback(guard.wait)
        stack.callback(guard.kill)
        assert guard.stderr is not None
        async with asyncio.timeout(DEADLINE_SECONDS):
            while json.loads(await guard.stderr.readline())["event"] != "started":
                pass

        code, out, err = await trimtab("mode", env=env)
        assert (code, out) == (2, "")
        assert "verbs speak as the operator" in err

        handed_in = {**env, "TRIMTAB_BUS__NKEY_SEED_FILE": "/dev/stdin"}
        words = ("mode", "active", "--node", NODE, "--reason", "a trial", "-o", "jsonl", *WAIT)
        code, out, err = await trimtab(*words, env=handed_in, stdin=seed)
        assert (code, err) == (0, "")
        assert json.loads(out)["outcome"] == "in_force"

        at_a_desk = {name: text for name, text in env.items() if not name.startswith("TRIMTAB_")} | {
            "TRIMTAB_BUS__URL": url,
            "TRIMTAB_BUS__TLS_CA_FILE": str(creds / "ca.pem"),
            "TRIMTAB_BUS__NKEY_SEED_FILE": str(creds / "operator.seed"),
            "TRIMTAB_BUS__INBOX_PREFIX": "_INBOX_operator",
        }
        code, out, err = await trimtab("mode", "--node", NODE, "-o", "jsonl", env=at_a_desk)
        assert (code, err) == (0, "")
        shown = json.loads(out)
        assert (shown["mode"], shown["ordered"], shown["reason"]) == ("active", "active", "a trial")

        code, out, err = await trimtab("freeze", "out", "--node", NODE, "-o", "jsonl", *WAIT, env=at_a_desk)
        assert (code, err, json.loads(out)["outcome"]) == (0, "", "in_force")
