"""From what a node's mounts and trees are to what is written there: hybrid hosts, read-only mounts, idle groups and
parents without the controller, through the collector's eyes and the actuator's hands.
"""

import errno
import functools

import pytest

from runtime.errors import HostError
from runtime.host_roots import find_roots
from runtime.lifecycle import run_service
from runtime.settings import HostSettings
from schemas.messages import Actuation
from services.actuator.__main__ import DEFINITION as ACTUATOR
from services.collector.config import CollectorConfig
from services.collector.core.view import Raw
from services.collector.service import CollectorService
from services.collector.sources.kernel import Kernel
from tests.support.builders import BATCH, CRITICAL, heartbeat
from tests.support.harness import harness
from tests.unit.actuator.world import PODS_ROOT, actuator, at
from tests.unit.collector.world import view, workload
from tests.unit.hostfs.nodes import grow

HYBRID = """\
25 1 0:22 / /sys/fs/cgroup ro,nosuid,nodev,noexec - tmpfs tmpfs ro,mode=755
26 25 0:23 / /sys/fs/cgroup/unified rw,nosuid,nodev,noexec,relatime - cgroup2 cgroup2 rw
31 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid,nodev,noexec,relatime - cgroup cgroup rw,cpu,cpuacct
"""
UNIFIED = "25 1 0:22 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime - cgroup2 cgroup2 rw,nsdelegate\n"
READ_ONLY = "1402 1391 0:27 / /sys/fs/cgroup ro,nosuid,nodev,noexec,relatime - cgroup2 cgroup rw,nsdelegate\n"


class Host:
    """A proc whose mountinfo is as given, with `/sys/fs/cgroup` in it standing for a folder of ours."""

    def __init__(self, path, mountinfo):
        self.path, self.cgroup = path, path / "sys-fs-cgroup"
        self.proc = grow(path, "proc")
        grow(path, "proc/self", {"mountinfo": mountinfo.replace("/sys/fs/cgroup", str(self.cgroup))})

    def group(self, name, **files):
        texts = {"cgroup.controllers": "cpu memory\n", "cgroup.subtree_control": "cpu memory\n"}
        return grow(self.cgroup, name, texts | {file.replace("_", "."): text for file, text in files.items()})

    def roots(self, **settings):
        return find_roots(HostSettings(**settings), str(self.proc))

    def snapshot(self):
        return {
            path: path.read_bytes()
            for path in sorted(self.path.rglob("*"))
            if path.is_file() and path.name != "journal"
        }


def stand_on(host, monkeypatch):
    """Services that are started now find this host's mounts."""
    for service in ("actuator.service", "actuator.recover", "collector.service"):
        found = functools.partial(find_roots, own_proc=str(host.proc))
        monkeypatch.setattr(f"services.{service}.find_roots", found)


# ---- CG-06 ----


@pytest.fixture
def hybrid(tmp_path, monkeypatch):
    """Input a, with a kubelet's tree on the cgroup2 that has no cpu controller."""
    host = Host(tmp_path, HYBRID)
    host.group("unified", cgroup_controllers="memory pids\n")
    host.group("unified/kubepods/podx", cpu_weight="39\n")
    # What the hierarchy is called is told by the base directory, which is ours here.
    monkeypatch.setattr("hostfs.mounts.CGROUP_DIR", str(host.cgroup))
    return host


def test_cg_06_a_a_hybrid_host_is_refused_with_the_reason_and_the_way_out(hybrid):
    for settings in ({}, {"cgroup_root": f"{hybrid.cgroup}/unified"}, {"cgroup_root": str(hybrid.cgroup)}):
        with pytest.raises(HostError) as refused:
            hybrid.roots(**settings)
        assert str(refused.value).startswith("host.cgroup_root: hybrid: cpu controller is on v1. ")
        assert "systemd.unified_cgroup_hierarchy=1" in str(refused.value)
        assert refused.value.exit_code == 6


@pytest.mark.parametrize("flags", [[], ["--restore"]])
def test_cg_06_a_an_actuator_on_a_hybrid_host_ends_at_once_and_writes_nothing(hybrid, monkeypatch, capsys, flags):
    before = hybrid.snapshot()
    monkeypatch.setattr("runtime.lifecycle.set_up", lambda settings: None)  # the tests' own log stays as it is
    stand_on(hybrid, monkeypatch)
    code = run_service(ACTUATOR, ["--set", f"actuator.journal={hybrid.path / 'journal'}", *flags])
    assert code == 6
    assert "trimtab actuator: host.cgroup_root: hybrid: cpu controller is on v1" in capsys.readouterr().err
    assert hybrid.snapshot() == before


async def test_cg_06_a_a_collector_on_a_hybrid_host_does_not_start(hybrid, monkeypatch):
    before = hybrid.snapshot()
    stand_on(hybrid, monkeypatch)
    with pytest.raises(HostError, match="hybrid: cpu controller is on v1"):
        async with harness("collector", CollectorConfig, CollectorService, {"collector.workloads": "none.yaml"}):
            pass
    assert hybrid.snapshot() == before


def test_cg_06_b_a_unified_host_is_taken(tmp_path):
    host = Host(tmp_path, UNIFIED)
    host.group("")
    host.group("kubepods.slice")
    roots = host.roots()
    assert (roots.cgroup_root, roots.pods_root, roots.read_only) == (str(host.cgroup), "kubepods.slice", None)


# ---- WT-05 ----


def test_wt_05_a_read_only_mount_is_found_at_start_although_the_superblock_says_rw(tmp_path):
    host = Host(tmp_path, READ_ONLY)
    host.group("")
    host.group("kubepods")
    assert host.roots().read_only == f"{host.cgroup}/kubepods is mounted read-only"


def test_wt_05_a_pods_root_that_is_mounted_writable_below_a_read_only_tree_is_writable(tmp_path):
    rest = "1403 1402 0:27 /kubepods /sys/fs/cgroup/kubepods rw,nosuid - cgroup2 cgroup rw,nsdelegate\n"
    host = Host(tmp_path, READ_ONLY + rest)
    host.group("")
    host.group("kubepods")
    assert host.roots().read_only is None


def test_wt_05_a_pods_root_that_is_mounted_read_only_below_a_writable_tree_is_not(tmp_path):
    rest = "1403 1402 0:27 /kubepods /sys/fs/cgroup/kubepods ro,nosuid - cgroup2 cgroup rw\n"
    host = Host(tmp_path, UNIFIED + rest)
    host.group("")
    host.group("kubepods")
    assert host.roots().read_only == f"{host.cgroup}/kubepods is mounted read-only"


@pytest.mark.parametrize("option", ["rw", "ro"])
@pytest.mark.parametrize("pods_root", [None, "kubepods"])
def test_wt_05_only_the_pods_root_may_be_mounted_below_an_ordinary_folder(tmp_path, option, pods_root):
    host = Host(
        tmp_path, f"1 0 8:1 / / rw - ext4 a rw\n3 1 0:27 /kubepods /sys/fs/cgroup/kubepods {option} - cgroup2 c rw\n"
    )
    host.group("kubepods")
    roots = host.roots(cgroup_root=str(host.cgroup), pods_root=pods_root)
    assert (roots.cgroup_root, roots.pods_root) == (str(host.cgroup), "kubepods")
    assert (roots.read_only is None) == (option == "rw")


def test_wt_05_a_pods_root_without_the_cpu_controller_below_an_ordinary_folder_is_refused_by_name(tmp_path):
    host = Host(tmp_path, "1 0 8:1 / / rw - ext4 a rw\n3 1 0:27 /x /sys/fs/cgroup/kubepods rw - cgroup2 c rw\n")
    host.group("kubepods", cgroup_controllers="memory\n")
    with pytest.raises(HostError, match=r"kubepods/cgroup\.controllers does not list cpu"):
        host.roots(cgroup_root=str(host.cgroup))


def test_wt_05_an_ordinary_folder_that_is_named_like_a_pods_root_is_no_cgroup(tmp_path):
    host = Host(tmp_path, "1 0 8:1 / / rw - ext4 a rw\n")
    host.group("kubepods")
    with pytest.raises(HostError, match="is not on cgroup2"):
        host.roots(cgroup_root=str(host.cgroup), pods_root="kubepods")


async def test_wt_05_an_actuator_on_a_read_only_mount_only_observes_and_says_why(tree, journal, faults, monkeypatch):
    host = Host(tree.root.parent, READ_ONLY)
    host.cgroup = tree.root
    grow(host.path, "proc/self", {"mountinfo": READ_ONLY.replace("/sys/fs/cgroup", str(tree.root))})
    grow(tree.root, "", {"cgroup.controllers": "cpu\n"})
    grow(tree.root, PODS_ROOT, {"cgroup.controllers": "cpu\n"})
    stand_on(host, monkeypatch)
    async with actuator(tree, journal, {"host.simulated": False}) as h:
        for cycle in range(1, 15):
            await h.inject(heartbeat(), *at(h, cycle))
            await h.advance(5.0)
        assert h.context.health.ready() == (False, f"writable: {tree.root}/{PODS_ROOT} is mounted read-only")
        assert h.metric("trimtab_actuator_writable") == 0
        assert {(told.outcome, told.rule) for told in h.sent(Actuation)} == {("skipped", "read_only")}
    assert faults.attempts == []


# ---- the collector's eyes, the actuator's hands ----


def look(tree, members):
    """The pods of a state that a collector would publish of this tree."""
    kernel = Kernel(str(tree.root), PODS_ROOT, str(tree.proc))
    sweep = kernel.sweep(one.group for one, _ in members)
    raw = Raw(
        at=0.0,
        workloads=members,
        groups=sweep.groups,
        without_controller=sweep.without_controller,
        pages={},
        run_queue=None,
        proc_stat=None,
        node_pressure_usec=None,
        cpus=2,
    )
    return tuple(pod for pod in view().advance(raw, may_grow=False).pods if pod.uid)


def stat(tree, *groups):
    for group in groups:
        (tree.base / group / "cpu.stat").write_text("usage_usec 73000\nuser_usec 27000\nsystem_usec 46000\n")


async def test_wt_03_of_a_class_with_an_idle_pod_the_second_is_written_and_zero_is_never_an_original(
    tree, journal, faults
):
    tree.add("pod-idle", "0\n", idle="1\n")
    stat(tree, "pod-idle", "pod-api", "pod-job")
    (tree.base / "cgroup.subtree_control").write_text("cpu\n")
    members = [(workload("api", CRITICAL), CRITICAL), (workload("idle", BATCH), BATCH), (workload("job", BATCH), BATCH)]
    pods = look(tree, members)
    assert [(pod.name, pod.weight, pod.skip) for pod in pods] == [
        ("api", 100, None),
        ("idle", 0, "idle"),
        ("job", 100, None),
    ]
    async with actuator(tree, journal) as h:
        for cycle in range(1, 6):
            weights = {CRITICAL: 1000 + cycle, BATCH: 50 + cycle}
            await h.inject(heartbeat(), *at(h, cycle, pods=look(tree, members), weights=weights))
            await h.advance(5.0)
        assert set(faults.attempts) == {"pod-api", "pod-job"}
        assert tree.weight("pod-idle") == "0\n"
        assert h.service._weights.originals() == {"pod-api": 100, "pod-job": 100}
    assert {group: tree.weight(group) for group in ("pod-api", "pod-idle", "pod-job")} == {
        "pod-api": "100\n",
        "pod-idle": "0\n",
        "pod-job": "100\n",
    }


async def test_wt_03_a_pod_that_turns_idle_after_it_was_looked_at_is_tried_once_and_not_again(tree, journal, faults):
    stat(tree, "pod-api", "pod-job")
    (tree.base / "cgroup.subtree_control").write_text("cpu\n")
    members = [(workload("api", CRITICAL), CRITICAL), (workload("job", BATCH), BATCH)]
    seen = look(tree, members)
    (tree.base / "pod-job" / "cpu.idle").write_text("1\n")
    faults.errno_of["pod-job"] = errno.EINVAL
    async with actuator(tree, journal) as h:
        await h.inject(heartbeat(), *at(h, 1, pods=seen, weights={CRITICAL: 1000, BATCH: 50}))
        (told,) = h.sent(Actuation)
        assert {(w.name, w.result, w.reason) for w in told.writes} == {
            ("api", "applied", None),
            ("job", "skipped", "idle"),
        }
        tree.write("pod-job", "0\n")
        for cycle in range(2, 6):
            await h.advance(5.0)
            weights = {CRITICAL: 1000, BATCH: 50 + cycle}
            await h.inject(heartbeat(), *at(h, cycle, pods=look(tree, members), weights=weights))
        assert faults.attempts.count("pod-job") == 1


async def test_wt_07_below_a_parent_without_the_controller_nothing_is_written_and_usage_is_seen(tree, journal, faults):
    bare, steered = tree.base / "bare", tree.base / "steered"
    for folder, control in ((tree.base, "cpu\n"), (bare, "memory pids\n"), (steered, "cpu\n")):
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.subtree_control").write_text(control)
    groups = ["bare/pod-a", "steered/pod-b", "steered/pod-c"]
    for group in groups:
        tree.add(group)
    (bare / "pod-a" / "cpu.weight").unlink()
    stat(tree, *groups)
    classes = [CRITICAL, CRITICAL, BATCH]
    members = [(workload(group[-1], cls, group=group), cls) for group, cls in zip(groups, classes, strict=True)]
    kernel = Kernel(str(tree.root), PODS_ROOT, str(tree.proc))
    assert kernel.sweep(groups).groups["bare/pod-a"].stat.usage_usec == 73000
    pods = look(tree, members)
    assert {pod.name: pod.skip for pod in pods} == {"a": "no_cpu_controller", "b": None, "c": None}
    async with actuator(tree, journal) as h:
        await h.inject(heartbeat(), *at(h, 1, pods=pods, weights={CRITICAL: 1000, BATCH: 50}))
        assert set(faults.attempts) == {"steered/pod-b", "steered/pod-c"}
    assert (bare / "cgroup.subtree_control").read_text() == "memory pids\n"
    assert not (bare / "pod-a" / "cpu.weight").exists()
