"""The settings that a recording was made under, and back from their fingerprints: what a replay is built from."""

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Final, TypeVar

import msgspec

from lab.record.items import Settings
from runtime.config import Config
from runtime.errors import ConfigError
from runtime.settings import SECRET_FIELDS, mask_url
from schemas.settings import Section, Shared, settings_digest

S = TypeVar("S", bound=Section)

_NUMBERS_DEPEND_ON: Final = ("river", "numpy", "scipy", "vowpalwabbit", "msgspec")
_SHARED: Final = "shared"


def settings_of(config: Config, node: str) -> Settings:
    """The whole configuration as `node` has it, without secrets."""
    shared = msgspec.structs.replace(config.shared, node=node)
    values: dict[str, object] = {_SHARED: msgspec.to_builtins(shared)}
    for name in ("bus", "http", "log", "host"):
        values[name] = _without_secrets(msgspec.to_builtins(getattr(config, name)))
    for name, section in config.sections.items():
        values[name] = _without_secrets(msgspec.to_builtins(section))
    fingerprints = {name: settings_digest(shared, section) for name, section in config.sections.items()}
    return Settings(values=values, fingerprints=fingerprints)


def versions() -> dict[str, str]:
    """The versions of Python and of the installed libraries that the numbers of a decision depend on, and the kind of
    machine.
    """
    found = {"python": platform.python_version(), "machine": platform.machine()}
    for name in _NUMBERS_DEPEND_ON:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def find_settings(known: Iterable[Settings], service: str, fingerprint: str, kind: type[S]) -> tuple[Shared, S] | None:
    """The shared settings and those of `service` that have this fingerprint; None where none of the known ones has.

    Raises ConfigError for recorded settings that this release does not take.
    """
    for settings in known:
        if settings.fingerprints.get(service) != fingerprint:
            continue
        try:
            shared = msgspec.convert(settings.values.get(_SHARED), Shared)
            return shared, msgspec.convert(settings.values.get(service), kind)
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"{service}: the recorded settings {fingerprint} are not for this release ({error}); "
                f"use the release that the recording names"
            ) from error
    return None


def _without_secrets(value: object, name: str = "") -> object:
    if isinstance(value, dict):
        return {key: _without_secrets(below, str(key)) for key, below in value.items()}
    if isinstance(value, str):
        return "***" if name in SECRET_FIELDS else mask_url(value) if "//" in value or name == "url" else value
    return value
