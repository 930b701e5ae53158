"""What one sweep reads on a kubelet's tree: containers that die, containers elsewhere, pods that are left alone."""

import errno

import pytest

from tests.unit.collector.world import failing, look, view, workload
from tests.unit.hostfs.nodes import C1, C2, EMPTY, POPULATED, S1, UID1, UID1_, UID2, cpus, grow

BATCH_POD, OTHER_POD = f"burstable/pod{UID1}", f"burstable/pod{UID2}"
STAT = "usage_usec 100\nuser_usec 60\nsystem_usec 40\n"


def member(group, cls="batch", uid=UID1):
    return (workload(uid, cls, group=group), cls)


def container(node, group, name, throttled):
    text = f"usage_usec 0\nnr_periods 0\nnr_throttled 0\nthrottled_usec {throttled}\n"
    return grow(node.base, f"{group}/{name}", {"cpu.stat": text})


@pytest.fixture
def node(node):
    node.add("burstable", 79)
    return node


@pytest.mark.parametrize("case", ["a", "b", "c"])
def test_cg_07_a_container_that_dies_costs_its_pod_one_sample_of_throttling_and_nobody_else(node, case):
    """The pod's own counters go on; what its containers were held for is a sum that lost a part."""
    members = [member(BATCH_POD), member(OTHER_POD, uid=UID2)]
    for group, name in ((BATCH_POD, C1), (OTHER_POD, C2)):
        node.add(group, 39)
        container(node, group, name, 1_000_000)
    eyes, kernel = view(), node.kernel()
    look(eyes, kernel, 0.0, members)
    for group, name in ((BATCH_POD, C1), (OTHER_POD, C2)):
        node.usage(group, 100)
        container(node, group, name, 2_000_000)
    stat = node.base / BATCH_POD / C1 / "cpu.stat"
    if case == "a":
        failing(kernel, f"{BATCH_POD}/{C1}/cpu.stat", errno.ENODEV)
    elif case == "b":
        stat.unlink()
    else:
        stat.write_text("")
    first, second = look(eyes, kernel, 5.0, members).pods[:2]
    assert first.cpu_cores == second.cpu_cores == pytest.approx(100 / 1e6 / 5)
    sweep = kernel.sweep([BATCH_POD, OTHER_POD])
    assert sweep.groups[BATCH_POD].stat.throttled_usec == 0
    assert sweep.groups[OTHER_POD].stat.throttled_usec == 2_000_000
    assert kernel._tree.problems == {}


@pytest.mark.parametrize("case", ["a", "b", "c"])
def test_cg_07_a_pod_that_dies_while_it_is_swept_is_not_there_and_its_sibling_is(node, case):
    for group in (BATCH_POD, OTHER_POD):
        node.add(group, 39)
        (node.base / group / "cpu.stat").write_text(STAT)
    kernel = node.kernel()
    stat = node.base / BATCH_POD / "cpu.stat"
    if case == "a":
        failing(kernel, f"{BATCH_POD}/cpu.stat", errno.ENODEV)
    elif case == "b":
        stat.unlink()
    else:
        stat.write_text("")
    groups = kernel.sweep([BATCH_POD, OTHER_POD]).groups
    assert set(groups) == {"burstable", OTHER_POD}
    assert groups[OTHER_POD].stat.usage_usec == 100
    assert kernel._tree.problems == {}


# ---- CG-08 ----

SLICE = f"kubepods-burstable-pod{UID1_}.slice"
COLON = f"system.slice/containerd.service/{SLICE}:cri-containerd:{C1}"


@pytest.fixture
def colon(node):
    """The pod's slice is empty; its container is in the runtime's own group."""
    node.add(f"burstable/{SLICE}", 39)
    grow(node.base, f"burstable/{SLICE}", EMPTY)
    grow(node.root, COLON, {"cpu.stat": "usage_usec 25000000\n", "memory.current": "1000\n"})
    return node


def test_cg_08_the_usage_is_that_of_the_colon_folder_and_the_slice_is_no_write_target(colon):
    (reading,) = (
        found for group, found in colon.kernel().sweep([f"burstable/{SLICE}"]).groups.items() if "pod" in group
    )
    assert reading.stat.usage_usec == 25_000_000
    assert (reading.skip, reading.weight) == ("outside_pods_root", None)
    assert reading.memory_bytes == 4096 + 1000


def test_cg_08_the_pod_is_seen_using_cpu_and_is_never_said_to_be_idle(colon):
    members = [member(f"burstable/{SLICE}")]
    eyes, kernel = view(), colon.kernel()
    look(eyes, kernel, 0.0, members)
    grow(colon.root, COLON, {"cpu.stat": "usage_usec 30000000\n"})
    (pod,) = (pod for pod in look(eyes, kernel, 5.0, members).pods if pod.uid)
    assert pod.cpu_cores == pytest.approx(1.0)
    assert pod.skip not in (None, "idle")
    assert pod.weight is None


def test_cg_08_of_several_containers_elsewhere_the_usage_adds_up_and_the_longest_wait_counts(colon):
    for name, usage, waited in ((S1, 1000, 5), (C2, 4000, 700)):
        line = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={waited}\n"
        stat = f"usage_usec {usage}\nthrottled_usec 3\n"
        grow(colon.root, COLON.replace(C1, name), {"cpu.stat": stat, "cpu.pressure": line})
    reading = colon.kernel().sweep([f"burstable/{SLICE}"]).groups[f"burstable/{SLICE}"]
    assert (reading.stat.usage_usec, reading.stat.throttled_usec) == (25_005_000, 6)
    assert reading.pressure.some.total_usec == 700


def test_cg_08_a_container_elsewhere_that_dies_is_left_out(colon):
    (colon.root / COLON / "cpu.stat").unlink()
    reading = colon.kernel().sweep([f"burstable/{SLICE}"]).groups[f"burstable/{SLICE}"]
    assert (reading.stat.usage_usec, reading.skip) == (0, "outside_pods_root")


# ---- pods that are left alone ----


def test_a_pod_with_cpus_of_its_own_says_so_and_keeps_its_weight_in_the_family(node):
    own = f"pod{UID2}"
    node.add(own, 79)
    node.add(BATCH_POD, 39)
    grow(node.base, f"{own}/{C2}", cpus("2-3\n"))
    grow(node.base, f"{BATCH_POD}/{C1}", cpus("0-1\n"))
    groups = node.kernel().sweep([own, BATCH_POD]).groups
    assert (groups[own].skip, groups[own].weight) == ("exclusive_cpus", 79)
    assert groups[BATCH_POD].skip is None


def test_an_ordinary_pod_is_not_left_alone(node):
    node.add(BATCH_POD, 39)
    grow(node.base, BATCH_POD, POPULATED)
    assert node.kernel().sweep([BATCH_POD]).groups[BATCH_POD].skip is None


def test_where_nothing_is_named_like_a_pod_the_tree_is_not_scanned(node, monkeypatch):
    node.add("pod-api", 39)
    monkeypatch.setattr("services.collector.sources.kernel.PodTree", None)
    assert "pod-api" in node.kernel().sweep(["pod-api"]).groups


@pytest.mark.parametrize(("events", "is_there"), [(EMPTY, False), (POPULATED, True)])
def test_a_folder_for_pods_in_which_nothing_runs_is_nobodys_neighbour(node, events, is_there):
    node.add(BATCH_POD, 39)
    node.add("besteffort", 1)
    (node.base / "besteffort" / "cgroup.events").write_text(events["cgroup.events"])
    assert ("besteffort" in node.kernel().sweep([BATCH_POD]).groups) is is_there
