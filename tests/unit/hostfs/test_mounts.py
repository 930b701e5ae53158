"""Which cgroup layout a node has, and whether weights can be written there."""

import pytest

from hostfs.cgroup import ROOT_GROUP, CgroupTree
from hostfs.mounts import CgroupHost, detect, find_cgroup_host, mount_of, parse_mountinfo
from hostfs.pod_tree import PodTree
from hostfs.pods import find_pods_root
from tests.unit.hostfs.nodes import C1, UID1, UID1_, grow

HYBRID_V1_CPU = """\
25 1 0:22 / /sys/fs/cgroup ro,nosuid,nodev,noexec - tmpfs tmpfs ro,mode=755
26 25 0:23 / /sys/fs/cgroup/unified rw,nosuid,nodev,noexec,relatime - cgroup2 cgroup2 rw
31 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime - cgroup cgroup rw,cpu,cpuacct
"""
UNIFIED = "25 1 0:22 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID_V2_CPU = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""
V1 = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
"""
READ_ONLY = "1402 1391 0:27 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n"


def with_controllers(text):
    return lambda folder: text


def test_a_line_of_mountinfo_is_taken_apart():
    (mount,) = parse_mountinfo(
        r"36 35 98:0 /a\040b /mnt/c\040d\011e\134f rw,noatime shared:1 master:2 - ext3 /dev/root rw,errors=continue"
        "\n"
    )
    assert mount.root == "/a b"
    assert mount.mount_point == "/mnt/c d\te\\f"
    assert mount.fstype == "ext3"
    assert mount.mount_options == {"rw", "noatime"}
    assert mount.super_options == {"rw", "errors=continue"}


@pytest.mark.parametrize(
    "line", ["", "36 35 98:0 / /mnt rw", "36 35 98:0 / /mnt - ext4 dev rw", "a - b", "36 35 98:0 / /mnt rw - ext4"]
)
def test_lines_of_another_form_are_left_out(line):
    assert [mount.mount_point for mount in parse_mountinfo(f"{line}\n{UNIFIED}")] == ["/sys/fs/cgroup"]


def test_a_mount_without_a_source_keeps_its_options():
    (mount,) = parse_mountinfo("36 35 0:5 / /mnt rw - tmpfs  rw,size=4k\n")
    assert (mount.fstype, mount.super_options) == ("tmpfs", {"rw", "size=4k"})


def test_a_path_belongs_to_the_deepest_and_of_equals_the_last_mount():
    mounts = parse_mountinfo(
        "1 0 8:1 / / rw - ext4 a rw\n2 1 0:1 / /sys rw - sysfs b rw\n3 1 0:2 / /sysx rw - tmpfs c rw\n4 2 0:3 / /sys rw - tmpfs d rw\n"
    )
    assert [getattr(mount_of(mounts, path), "fstype", None) for path in ("/sys/fs", "/sys", "/sysy", "/sysx/a")] == [
        "tmpfs",
        "tmpfs",
        "ext4",
        "tmpfs",
    ]
    assert mount_of((), "/sys") is None


def test_cg_06_a_a_hybrid_node_with_cpu_on_v1_is_refused_with_a_way_out():
    host = find_cgroup_host(HYBRID_V1_CPU, with_controllers("memory pids\n"))
    assert (host.root, host.layout, host.cpu_on) == (None, "hybrid", "v1")
    assert host.reason == "hybrid: cpu controller is on v1"
    assert "systemd.unified_cgroup_hierarchy=1" in (host.remedy or "")
    assert not host.is_writable


def test_cg_06_b_a_unified_node_is_v2():
    host = find_cgroup_host(UNIFIED, with_controllers("cpuset cpu io memory pids\n"))
    assert host == CgroupHost(root="/sys/fs/cgroup", layout="unified", cpu_on="v2")
    assert host.is_writable


def test_cg_06_a_hybrid_node_with_cpu_on_v2_is_usable():
    asked = []

    def controllers_of(folder):
        asked.append(folder)
        return "cpu\n"

    host = find_cgroup_host(HYBRID_V2_CPU, controllers_of)
    assert host == CgroupHost(root="/sys/fs/cgroup/unified", layout="hybrid", cpu_on="v2")
    assert asked == ["/sys/fs/cgroup/unified"]


def test_cg_06_cgroup2_below_a_tmpfs_is_hybrid_even_without_v1_mounts():
    text = "".join(line for line in HYBRID_V2_CPU.splitlines(keepends=True) if " - cgroup cgroup " not in line)
    host = find_cgroup_host(text, with_controllers("cpu\n"))
    assert (host.root, host.layout, host.cpu_on) == ("/sys/fs/cgroup/unified", "hybrid", "v2")


def test_cg_06_cpuset_is_not_cpu():
    host = find_cgroup_host(
        HYBRID_V2_CPU + "33 31 0:30 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n",
        with_controllers("cpuset\n"),
    )
    assert (host.root, host.cpu_on) == (None, "none")


def test_cg_06_a_pure_v1_node_is_refused():
    host = find_cgroup_host(V1, with_controllers(None))
    assert (host.root, host.layout, host.cpu_on) == (None, "v1", "v1")
    assert host.reason == "v1: cpu controller is on v1"


def test_cg_06_a_cgroup2_that_was_not_given_cpu_says_so():
    host = find_cgroup_host(UNIFIED, with_controllers("memory pids\n"))
    assert (host.root, host.layout, host.cpu_on) == (None, "unified", "none")
    assert host.reason == "/sys/fs/cgroup/cgroup.controllers does not list cpu"
    assert "Delegate=cpu" in (host.remedy or "")


def test_cg_06_unreadable_controllers_are_another_reason_than_missing_ones():
    host = find_cgroup_host(UNIFIED, with_controllers(None))
    assert (host.root, host.cpu_on) == (None, "none")
    assert host.reason == "/sys/fs/cgroup/cgroup.controllers cannot be read"


@pytest.mark.parametrize("text", ["", "1 0 8:1 / / rw - ext4 /dev/root rw\n"])
def test_without_any_cgroup_mount_there_is_nothing(text):
    host = find_cgroup_host(text, with_controllers(None))
    assert (host.root, host.layout, host.cpu_on) == (None, "none", "none")
    assert host.reason == "cgroup2 is not mounted"
    assert host.remedy


def test_a_named_v1_hierarchy_beside_cgroup2_leaves_the_node_unified():
    text = UNIFIED + "40 25 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd\n"
    assert find_cgroup_host(text, with_controllers("cpu\n")).layout == "unified"


def test_wt_05_a_read_only_mount_is_found_although_the_superblock_says_rw():
    host = find_cgroup_host(READ_ONLY, with_controllers("cpu\n"))
    assert (host.root, host.cpu_on, host.read_only) == ("/sys/fs/cgroup", "v2", True)
    assert not host.is_writable
    assert host.reason == "/sys/fs/cgroup is mounted read-only"
    assert host.remedy


def test_wt_05_a_read_only_file_system_is_found_too():
    host = find_cgroup_host(READ_ONLY.replace(" ro,", " rw,").replace("rw,nsdelegate", "ro"), with_controllers("cpu\n"))
    assert host.read_only


def test_wt_05_pods_root_mounted_writable_below_a_read_only_tree_is_writable():
    text = READ_ONLY + "1403 1402 0:27 /kubepods /sys/fs/cgroup/kubepods rw,relatime - cgroup2 cgroup rw\n"
    asked_for_all = find_cgroup_host(text, with_controllers("cpu\n"))
    assert (asked_for_all.root, asked_for_all.read_only) == ("/sys/fs/cgroup", True)
    for root in ("/sys/fs/cgroup/kubepods", "/sys/fs/cgroup/kubepods/burstable"):
        host = find_cgroup_host(text, with_controllers("cpu\n"), root)
        assert host.root == root
        assert host.is_writable


def test_a_chosen_root_loses_its_trailing_slash():
    assert find_cgroup_host(UNIFIED, with_controllers("cpu\n"), "/sys/fs/cgroup/").root == "/sys/fs/cgroup"


def test_a_chosen_root_elsewhere_is_refused_by_name():
    host = find_cgroup_host(UNIFIED + "1 0 8:1 / / rw - ext4 /dev/root rw\n", with_controllers("cpu\n"), "/srv/cgroup/")
    assert host.root is None
    assert "/srv/cgroup" in (host.reason or "")


def test_of_two_cgroup2_mounts_the_one_that_shows_the_whole_node_is_taken():
    text = (
        "50 1 0:27 / /sys/fs/cgroup ro - cgroup2 cgroup rw\n51 1 0:27 /../../.. /host/cgroup rw - cgroup2 cgroup rw\n"
    )
    host = find_cgroup_host(text, with_controllers("cpu\n"))
    assert (host.root, host.read_only) == ("/host/cgroup", False)


def test_a_mount_that_another_one_hides_is_not_taken():
    text = UNIFIED + "60 25 0:40 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    assert find_cgroup_host(text, with_controllers("cpu\n")).root is None


def test_detect_reads_mountinfo_and_the_mounts_controllers(tmp_path):
    cgroup = tmp_path / "cg roup"
    cgroup.mkdir()
    (cgroup / "cgroup.controllers").write_text("cpu memory\n")
    (tmp_path / "proc" / "self").mkdir(parents=True)
    escaped = str(cgroup).replace(" ", r"\040")
    (tmp_path / "proc" / "self" / "mountinfo").write_text(f"25 1 0:22 / {escaped} rw - cgroup2 cgroup2 rw\n")
    assert detect(str(tmp_path / "proc")) == CgroupHost(root=str(cgroup), layout="unified", cpu_on="v2")
    (cgroup / "cgroup.controllers").unlink()
    assert detect(str(tmp_path / "proc")).root is None


def test_detect_without_proc_gives_a_reason(tmp_path):
    host = detect(str(tmp_path))
    assert host.root is None
    assert "mountinfo cannot be read" in (host.reason or "")


def test_this_machines_own_mounts_are_understood():
    host = detect()
    assert (host.root is not None) == (host.cpu_on == "v2")
    assert (host.reason is None) == host.is_writable


def test_cg_09_from_a_cgroup_namespace_of_its_own_pods_are_found_below_the_mount_and_no_path_has_dots(tmp_path):
    """The reader's own group is `/../..` away from what is mounted: its files are reached through the mount alone."""
    node = tmp_path / "host cgroup"
    pod = f"kubepods-burstable.slice/kubepods-burstable-pod{UID1_}.slice"
    grow(node, f"kubepods.slice/{pod}/cri-containerd-{C1}.scope")
    grow(node, "", {"cgroup.controllers": "cpu memory\n"})
    shown = str(node).replace(" ", "\\040")
    grow(
        tmp_path,
        "proc/self",
        {
            "mountinfo": "25 1 0:27 / /sys/fs/cgroup ro,nosuid - cgroup2 cgroup rw\n"
            f"26 1 0:27 /../../.. {shown} rw,nosuid - cgroup2 cgroup rw\n",
            "cgroup": f"0::/../../../kubepods.slice/{pod}/cri-containerd-{C1}.scope\n",
        },
    )
    found = detect(str(tmp_path / "proc"))
    assert (found.root, found.cpu_on, found.reason) == (str(node), "v2", None)
    tree = CgroupTree(str(node))
    root = find_pods_root(ROOT_GROUP, tree.children, tree.is_populated)
    assert root == "kubepods.slice"
    place = PodTree.below(str(node), root).scan()[UID1]
    assert (place.group, place.containers) == (pod, {C1: f"{pod}/cri-containerd-{C1}.scope"})
    assert (node / root / place.containers[C1]).is_dir()
    with pytest.raises(ValueError, match="is not a plain path"):
        tree.reading(f"../../../kubepods.slice/{pod}")
