"""The configuration under texts, variables and flags that nobody would write: a ConfigError of one line, or a config."""

import contextlib
import re

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cli.up import SECTIONS
from runtime.config import describe, load
from runtime.errors import ConfigError

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.dates()
    | st.binary(max_size=4)
    | st.sampled_from(["latency", "throughput", "active", 0, 1, 100, 10_000, 10_001, 0.1, "nats://u:p@h"])
)
names = st.sampled_from(
    [
        "version",
        "node",
        "mode",
        "loop",
        "weights",
        "classes",
        "bus",
        "http",
        "log",
        "host",
        "guard",
        "decider",
        "tick_seconds",
        "min_weight",
        "max_weight",
        "kind",
        "label_values",
        "objective_p99_seconds",
        "url",
        "password",
        "base_port",
        "level",
        "pods_root",
        "profiles",
        "batch",
        "latency-critical",
        "web",
    ]
)
keys = names | st.text(max_size=5) | st.integers() | st.none() | st.booleans()
trees = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)
segments = names.map(lambda name: name.upper().replace("-", "_"))


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("config") / "trimtab.yaml"


@contextlib.contextmanager
def only_one_line_of_complaint():
    try:
        yield
    except ConfigError as error:
        text = str(error)
        assert text.strip()
        assert len(text.splitlines()) == 1


def tried(file, text: str) -> None:
    file.write_text(text, encoding="utf-8", errors="replace")
    with only_one_line_of_complaint():
        config = load(SECTIONS, path=str(file), env={})
        assert all(len(line.splitlines()) == 1 for line in describe(config))


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
@example(text="{[a]: 1}")
@example(text="? {a: b}\n: c")
@example(text="a: &a [*a]")
@example(text="&a {a: *a}")
@example(text="classes: &a [*a]")
@example(text="node: 2026-99-99")
@example(text="node: !!timestamp x")
@example(text="node: !!bool maybe")
@example(text="node: !!int x")
@example(text="node: !!binary ä")
@example(text="node: !!python/object:os.system {}")
@example(text="[" * 5000)
@example(text="{a: " * 5000)
@example(text="node: " + "9" * 5000)
@example(text='host: {cgroup_root: "\\ud800"}')
@example(text='"a\\nb": 1')
@example(text="mode: |\n  a\n  b\n")
@example(text='classes: {"a\\nb": {kind: throughput}}')
@example(text="\x00")
@example(text="a: 1\n---\nb: 2\n")
def test_arbitrary_text_as_a_file(file, text):
    tried(file, text)


@given(st.dictionaries(keys, trees, max_size=4))
@settings(max_examples=200)
def test_arbitrary_trees_as_a_file(file, tree):
    tried(file, yaml.safe_dump(tree, allow_unicode=True))


@given(
    st.dictionaries(
        st.lists(segments, min_size=1, max_size=3).map(lambda parts: "TRIMTAB_" + "__".join(parts)),
        st.text(st.characters(exclude_characters="\0"), max_size=10)
        | trees.map(lambda tree: yaml.safe_dump(tree, allow_unicode=True)),
        max_size=4,
    )
)
@settings(max_examples=200)
def test_arbitrary_variables(env):
    with only_one_line_of_complaint():
        assert describe(load(SECTIONS, env=env))


@given(st.lists(st.tuples(st.lists(names | st.text(max_size=3), max_size=4).map(".".join), trees, st.just("--set"))))
@settings(max_examples=200)
def test_arbitrary_flags(overrides):
    with only_one_line_of_complaint():
        assert describe(load(SECTIONS, overrides=overrides, env={}))


SETTINGS = {
    "loop.tick_seconds": [4.75, 5.5, 6.0],
    "weights.max_weight": [5000, 7000],
    "mode": ["active", "frozen"],
    "bus.password": ["12345", "null", "p #1", "no"],
    "classes.batch.importance": [0.25, 0.75],
    "guard.min_requests": [30, 40],
}


@given(
    st.sampled_from(sorted(SETTINGS)).flatmap(
        lambda dotted: st.tuples(
            st.just(dotted), *[st.none() | st.sampled_from(SETTINGS[dotted]) for _ in ("file", "env", "flag")]
        )
    )
)
def test_flag_over_variable_over_file_over_default(file, case):
    dotted, in_file, in_env, in_flag = case
    variable = "TRIMTAB_" + dotted.upper().replace(".", "__")
    tree: object = in_file
    for part in reversed(dotted.split(".")):
        tree = {part: tree}
    if dotted.startswith("classes") and in_file is not None:
        tree = {"classes": {"batch": {"kind": "throughput", "importance": in_file}}}
    file.write_text(yaml.safe_dump(tree) if in_file is not None else "")
    config = load(
        SECTIONS,
        path=str(file),
        env={variable: str(in_env)} if in_env is not None else {},
        overrides=[(dotted, str(in_flag), "--set")] if in_flag is not None else [],
    )
    expected = next(
        (
            (v, o)
            for v, o in [(in_flag, "flag --set"), (in_env, f"env {variable}"), (in_file, f"file {file}")]
            if v is not None
        ),
        (None, "default"),
    )
    (line,) = [line for line in describe(config) if line.startswith(f"{dotted}: ")]
    assert line.endswith(f"  # {expected[1]}")
    if dotted == "bus.password":
        assert config.bus.password == expected[0]
    elif expected[0] is not None:
        shown = re.sub(r"^.*?: |  #.*$", "", line)
        assert yaml.safe_load(shown) == expected[0]
