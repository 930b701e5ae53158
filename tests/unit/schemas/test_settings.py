import msgspec
import pytest

from schemas.messages import Latency
from schemas.objective import judged_by
from schemas.settings import DEFAULT_CLASSES, ClassSettings, LoopSettings, SettingsError, Shared, WeightSettings

THROUGHPUT = ClassSettings(kind="throughput")


def test_the_defaults_agree_with_each_other_and_touch_nothing():
    shared = Shared()
    shared.check()
    assert shared.mode == "shadow"
    assert shared.classes == DEFAULT_CLASSES


def test_one_processs_classes_are_not_anothers():
    first = Shared()
    first.classes["extra"] = THROUGHPUT
    assert "extra" not in Shared().classes
    assert "extra" not in DEFAULT_CLASSES


def complaint(**fields) -> str:
    with pytest.raises(SettingsError) as caught:
        Shared(**fields).check()
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_class_without_objective_is_told_all_ways_out():
    assert complaint(classes={"web": ClassSettings()}) == (
        "classes.web: has no objective; set classes.web.objective_p99_seconds (seconds) or "
        "classes.web.objective_pressure_ratio (0-1), or kind: throughput if it has none"
    )


@pytest.mark.parametrize(
    "objectives",
    [
        {"objective_p99_seconds": 0.1},
        {"objective_pressure_ratio": 0.1},
        {"objective_pressure_ratio": 0.0},
        {"objective_p99_seconds": 0.1, "objective_pressure_ratio": 1.0},
    ],
)
def test_a_latency_class_needs_one_of_two_objectives(objectives):
    Shared(classes={"web": ClassSettings(**objectives)}).check()


def test_the_default_latency_classes_are_judged_without_a_metrics_endpoint_too():
    for name, spec in DEFAULT_CLASSES.items():
        expected = "pressure" if spec.kind == "latency" else None
        assert judged_by(Latency(reason="no_source"), spec) == expected, name


def test_a_ceiling_comes_back_as_it_was_written():
    text = "classes: {web: {objective_pressure_ratio: 0.25}, work: {kind: throughput}}"
    shared = msgspec.yaml.decode(text, type=Shared)
    assert shared.classes["web"] == ClassSettings(objective_pressure_ratio=0.25)
    assert msgspec.yaml.decode(msgspec.yaml.encode(shared), type=Shared) == shared


@pytest.mark.parametrize("ceiling", ["1.01", "-0.01", ".nan", "10 %"])
def test_a_ceiling_is_a_part_of_the_time(ceiling):
    with pytest.raises(msgspec.ValidationError, match="objective_pressure_ratio"):
        msgspec.yaml.decode(f"classes: {{web: {{objective_pressure_ratio: {ceiling}}}}}", type=Shared)


def test_a_throughput_class_needs_no_objective():
    Shared(classes={"web": THROUGHPUT}).check()


@pytest.mark.parametrize("smallest", [10_000, 5000])
def test_weights_need_room_between_their_limits(smallest):
    text = complaint(weights=WeightSettings(min_weight=smallest, max_weight=5000))
    assert text.startswith(f"weights.min_weight: {smallest} is not below weights.max_weight 5000")


def test_the_cycle_must_fit_into_the_tick():
    text = complaint(loop=LoopSettings(tick_seconds=2.1, settle_seconds=2.0, decision_budget_seconds=0.1))
    assert text.startswith("loop.tick_seconds: 2.1 must be more than")


def test_a_label_value_names_one_class_only():
    text = complaint(classes={"a": THROUGHPUT, "b": ClassSettings(kind="throughput", label_values=("x", "a"))})
    assert text == ("classes.b.label_values: 'a' already belongs to class 'a'; a label value can name one class only")


def test_no_classes_at_all_is_an_error_and_not_an_idle_agent():
    assert complaint(classes={}).startswith("classes: none are defined")


@pytest.mark.parametrize("name", ["node", "", "a.b", "a b", "a\nb", "-a", "a/b", "a" * 64])
def test_a_class_name_that_would_collide_or_break_a_line_is_refused(name):
    assert complaint(classes={name: THROUGHPUT}).startswith(f"classes: {name!r} is not a name for a class")


@pytest.mark.parametrize("node", ["", "Node-1", "a_b", "a..b"])
def test_a_node_name_that_is_no_dns_name_is_refused(node):
    assert complaint(node=node).startswith("node: ")


def test_another_version_of_the_file_format_is_refused():
    assert complaint(version=2).startswith("version: 2 is not supported; this release reads version 1")


@pytest.mark.parametrize("weight", [0, 10_001, -3])
def test_ms_03_f_a_bound_holds_where_settings_are_read_not_where_code_builds_them(weight):
    assert WeightSettings(min_weight=weight).min_weight == weight
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"min_weight": weight}, WeightSettings)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 0.0, -1.0, 86_401.0])
def test_a_time_that_is_no_time_is_refused(number):
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"tick_seconds": number}, LoopSettings)
