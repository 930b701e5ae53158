"""What the kernel's own files do, which every fake in the other tests claims to imitate."""

import errno
import os

import pytest

from hostfs.cgroup import CgroupTree
from services.actuator.cgroup_writer import CgroupWriter

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
