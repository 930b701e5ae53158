"""The pods' groups where the node's kernel is this machine's: read, and written as somebody else would."""

import os
from dataclasses import dataclass
from pathlib import Path

from hostfs.mounts import detect
from hostfs.pods import parse_pod_group


@dataclass(frozen=True)
class PodGroups:
    """Groups by pod uid, below this machine's cgroup2."""

    root: Path
    found: dict[str, str]

    def path(self, uid: str) -> Path:
        return self.root / self.found[uid] / "cpu.weight"

    def weight(self, uid: str) -> str:
        return self.path(uid).read_text(encoding="ascii")

    def weights(self) -> dict[str, str]:
        return {uid: self.weight(uid) for uid in self.found}

    def below_pods_root(self, uid: str) -> str:
        """A Burstable pod's group as messages name it."""
        return "/".join(self.found[uid].split("/")[-2:])

    def pods_root(self, uid: str) -> str:
        """The node's own path of the group that holds the pods of every QoS class, given a Burstable pod. A node that is
        a container sees its part of the tree only, which begins with the kubelet's groups.
        """
        parts = self.found[uid].split("/")[:-2]
        first = next(index for index, part in enumerate(parts) if part.startswith("kube"))
        return "/sys/fs/cgroup/" + "/".join(parts[first:])


def find(uids: list[str]) -> PodGroups | None:
    """The groups of these pods; None where the cgroups of this machine are not the node's, or have no weights."""
    host = detect("/proc")
    if host.root is None:
        return None
    found = {}
    for folder, below, files in os.walk(host.root):
        group = os.path.relpath(folder, host.root)
        pod = parse_pod_group(group)
        if pod is not None and pod.container is None:
            below.clear()
            if pod.uid.lower() in uids and "cpu.weight" in files:
                found[pod.uid.lower()] = group
    return PodGroups(Path(host.root), found) if set(found) == set(uids) else None
