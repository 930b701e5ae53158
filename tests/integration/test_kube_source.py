"""Pods through the real client from a real HTTP server, which misbehaves in every way that was ever reported."""

import json
import os
import ssl
import threading
import time
from contextlib import contextmanager

import pytest

from runtime.errors import ConfigError
from services.collector.core.workload import Workload
from services.collector.sources.kubernetes import ApiTrouble, KubeApi, Limits
from services.collector.sources.pod_watch import Pace, PodWatch
from tests.support import kube_objects
from tests.support.kube_api import CUT, PATIENCE_SECONDS, STAY, Gate, KubeApiServer, Raw, Refuse
from tests.support.kube_objects import CLASS_LABEL, bookmark, event, expired, line, pod_list

NODE = "worker-3.example"
TLS_FILES = f"{os.path.dirname(__file__)}/../fixtures/tls"


def pod_object(*args, **parts):
    """A pod of our node."""
    return kube_objects.pod_object(*args, **parts, spec={"nodeName": NODE})


class Everywhere:
    """Every pod has a group, named like its uid."""

    class _Places(dict):
        def get(self, uid, default=None):
            return Found(uid)

    def scan(self):
        return self._Places()


class Found:
    """One place."""

    skip = None

    def __init__(self, group):
        self.group = group


class Following:
    """A watch under test and what it told."""

    def __init__(self, watch: PodWatch) -> None:
        self.watch = watch
        self.told: list[tuple[str, str]] = []
        self.changed = threading.Condition()

    def ear(self, what: str, text: str) -> None:
        with self.changed:
            self.told.append((what, text))
            self.changed.notify_all()

    def until(self, is_so) -> None:
        """Waits until that is so after something was told."""
        with self.changed:
            assert self.changed.wait_for(is_so, PATIENCE_SECONDS), (self.told, self.uids())

    def uids(self) -> set[str]:
        return {one.uid for one in self.workloads()}

    def workloads(self) -> tuple[Workload, ...]:
        return self.watch.workloads()

    def reasons(self) -> list[str]:
        return [what for what, _ in self.told if what not in ("list", "watch", "event", "back")]

    def texts(self) -> str:
        return " ".join(text for _, text in self.told)


def agreed(made, times):
    """Waits until the server has agreed to so many watches."""
    made.until(lambda: made.told.count(("watch", "")) == times)


@pytest.fixture
def server():
    made = KubeApiServer()
    yield made
    made.close()


@contextmanager
def following(
    server, tmp_path, *, limits=None, monotonic=time.monotonic, ca=None, config=None, in_cluster=False, **pace
):
    limits = limits or Limits(silence=PATIENCE_SECONDS)
    times = {
        "relist": 3600.0,
        "silence": limits.silence,
        "max_age": 3600.0,
        "first_pause": 0.001,
        "longest_pause": 0.01,
    }
    path = None if in_cluster else config or server.kubeconfig(tmp_path, ca=ca)
    made = Following(None)
    api = KubeApi(NODE, path, limits, monotonic)
    made.watch = PodWatch(api, Everywhere(), Pace(**(times | pace)), monotonic, made.ear)
    made.watch.start()
    try:
        yield made
    finally:
        made.watch.close()
        if config is not None:
            made.watch._thread.join(limits.login)  # a login program that hangs is not cut short
        assert not made.watch._thread.is_alive(), "the thread outlived its end by more than a second"


def test_pods_of_this_node_are_listed_and_followed(server, tmp_path):
    server.lists.append(pod_list(500, pod_object("a", "ua", 120, "batch")))
    steps = [
        event("ADDED", pod_object("c", "uc", 501)),
        event("MODIFIED", pod_object("a", "ua", 502, "default")),
        event("DELETED", pod_object("c", "uc", 503)),
        event("ADDED", pod_object("d", "ud", 504)),
        STAY,
    ]
    server.watches.append(steps)
    with following(server, tmp_path) as made:
        made.until(lambda: made.uids() == {"ua", "ud"})
        assert {one.uid: one.labels.get(CLASS_LABEL) for one in made.workloads()} == {"ua": "default", "ud": None}
        assert made.watch.stale() is None
        assert made.watch.trouble() is None
    (listed,), (watched,) = server.of("list"), server.of("watch")
    assert listed == {"path": "/api/v1/pods", "fieldSelector": f"spec.nodeName={NODE}", "resourceVersion": "0"}
    assert watched.pop("timeoutSeconds") == "21", "seven tenths of the silence that counts as death"
    assert watched == {
        "path": "/api/v1/pods",
        "fieldSelector": f"spec.nodeName={NODE}",
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "500",
    }
    assert server.logins == ["Bearer t0ken"] * 2


def test_kw_01_after_an_expired_watch_pods_are_listed_anew(server, tmp_path):
    server.lists += [
        pod_list(500, pod_object("A", "ua", 1), pod_object("B", "ub", 2)),
        pod_list(905, pod_object("B", "ub", 2), pod_object("C", "uc", 901)),
    ]
    server.watches += [[expired()], [STAY]]
    with following(server, tmp_path) as made:
        server.until(lambda: len(server.of("watch")) == 2)
        assert made.uids() == {"ub", "uc"}
        assert made.reasons() == ["expired"]
        assert made.watch.trouble() is None
    assert [query["resourceVersion"] for query in server.of("watch")] == ["500", "905"]
    assert [query.get("resourceVersion") for query in server.of("list")] == ["0", "500"]


def test_a_relist_asks_for_nothing_older_than_what_was_heard(server, tmp_path):
    server.lists += [pod_list(500), pod_list(905)]
    server.watches += [[event("ADDED", pod_object("C", "uc", 600)), bookmark(700), expired()], [STAY]]
    with following(server, tmp_path):
        server.until(lambda: len(server.of("watch")) == 2)
    assert [query.get("resourceVersion") for query in server.of("list")] == ["0", "700"]


def test_after_an_outage_that_makes_the_view_stale_pods_are_listed_anew(server, tmp_path):
    at, opened = [0.0], Gate()
    server.lists += [pod_list(10, pod_object("A", "ua", 5)), pod_list(20, pod_object("B", "ub", 15))]
    server.watches += [[opened, CUT], [STAY]]
    limits = Limits(silence=70.0)
    with following(server, tmp_path, limits=limits, monotonic=lambda: at[0], max_age=90.0) as made:
        server.until(lambda: len(server.of("watch")) == 1)
        at[0] = 91.0  # no event has come since, so none need come to prove the view
        opened.open()
        made.until(lambda: made.uids() == {"ub"})
        assert made.watch.age_seconds() == 0.0


@pytest.mark.parametrize("status", [410, 504, 400])
def test_kw_01_a_version_that_the_server_does_not_have_leads_to_a_list_of_the_newest(server, tmp_path, status):
    server.lists += [
        pod_list(500, pod_object("A", "ua", 1)),
        Refuse(status, "Expired"),
        pod_list(905, pod_object("C", "uc", 901)),
    ]
    server.watches += [Refuse(410, "Gone"), [STAY]]
    with following(server, tmp_path) as made:
        server.until(lambda: len(server.of("watch")) == 2)
        assert made.uids() == {"uc"}
        assert made.reasons() == ["expired", "expired"]
    assert [query.get("resourceVersion") for query in server.of("list")] == ["0", "500", None]


def test_kw_01_a_list_without_a_version_is_asked_for_again(server, tmp_path):
    server.lists += [{"kind": "PodList", "metadata": {}, "items": []}, pod_list(7, pod_object("A", "ua", 1))]
    with following(server, tmp_path) as made:
        server.until(lambda: len(server.of("watch")) == 1)
        assert made.uids() == {"ua"}
        assert made.reasons() == ["garbled"]
    assert server.of("watch")[0]["resourceVersion"] == "7"


def test_kw_02_a_broken_connection_resumes_from_the_newest_version(server, tmp_path):
    server.lists.append(
        pod_list(130, pod_object("A", "ua", 120, "latency-critical"), pod_object("B", "ub", 80))
    )  # B is listed last
    replayed = [
        event("MODIFIED", pod_object("A", "ua", 95, "batch")),
        event("MODIFIED", pod_object("A", "ua", 120, "latency-critical")),
        event("DELETED", pod_object("Z", "uz", 110)),
        event("ADDED", pod_object("C", "uc", 131, "batch")),
        STAY,
    ]
    server.watches += [[CUT], replayed]
    with following(server, tmp_path) as made:
        made.until(lambda: "uc" in made.uids())
        assert {one.uid: one.labels.get(CLASS_LABEL) for one in made.workloads()} == {
            "ua": "latency-critical",
            "ub": None,
            "uc": "batch",
        }
    assert [query["resourceVersion"] for query in server.of("watch")] == ["130", "130"]
    assert len(server.of("list")) == 1


def test_a_watch_that_the_server_ends_is_resumed_and_not_listed(server, tmp_path):
    server.lists.append(pod_list(10))
    server.watches += [[event("ADDED", pod_object("a", "ua", 11))], [bookmark(20)], [STAY]]
    with following(server, tmp_path) as made:
        server.until(lambda: len(server.of("watch")) == 3)
        assert made.uids() == {"ua"}
        assert made.reasons() == []
    assert [query["resourceVersion"] for query in server.of("watch")] == ["10", "11", "20"]
    assert len(server.of("list")) == 1


def test_kw_03_a_silent_connection_ends_and_pods_are_listed_anew(server, tmp_path):
    server.lists += [pod_list(10, pod_object("A", "ua", 5)), pod_list(40, pod_object("N", "un", 30))]
    server.watches += [[event("MODIFIED", pod_object("A", "ua", 11, "batch")), STAY]]
    with following(server, tmp_path, limits=Limits(silence=0.3)) as made:
        made.until(lambda: "un" in made.uids())
        assert made.reasons()[:2] == ["silent", "silent"]
        watched = [query["resourceVersion"] for query in server.of("watch")]
        assert watched[:2] == ["10", "11"], "once, it is only watched again from where the first one ended"


def test_kw_03_bytes_that_drip_without_an_event_are_silence(server, tmp_path):
    server.lists += [pod_list(10), pod_list(40, pod_object("N", "un", 30))]
    opened = [Gate(), Gate()]
    server.watches += [[b'{"type":"ADDED",', gate, b'"object":', Gate()] for gate in opened]
    at = [0.0]
    with following(server, tmp_path, limits=Limits(silence=70.0), monotonic=lambda: at[0]) as made:
        for number, gate in enumerate(opened):
            agreed(made, number + 1)
            at[0] += 71.0
            gate.open()
        made.until(lambda: "un" in made.uids())
        assert made.reasons() == ["silent", "silent"]


@pytest.mark.parametrize("nothing", [b"\n", b"\r\n", b"null\n", b'{"type":"SOMETHING_NEW"}\n', b"  \n"])
def test_lines_that_say_nothing_prove_nothing_and_end_as_silence(server, tmp_path, nothing):
    server.lists += [pod_list(10), pod_list(40, pod_object("N", "un", 30))]
    opened = [Gate(), Gate()]
    server.watches += [[gate, nothing, STAY] for gate in opened]
    at = [0.0]
    with following(server, tmp_path, limits=Limits(silence=70.0), monotonic=lambda: at[0]) as made:
        for number, gate in enumerate(opened):
            agreed(made, number + 1)
            at[0] += 71.0
            gate.open()
        made.until(lambda: "un" in made.uids())
        assert made.reasons() == ["silent", "silent"]
        assert ("event", "") not in made.told


def test_a_quiet_watch_is_renewed_from_where_it_ended_and_each_renewal_proves_the_view(server, tmp_path):
    server.lists.append(pod_list(10, pod_object("A", "ua", 5)))
    ended = [Gate(), Gate(), Gate()]
    server.watches += [[gate] for gate in ended]  # an orderly end without a word, as an API server 1.20 makes it
    at = [0.0]
    limits = Limits(silence=70.0)
    with following(server, tmp_path, limits=limits, monotonic=lambda: at[0], max_age=90.0) as made:
        for number, gate in enumerate(ended):
            agreed(made, number + 1)
            at[0] += 49.0
            gate.open()
        agreed(made, 4)
        assert (made.watch.age_seconds(), made.watch.stale(), made.reasons()) == (0.0, None, [])
    assert [query["resourceVersion"] for query in server.of("watch")] == ["10"] * 4
    assert {query["timeoutSeconds"] for query in server.of("watch")} == {"49"}
    assert len(server.of("list")) == 1


def test_a_quiet_watch_is_asked_for_no_longer_than_until_the_next_list(server, tmp_path):
    server.lists += [pod_list(10), pod_list(20)]
    ended = Gate()
    server.watches += [[ended], [STAY]]
    at = [0.0]
    with following(server, tmp_path, limits=Limits(silence=70.0), monotonic=lambda: at[0], relist=10.0) as made:
        server.until(lambda: len(server.of("watch")) == 1)
        at[0] = 10.0
        ended.open()
        made.until(lambda: made.told.count(("list", "")) == 2)
    assert int(server.of("watch")[0]["timeoutSeconds"]) in (9, 10)


def test_a_watch_that_is_refused_proves_nothing(server, tmp_path):
    server.lists.append(pod_list(10, pod_object("A", "ua", 5)))
    ended = Gate()
    server.watches += [[ended], Refuse(403), Refuse(403), [STAY]]
    at = [0.0]
    with following(server, tmp_path, limits=Limits(silence=70.0), monotonic=lambda: at[0]) as made:
        agreed(made, 1)
        at[0] = 49.0
        ended.open()
        made.until(lambda: len(made.reasons()) == 2)
        agreed(made, 2)
        assert made.watch.age_seconds() == 0.0
        made.until(lambda: ("back", "") in made.told)
    assert len(server.of("list")) == 1


def test_a_renewed_watch_whose_version_is_gone_leads_to_a_list(server, tmp_path):
    server.lists += [pod_list(10, pod_object("A", "ua", 5)), pod_list(90, pod_object("B", "ub", 80))]
    server.watches += [[], Refuse(410, "Gone"), [STAY]]
    with following(server, tmp_path) as made:
        made.until(lambda: made.uids() == {"ub"})
        assert made.reasons() == ["expired"]
    assert [query["resourceVersion"] for query in server.of("watch")][:2] == ["10", "10"]


def in_parts(listed, rest):
    listed["metadata"] |= {"continue": rest, "remainingItemCount": 1}
    return listed


def test_a_list_in_parts_is_followed_to_its_end(server, tmp_path):
    server.lists += [
        in_parts(pod_list(50, pod_object("A", "ua", 5)), "t0ken/=1"),
        in_parts(pod_list(50, pod_object("B", "ub", 6)), "t0ken/=2"),
        pod_list(50, pod_object("C", "uc", 7)),
    ]
    with following(server, tmp_path) as made:
        server.until(lambda: len(server.of("watch")) == 1)
        assert made.uids() == {"ua", "ub", "uc"}
        assert made.told.count(("list", "")) == 1
    node = {"path": "/api/v1/pods", "fieldSelector": f"spec.nodeName={NODE}"}
    assert server.of("list") == [
        node | {"resourceVersion": "0"},
        node | {"continue": "t0ken/=1"},
        node | {"continue": "t0ken/=2"},
    ]
    assert server.of("watch")[0]["resourceVersion"] == "50"


def test_a_rest_that_has_expired_keeps_the_view_and_the_list_is_asked_for_anew(server, tmp_path):
    opened = Gate()
    server.lists += [
        pod_list(10, pod_object("A", "ua", 5)),
        in_parts(pod_list(50, pod_object("B", "ub", 6)), "old"),
        opened,
        Refuse(410, "Expired"),
        pod_list(60, pod_object("C", "uc", 7)),
    ]
    server.watches += [[expired()], [STAY]]
    with following(server, tmp_path) as made:
        server.until(lambda: len(server.of("list")) == 3)
        assert made.uids() == {"ua"}, "half a list is no view"
        opened.open()
        made.until(lambda: made.uids() == {"uc"})
        assert made.reasons() == ["expired", "expired"]
    assert [query.get("continue") or query.get("resourceVersion") for query in server.of("list")] == [
        "0",
        "10",
        "old",
        None,
    ]


def test_a_list_whose_parts_never_end_is_given_up(server, tmp_path):
    server.lists.append(in_parts(pod_list(50), "again"))
    with following(server, tmp_path) as made:
        made.until(lambda: len(made.reasons()) > 0)
        assert made.reasons()[0] == "garbled"
        assert "the list of pods came in more than 256 parts" in made.texts()


def test_a_list_in_parts_that_takes_too_long_is_given_up(server, tmp_path):
    times = iter(range(0, 100_000, 20))
    server.lists.append(in_parts(pod_list(50), "again"))
    with following(server, tmp_path, monotonic=lambda: float(next(times)), max_age=90.0) as made:
        made.until(lambda: len(made.reasons()) > 0)
        assert made.reasons()[0] == "timeout"
        assert "the list of pods came in parts and took longer than 90 s" in made.texts()


def test_pods_of_other_nodes_are_not_taken(server, tmp_path):
    elsewhere = {"nodeName": "other"}
    server.lists.append(pod_list(10, pod_object("A", "ua", 5), kube_objects.pod_object("B", "ub", 6, spec=elsewhere)))
    server.watches.append(
        [
            event("ADDED", kube_objects.pod_object("C", "uc", 11, spec=elsewhere)),
            event("ADDED", pod_object("D", "ud", 12)),
            STAY,
        ]
    )
    with following(server, tmp_path) as made:
        made.until(lambda: "ud" in made.uids())
        assert made.uids() == {"ua", "ud"}
        assert "some of other nodes, which were not asked for" in made.watch.trouble()


def login_by(tmp_path, server, *command):
    """A kubeconfig whose credentials come from a program."""
    path = tmp_path / "by-program"
    told = json.loads((tmp_path / server.kubeconfig(tmp_path)).read_text())
    name, *args = command
    program = {"apiVersion": "client.authentication.k8s.io/v1", "command": name, "args": args}
    told["users"][0]["user"] = {"exec": program | {"interactiveMode": "Never"}}
    path.write_text(json.dumps(told))
    return str(path)


def credentials(expiry):
    told = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
    return json.dumps(told | {"status": {"token": "fr3sh", "expirationTimestamp": expiry}})


def test_a_login_program_that_hangs_ends_the_start_and_is_ended(server, tmp_path):
    os.mkfifo(tmp_path / "alive")
    alive = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    path = login_by(tmp_path, server, "sh", "-c", f"exec > {tmp_path}/alive; echo begun; exec sleep 1000")
    with pytest.raises(ConfigError, match=r"names for credentials gave none in 1 s; run it by hand, or `kubectl"):
        KubeApi(NODE, path, Limits(login=1.0), time.monotonic)
    os.set_blocking(alive, True)
    with os.fdopen(alive) as told:
        assert told.read() == "begun\n", "the end of it comes with the end of the program"


def test_a_login_program_that_hangs_later_is_said(server, tmp_path):
    flag = tmp_path / "asked"
    once = f"[ -e {flag} ] && exec sleep 1000; touch {flag}; echo '{credentials('2020-01-01T00:00:00Z')}'"
    server.lists.append(pod_list(10))
    with following(
        server, tmp_path, config=login_by(tmp_path, server, "sh", "-c", once), limits=Limits(silence=30.0, login=1.0)
    ) as made:
        made.until(lambda: len(made.reasons()) > 0)
        assert made.reasons()[0] == "refused"
        assert "names for credentials gave none in 1 s; run it by hand to see why" in made.texts()
    assert server.requests == []


def test_a_login_program_that_answers_is_used(server, tmp_path):
    server.lists.append(pod_list(10))
    answer = credentials("2999-01-01T00:00:00Z")
    with following(server, tmp_path, config=login_by(tmp_path, server, "echo", answer)) as made:
        made.until(lambda: ("list", "") in made.told)
    assert server.logins[0] == "Bearer fr3sh"


def test_kw_03_a_view_that_nothing_proves_grows_old_and_says_so(server, tmp_path):
    server.lists.append(pod_list(10, pod_object("A", "ua", 5)))
    bookmarked = Gate()
    server.watches.append([bookmarked, bookmark(11), STAY])
    at = [1000.0]
    with following(server, tmp_path, monotonic=lambda: at[0], max_age=90.0) as made:
        server.until(lambda: len(server.of("watch")) == 1)
        at[0] = 1090.0
        assert (made.watch.age_seconds(), made.watch.stale()) == (90.0, None)
        at[0] = 1091.0
        assert made.watch.age_seconds() == 91.0
        assert made.watch.stale() == "pods: the view is 91 s old, more than max_view_age_seconds 90: no writes"
        assert made.watch.trouble() is None
        assert made.uids() == {"ua"}, "the last view stays to be looked at"
        bookmarked.open()
        made.until(lambda: ("event", "") in made.told)
        assert (made.watch.age_seconds(), made.watch.stale()) == (0.0, None)


def test_kw_04_bookmarks_blank_and_cut_lines(server, tmp_path):
    server.lists.append(pod_list(12700, pod_object("A", "ua", 5)))
    server.watches += [[bookmark(12746), b"\n", b"\r\n", b'{"type":"ADDED","obj', CUT], [STAY]]
    with following(server, tmp_path) as made:
        server.until(lambda: len(server.of("watch")) == 2)
        assert made.uids() == {"ua"}
    assert [query["resourceVersion"] for query in server.of("watch")] == ["12700", "12746"]
    assert len(server.of("list")) == 1


def test_kw_04_a_line_cut_by_an_orderly_end_is_told_again(server, tmp_path):
    server.lists.append(pod_list(10))
    whole = line(event("ADDED", pod_object("C", "uc", 12)))
    server.watches += [[bookmark(11), whole[:40]], [whole, STAY]]
    with following(server, tmp_path) as made:
        made.until(lambda: made.uids() == {"uc"})
    assert [query["resourceVersion"] for query in server.of("watch")] == ["10", "11"]


def test_lines_may_come_in_any_pieces(server, tmp_path):
    server.lists.append(pod_list(10))
    text = b"".join(line(event("ADDED", pod_object(f"p{n}", version=11 + n))) for n in range(20))
    server.watches.append([*(text[at : at + 7] for at in range(0, len(text), 7)), STAY])
    with following(server, tmp_path) as made:
        made.until(lambda: len(made.uids()) == 20)


@pytest.mark.parametrize(
    "garbage", [b"<html>\n", b"\xff\xfe\n", b'{"type":"ADDED"}}\n', b"[" * 100_000 + b"\n", b"{" * (5 << 20)]
)
def test_a_line_that_cannot_be_read_leads_to_a_relist(server, tmp_path, garbage):
    server.lists += [pod_list(10), pod_list(20, pod_object("B", "ub", 15))]
    server.watches += [[garbage, STAY]]
    with following(server, tmp_path) as made:
        made.until(lambda: made.uids() == {"ub"})
        assert made.reasons() == ["garbled"]


@pytest.mark.parametrize(
    "body", [b"", b"<html>busy</html>", b"[]", b"null", b'{"kind":"Status","code":200}', b'{"metadata":{"resource']
)
def test_a_list_that_cannot_be_read_keeps_the_last_view(server, tmp_path, body):
    at, opened = [0.0], Gate()
    server.lists += [pod_list(10, pod_object("A", "ua", 5)), Raw(body), pod_list(20, pod_object("B", "ub", 15))]
    server.watches += [[opened, expired()]]
    with following(server, tmp_path, monotonic=lambda: at[0]) as made:
        made.until(lambda: made.uids() == {"ua"})
        opened.open()
        made.until(lambda: made.uids() == {"ub"})
        assert made.reasons() == ["expired", "garbled"]


def test_kw_08_a_relist_removes_a_ghost_though_the_watch_stays_up(server, tmp_path):
    at, opened = [0.0], Gate()
    server.lists += [pod_list(100, pod_object("X", "ux", 90)), pod_list(105)]
    server.watches += [[opened, bookmark(105), STAY]]
    with following(server, tmp_path, monotonic=lambda: at[0], relist=300.0, limits=Limits(silence=1000.0)) as made:
        server.until(lambda: len(server.of("watch")) == 1)
        assert made.uids() == {"ux"}
        at[0] = 300.0
        opened.open()
        made.until(lambda: made.told.count(("list", "")) == 2)
        assert made.uids() == set()
    assert server.of("watch")[0]["resourceVersion"] == "100"


def test_kw_08_a_watch_from_the_lists_version_delivers_the_deletion(server, tmp_path):
    server.lists.append(pod_list(100, pod_object("X", "ux", 90)))
    server.watches.append([event("DELETED", pod_object("X", "ux", 101)), STAY])
    with following(server, tmp_path) as made:
        made.until(lambda: ("event", "") in made.told)
        assert made.uids() == set()
        assert made.watch.trouble() == "pods: the API lists none on this node; check the setting node"


@pytest.mark.parametrize(
    ("answer", "reason", "words"),
    [
        (Refuse(401), "refused", "does not know us (401 Unauthorized); renew the credentials in collector.kubeconfig"),
        (Refuse(403), "refused", "list and watch pods (403 Forbidden); apply deploy/kubernetes/rbac.yaml"),
        (Refuse(500, "InternalError"), "failed", 'answered 500 Internal Server Error: {"kind": "Status"'),
        (Refuse(429, "Slow", {"Retry-After": "0"}), "failed", "answered 429 Too Many Requests"),
        (Refuse(302, "Moved", {"Location": "http://127.0.0.1:9/"}), "failed", "answered 302"),
    ],
)
def test_a_refusal_is_said_and_asked_again(server, tmp_path, answer, reason, words):
    opened = Gate()
    server.lists += [answer, opened, pod_list(10, pod_object("A", "ua", 5))]
    with following(server, tmp_path) as made:
        made.until(lambda: made.reasons() == [reason])
        assert words in made.texts()
        assert made.watch.stale() is not None
        assert made.watch.stale().startswith("pods: the API has not listed any yet")
        assert words in made.watch.trouble()
        assert made.workloads() == ()
        opened.open()
        made.until(lambda: made.uids() == {"ua"})
        assert (made.watch.stale(), made.watch.trouble()) == (None, None)
        assert ("back", "") in made.told


def test_a_watch_that_is_refused_keeps_the_view(server, tmp_path):
    server.lists.append(pod_list(10, pod_object("A", "ua", 5)))
    server.watches += [Refuse(403)] * 3
    with following(server, tmp_path) as made:
        server.until(lambda: len(server.of("watch")) == 4)
        assert made.uids() == {"ua"}
        assert made.reasons() == ["refused"] * 3


def test_a_server_that_is_away_is_waited_for(server, tmp_path):
    path = server.kubeconfig(tmp_path)
    server.close()
    with following(server, tmp_path, config=path) as made:
        made.until(lambda: len(made.reasons()) > 3)
        assert set(made.reasons()) == {"unreachable"}
        assert f"http://127.0.0.1:{server.port}: connection refused; is the API server up?" in made.watch.trouble()


def test_a_name_that_cannot_be_resolved_is_said(server, tmp_path):
    path = tmp_path / "lost"
    path.write_text(
        (tmp_path / server.kubeconfig(tmp_path)).read_text().replace(f"127.0.0.1:{server.port}", "api.invalid:6443")
    )
    with following(server, tmp_path, config=str(path)) as made:
        made.until(lambda: len(made.reasons()) > 0)
        assert "http://api.invalid:6443: its name cannot be resolved" in made.texts()
        assert "check the DNS of this pod" in made.texts()


def test_a_slow_list_is_given_up_and_asked_again(server, tmp_path):
    server.lists += [STAY, pod_list(10, pod_object("A", "ua", 5))]
    with following(server, tmp_path, limits=Limits(silence=PATIENCE_SECONDS, whole_list=0.3)) as made:
        made.until(lambda: made.uids() == {"ua"})
        assert made.reasons() == ["silent"]


def test_a_list_that_drips_is_given_up(server, tmp_path):
    server.lists.append(pod_list(10))
    times = iter([0.0, 31.0])
    api = KubeApi(NODE, server.kubeconfig(tmp_path), Limits(whole_list=30.0), lambda: next(times))
    with pytest.raises(ApiTrouble, match="the list of pods took longer than 30 s"):
        api.list_pods(None)
    api.close()


def test_a_list_that_is_too_large_is_given_up(server, tmp_path, monkeypatch):
    monkeypatch.setattr("services.collector.sources.kubernetes.MAX_LIST_BYTES", 100)
    server.lists.append(pod_list(10, pod_object("A", "ua", 5)))
    api = KubeApi(NODE, server.kubeconfig(tmp_path), Limits(), time.monotonic)
    with pytest.raises(ApiTrouble, match=r"the list of pods is larger than 0 MiB; see what .*kubectl get pods -A") as e:
        api.list_pods(None)
    assert e.value.reason == "failed", "it can be read, and the server's cache is as good as any"
    api.close()


def test_after_an_interruption_no_request_waits(server, tmp_path):
    api = KubeApi(NODE, server.kubeconfig(tmp_path), Limits(silence=PATIENCE_SECONDS), time.monotonic)
    api.interrupt()
    assert list(api.watch_pods("1", 3600.0)) == []
    api.close()


def test_a_server_that_asks_for_patience_gets_it_within_bounds(server, tmp_path):
    server.lists.append(Refuse(429, "TooManyRequests", {"Retry-After": "7"}))
    api = KubeApi(NODE, server.kubeconfig(tmp_path), Limits(), time.monotonic)
    with pytest.raises(ApiTrouble) as caught:
        api.list_pods(None)
    api.close()
    pace = Pace(relist=300.0, silence=70.0, max_age=90.0, first_pause=1.0, longest_pause=30.0)
    watch = PodWatch(api, Everywhere(), pace, time.monotonic, lambda *_: None)
    assert watch._pause(1, caught.value) == 7.0
    assert watch._pause(1, ApiTrouble("failed", "", retry_after=3600.0)) == 30.0


def test_pauses_grow_with_failures_in_a_row_and_are_bounded(server, tmp_path):
    pace = Pace(relist=300.0, silence=70.0, max_age=90.0, first_pause=1.0, longest_pause=30.0)
    api = KubeApi(NODE, server.kubeconfig(tmp_path), Limits(), time.monotonic)
    watch = PodWatch(api, Everywhere(), pace, time.monotonic, lambda *_: None)
    longest = [max(watch._pause(failures, None) for _ in range(300)) for failures in (0, 1, 2, 3, 10, 10_000)]
    assert longest[0] == 0.0
    assert 0.5 < longest[1] <= 1.0 < longest[2] <= 2.0 < longest[3] <= 4.0
    assert all(15.0 < pause <= 30.0 for pause in longest[4:])


def tls_server():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{TLS_FILES}/pod.pem", f"{TLS_FILES}/pod.key")
    return KubeApiServer(tls=context)


def test_tls_is_followed_and_a_blocked_read_ends_within_a_second(tmp_path):
    server = tls_server()
    try:
        server.lists.append(pod_list(10, pod_object("A", "ua", 5)))
        server.watches.append([event("ADDED", pod_object("B", "ub", 11)), STAY])
        with following(server, tmp_path, ca=f"{TLS_FILES}/ca.pem") as made:
            made.until(lambda: made.uids() == {"ua", "ub"})
    finally:
        server.close()


def test_a_certificate_that_nobody_vouches_for_is_said(tmp_path):
    server = tls_server()
    try:
        with following(server, tmp_path) as made:
            made.until(lambda: len(made.reasons()) > 0)
            assert made.reasons()[0] == "tls"
            assert "no trust or no TLS" in made.texts()
    finally:
        server.close()


def test_a_thousand_events_are_followed(server, tmp_path):
    server.lists.append(pod_list(10))
    kinds = [event("ADDED" if n < 300 else "MODIFIED", pod_object(f"p{n % 300}", version=11 + n)) for n in range(1000)]
    server.watches.append([*kinds, STAY])
    with following(server, tmp_path) as made:
        made.until(lambda: made.told.count(("event", "")) == 1000)
        assert len(made.uids()) == 300
        assert made.watch._known.version == "1010"


@pytest.mark.parametrize("text", ["", "not: [yaml", "[]", "{}", "apiVersion: v1\ncurrent-context: none\n"])
def test_a_bad_kubeconfig_ends_the_start(tmp_path, text):
    path = tmp_path / "kubeconfig"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"^collector.kubeconfig: '.*' cannot be used \(.*\); check it with `kubectl"):
        KubeApi(NODE, str(path), Limits(), time.monotonic)


def test_a_kubeconfig_that_is_not_there_ends_the_start(tmp_path):
    with pytest.raises(ConfigError, match=r"^collector.kubeconfig: '.*' cannot be used"):
        KubeApi(NODE, str(tmp_path / "none"), Limits(), time.monotonic)


def test_outside_a_pod_and_without_a_kubeconfig_the_way_out_is_said(monkeypatch, tmp_path):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "elsewhere"))
    with pytest.raises(
        ConfigError, match=r"^collector.kubernetes: no service account here \(Service host/port is not set"
    ) as e:
        KubeApi(NODE, None, Limits(), time.monotonic)
    assert "deploy/kubernetes/rbac.yaml, or set collector.kubeconfig (the variable KUBECONFIG is not read)" in str(
        e.value
    )


def service_account(monkeypatch, folder, server, content):
    """What the kubelet mounts into a pod."""
    (folder / "token").write_text(content)
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_TOKEN_FILENAME", str(folder / "token"))
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_CERT_FILENAME", f"{TLS_FILES}/ca.pem")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))


def test_in_a_pod_its_service_account_is_used(monkeypatch, tmp_path):
    server = tls_server()
    try:
        service_account(monkeypatch, tmp_path, server, "pod-t0ken")
        server.lists += [Refuse(401), pod_list(10, pod_object("A", "ua", 5))]
        with following(server, tmp_path, in_cluster=True) as made:
            made.until(lambda: made.uids() == {"ua"})
            assert "does not know us (401 Unauthorized); mount the service account of deploy/kube" in made.texts()
        assert set(server.logins) == {"bearer pod-t0ken"}
    finally:
        server.close()


def test_an_empty_token_ends_the_start(monkeypatch, tmp_path, server):
    service_account(monkeypatch, tmp_path, server, "")
    with pytest.raises(
        ConfigError, match=r"collector.kubernetes: no service account here \(Token file exists but empty"
    ):
        KubeApi(NODE, None, Limits(), time.monotonic)
