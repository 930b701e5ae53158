from hypothesis import given
from hypothesis import strategies as st

from schemas.features import CLASS_FEATURES, NODE_FEATURES, feature_names, features_schema
from schemas.settings import ClassSettings, SettingsError, Shared

CLASSES = ("latency-critical", "batch")


def test_the_names_are_fixed():
    assert feature_names(("batch",)) == (
        "bias",
        "node.contended",
        "node.busy_ratio",
        "node.pressure_ratio",
        "node.pressure_missing",
        "node.run_queue",
        "node.run_queue_missing",
        "node.previous_applied",
        "batch.present",
        "batch.weight_log",
        "batch.share",
        "batch.cpu_ratio",
        "batch.pressure_ratio",
        "batch.pressure_missing",
        "batch.throttled_ratio",
        "batch.waited_ratio",
        "batch.waited_missing",
        "batch.latency_log",
        "batch.latency_missing",
        "batch.over_ratio",
        "batch.load_log",
    )


def test_the_nodes_features_come_first_then_class_by_class():
    names = feature_names(CLASSES)
    assert names[: len(NODE_FEATURES)] == NODE_FEATURES
    assert names[len(NODE_FEATURES)] == "latency-critical.present"
    assert names[-1] == "batch.load_log"
    assert len(names) == len(NODE_FEATURES) + 2 * len(CLASS_FEATURES)


@given(st.lists(st.text(max_size=8), unique=True, max_size=4))
def test_every_set_of_classes_that_the_settings_allow_gives_distinct_names(classes):
    try:
        Shared(classes={name: ClassSettings(kind="throughput") for name in classes}).check()
    except SettingsError:
        return
    names = feature_names(classes)
    assert len(set(names)) == len(names)


def test_a_class_called_node_would_give_two_features_one_name():
    names = feature_names(["node"])
    assert len(set(names)) < len(names)


def test_the_schema_tells_classes_and_their_order_apart():
    assert len({features_schema(classes) for classes in [CLASSES, CLASSES[::-1], CLASSES[:1], ()]}) == 4


def test_the_schema_of_a_recorded_model_is_what_it_was():
    assert features_schema(("latency-critical", "default", "batch")) == "f2-40809f55ee22"
