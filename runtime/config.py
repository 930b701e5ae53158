"""Loading the configuration: flag > `TRIMTAB_*` > YAML file > default, with the origin of every value.

`TRIMTAB_LOOP__TICK_SECONDS=2` sets `loop.tick_seconds`; a flag `--set loop.tick_seconds=2` does too. Texts from the
environment and from flags are read as YAML, except where the setting is a text: that is taken letter by letter, since
a password may look like a number. Every error is one line: where, what, the way out.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeVar, cast, runtime_checkable

import msgspec

from runtime.errors import ConfigError
from runtime.setting_types import below, fields_of, is_section, locate, takes_null, takes_text
from runtime.settings import SECRET_FIELDS, BusSettings, HostSettings, HttpSettings, LogSettings, mask_url
from runtime.yaml_text import Tree, one_line, parse_yaml, read_file
from schemas.settings import DEFAULT_CLASSES, Section, SettingsError, Shared
from schemas.subjects import SERVICES

__all__ = ["Config", "describe", "load", "read_file"]

S = TypeVar("S", bound=Section)

ENV_PREFIX: Final = "TRIMTAB_"
LIFELINE: Final = "TRIMTAB_LIFELINE_FD"
"""The variable by which a child learns of the pipe that closes when its parent dies; no setting."""

_RUNTIME_SECTIONS: Final[dict[str, type[Section]]] = {
    "bus": BusSettings,
    "http": HttpSettings,
    "log": LogSettings,
    "host": HostSettings,
}
_SHARED_FIELDS: Final = fields_of(Shared)
# Kubernetes injects such variables for a Service called "trimtab" or "trimtab-…"; they are no settings of ours.
_SERVICE_LINK: Final = re.compile(r"TRIMTAB_(?:.*_)?(?:SERVICE_(?:HOST|PORT.*)|PORT(?:_\d+_(?:TCP|UDP|SCTP).*)?)$")
_OWN_VARIABLES: Final = frozenset({LIFELINE, "TRIMTAB_CONFIG"})
_NULLS: Final = ("null", "~")


@runtime_checkable
class _CheckedSection(Protocol):
    """A service's section whose settings may contradict each other, or those that all services share."""

    def check(self, shared: Shared) -> None:
        """Raises SettingsError for the first contradiction."""
        ...


@dataclass(frozen=True)
class Config:
    """All sections of one process, checked, and where each value came from."""

    shared: Shared
    bus: BusSettings
    http: HttpSettings
    log: LogSettings
    host: HostSettings
    sections: Mapping[str, Section]
    origins: Mapping[str, str]
    warnings: tuple[str, ...] = ()

    def section(self, name: str, kind: type[S]) -> S:
        """The section of one service."""
        return cast("S", self.sections[name]) if isinstance(self.sections[name], kind) else kind()


def load(
    sections: Mapping[str, type[Section]],
    *,
    path: str | None = None,
    overrides: Sequence[tuple[str, object, str]] = (),
    env: Mapping[str, str] = os.environ,
) -> Config:
    """The configuration for a process with these service sections.

    `overrides` are (dotted path, value, flag name). Sections of services that are not asked for are left unread, since
    a service does not know the others'. Raises ConfigError.
    """
    types: dict[str, object] = {**_SHARED_FIELDS, **_RUNTIME_SECTIONS, **sections}
    known = {*types, *SERVICES}
    tree = read_file(path) if path else {}
    for key in tree:
        if key not in known:
            raise ConfigError(one_line(f"{path}: unknown field {key!r}; known are {', '.join(sorted(known))}"))
    # A section with everything commented out is null in YAML, and is no origin of anything.
    tree = {k: v for k, v in tree.items() if k in types and not (is_section(types[k]) and v in (None, {}))}
    origins = {dotted: f"file {path}" for dotted, _ in _leaves(tree)}
    warnings = []
    for name, text in sorted(env.items()):
        if not name.startswith(ENV_PREFIX) or name in _OWN_VARIABLES:
            continue
        setting = _env_path(name, tree, types)
        if setting is not None:
            _put(tree, setting, _value(text, setting, types, f"env {name}"), f"env {name}", origins)
        elif not _SERVICE_LINK.match(name):
            section = name[len(ENV_PREFIX) :].split("__", 1)[0].lower()
            if section not in SERVICES or section in types:
                warnings.append(f"{name}: no such setting, ignored; see --print-config for all names")
    for dotted, value, flag in overrides:
        setting = dotted.split(".")
        if setting[0] not in known or not all(setting):
            raise ConfigError(
                one_line(
                    f"flag {flag}: {dotted!r}: no such setting; write --set section.field=value, "
                    f"sections are {', '.join(sorted(known))}"
                )
            )
        parsed = _value(value, setting, types, f"flag {flag}") if isinstance(value, str) else value
        _put(tree, setting, parsed, f"flag {flag}", origins)
    return _build(tree, {**_RUNTIME_SECTIONS, **sections}, origins, path, tuple(warnings))


def describe(config: Config) -> list[str]:
    """Every value with its origin, one line each, secrets masked: what `--print-config` shows."""
    values: Tree = msgspec.to_builtins(config.shared)
    for name in _RUNTIME_SECTIONS:
        values[name] = msgspec.to_builtins(getattr(config, name))
    for name, section in config.sections.items():
        values[name] = msgspec.to_builtins(section)
    lines = []
    for dotted, value in _leaves(values):
        shown = value
        if dotted.rsplit(".", 1)[-1] in SECRET_FIELDS and value is not None:
            shown = "***"
        elif isinstance(value, str) and ("//" in value or dotted == "bus.url"):
            shown = mask_url(value)
        lines.append(f"{dotted}: {msgspec.json.encode(shown).decode()}  # {_origin(dotted, config.origins)}")
    return lines


def _origin(dotted: str, origins: Mapping[str, str]) -> str:
    candidate = dotted
    while candidate:
        if candidate in origins:
            return origins[candidate]
        candidate = candidate.rpartition(".")[0]
    return "default"


def _build(
    tree: Tree,
    types: Mapping[str, type[Section]],
    origins: Mapping[str, str],
    path: str | None,
    warnings: tuple[str, ...],
) -> Config:
    def convert(part: object, kind: type[S], prefix: str) -> S:
        try:
            section = msgspec.convert(part, kind)
            msgspec.json.encode(section)
        except msgspec.ValidationError as error:
            below_prefix, what = locate(error, part, kind)
            dotted = ".".join(filter(None, (prefix, *below_prefix)))
            raise ConfigError(one_line(f"{_place(dotted, what, origins, path)}: {dotted}: {what}")) from error
        except UnicodeEncodeError as error:
            raise ConfigError(one_line(f"{path or 'environment'}: {prefix or 'a text'}: {error}; use UTF-8")) from error
        return section

    shared = convert({key: tree[key] for key in _SHARED_FIELDS if key in tree}, Shared, "")
    built = {name: convert(tree.get(name, {}), kind, name) for name, kind in types.items()}
    host = cast("HostSettings", built["host"])
    services = {name: built[name] for name in types if name not in _RUNTIME_SECTIONS}
    try:
        shared.check()
        host.check()
        for section in services.values():
            if isinstance(section, _CheckedSection):
                section.check(shared)
    except SettingsError as error:
        text = str(error)
        raise ConfigError(one_line(f"{_place(text.partition(': ')[0], text, origins, path)}: {text}")) from error
    return Config(
        shared=shared,
        bus=cast("BusSettings", built["bus"]),
        http=cast("HttpSettings", built["http"]),
        log=cast("LogSettings", built["log"]),
        host=host,
        sections=services,
        origins=dict(origins),
        warnings=warnings,
    )


def _place(dotted: str, text: str, origins: Mapping[str, str], path: str | None) -> str:
    """What to edit: where the setting came from, else where another one that `text` names came from, else where all
    that is no default came from.
    """
    origin = _origin(dotted, origins)
    if origin == "default":
        named = [
            found
            for setting, found in origins.items()
            if setting.startswith(f"{dotted}.") or re.search(rf"\b{re.escape(setting.rpartition('.')[2])}\b", text)
        ]
        only = set(origins.values())
        origin = named[-1] if named else only.pop() if len(only) == 1 else (path or "configuration")
    return origin.removeprefix("file ")


def _env_path(name: str, tree: Tree, types: Mapping[str, object]) -> list[str] | None:
    """The dotted path of `TRIMTAB_A__B`, matching names that contain '-' too; None where there is no such setting."""
    path: list[str] = []
    kind: object = None
    here: object = {**dict.fromkeys(types), "classes": DEFAULT_CLASSES, **tree}
    for segment in name[len(ENV_PREFIX) :].lower().split("__"):
        names = fields_of(kind) or (here if isinstance(here, dict) else {})
        found = next((key for key in names if str(key).replace("-", "_").lower() == segment), None)
        if found is None:
            return None
        kind = below(kind, found) if path else types.get(found)
        here = here.get(found) if isinstance(here, dict) else None
        path.append(found)
    return path


def _value(text: str, path: Sequence[str], types: Mapping[str, object], origin: str) -> object:
    kind = types.get(path[0])
    for part in path[1:]:
        kind = below(kind, part)
    if takes_text(kind):
        is_null = takes_null(kind) and path[-1] not in SECRET_FIELDS and text in _NULLS
        return None if is_null else text
    return parse_yaml(text, f"{origin}: {'.'.join(path)}")


def _put(tree: Tree, path: Sequence[str], value: object, origin: str, origins: dict[str, str]) -> None:
    here = tree
    if path[0] == "classes" and "classes" not in tree and len(path) > 1:
        tree["classes"] = msgspec.to_builtins(DEFAULT_CLASSES)  # one field of one class changes, the rest stays
    for part in path[:-1]:
        if here.get(part) is None:
            here[part] = {}
        following = here[part]
        if not isinstance(following, dict):
            raise ConfigError(one_line(f"{origin}: {'.'.join(path)}: {part!r} is a value, not a section"))
        here = following
    here[path[-1]] = value
    dotted = ".".join(path)
    for stale in [setting for setting in origins if setting.startswith(f"{dotted}.")]:
        del origins[stale]
    origins[dotted] = origin


def _leaves(tree: object, prefix: str = "") -> list[tuple[str, object]]:
    if not isinstance(tree, dict) or not tree:
        return [(prefix, tree)] if prefix else []
    found: list[tuple[str, object]] = []
    for key, value in tree.items():
        found += _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    return found
