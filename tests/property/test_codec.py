"""The codec over every message that its types allow, and over bytes that nobody allowed."""

import json
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import DecodeError, EncodeError, decode, encode, non_finite
from schemas.messages import AnyMessage
from schemas.version import SCHEMA_VERSION

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
finite = st.floats(allow_nan=False, allow_infinity=False)
wholes = st.integers(-(2**63), 2**63 - 1)
PLAIN: dict[object, st.SearchStrategy[Any]] = {
    str: texts,
    float: finite,
    int: wholes,
    bool: st.booleans(),
    type(None): st.none(),
}


def of(kind: Any) -> st.SearchStrategy[Any]:  # noqa: PLR0911 - one per shape of a type
    """Every value that a field of this type may hold, so that a field added later is covered unasked."""
    origin, arguments = get_origin(kind), get_args(kind)
    if kind in PLAIN:
        return PLAIN[kind]
    if origin is Annotated:
        return of(arguments[0])
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, UnionType):
        return st.one_of([of(argument) for argument in arguments])
    if origin is dict:
        return st.dictionaries(of(arguments[0]), of(arguments[1]), max_size=3)
    if origin is tuple:
        return st.lists(of(arguments[0]), max_size=3).map(tuple)
    fixed = {
        "node": texts.filter(bool),
        "boot": texts.filter(bool),
        "cycle": st.integers(0, 2**63 - 1),
        "schema": st.just(SCHEMA_VERSION),
    }
    types = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return st.builds(kind, **{name: fixed[name] if name in fixed else of(types[name]) for name in types})


messages = st.one_of([of(kind) for kind in get_args(AnyMessage)])


@given(messages)
def test_what_is_sent_is_what_is_read(message):
    assert decode(encode(message)) == message


@given(messages)
def test_what_is_sent_is_plain_json_without_nan(message):
    def refuse(word: str) -> None:
        raise AssertionError(word)

    fields = json.loads(encode(message), parse_constant=refuse)
    assert fields["type"] == message.__struct_config__.tag


@given(messages, st.dictionaries(texts.map(lambda name: f"new_{name}"), st.none() | finite | texts, max_size=3))
def test_ms_03_a_fields_of_the_future_are_ignored(message, unknown):
    fields = {**unknown, **json.loads(encode(message))}
    assert decode(json.dumps(fields).encode()) == message


@given(messages, st.sampled_from([float("nan"), float("inf"), float("-inf")]), st.data())
def test_a_number_that_is_not_finite_is_stopped_wherever_it_sits(message, number, data):
    tree = msgspec.to_builtins(message)
    places = list(floats_in(tree))
    if not places:
        return
    holder, key = data.draw(st.sampled_from(places))
    holder[key] = number
    poisoned = msgspec.convert(tree, type(message))
    assert non_finite(poisoned) is not None
    with pytest.raises(EncodeError):
        encode(poisoned)


def floats_in(tree: Any):
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        if isinstance(value, float):
            yield tree, key
        yield from floats_in(value)


@given(st.binary(max_size=200))
def test_any_bytes_cost_at_most_a_decode_error(raw):
    try:
        decode(raw)
    except DecodeError:
        return
    pytest.fail("no random bytes are a message")


@given(messages, st.data())
def test_a_damaged_message_costs_at_most_a_decode_error(message, data):
    raw = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        read = decode(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    except DecodeError:
        return
    encode(read)
