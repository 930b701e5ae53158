"""`trimtab creds`: what it makes, what it refuses, and what it says."""

import json
import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

import cli.certificates
from cli.__main__ import main
from cli.server_files import access_text, server_text
from runtime.access import access_of
from runtime.nkeys import UserKey

ROLES = ("actuator", "admin", "auditor", "collector", "decider", "guard", "operator", "rewarder")
TLS = {"ca.key", "ca.pem", "server.key", "server.pem"}


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def init(folder: Path, *flags: str) -> int:
    return main(["creds", "init", str(folder), *flags])


def seeds(folder: Path) -> dict[str, str]:
    return {path.stem: path.read_text() for path in folder.glob("*.seed")}


def certificate(path: Path) -> str:
    done = subprocess.run(
        ["openssl", "x509", "-in", path, "-noout", "-text"], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_each_credential_has_a_file_of_its_own_and_all_is_for_the_owner_alone(tmp_path):
    folder = tmp_path / "new" / "creds"
    old = os.umask(0)
    try:
        assert init(folder) == 0
    finally:
        os.umask(old)
    assert {path.name for path in folder.iterdir()} == {
        *(f"{role}.seed" for role in ROLES),
        *TLS,
        "access.conf",
        "nats-server.conf",
    }
    assert mode_of(folder) == 0o700
    assert {mode_of(path) for path in folder.iterdir()} == {0o600}
    assert len(set(seeds(folder).values())) == len(ROLES)


def test_a_folder_that_others_could_read_is_closed_to_them(tmp_path):
    folder = tmp_path / "creds"
    folder.mkdir()
    folder.chmod(0o755)
    assert init(folder, "--no-tls") == 0
    assert mode_of(folder) == 0o700


def test_the_servers_configuration_holds_public_keys_and_no_seed(tmp_path, capsys):
    assert init(tmp_path) == 0
    said = capsys.readouterr()
    text = (tmp_path / "access.conf").read_text() + (tmp_path / "nats-server.conf").read_text()
    for seed in seeds(tmp_path).values():
        assert f"nkey: {UserKey(seed.strip()).public}\n" in text
        assert seed.strip() not in text + said.out + said.err


def test_it_prints_what_to_set(tmp_path, capsys):
    assert init(tmp_path, "--host", "nats.internal") == 0
    assert capsys.readouterr().out == (
        "bus:\n"
        "  url: tls://nats.internal:4222\n"
        f'  nkey_seed_file: "{tmp_path}/{{service}}.seed"\n'
        '  inbox_prefix: "_INBOX_{service}"\n'
        f'  tls_ca_file: "{tmp_path}/ca.pem"\n'
        "  declare_streams: false\n"
    )


def test_what_it_prints_is_a_configuration(tmp_path, capsys):
    folder = tmp_path / 'it\'s a "folder"'
    assert init(folder, "--node", "ip-10-0-0-7.eu", "--node", "b") == 0
    path = tmp_path / "trimtab.yaml"
    path.write_text(capsys.readouterr().out)
    assert main(["up", "--config", str(path), "--print-config"]) == 0
    shown = capsys.readouterr().out
    assert 'bus.inbox_prefix: "_INBOX_{service}_ip-10-0-0-7_eu"' in shown
    assert f"bus.nkey_seed_file: {json.dumps(str(folder / '{service}_ip-10-0-0-7_eu.seed'))}" in shown


def test_without_tls_the_server_stays_on_loopback_and_there_is_no_certificate(tmp_path, capsys):
    assert init(tmp_path, "--no-tls") == 0
    assert not TLS & {path.name for path in tmp_path.iterdir()}
    assert 'listen: "127.0.0.1:4222"' in (tmp_path / "nats-server.conf").read_text()
    assert "tls" not in (tmp_path / "access.conf").read_text()
    shown = capsys.readouterr().out
    assert "  url: nats://127.0.0.1:4222\n" in shown
    assert "tls_ca_file" not in shown


def test_only_a_named_host_opens_the_server_to_others(tmp_path):
    assert init(tmp_path / "here") == 0
    assert init(tmp_path / "there", "--host", "nats.internal", "--host", "10.0.0.1") == 0
    assert 'listen: "127.0.0.1:4222"' in (tmp_path / "here" / "nats-server.conf").read_text()
    assert 'listen: "0.0.0.0:4222"' in (tmp_path / "there" / "nats-server.conf").read_text()
    names = "DNS:localhost, IP Address:127.0.0.1, IP Address:0:0:0:0:0:0:0:1, DNS:nats.internal, IP Address:10.0.0.1"
    assert names in certificate(tmp_path / "there" / "server.pem")


def test_the_server_can_vouch_for_nobody_and_the_ca_for_servers_only(tmp_path):
    assert init(tmp_path) == 0
    server, ca = certificate(tmp_path / "server.pem"), certificate(tmp_path / "ca.pem")
    assert "CA:FALSE" in server
    assert "TLS Web Server Authentication" in server
    assert "CA:TRUE, pathlen:0" in ca
    assert "Certificate Sign" in ca
    verified = subprocess.run(
        ["openssl", "verify", "-CAfile", tmp_path / "ca.pem", tmp_path / "server.pem"], capture_output=True, check=False
    )
    assert verified.returncode == 0


def test_what_is_there_is_not_overwritten(tmp_path, capsys):
    assert init(tmp_path) == 0
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert init(tmp_path) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"trimtab creds: {tmp_path}: holds access.conf and 13 more from before; choose another folder, --keep-keys to add "
        f"to it, or --force to throw all its keys away"
    )
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_force_makes_every_key_another_and_says_which(tmp_path, capsys):
    assert init(tmp_path, "--node", "a") == 0
    old = seeds(tmp_path)
    (tmp_path / "mine.txt").write_text("stays")
    capsys.readouterr()
    assert init(tmp_path, "--node", "b", "--force", "--no-tls") == 0
    new, said = seeds(tmp_path), capsys.readouterr().err
    assert set(new) == {f"{role}_b" if role not in ("admin", "auditor", "operator") else role for role in ROLES}
    assert not set(old.values()) & set(new.values())
    was, now = (UserKey(found["admin"].strip()).public for found in (old, new))
    assert f"trimtab creds: new key: admin {now}, the old one {was} is thrown away\n" in said
    assert "trimtab creds: removed: guard_a.seed\n" in said
    assert "trimtab creds: removed: ca.key\n" in said
    assert (tmp_path / "mine.txt").read_text() == "stays"


def test_keep_keys_adds_a_node_and_keeps_keys_and_authority(tmp_path, capsys):
    assert init(tmp_path, "--node", "a") == 0
    old, ca, server = seeds(tmp_path), (tmp_path / "ca.pem").read_bytes(), (tmp_path / "server.pem").read_bytes()
    capsys.readouterr()
    assert init(tmp_path, "--node", "b", "--keep-keys") == 0
    new, said = seeds(tmp_path), capsys.readouterr().err
    assert {name: new[name] for name in old} == old
    assert set(new) - set(old) == {f"{role}_b" for role in ("actuator", "collector", "decider", "guard", "rewarder")}
    assert (tmp_path / "ca.pem").read_bytes() == ca
    assert (tmp_path / "server.pem").read_bytes() != server
    assert f"trimtab creds: kept: guard_a {UserKey(old['guard_a'].strip()).public}\n" in said
    assert UserKey(old["guard_a"].strip()).public in (tmp_path / "access.conf").read_text()


def test_show_lists_every_permission_of_every_credential(tmp_path, capsys):
    assert init(tmp_path, "--no-tls") == 0
    capsys.readouterr()
    assert main(["creds", "show", str(tmp_path)]) == 0
    rows = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["CREDENTIAL", "MAY", "SUBJECT"]
    assert {row[0] for row in rows[1:]} == set(ROLES)
    assert ["guard", "publish", "trimtab.v1.verdict.*"] in rows
    assert ["actuator", "subscribe", "trimtab.v1.verdict.*"] in rows
    assert [row[0] for row in rows if row[1:] == ["publish", "trimtab.v1.verdict.*"]] == ["guard"]


def test_show_as_json_lines_is_one_credential_a_line(tmp_path, capsys):
    assert init(tmp_path, "--no-tls", "--node", "a.b") == 0
    capsys.readouterr()
    assert main(["creds", "show", str(tmp_path), "-o", "jsonl"]) == 0
    items = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    decider = next(item for item in items if item["name"] == "decider_a_b")
    assert decider["inbox_prefix"] == "_INBOX_decider_a_b"
    assert decider["public_key"] == UserKey(seeds(tmp_path)["decider_a_b"].strip()).public
    assert "trimtab.v1.action.a_b" in decider["publish"]


def test_show_says_when_the_servers_configuration_is_another(tmp_path, capsys):
    assert init(tmp_path) == 0
    assert main(["creds", "show", str(tmp_path)]) == 0
    (tmp_path / "auditor.seed").unlink()
    capsys.readouterr()
    assert main(["creds", "show", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith(f"trimtab creds show: {tmp_path}/access.conf says something else; ")


@pytest.mark.parametrize("name", ["creds", 'a "quoted" name', "back\\slash"])
def test_show_of_a_folder_that_was_moved_says_what_moved_and_raises_no_alarm(name, tmp_path, capsys):
    old, new = tmp_path / name, tmp_path / "new" / "place"
    assert init(old) == 0
    new.parent.mkdir()
    old.rename(new)
    capsys.readouterr()
    assert main(["creds", "show", str(new)]) == 0
    assert capsys.readouterr().err == (
        f"trimtab creds show: {new}/access.conf is right but for its place: it names {old}/server.pem and "
        f"{old}/server.key, not to be found here; if the server runs on this machine, `trimtab creds init {new} "
        f"--keep-keys`, with the flags of before, makes it anew\n"
    )
    assert init(new, "--keep-keys") == 0
    capsys.readouterr()
    assert main(["creds", "show", str(new)]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("flags", [[], ["--no-tls"]])
def test_show_of_a_copied_folder_says_nothing(flags, tmp_path, capsys):
    assert init(tmp_path / "old", *flags) == 0
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    capsys.readouterr()
    assert main(["creds", "show", str(tmp_path / "new")]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("trimtab.v1.verdict.*", "trimtab.v1.*.*"),
        ('min_version: "1.2"', 'min_version: "1.0"'),
        ("server.key", "other.key"),
        ("key_file", "cert_file"),
        ("nkey: U", "nkey: UU"),
        ('cert_file: "', r'cert_file: "\x2f'),
    ],
)
def test_show_of_a_moved_folder_still_says_when_the_servers_configuration_is_another(old, new, tmp_path, capsys):
    assert init(tmp_path / "old") == 0
    folder = (tmp_path / "old").rename(tmp_path / "new")
    access = folder / "access.conf"
    access.write_text(access.read_text().replace(old, new))
    capsys.readouterr()
    assert main(["creds", "show", str(folder)]) == 1
    assert capsys.readouterr().err.startswith(f"trimtab creds show: {access} says something else; ")


def test_show_without_a_servers_configuration_says_so(tmp_path, capsys):
    assert init(tmp_path, "--no-tls") == 0
    (tmp_path / "access.conf").unlink()
    capsys.readouterr()
    assert main(["creds", "show", str(tmp_path)]) == 1
    (tmp_path / "access.conf").write_bytes(b"\xff")
    assert main(["creds", "show", str(tmp_path)]) == 1


@pytest.mark.parametrize(
    ("flags", "begin"),
    [
        (["--node", "UPPER"], "flag --node: node name 'UPPER' is not a DNS-1123 subdomain"),
        (["--host", "nats://h:4222"], "flag --host: 'nats://h:4222' is neither a host's name nor an address; "),
        (["--host", "a,DNS:evil"], "flag --host: 'a,DNS:evil' is neither"),
        (["--host", "a\nkeyUsage = x"], "flag --host: 'a\\nkeyUsage = x' is neither"),
        (["--host", "a", "--no-tls"], "flag --host: names the server in its certificate, and --no-tls makes none; "),
        (["--force", "--keep-keys"], "flag --keep-keys: not allowed with flag --force"),
    ],
)
def test_wrong_flags_are_one_line_and_make_nothing(flags, begin, tmp_path, capsys):
    folder = tmp_path / "creds"
    assert init(folder, *flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert (
        line.removeprefix("trimtab creds: ")
        .removeprefix("trimtab: ")
        .startswith(begin.replace("with flag", "with argument"))
    )
    assert not folder.exists()


def test_a_missing_openssl_is_said_with_the_way_out_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(cli.certificates.shutil, "which", lambda _: None)
    folder = tmp_path / "creds"
    assert init(folder) == 6
    assert capsys.readouterr().err == (
        "trimtab creds: no openssl on PATH, which makes the certificates; install it (Debian: apt-get install openssl), "
        "or give --no-tls and keep the server on loopback\n"
    )
    assert not folder.exists()
    assert init(folder, "--no-tls") == 0


def test_an_openssl_that_fails_says_its_last_words_and_what_was_there_stays(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "creds"
    assert init(folder) == 0
    before = seeds(folder)
    program = tmp_path / "openssl"
    program.write_text("#!/bin/sh\necho one >&2; echo 'out of entropy' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.setattr(cli.certificates.shutil, "which", lambda _: str(program))
    capsys.readouterr()
    assert init(folder, "--force") == 6
    assert capsys.readouterr().err == ("trimtab creds: openssl ecparam: out of entropy; update it, or give --no-tls\n")
    assert seeds(folder) == before


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert init(tmp_path / "file" / "creds", "--no-tls") == 2
    assert capsys.readouterr().err.startswith(f"trimtab creds: {tmp_path}/file/creds: Not a directory; ")


def test_a_seed_that_is_none_of_ours_is_not_passed_over(tmp_path, capsys):
    assert init(tmp_path, "--no-tls") == 0
    (tmp_path / "stranger.seed").write_text("x")
    capsys.readouterr()
    for words in (["show", str(tmp_path)], ["init", str(tmp_path), "--keep-keys"]):
        assert main(["creds", *words]) == 2
        assert f"{tmp_path}/stranger.seed: is no credential of ours" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["show", "declare"])
def test_a_folder_without_credentials_says_how_to_make_some(verb, tmp_path, capsys):
    assert main(["creds", verb, str(tmp_path)]) == 2
    assert capsys.readouterr().err == (
        f"trimtab creds: {tmp_path}: holds no credentials; make some with `trimtab creds init {tmp_path}`\n"
    )


def test_declaring_needs_the_admins_seed(tmp_path, capsys):
    assert init(tmp_path, "--no-tls") == 0
    (tmp_path / "admin.seed").unlink()
    capsys.readouterr()
    assert main(["creds", "declare", str(tmp_path)]) == 2
    assert "holds no admin.seed, which alone may make streams; " in capsys.readouterr().err


def test_declaring_without_a_server_says_so(tmp_path, capsys):
    assert init(tmp_path) == 0
    capsys.readouterr()
    assert main(["creds", "declare", str(tmp_path), "--nats-url", "nats://127.0.0.1:1", "--timeout", "0.2"]) == 3
    assert capsys.readouterr().err.startswith(
        "trimtab creds: bus.url: no NATS server at nats://127.0.0.1:1 within 0.2 s ("
    )


def test_the_example_is_what_the_generator_makes():
    example, folder = Path(__file__).parents[3] / "deploy" / "nats", Path("/etc/trimtab/nats")
    users = [(access_of(role), f"PUBLIC_KEY_OF_{role.upper()}") for role in ROLES]
    assert (example / "access.conf").read_text() == access_text(users, folder)
    assert (example / "nats-server.conf").read_text() == server_text(folder, "0.0.0.0")
