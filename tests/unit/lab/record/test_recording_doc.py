"""docs/recording.md says what the code does."""

import hashlib
import re
import zlib
from pathlib import Path
from typing import get_args

import msgspec

from cli.record import add_flags
from lab.record import blocks
from lab.record.items import AnyItem, DamageKind
from lab.record.parquet import SCHEMA
from runtime.flags import FlagParser

TEXT = (Path(__file__).parents[4] / "docs/recording.md").read_text(encoding="utf-8")
TAGS = {kind.__struct_config__.tag: kind for kind in get_args(AnyItem)}


def rows(heading: str, after: str = "## ") -> list[list[str]]:
    """The cells of the tables under a heading, without their first lines."""
    section = TEXT.split(f"\n{heading}\n", 1)[1].split(f"\n{after}", 1)[0]
    return [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if line.startswith("| `")
    ]


def test_the_columns_are_those_of_the_export_in_their_order():
    found = [row[0].strip("`") for row in rows("## Export")]
    assert found == SCHEMA.names


def test_the_types_of_the_columns_are_right():
    names = {"string": "text", "int64": "int", "double": "float", "bool": "bool"}
    for name, kind, *_ in rows("## Export"):
        shown = str(SCHEMA.field(name.strip("`")).type)
        if shown.startswith("timestamp"):
            expected = "time"
        elif (found := re.fullmatch(r"(?:map<string, (\w+).*>|list<\w+: (\w+)>)", shown)) is not None:
            expected = f"{'map' if found[1] else 'list'} of {names[found[1] or found[2]]}s"
        else:
            expected = names[shown]
        assert kind == expected, name


def test_tags_and_fields_are_those_of_the_items_in_their_order():
    found = {row[0].strip("`"): row[1].split(", ") for row in rows("## The file") if row[0].strip("`") in TAGS}
    assert found == {tag: list(kind.__struct_fields__) for tag, kind in TAGS.items()}


def test_the_kinds_of_damage_are_all_there():
    found = {row[0].strip("`") for row in rows("## The file")} - set(TAGS)
    assert found == set(get_args(DamageKind))


def test_the_bytes_are_where_it_says():
    assert blocks.START.hex(" ", 1).upper().startswith("89 54 54 52 45 43 0D 0A 00 00 00 01 00 00 00 00")
    made, digest, _ = blocks.encode_block(5, b"p" * 32, {"S": 3}, [])
    assert made[0:4].hex(" ").upper() == "D7 54 54 42"
    assert int.from_bytes(made[4:8]) == 5
    assert int.from_bytes(made[8:12]) == len(made) - 80
    assert int.from_bytes(made[12:16]) == 1
    assert made[16:48] == b"p" * 32
    assert made[48:80] == digest
    assert hashlib.sha256(made[:48] + made[80:]).digest() == digest
    assert msgspec.msgpack.decode(zlib.decompress(made[80:])) == [{"S": 3}, []]
    assert blocks.MAX_PAYLOAD_BYTES == 64 << 20
    assert blocks.MAX_CONTENT_BYTES == 128 << 20


def test_every_flag_is_there():
    parser = FlagParser(prog="trimtab record")
    add_flags(parser)
    flags = {option for action in parser._actions for option in action.option_strings if option.startswith("--")}
    assert {flag for flag in flags - {"--help", "--output"} if f"`{flag}" not in TEXT} == set()
