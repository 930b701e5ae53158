"""Workloads from Kubernetes: a thread lists and watches, the loop takes the newest whole view and never waits.

What is handed over is one immutable tuple, swapped by the thread. The view is proven fresh by a list, an event, a
bookmark, or a watch from the newest version known that the server agrees to: it has nothing older to tell. A connection
that merely stands proves nothing, so a server is asked to end a quiet watch well before that counts as dead.
"""

import random
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

from services.collector.core.kube_pod import KubePod, Place, place
from services.collector.core.pod_bytes import ListPage, list_page, listed_pod, watch_event
from services.collector.core.pods_known import PodsKnown
from services.collector.core.workload import Workload
from services.collector.sources.kubernetes import ApiTrouble, PodApi

Ear: TypeAlias = Callable[[str, str], None]
"""Is told of a `list`, a `watch` that the server agreed to, an `event`, that the API is `back`, or of a trouble by its
one word; in the thread."""

STOP_SECONDS: Final = 1.0
"""How long `close` waits for the thread, which may be in a system call; it is a daemon and keeps nobody alive."""

_ANY: Final = "0"
"""The version of "whatever the server's cache has": the watch that follows tells the rest."""

_STEADY_SECONDS: Final = 1.0
"""A round that heard something and lasted this long did not fail at once: the next one needs no pause."""

WATCH_RATIO: Final = 0.7
"""The part of `Pace.silence` after which the server is asked to end a watch. 0.7: at 70 s, 49; the end, and a look
whether the server still answers, come before the connection counts as dead."""

MAX_PAGES: Final = 256
"""Most answers that one list is made of."""

_SHOWN: Final = 3


class Places(Protocol):
    """The pods' groups on this node."""

    def scan(self) -> Mapping[str, Place]:
        """All of them by uid, now. Never raises."""
        ...


@dataclass(frozen=True)
class Pace:
    """Times in seconds: `silence` is the longest that a watch may say nothing. `first_pause` doubles with each failure
    in a row up to `longest_pause`; a pause is drawn between nothing and that, so that a thousand nodes do not come back
    as one.
    """

    relist: float
    silence: float
    max_age: float
    first_pause: float = 1.0
    longest_pause: float = 30.0


class PodWatch:
    """The pods of one node, with the labels of these keys (None: all)."""

    def __init__(  # noqa: PLR0917 - what it follows, where, how fast, and whom it tells
        self,
        api: PodApi,
        tree: Places,
        pace: Pace,
        monotonic: Callable[[], float],
        ear: Ear,
        label_keys: Collection[str] | None = None,
    ) -> None:
        self._api = api
        self._tree = tree
        self._pace = pace
        self._monotonic = monotonic
        self._ear = ear
        self._known = PodsKnown(api.node, label_keys)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="pods", daemon=True)
        self._random = random.Random()  # noqa: S311 - spreads load, guards nothing
        self._started = monotonic()
        self._next_list = self._started
        self._list_from: str | None = _ANY
        self._silences = 0
        # Written by the thread and read by the loop, one at a time and whole.
        self._pods: tuple[KubePod, ...] | None = None
        self._note: str | None = None
        self._proven: float | None = None
        self._failure: ApiTrouble | None = None
        self._missing: tuple[str, ...] = ()

    def start(self) -> None:
        """Begins to follow the API."""
        self._thread.start()

    def close(self) -> None:
        """Ends the request in progress, and the thread with it."""
        self._stop.set()
        self._api.interrupt()
        if self._thread.is_alive():
            self._thread.join(STOP_SECONDS)

    def uids(self) -> frozenset[str]:
        """What this node's groups of the newest view's pods are named by."""
        return frozenset(pod.static_uid or pod.uid.lower() for pod in self._pods or ())

    def look_in(self, tree: Places) -> None:
        """From now on the pods' groups are looked for there."""
        self._tree = tree

    def workloads(self) -> tuple[Workload, ...]:
        """The pods of the newest view that have a group now. Scans the pods' tree; waits for nobody."""
        pods = self._pods
        if not pods:
            return ()
        placed = place(pods, self._tree.scan())
        self._missing = placed.missing
        return placed.workloads

    def age_seconds(self) -> float:
        """How long ago the API last proved the view; since the start if it never did."""
        return self._monotonic() - (self._started if self._proven is None else self._proven)

    def stale(self) -> str | None:
        """Why nothing may be written on this view, or None."""
        if self._proven is None:
            return f"pods: the API has not listed any yet, {self.age_seconds():.0f} s after the start"
        age = self.age_seconds()
        if age <= self._pace.max_age:
            return None
        return f"pods: the view is {age:.0f} s old, more than max_view_age_seconds {self._pace.max_age:g}: no writes"

    def trouble(self) -> str | None:
        """Why the view may not be the newest, or is not whole, or None. Its age is in `stale`."""
        failure, missing = self._failure, self._missing
        parts = [None if failure is None else str(failure), self._note]
        if self._proven is not None and not self._pods:
            parts.append("the API lists none on this node; check the setting node")
        if missing:
            names = ", ".join(missing[:_SHOWN])
            parts.append(f"{len(missing)} without a group below the pods root: {names}")
        said = "; ".join(filter(None, parts))
        return f"pods: {said}" if said else None

    def _follow(self) -> None:
        failures = 0
        while not self._stop.is_set():
            began = self._monotonic()
            trouble = self._round(began)
            if self._stop.is_set():
                break
            now = self._monotonic()
            was_heard = self._proven is not None and self._proven >= began
            is_steady = now - began >= _STEADY_SECONDS and (trouble is None or was_heard)
            failures = 0 if is_steady else failures + 1
            if trouble is not None:
                if trouble.relist and not self._is_first_silence(trouble):
                    self._next_list = now
                self._failure = trouble
                self._ear(trouble.reason, str(trouble))
            self._stop.wait(self._pause(failures, trouble))
        self._api.close()

    def _is_first_silence(self, trouble: ApiTrouble) -> bool:
        """Whether a connection died, once: a watch from where it ended tells what was missed, or that it cannot."""
        if trouble.reason != "silent":
            return False
        self._silences += 1
        return self._silences == 1

    def _round(self, now: float) -> ApiTrouble | None:
        """Lists if it is time, and watches until that ends; what went wrong."""
        try:
            if self._proven is None or now >= self._next_list or now - self._proven > self._pace.max_age:
                self._list()
            self._watch()
        except ApiTrouble as trouble:
            return trouble
        except Exception as error:  # noqa: BLE001 - whatever it is, the thread lives on and says so
            return ApiTrouble("failed", f"{type(error).__name__}: {error}"[:300], relist=True)
        return None

    def _list(self) -> None:
        asked = self._monotonic()
        try:
            first = _page(self._api.list_pods(self._list_from))
            self._known.replace({"metadata": first.metadata, "items": self._listed(first, asked)})
        except ApiTrouble as trouble:
            if trouble.reason in ("expired", "garbled"):
                self._list_from = None
            raise
        except ValueError as error:
            self._list_from = None
            raise _unreadable(error) from error
        self._list_from = self._known.version
        self._next_list = asked + self._pace.relist * self._random.uniform(0.9, 1.0)
        self._silences = 0
        self._show()
        self._prove(asked)
        self._ear("list", "")

    def _listed(self, page: ListPage, asked: float) -> Iterator[object]:
        """All pods of a list, one by one, and the rest where the server gave a part of them. All parts are of the first
        one's version. A rest that has expired meanwhile ends the list, as the API has it, and it is asked for anew.
        """
        for _ in range(MAX_PAGES):
            yield from map(listed_pod, page.items)
            if page.rest is None:
                return
            if self._monotonic() - asked > self._pace.max_age:
                text = f"the list of pods came in parts and took longer than {self._pace.max_age:g} s"
                raise ApiTrouble("timeout", text, relist=True)
            page = _page(self._api.list_pods(None, page.rest))
        raise ApiTrouble("garbled", f"the list of pods came in more than {MAX_PAGES} parts", relist=True)

    def _watch(self) -> None:
        version = self._known.version
        if version is None:
            raise ApiTrouble("garbled", "there is no version to watch from", relist=True)
        asked = heard = self._monotonic()
        lasts = min(self._next_list - asked, self._pace.silence * WATCH_RATIO)
        with closing(self._api.watch_pods(version, lasts)) as lines:
            for number, line in enumerate(lines):
                if number == 0:  # the server has agreed: from here on it tells whatever is newer
                    self._prove(asked)
                    self._ear("watch", "")
                if self._take(line) or number == 0:
                    heard = self._monotonic()
                elif self._monotonic() - heard > self._pace.silence:  # lines that say nothing
                    raise ApiTrouble("silent", f"no event for {self._pace.silence:g} s", relist=True)
                if self._stop.is_set() or self._monotonic() >= self._next_list:
                    break
        self._silences = 0

    def _take(self, line: bytes) -> bool:
        """Takes one line; whether it said anything."""
        if not line.strip():
            return False
        try:
            event = watch_event(line)
        except (ValueError, RecursionError) as error:
            raise ApiTrouble("garbled", f"a watch event cannot be read: {error}"[:300], relist=True) from error
        outcome = self._known.apply(event)
        if outcome == "relist":
            raise _told(event)
        if outcome == "nothing":
            return False
        if outcome == "changed":
            self._show()
        self._list_from = self._known.version
        self._silences = 0
        self._prove(self._monotonic())
        self._ear("event", "")
        return True

    def _show(self) -> None:
        self._note = self._known.note
        self._pods = self._known.pods

    def _prove(self, at: float) -> None:
        self._proven = at
        if self._failure is not None:
            self._failure = None
            self._ear("back", "")

    def _pause(self, failures: int, trouble: ApiTrouble | None) -> float:
        if failures == 0:
            return 0.0
        longest = min(self._pace.longest_pause, self._pace.first_pause * 2.0 ** min(failures - 1, 16))
        asked = 0.0 if trouble is None else min(trouble.retry_after, self._pace.longest_pause)
        return max(asked, self._random.uniform(0.0, longest))


def _page(body: bytes | bytearray) -> ListPage:
    try:
        return list_page(body)
    except (ValueError, RecursionError) as error:
        raise _unreadable(error) from error


def _unreadable(error: Exception) -> ApiTrouble:
    return ApiTrouble("garbled", f"the list of pods cannot be read: {error}"[:300], relist=True)


def _told(event: object) -> ApiTrouble:
    """What an ERROR event says: a Status object, or something that is no event at all."""
    status = event.get("object") if isinstance(event, Mapping) else None
    found = status if isinstance(status, Mapping) else {}
    is_expired = found.get("code") == 410 or found.get("reason") in ("Expired", "Gone")  # noqa: PLR2004 - HTTP's Gone
    text = f"the API ended the watch: {found.get('code')} {found.get('reason')}: {found.get('message')}"
    return ApiTrouble("expired" if is_expired else "failed", text[:300], relist=True)
