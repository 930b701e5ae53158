"""Containers outside the pods root: where they are looked for, how deep, and how often."""

import pytest

from hostfs.cgroup import CgroupTree
from hostfs.outside import AGAIN_AFTER, MAX_FOLDERS, OutsideGroups
from tests.unit.hostfs.nodes import C1, C2, N1, UID1, UID1_, UID2, UID2_, grow

NAME = f"kubepods-burstable-pod{UID1_}.slice:cri-containerd:{C1}"


class Counted(CgroupTree):
    """Counts the groups that are listed."""

    listed = 0

    def children(self, group):
        self.listed += 1
        return super().children(group)


def finder(tmp_path):
    tree = Counted(str(tmp_path))
    return tree, OutsideGroups(tree, "kubepods.slice")


@pytest.mark.parametrize(
    "parent",
    ["", "system.slice/containerd.service", f"system.slice/docker-{N1}.scope/system.slice/containerd.service"],
)
def test_cg_08_a_colon_folder_is_found_below_the_runtimes_group(tmp_path, parent):
    group = f"{parent}/{NAME}".lstrip("/")
    grow(tmp_path, group)
    assert finder(tmp_path)[1].find({UID1}) == {UID1: {C1: group}}


def test_it_is_not_looked_for_deeper_nor_below_the_pods_root(tmp_path):
    grow(tmp_path, f"a/b/c/d/e/{NAME}")
    grow(tmp_path, f"kubepods.slice/kubepods-burstable.slice/{NAME}")
    assert finder(tmp_path)[1].find({UID1}) == {}


def test_only_the_pods_asked_for_are_told_of(tmp_path):
    grow(tmp_path, f"a/{NAME}")
    grow(tmp_path, f"a/kubepods-pod{UID2_}.slice:cri-containerd:{C2}")
    grow(tmp_path, f"a/kubepods-pod{UID2_}.slice")
    grow(tmp_path, "a/x:y:z")
    _, outside = finder(tmp_path)
    assert outside.find({UID2}) == {UID2: {C2: f"a/kubepods-pod{UID2_}.slice:cri-containerd:{C2}"}}
    assert set(outside.find({UID1, UID2})) == {UID1, UID2}


def test_nobody_asked_for_costs_nothing(tmp_path):
    tree, outside = finder(tmp_path)
    assert outside.find(()) == {}
    assert tree.listed == 0


def test_where_one_was_found_is_looked_at_first(tmp_path):
    for number in range(20):
        grow(tmp_path, f"system.slice/s{number}.service")
    grow(tmp_path, f"system.slice/containerd.service/{NAME}")
    tree, outside = finder(tmp_path)
    outside.find({UID1})
    tree.listed = 0
    assert set(outside.find({UID1})) == {UID1}
    assert tree.listed == 1


def test_a_search_in_vain_is_repeated_only_now_and_then(tmp_path):
    grow(tmp_path, "system.slice/a.service")
    tree, outside = finder(tmp_path)
    outside.find({UID1})
    once, tree.listed = tree.listed, 0
    for _ in range(AGAIN_AFTER - 1):
        outside.find({UID1})
    assert tree.listed == 0
    outside.find({UID1})
    assert tree.listed == once == 3


def test_a_new_pod_is_searched_for_at_once(tmp_path):
    _, outside = finder(tmp_path)
    outside.find({UID1})
    grow(tmp_path, f"a/kubepods-pod{UID2_}.slice:cri-containerd:{C2}")
    assert set(outside.find({UID1, UID2})) == {UID2}


def test_a_container_that_is_gone_is_not_told_of(tmp_path):
    folder = grow(tmp_path, f"a/{NAME}")
    _, outside = finder(tmp_path)
    outside.find({UID1})
    folder.rmdir()
    assert outside.find({UID1}) == {}


def test_the_search_is_bounded(tmp_path):
    for number in range(40):
        for inner in range(60):
            (tmp_path / f"s{number}" / f"t{inner}").mkdir(parents=True)
    tree, outside = finder(tmp_path)
    outside.find({UID1})
    assert tree.listed == MAX_FOLDERS
