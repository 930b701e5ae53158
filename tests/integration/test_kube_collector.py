"""The collector with pods from an API server: what a state says of them, and when nothing may be written."""

import shutil
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.errors import ConfigError
from runtime.metrics import CommonMetrics
from schemas.messages import State
from services.collector.config import CollectorConfig
from services.collector.service import CollectorService
from tests.support.harness import harness
from tests.support.kube_api import STAY, Gate, KubeApiServer, Raw
from tests.support.kube_objects import CLASS_LABEL, bookmark, event, pod_list, pod_object
from tests.unit.collector.world import PODS_ROOT, Node

UIDS = [f"0000000{number}-0000-4000-8000-000000000000" for number in range(9)]
CRITICAL, BATCH = {CLASS_LABEL: "latency-critical"}, {CLASS_LABEL: "batch"}


@pytest.fixture
def server():
    made = KubeApiServer()
    yield made
    made.close()


def group(number: int) -> str:
    return f"burstable/pod{UIDS[number]}"


def pod(number: int, version: int = 5, labels=None, **fields):
    metadata = {"labels": labels, **fields.pop("metadata", {})}
    return pod_object(f"p{number}", UIDS[number], version, metadata=metadata, **fields)


@asynccontextmanager
async def collector(server, tmp_path, settings=None, *, groups=(0, 1), **options):
    node = Node(tmp_path)
    node.add("burstable")
    for number in groups:
        node.add(group(number))
    wanted = {
        "host.cgroup_root": str(node.root),
        "host.pods_root": PODS_ROOT,
        "host.proc_root": str(node.proc),
        "host.simulated": True,
        "collector.kubernetes": True,
        "collector.kubeconfig": server.kubeconfig(tmp_path),
        **(settings or {}),
    }
    async with harness("collector", CollectorConfig, CollectorService, wanted, **options) as made:
        made.node = node
        yield made


def pods_of(state: State):
    return {one.name: one.cls for one in state.pods if one.uid}


async def test_states_show_the_pods_of_the_api_that_have_a_group(server, tmp_path):
    server.lists.append(pod_list(10, pod(0, labels=CRITICAL), pod(1, labels=BATCH), pod(2, labels=BATCH)))
    async with collector(server, tmp_path) as h:
        server.until(lambda: len(server.of("watch")) == 1)
        await h.advance(5.0)
        state = h.sent(State)[-1]
        assert pods_of(state) == {"shop/p0": "latency-critical", "shop/p1": "batch"}
        assert [one.group for one in state.pods if one.uid] == [group(0), group(1)]
        assert state.notes == ("pods: 1 without a group below the pods root: shop/p2",)
        assert state.writable
        h.node.add(group(2))  # a new pod joins in the next tick, a gone one is forgotten
        (h.node.base / group(0)).rename(h.node.root / "gone")
        await h.advance(5.0)
        assert pods_of(h.sent(State)[-1]) == {"shop/p1": "batch", "shop/p2": "batch"}
    assert server.of("list")[0]["fieldSelector"] == "spec.nodeName=node-1"


async def test_nothing_is_written_before_the_first_list(server, tmp_path):
    opened = Gate()
    server.lists += [opened, pod_list(10, pod(0, labels=CRITICAL))]
    async with collector(server, tmp_path) as h:
        await h.advance(5.0)
        state = h.sent(State)[-1]
        assert (state.writable, pods_of(state)) == (False, {})
        assert state.notes == ("pods: the API has not listed any yet, 5 s after the start",)
        assert h.context.health.not_ready["pods"] == state.notes[0]
        opened.open()
        server.until(lambda: len(server.of("watch")) == 1)
        await h.advance(5.0)
        state = h.sent(State)[-1]
        assert (state.writable, pods_of(state), state.notes) == (True, {"shop/p0": "latency-critical"}, ())
        assert "pods" not in h.context.health.not_ready


async def test_kw_03_no_weight_is_written_on_a_stale_view_until_it_is_proven_fresh(server, tmp_path):
    server.lists.append(pod_list(10, pod(0, labels=CRITICAL)))
    alive = Gate()
    server.watches += [[alive, bookmark(11)], [STAY]]
    async with collector(server, tmp_path) as h:
        server.until(lambda: len(server.of("watch")) == 1)
        await h.advance(90.0)
        assert all(state.writable for state in h.sent(State)[1:])
        assert h.metric("trimtab_collector_pods_view_age_seconds") == 90.0
        await h.advance(5.0)
        state = h.sent(State)[-1]
        assert (state.writable, pods_of(state)) == (False, {"shop/p0": "latency-critical"})
        assert state.notes == ("pods: the view is 95 s old, more than max_view_age_seconds 90: no writes",)
        assert not h.context.health.ready()[0]
        alive.open()
        server.until(lambda: len(server.of("watch")) == 2)
        await h.advance(5.0)
        assert (h.sent(State)[-1].writable, h.sent(State)[-1].notes) == (True, ())


async def test_pods_apart_are_seen_and_neither_classified_nor_scraped(server, tmp_path):
    asks, at = {"prometheus.io/port": "1"}, {"podIP": "127.0.0.1"}  # nobody listens there: a scrape would be noted
    server.lists.append(
        pod_list(
            10,
            pod(0, labels=CRITICAL, status=at, metadata={"annotations": {**asks, "trimtab.dev/exclude": "true"}}),
            pod(
                1,
                labels=CRITICAL,
                namespace="kube-system",
                status=at,
                metadata={"annotations": {"prometheus.io/port": "2"}},
            ),
            pod(2, labels=BATCH, metadata={"deletionTimestamp": "2026-01-05T10:00:00Z", "annotations": asks}),
            pod(3, labels=BATCH, phase="Succeeded"),
            pod(4, labels=None, status=at, metadata={"annotations": {"prometheus.io/port": "3"}}),
            pod(5, labels=BATCH, metadata={"annotations": {"trimtab.dev/slo-p99": "250"}}),
        )
    )
    async with collector(server, tmp_path, groups=range(6)) as h:
        server.until(lambda: len(server.of("watch")) == 1)
        await h.advance(5.0)
        state = h.sent(State)[-1]
        assert pods_of(state) == {
            "shop/p0": None,
            "kube-system/p1": None,
            "shop/p2": None,
            "shop/p3": None,
            "shop/p4": None,
            "shop/p5": "batch",
        }
        bad = 'trimtab.dev/slo-p99 is \'250\'; a number with its unit is expected, like "100ms" or "0.25s"'
        assert state.notes == (f"shop/p5: {bad}; the class's objective holds",)


async def test_kw_09_unknown_class_values_are_counted_and_forgotten(server, tmp_path):
    server.lists.append(pod_list(10, pod(0, labels={CLASS_LABEL: "gold"}), pod(1, labels={CLASS_LABEL: "gold"})))
    renamed = Gate()
    changed = [event("MODIFIED", pod(number, 11 + number, labels={CLASS_LABEL: ""})) for number in (0, 1)]
    server.watches += [[renamed, *changed], [STAY]]
    async with collector(server, tmp_path) as h:
        server.until(lambda: len(server.of("watch")) == 1)
        await h.advance(5.0)
        assert h.metric("trimtab_collector_unclassified_pods", value="gold") == 2
        renamed.open()
        server.until(lambda: len(server.of("watch")) == 2)
        await h.advance(5.0)
        assert h.metric("trimtab_collector_unclassified_pods", value="") == 2
        registry = h.context.metrics.registry
        assert registry.get_sample_value("trimtab_collector_unclassified_pods", {"value": "gold"}) is None


async def test_of_several_pods_roots_the_one_with_the_apis_pods_is_looked_at_and_that_is_said(server, tmp_path):
    opened = Gate()
    server.lists += [opened, pod_list(10, pod(0, labels=CRITICAL))]
    async with collector(server, tmp_path, {"host.pods_root": None}, groups=(1,), start=False) as h:
        far = "system.slice/node/kubepods"
        shutil.copytree(h.node.base, h.node.root / far)
        (h.node.root / far / group(1)).rename(h.node.root / far / group(0))
        for root in (PODS_ROOT, far):
            (h.node.root / root / "cgroup.events").write_text("populated 1\n")
        h.service = CollectorService(replace(h.context, metrics=CommonMetrics("collector")))
        await h.start()
        state = await tick(h)
        said = f"pods root: several hold running pods (kubepods, {far}); "
        assert (
            state.notes[1] == f"{said}kubepods is looked at; set host.pods_root to the right one, for the actuator too"
        )
        opened.open()
        server.until(lambda: len(server.of("watch")) == 1)
        state = await tick(h)
        assert (pods_of(state), state.writable) == ({"shop/p0": "latency-critical"}, True)
        assert state.notes == (f"{said}{far} is looked at; set host.pods_root to the right one, for the actuator too",)
        assert [one.group for one in state.pods if one.uid] == [group(0)]


async def tick(h) -> State:
    await h.advance(5.0)
    return h.sent(State)[-1]


async def test_a_trouble_is_said_to_its_end(server, tmp_path):
    asks = {"annotations": {"prometheus.io/port": "1", "prometheus.io/scheme": "https"}}  # nobody listens there
    server.lists.append(pod_list(10, pod(0, labels=CRITICAL, status={"podIP": "127.0.0.1"}, metadata=asks)))
    authorities = tmp_path / f"{'ca-' * 70}.pem"
    shutil.copy(Path(__file__).parents[1] / "fixtures/tls/ca.pem", authorities)
    async with collector(server, tmp_path, {"collector.tls_ca_file": str(authorities)}) as h:
        server.until(lambda: len(server.of("watch")) == 1)
        authorities.write_text("none")
        await tick(h)
        note = (await tick(h)).notes[-1]
        assert note.startswith(f"collector.tls_ca_file: {authorities}: ")
        assert note.endswith("; it must be a readable PEM file")


async def test_failures_are_counted_by_their_word(server, tmp_path):
    server.lists += [Raw(b"null"), STAY]
    async with collector(server, tmp_path) as h:
        server.until(lambda: len(server.of("list")) == 2)
        assert h.metric("trimtab_collector_api_failures_total", reason="garbled") == 1
        assert h.metric("trimtab_collector_pod_lists_total") == 0
        await h.advance(5.0)
        assert "the list of pods cannot be read: the answer is no list of pods" in h.sent(State)[-1].notes[1]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (
            {"collector.kubernetes": False, "collector.kubeconfig": None},
            "name the YAML file .* or set kubernetes to true",
        ),
        ({"collector.workloads": "/w.yaml"}, "set workloads to null to follow the API, or kubernetes to false"),
        ({"collector.kubernetes": False}, "kubeconfig: is set and collector.kubernetes is not"),
        ({"collector.max_view_age_seconds": 70.0}, "max_view_age_seconds: 70 is not more than"),
        ({"collector.include_namespaces": []}, "include_namespaces: none of them is left"),
        ({"collector.include_namespaces": ["kube-system"]}, "include_namespaces: none of them is left"),
        ({"collector.relist_seconds": 1.0}, "relist_seconds"),
        ({"collector.kubeconfig": "/nowhere/kubeconfig"}, "collector.kubeconfig: '/nowhere/kubeconfig' cannot be used"),
    ],
)
async def test_bad_settings_end_the_start(server, tmp_path, settings, words):
    with pytest.raises(ConfigError, match=words):
        async with collector(server, tmp_path, settings):
            pass


async def test_a_node_that_nobody_named_ends_the_start(server, tmp_path):
    async with collector(server, tmp_path, start=False) as h:
        unnamed = {name: origin for name, origin in h.context.config.origins.items() if name != "node"}
        config = replace(h.context.config, origins=unnamed)
        with pytest.raises(ConfigError, match="node: is not set; set TRIMTAB_NODE to the name of this node in the API"):
            CollectorService(replace(h.context, config=config, metrics=CommonMetrics("collector")))
