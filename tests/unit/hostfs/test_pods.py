"""Pods by cgroup path, and where their tree begins."""

import pytest

from hostfs.cgroup import ROOT_GROUP, CgroupTree
from hostfs.pods import (
    MAX_ROOT_DEPTH,
    MAX_ROOT_FOLDERS,
    PodGroup,
    container_id,
    find_pods_root,
    parse_pod_group,
    pods_roots,
)

UID1 = "3f0c7b52-6a3e-4d0b-9a57-0d3c6a1f2e11"
UID1_ = UID1.replace("-", "_")
UID2_ = "b7e1d940_22c8_4f6a_8a1b_5c90e3f7a402"
STATIC = "9d1c0b7a5e3f42688f0e6c2b4a1d7f35"
C1 = "c1" * 32
N1 = "0d" * 32

SYSTEMD_POD = f"kubepods-burstable-pod{UID1_}.slice"
KUBELET_POD = (
    f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/kubelet-kubepods-burstable-pod{UID1_}.slice"
)


@pytest.mark.parametrize(
    ("path", "qos"),
    [
        pytest.param(f"/kubepods/pod{UID1}/{C1}", "Guaranteed", id="a"),
        pytest.param(f"/kubepods.slice/kubepods-pod{UID1_}.slice/cri-containerd-{C1}.scope", "Guaranteed", id="b"),
        pytest.param(f"/kubepods/burstable/pod{UID1}/{C1}", "Burstable", id="c"),
        pytest.param(
            f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID1_}.slice/crio-{C1}.scope",
            "BestEffort",
            id="d",
        ),
    ],
)
def test_cg_01_pods_are_found_with_and_without_a_qos_folder(path, qos):
    assert parse_pod_group(path) == PodGroup(UID1, qos, C1)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(f"/{KUBELET_POD}/cri-containerd-{C1}.scope", id="in_the_node"),
        pytest.param(f"/system.slice/docker-{N1}.scope/{KUBELET_POD}/cri-containerd-{C1}.scope", id="from_the_host"),
        pytest.param(f"/kubelet/kubepods/burstable/pod{UID1}/{C1}", id="cgroupfs"),
    ],
)
def test_cg_02_a_node_in_a_container_gives_the_pods_container_not_the_nodes(path):
    assert parse_pod_group(path) == PodGroup(UID1, "Burstable", C1)


def test_cg_08_the_colon_form_names_pod_and_container():
    path = f"/system.slice/containerd.service/{SYSTEMD_POD}:cri-containerd:{C1}"
    assert parse_pod_group(path) == PodGroup(UID1, "Burstable", C1)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (f"kubepods.slice/kubepods-burstable.slice/{SYSTEMD_POD}", PodGroup(UID1, "Burstable")),
        (f"kubepods/pod{UID1}", PodGroup(UID1, "Guaranteed")),
        (f"pod{UID1}", PodGroup(UID1, "Guaranteed")),
        (f"besteffort/pod{UID1}", PodGroup(UID1, "BestEffort")),
        (f"kubepods/burstable/pod{STATIC}", PodGroup(STATIC, "Burstable")),
        (
            f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{STATIC}.slice",
            PodGroup(STATIC, "Burstable"),
        ),
    ],
)
def test_a_pod_level_group_has_no_container(path, expected):
    assert parse_pod_group(path) == expected


def test_a_group_inside_the_container_belongs_to_the_container():
    path = f"kubepods.slice/kubepods-pod{UID1_}.slice/crio-{C1}.scope/container"
    assert parse_pod_group(path) == PodGroup(UID1, "Guaranteed", C1)


def test_a_monitor_process_is_no_container():
    path = f"kubepods.slice/kubepods-pod{UID1_}.slice/crio-conmon-{C1}.scope"
    assert parse_pod_group(path) == PodGroup(UID1, "Guaranteed", None)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "kubepods",
        "kubepods.slice/kubepods-burstable.slice",
        "podruntime.slice",
        "kubepods/podman",
        f"/machine.slice/pod{UID1}",
        f"/system.slice/docker-{N1}.scope",
        f"/kubepods/pod{UID1_}/{C1}",
        f"/kubepods.slice/kubepods-pod{UID1}.slice",
        f"/kubepods.slice/kubepods-guaranteed-pod{UID1_}.slice",
    ],
)
def test_what_is_no_pods_group_is_none(path):
    assert parse_pod_group(path) is None


def tree_of(*paths):
    """The children function of a tree with these groups and all above them."""
    groups = {"/".join(path.split("/")[: depth + 1]) for path in paths for depth in range(path.count("/") + 1)}

    def children(group):
        return sorted(found for found in groups if found.rpartition("/")[0] == group and found != group)

    return children


@pytest.mark.parametrize(
    ("pod", "root"),
    [
        (f"kubepods.slice/kubepods-burstable.slice/{SYSTEMD_POD}", "kubepods.slice"),
        (f"kubepods/burstable/pod{UID1}", "kubepods"),
        (f"kubepods/pod{UID1}", "kubepods"),
        (KUBELET_POD, "kubelet.slice/kubelet-kubepods.slice"),
        (f"kubelet/kubepods/burstable/pod{UID1}", "kubelet/kubepods"),
        (
            f"system.slice/docker-{N1}.scope/{KUBELET_POD}",
            f"system.slice/docker-{N1}.scope/kubelet.slice/kubelet-kubepods.slice",
        ),
        pytest.param(f"docker/{N1}/kubepods/burstable/pod{UID1}", f"docker/{N1}/kubepods", id="minikube_cgroupfs"),
        pytest.param(
            f"system.slice/docker-{N1}.scope/kubepods.slice/kubepods-pod{UID2_}.slice",
            f"system.slice/docker-{N1}.scope/kubepods.slice",
            id="minikube_systemd",
        ),
    ],
)
def test_cg_02_the_pods_root_is_discovered(pod, root):
    assert find_pods_root(ROOT_GROUP, tree_of("init.scope", "system.slice/ssh.service", pod)) == root


@pytest.mark.parametrize(
    "pod", [f"kubepods-pod{UID2_}.slice", f"kubepods-besteffort.slice/kubepods-besteffort-pod{UID2_}.slice"]
)
def test_cg_02_an_empty_root_left_by_another_driver_is_passed_over(pod):
    children = tree_of("kubepods/burstable", "kubepods/besteffort", f"kubepods.slice/{pod}")
    assert find_pods_root(ROOT_GROUP, children) == "kubepods.slice"


def test_cg_02_a_root_without_pods_yet_is_still_the_root():
    assert (
        find_pods_root(ROOT_GROUP, tree_of("system.slice", "kubepods.slice/kubepods-burstable.slice"))
        == "kubepods.slice"
    )


def test_cg_02_without_a_pods_root_there_is_none():
    assert find_pods_root(ROOT_GROUP, tree_of("system.slice/a", "user.slice", "notkubepods", "kubepods-x")) is None


def test_cg_02_the_search_starts_where_it_is_told():
    children = tree_of(f"kubepods/pod{UID1}", f"node/kubepods/pod{UID1}")
    assert find_pods_root("node", children) == "node/kubepods"


USER = "user.slice/user-1000.slice/user@1000.service"


@pytest.mark.parametrize(
    "root",
    [
        pytest.param(f"machine.slice/libpod-{N1}.scope/container/kubelet.slice/kubelet-kubepods.slice", id="podman"),
        pytest.param(
            f"{USER}/user.slice/libpod-{N1}.scope/container/kubelet.slice/kubelet-kubepods.slice", id="rootless_podman"
        ),
        pytest.param(f"{USER}/k3s-rootless.service/kubepods", id="rootless_k3s"),
    ],
)
def test_cg_02_a_node_of_a_users_own_is_found(root):
    pod = f"burstable/pod{UID1}" if root.endswith("/kubepods") else f"kubelet-kubepods-pod{UID1_}.slice"
    assert find_pods_root(ROOT_GROUP, tree_of("system.slice/ssh.service", f"{root}/{pod}")) == root


def test_cg_02_the_search_is_bounded_in_depth():
    above = "/".join("abcdefghijkl"[: MAX_ROOT_DEPTH - 1])
    assert find_pods_root(ROOT_GROUP, tree_of(f"{above}/kubepods")) == f"{above}/kubepods"
    assert find_pods_root(ROOT_GROUP, tree_of(f"{above}/z/kubepods")) is None


def test_cg_02_the_search_is_bounded_in_folders():
    listed = []

    def children(group):
        listed.append(group)
        return [f"{group}/{number}".lstrip("/") for number in range(10)]

    assert find_pods_root(ROOT_GROUP, children) is None
    assert len(listed) == MAX_ROOT_FOLDERS


def test_cg_02_of_several_roots_with_running_pods_all_are_named_and_the_nearest_is_taken():
    near, far = "kubepods.slice", f"system.slice/docker-{N1}.scope/kubelet.slice/kubelet-kubepods.slice"
    children = tree_of(
        f"{near}/kubepods-pod{UID1_}.slice", f"{far}/kubelet-kubepods-pod{UID2_}.slice", f"old/kubepods/pod{UID1}"
    )
    running = {near, far}.__contains__
    assert pods_roots(ROOT_GROUP, children, running) == (near, far)
    assert find_pods_root(ROOT_GROUP, children, running) == near
    assert pods_roots(ROOT_GROUP, children, {far}.__contains__) == (far,)


def test_cg_02_empty_roots_are_no_choice():
    assert pods_roots(ROOT_GROUP, tree_of("kubepods/burstable", "kubepods.slice/x")) == ("kubepods",)


def test_cg_02_the_pods_root_is_found_in_a_real_folder(tmp_path):
    (tmp_path / KUBELET_POD).mkdir(parents=True)
    (tmp_path / "system.slice").mkdir()
    assert find_pods_root(ROOT_GROUP, CgroupTree(str(tmp_path)).children) == "kubelet.slice/kubelet-kubepods.slice"


@pytest.mark.parametrize("running", ["kubepods", "kubepods.slice"])
def test_cg_02_of_two_roots_with_pods_the_populated_one_is_the_root(running):
    children = tree_of(f"kubepods/burstable/pod{UID1}", f"kubepods.slice/kubepods-pod{UID2_}.slice")
    assert find_pods_root(ROOT_GROUP, children, lambda group: group == running) == running


def test_cg_02_a_populated_root_without_a_pod_is_no_better_than_one_with_pods():
    children = tree_of("kubepods/burstable", f"kubepods.slice/kubepods-pod{UID2_}.slice")
    assert find_pods_root(ROOT_GROUP, children, lambda group: group == "kubepods") == "kubepods.slice"


@pytest.mark.parametrize(
    ("name", "container"),
    [
        (C1, C1),
        (f"cri-containerd-{C1}.scope", C1),
        (f"crio-{C1}.scope", C1),
        (f"docker-{C1}.scope", C1),
        (f"crio-conmon-{C1}.scope", None),
        ("container", None),
        (f"{C1}0", None),
    ],
)
def test_a_containers_group_is_known_by_its_name(name, container):
    assert container_id(name) == container
