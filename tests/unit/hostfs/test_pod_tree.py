"""Which pod is where, on every layout in use."""

import errno
import os

import pytest

from hostfs.cgroup import CgroupTree
from hostfs.outside import AGAIN_AFTER
from hostfs.pod_tree import PodPlace, PodTree
from tests.unit.hostfs.nodes import (
    C1,
    C2,
    EMPTY,
    N1,
    POPULATED,
    S1,
    STATIC,
    UID1,
    UID1_,
    UID2,
    UID2_,
    cpus,
    grow,
)

KUBELET = "kubelet.slice/kubelet-kubepods.slice"
KUBELET_POD = f"kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{UID1_}.slice"


def scan(root, pods_root):
    return PodTree(CgroupTree(str(root / pods_root))).scan()


@pytest.mark.parametrize(
    ("path", "group", "qos"),
    [
        pytest.param(f"/kubepods/pod{UID1}/{C1}", f"pod{UID1}", "Guaranteed", id="a"),
        pytest.param(
            f"/kubepods.slice/kubepods-pod{UID1_}.slice/cri-containerd-{C1}.scope",
            f"kubepods-pod{UID1_}.slice",
            "Guaranteed",
            id="b",
        ),
        pytest.param(f"/kubepods/burstable/pod{UID1}/{C1}", f"burstable/pod{UID1}", "Burstable", id="c"),
        pytest.param(
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID1_}.slice/crio-{C1}.scope",
            f"kubepods-besteffort.slice/kubepods-besteffort-pod{UID1_}.slice",
            "BestEffort",
            id="d",
        ),
    ],
)
def test_cg_01_pods_of_both_drivers_are_found_with_and_without_a_qos_folder(tmp_path, path, group, qos):
    grow(tmp_path, path)
    root = path.split("/")[1]
    container = path.removeprefix(f"/{root}/")
    assert scan(tmp_path, root) == {UID1: PodPlace(group, qos, {C1: container})}


def test_cg_01_both_drivers_names_are_found_in_one_tree(tmp_path):
    grow(tmp_path, f"kubepods/pod{UID1}/{C1}")
    grow(tmp_path, f"kubepods/kubepods-besteffort.slice/kubepods-besteffort-pod{UID2_}.slice/crio-{C2}.scope")
    assert {uid: place.qos for uid, place in scan(tmp_path, "kubepods").items()} == {
        UID1: "Guaranteed",
        UID2: "BestEffort",
    }


@pytest.mark.parametrize(
    ("path", "pods_root", "group"),
    [
        pytest.param(f"/{KUBELET}/{KUBELET_POD}/cri-containerd-{C1}.scope", KUBELET, KUBELET_POD, id="in_the_node"),
        pytest.param(
            f"/system.slice/docker-{N1}.scope/{KUBELET}/{KUBELET_POD}/cri-containerd-{C1}.scope",
            f"system.slice/docker-{N1}.scope/{KUBELET}",
            KUBELET_POD,
            id="from_the_host",
        ),
        pytest.param(
            f"/kubelet/kubepods/burstable/pod{UID1}/{C1}", "kubelet/kubepods", f"burstable/pod{UID1}", id="cgroupfs"
        ),
    ],
)
def test_cg_02_a_nested_node_gives_the_pods_container_and_never_the_nodes(tmp_path, path, pods_root, group):
    grow(tmp_path, path)
    (place,) = scan(tmp_path, pods_root).values()
    assert (place.group, place.qos, set(place.containers)) == (group, "Burstable", {C1})
    assert f"/{pods_root}/{place.containers[C1]}" == path


def test_cg_02_a_node_inside_a_pod_is_that_pods_business(tmp_path):
    grow(tmp_path, f"kubepods/burstable/pod{UID1}/{C1}/{KUBELET}/kubelet-kubepods-pod{UID2_}.slice/{C2}")
    assert scan(tmp_path, "kubepods") == {
        UID1: PodPlace(f"burstable/pod{UID1}", "Burstable", {C1: f"burstable/pod{UID1}/{C1}"})
    }


def test_cg_04_of_a_cri_o_pod_the_scope_is_the_container_and_helpers_are_none(tmp_path):
    pod = f"kubepods-burstable.slice/kubepods-burstable-pod{UID1_}.slice"
    for child in (f"crio-{C1}.scope", f"crio-{C1}.scope/container", f"crio-conmon-{C1}.scope", f"crio-{S1}.scope"):
        grow(tmp_path, f"kubepods.slice/{pod}/{child}")
    place = scan(tmp_path, "kubepods.slice")[UID1]
    assert place.group == pod
    assert place.members([f"cri-o://{C1}"]) == {C1: f"{pod}/crio-{C1}.scope"}
    # Nothing in its name tells the infra container from another: only whoever knows the ids can.
    assert set(place.containers) == {C1, S1}


def test_a_container_that_is_not_there_or_has_no_id_yet_is_no_member(tmp_path):
    grow(tmp_path, f"kubepods/pod{UID1}/{C1}")
    assert scan(tmp_path, "kubepods")[UID1].members([f"containerd://{C2}", ""]) == {}


@pytest.mark.parametrize(
    "group", [f"burstable/pod{STATIC}", f"kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice"]
)
def test_a_static_pod_is_found_by_its_config_hash(tmp_path, group):
    grow(tmp_path, f"kubepods/{group}")
    assert scan(tmp_path, "kubepods") == {STATIC: PodPlace(group, "Burstable", {})}


def test_uids_are_lower_case(tmp_path):
    grow(tmp_path, f"kubepods/pod{UID1.upper()}/{C1.upper()}")
    (found,) = scan(tmp_path, "kubepods").items()
    assert (found[0], set(found[1].containers)) == (UID1, {C1})


def test_other_groups_are_no_pods(tmp_path):
    for group in ("podruntime.slice", "burstable/podman", f"burstable/{C1}", "pod-api", f"a/b/pod{UID1}"):
        grow(tmp_path, f"kubepods/{group}")
    assert scan(tmp_path, "kubepods") == {}


def test_a_missing_pods_root_has_no_pods(tmp_path):
    assert scan(tmp_path, "kubepods") == {}


@pytest.mark.parametrize("old_first", [True, False])
def test_of_two_groups_of_one_uid_the_populated_one_is_the_pods(tmp_path, old_first):
    groups = [f"burstable/pod{UID1}", f"kubepods-burstable.slice/kubepods-burstable-pod{UID1_}.slice"]
    old, new = groups if old_first else groups[::-1]
    grow(tmp_path, f"kubepods/{old}", EMPTY)
    grow(tmp_path, f"kubepods/{old}/{C2}")
    grow(tmp_path, f"kubepods/{new}", POPULATED)
    assert scan(tmp_path, "kubepods")[UID1].group == new


def test_of_two_groups_of_one_uid_that_nobody_can_tell_apart_it_is_always_the_same(tmp_path):
    grow(tmp_path, f"kubepods/burstable/pod{UID1}")
    grow(tmp_path, f"kubepods/besteffort/pod{UID1}")
    assert scan(tmp_path, "kubepods")[UID1].group == f"besteffort/pod{UID1}"
    grow(tmp_path, f"kubepods/burstable/pod{UID1}/{C1}")
    assert scan(tmp_path, "kubepods")[UID1].group == f"burstable/pod{UID1}"


# ---- CG-08 ----

SLICE = f"kubepods-burstable-pod{UID1_}.slice"
SERVICE = "system.slice/containerd.service"


def colon_node(tmp_path):
    grow(tmp_path, f"/{SERVICE}/{SLICE}:cri-containerd:{C1}", {"cpu.stat": "usage_usec 25000000\n"})
    grow(tmp_path, f"/kubepods.slice/kubepods-burstable.slice/{SLICE}", {"cpu.stat": "usage_usec 0\n"} | EMPTY)
    return PodTree.below(str(tmp_path), "kubepods.slice")


def test_cg_08_a_pod_whose_container_lies_elsewhere_is_told_from_an_idle_one(tmp_path):
    assert colon_node(tmp_path).scan() == {
        UID1: PodPlace(
            f"kubepods-burstable.slice/{SLICE}",
            "Burstable",
            {},
            skip="outside_pods_root",
            outside={C1: f"{SERVICE}/{SLICE}:cri-containerd:{C1}"},
        )
    }


def test_cg_08_a_lone_sandbox_in_the_pods_group_does_not_hide_the_container_elsewhere(tmp_path):
    tree = colon_node(tmp_path)
    grow(tmp_path, f"kubepods.slice/kubepods-burstable.slice/{SLICE}/cri-containerd-{S1}.scope")
    place = tree.scan()[UID1]
    assert (place.skip, set(place.containers), set(place.outside)) == ("outside_pods_root", {S1}, {C1})


def test_cg_08_a_colon_folder_below_the_pods_root_is_a_container_and_no_pod(tmp_path):
    grow(tmp_path, f"kubepods.slice/{SLICE}:cri-containerd:{C1}")
    grow(tmp_path, f"kubepods.slice/kubepods-burstable.slice/{SLICE}")
    place = PodTree.below(str(tmp_path), "kubepods.slice").scan()[UID1]
    assert (place.group, place.skip) == (f"kubepods-burstable.slice/{SLICE}", "outside_pods_root")
    assert place.outside == {C1: f"kubepods.slice/{SLICE}:cri-containerd:{C1}"}
    assert scan(tmp_path, "kubepods.slice")[UID1].skip == "outside_pods_root"


def test_cg_08_a_pod_with_processes_or_containers_of_its_own_is_not_looked_for_elsewhere(tmp_path):
    tree = colon_node(tmp_path)
    pod = f"kubepods.slice/kubepods-burstable.slice/{SLICE}"
    grow(tmp_path, pod, POPULATED)
    assert tree.scan()[UID1].skip is None
    grow(tmp_path, pod, EMPTY)
    for container in (S1, C2):
        grow(tmp_path, f"{pod}/cri-containerd-{container}.scope")
    assert tree.scan()[UID1].skip is None


def test_cg_08_where_the_colon_folder_is_out_of_sight_an_empty_slice_is_no_idle_pod_either(tmp_path):
    """As for an agent that is given the pods root and nothing above it."""
    pod = f"kubepods-burstable.slice/{SLICE}"
    grow(tmp_path, f"kubepods.slice/{pod}", EMPTY)
    place = PodTree.below(str(tmp_path), "kubepods.slice").scan()[UID1]
    assert place == PodPlace(pod, "Burstable", {}, skip="no_processes")
    grow(tmp_path, f"kubepods.slice/{pod}", POPULATED)
    assert PodTree.below(str(tmp_path), "kubepods.slice").scan()[UID1].skip is None


def test_a_pod_of_which_nobody_can_tell_whether_anything_runs_is_an_ordinary_one(tmp_path):
    grow(tmp_path, f"kubepods/pod{UID1}")
    assert scan(tmp_path, "kubepods")[UID1].skip is None


def test_cg_08_a_container_that_comes_later_is_found_within_a_minute_of_ticks(tmp_path):
    grow(tmp_path, f"kubepods.slice/kubepods-burstable.slice/{SLICE}", EMPTY)
    tree = PodTree.below(str(tmp_path), "kubepods.slice")
    assert tree.scan()[UID1].skip == "no_processes"
    colon_node(tmp_path)
    assert "outside_pods_root" in [tree.scan()[UID1].skip for _ in range(AGAIN_AFTER)]


# ---- CPUs of one's own ----

POOL = "0-1,4-7\n"


def guaranteed(tmp_path, uid, *texts):
    for number, text in enumerate(texts):
        grow(tmp_path, f"kubepods/pod{uid}/{number:064x}", cpus(text))
    grow(tmp_path, f"kubepods/pod{uid}/{S1}", cpus("\n", 1))


def burstable(tmp_path, uid, *texts):
    for number, text in enumerate(texts):
        grow(tmp_path, f"kubepods/burstable/pod{uid}/{number:064x}", cpus(text))
    grow(tmp_path, f"kubepods/burstable/pod{uid}/{S1}", cpus("\n", 1))


def skips(tmp_path):
    return {uid: place.skip for uid, place in scan(tmp_path, "kubepods").items()}


def test_a_guaranteed_pod_with_cpus_that_no_other_pod_has_is_skipped(tmp_path):
    """As the kubelet's static CPU manager leaves it: every container has a set, no sandbox has."""
    guaranteed(tmp_path, UID1, "2-3\n")
    burstable(tmp_path, UID2, POOL)
    assert skips(tmp_path) == {UID1: "exclusive_cpus", UID2: None}


def test_one_container_with_cpus_of_its_own_makes_it_so_whatever_runs_beside_it(tmp_path):
    guaranteed(tmp_path, UID1, "2-3\n", POOL)
    burstable(tmp_path, UID2, POOL)
    assert skips(tmp_path)[UID1] == "exclusive_cpus"


@pytest.mark.parametrize(
    ("own", "other"),
    [
        pytest.param(POOL, POOL, id="a_fraction_of_the_shared_cpus"),
        pytest.param("2-3\n", "0-2,4-7\n", id="one_cpu_in_common"),
        pytest.param("\n", "\n", id="nobody_manages_cpus"),
        pytest.param("nonsense", POOL, id="unreadable"),
    ],
)
def test_a_guaranteed_pod_that_shares_a_cpu_is_an_ordinary_one(tmp_path, own, other):
    guaranteed(tmp_path, UID1, own)
    burstable(tmp_path, UID2, other)
    assert skips(tmp_path) == {UID1: None, UID2: None}


@pytest.mark.parametrize("weight", [1, 100])
def test_a_container_that_was_not_given_its_cpus_yet_takes_nobodys_away(tmp_path, weight):
    """The kubelet gives a new container its set up to ten seconds late."""
    guaranteed(tmp_path, UID1, "2-3\n")
    burstable(tmp_path, UID2, POOL)
    for container in (S1, C1):
        grow(tmp_path, f"kubepods/besteffort/pod{STATIC}/{container}", cpus("\n", weight))
    assert skips(tmp_path) == {UID1: "exclusive_cpus", UID2: None, STATIC: None}


@pytest.mark.parametrize("other", [None, "\n"])
def test_cpus_of_its_own_are_so_though_nobody_else_was_given_any(tmp_path, other):
    guaranteed(tmp_path, UID1, "2-3\n")
    if other is not None:
        burstable(tmp_path, UID2, other)
    assert skips(tmp_path)[UID1] == "exclusive_cpus"


@pytest.mark.parametrize(("other", "skip"), [(POOL, "exclusive_cpus"), ("2-3\n", None)])
def test_cpus_that_were_given_to_the_whole_pod_count(tmp_path, other, skip):
    guaranteed(tmp_path, UID1, "\n")
    grow(tmp_path, f"kubepods/pod{UID1}", cpus("2-3\n"))
    burstable(tmp_path, UID2, other)
    assert skips(tmp_path) == {UID1: skip, UID2: None}


def test_a_burstable_pod_never_has_cpus_of_its_own(tmp_path):
    guaranteed(tmp_path, UID1, "0-1\n")
    burstable(tmp_path, UID2, "2-3\n")
    assert skips(tmp_path)[UID2] is None


def test_without_a_cpuset_controller_nobody_has_cpus_of_its_own(tmp_path):
    grow(tmp_path, f"kubepods/pod{UID1}/{C1}")
    grow(tmp_path, f"kubepods/burstable/pod{UID2}/{C2}", cpus(POOL))
    assert skips(tmp_path)[UID1] is None


# ---- lifetimes ----


@pytest.mark.parametrize("number", [errno.ENODEV, errno.ENOENT])
def test_cg_07_a_group_that_goes_while_it_is_looked_at_raises_nothing(tmp_path, number):
    guaranteed(tmp_path, UID1, "2-3\n")
    burstable(tmp_path, UID2, POOL)

    def read(name, dir_fd):
        raise OSError(number, os.strerror(number))

    tree = CgroupTree(str(tmp_path / "kubepods"), read)
    assert {uid: place.skip for uid, place in PodTree(tree).scan().items()} == {UID1: None, UID2: None}
    assert tree.problems == {}


def test_a_container_that_is_replaced_by_another_is_seen(tmp_path):
    tree = PodTree(CgroupTree(str(tmp_path / "kubepods")))
    old = grow(tmp_path, f"kubepods/pod{UID1}/{C1}")
    assert set(tree.scan()[UID1].containers) == {C1}
    old.rmdir()
    grow(tmp_path, f"kubepods/pod{UID1}/{C2}")
    assert set(tree.scan()[UID1].containers) == {C2}
