import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.codec import decode
from schemas.messages import Action, Actuation, Command, Heartbeat, State, Verdict
from schemas.subjects import (
    KINDS,
    heartbeat_subject,
    kind_of,
    message_id,
    node_name,
    node_token,
    rpc_subject,
    subject,
    subject_of,
)
from tests.unit.schemas.test_recorded import KINDS as RECORDED_KINDS
from tests.unit.schemas.test_recorded import recorded

IDENTITY = {"node": "ip-10-0-0-1.eu.internal", "boot": "b1", "cycle": 17, "at": 1000}
PREFIX = "ip-10-0-0-1_eu_internal.b1.17"

labels = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
nodes = st.lists(labels, min_size=1, max_size=6).map(".".join)


@given(nodes)
def test_every_node_name_round_trips_through_one_subject_token(node):
    token = node_token(node)
    assert node_name(token) == node
    assert not set(token) & set(".*> \t\r\n")


@given(nodes, nodes)
def test_two_nodes_never_share_a_token(one, other):
    assert (node_token(one) == node_token(other)) == (one == other)


@pytest.mark.parametrize("name", ["a", "a" * 63, "node-1", "10", "a.b-c.d0", ".".join(["a" * 50] * 4), "a" * 253])
def test_dns_names_are_node_names(name):
    assert node_name(node_token(name)) == name


@pytest.mark.parametrize(
    "name",
    ["", "A", "a_b", "-a", "a-", ".a", "a.", "a..b", "a.-b", "a-.b", "a b", "a\n", "*", ">", "a.>", "ä", "a" * 254],
)
def test_anything_else_is_no_node_name(name):
    with pytest.raises(ValueError, match="DNS-1123"):
        node_token(name)


def test_subjects_are_as_the_contract_writes_them():
    assert [subject(kind, "n.a") for kind in KINDS] == [f"trimtab.v1.{kind}.n_a" for kind in KINDS]
    assert heartbeat_subject("guard", "n.a") == "trimtab.v1.heartbeat.guard.n_a"
    assert rpc_subject("collector", "n.a", "collect") == "trimtab.v1.rpc.collector.n_a.collect"


@pytest.mark.parametrize("kind", ["heartbeat", "collect", "rollback", "*", ""])
def test_a_kind_that_has_no_subject_of_that_form_is_refused(kind):
    with pytest.raises(ValueError, match="unknown kind"):
        subject(kind, "n")


@pytest.mark.parametrize("kind", RECORDED_KINDS)
def test_every_message_knows_its_subject_and_its_kind(kind):
    message = decode(recorded(kind))
    assert kind_of(message) == kind
    expected = {
        "collect": "trimtab.v1.rpc.collector.node-1_lab.collect",
        "heartbeat": "trimtab.v1.heartbeat.guard.node-1_lab",
    }
    assert subject_of(message) == expected.get(kind, f"trimtab.v1.{kind}.node-1_lab")


# ---- message ids: equal for a repeated send, different for everything else (NA-10) ----


def test_na_10_the_id_is_node_run_cycle_and_kind_not_the_content():
    action = Action(**IDENTITY, policy="p", arm="a", weights={"batch": 50})
    again = msgspec.structs.replace(action, cycle=19)
    assert message_id(action) == f"{PREFIX}.action"
    assert message_id(again) == message_id(action).replace(".17.", ".19.")


def test_na_10_a_repeated_send_of_one_message_has_one_id():
    for kind in RECORDED_KINDS:
        assert message_id(decode(recorded(kind))) == message_id(decode(recorded(kind)))


def test_na_10_a_new_run_of_the_collector_repeats_no_id():
    action = Action(**IDENTITY, policy="p", arm="a")
    assert message_id(msgspec.structs.replace(action, boot="b2")) != message_id(action)


def test_na_10_all_messages_of_one_cycle_have_ids_of_their_own():
    cycle = [
        State(**IDENTITY, phase="before"),
        State(**IDENTITY, phase="after"),
        Action(**IDENTITY, policy="p", arm="a"),
        Verdict(**IDENTITY, outcome="allow", execute=True, mode="active"),
        Actuation(**IDENTITY, outcome="applied"),
        Actuation(**IDENTITY, outcome="rolled_back"),
        Actuation(**IDENTITY, outcome="restored"),
        Command(**IDENTITY, verb="rollback", by="guard", reason="r"),
        Command(**IDENTITY, verb="restore", by="guard", reason="r"),
        Command(**IDENTITY, verb="mode", by="operator", reason="r", id="1"),
        Command(**IDENTITY, verb="mode", by="operator", reason="r", id="2"),
        Heartbeat(**IDENTITY, service="guard"),
        Heartbeat(**IDENTITY, service="decider"),
    ]
    ids = [message_id(message) for message in cycle]
    assert len(set(ids)) == len(cycle)
    assert all(mid.startswith(f"{PREFIX}.") for mid in ids)


def test_na_10_two_restores_in_one_cycle_are_two_messages():
    restored = Actuation(**IDENTITY, outcome="restored")
    assert message_id(restored) != message_id(msgspec.structs.replace(restored, at=1001))
