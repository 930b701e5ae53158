"""The static file: errors at start end the process with one line, later ones keep the last good view."""

import os

import pytest

from runtime.errors import ConfigError
from services.collector.sources.workloads import StaticFile, read_workloads

GOOD = """\
workloads:
  - uid: a
    group: burstable/pod-a
    labels: {trimtab.dev/workload-class: batch}
    metrics_url: http://127.0.0.1:9102/metrics
    latency_metric: req_seconds
  - uid: b
    group: pod-b
    name: bee
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "pods/burstable/pod-a").mkdir(parents=True)
    made = tmp_path / "workloads.yaml"
    made.write_text(GOOD)
    return made


def entry(**fields):
    lines = {"uid": "a", "group": "pod-a", **fields}
    return "workloads:\n  - " + "\n    ".join(f"{key}: {value}" for key, value in lines.items()) + "\n"


def pods_root(file):
    return str(file.parent / "pods")


def change(file, text):
    before = file.stat()
    file.write_text(text)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns + 1_000_000_000))


def test_workloads_are_read(file):
    first, second = read_workloads(str(file), pods_root(file))
    assert (first.uid, first.name, first.group) == ("a", "a", "burstable/pod-a")
    assert (first.metrics_url, first.latency_metric) == ("http://127.0.0.1:9102/metrics", "req_seconds")
    assert first.labels == {"trimtab.dev/workload-class": "batch"}
    assert (second.name, second.metrics_url) == ("bee", None)


def test_what_annotations_say_may_be_in_the_file_too(file):
    fields = {
        "latency_metric": "req",
        "latency_unit": "milliseconds",
        "annotations": '{prometheus.io/port: "9102"}',
        "address": "fd00::7",
        "ports": "[9102, 8080]",
    }
    file.write_text(entry(**fields))
    (found,) = read_workloads(str(file), pods_root(file))
    assert (found.latency_metric, found.latency_unit, found.metrics_url) == ("req", "milliseconds", None)
    assert (found.annotations, found.address, found.ports) == ({"prometheus.io/port": "9102"}, "fd00::7", (9102, 8080))


def test_an_empty_file_has_no_workloads(file):
    file.write_text("")
    assert read_workloads(str(file), pods_root(file)) == ()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (entry(group="../etc"), "write a path below the pods root"),
        (entry(group="/kubepods/pod-a"), "write a path below the pods root"),
        (entry(group="''"), "write a path below the pods root"),
        (entry(group="burstable//pod"), "write a path below the pods root"),
        (entry(group="link/pod-a"), "through a link"),
        (entry(uid="''"), "uid: is empty"),
        (entry(metrics_url="ftp://x/metrics"), "is not an http\\(s\\) URL"),
        (entry(metrics_url="127.0.0.1:9102"), "is not an http\\(s\\) URL"),
        (entry(metrics_url="http://"), "is not an http\\(s\\) URL"),
        (entry(metrics_url="'http://[::1'"), "is not an http\\(s\\) URL"),
        (entry(metrics_url="http://h:99999/"), "is not an http\\(s\\) URL"),
        (entry(metrics_url="http://h:port/"), "is not an http\\(s\\) URL"),
        (entry(metrics_url="http://h:0/"), "is not an http\\(s\\) URL"),
        (entry(latency_unit="ms"), "Invalid enum value 'ms'"),
        (entry(address="pod.test"), "'pod.test' is not an IP address"),
        (entry(address="10.42.0.256"), "is not an IP address"),
        (entry(address="''"), "'' is not an IP address"),
        (entry(ports="[0]"), "Expected `int` >= 1"),
        (entry(ports="[65536]"), "Expected `int` <= 65535"),
        (entry(ports="['9102']"), "Expected `int`"),
        (entry(annotations="{prometheus.io/port: 9102}"), "Expected `str`"),
        (entry(group="kubepods-burstable.slice"), "is a QoS group"),
        (entry(labelz="{}"), "unknown field `labelz`"),
        (entry(labels="null"), "Expected `object`"),
        (entry(labels="{a: 1}"), "Expected `str`"),
        (entry(uid="2026-01-05"), "Expected `str`"),
        ("workloads: 5\n", "Expected `array`"),
        ("pods: []\n", "unknown field `pods`"),
        (GOOD + "  - {uid: a, group: pod-c}\n", "listed twice"),
        (GOOD + "  - {uid: c, group: pod-b}\n", "listed twice"),
        (GOOD + "  - {uid: c, group: pod-b/c1}\n", "'pod-b/c1' and 'pod-b' lie inside one another"),
        (GOOD + "  - {uid: c, group: burstable}\n", "is a QoS group"),
        (GOOD + "  - {uid: c, group: x/pod-c}\n  - {uid: d, group: x}\n", "'x' and 'x/pod-c' lie inside one another"),
        ("workloads: [", "not valid YAML"),
        ("- a\n", "must be a mapping"),
        (entry(uid="2026-13-45"), "does not fit its type"),
        ("workloads: {? [1] : 2}\n", "not valid YAML"),
        ("workloads: " + "[" * 3000 + "\n", "nested too deeply"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(file, text, words):
    (file.parent / "pods/link").symlink_to(file.parent)
    file.write_text(text)
    with pytest.raises(ConfigError, match=words) as caught:
        read_workloads(str(file), pods_root(file))
    assert str(caught.value).startswith(str(file))
    assert "\n" not in str(caught.value)


def test_groups_whose_names_only_begin_alike_do_not_lie_inside_one_another(file):
    file.write_text(GOOD + "  - {uid: c, group: pod-bb}\n  - {uid: d, group: burstable/pod-b}\n")
    groups = [one.group for one in read_workloads(str(file), pods_root(file))]
    assert groups == ["burstable/pod-a", "pod-b", "pod-bb", "burstable/pod-b"]


def test_a_missing_file_ends_the_start(file):
    with pytest.raises(ConfigError, match="cannot be read"):
        StaticFile(str(file) + ".none", pods_root(file))


def test_the_file_is_read_again_when_it_changes(file):
    source = StaticFile(str(file), pods_root(file))
    assert len(source.workloads()) == 2
    change(file, GOOD + "  - {uid: c, group: pod-c}\n")
    assert [one.uid for one in source.workloads()] == ["a", "b", "c"]
    assert source.trouble() is None


@pytest.mark.parametrize(
    "broken",
    [
        "workloads: [",
        entry(group="../etc"),
        entry(metrics_url="'http://[::1'"),
        entry(uid="2026-13-45"),
        entry(name='"caf\\udce9"'),
        entry(**{'"\\ud800"': "1"}),
        entry(name="x" * 254),
        "? [1]\n: 2\n",
    ],
)
def test_a_file_that_becomes_broken_keeps_the_last_good_view_and_says_so(file, broken):
    source = StaticFile(str(file), pods_root(file))
    change(file, broken)
    for _ in range(3):
        assert [one.uid for one in source.workloads()] == ["a", "b"]
        assert str(file) in (source.trouble() or "")
    file.write_text(GOOD + "# good again\n")
    assert len(source.workloads()) == 2
    assert source.trouble() is None


def test_a_file_that_goes_away_keeps_the_last_good_view_and_says_so(file):
    source = StaticFile(str(file), pods_root(file))
    file.rename(str(file) + ".away")
    assert len(source.workloads()) == 2
    assert "cannot be read" in (source.trouble() or "")
    (file.parent / "workloads.yaml.away").rename(file)
    assert len(source.workloads()) == 2
    assert source.trouble() is None


def test_a_password_in_a_url_that_is_none_is_not_said(file):
    change(file, entry(metrics_url="http://user:s3cret@10.0.0.1:99999/metrics"))
    with pytest.raises(ConfigError) as caught:
        read_workloads(str(file), pods_root(file))
    assert "s3cret" not in str(caught.value)
