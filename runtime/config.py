"""Loading the configuration: flag > `TRIMTAB_*` > YAML file > default, with the origin of every value.

`TRIMTAB_LOOP__TICK_SECONDS=2` sets `loop.tick_seconds`; a flag `--set loop.tick_seconds=2` does too. Texts from the
environment and from flags are read as YAML scalars. Every error is one line: where, what, the way out.
"""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec
import yaml

from runtime.errors import ConfigError
from runtime.settings import SECRET_FIELDS, BusSettings, HostSettings, HttpSettings, LogSettings, mask_url
from schemas.settings import DEFAULT_CLASSES, Section, SettingsError, Shared
from schemas.subjects import SERVICES

Tree = dict[str, Any]
S = TypeVar("S", bound=Section)

ENV_PREFIX: Final = "TRIMTAB_"
_RUNTIME_SECTIONS: Final[dict[str, type[Section]]] = {
    "bus": BusSettings,
    "http": HttpSettings,
    "log": LogSettings,
    "host": HostSettings,
}
_SHARED_FIELDS: Final = tuple(field.name for field in msgspec.structs.fields(Shared))
# Kubernetes injects such variables for a Service called "trimtab" or "trimtab-…"; they are no settings of ours.
_SERVICE_LINK: Final = re.compile(r"TRIMTAB_(?:.*_)?(?:SERVICE_(?:HOST|PORT.*)|PORT(?:_\d+_(?:TCP|UDP).*)?)$")
_OWN_VARIABLES: Final = frozenset({"TRIMTAB_LIFELINE_FD", "TRIMTAB_CONFIG"})


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


class _Loader(yaml.SafeLoader):
    """YAML without duplicate keys: the second one would silently win."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> Tree:
    seen: set[object] = set()
    for key_node, _ in node.value:
        key = loader.construct_object(key_node)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", key_node.start_mark)
        seen.add(key)
    return cast("Tree", loader.construct_mapping(node, deep=True))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


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
    types: dict[str, type[Section]] = {**_RUNTIME_SECTIONS, **sections}
    tree = read_file(path) if path else {}
    source = f"file {path}" if path else ""
    known = (*_SHARED_FIELDS, *types, *SERVICES)
    for key in tree:
        if key not in known:
            raise ConfigError(f"{path}: unknown field {key!r}; known are {', '.join(sorted(set(known)))}")
    tree = {key: value for key, value in tree.items() if key in types or key in _SHARED_FIELDS}
    origins = {dotted: source for dotted, _ in _leaves(tree)}
    template = _defaults(types)
    warnings = []
    for name, text in sorted(env.items()):
        if not name.startswith(ENV_PREFIX) or name in _OWN_VARIABLES or _SERVICE_LINK.match(name):
            continue
        dotted = _env_path(name, tree, template)
        if dotted is None:
            section = name[len(ENV_PREFIX) :].split("__", 1)[0].lower()
            if section not in SERVICES or section in types:
                warnings.append(f"{name}: no such setting, ignored; see --print-config for all names")
            continue
        _put(tree, dotted, _scalar(text, name), name)
        origins[".".join(dotted)] = f"env {name}"
    for dotted_text, value, flag in overrides:
        parsed = _scalar(value, flag) if isinstance(value, str) else value
        _put(tree, dotted_text.split("."), parsed, flag)
        origins[dotted_text] = f"flag {flag}"
    return _build(tree, types, origins, path, tuple(warnings))


def read_file(path: str) -> Tree:
    """The YAML mapping in a file. Raises ConfigError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}; check --config and the file's permissions") from error
    try:
        tree = yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {_one_line(error)}") from error
    if tree is None:
        return {}
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise ConfigError(f"{path}: must be a mapping of sections, like 'mode: shadow'")
    return tree


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
        elif isinstance(value, str) and "//" in value:
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
            return msgspec.convert({} if part is None else part, kind)
        except msgspec.ValidationError as error:
            raise ConfigError(_explain(str(error), prefix, kind, origins, path)) from error

    shared = convert({key: tree[key] for key in _SHARED_FIELDS if key in tree}, Shared, "")
    built = {name: convert(tree.get(name, {}), kind, name) for name, kind in types.items()}
    try:
        shared.check()
        for section in built.values():
            check = getattr(section, "check", None)
            if check is not None:
                check(shared) if check.__code__.co_argcount > 1 else check()
    except SettingsError as error:
        raise ConfigError(f"{path}: {error}" if path else str(error)) from error
    return Config(
        shared=shared,
        bus=cast("BusSettings", built["bus"]),
        http=cast("HttpSettings", built["http"]),
        log=cast("LogSettings", built["log"]),
        host=cast("HostSettings", built["host"]),
        sections={name: built[name] for name in types if name not in _RUNTIME_SECTIONS},
        origins=dict(origins),
        warnings=warnings,
    )


def _explain(text: str, prefix: str, kind: type[Section], origins: Mapping[str, str], path: str | None) -> str:
    """Msgspec's words with our path, the origin of the value and, for a mistyped field, the known ones."""
    what, _, where = text.partition(" - at `")
    inner = where.rstrip("`").removeprefix("$").replace("[...]", ".*").lstrip(".")
    dotted = ".".join(part for part in (prefix, inner) if part)
    origin = _origin(dotted, origins)
    place = origin.removeprefix("file ") if origin != "default" else (path or "configuration")
    line = f"{place}: {dotted}: {what[0].lower()}{what[1:]}" if dotted else f"{place}: {what[0].lower()}{what[1:]}"
    if "unknown field" in what:
        owner = _struct_at(kind, inner)
        if owner is not None:
            line += f"; known are {', '.join(field.name for field in msgspec.structs.fields(owner))}"
    return line


def _struct_at(kind: type[Any], inner: str) -> type[Any] | None:
    for part in filter(None, inner.split(".")):
        fields = {field.name: field.type for field in msgspec.structs.fields(kind)} if _is_struct(kind) else {}
        if part in fields:
            kind = fields[part]
        elif part in ("*", "[...]") or getattr(kind, "__args__", None):
            kind = kind.__args__[-1]
        else:
            return None
        if getattr(kind, "__args__", None) and part not in fields:
            kind = kind.__args__[-1]
    if getattr(kind, "__args__", None):
        kind = kind.__args__[-1]
    return kind if _is_struct(kind) else None


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _defaults(types: Mapping[str, type[Section]]) -> Tree:
    tree: Tree = msgspec.to_builtins(Shared())
    for name, kind in types.items():
        tree[name] = msgspec.to_builtins(kind())
    return tree


def _env_path(name: str, tree: Tree, template: Tree) -> list[str] | None:
    """The dotted path of `TRIMTAB_A__B`, matching names that contain '-' too; None where there is no such setting."""
    path: list[str] = []
    here: object = template
    also: object = tree
    for segment in name[len(ENV_PREFIX) :].lower().split("__"):
        names = [*(here if isinstance(here, dict) else ()), *(also if isinstance(also, dict) else ())]
        found = next((key for key in names if key.replace("-", "_").lower() == segment), None)
        if found is None:
            return None
        path.append(found)
        here = here.get(found) if isinstance(here, dict) else None
        also = also.get(found) if isinstance(also, dict) else None
    return path


def _put(tree: Tree, path: Sequence[str], value: object, origin: str) -> None:
    here = tree
    if path[0] == "classes" and "classes" not in tree and len(path) > 1:
        tree["classes"] = msgspec.to_builtins(DEFAULT_CLASSES)  # one field of one class changes, the rest stays
    for part in path[:-1]:
        following = here.setdefault(part, {})
        if not isinstance(following, dict):
            raise ConfigError(f"{origin}: {'.'.join(path)}: {part!r} is a value, not a section")
        here = following
    if not path[-1]:
        raise ConfigError(f"{origin}: the name of the setting is empty; write --set section.field=value")
    here[path[-1]] = value


def _scalar(text: object, origin: str) -> object:
    if not isinstance(text, str):
        return text
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise ConfigError(f"{origin}: {text!r} is not a YAML value: {_one_line(error)}") from error


def _leaves(tree: object, prefix: str = "") -> list[tuple[str, object]]:
    if not isinstance(tree, dict) or not tree:
        return [(prefix, tree)] if prefix else []
    found: list[tuple[str, object]] = []
    for key, value in tree.items():
        found += _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    return found


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
