"""Where a process is, as its `/proc/<pid>/cgroup` tells a reader in another cgroup namespace."""

import pytest

from hostfs.membership import absolute_group, parse_membership
from tests.unit.hostfs.nodes import C1, C2, UID1_, UID2_

OWN = f"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UID2_}.slice/cri-containerd-{C2}.scope"
LINE = f"0::/../../../kubepods-burstable.slice/kubepods-burstable-pod{UID1_}.slice/cri-containerd-{C1}.scope\n"


def test_cg_09_a_path_with_leading_dots_is_made_absolute_from_the_readers_own_group():
    seen = parse_membership(LINE)
    assert seen is not None
    assert absolute_group(seen, OWN) == (
        f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UID1_}.slice/cri-containerd-{C1}.scope"
    )


def test_cg_09_without_the_own_group_it_is_an_error_and_never_a_path_with_dots():
    with pytest.raises(ValueError, match="not known"):
        absolute_group(parse_membership(LINE) or "", None)


@pytest.mark.parametrize(
    ("seen", "own", "absolute"),
    [
        ("/", "/a/b", "/a/b"),
        ("/c", "/a/b", "/a/b/c"),
        ("/..", "/a/b", "/a"),
        ("/../..", "/a/b", "/"),
        ("/../c", "/a", "/c"),
        ("/a/b", "/", "/a/b"),
        ("/", "/", "/"),
    ],
)
def test_cg_09_the_own_group_is_where_the_path_begins(seen, own, absolute):
    assert absolute_group(seen, own) == absolute


@pytest.mark.parametrize(
    ("seen", "own"),
    [("/../../../x", "/a/b"), ("/..", "/"), ("/x/../y", "/a"), ("/../x", "/../a"), ("x", "/a"), ("/x", "a"), ("", "/")],
)
def test_cg_09_what_cannot_be_right_is_refused(seen, own):
    with pytest.raises(ValueError):
        absolute_group(seen, own)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("0::/a/b\n", "/a/b"),
        ("12:cpu,cpuacct:/v1\n0::/a\n1:name=systemd:/x\n", "/a"),
        ("0::/a (deleted)\n", "/a"),
        ("12:cpu:/v1\n", None),
        ("0::\n", None),
        ("", None),
    ],
)
def test_the_v2_line_is_the_one_that_counts(text, seen):
    assert parse_membership(text) == seen
