"""The simulated node as its observers see it: files through the project's own readers, metrics, records, commands."""

import asyncio
import json
import os
import shutil

import pytest
from prometheus_client import generate_latest

from hostfs.cgroup import CgroupTree
from hostfs.cgroup_files import parse_cpu_max
from hostfs.mounts import detect
from hostfs.pods import find_pods_root, parse_pod_group
from hostfs.pressure import Pressure, read_pressure
from hostfs.run_queue import RunQueueReader, busy_ratio_between, run_queue_between
from lab.kernel_files import Averages, cpu_stat, loadavg, parse_weight, pressure
from lab.simnode import answer, keep_pace, make_node
from lab.simnode_scenario import (
    BatchSpec,
    IdleSpec,
    PodSpec,
    Scenario,
    ServiceSpec,
    default_scenario,
    linear_weight,
    load_scenario,
)
from lab.simulated_node import SimulatedNode
from runtime.clock import ManualClock, settle
from runtime.errors import ConfigError, HostError

API = "kubepods/burstable/pod0a1e7f52-6c0d-4b8e-9d35-3f1c2b7a9e01"
BATCH = "kubepods/burstable/pod0a1e7f52-6c0d-4b8e-9d35-3f1c2b7a9e02"
MONITOR = "kubepods/burstable/pod0a1e7f52-6c0d-4b8e-9d35-3f1c2b7a9e03"
START = 1_700_000_000.0


def make(directory, scenario: Scenario | None = None, record_dir=None) -> SimulatedNode:
    scenario = scenario if scenario is not None else default_scenario()
    return SimulatedNode(scenario, directory, record_dir, boot_id="b00t", boot_unix_seconds=int(START))


def advance(node: SimulatedNode, seconds: float) -> None:
    end = node.now_seconds + seconds
    while node.now_seconds < end - 1e-9:
        node.advance(0.05, START + node.now_seconds + 0.05)


def usage_usec(node: SimulatedNode, group: str) -> int:
    reading = CgroupTree(str(node.tree.cgroup_root)).reading(group)
    assert reading is not None
    assert reading.stat is not None
    return reading.stat.usage_usec


def sample(node: SimulatedNode, pod: str, name: str) -> float:
    registry = node.observed[pod].registry
    value = registry.get_sample_value(name)
    assert value is not None
    return value


# Files, as the project's own readers see them


@pytest.mark.parametrize("name", ["node", "a node with\ttabs \\ and blanks"])
def test_the_directory_passes_for_a_cgroup2_host_with_the_cpu_controller(tmp_path, name):
    node = make(tmp_path / name)
    host = detect(str(node.tree.proc_root))
    assert host.root == str(node.tree.cgroup_root)
    assert (host.layout, host.cpu_on, host.is_writable) == ("unified", "v2", True)


def test_pods_are_found_by_uid_with_one_container_each(tmp_path):
    node = make(tmp_path / "node")
    tree = CgroupTree(str(node.tree.cgroup_root))
    assert find_pods_root("", tree.children) == "kubepods"
    pods = {pod for group in ("kubepods", "kubepods/burstable", "kubepods/besteffort") for pod in tree.children(group)}
    found = {parsed.uid for pod in pods if (parsed := parse_pod_group(pod)) is not None}
    assert found == {pod.uid for pod in default_scenario().pods}
    (container,) = tree.children(API)
    parsed = parse_pod_group(container)
    assert parsed is not None
    assert parsed.container is not None
    assert tree.reading(container) is not None


def test_every_qos_class_hangs_where_the_kubelet_puts_it(tmp_path):
    uids = [f"00000000-0000-4000-8000-00000000000{digit}" for digit in range(3)]
    pods = tuple(
        PodSpec(uid=uid, name=qos, qos=qos, workload=IdleSpec())
        for uid, qos in zip(uids, ("guaranteed", "burstable", "besteffort"), strict=True)
    )
    root = make(tmp_path / "node", Scenario(pods=pods)).tree.cgroup_root
    for uid, above in zip(uids, ("kubepods", "kubepods/burstable", "kubepods/besteffort"), strict=True):
        assert (root / above / f"pod{uid}" / "cpu.weight").exists()


def test_first_weights_follow_from_requests_by_the_linear_rule(tmp_path):
    tree = CgroupTree(str(make(tmp_path / "node").tree.cgroup_root))
    weights = {group: tree.read(group, "cpu.weight") for group in (API, BATCH, MONITOR, "kubepods/besteffort")}
    assert weights == {API: "10\n", BATCH: "157\n", MONITOR: "4\n", "kubepods/besteffort": "1\n"}
    assert linear_weight(0) == 1


def test_a_group_reads_as_on_a_kernel(tmp_path):
    node = make(tmp_path / "node")
    advance(node, 1.0)
    reading = CgroupTree(str(node.tree.cgroup_root)).reading(BATCH)
    assert reading is not None
    assert (reading.weight, reading.idle, reading.memory_bytes) == (157, False, 64 * 1024 * 1024)
    assert reading.stat is not None
    assert reading.stat.throttled_usec == 0
    assert 1_500_000 < reading.stat.usage_usec < 2_000_000
    assert isinstance(reading.pressure, Pressure)
    assert reading.pressure.some.total_usec == 1_000_000
    assert parse_cpu_max((node.tree.cgroup_root / BATCH / "cpu.max").read_text()).cpus is None


def test_a_groups_usage_is_the_sum_of_its_pods(tmp_path):
    node = make(tmp_path / "node")
    advance(node, 2.0)
    parts = sum(usage_usec(node, group) for group in (API, BATCH, MONITOR))
    assert usage_usec(node, "kubepods/burstable") == pytest.approx(parts, abs=3)
    assert usage_usec(node, "kubepods") == pytest.approx(4_000_000, abs=2)


def test_run_queue_and_busy_ratio_are_those_of_the_simulation(tmp_path):
    node = make(
        tmp_path / "node",
        Scenario(
            pods=(PodSpec(uid="00000000-0000-4000-8000-000000000001", name="batch", workload=BatchSpec(processes=5)),)
        ),
    )
    reader = RunQueueReader(str(node.tree.proc_root))
    sample_before, stat_before = reader.sample(), reader.proc_stat()
    advance(node, 2.0)
    sample_after, stat_after = reader.sample(), reader.proc_stat()
    assert stat_before is not None
    assert stat_after is not None
    assert (stat_after.cpus, stat_after.procs_running) == (2, 5)
    assert busy_ratio_between(stat_before, stat_after) == pytest.approx(1.0, abs=0.02)
    assert run_queue_between(sample_before, sample_after, elapsed_seconds=2.0, cpus=2) == pytest.approx(1.5, rel=0.01)
    node_pressure = read_pressure(str(node.tree.proc_root / "pressure/cpu"))
    assert isinstance(node_pressure, Pressure)
    assert node_pressure.some.total_usec == 2_000_000
    assert node_pressure.full is not None
    assert node_pressure.full.total_usec == 0


def test_a_reader_that_has_a_file_open_sees_all_of_the_old_text(tmp_path):
    node = make(tmp_path / "node")
    advance(node, 0.5)
    path = node.tree.cgroup_root / API / "cpu.stat"
    before = path.read_text()
    with path.open() as open_file:
        advance(node, 0.5)
        assert open_file.read() == before
    assert path.read_text() != before


def test_no_foreign_names_ever_stand_in_the_trees(tmp_path, monkeypatch):
    node = make(tmp_path / "node")

    def names() -> set[str]:
        return {
            f"{folder}/{name}"
            for root in (node.tree.cgroup_root, node.tree.proc_root)
            for folder, folders, files in os.walk(root)
            for name in folders + files
        }

    seen = []
    replace = os.replace
    monkeypatch.setattr(os, "replace", lambda *paths: (seen.append(names()), replace(*paths)))
    created = names()
    advance(node, 0.1)
    assert seen
    assert all(during == created for during in seen)


# Weights that others write


def test_a_weight_written_in_place_moves_cpu_time(tmp_path):
    node = make(tmp_path / "node")
    advance(node, 2.0)
    starved = usage_usec(node, API)
    for group, weight in ((API, 1000), (MONITOR, 316), (BATCH, 100)):
        (node.tree.cgroup_root / group / "cpu.weight").write_text(f"{weight}\n")
    advance(node, 2.0)
    assert usage_usec(node, API) - starved > 3 * starved
    assert (node.tree.cgroup_root / API / "cpu.weight").read_text() == "1000\n"


@pytest.mark.parametrize("text", ["0\n", "10001", "-5\n", "1e3", "abc\n", "9" * 30])
def test_wt_02_a_weight_that_a_kernel_refuses_is_taken_back_and_counted(tmp_path, text):
    node = make(tmp_path / "node")
    path = node.tree.cgroup_root / API / "cpu.weight"
    path.write_text("500\n")
    advance(node, 0.05)
    path.write_text(text)
    advance(node, 0.1)
    assert path.read_text() == "500\n"
    assert node.tree.refused_weights == 1
    advance(node, 0.05)
    assert node.tree.refused_weights == 1


def test_a_file_caught_between_truncating_and_writing_keeps_its_weight_and_is_left_alone(tmp_path):
    node = make(tmp_path / "node")
    path = node.tree.cgroup_root / API / "cpu.weight"
    with path.open("w") as writer:
        advance(node, 0.1)
        writer.write("700\n")
    assert path.read_text() == "700\n"
    assert node.tree.refused_weights == 0
    assert node.tree.changed_weights() == {API: 700}


def test_a_file_caught_between_overwriting_and_truncating_is_left_alone(tmp_path):
    node = make(tmp_path / "node")
    path = node.tree.cgroup_root / API / "cpu.weight"
    path.write_text("10000")
    advance(node, 0.05)
    with path.open("r+") as writer:
        writer.write("200")
        writer.flush()
        assert path.read_text() == "20000"
        advance(node, 0.05)
        writer.truncate()
    advance(node, 0.05)
    assert path.read_text() == "200"
    assert node.tree.refused_weights == 0


def test_cg_07_a_removed_pod_group_stays_removed_and_stops_nothing(tmp_path):
    node = make(tmp_path / "node")
    shutil.rmtree(node.tree.cgroup_root / MONITOR)
    advance(node, 1.0)
    assert not (node.tree.cgroup_root / MONITOR).exists()
    assert usage_usec(node, BATCH) > 0


def test_a_directory_that_holds_a_node_already_is_refused(tmp_path):
    make(tmp_path / "node")
    with pytest.raises(HostError, match="new directory"):
        make(tmp_path / "node")


# Texts


@pytest.mark.parametrize(
    ("text", "weight"),
    [("100\n", 100), ("1", 1), ("10000\n", 10_000), ("100\n0\n", 100), ("", None), ("\n", None), ("0", None)],
)
def test_only_the_first_line_of_a_weight_counts(text, weight):
    assert parse_weight(text) == weight


def test_cpu_stat_text():
    assert cpu_stat(1000, controller=False) == "usage_usec 1000\nuser_usec 900\nsystem_usec 100\nnice_usec 0\n"
    assert "nr_throttled 0\nthrottled_usec 0\n" in cpu_stat(1000)


def test_pressure_text_shows_percent():
    some, full = Averages((10.0, 60.0, 300.0), (0.25, 0.1, 0.0)), Averages((10.0, 60.0, 300.0))
    assert pressure(some, 123, full, 0) == (
        "some avg10=25.00 avg60=10.00 avg300=0.00 total=123\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    )


def test_loadavg_text():
    loads = Averages((60.0, 300.0, 900.0), (1.5, 0.25, 0.0))
    assert loadavg(loads, runnable=3, threads=9, last_pid=77) == "1.50 0.25 0.00 3/9 77\n"


def test_an_average_decays_by_its_horizon_however_finely_it_is_fed():
    coarse, fine = Averages((10.0,)), Averages((10.0,))
    coarse.add(1.0, 10.0)
    for _ in range(100):
        fine.add(1.0, 0.1)
    assert coarse.values == pytest.approx((0.6321205588,))
    assert fine.values == pytest.approx(coarse.values)


# Metrics and records


def test_metrics_and_records_tell_the_same_story(tmp_path):
    node = make(tmp_path / "node", record_dir=tmp_path)
    advance(node, 5.0)
    node.close()
    records = [json.loads(line) for line in (tmp_path / "api.jsonl").read_text().splitlines()]
    assert {status for _, _, status in records} == {"ok", "timeout"}
    ends = [scheduled + latency for scheduled, latency, _ in records]
    assert ends == pytest.approx(sorted(ends), abs=1e-5)
    assert min(scheduled for scheduled, _, _ in records) >= START
    assert START + 4.5 < ends[-1] <= START + 5.0
    assert sample(node, "api", "http_request_duration_seconds_count") == len(records)
    total = sum(latency for _, latency, _ in records)
    assert sample(node, "api", "http_request_duration_seconds_sum") == pytest.approx(total, abs=1e-3)
    work = [json.loads(line) for line in (tmp_path / "batch.jsonl").read_text().splitlines()]
    assert work[-1]["at"] == pytest.approx(START + 5.0)
    assert work[-1]["work"] == sample(node, "batch", "batch_work_done_total") == usage_usec(node, BATCH) // 1000
    assert [line["work"] for line in work] == sorted(line["work"] for line in work)


def test_shed_requests_are_recorded_and_counted_but_not_measured(tmp_path):
    workload = ServiceSpec(rate_per_second=200.0, work_seconds=0.1, workers=1, max_queue=0)
    pod = PodSpec(uid="00000000-0000-4000-8000-000000000001", name="api", workload=workload)
    node = make(tmp_path / "node", Scenario(pods=(pod,), metric="rpc_seconds"), record_dir=tmp_path)
    advance(node, 2.0)
    node.close()
    statuses = [json.loads(line)[2] for line in (tmp_path / "api.jsonl").read_text().splitlines()]
    assert sample(node, "api", "http_requests_rejected_total") == statuses.count("shed") > 0
    assert sample(node, "api", "rpc_seconds_count") == len(statuses) - statuses.count("shed")


def test_the_page_has_bounds_from_milliseconds_to_ten_seconds(tmp_path):
    page = generate_latest(make(tmp_path / "node").observed["api"].registry).decode()
    bounds = [line.split('"')[1] for line in page.splitlines() if "_bucket{" in line]
    assert bounds[-1] == "+Inf"
    assert float(bounds[0]) <= 0.002
    assert float(bounds[-2]) == 10.0
    assert len(bounds) >= 20


# Commands and time


def test_commands_change_rates_and_phases(tmp_path):
    node = make(tmp_path / "node")
    assert answer(node, b'{"set_rate": {"api": 0, "monitor": 0}, "batch": {"batch": false}}\n') == ({"ok": True}, False)
    advance(node, 2.0)
    assert usage_usec(node, "kubepods") == 0
    assert answer(node, b'{"batch": {"batch": true}, "quit": true}') == ({"ok": True}, True)
    advance(node, 1.0)
    assert usage_usec(node, BATCH) == pytest.approx(2_000_000, abs=2)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"set_rate": {"api": 0, "nobody": 5}}', "'nobody'"),
        (b'{"set_rate": {"api": 0, "monitor": -1}}', "-1"),
        (b'{"set_rate": {"api": 0}, "batch": {"api": true}}', "'api'"),
        (b'{"set_rates": {"api": 0}}', "set_rates"),
        (b'{"set_rate": {"api": "fast"}}', "set_rate"),
        (b"quit", "malformed"),
        (b"\xff\n", ""),
    ],
)
def test_a_bad_command_is_answered_and_changes_nothing(tmp_path, line, why):
    node = make(tmp_path / "node")
    said, is_last = answer(node, line)
    assert why in str(said["error"])
    assert not is_last
    answer(node, b'{"batch": {"batch": false}}')
    advance(node, 1.0)
    assert usage_usec(node, API) > 0


def test_status_tells_what_was_refused(tmp_path):
    node = make(tmp_path / "node")
    (node.tree.cgroup_root / API / "cpu.weight").write_text("0\n")
    advance(node, 0.1)
    assert answer(node, b'{"status": true}')[0] == {"ok": True, "now_seconds": 0.1, "refused_weights": 1}


async def test_the_node_keeps_pace_but_makes_up_for_a_second_at_most(tmp_path):
    node, clock = make(tmp_path / "node"), ManualClock()
    pace = asyncio.create_task(keep_pace(node, clock))
    await settle()
    for _ in range(10):
        await clock.advance(0.05)
    assert node.now_seconds == pytest.approx(0.5)
    clock._elapsed += 30.0
    await clock.advance(0.0)
    assert node.now_seconds == pytest.approx(1.5)
    await clock.advance(0.05)
    assert node.now_seconds == pytest.approx(1.55)
    pace.cancel()


def test_two_boots_of_one_scenario_differ_in_their_boot_id_only(tmp_path):
    def boot_id(node: SimulatedNode) -> str:
        return (node.tree.proc_root / "sys/kernel/random/boot_id").read_text()

    first = make_node(default_scenario(), tmp_path / "first", None)
    second = make_node(default_scenario(), tmp_path / "second", None)
    assert boot_id(first) != boot_id(second)
    advance(first, 2.0)
    advance(second, 2.0)
    assert usage_usec(first, API) == usage_usec(second, API)


# Scenario files

YAML = """
cores: 3
pods:
  - uid: 00000000-0000-4000-8000-000000000001
    name: api
    labels: {tier: front}
    request_millicpu: 500
    workload: {kind: service, rate_per_second: 20, work_seconds: 0.004}
"""


def test_yaml_and_json_scenarios_mean_the_same(tmp_path):
    (tmp_path / "a.yaml").write_text(YAML)
    pod = {
        "uid": "00000000-0000-4000-8000-000000000001",
        "name": "api",
        "labels": {"tier": "front"},
        "request_millicpu": 500,
        "workload": {"kind": "service", "rate_per_second": 20, "work_seconds": 0.004},
    }
    (tmp_path / "a.json").write_text(json.dumps({"cores": 3, "pods": [pod]}))
    scenario = load_scenario(tmp_path / "a.yaml")
    assert scenario == load_scenario(tmp_path / "a.json")
    assert scenario.pods[0].weight == linear_weight(500) == 20


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("cores: 3", "cores: 0", r"\$\.cores"),
        ("request_millicpu", "requests_millicpu", "requests_millicpu"),
        ("kind: service", "kind: servise", "servise"),
        ("uid: 00000000-0000-4000-8000-000000000001", "uid: ../../../etc", "uid"),
        ("name: api", "name: ../api", "name"),
        ("work_seconds: 0.004", "work_seconds: 0", "work_seconds"),
        ("pods:", "pods: [", "a.yaml"),
    ],
)
def test_a_bad_scenario_is_an_error_that_says_where(tmp_path, old, new, why):
    assert old in YAML
    (tmp_path / "a.yaml").write_text(YAML.replace(old, new))
    with pytest.raises(ConfigError, match=why):
        load_scenario(tmp_path / "a.yaml")


def test_a_missing_scenario_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="cannot read"):
        load_scenario(tmp_path / "none.yaml")


def test_pods_of_one_name_are_an_error(tmp_path):
    pod = YAML[YAML.index("  - uid") :].replace("000000000001", "000000000002")
    (tmp_path / "a.yaml").write_text(YAML + pod)
    with pytest.raises(ConfigError, match="same name"):
        load_scenario(tmp_path / "a.yaml")


def test_a_scenario_without_cores_or_seed_is_complete(tmp_path):
    (tmp_path / "a.yaml").write_text(YAML.replace("cores: 3", ""))
    scenario = load_scenario(tmp_path / "a.yaml")
    assert (scenario.cores, scenario.seed) == (2, 1)
