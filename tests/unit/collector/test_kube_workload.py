"""What labels, namespaces and annotations make of a pod."""

import json

import pytest

from schemas.settings import DEFAULT_CLASSES
from services.collector.core.kube_pod import kube_pod
from services.collector.core.workload import (
    APART,
    MAX_UNKNOWN_VALUES,
    Namespaces,
    Workload,
    parse_duration,
    settle,
    unknown_values,
)
from tests.support.kube_objects import CLASS_LABEL, pod_object

BATCH = {CLASS_LABEL: "batch"}


ALL = Namespaces()


def settled(*, namespaces=ALL, **fields):
    workload = Workload(**{"uid": "u", "name": "shop/a", "group": "g", "namespace": "shop", "labels": BATCH} | fields)
    return settle(workload, (CLASS_LABEL,), DEFAULT_CLASSES, namespaces)


@pytest.mark.parametrize(
    ("labels", "cls", "unknown"),
    [
        ("null", None, None),
        ("{}", None, None),
        ('{"workload-class": ""}', None, ""),
        ('{"workload-class": "gold"}', None, "gold"),
        ('{"workload-class": "Latency-Critical"}', None, "Latency-Critical"),
        ('{"workload-class": "batch"}', "batch", None),
    ],
)
def test_kw_09_unknown_values_are_no_class_and_are_counted(labels, cls, unknown):
    pod = kube_pod(pod_object("a", metadata={"labels": json.loads(labels)}))
    found = settle(pod.workload, ("workload-class",), DEFAULT_CLASSES, Namespaces())
    assert (found.cls, found.unknown, found.workload.skip, found.note) == (cls, unknown, None, None)


def test_kw_09_the_number_of_values_that_are_counted_is_bounded():
    values = ["gold"] * 3 + ["silver"] * 2 + [f"v{number:02}" for number in range(30)]
    counted = unknown_values(values)
    assert len(counted) == MAX_UNKNOWN_VALUES + 1
    assert list(counted.items())[:3] == [("gold", 3), ("silver", 2), ("v00", 1)]
    assert counted["(other)"] == 22
    assert sum(counted.values()) == len(values)
    assert unknown_values([]) == {}
    assert unknown_values(["", ""]) == {"": 2}


def test_kw_09_a_long_value_is_cut_short():
    assert [len(value) for value in unknown_values(["x" * 5000, "y" * 63])] == [63, 63]


@pytest.mark.parametrize("annotation", ["true", " True ", "1", "yes", "ON"])
def test_a_pod_may_opt_out(annotation):
    found = settled(annotations={"trimtab.dev/exclude": annotation})
    assert (found.workload.skip, found.cls, found.note) == ("excluded", None, None)


@pytest.mark.parametrize("annotation", ["false", "False ", "0", "no", "Off", "", " "])
def test_only_who_plainly_says_no_has_not_opted_out(annotation):
    found = settled(annotations={"trimtab.dev/exclude": annotation})
    assert (found.workload.skip, found.cls, found.note) == (None, "batch", None)


@pytest.mark.parametrize("annotation", ["y", "ture", "null", "2", "x" * 1000])
def test_an_unclear_wish_to_be_left_alone_is_granted_and_noted(annotation):
    found = settled(annotations={"trimtab.dev/exclude": annotation})
    assert (found.workload.skip, found.cls) == ("excluded", None)
    assert found.note is not None
    assert found.note.startswith(f"trimtab.dev/exclude is '{annotation[:60]}")
    assert found.note.endswith('taken as "true"; "true" or "false" is expected')
    assert len(found.note) < 200
    assert settled(skip="finished", annotations={"trimtab.dev/exclude": annotation}).note is None


def test_excluded_namespaces_are_seen_and_not_classified():
    kept = Namespaces(None, frozenset({"kube-system"}))
    found = settled(namespace="kube-system", namespaces=kept)
    assert (found.workload.skip, found.cls, found.unknown) == ("namespace", None, None)
    assert settled(namespace="shop", namespaces=kept).cls == "batch"
    assert settled(namespace="kube-system-2", namespaces=kept).cls == "batch"


def test_only_included_namespaces_are_classified():
    only = Namespaces(frozenset({"shop", "kube-system"}), frozenset({"kube-system"}))
    assert settled(namespace="shop", namespaces=only).cls == "batch"
    assert settled(namespace="other", namespaces=only).workload.skip == "namespace"
    assert settled(namespace="kube-system", namespaces=only).workload.skip == "namespace"


def test_a_workload_without_a_namespace_is_not_judged_by_it():
    assert settled(namespace="", namespaces=Namespaces(frozenset({"shop"}))).cls == "batch"


@pytest.mark.parametrize("skip", ["pending", "terminating", "finished"])
def test_where_a_pod_is_in_its_life_comes_first(skip):
    found = settled(skip=skip, annotations={"trimtab.dev/exclude": "true"})
    assert (found.workload.skip, found.cls) == (skip, None)


def test_a_reason_of_the_group_leaves_the_class():
    assert "exclusive_cpus" not in APART
    found = settled(skip="exclusive_cpus")
    assert (found.workload.skip, found.cls) == ("exclusive_cpus", "batch")
    assert settled(skip="exclusive_cpus", annotations={"trimtab.dev/exclude": "true"}).workload.skip == "excluded"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("100ms", 0.1), ("0.25s", 0.25), ("800us", 0.0008), ("2s", 2.0), (" 1.5ms ", 0.0015), ("86400s", 86400.0)],
)
def test_a_pods_objective_is_a_duration(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)
    found = settled(annotations={"trimtab.dev/slo-p99": text})
    assert found.workload.objective_p99_seconds == pytest.approx(seconds)
    assert found.note is None


@pytest.mark.parametrize(
    "text",
    [
        "250", "", "ms", "100m", "1h", "-1s", "+1s", "0s", "0.0ms", "1e3ms", "nan", "infs", "1,5s", "100 ms", "1s1ms",
        "86401s", "0.5us", "٣s", "9" * 400 + "s", "100MS", ".5s",
    ],
)  # fmt: skip
def test_a_bad_objective_is_a_note_and_the_classs_holds(text):
    found = settled(annotations={"trimtab.dev/slo-p99": text})
    assert (found.workload.objective_p99_seconds, found.cls) == (None, "batch")
    assert found.note is not None
    assert found.note.startswith("trimtab.dev/slo-p99 is ")
    assert found.note.endswith("; the class's objective holds")
    assert len(found.note) < 200
