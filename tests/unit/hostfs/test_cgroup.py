"""Reading a tree of groups: what vanishes, what is refused, what is remembered."""

import errno
import os
from pathlib import Path

import pytest

from hostfs.cgroup import ROOT_GROUP, CgroupTree, CpuStat, check_group
from hostfs.files import read_at
from hostfs.pressure import Pressure, PressureAbsent, PressureLine

CPU_STAT = "usage_usec 100\nuser_usec 60\nsystem_usec 40\n"
PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"
POD = {
    "cpu.weight": "39\n",
    "cpu.idle": "0\n",
    "cpu.stat": CPU_STAT,
    "cpu.pressure": PRESSURE,
    "memory.current": "4096\n",
    "cgroup.subtree_control": "cpu memory\n",
}


def make_group(root, group, files):
    folder = root / group
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder


def failing(name, number):
    """Reads as the kernel does, but for one file, which fails the way only a kernel makes it fail."""

    def read(wanted, dir_fd):
        if wanted == name:
            raise OSError(number, os.strerror(number))
        return read_at(wanted, dir_fd)

    return read


def open_fds():
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def test_a_reading_holds_all_that_a_tick_needs(tmp_path):
    folder = make_group(tmp_path, "kubepods/burstable/pod1", POD)
    reading = CgroupTree(str(tmp_path)).reading("kubepods/burstable/pod1")
    assert reading is not None
    assert reading.group == "kubepods/burstable/pod1"
    assert reading.inode == folder.stat().st_ino
    assert reading.weight == 39
    assert reading.idle is False
    assert reading.stat == CpuStat(100, 60, 40)
    assert reading.pressure == Pressure(PressureLine(0.0, 0.0, 0.0, 5))
    assert reading.memory_bytes == 4096


def test_cg_07_a_a_group_that_vanishes_between_open_and_read_is_none_and_its_sibling_is_sampled(tmp_path):
    make_group(tmp_path, "c1", POD)
    make_group(tmp_path, "c2", POD)
    gone = CgroupTree(str(tmp_path), failing("cpu.stat", errno.ENODEV))
    assert gone.reading("c1") is None
    assert gone.read("c1", "cpu.stat") is None
    assert gone.problems == {}
    sibling = CgroupTree(str(tmp_path)).reading("c2")
    assert sibling is not None
    assert sibling.stat == CpuStat(100, 60, 40)


def test_cg_07_b_a_group_that_is_not_there_is_none(tmp_path):
    tree = CgroupTree(str(tmp_path))
    assert tree.reading("c1") is None
    assert tree.read("c1", "cpu.stat") is None
    assert tree.inode("c1") is None
    assert tree.children("c1") == []
    assert not tree.has_cpu_controller("c1")
    assert tree.problems == {}


def test_cg_07_c_a_group_with_an_empty_cpu_stat_is_none(tmp_path):
    make_group(tmp_path, "c1", POD | {"cpu.stat": ""})
    tree = CgroupTree(str(tmp_path))
    assert tree.reading("c1") is None
    assert tree.read("c1", "cpu.stat") is None
    assert tree.problems == {}


def test_cg_07_a_group_removed_after_its_first_files_were_read_gives_no_half_reading(tmp_path):
    folder = make_group(tmp_path, "c1", POD)

    def read_then_remove(name, dir_fd):
        text = read_at(name, dir_fd)
        if name == "cpu.weight":
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
        return text

    assert CgroupTree(str(tmp_path), read_then_remove).reading("c1") is None


def test_a_group_made_anew_has_another_inode(tmp_path):
    tree = CgroupTree(str(tmp_path))
    first = make_group(tmp_path, "c1", {})
    before = tree.inode("c1")
    first.rename(tmp_path / "elsewhere")
    make_group(tmp_path, "c1", {})
    assert tree.inode("c1") not in {None, before}


def test_st_02_a_pressure_that_is_off_leaves_the_rest_of_the_reading(tmp_path):
    make_group(tmp_path, "c1", POD)
    tree = CgroupTree(str(tmp_path), failing("cpu.pressure", errno.EOPNOTSUPP))
    reading = tree.reading("c1")
    assert reading is not None
    assert reading.pressure == PressureAbsent("psi_off")
    assert reading.stat == CpuStat(100, 60, 40)
    assert tree.problems == {}


def test_st_02_b_a_missing_pressure_file_leaves_the_rest_of_the_reading(tmp_path):
    make_group(tmp_path, "c1", {"cpu.stat": CPU_STAT})
    reading = CgroupTree(str(tmp_path)).reading("c1")
    assert reading is not None
    assert reading.pressure == PressureAbsent("psi_missing")


def test_wt_03_an_idle_group_reads_weight_zero(tmp_path):
    make_group(tmp_path, "c1", POD | {"cpu.weight": "0\n", "cpu.idle": "1\n"})
    reading = CgroupTree(str(tmp_path)).reading("c1")
    assert reading is not None
    assert (reading.weight, reading.idle) == (0, True)


def test_wt_07_without_the_cpu_controller_there_is_no_weight_and_usage_is_still_read(tmp_path):
    make_group(tmp_path, "parent", {"cgroup.subtree_control": "memory pids\n"})
    make_group(tmp_path, "parent/child", {"cpu.stat": CPU_STAT})
    tree = CgroupTree(str(tmp_path))
    assert not tree.has_cpu_controller("parent")
    reading = tree.reading("parent/child")
    assert reading is not None
    assert reading.weight is None
    assert reading.stat == CpuStat(100, 60, 40)


@pytest.mark.parametrize(
    ("text", "has"), [("cpu memory\n", True), ("cpuset cpu\n", True), ("cpuset memory\n", False), ("\n", False)]
)
def test_wt_07_the_cpu_controller_is_looked_up_by_its_whole_name(tmp_path, text, has):
    (tmp_path / "cgroup.subtree_control").write_text(text)
    assert CgroupTree(str(tmp_path)).has_cpu_controller(ROOT_GROUP) is has


def test_children_are_groups_relative_to_the_root_and_sorted(tmp_path):
    for group in ("kubepods/podb", "kubepods/poda", "system.slice"):
        make_group(tmp_path, group, POD)
    tree = CgroupTree(str(tmp_path))
    assert tree.children(ROOT_GROUP) == ["kubepods", "system.slice"]
    assert tree.children("kubepods") == ["kubepods/poda", "kubepods/podb"]
    assert tree.children("system.slice") == []


def test_another_failure_is_none_and_remembered_by_errno(tmp_path):
    make_group(tmp_path, "c1", POD)
    tree = CgroupTree(str(tmp_path), failing("cpu.stat", errno.EACCES))
    assert tree.reading("c1") is None
    assert tree.read("c1", "cpu.stat") is None
    assert tree.problems[errno.EACCES].count == 2
    assert tree.problems[errno.EACCES].path == "c1/cpu.stat"


def test_an_unreadable_pressure_is_remembered_too(tmp_path):
    make_group(tmp_path, "c1", POD)
    tree = CgroupTree(str(tmp_path), failing("cpu.pressure", errno.EIO))
    reading = tree.reading("c1")
    assert reading is not None
    assert reading.pressure == PressureAbsent("unreadable")
    assert tree.problems[errno.EIO].path == "c1/cpu.pressure"


def test_a_symbolic_link_is_never_followed(tmp_path):
    outside = make_group(tmp_path, "outside", POD)
    root = tmp_path / "root"
    make_group(root, "c1", {})
    (root / "linked").symlink_to(outside)
    (root / "c1" / "cpu.stat").symlink_to(outside / "cpu.stat")
    make_group(outside, "below", POD)
    tree = CgroupTree(str(root))
    assert tree.reading("linked") is None
    assert tree.reading("linked/below") is None
    assert tree.read("c1", "cpu.stat") is None
    assert tree.children("linked") == []
    assert tree.children(ROOT_GROUP) == ["c1"]
    assert tree.problems


def test_a_file_where_a_group_is_expected_is_none_and_remembered(tmp_path):
    make_group(tmp_path, "c1", POD)
    tree = CgroupTree(str(tmp_path))
    assert tree.children("c1/cpu.stat") == []
    assert tree.problems[errno.ENOTDIR].count == 1


def test_a_root_that_is_missing_has_no_groups(tmp_path):
    tree = CgroupTree(str(tmp_path / "nowhere"))
    assert tree.children(ROOT_GROUP) == []
    assert tree.reading("c1") is None


@pytest.mark.parametrize(
    "group", ["", "/", "/kubepods", "kubepods/", "a//b", "..", "a/../b", "a/..", ".", "a/./b", "a\0b", "\ud800"]
)
def test_a_group_that_is_no_plain_relative_path_is_refused(group):
    with pytest.raises(ValueError):
        check_group(group)


@pytest.mark.parametrize(
    "group", ["kubepods", "kubepods.slice/kubepods-pod1.slice", "a/..b/c..", "slice:cri:1", "a b", "\udcff"]
)
def test_a_plain_relative_path_is_a_group(group):
    assert check_group(group) == group


@pytest.mark.parametrize("group", ["/etc", "../etc", "a/../../etc", "a\0"])
def test_no_method_takes_a_group_outside_the_root(tmp_path, group):
    tree = CgroupTree(str(tmp_path))
    for method in (tree.reading, tree.children, tree.has_cpu_controller, tree.inode):
        with pytest.raises(ValueError):
            method(group)
    with pytest.raises(ValueError):
        tree.read(group, "cpu.stat")


@pytest.mark.parametrize("name", ["", ".", "..", "../cpu.stat", "a/b", "/etc/passwd", "a\0"])
def test_no_file_outside_the_group_is_read(tmp_path, name):
    with pytest.raises(ValueError):
        CgroupTree(str(tmp_path)).read(ROOT_GROUP, name)


def test_no_descriptor_is_left_open(tmp_path):
    make_group(tmp_path, "a/b", POD)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    trees = [CgroupTree(str(tmp_path)), CgroupTree(str(tmp_path), failing("cpu.stat", errno.EACCES))]
    before = open_fds()
    for tree in trees:
        for group in ("a/b", "a/missing", "missing/b", "link/b", "a/b/cpu.stat"):
            tree.reading(group)
            tree.read(group, "cpu.stat")
            tree.children(group)
            tree.inode(group)
    assert open_fds() == before


@pytest.mark.parametrize(
    ("text", "populated"),
    [("populated 1\nfrozen 0\n", True), ("populated 0\n", False), ("frozen 0\n", None), (None, None)],
)
def test_whether_anything_runs_in_a_group_is_known_or_not(tmp_path, text, populated):
    make_group(tmp_path, "c1", {} if text is None else {"cgroup.events": text})
    assert CgroupTree(str(tmp_path)).is_populated("c1") is populated


def test_a_list_of_children_is_right_whatever_was_there_before(tmp_path):
    tree = CgroupTree(str(tmp_path))

    def listed():
        return tree.children("pod")

    assert listed() == []
    pod = make_group(tmp_path, "pod", {"cpu.stat": ""})
    assert listed() == []
    (pod / "b").mkdir()
    assert listed() == ["pod/b"]
    (pod / "a").mkdir()
    assert listed() == listed() == ["pod/a", "pod/b"]
    (pod / "a").rename(pod / "c")
    assert listed() == ["pod/b", "pod/c"]
    (pod / "c").rmdir()
    (pod / "c").symlink_to(pod / "b")
    (pod / "d").mkdir()
    assert listed() == ["pod/b", "pod/d"]
    (pod / "d").rmdir()
    (pod / "b").rmdir()
    (pod / "b").write_text("")
    assert listed() == []
    pod.rename(tmp_path / "elsewhere")
    assert listed() == []
    make_group(tmp_path, "pod/d", {})
    assert listed() == ["pod/d"]


def test_a_short_list_that_is_known_is_not_read_again(tmp_path, monkeypatch):
    make_group(tmp_path, "pod/a", {})
    if (tmp_path / "pod").stat().st_nlink != 3:
        pytest.skip("this file system does not count links of folders")
    tree = CgroupTree(str(tmp_path))
    assert tree.children("pod") == ["pod/a"]
    monkeypatch.setattr("os.scandir", None)
    assert tree.children("pod") == ["pod/a"]
