"""The table of pods: what a list and each kind of event does to it, in any order."""

import json

import pytest

from services.collector.core.pods_known import MAX_PODS, PodsKnown
from tests.support.kube_objects import CLASS_LABEL, bookmark, event, expired, pod_list, pod_object


def known(version, *pods) -> PodsKnown:
    made = PodsKnown()
    made.replace(pod_list(version, *pods))
    return made


def shown(table: PodsKnown) -> dict[str, str | None]:
    """Classes by uid."""
    return {pod.uid: pod.workload.labels.get(CLASS_LABEL) for pod in table.pods}


def test_a_list_makes_the_table_and_says_where_to_watch_from():
    table = known(500, pod_object("a", "ua", 120, "batch"), pod_object("b", "ub", 80))
    assert shown(table) == {"ua": "batch", "ub": None}
    assert table.version == "500"


def test_nothing_is_known_before_a_list():
    assert (PodsKnown().pods, PodsKnown().version) == ((), None)


def test_kw_01_an_expired_watch_leads_to_a_relist_and_makes_no_pod():
    table = known(500, pod_object("A", "ua", 1), pod_object("B", "ub", 2))
    before = table.pods
    told = json.loads(
        '{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"too old '
        'resource version: 500 (900)","reason":"Expired","code":410}}'
    )
    assert table.apply(told) == "relist"
    assert (table.pods, table.version) == (before, "500")
    b = next(pod for pod in before if pod.uid == "ub")
    table.replace(pod_list(905, pod_object("B", "ub", 2), pod_object("C", "uc", 901)))
    assert shown(table) == {"ub": None, "uc": None}
    assert next(pod for pod in table.pods if pod.uid == "ub") == b
    assert table.version == "905"


@pytest.mark.parametrize(
    "told",
    [
        expired(code=500, reason="InternalError"),
        {"type": "ERROR", "object": None},
        {"type": "ERROR"},
        {"type": "ERROR", "object": pod_object("x", "ux", 900)},
        ["an", "event", "that", "is", "none"],
        7,
    ],
)
def test_kw_01_whatever_is_no_event_or_an_error_leads_to_a_relist(told):
    table = known(500, pod_object("A", "ua", 1))
    assert table.apply(told) == "relist"
    assert (shown(table), table.version) == ({"ua": None}, "500")


def test_kw_01_a_list_without_a_version_is_refused_and_keeps_the_pods():
    table = known(500, pod_object("A", "ua", 1))
    for bad in ({"items": []}, {"metadata": {"resourceVersion": ""}, "items": []}, {"metadata": None, "items": None}):
        with pytest.raises(ValueError, match="no resourceVersion"):
            table.replace(bad)
    for bad in (None, [], {"kind": "Status", "metadata": {"resourceVersion": "5"}}, {"items": {}}):
        with pytest.raises(ValueError, match="no list of pods"):
            table.replace(bad)
    assert (shown(table), table.version) == ({"ua": None}, "500")


def test_kw_02_replayed_events_change_nothing():
    table = known(130, pod_object("A", "ua", 120, "latency-critical"), pod_object("B", "ub", 80))  # B is listed last
    assert table.version == "130"
    outcomes = [
        table.apply(event("MODIFIED", pod_object("A", "ua", 95, "batch"))),
        table.apply(event("MODIFIED", pod_object("A", "ua", 120, "latency-critical"))),
        table.apply(event("DELETED", pod_object("Z", "uz", 110))),
        table.apply(event("ADDED", pod_object("C", "uc", 131, "batch"))),
    ]
    assert outcomes == ["same", "same", "same", "changed"]
    assert shown(table) == {"ua": "latency-critical", "ub": None, "uc": "batch"}
    assert table.version == "131"


def test_kw_02_versions_are_compared_as_numbers():
    table = known(99, pod_object("A", "ua", 98, "batch"))
    assert table.apply(event("MODIFIED", pod_object("A", "ua", 100, "default"))) == "changed"
    assert table.apply(event("MODIFIED", pod_object("A", "ua", 99, "batch"))) == "same"
    assert (shown(table), table.version) == ({"ua": "default"}, "100")


def test_kw_02_the_deletion_of_a_newer_pod_has_no_effect():
    table = known(130, pod_object("A", "ua", 120))
    table.apply(event("MODIFIED", pod_object("A", "ua", 140)))
    assert table.apply(event("DELETED", pod_object("A", "ua", 135))) == "same"
    assert shown(table) == {"ua": None}
    assert table.apply(event("DELETED", pod_object("A", "ua", 141))) == "changed"
    assert shown(table) == {}


def test_kw_02_a_deletion_may_bear_the_pods_last_version():
    table = known(130, pod_object("A", "ua", 120))
    assert table.apply(event("DELETED", pod_object("A", "ua", 120))) == "changed"
    assert shown(table) == {}


def test_kw_02_a_deleted_pod_does_not_come_back_by_a_replay():
    table = known(130)
    table.apply(event("ADDED", pod_object("A", "ua", 131)))
    table.apply(event("DELETED", pod_object("A", "ua", 135)))
    for late in (event("ADDED", pod_object("A", "ua", 131)), event("MODIFIED", pod_object("A", "ua", 140))):
        assert table.apply(late) == "same"
    assert shown(table) == {}


def test_kw_02_a_deletion_that_overtakes_the_creation_wins():
    table = known(130)
    assert table.apply(event("DELETED", pod_object("A", "ua", 135))) == "same"
    assert table.apply(event("ADDED", pod_object("A", "ua", 131))) == "same"
    assert shown(table) == {}


def test_kw_02_a_pod_that_was_gone_before_the_list_is_not_made_by_a_replay():
    table = known(130, pod_object("A", "ua", 120))
    assert table.apply(event("MODIFIED", pod_object("Y", "uy", 100))) == "same"
    assert shown(table) == {"ua": None}


def test_a_recreated_pod_of_the_same_name_has_another_uid():
    table = known(10, pod_object("A", "u1", 5, "batch"))
    table.apply(event("ADDED", pod_object("A", "u2", 11, "default")))
    assert shown(table) == {"u1": "batch", "u2": "default"}
    table.apply(event("DELETED", pod_object("A", "u1", 12)))
    assert shown(table) == {"u2": "default"}


def test_versions_that_are_no_numbers_go_by_arrival():
    table = known("x-9", pod_object("A", "ua", "x-7", "batch"))
    assert table.apply(event("MODIFIED", pod_object("A", "ua", "x-7", "default"))) == "same"
    assert table.apply(event("MODIFIED", pod_object("A", "ua", "x-10", "default"))) == "changed"
    assert (shown(table), table.version) == ({"ua": "default"}, "x-10")
    table.apply(event("DELETED", pod_object("A", "ua", "x-11")))
    assert table.apply(event("MODIFIED", pod_object("A", "ua", "x-12"))) == "same"
    assert shown(table) == {}


@pytest.mark.parametrize("version", ["٣", "-5", "+5", "1e3", "9" * 5000, "0x10", " 7"])
def test_odd_versions_are_taken_as_texts(version):
    table = known(10, pod_object("A", "ua", 5))
    assert table.apply(event("MODIFIED", pod_object("A", "ua", version, "batch"))) in ("same", "changed")
    assert list(shown(table)) == ["ua"]


def test_kw_04_a_bookmark_moves_the_resume_version_only():
    table = known(12700, pod_object("A", "ua", 5))
    told = json.loads(
        '{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion":"12746"},'
        '"spec":{"containers":null},"status":{}}}'
    )
    assert table.apply(told) == "same"
    for blank in (None, "", b"", "\r", b" \t"):  # <blank line>
        assert table.apply(blank) == "nothing"
    assert (shown(table), table.version) == ({"ua": None}, "12746")


@pytest.mark.parametrize(
    "told",
    [
        {"type": "BOOKMARK"},
        {"type": "BOOKMARK", "object": None},
        {"type": "BOOKMARK", "object": {"metadata": None}},
        {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": 13000}}},
        {"type": "SOMETHING_NEW", "object": pod_object("x", "ux", 12800)},
        {"type": ["ADDED"], "object": pod_object("x", "ux", 12800)},
        {"type": "ADDED", "object": {"kind": "Status", "code": 410}},
        {"type": "MODIFIED", "object": {"metadata": {"uid": "", "resourceVersion": "12800"}}},
        {"type": "DELETED", "object": {"metadata": {"uid": 7}}},
        {"type": "ADDED"},
        {},
    ],
)
def test_kw_04_events_that_say_nothing_change_nothing(told):
    table = known(12700, pod_object("A", "ua", 5))
    assert table.apply(told) == "nothing"
    assert (shown(table), table.version) == ({"ua": None}, "12700")


def test_kw_08_a_list_removes_what_is_no_longer_listed():
    table = known(100, pod_object("X", "ux", 90), pod_object("A", "ua", 95))
    assert table.version == "100"  # a watch from here tells of the deletion at 101
    table.replace(pod_list(105, pod_object("A", "ua", 95)))
    assert shown(table) == {"ua": None}


def test_kw_08_a_watch_from_the_lists_version_tells_of_the_deletion():
    table = known(100, pod_object("X", "ux", 90))
    assert table.apply(event("DELETED", pod_object("X", "ux", 101))) == "changed"
    assert shown(table) == {}


def test_a_list_of_a_restored_server_may_be_older():
    table = known(1000, pod_object("A", "ua", 900, "batch"))
    table.replace(pod_list(500, pod_object("A", "ua", 400, "default")))
    assert (shown(table), table.version) == ({"ua": "default"}, "500")
    assert table.apply(event("MODIFIED", pod_object("A", "ua", 501, "batch"))) == "changed"


def test_an_odd_pod_costs_itself_and_not_the_table():
    odd = pod_object("odd", "uo", 6, metadata={"labels": ["no", "object"]})
    table = known(10, pod_object("A", "ua", 5), odd, {"metadata": None}, None, 7)
    assert shown(table) == {"ua": None}
    assert table.note == "2 left out: uo: metadata.labels is no object; some without uid, or beyond 2048"
    assert table.apply(event("MODIFIED", pod_object("odd", "uo", 11, "batch"))) == "changed"
    assert shown(table) == {"ua": None, "uo": "batch"}
    assert table.apply(event("MODIFIED", pod_object("A", "ua", 12, status={"containerStatuses": {}}))) == "changed"
    assert shown(table) == {"uo": "batch"}
    table.replace(pod_list(13, pod_object("A", "ua", 5)))
    assert table.note is None


def test_an_empty_list_may_be_null():
    table = known(10, pod_object("A", "ua", 5))
    table.replace({"metadata": {"resourceVersion": "11"}, "items": None})
    assert table.pods == ()


def test_a_pod_that_is_listed_twice_is_the_newer_one():
    assert shown(known(10, pod_object("A", "ua", 7, "batch"), pod_object("A", "ua", 6))) == {"ua": "batch"}
    assert shown(known(10, pod_object("A", "ua", 6), pod_object("A", "ua", 7, "batch"))) == {"ua": "batch"}


def test_the_table_is_bounded():
    table = known(10, *(pod_object(f"p{number}", version=5) for number in range(MAX_PODS)))
    assert table.note is None
    assert table.apply(event("ADDED", pod_object("more", "um", 11))) == "same"
    assert (len(table.pods), table.note) == (MAX_PODS, "1 left out: some without uid, or beyond 2048")
    assert table.apply(event("MODIFIED", pod_object("p0", version=12, cls="batch"))) == "changed"


def test_deletions_that_are_remembered_are_bounded():
    table = known(10)
    for number in range(5 * MAX_PODS):
        table.apply(event("DELETED", pod_object("x", f"u{number}", 11 + number)))
    assert len(table._gone) == 4 * MAX_PODS
    assert table.apply(event("ADDED", pod_object("x", f"u{5 * MAX_PODS - 1}", 11))) == "same"


def test_an_event_that_tells_nothing_new_of_a_pod_is_no_change():
    table = known(10, pod_object("A", "ua", 5, "batch"))
    assert table.apply(event("MODIFIED", pod_object("A", "ua", 11, "batch", status={"conditions": []}))) == "same"
    assert table.version == "11"


def test_an_old_bookmark_does_not_lead_back():
    table = known(12700, pod_object("A", "ua", 5))
    assert table.apply(bookmark(12000)) == "same"
    assert table.version == "12700"


def test_pods_of_other_nodes_are_not_taken_and_that_is_said():
    table = PodsKnown("node-1")
    elsewhere = {"nodeName": "node-2"}
    table.replace(pod_list(10, pod_object("a", "ua", 5), pod_object("b", "ub", 6, spec=elsewhere)))
    assert shown(table) == {"ua": None}
    assert table.note == "1 left out: some of other nodes, which were not asked for"
    table.replace(pod_list(11, pod_object("a", "ua", 5)))
    assert table.note is None
    assert table.apply(event("ADDED", pod_object("c", "uc", 12, spec=elsewhere))) == "same"
    assert (shown(table), table.version) == ({"ua": None}, "12")
    assert table.note == "1 left out: some of other nodes, which were not asked for"


def test_a_pod_that_says_it_is_elsewhere_now_is_gone():
    table = PodsKnown("node-1")
    table.replace(pod_list(10, pod_object("a", "ua", 5)))
    assert table.apply(event("MODIFIED", pod_object("a", "ua", 4, spec={"nodeName": "node-2"}))) == "same"
    assert table.apply(event("MODIFIED", pod_object("a", "ua", 11, spec={"nodeName": "node-2"}))) == "changed"
    assert shown(table) == {}


@pytest.mark.parametrize("spec", [{"nodeName": None}, {"nodeName": ""}, {"nodeName": 7}])
def test_a_pod_that_names_no_node_is_the_one_that_was_asked_for(spec):
    table = PodsKnown("node-1")
    table.replace(pod_list(10, pod_object("a", "ua", 5, spec=spec)))
    assert shown(table) == {"ua": None}


def test_a_list_whose_pods_end_in_an_error_keeps_the_pods():
    table = known(10, pod_object("A", "ua", 5))

    def items():
        yield pod_object("B", "ub", 6)
        raise RuntimeError("the rest does not come")

    with pytest.raises(RuntimeError, match="the rest does not come"):
        table.replace({"metadata": {"resourceVersion": "20"}, "items": items()})
    assert (shown(table), table.version) == ({"ua": None}, "10")
