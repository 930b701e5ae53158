"""YAML text to plain values: no duplicate keys, and whatever is wrong with the text is one ConfigError of one line."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any, Final, cast

import yaml

from runtime.errors import ConfigError

Tree = dict[str, Any]

_MERGE: Final = "tag:yaml.org,2002:merge"
# PyYAML lets its constructors' own errors through: a date in month 13, `!!bool maybe`.
_FAILURES: Final = (ValueError, TypeError, KeyError, AttributeError, OverflowError)


class _Loader(yaml.SafeLoader):
    """YAML without duplicate keys: the second one would silently win."""


def _mapping(loader: _Loader, node: yaml.MappingNode) -> Tree:
    seen: set[object] = set()
    for key_node, _ in node.value:
        if key_node.tag == _MERGE:  # `<<: *base` is there to be overridden
            continue
        key = loader.construct_object(key_node)
        if not isinstance(key, Hashable):
            raise yaml.constructor.ConstructorError(None, None, "a key must be a plain value", key_node.start_mark)
        if key in seen:
            raise yaml.constructor.ConstructorError(None, None, f"duplicate key {key!r}", key_node.start_mark)
        seen.add(key)
    return cast("Tree", loader.construct_mapping(node, deep=True))


_Loader.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, _mapping)


def parse_yaml(text: str, place: str) -> object:
    """The value of one YAML document. Raises ConfigError, which names `place`."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise ConfigError(one_line(f"{place}: not valid YAML: {error}")) from error
    except RecursionError as error:
        raise ConfigError(f"{place}: nested too deeply; no setting needs more than five levels") from error
    except _FAILURES as error:
        raise ConfigError(one_line(f"{place}: a value does not fit its type ({error}); put texts in quotes")) from error


def read_file(path: str) -> Tree:
    """The YAML mapping in a file. Raises ConfigError."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(f"{path}: cannot be read: {reason}; check --config and the file's permissions") from error
    tree = parse_yaml(text, path)
    if tree is None:
        return {}
    if not isinstance(tree, dict) or not all(isinstance(key, str) for key in tree):
        raise ConfigError(f"{path}: must be a mapping of sections, like 'mode: shadow'")
    return tree


def one_line(text: str) -> str:
    """The text with every run of white space as one space."""
    return " ".join(text.split())
