"""Where pods are scraped: one place a pod, one pod a place."""

import pytest

from services.collector.core.targets import Target, targets
from services.collector.core.workload import Workload


def pod(uid, *, address="10.42.0.7", ports=(), url=None, metric=None, unit=None, **notes):
    """`notes` are annotations: port, path, scrape and scheme, the latency metric and its unit."""
    prefix = {"latency_metric": "trimtab.dev/latency-metric", "latency_unit": "trimtab.dev/latency-unit"}
    annotations = {prefix.get(name, f"prometheus.io/{name}"): text for name, text in notes.items()}
    return Workload(
        uid=uid,
        name=f"pod-{uid}",
        group=f"pod-{uid}",
        annotations=annotations,
        address=address,
        ports=ports,
        metrics_url=url,
        latency_metric=metric,
        latency_unit=unit,
    )


def urls(*pods):
    return {uid: target.url for uid, target in targets(pods).found.items()}


def refused(*pods):
    return dict(targets(pods).refused)


def test_pm_12_a_one_target_for_a_pod_of_several_containers_and_ports():
    made = targets([pod("x", ports=(8080, 9102, 15090), port="9102")])
    assert made.found == {"x": Target("x", "http://10.42.0.7:9102/metrics")}
    assert made.refused == {}


def test_pm_12_b_of_two_pods_on_the_hosts_network_the_one_that_declares_the_port_has_it():
    x, y = pod("x", address="192.0.2.10", ports=(9102,), port="9102"), pod("y", address="192.0.2.10", port="9102")
    for both in ((x, y), (y, x)):
        made = targets(both)
        assert made.found == {"x": Target("x", "http://192.0.2.10:9102/metrics")}
        assert made.refused == {
            "y": "shared_target: 192.0.2.10:9102 is also the place of pod-x; only one pod may have it"
        }


@pytest.mark.parametrize("ports", [(), (9102,), (9102, 80)])
def test_pm_12_if_both_or_none_declare_the_port_it_is_nobodys(ports):
    one, other = (pod(uid, address="192.0.2.10", ports=ports, port="9102") for uid in "xy")
    assert urls(one, other) == {}
    assert {uid: text.partition(":")[0] for uid, text in refused(one, other).items()} == {
        "x": "shared_target",
        "y": "shared_target",
    }


@pytest.mark.parametrize(
    "others",
    [
        {"path": "/other"},
        {"scheme": "https"},
        {"address": "::ffff", "port": "9102"},
    ],
)
def test_pm_12_a_place_is_a_host_and_a_port_however_they_are_written(others):
    one = {"address": "::ffff" if "address" in others else "192.0.2.10", "port": "9102"}
    second = {**one, **others}
    second["address"] = "0:0:0:0::FFFF" if "address" in others else second["address"]
    assert urls(pod("x", **one), pod("y", **second)) == {}


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "localhost.", "[::ffff:127.0.0.1]"])
def test_pm_12_the_machine_itself_is_one_place_by_name_and_by_address(host):
    one = pod("x", url="http://127.0.0.1:9102/metrics")
    assert urls(one, pod("y", url=f"http://{host}:9102/metrics")) == {}
    assert set(urls(one, pod("y", url=f"http://{host}:9103/metrics"))) == {"x", "y"}
    assert set(urls(one, pod("y", url="http://localhost.test:9102/metrics"))) == {"x", "y"}


def test_pm_12_three_pods_and_one_that_owns_the_port():
    pods = [pod("x", port="9102"), pod("y", port="9102", ports=(9102,)), pod("z", port="9102")]
    assert set(urls(*pods)) == {"y"}
    assert "place of pod-x, pod-y;" in refused(*pods)["z"]


def test_pods_on_other_ports_or_addresses_do_not_share():
    pods = [pod("x", port="9102"), pod("y", port="9103"), pod("z", address="10.42.0.8", port="9102")]
    assert set(urls(*pods)) == {"x", "y", "z"}


EXPORTER = "http://127.0.0.1:9102"


def test_a_url_that_is_written_out_is_taken_as_it_stands():
    assert urls(pod("x", url=f"{EXPORTER}/a?b=c", port="80", scrape="false")) == {"x": f"{EXPORTER}/a?b=c"}


def test_one_exporter_may_have_a_page_for_each_of_several_pods():
    pods = [pod("x", url=f"{EXPORTER}/x"), pod("y", url=f"{EXPORTER}/y"), pod("z", url=f"{EXPORTER}/y?pod=z")]
    assert set(urls(*pods)) == {"x", "y", "z"}


@pytest.mark.parametrize(
    "same", [f"{EXPORTER}/x", "http://127.0.0.1:9102/x#part", "HTTP://127.0.0.1:9102/x", "http://u@127.0.0.1:9102/x"]
)
def test_pm_12_one_written_page_for_two_pods_is_nobodys_and_the_third_keeps_its_own(same):
    pods = [pod("x", url=f"{EXPORTER}/x"), pod("y", url=same), pod("z", url=f"{EXPORTER}/z")]
    assert set(urls(*pods)) == {"z"}
    assert "place of pod-y;" in refused(*pods)["x"]


def test_pm_12_the_usual_port_need_not_be_written():
    assert urls(pod("x", url="http://h/metrics"), pod("y", url="http://H:80/metrics")) == {}
    assert urls(pod("x", url="https://h/"), pod("y", url="https://h:443")) == {}
    assert set(urls(pod("x", url="http://h/"), pod("y", url="https://h/"))) == {"x", "y"}


def test_pm_12_a_written_url_and_an_annotation_for_one_place():
    written, noted = pod("x", url="http://10.42.0.7:9102/x"), pod("y", port="9102")
    assert urls(written, noted) == {}
    assert set(urls(written, pod("y", port="9102", ports=(9102,)))) == {"y"}
    assert set(urls(pod("x", url="http://10.42.0.7:9102/x", ports=(9102,)), noted)) == {"x"}


@pytest.mark.parametrize("url", ["http://[::1", "http://h:99999/", "http://h:port/"])
def test_a_url_that_is_none_costs_itself(url):
    made = targets([pod("x", url=url), pod("y", port="9102")])
    assert set(made.found) == {"y"}
    assert made.refused["x"].startswith("no_target: ")


@pytest.mark.parametrize(
    "notes",
    [
        {},
        {"scrape": "false", "port": "9102"},
        {"scrape": "False", "port": "9102"},
        *({"scrape": no, "port": "9102"} for no in ("no", "0", "OFF")),
        {"scrape": "false"},
        {"path": "/metrics"},
        {"scheme": "https"},
        {"scrape": ""},
    ],
)
def test_a_pod_that_does_not_ask_for_it_is_not_scraped_and_that_is_no_error(notes):
    made = targets([pod("x", ports=(9102,), **notes)])
    assert (made.found, made.refused) == ({}, {})


@pytest.mark.parametrize(
    ("notes", "url"),
    [
        ({"port": "9102"}, "http://10.42.0.7:9102/metrics"),
        ({"port": " 9102 "}, "http://10.42.0.7:9102/metrics"),
        ({"port": "1"}, "http://10.42.0.7:1/metrics"),
        ({"port": "65535"}, "http://10.42.0.7:65535/metrics"),
        ({"port": "9102", "scrape": "true"}, "http://10.42.0.7:9102/metrics"),
        ({"port": "9102", "scrape": " True "}, "http://10.42.0.7:9102/metrics"),
        *(({"port": "9102", "scrape": yes}, "http://10.42.0.7:9102/metrics") for yes in ("yes", "1", "On")),
        ({"scrape": "true"}, "http://10.42.0.7:8080/metrics"),
        ({"port": "9102", "path": "stats"}, "http://10.42.0.7:9102/stats"),
        ({"port": "9102", "path": "/"}, "http://10.42.0.7:9102/"),
        ({"port": "9102", "path": ""}, "http://10.42.0.7:9102/metrics"),
        ({"port": "9102", "path": "//evil.test/x"}, "http://10.42.0.7:9102/evil.test/x"),
        ({"port": "9102", "path": "@evil.test/x"}, "http://10.42.0.7:9102/@evil.test/x"),
        ({"port": "9102", "scheme": "HTTPS"}, "https://10.42.0.7:9102/metrics"),
        ({"port": "9102", "scheme": ""}, "http://10.42.0.7:9102/metrics"),
        ({"port": "9102", "address": "fd00::7"}, "http://[fd00::7]:9102/metrics"),
        ({"port": "9102", "address": "fe80::1%eth0"}, "http://[fe80::1%eth0]:9102/metrics"),
    ],
)
def test_annotations_make_a_url(notes, url):
    assert urls(pod("x", ports=(8080, 8080), **notes)) == {"x": url}


@pytest.mark.parametrize(
    ("notes", "words"),
    [
        ({"port": "0"}, "prometheus.io/port is '0'; a number from 1 to 65535"),
        ({"port": "65536"}, "prometheus.io/port is '65536'"),
        ({"port": "-1"}, "prometheus.io/port is '-1'"),
        ({"port": "9_102"}, "prometheus.io/port is '9_102'"),
        ({"port": "٣"}, "prometheus.io/port is"),
        ({"port": "metrics"}, "prometheus.io/port is 'metrics'"),
        ({"port": "9" * 5000}, "prometheus.io/port is"),
        ({"port": "", "scrape": "true"}, "prometheus.io/port is ''"),
        ({"port": "9102", "scheme": "ftp"}, "prometheus.io/scheme is 'ftp'; http or https"),
        ({"port": "9102", "scrape": "ja"}, 'prometheus.io/scrape is \'ja\'; "true" or "false" is expected'),
        ({"port": "9102", "scrape": "y" * 5000}, "prometheus.io/scrape is 'yyy"),
        ({"scrape": "true", "ports": ()}, "the pod declares 0 ports; name one with prometheus.io/port"),
        ({"scrape": "true", "ports": (80, 81)}, "the pod declares 2 ports; name one with prometheus.io/port"),
        ({"port": "9102", "address": None}, "the pod has no address yet"),
    ],
)
def test_a_pod_that_asks_and_cannot_be_scraped_is_told_why(notes, words):
    made = targets([pod("x", **notes)])
    assert made.found == {}
    assert made.refused["x"].startswith(f"no_target: {words}")
    assert len(made.refused["x"]) <= 200


def test_names_and_annotations_do_not_get_out_of_their_line():
    odd = Workload(
        uid="x", name="a\n\x1b[2J" + "n" * 500, group="g", annotations={"prometheus.io/port": "1"}, address="::1"
    )
    made = targets([odd, pod("y", address="::1", port="1"), pod("z", port="5\n\x1b6")])
    for text in made.refused.values():
        assert text.isprintable()
        assert len(text) <= 200
    assert set(made.refused) == {"x", "y", "z"}


@pytest.mark.parametrize(
    ("fields", "metric", "unit"),
    [
        ({}, None, None),
        ({"latency_metric": "own_seconds"}, "own_seconds", None),
        ({"latency_metric": "own_seconds_bucket"}, "own_seconds", None),
        ({"latency_metric": " own ", "latency_unit": " milliseconds\n"}, "own", "milliseconds"),
        ({"latency_metric": "", "latency_unit": ""}, None, None),
        ({"latency_metric": "_bucket"}, None, None),
        ({"latency_metric": "noted", "latency_unit": "seconds", "metric": "written", "unit": "nanoseconds"}, "written", "nanoseconds"),
        ({"metric": "written_ms_bucket"}, "written_ms", None),
    ],
)  # fmt: skip
def test_what_a_pod_says_of_its_metric(fields, metric, unit):
    made = targets([pod("x", port="9102", **fields)])
    assert made.found == {"x": Target("x", "http://10.42.0.7:9102/metrics", metric, unit)}
