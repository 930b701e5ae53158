"""The one writer: what it refuses before it opens anything, what the kernel's errors mean, what it never does."""

import errno
import os

import pytest

from services.actuator.cgroup_writer import CgroupWriter, Reading, WriteResult
from tests.unit.actuator.world import API, JOB, PODS_ROOT

UID = "3f0c7b52-6a3e-4d0b-9a57-0d3c6a1f2e11"
UID_ = UID.replace("-", "_")
CONTAINER = "c1" * 32


def everything(tree):
    return {path: path.read_bytes() for path in tree.root.rglob("*") if path.is_file()}


def test_a_reading_holds_the_inode_and_the_bytes(tree):
    tree.write(API, "39\n")
    assert tree.writer().read(API) == Reading(tree.inode(API), "39\n")


def test_a_write_is_read_back(tree):
    assert tree.writer().write(API, "200", tree.inode(API)) == WriteResult("200")
    assert tree.weight(API) == "200"


def test_a_shorter_text_leaves_nothing_of_a_longer_one(tree):
    tree.write(API, "10000\n")
    tree.writer().write(API, "7", tree.inode(API))
    assert tree.weight(API) == "7"


@pytest.mark.parametrize(
    "group",
    [
        "",
        ".",
        "..",
        "../outside",
        "burstable/../pod-api",
        "/pod-api",
        "pod-api/",
        "pod//api",
        "pod\0api",
        "burstable",
        "besteffort",
        "guaranteed",
        "kubepods",
        "kubepods.slice",
        "kubepods-burstable.slice",
        "kubepods-besteffort.slice",
        "kubelet-kubepods.slice",
        "kubelet-kubepods-burstable.slice",
        "kubelet.slice/kubelet-kubepods.slice",
        f"burstable/pod{UID}/{CONTAINER}",
        f"kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice/cri-containerd-{CONTAINER}.scope",
    ],
)
def test_what_is_no_pod_group_is_refused_and_nothing_changes(tree, group):
    for folder in ("burstable", "besteffort", "kubepods"):
        tree.add(folder)
    (tree.root / "outside").mkdir()
    (tree.root / "outside/cpu.weight").write_text("100\n")
    before = everything(tree)
    with pytest.raises(ValueError, match=r"."):
        tree.writer().write(group, "200", 1)
    with pytest.raises(ValueError, match=r"."):
        tree.writer().read(group)
    assert everything(tree) == before


@pytest.mark.parametrize(
    "group", [f"burstable/pod{UID}", f"kubepods-burstable.slice/kubepods-burstable-pod{UID_}.slice"]
)
def test_pod_groups_of_both_drivers_are_written(tree, group):
    tree.add(group)
    assert tree.writer().write(group, "200", tree.inode(group)).after == "200"


def test_a_link_to_a_folder_outside_is_not_followed(tree):
    outside = tree.root / "system.slice"
    outside.mkdir()
    (outside / "cpu.weight").write_text("100\n")
    (tree.base / "pod-link").symlink_to(outside)
    (outside / "pod-inner").mkdir()
    (outside / "pod-inner/cpu.weight").write_text("100\n")
    for group in ("pod-link", "pod-link/pod-inner"):
        with pytest.raises(ValueError, match="link"):
            tree.writer().write(group, "200", outside.stat().st_ino)
    assert (outside / "cpu.weight").read_text() == "100\n"
    assert (outside / "pod-inner/cpu.weight").read_text() == "100\n"


def test_a_link_in_place_of_the_weight_file_is_not_followed(tree):
    secret = tree.root / "secret"
    secret.write_text("100\n")
    (tree.base / API / "cpu.weight").unlink()
    (tree.base / API / "cpu.weight").symlink_to(secret)
    assert tree.writer().read(API) == "unreadable"
    result = tree.writer().write(API, "200", tree.inode(API))
    assert result.after is None
    assert result.error is not None
    assert result.error.startswith("refused: ")
    assert secret.read_text() == "100\n"


def test_a_link_as_pods_root_is_resolved_once(tree):
    (tree.root / "alias").symlink_to(tree.base)
    assert CgroupWriter(str(tree.root), "alias").write(API, "200", tree.inode(API)).after == "200"


def test_a_missing_file_is_never_created(tree):
    (tree.base / API / "cpu.weight").unlink()
    before = everything(tree)
    assert tree.writer().write(API, "200", tree.inode(API)) == WriteResult(None, "gone")
    assert everything(tree) == before


def test_a_missing_group_is_gone(tree):
    identity = tree.inode(API)
    tree.remove(API)
    assert tree.writer().read(API) == "gone"
    assert tree.writer().write(API, "200", identity) == WriteResult(None, "gone")


def test_a_group_made_again_between_reading_and_writing_is_not_written(tree):
    identity = tree.inode(API)
    tree.again(API, "55\n")
    assert tree.writer().write(API, "200", identity) == WriteResult(None, "gone")
    assert tree.weight(API) == "55\n"


def test_a_missing_pods_root_says_nothing_about_its_groups(tree):
    identity = tree.inode(API)
    tree.base.rename(tree.root / "elsewhere")
    assert tree.writer().read(API) == "unreadable"
    error = tree.writer().write(API, "200", identity).error
    assert error is not None
    assert error != "gone"
    assert PODS_ROOT not in os.listdir(tree.root)


def test_a_fifo_blocks_nobody(tree):
    (tree.base / API / "cpu.weight").unlink()
    os.mkfifo(tree.base / API / "cpu.weight")
    assert tree.writer().read(API) == "unreadable"
    error = tree.writer().write(API, "200", tree.inode(API)).error
    assert error is not None
    assert error.startswith("refused: ")


@pytest.mark.parametrize("text", ["", "\n", "max\n", "100 200\n", "-5\n", "10001\n", "1e3\n", "٣\n", "9" * 60])
def test_what_is_no_weight_is_unreadable_and_not_gone(tree, text):
    tree.write(API, text)
    assert tree.writer().read(API) == "unreadable"


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EACCES, errno.EIO, errno.ENOMEM])
def test_an_error_that_proves_no_absence_is_unreadable(tree, monkeypatch, number):
    real = os.open

    def failing(path, flags, *args, **kwargs):
        if path == "cpu.weight":
            raise OSError(number, os.strerror(number))
        return real(path, flags, *args, **kwargs)

    monkeypatch.setattr(os, "open", failing)
    assert tree.writer().read(API) == "unreadable"


@pytest.mark.parametrize(
    "text", ["0", "-3", "10001", "11443", "38144", "49.6", "NaN", "", "1 0", "²", "٣", "+5", "9" * 5000]
)
def test_wt_02_only_weights_are_ever_written(tree, text):
    with pytest.raises(ValueError, match="no weight"):
        tree.writer().write(API, text, tree.inode(API))
    assert tree.weight(API) == "100\n"


@pytest.mark.parametrize("text", ["1", "10000", "100\n"])
def test_wt_02_bounds_and_a_newline_are_weights(tree, text):
    assert tree.writer().write(API, text, tree.inode(API)).after == text


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (errno.EROFS, "read_only"),
        (errno.EACCES, "read_only"),
        (errno.EPERM, "read_only"),
        (errno.ENODEV, "gone"),
        (errno.ENOENT, "gone"),
        (errno.ERANGE, "refused: Numerical result out of range"),
        (errno.EINVAL, "refused: Invalid argument"),
    ],
)
def test_wt_05_each_errno_has_its_word(tree, faults, number, word):
    faults.errno_of[API] = number
    assert tree.writer().write(API, "200", tree.inode(API)) == WriteResult(None, word)


def test_wt_03_einval_of_an_idle_group_is_idle(tree, faults):
    (tree.base / API / "cpu.idle").write_text("1\n")
    faults.errno_of[API] = errno.EINVAL
    assert tree.writer().write(API, "50", tree.inode(API)) == WriteResult(None, "idle")


def test_a_group_that_vanishes_after_the_write_is_gone(tree, faults):
    def unlink():
        (tree.base / API / "cpu.weight").unlink()

    faults.then[API] = unlink
    assert tree.writer().write(API, "200", tree.inode(API)) == WriteResult(None, "gone")


def test_no_descriptor_is_left_open(tree, faults):
    faults.errno_of[JOB] = errno.EROFS
    (tree.base / "pod-link").symlink_to(tree.root)

    def open_descriptors():
        return len(os.listdir("/proc/self/fd"))

    before = open_descriptors()
    for _ in range(5):
        tree.writer().write(API, "200", tree.inode(API))
        tree.writer().write(JOB, "200", tree.inode(JOB))
        tree.writer().read("pod-none")
        with pytest.raises(ValueError, match="link"):
            tree.writer().read("pod-link")
    assert open_descriptors() == before
