"""The settings in a recording: whole, without secrets, and found again by their fingerprints."""

import msgspec
import pytest

from cli.inputs import SECTIONS
from lab.record.items import Settings
from lab.record.settings import find_settings, settings_of, versions
from runtime.config import load
from runtime.errors import ConfigError
from schemas.settings import Section, Shared, settings_digest
from services.decider.config import DeciderConfig
from services.guard.config import GuardConfig

ENV = {
    "TRIMTAB_BUS__URL": "nats://me:hush@127.0.0.1:4222,nats://you:hush@127.0.0.2:4222",
    "TRIMTAB_BUS__PASSWORD": "hush",
    "TRIMTAB_BUS__TOKEN": "hush",
    "TRIMTAB_DECIDER__SEED": "7",
    "TRIMTAB_LOOP__TICK_SECONDS": "6",
}


def recorded(node: str = "worker-1", **env: str) -> Settings:
    settings = settings_of(load(SECTIONS, env={**ENV, **env}), node)
    return msgspec.msgpack.decode(msgspec.msgpack.encode(settings), type=Settings)


def test_every_section_is_there_and_no_secret():
    settings = recorded()
    assert set(settings.values) == {"shared", "bus", "http", "log", "host", *SECTIONS}
    assert set(settings.fingerprints) == set(SECTIONS)
    assert b"hush" not in msgspec.json.encode(settings)
    assert settings.values["bus"]["url"] == "nats://***@127.0.0.1:4222,nats://***@127.0.0.2:4222"


def test_the_settings_of_a_service_are_found_by_its_fingerprint_as_they_were():
    config = load(SECTIONS, env=ENV)
    shared = msgspec.structs.replace(config.shared, node="worker-1")
    decider = config.section("decider", DeciderConfig)
    digest = settings_digest(shared, decider)
    known = [recorded(TRIMTAB_DECIDER__SEED="8"), recorded()]
    assert find_settings(known, "decider", digest, DeciderConfig) == (shared, decider)
    assert find_settings(known, "guard", digest, GuardConfig) is None
    assert find_settings([], "decider", digest, DeciderConfig) is None


def test_every_recorded_section_gives_back_its_fingerprint():
    settings = recorded()
    for name, kind in SECTIONS.items():
        found = find_settings([settings], name, settings.fingerprints[name], kind)
        assert found is not None
        assert settings_digest(*found) == settings.fingerprints[name]


def test_a_fingerprint_is_of_all_that_a_service_works_by_and_of_nothing_else():
    base = recorded().fingerprints
    assert recorded(TRIMTAB_HTTP__BASE_PORT="9000").fingerprints == base
    assert recorded("worker-2", TRIMTAB_MODE="active").fingerprints == base  # every message tells those two
    longer = recorded(TRIMTAB_LOOP__TICK_SECONDS="7").fingerprints
    assert all(longer[name] != base[name] for name in base)
    changed = recorded(TRIMTAB_DECIDER__SEED="8").fingerprints
    assert {name for name in base if changed[name] != base[name]} == {"decider"}


def test_the_digest_is_of_the_settings_in_a_fixed_order():
    class Part(Section, frozen=True, kw_only=True):
        """A section with a mapping."""

        by_name: dict[str, int] = msgspec.field(default_factory=dict)

    one, other = Part(by_name={"a": 1, "b": 2}), Part(by_name={"b": 2, "a": 1})
    assert settings_digest(Shared(), one) == settings_digest(Shared(), other)
    assert len(settings_digest(Shared(), one)) == 12
    assert settings_digest(Shared(), one) != settings_digest(Shared(), Part())


def test_settings_of_another_release_are_told():
    settings = recorded()
    settings.values["decider"]["no_such_setting"] = 1
    with pytest.raises(ConfigError, match=r"decider: the recorded settings \w{12} are not for this release"):
        find_settings([settings], "decider", settings.fingerprints["decider"], DeciderConfig)


def test_versions_are_those_of_what_numbers_depend_on():
    assert {"python", "msgspec"} <= set(versions())
