"""The context for https endpoints: from files, made anew when they change, and one line about what is wrong."""

import os
import shutil
import ssl

import pytest

from runtime.errors import ConfigError
from services.collector.sources.tls import TlsContext
from tests.unit.collector.endpoints import TLS_FILES


@pytest.fixture
def files(tmp_path):
    return shutil.copytree(TLS_FILES, tmp_path / "tls")


def context(files, ca="ca.pem", cert=None, key=None, *, verify=True):
    paths = [name and str(files / name) for name in (ca, cert, key)]
    return TlsContext(ca_file=paths[0], cert_file=paths[1], key_file=paths[2], verify=verify)


def authorities(made):
    return [dict(pair for (pair,) in one["subject"])["commonName"] for one in made.get_ca_certs()]


def replace(file, other):
    """As a rotation does: another file under the name."""
    fresh = file.with_suffix(".new")
    shutil.copyfile(other, fresh)
    fresh.replace(file)


def test_without_files_pythons_own_rules_hold(files):
    assert context(files, None).get() is None


def test_the_authority_is_the_one_in_the_file_and_certificates_are_checked(files):
    made = context(files).get()
    assert authorities(made) == ["Trimtab test authority"]
    assert (made.verify_mode, made.check_hostname) == (ssl.CERT_REQUIRED, True)


@pytest.mark.parametrize("ca", [None, "ca.pem"])
def test_without_verification_nothing_is_checked(files, ca):
    made = context(files, ca, verify=False).get()
    assert (made.verify_mode, made.check_hostname) == (ssl.CERT_NONE, False)


def test_the_same_context_is_used_while_the_files_stay(files):
    made = context(files, cert="pod.pem", key="pod.key")
    assert made.get() is made.get()


def test_a_file_that_changes_makes_another_context(files):
    made = context(files)
    before = made.get()
    replace(files / "ca.pem", files / "stranger.pem")
    assert made.get() is not before
    assert authorities(made.get()) == ["stranger.test"]
    assert made.get() is made.get()


@pytest.mark.parametrize("name", ["ca.pem", "pod.pem", "pod.key"])
def test_each_of_the_files_is_watched(files, name):
    made = context(files, cert="pod.pem", key="pod.key")
    before = made.get()
    os.utime(files / name, ns=(0, 0))
    assert made.get() is not before


def test_half_a_rotation_leaves_the_last_context_and_the_other_half_makes_the_next(files):
    made = context(files, cert="pod.pem", key="pod.key")
    before = made.get()
    replace(files / "pod.pem", files / "stranger.pem")
    assert made.get() is before
    replace(files / "pod.key", files / "stranger.pem")
    assert made.get() is not before


def test_files_that_make_no_context_are_tried_once(files, monkeypatch):
    made = context(files)
    before = made.get()
    (files / "ca.pem").write_text("half a fi")
    tried, make = [], ssl.create_default_context
    monkeypatch.setattr(ssl, "create_default_context", lambda **fields: tried.append(fields) or make(**fields))
    assert [made.get() for _ in range(3)] == [before] * 3
    assert len(tried) == 1


def test_a_file_that_goes_away_leaves_the_last_context_until_it_is_back(files):
    made = context(files)
    before = made.get()
    (files / "ca.pem").rename(files / "away.pem")
    assert made.get() is before
    shutil.copyfile(files / "stranger.pem", files / "ca.pem")
    assert authorities(made.get()) == ["stranger.test"]


@pytest.mark.parametrize(
    ("names", "setting"),
    [
        ({"ca": "none.pem"}, "tls_ca_file"),
        ({"ca": "empty.pem"}, "tls_ca_file"),
        ({"ca": "pod.key"}, "tls_ca_file"),
        ({"ca": "."}, "tls_ca_file"),
        ({"cert": "none.pem"}, "tls_cert_file"),
        ({"cert": "empty.pem"}, "tls_cert_file"),
        ({"cert": "pod.pem"}, "tls_cert_file"),
        ({"cert": "pod.pem", "key": "none.key"}, "tls_cert_file"),
        ({"cert": "stranger.pem", "key": "pod.key"}, "tls_cert_file"),
        ({"cert": "pod.pem", "key": "locked.key"}, "tls_cert_file"),
    ],
)
def test_files_that_make_no_context_are_said_in_one_line_at_start(files, names, setting):
    (files / "empty.pem").write_text("")
    with pytest.raises(ConfigError) as caught:
        context(files, **names)
    text = str(caught.value)
    assert text.startswith(f"collector.{setting}: {files}")
    assert text.endswith("; it must be a readable PEM file")
    assert "\n" not in text


def test_a_key_without_a_password_may_be_in_a_file_of_its_own_or_beside_the_certificate(files):
    assert context(files, cert="pod.pem", key="pod.key").get() is not None
    assert context(files, cert="named.pem").get() is not None
