"""The doctor's table: which pod has which group, class and weight, by whom it is named, and what does not fit."""

import argparse
import json
import time

import pytest

from cli import doctor
from cli.doctor import Check, _collector
from cli.doctor_pods import Named, PodRow, look, named_by_state, summary
from runtime.host_roots import HostRoots
from tests.support.builders import BATCH, CRITICAL, pod, state
from tests.unit.hostfs.nodes import C1, EMPTY, UID1, UID1_, UID2, cpus, grow

API, JOB, WEB = f"burstable/pod{UID1}", f"besteffort/pod{UID2}", "pod0a1e7f52-6c0d-4b8e-9d35-3f1c2b7a9e01"
WEB_UID = WEB.removeprefix("pod")
COLUMNS = {"pod", "uid", "qos", "class", "weight", "note", "group"}


def group(node, name, weight="39\n", **more):
    stat = {"cpu.stat": "usage_usec 0\n", "cpu.idle": "0\n", "cgroup.subtree_control": "cpu\n"}
    return grow(node, f"kubepods/{name}", stat | {"cpu.weight": weight} | more)


@pytest.fixture
def node(tmp_path):
    """Three pods, one of each QoS class."""
    for name, weight in (("", "100\n"), ("burstable", "79\n"), ("besteffort", "1\n")):
        group(tmp_path / "node", name, weight)
    for name, weight in ((API, "39\n"), (JOB, "1\n"), (WEB, "79\n")):
        group(tmp_path / "node", name, weight)
    return tmp_path / "node"


def table(node, named):
    return look(HostRoots(str(node), "kubepods", "/proc"), named)


def notes(rows):
    return {row.pod: row.note for row in rows}


def test_named_pods_come_with_their_class_qos_and_weight(node):
    named = [
        Named("u1", "shop/api", API, CRITICAL, None),
        Named("u2", "shop/job", JOB, BATCH, None),
        Named("u3", "shop/web", WEB, None, "namespace"),
    ]
    assert table(node, named) == [
        PodRow("shop/api", "u1", "Burstable", CRITICAL, 39, None, API),
        PodRow("shop/job", "u2", "BestEffort", BATCH, 1, None, JOB),
        PodRow("shop/web", "u3", "Guaranteed", None, 79, "namespace", WEB),
    ]


def test_what_only_one_side_knows_is_named(node):
    rows = table(node, [Named("u1", "shop/api", API, CRITICAL, None), Named("u9", "gone", "pod-gone", BATCH, None)])
    assert notes(rows) == {"shop/api": None, "gone": "no_group", WEB_UID: "unnamed", UID2: "unnamed"}
    found, unresolved = summary(rows, has_names=True)
    assert found == (
        f"4 pods: 1 batch, 1 latency-critical, 2 without a class; "
        f"not resolved: gone (no_group), {UID2} (unnamed), {WEB_UID} (unnamed)"
    )
    assert len(unresolved) == 3


def test_from_the_tree_alone_there_are_uids_and_weights_and_nothing_is_said_to_be_missing(node):
    rows = table(node, None)
    assert {(row.pod, row.qos, row.cls, row.weight, row.note) for row in rows} == {
        (UID1, "Burstable", None, 39, None),
        (UID2, "BestEffort", None, 1, None),
        (WEB_UID, "Guaranteed", None, 79, None),
    }
    assert summary(rows, has_names=False) == ("3 pods in the tree; nobody says what they are", [])


def test_why_a_pod_is_left_alone_is_read_from_the_tree(node):
    group(node, API, "0\n", **{"cpu.idle": "1\n"})
    grow(node, f"kubepods/{WEB}/{C1}", cpus("2-3\n"))
    grow(node, f"kubepods/{JOB}/{C1}", cpus("0-1\n"))
    grow(node, "kubepods/besteffort", {"cgroup.subtree_control": "memory\n"})
    (node / "kubepods" / JOB / "cpu.weight").unlink()
    named = [Named(uid, uid, name, BATCH, None) for uid, name in (("api", API), ("job", JOB), ("web", WEB))]
    assert notes(table(node, named)) == {"api": "idle", "job": "no_cpu_controller", "web": "exclusive_cpus"}


def test_cg_08_a_pod_whose_containers_lie_elsewhere_is_said_to_be_so(tmp_path):
    name = f"kubepods-burstable-pod{UID1_}.slice"
    group(tmp_path, f"burstable/{name}", **EMPTY)
    grow(tmp_path, f"system.slice/containerd.service/{name}:cri-containerd:{C1}")
    assert notes(table(tmp_path, None)) == {UID1: "outside_pods_root"}


def test_many_unresolved_pods_are_counted_and_not_all_listed():
    rows = [PodRow(f"p{number}", "u", None, BATCH, None, "no_group", "g") for number in range(20)]
    found, _ = summary(rows, has_names=True)
    assert "p7 (no_group) and 12 more" in found
    assert "p8" not in found


def test_a_state_names_its_pods_and_no_neighbours():
    pods = (pod("api", CRITICAL, group=API), pod("", None, uid="", group="burstable"))
    assert named_by_state(state(pods=pods)) == [Named("uid-api", "api", API, CRITICAL, None)]


# ---- what is said of the collector ----


def test_a_fresh_state_is_well_and_an_old_one_is_a_note():
    now = time.time_ns()
    assert _collector(state(at=now), 5.0).status == "ok"
    old = _collector(state(at=now - 60 * 10**9, cycle=7), 5.0)
    assert (old.status, old.found) == ("note", "its state of cycle 7 is 60 s old")


def test_what_the_collector_noted_is_passed_on():
    check = _collector(state(at=time.time_ns(), notes=("shop/api: no group",)), 5.0)
    assert (check.status, check.found.partition("; ")[2]) == ("note", "shop/api: no group")


# ---- the verb ----


def config(tmp_path, node, workloads=None):
    lines = [
        f"host: {{cgroup_root: {node}, pods_root: kubepods, simulated: true}}",
        'bus: {url: "nats://127.0.0.1:1", connect_timeout_seconds: 0.2}',
    ]
    if workloads is not None:
        (tmp_path / "workloads.yaml").write_text(workloads)
        lines.append(f"collector: {{workloads: {tmp_path / 'workloads.yaml'}}}")
    (tmp_path / "trimtab.yaml").write_text("\n".join(lines) + "\n")
    return ["--config", str(tmp_path / "trimtab.yaml")]


WORKLOADS = f"""\
workloads:
  - {{uid: {UID1}, name: shop/api, group: {API}, labels: {{workload-type: latency-critical}}}}
  - {{uid: {UID2}, name: shop/job, group: {JOB}, labels: {{workload-type: gold}}}}
  - {{uid: gone, name: shop/gone, group: burstable/podgone, labels: {{workload-type: batch}}}}
"""


def doctored(argv, capsys):
    parser = argparse.ArgumentParser()
    doctor.add_flags(parser)
    args = parser.parse_args(argv)
    code = args.run(args)
    return code, capsys.readouterr()


def test_with_a_workload_file_the_table_has_names_and_classes(tmp_path, node, capsys):
    code, out = doctored([*config(tmp_path, node, WORKLOADS), "-o", "json"], capsys)
    checks = {check["name"]: check for check in json.loads(out.out)}
    pods = {row["pod"]: row for row in checks["pods"]["pods"]}
    assert code == 0
    assert all(set(row) == COLUMNS for row in pods.values())
    assert (pods["shop/api"]["class"], pods["shop/api"]["weight"], pods["shop/api"]["qos"]) == (
        CRITICAL,
        39,
        "Burstable",
    )
    assert (pods["shop/job"]["class"], pods["shop/job"]["note"]) == (None, "unknown class 'gold'")
    assert pods["shop/gone"]["note"] == "no_group"
    assert pods[WEB_UID]["note"] == "unnamed"
    assert checks["pods"]["status"] == "note"
    assert "shop/gone (no_group)" in checks["pods"]["found"]
    assert "collector" not in checks


def test_without_any_source_the_tree_is_shown_and_what_would_name_it(tmp_path, node, capsys):
    code, out = doctored(config(tmp_path, node), capsys)
    lines = out.out.splitlines()
    assert code == 0
    assert any(line.split()[:2] == ["pod", "qos"] for line in lines)
    assert [line.split() for line in lines if line.startswith(UID1)] == [[UID1, "Burstable", "-", "39", "-", API]]
    assert "note  pods" in out.out
    assert "set collector.workloads" in out.out


def test_a_workload_file_that_the_collector_would_refuse_is_in_the_way(tmp_path, node, capsys):
    code, out = doctored([*config(tmp_path, node, "workloads: 3\n"), "-o", "jsonl"], capsys)
    checks = {check["name"]: check for check in map(json.loads, out.out.splitlines())}
    assert code == 1
    assert checks["workloads"]["status"] == "bad"
    assert len(checks["pods"]["pods"]) == 3


def test_a_newest_state_names_the_pods(tmp_path, node, capsys, monkeypatch):
    pods = (pod("shop/api", CRITICAL, group=API), pod("shop/job", BATCH, group=JOB), pod("web", None, group=WEB))

    async def answers(settings, node_name, service):
        return Check("bus", "ok", "NATS answers"), state(at=time.time_ns(), pods=pods)

    monkeypatch.setattr(doctor, "_bus", answers)
    code, out = doctored([*config(tmp_path, node), "-o", "json"], capsys)
    checks = {check["name"]: check for check in json.loads(out.out)}
    assert code == 0
    assert (checks["collector"]["status"], checks["pods"]["status"]) == ("ok", "ok")
    assert checks["pods"]["found"] == "3 pods: 1 batch, 1 latency-critical, 1 without a class"
    assert {row["pod"]: row["class"] for row in checks["pods"]["pods"]} == {
        "shop/api": CRITICAL,
        "shop/job": BATCH,
        "web": None,
    }
