"""The types behind a dotted setting: what may stand below it, and what is wrong with a value that does not fit."""

import re
from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import msgspec

_AT: Final = re.compile(r" - at (?P<key>`key` in )?`\$(?P<where>[^`]*)`$")
_STEP: Final = re.compile(r"\.?([^.\[\]]+)|\[(\.\.\.|\d+)\]")
_UNKNOWN: Final = re.compile(r"unknown field `(.*)`", re.DOTALL)


def is_section(kind: object) -> bool:
    """Whether this is a struct type."""
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def fields_of(kind: object) -> dict[str, Any]:
    """The types of a struct's fields by name; none for anything else."""
    return {field.name: field.type for field in msgspec.structs.fields(kind)} if is_section(kind) else {}  # type: ignore[arg-type]


def below(kind: object, name: str) -> object:
    """The type of what stands under `name` in a value of this type, or None."""
    kind = _plain(kind)
    if is_section(kind):
        return fields_of(kind).get(name)
    arguments = get_args(kind)
    if get_origin(kind) is dict:
        return arguments[1]
    return arguments[0] if get_origin(kind) in (tuple, list) else None


def takes_text(kind: object) -> bool:
    """Whether a setting of this type can hold a string as it is."""
    kind = _plain(kind)
    if get_origin(kind) in (Union, UnionType):
        return any(takes_text(part) for part in get_args(kind))
    if get_origin(kind) is Literal:
        return all(isinstance(value, str) for value in get_args(kind))
    return kind is str


def takes_null(kind: object) -> bool:
    """Whether a setting of this type can be unset with null."""
    kind = _plain(kind)
    return get_origin(kind) in (Union, UnionType) and type(None) in get_args(kind)


def locate(error: msgspec.ValidationError, value: object, kind: object) -> tuple[list[str], str]:
    """Where in `value` msgspec found fault, key by key, and what it said. It hides keys as `[...]`: they are found
    by asking for each of them alone.
    """
    text = str(error)
    at = _AT.search(text)
    what = text[: at.start()] if at else text
    path: list[str] = []
    for name, index in _STEP.findall(at["where"]) if at else ():
        step = name or (_offender(value, kind) if index == "..." else index)
        path.append(step)
        kind = below(kind, step)
        value = value.get(step) if isinstance(value, Mapping) else None
    if at and at["key"]:
        what = f"a key is not a text: {what[0].lower()}{what[1:]}; put it in quotes"
    unknown = _UNKNOWN.search(what)
    if unknown:
        known = ", ".join(fields_of(_plain(kind)))
        return [*path, unknown[1]], f"unknown field; known are {known}"
    return path, f"{what[0].lower()}{what[1:]}"


def _offender(value: object, kind: object) -> str:
    if isinstance(value, Mapping):
        for key, item in value.items():
            try:
                msgspec.convert(item, below(kind, str(key)))
            except msgspec.ValidationError:
                return str(key)
    return "*"


def _plain(kind: object) -> object:
    """The type without its constraints."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind
