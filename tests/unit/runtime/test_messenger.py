import json

import pytest

from runtime.clock import ManualClock, settle
from runtime.errors import BusDown
from runtime.logs import get_log
from runtime.memory_bus import MemoryBus
from runtime.messenger import Messenger
from runtime.metrics import CommonMetrics
from schemas.codec import encode
from schemas.messages import Action, CollectRequest, Heartbeat, Reward, State, Verdict
from schemas.subjects import message_id, subject, subject_of

NODE = "node-1.lab"
START_NS = 1_700_000_000_000_000_000


class Station:
    """A messenger on a bus in memory."""

    def __init__(self) -> None:
        self.bus = MemoryBus()
        self.clock = ManualClock(START_NS)
        self.metrics = CommonMetrics("guard")
        self.messenger = Messenger(self.bus, NODE, self.metrics, self.clock, get_log("guard"))
        self.heard: list[object] = []

    async def hear(self, message: object) -> None:
        self.heard.append(message)

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(f"trimtab_{name}", labels) or 0.0

    async def publish(self, where: str, raw: bytes) -> None:
        await self.bus.publish(where, raw)
        await settle()


@pytest.fixture
async def station():
    made = Station()
    yield made
    await made.messenger.stop()
    await made.bus.close()


def action(cycle: int = 1, **fields) -> Action:
    return Action(**{"node": NODE, "boot": "b", "cycle": cycle, "at": START_NS, "policy": "p", "arm": "a", **fields})


def raw_action(**fields) -> bytes:
    return json.dumps({**json.loads(encode(action())), **fields}).encode()


async def test_a_message_goes_out_once_with_its_subject_and_id_and_is_counted(station):
    await station.messenger.listen(Action, station.hear)
    assert await station.messenger.send(action())
    assert await station.messenger.send(action())
    await settle()
    assert station.heard == [action(), action()]
    assert await station.bus.last("any", subject("action", NODE), 10) == [encode(action())]
    assert station.count("messages_published_total", kind="action") == 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"weights": {"batch": 50.0}}, "ms_03_d"),
        ({"type": "rollback"}, "ms_03_e"),
        ({"type": "verdict", "outcome": "allow", "execute": True, "mode": "active"}, "another kind"),
        ({"schema": 2}, "another version"),
        ({"at": 10**400}, "a number beyond all clocks"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_ms_03_a_bad_message_is_counted_and_the_reader_goes_on(station, fields, reason):
    await station.messenger.listen(Action, station.hear)
    await station.publish(subject("action", NODE), raw_action(**fields))
    await station.messenger.send(action(2))
    await settle()
    assert station.heard == [action(2)]
    assert station.bus.errors == []
    assert station.count("messages_dropped_total", kind="action", reason="decode") == 1
    assert station.count("messages_received_total", kind="action") == 1


async def test_a_bad_stored_message_is_counted_and_learning_goes_on(station):
    await station.messenger.learn_from("AUDIT", "d", Action, station.hear)
    await station.publish(subject("action", NODE), b"\xff")
    await station.publish(subject("action", NODE), encode(action(2)))
    assert station.heard == [action(2)]
    assert station.count("messages_dropped_total", kind="action", reason="decode") == 1


async def test_rubbish_and_other_nodes_messages_hide_nothing_that_lies_behind_them(station):
    await station.publish(subject("action", NODE), encode(action(1)))
    for number in range(60):
        await station.publish(subject("action", NODE), b"{" if number % 2 else encode(action(2, node="other")))
    assert await station.messenger.history("AUDIT", Action, 5) == [action(1)]
    assert station.count("messages_dropped_total", kind="action", reason="decode") == 30
    assert station.count("messages_dropped_total", kind="action", reason="other_node") == 30


async def test_who_wants_to_know_of_what_cannot_be_read_is_told(station):
    told = []

    async def unread():
        told.append(1)

    await station.messenger.listen(Action, station.hear, unread=unread)
    for raw in [b"{", encode(action(1)), encode(action(2, node="other"))]:
        await station.publish(subject("action", NODE), raw)
    await settle()
    assert len(told) == 2


async def test_history_is_oldest_first_and_leaves_out_what_cannot_be_read(station):
    for raw in [encode(action(1)), b"{", encode(action(2)), encode(action(3))]:
        await station.publish(subject("action", NODE), raw)
    assert await station.messenger.history("AUDIT", Action, 2) == [action(2), action(3)]
    assert await station.messenger.history("AUDIT", Action, 3) == [action(1), action(2), action(3)]
    assert await station.messenger.history("AUDIT", Reward, 3) == []
    assert station.count("messages_dropped_total", kind="action", reason="decode") == 1


async def test_a_message_about_another_node_is_dropped_even_on_this_nodes_subject(station):
    await station.messenger.listen(Action, station.hear)
    await station.publish(subject("action", NODE), encode(action(node="other")))
    assert station.heard == []
    assert station.count("messages_dropped_total", kind="action", reason="other_node") == 1


async def test_while_the_bus_is_down_a_send_says_so_and_nothing_is_kept_for_later(station):
    await station.messenger.listen(Action, station.hear)
    station.bus.partition = True
    assert not station.messenger.connected
    assert await station.messenger.send(action(1)) is False
    station.bus.partition = False
    assert await station.messenger.send(action(2)) is True
    await settle()
    assert station.heard == [action(2)]
    assert station.count("messages_dropped_total", kind="action", reason="bus_down") == 1
    assert station.count("messages_published_total", kind="action") == 1


@pytest.mark.parametrize(
    "unsendable", [action(propensity=float("nan")), action(arm="\ud800"), action(arm="a" * 1_000_001)], ids=range(3)
)
async def test_a_message_that_must_not_leave_is_counted_and_does_not_leave(station, unsendable):
    assert await station.messenger.send(unsendable) is False
    assert station.bus.history == []
    assert station.count("messages_dropped_total", kind="action", reason="encode") == 1


@pytest.mark.parametrize(("seconds_ahead", "observed"), [(-0.02, 1), (0.0, 1), (2.5, 0)])
async def test_na_09_an_age_is_never_negative_and_a_message_from_the_future_is_not_dropped(
    station, seconds_ahead, observed
):
    await station.messenger.listen(Action, station.hear)
    message = action(at=START_NS + int(seconds_ahead * 1e9))
    await station.messenger.send(message)
    await settle()
    assert station.heard == [message]
    assert station.count("message_age_seconds_count", kind="action") == observed
    assert station.count("message_age_seconds_sum", kind="action") == pytest.approx(max(0.0, -seconds_ahead))


async def test_a_handler_that_fails_costs_its_message_only(station):
    async def fragile(message: Action) -> None:
        if message.cycle == 1:
            raise ValueError("nonsense")
        await station.hear(message)

    await station.messenger.listen(Action, fragile)
    await station.messenger.send(action(1))
    await station.messenger.send(action(2))
    await settle()
    assert station.heard == [action(2)]


async def test_heartbeats_and_requests_have_subjects_of_their_own(station):
    identity = {"node": NODE, "boot": "b", "cycle": 1, "at": START_NS}
    beats = [Heartbeat(**identity, service=name) for name in ("guard", "decider")]
    await station.messenger.listen(Heartbeat, station.hear, service="guard")
    await station.messenger.listen(CollectRequest, station.hear)
    for message in [*beats, CollectRequest(**identity)]:
        await station.messenger.send(message)
    await settle()
    assert station.heard == [beats[0], CollectRequest(**identity)]


async def test_all_services_heartbeats_can_be_heard_at_once(station):
    await station.messenger.listen(Heartbeat, station.hear)
    for name in ("guard", "decider"):
        await station.messenger.send(Heartbeat(node=NODE, boot="b", cycle=1, at=START_NS, service=name))
    await settle()
    assert len(station.heard) == 2


async def test_after_stop_nothing_is_heard(station):
    await station.messenger.listen(State, station.hear)
    await station.messenger.stop()
    state = State(node=NODE, boot="b", cycle=1, at=START_NS, phase="before")
    await station.bus.publish(subject_of(state), encode(state), msg_id=message_id(state))
    await settle()
    assert station.heard == []


async def test_a_reader_can_count_what_it_decided_not_to_use(station):
    verdict = Verdict(node=NODE, boot="b", cycle=1, at=START_NS, outcome="late", execute=False, mode="active")
    station.messenger.drop(verdict, "late")
    assert station.count("messages_dropped_total", kind="verdict", reason="late") == 1


async def test_what_must_be_stored_is_sent_once_with_its_id_and_counted(station):
    await station.messenger.listen(Action, station.hear)
    for _ in range(2):
        await station.messenger.send_stored(action(), "any")
    await settle()
    assert await station.bus.last("any", subject("action", NODE), 10) == [encode(action())]
    assert station.heard == [action(), action()]
    assert station.count("messages_published_total", kind="action") == 2


async def test_what_must_be_stored_and_cannot_be_is_an_error(station):
    station.bus.partition = True
    with pytest.raises(BusDown):
        await station.messenger.send_stored(action(), "any")
    assert station.count("messages_published_total", kind="action") == 0


async def test_a_dated_history_says_when_and_leaves_out_what_cannot_be_read(station):
    station.bus.store(subject("action", NODE), encode(action(1)))
    station.bus.store(subject("action", NODE), b"{")
    station.bus.store(subject("action", NODE), encode(action(2)))
    found = await station.messenger.dated_history("any", Action, 10)
    assert [dated.message for dated in found] == [action(1), action(2)]
    assert 0 < found[0].stored_ns <= found[1].stored_ns
    assert station.count("messages_dropped_total", kind="action", reason="decode") == 1
    assert await station.messenger.kept_since_ns("any") == 0


async def test_a_watched_entry_is_that_of_this_node_and_ends_with_the_messenger(station):
    await station.messenger.watch_entry("bucket", station.hear)
    station.bus.put_entry("bucket", "node-1_lab", b"mine")
    station.bus.put_entry("bucket", "node-2", b"another")
    await settle()
    assert [entry.value for entry in station.heard] == [b"mine"]
    await station.messenger.stop()
    station.bus.put_entry("bucket", "node-1_lab", b"later")
    await settle()
    assert [entry.value for entry in station.heard] == [b"mine"]
