"""The collector's Kubernetes source at work, and waits for what it has seen: woken by the source, never by a clock."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Condition
from threading import enumerate as all_threads

from services.collector.core.workload import Workload
from services.collector.sources.kubernetes import KubeApi, Limits
from services.collector.sources.pod_watch import Pace, PodApi, PodWatch
from tests.kube.cluster import WAIT_SECONDS

PACE = Pace(relist=300.0, silence=70.0, max_age=90.0)
"""The collector's defaults."""


@dataclass(frozen=True)
class Anywhere:
    """A place for a pod."""

    group: str
    skip: str | None = None


class EveryPodHasAGroup(Mapping[str, Anywhere]):
    """The tree of a node on which every pod that anybody asks for has a group."""

    def scan(self) -> "EveryPodHasAGroup":
        return self

    def __getitem__(self, uid: str) -> Anywhere:
        return Anywhere(f"burstable/pod{uid}")

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


@dataclass
class Follower:
    """One source. `told` is all that it told its ear; only pods of `namespace` are shown."""

    namespace: str
    told: list[tuple[str, str]] = field(default_factory=list)
    source: PodWatch = field(init=False)
    _changed: Condition = field(default_factory=Condition)

    def hear(self, what: str, text: str) -> None:
        with self._changed:
            self.told.append((what, text))
            self._changed.notify_all()

    def pods(self) -> dict[str, Workload]:
        """What the collector would take now, by name without the namespace."""
        return {one.name.rpartition("/")[2]: one for one in self.source.workloads() if one.namespace == self.namespace}

    def count(self, what: str) -> int:
        return sum(kind == what for kind, _ in self.told)

    def until(self, claim: Callable[[dict[str, Workload]], bool]) -> dict[str, Workload]:
        """Looks whenever the source has told something; the pods of which the claim holds."""
        deadline = time.monotonic() + WAIT_SECONDS
        with self._changed:
            while not claim(pods := self.pods()):
                left = deadline - time.monotonic()
                assert left > 0, f"never came true: {pods}; told last: {self.told[-3:]}"
                self._changed.wait(left)
        return pods

    def cpu_seconds(self) -> float:
        """CPU time of the thread that follows the API."""
        (thread,) = [one for one in all_threads() if one is self.source._thread]
        assert thread.ident is not None
        return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))


@contextmanager
def following(
    namespace: str,
    node: str,
    kubeconfig: Path,
    through: Callable[[PodApi], PodApi] = lambda api: api,
    pace: Pace = PACE,
) -> Iterator[Follower]:
    """The source that the collector builds, with these credentials, started; its thread has ended afterwards."""
    follower = Follower(namespace)
    api = KubeApi(node, str(kubeconfig), Limits(silence=pace.silence), time.monotonic)
    follower.source = PodWatch(through(api), EveryPodHasAGroup(), pace, time.monotonic, follower.hear)
    follower.source.start()
    try:
        yield follower
    finally:
        follower.source.close()
        assert not follower.source._thread.is_alive()
