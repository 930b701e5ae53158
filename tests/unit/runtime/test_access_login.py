"""From the settings of the bus to what the connection is made with."""

import subprocess
import sys

import pytest

from cli.__main__ import main
from runtime.bus_login import NO_TLS, REFUSED, log_in, unreachable
from runtime.errors import ConfigError
from runtime.settings import BusSettings

SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
PUBLIC = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


def refusal(name: str = "trimtab-guard-worker-1", **settings: str) -> str:
    with pytest.raises(ConfigError) as caught:
        log_in(BusSettings(**settings), name)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def creds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("login") / "creds"
    assert main(["creds", "init", str(folder)]) == 0
    return folder


def test_without_settings_there_is_no_key_no_tls_and_an_inbox_by_the_connections_name():
    login = log_in(BusSettings(), "trimtab-guard-worker-1.eu")
    assert (login.public_key, login.sign, login.jwt, login.tls) == (None, None, None, None)
    assert login.inbox_prefix == "_INBOX_trimtab_guard_worker_1_eu"


@pytest.mark.parametrize(
    ("name", "who"),
    [
        ("trimtab-guard-worker-1", "guard"),
        ("trimtab-actuator-guard", "actuator"),
        ("trimtab-tail", "operator"),
        ("trimtab-up", "operator"),
        ("trimtab-guardian", "operator"),
    ],
)
def test_service_in_a_setting_stands_for_who_connects(name, who, tmp_path):
    (tmp_path / f"{who}.seed").write_text(f"{SEED}\n")
    settings = BusSettings(nkey_seed_file=str(tmp_path / "{service}.seed"), inbox_prefix="_INBOX_{service}")
    login = log_in(settings, name)
    assert (login.public_key, login.inbox_prefix) == (PUBLIC, f"_INBOX_{who}")


def test_a_credentials_file_gives_jwt_and_signature_and_no_public_key(tmp_path):
    path = tmp_path / "guard.creds"
    path.write_text(
        "-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n\nsome words\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{SEED}\n------END USER NKEY SEED------\n"
    )
    login = log_in(BusSettings(credentials_file=str(path)), "x")
    assert login.jwt is not None
    assert login.sign is not None
    assert (login.jwt(), login.public_key) == (b"a.b.c", None)


def test_a_missing_seed_file_is_one_line_with_the_way_out(tmp_path):
    path = tmp_path / "no.seed"
    assert refusal(nkey_seed_file=str(path)) == (
        f"bus.nkey_seed_file: {path}: No such file or directory; name a file that this user may read"
    )


def test_a_folder_is_no_seed_file(tmp_path):
    assert refusal(nkey_seed_file=str(tmp_path)).startswith(f"bus.nkey_seed_file: {tmp_path}: Is a directory; ")


@pytest.mark.parametrize("content", [b"", b"not a seed", b"\xff\xfe", SEED[:-2].encode(), PUBLIC.encode()])
def test_a_file_that_holds_no_seed_is_one_line_and_is_not_repeated(content, tmp_path):
    path = tmp_path / "wrong.seed"
    path.write_bytes(content)
    text = refusal(nkey_seed_file=str(path))
    assert text.startswith(f"bus.nkey_seed_file: {path}: ")
    assert text.endswith("; it must be one line that begins with SU, as `trimtab creds init` makes it")
    assert not content.strip() or content.decode(errors="replace") not in text


@pytest.mark.parametrize(
    ("content", "missing"),
    [
        ("", "NATS USER JWT"),
        ("-----BEGIN NATS USER JWT-----\na.b.c\n------END NATS USER JWT------\n", "USER NKEY SEED"),
    ],
)
def test_a_credentials_file_without_a_block_names_it(content, missing, tmp_path):
    path = tmp_path / "guard.creds"
    path.write_text(content)
    assert refusal(credentials_file=str(path)) == (
        f"bus.credentials_file: {path}: has no block {missing!r}; it must be a .creds file, as `nsc generate creds` makes it"
    )


def test_two_kinds_of_credentials_are_one_too_many():
    assert refusal(nkey_seed_file="a", credentials_file="b") == (
        "bus.credentials_file: is set beside bus.nkey_seed_file; keep the one that the server knows"
    )


@pytest.mark.parametrize("prefix", ["", "_INBOX.", ".x", "a b", "_INBOX_*", ">", "a..b", "_INBOX_{node}"])
def test_an_inbox_that_is_no_subject_is_refused(prefix):
    assert refusal(inbox_prefix=prefix).startswith(f"bus.inbox_prefix: {prefix!r} cannot begin a subject; ")


def test_a_ca_makes_tls_a_must_and_the_server_prove_its_name(creds):
    login = log_in(BusSettings(tls_ca_file=str(creds / "ca.pem"), tls_server_name="nats"), "x")
    assert login.tls is not None
    assert login.tls.check_hostname
    assert len(login.tls.get_ca_certs()) == 1
    assert login.server_name == "nats"


def test_a_certificate_of_our_own_is_taken_with_its_key(creds):
    settings = BusSettings(tls_cert_file=str(creds / "server.pem"), tls_key_file=str(creds / "server.key"))
    assert log_in(settings, "x").tls is not None


def test_wrong_tls_files_are_one_line_each(creds, tmp_path):
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    missing = tmp_path / "missing.pem"
    certificate = str(creds / "server.pem")
    assert refusal(tls_ca_file=str(missing)) == (
        f"bus.tls_ca_file: {missing}: No such file or directory; name a file that this user may read, with certificates "
        f"in PEM"
    )
    assert refusal(tls_ca_file=str(empty)).startswith(f"bus.tls_ca_file: {empty}: cannot be used (")
    assert refusal(tls_cert_file=certificate).startswith(f"bus.tls_cert_file: {certificate}: cannot be used (")
    assert refusal(tls_cert_file=certificate, tls_key_file=str(creds / "ca.key")) == (
        f"bus.tls_cert_file: {certificate}, {creds / 'ca.key'}: cannot be used (KEY_VALUES_MISMATCH); it must hold a "
        f"certificate and its key in PEM (bus.tls_key_file, where the key has a file of its own)"
    )
    assert refusal(tls_key_file="key") == "bus.tls_key_file: has no certificate; set bus.tls_cert_file too"
    assert refusal(tls_server_name="x") == (
        "bus.tls_server_name: without TLS nobody proves a name; set bus.tls_ca_file too"
    )


@pytest.mark.parametrize(
    ("reason", "begin"),
    [
        (f"nats: '{REFUSED}'", "bus.url: nats://***@h:4222 refuses these credentials ("),
        (NO_TLS, "bus.tls_ca_file: nats://***@h:4222 offers no TLS, and nothing was said to it; "),
        (
            "SSLCertVerificationError: [SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self signed (_ssl.c:1)",
            "bus.tls_ca_file: nats://***@h:4222 is not trusted (self signed); ",
        ),
        (
            "ConnectionRefusedError",
            "bus.url: no NATS server at nats://***@h:4222 within 10 s (ConnectionRefusedError); ",
        ),
    ],
)
def test_why_a_connection_did_not_come_about_is_told_by_its_setting(reason, begin):
    settings = BusSettings(url="nats://me:secret@h:4222")
    assert str(unreachable(settings, reason, log_in(settings, "x"))).startswith(begin)


def test_who_has_no_key_does_not_load_the_cryptography():
    code = (
        "import sys; from runtime.bus_login import log_in; from runtime.settings import BusSettings; "
        "import runtime.lifecycle; log_in(BusSettings(), 'x'); sys.exit(any(m.startswith('nacl') for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
