"""What the kernel's own files do, which every fake in the other tests claims to imitate."""

import errno
import os

import pytest

from hostfs.cgroup import CgroupTree
from hostfs.pod_tree import PodTree
from hostfs.pods import find_pods_root
from services.actuator.cgroup_writer import CgroupWriter
from services.collector.sources.kernel import Kernel
from tests.unit.hostfs.nodes import C1, C2, S1, UID1, UID1_, UID2, UID2_

pytestmark = pytest.mark.kernel

POD = "pod0a1e7f52-6c0d-4b8e-9d35-3f1c2b7a9e01"


@pytest.fixture
def pods(sandbox):
    sandbox.add(f"kubepods/burstable/{POD}", 39)
    return sandbox


@pytest.fixture
def writer(pods):
    return CgroupWriter(str(pods.root), f"{pods.name}/kubepods")


def test_a_weight_is_written_and_read_back_with_the_kernels_newline(writer):
    group = f"burstable/{POD}"
    identity, text = writer.read(group)
    assert text == "39\n"
    assert writer.write(group, "250", identity).after == "250\n"
    assert writer.write(group, "39\n", identity).after == "39\n"
    assert writer.write(group, "250", identity + 1).error == "gone"
    assert writer.read(group).text == "39\n"


@pytest.mark.parametrize(("text", "number"), [("0", errno.ERANGE), ("10001", errno.ERANGE), ("-3", errno.EINVAL)])
def test_wt_02_the_kernel_refuses_what_the_writer_never_sends(pods, writer, text, number):
    path = pods.path / "kubepods/burstable" / POD / "cpu.weight"
    with pytest.raises(OSError) as refused:
        path.write_text(text)
    assert refused.value.errno in (number, errno.ERANGE, errno.EINVAL)
    with pytest.raises(ValueError):
        writer.write(f"burstable/{POD}", text, 1)


def test_wt_03_an_idle_group_shows_weight_zero_and_refuses_every_weight(pods, writer):
    folder = pods.path / "kubepods/burstable" / POD
    if not (folder / "cpu.idle").exists():
        pytest.skip("this kernel has no cpu.idle (before 5.15)")
    (folder / "cpu.idle").write_text("1")
    identity, text = writer.read(f"burstable/{POD}")
    assert text == "0\n"
    assert writer.write(f"burstable/{POD}", "50", identity).error == "idle"
    reading = CgroupTree(str(pods.path / "kubepods")).reading(f"burstable/{POD}")
    assert reading.idle
    assert reading.weight == 0


def test_wt_07_a_parent_without_the_controller_gives_children_no_weight(pods):
    bare = pods.path / "bare"
    (bare / "child").mkdir(parents=True)
    tree = CgroupTree(str(pods.path))
    assert not tree.has_cpu_controller("bare")
    reading = tree.reading("bare/child")
    assert reading.weight is None
    assert reading.stat.usage_usec == 0


def test_cg_07_a_group_that_vanishes_between_open_and_read_is_an_absence(pods, writer):
    group = f"burstable/{POD}"
    tree = CgroupTree(str(pods.path / "kubepods"))
    folder = pods.path / "kubepods" / group

    def vanish(name: str, dir_fd: int) -> str:
        descriptor = os.open(name, os.O_RDONLY, dir_fd=dir_fd)
        try:
            if folder.exists():
                folder.rmdir()
            return os.read(descriptor, 4096).decode()
        finally:
            os.close(descriptor)

    assert CgroupTree(tree.root, vanish).reading(group) is None
    assert writer.read(group) == "gone"
    assert writer.write(group, "50", 1).error == "gone"


def test_a_group_made_again_under_the_same_name_has_another_identity(pods, writer):
    group = f"burstable/{POD}"
    before = writer.read(group).identity
    (pods.path / "kubepods" / group).rmdir()
    pods.add(f"kubepods/{group}", 39)
    assert writer.read(group).identity != before
    assert writer.write(group, "50", before).error == "gone"


# ---- a kubelet's trees, with something running in them ----

CGROUPFS = {UID1: (f"burstable/pod{UID1}", C1), UID2: (f"pod{UID2}", C2)}
SYSTEMD = {
    UID1: (f"kubepods-burstable.slice/kubepods-burstable-pod{UID1_}.slice", f"cri-containerd-{C1}.scope"),
    UID2: (f"kubepods-pod{UID2_}.slice", f"crio-{C2}.scope"),
}


def run_pods(sandbox, burn, root, layout):
    for group, container in layout.values():
        sandbox.add(f"{root}/{group}", 39)
        sandbox.add(f"{root}/{group}/{container}")
        burn(f"{root}/{group}/{container}")


@pytest.mark.parametrize(
    ("root", "layout"),
    [("kubepods", CGROUPFS), ("kubepods.slice", SYSTEMD), ("kubelet.slice/kubelet-kubepods.slice", SYSTEMD)],
    ids=["cgroupfs", "systemd", "nested"],
)
def test_cg_01_cg_02_the_pods_of_a_real_tree_are_found_read_and_written(sandbox, burn, root, layout):
    run_pods(sandbox, burn, root, layout)
    tree = CgroupTree(str(sandbox.path))
    assert find_pods_root("", tree.children, tree.is_populated) == root
    places = PodTree.below(str(sandbox.path), root).scan()
    assert {uid: (place.group, place.qos, place.skip) for uid, place in places.items()} == {
        UID1: (layout[UID1][0], "Burstable", None),
        UID2: (layout[UID2][0], "Guaranteed", None),
    }
    assert places[UID1].members([f"containerd://{C1}"]) == {C1: "/".join(layout[UID1])}
    writer = CgroupWriter(str(sandbox.path), root)
    groups = [place.group for place in places.values()]
    sweep = Kernel(str(sandbox.path), root, "/proc").sweep(groups)
    for group in groups:
        assert (sweep.groups[group].weight, sweep.groups[group].skip) == (39, None)
        assert writer.write(group, "250", sweep.groups[group].inode).after == "250\n"
        with pytest.raises(ValueError):
            writer.write(f"{group}/{places[UID1].containers.get(C1, C1)}", "250", 1)


def test_cg_02_a_root_that_another_driver_left_behind_is_not_taken_for_the_running_one(sandbox, burn):
    for group, container in CGROUPFS.values():
        sandbox.add(f"kubepods/{group}/{container}")
    run_pods(sandbox, burn, "kubepods.slice", SYSTEMD)
    tree = CgroupTree(str(sandbox.path))
    assert (tree.is_populated("kubepods"), tree.is_populated("kubepods.slice")) == (False, True)
    assert find_pods_root("", tree.children, tree.is_populated) == "kubepods.slice"


def test_of_two_real_groups_of_one_uid_the_one_that_something_runs_in_is_the_pods(sandbox, burn):
    old, new = CGROUPFS[UID1], SYSTEMD[UID1]
    sandbox.add(f"kubepods/{'/'.join(old)}")
    run_pods(sandbox, burn, "kubepods", {UID1: new})
    assert PodTree.below(str(sandbox.path), "kubepods").scan()[UID1].group == new[0]


def test_cg_08_the_usage_of_a_container_elsewhere_is_its_pods(sandbox, burn):
    pod = f"kubepods-burstable.slice/kubepods-burstable-pod{UID1_}.slice"
    sandbox.add(f"kubepods.slice/{pod}", 39)
    colon = f"system.slice/containerd.service/kubepods-burstable-pod{UID1_}.slice:cri-containerd:{C1}"
    sandbox.add(colon)
    burn(colon)
    node = CgroupTree(str(sandbox.path))
    while node.reading(colon).stat.usage_usec < 50_000:
        os.sched_yield()
    place = PodTree.below(str(sandbox.path), "kubepods.slice").scan()[UID1]
    assert (place.group, place.skip, place.outside) == (pod, "outside_pods_root", {C1: colon})
    reading = Kernel(str(sandbox.path), "kubepods.slice", "/proc").sweep([pod]).groups[pod]
    assert reading.stat.usage_usec >= 50_000
    assert (reading.weight, reading.skip) == (None, "outside_pods_root")
    assert node.reading(f"kubepods.slice/{pod}").stat.usage_usec == 0


def test_a_pod_in_which_nothing_runs_yet_is_told_from_one_in_which_something_does(sandbox, burn):
    group, container = SYSTEMD[UID1]
    sandbox.add(f"kubepods.slice/{group}/{container}")
    (sandbox.path / "kubepods.slice" / group / container).rmdir()
    tree = PodTree.below(str(sandbox.path), "kubepods.slice")
    assert tree.scan()[UID1].skip == "no_processes"
    run_pods(sandbox, burn, "kubepods.slice", {UID1: SYSTEMD[UID1]})
    assert tree.scan()[UID1].skip is None


def test_a_real_folder_counts_its_groups_so_that_a_list_is_right_whatever_was_there_before(sandbox):
    pod = sandbox.add("kubepods/pod-a")
    tree = CgroupTree(str(sandbox.path))

    def listed():
        assert pod.stat().st_nlink == 2 + len(tree.children("kubepods/pod-a"))
        return [child.rpartition("/")[2] for child in tree.children("kubepods/pod-a")]

    assert listed() == []
    for name in (C1, S1):
        sandbox.add(f"kubepods/pod-a/{name}")
    assert listed() == [S1, C1]
    (pod / C1).rmdir()
    sandbox.add(f"kubepods/pod-a/{C2}")
    assert listed() == [S1, C2]
