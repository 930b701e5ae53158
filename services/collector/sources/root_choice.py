"""Which pods root is this node's, where several kubelets' pods run: the one that has the pods of the API."""

from collections.abc import Collection

from hostfs.cgroup import ROOT_GROUP, CgroupTree
from hostfs.pod_tree import PodTree
from hostfs.pods import pods_roots


def rival_roots(cgroup_root: str) -> tuple[str, ...]:
    """The groups that hold running pods, the one first that everybody takes who knows no better; none where there is
    no choice.
    """
    tree = CgroupTree(cgroup_root)
    found = pods_roots(ROOT_GROUP, tree.children, tree.is_populated)
    return found if len(found) > 1 else ()


def root_of(uids: Collection[str], cgroup_root: str, roots: Collection[str]) -> str | None:
    """The root below which most of these pods are, of equals the first; None where none has any."""
    counted = {root: len(PodTree.below(cgroup_root, root).scan().keys() & set(uids)) for root in roots}
    best = max(roots, key=lambda root: counted[root], default=None)
    return best if best is not None and counted[best] else None


def said(roots: Collection[str], taken: str) -> str:
    """What there is to choose from, and the way out."""
    return (
        f"pods root: several hold running pods ({', '.join(roots)}); {taken} is looked at; set host.pods_root to the "
        f"right one, for the actuator too"
    )
