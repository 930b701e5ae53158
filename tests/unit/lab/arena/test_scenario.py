"""What is a scenario and what is none, made in a program or read from a file; every refusal says which field."""

import json
import math

import msgspec
import pytest
from msgspec.structs import replace

from lab.arena.node import Node
from lab.arena.scenario import Curve, Scenario, ServicePod, SpinnerPod, constant
from lab.arena.scenarios import named, resolve

API = ServicePod(name="api", cls="latency-critical", request_millicpu=250, rate=constant(100.0), work_seconds=0.005)
BURN = SpinnerPod(name="burn", cls="batch", request_millicpu=4000, processes=constant(4.0))
NODE = Scenario(name="mine", text="made up", pods=(API, BURN))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0])
def test_a_curve_has_finite_values_of_at_least_0_at_finite_cycles(bad):
    with pytest.raises(ValueError, match=r"points: the value at cycle 2 is .*; give a number of at least 0"):
        Curve(((0.0, 1.0), (2.0, bad)))
    with pytest.raises(ValueError, match=r"points: a cycle: .* is out of range"):
        Curve(((0.0, 1.0), (bad, 2.0)))


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ((), "points: none"),
        (((1.0, 1.0),), "points: the first must be at cycle 0"),
        (((0.0, 1.0), (5.0, 2.0), (4.0, 1.0)), "points: cycle 4 comes after cycle 5"),
        (((0.0, 1.0), (5.0, 2.0), (5.0, 1.0)), "points: cycle 5 comes after cycle 5"),
        (((0.0, 1.0), (2e6, 2.0)), r"points: a cycle: 2e\+06 is out of range"),
    ],
)
def test_points_begin_at_0_and_ascend(points, words):
    with pytest.raises(ValueError, match=words):
        Curve(points)


@pytest.mark.parametrize("period", [0.0, -5.0, 1e-9, 0.09, math.nan, math.inf, 2e6])
def test_a_period_is_long_enough_to_be_simulated(period):
    with pytest.raises(ValueError, match=r"^period \(cycles\): "):
        Curve(((0.0, 1.0),), period=period)
    with pytest.raises(ValueError, match=r"^phase_period \(cycles\): "):
        replace(NODE, phase_period=period)


def test_a_curve_says_where_it_is_highest():
    assert Curve(((0.0, 1.0), (5.0, 9.0), (6.0, 2.0))).peak == 9.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": ""}, "^name: ''"),
        ({"name": "../up"}, r"^name: '\.\./up'"),
        ({"name": "a b"}, "^name: 'a b'"),
        ({"cls": "gold"}, "^cls: 'gold' is not known; known: latency-critical, default, batch"),
        ({"request_millicpu": -1}, "^request_millicpu: -1"),
        ({"request_millicpu": 10**30}, "^request_millicpu: 1000"),
        ({"request_millicpu": 0.5}, "^request_millicpu: 0.5"),
        ({"rate": constant(20_001.0)}, "^rate: 20001 is too much; give at most 20000"),
        ({"rate": Curve(tuple((float(n), 1.0) for n in range(1001)))}, "^rate: points: 1001 of them"),
        ({"rate": Curve(((0.0, 1.0), (0.0001, 2.0)))}, "^rate: points: two are less than 0.001 cycles apart"),
        ({"work_seconds": 0.0}, "^work_seconds: 0 "),
        ({"work_seconds": math.nan}, "^work_seconds: nan "),
        ({"work_seconds": math.inf}, "^work_seconds: inf "),
        ({"work_seconds": 61.0}, "^work_seconds: 61 .*give 1e-06 to 60"),
        ({"distribution": "pareto"}, "^distribution: 'pareto'"),
        ({"spread": -0.1}, "^spread: "),
        ({"spread": math.nan}, "^spread: "),
        ({"workers": 0}, "^workers: 0"),
        ({"workers": 65}, "^workers: 65 is out of range; give a whole number from 1 to 64"),
    ],
)
def test_a_service_that_cannot_be_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(API, **changes)


def test_processes_that_no_machine_starts_are_refused():
    for many in (257.0, 1e30):
        with pytest.raises(ValueError, match=r"^processes: .* is too much; give at most 256"):
            replace(BURN, processes=constant(many))
    assert replace(BURN, processes=constant(256.0)).processes.peak == 256.0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"name": ""}, "^name: ''"),
        ({"name": "a/b"}, "^name: 'a/b'"),
        ({"name": "x" * 64}, "^name: "),
        ({"text": "x" * 2001}, "^text: 2001 characters"),
        ({"cores": 0}, "^cores: 0"),
        ({"cores": 65}, "^cores: 65"),
        ({"cores": 1.5}, "^cores: 1.5"),
        ({"queue": "weird"}, "^queue: 'weird' is not known; known: bounded, unbounded"),
        ({"pods": ()}, "^pods: 0 of them"),
        ({"pods": tuple(replace(BURN, name=f"b{n}", processes=constant(1.0)) for n in range(17))}, "^pods: 17 of them"),
        ({"pods": (BURN, BURN)}, "^pods: two are called 'burn'"),
        (
            {"pods": tuple(replace(BURN, name=n, processes=constant(129.0)) for n in "ab")},
            "^pods: 258 processes in all",
        ),
        ({"pods": tuple(replace(API, name=n, rate=constant(10_001.0)) for n in "ab")}, "^pods: .*20002 requests"),
        ({"phases": ()}, "^phases: none"),
        ({"phases": (("a", 1.0),)}, "^phases: the first must be at cycle 0"),
        ({"phases": (("a", 0.0), ("b", 9.0), ("c", 8.0))}, "^phases: cycle 8 comes after cycle 9"),
        ({"phases": (("a", 0.0), ("a", 9.0))}, "^phases: two are called 'a'"),
        ({"phases": (("", 0.0),)}, "^phases: ''"),
        ({"phases": (("a", 0.0), ("b", math.nan))}, "^phases: a start: nan"),
        ({"phases": (("a", 0.0), ("b", 50.0)), "phase_period": 50.0}, "^phases: 'b' begins at cycle 50"),
        ({"phases": tuple((f"p{n}", float(n)) for n in range(1001))}, "^phases: 1001 of them"),
        ({"objectives": {"latency-critical": 0.0}}, "^objectives: latency-critical .*: 0 is out of range"),
        ({"objectives": {"latency-critical": -1.0}}, "^objectives: latency-critical .*: -1 "),
        ({"objectives": {"latency-critical": math.nan}}, "^objectives: latency-critical .*: nan "),
        ({"objectives": {"latency-critical": math.inf}}, "^objectives: latency-critical .*: inf "),
        ({"objectives": {"latency-critical": 0.1, "batch": 0.1}}, "^objectives: 'batch' is no latency class"),
        ({"objectives": {"default": 0.1}}, "^objectives: api is of class latency-critical, which has none"),
        ({"objectives": {}}, "^objectives: api is of class latency-critical, which has none"),
    ],
)
def test_a_scenario_that_cannot_be_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        replace(NODE, **changes)


def test_the_steepest_ramp_that_is_allowed_is_played():
    """Every process of a ramp becomes a step of its own: closer together than points may be, and more of them."""
    ramp = Curve(((0.0, 0.0), (0.001, 256.0), (999_999.999, 0.0), (1e6, 256.0)), "linear")
    node = Node(replace(NODE, pods=(replace(BURN, processes=ramp),)), 1)
    assert node.advance(5.0).pods["burn"].cpu_seconds == pytest.approx(10.0, abs=0.1)


# ---- files -----------------------------------------------------------------------------------------------------------


def written(path, **changes):
    tree = {**msgspec.json.decode(msgspec.json.encode(NODE)), **changes}
    path.write_text(json.dumps(tree))
    return str(path)


def test_a_file_is_read_as_json_or_yaml_and_played_with_the_queue_that_is_asked_for(tmp_path):
    (tmp_path / "mine.yaml").write_text(
        """
name: mine
text: made up
pods:
  - type: service
    name: api
    cls: latency-critical
    request_millicpu: 250
    rate: {points: [[0, 100]]}
    work_seconds: 0.005
  - {type: spinner, name: burn, cls: batch, request_millicpu: 4000, processes: {points: [[0, 4]]}}
"""
    )
    for path in (written(tmp_path / "mine.json"), str(tmp_path / "mine.yaml"), written(tmp_path / "LOUD.JSON")):
        assert resolve(path, "bounded") == (NODE,)
        assert resolve(path, "unbounded") == (replace(NODE, queue="unbounded"),)
    both = resolve(f"steady,{tmp_path / 'mine.json'},gen:3")
    assert both == (named("steady"), NODE, named("gen:3"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cores": "two"}, r"Expected `int`, got `str` - at `\$\.cores`"),
        ({"core": 2}, "unknown field `core`"),
        ({"objectives": {"gold": 1.0}}, r"Invalid enum value 'gold' - at `key` in `\$\.objectives`"),
        ({"phases": []}, "phases: none"),
        ({"name": "steady"}, "name: 'steady' is a scenario of Trimtab's own"),
        ({"name": "gen:1"}, "name: 'gen:1' is a scenario of Trimtab's own"),
        ({"pods": [{"type": "robot"}]}, r"Invalid value 'robot' - at `\$\.pods\[0\]\.type`"),
    ],
)
def test_a_bad_file_is_named_with_its_field(tmp_path, changes, words):
    path = written(tmp_path / "bad.json", **changes)
    with pytest.raises(ValueError, match=f"bad.json: .*{words}"):
        resolve(path)


def test_the_place_of_a_bad_number_is_told(tmp_path):
    (tmp_path / "bad.yaml").write_bytes(msgspec.yaml.encode(NODE).replace(b"- 100.0", b"- .nan"))
    with pytest.raises(
        ValueError, match=r"bad\.yaml: points: the value at cycle 0 is nan.* - at `\$\.pods\[0\]\.rate`"
    ):
        resolve(str(tmp_path / "bad.yaml"))


@pytest.mark.parametrize(
    ("name", "raw", "words"),
    [
        ("a.json", b"", "Input data was truncated"),
        ("a.yaml", b"", "Expected `object`, got `null`"),
        ("a.json", b"[[" * 100_000, "bad|nested|Expected|truncated"),
        ("a.yaml", b"[[" * 100_000, "nested too deeply"),
        ("a.json", b"\xff", "malformed"),
        ("a.yml", b"\xff", "not UTF-8 text"),
        ("a.yaml", b"name: a\nname: b\n", "duplicate key 'name'"),
        ("a.json", b" " * (1 << 20) + b"{}", "larger than 1 MiB"),
    ],
)
def test_what_is_no_scenario_at_all_is_one_line_that_names_the_file(tmp_path, name, raw, words):
    (tmp_path / name).write_bytes(raw)
    with pytest.raises(ValueError, match=words) as refusal:
        resolve(str(tmp_path / name))
    assert str(refusal.value).startswith(str(tmp_path / name))
    assert "\n" not in str(refusal.value)


def test_a_file_that_cannot_be_read_and_two_of_one_name_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"none\.json: cannot be read: No such file"):
        resolve(str(tmp_path / "none.json"))
    one, two = written(tmp_path / "one.json"), written(tmp_path / "two.json")
    with pytest.raises(ValueError, match="two scenarios are called 'mine'"):
        resolve(f"{one},{two}")
