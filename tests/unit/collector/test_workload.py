"""Which class a pod's labels make it."""

import pytest

from schemas.settings import DEFAULT_CLASSES, ClassSettings
from services.collector.core.workload import classify

KEYS = ("trimtab.dev/workload-class", "workload-type")


@pytest.mark.parametrize(
    ("labels", "cls"),
    [
        ({"trimtab.dev/workload-class": "batch"}, "batch"),
        ({"workload-type": "batch"}, "batch"),
        ({"trimtab.dev/workload-class": "default", "workload-type": "batch"}, "default"),
        ({"trimtab.dev/workload-class": "gold", "workload-type": "batch"}, None),
        ({"app": "batch"}, None),
    ],
)
def test_the_first_label_that_is_present_decides(labels, cls):
    assert classify(labels, KEYS, DEFAULT_CLASSES) == cls


@pytest.mark.parametrize("value", ["", "gold", "Latency-Critical", " batch", "batch "])
def test_kw_09_an_unknown_value_is_no_class(value):
    assert classify({KEYS[0]: value}, KEYS, DEFAULT_CLASSES) is None
    assert classify({}, KEYS, DEFAULT_CLASSES) is None


def test_label_values_replace_the_classs_own_name():
    classes = {"bulk": ClassSettings(kind="throughput", label_values=("batch", "offline"))}
    assert classify({KEYS[0]: "offline"}, KEYS, classes) == "bulk"
    assert classify({KEYS[0]: "bulk"}, KEYS, classes) is None
