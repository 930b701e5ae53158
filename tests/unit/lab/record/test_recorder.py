"""The streams into a file: every message once and in order, what is gone as a gap, and on from where it ended."""

import asyncio
import hashlib
import json
import os

import pytest

from lab.record import recorder as module
from lab.record.file import read_recording
from lab.record.items import Closed, Damage, Gap, Header, ModelCopy, Settings, Stored
from lab.record.recorder import Recorder, new_header, record_now, subject_in
from lab.record.writer import create_recording, resume_recording
from runtime.bus import Extent, Kept, Span
from runtime.errors import BusError, TrimtabError
from runtime.memory_bus import matches
from runtime.streams import AUDIT, ORDERS, STATE
from schemas.subjects import node_token, subject


class Streams:
    """Streams in memory: what they keep by sequence. `before_read` is called before each range is read."""

    def __init__(self) -> None:
        self.messages: dict[str, dict[int, Kept]] = {AUDIT: {}, ORDERS: {}, STATE: {}}
        self.last: dict[str, int] = {AUDIT: 0, ORDERS: 0, STATE: 0}
        self.ns = 0
        self.reads: list[tuple[str, int, int]] = []
        self.before_read = lambda: None
        self.down = 0

    def put(self, kind: str, payload: bytes = b"{}", node: str = "worker-1", ns: int | None = None) -> None:
        stream = {"state": STATE, "command": ORDERS}.get(kind, AUDIT)
        self.ns = self.ns + 10 if ns is None else ns
        self.last[stream] += 1
        sequence = self.last[stream]
        self.messages[stream][sequence] = Kept(sequence, self.ns, subject(kind, node), payload)

    def drop(self, stream: str, *sequences: int) -> None:
        for sequence in sequences:
            self.messages[stream].pop(sequence, None)

    async def extent(self, stream: str) -> Extent | None:
        if self.down:
            self.down -= 1
            raise BusError("no answer")
        if stream not in self.messages:
            return None
        return Extent(min(self.messages[stream], default=self.last[stream] + 1), self.last[stream])

    async def kept(self, stream: str, subject: str, first: int, last: int, *, most_bytes: int = 1 << 20) -> Span:
        self.reads.append((stream, first, last))
        self.before_read()
        found = []
        for sequence, item in sorted(self.messages[stream].items()):
            if first <= sequence <= last and matches(subject, item.subject):
                found.append(item)
                if sum(len(item.payload) for item in found) > most_bytes:
                    return Span(found, sequence)
        return Span(found, last)

    async def next_kept(self, stream: str, subject: str, first: int) -> Kept | None:
        found = [item for n, item in sorted(self.messages[stream].items()) if n >= first]
        return next((item for item in found if matches(subject, item.subject)), None)


@pytest.fixture
def streams() -> Streams:
    return Streams()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a.recording"


async def record(streams, path, *, node=None, since_ns=None, **options) -> Recorder:
    """Records what there is, into a new file or on with the one that is there."""
    if path.exists():
        writer, _ = resume_recording(path)
    else:
        writer = create_recording(path, new_header(1, [], node=node, since_ns=since_ns))
    run = {key: options.pop(key) for key in ("until_ns", "follow") if key in options}
    with writer:
        recorder = Recorder(streams, writer, **options)
        await recorder.open()
        await recorder.run(asyncio.Event(), **run)
    return recorder


def told(path) -> list:
    """`AUDIT 3` for a message, `AUDIT 4-7` for a gap."""
    short = {AUDIT: "audit", ORDERS: "orders", STATE: "state"}
    found = []
    for item in read_recording(path).items():
        if isinstance(item, Stored):
            found.append(f"{short[item.stream]} {item.sequence}")
        elif isinstance(item, Gap):
            found.append(f"{short[item.stream]} {item.first}-{item.last}{'' if item.exact else '?'}")
        elif isinstance(item, Damage):
            found.append(item.kind)
    return found


async def test_streams_are_merged_by_the_time_of_storing(streams, path):
    for kind in ("state", "action", "command", "verdict", "actuation", "state", "reward"):
        streams.put(kind)
    await record(streams, path)
    assert told(path) == ["state 1", "audit 1", "orders 1", "audit 2", "audit 3", "state 2", "audit 4"]
    item = next(entry for entry in read_recording(path).items() if isinstance(entry, Stored))
    assert item == Stored(stream=STATE, sequence=1, stored_ns=10, subject=subject("state", "worker-1"), payload=b"{}")


async def test_a_clock_that_jumps_back_changes_no_order_within_a_stream(streams, path):
    streams.put("action", ns=50)
    streams.put("verdict", ns=20)
    streams.put("state", ns=30)
    await record(streams, path)
    assert told(path) == ["state 1", "audit 1", "audit 2"]


async def test_it_goes_on_behind_the_last_sequence_of_each_stream(streams, path):
    streams.put("state")
    streams.put("action")
    await record(streams, path)
    streams.put("verdict")
    streams.put("state")
    await record(streams, path)
    assert told(path) == ["state 1", "audit 1", "audit 2", "state 2"]
    closed = [item.messages for item in read_recording(path).items() if isinstance(item, Closed)]
    assert closed == [{STATE: 1, AUDIT: 1}, {STATE: 2, AUDIT: 2}]


async def test_what_is_gone_before_it_was_read_is_an_exact_gap(streams, path):
    for _ in range(3):
        streams.put("action")
    await record(streams, path)
    for _ in range(9):
        streams.put("action")
    streams.drop(AUDIT, *range(1, 8))
    recorder = await record(streams, path)
    assert told(path) == ["audit 1", "audit 2", "audit 3", "audit 4-7", *[f"audit {n}" for n in range(8, 13)]]
    assert (recorder.tally.gaps, recorder.tally.missing, recorder.tally.messages) == (1, 4, 5)


async def test_what_was_gone_before_a_recording_began_is_no_gap(streams, path):
    for _ in range(5):
        streams.put("action")
    streams.drop(AUDIT, 1, 2, 3)
    await record(streams, path)
    assert told(path) == ["audit 4", "audit 5"]


async def test_what_is_gone_in_the_middle_and_at_the_end_is_a_gap_too(streams, path):
    for _ in range(9):
        streams.put("command")
    streams.drop(ORDERS, 2, 5, 6, 9)
    await record(streams, path)
    assert told(path) == [
        *("orders 1", "orders 2-2", "orders 3", "orders 4", "orders 5-6", "orders 7", "orders 8", "orders 9-9")
    ]


async def test_a_stream_of_which_all_is_gone_is_a_gap(streams, path):
    streams.put("action")
    await record(streams, path)
    streams.put("action")
    streams.put("action")
    streams.drop(AUDIT, 1, 2, 3)
    await record(streams, path)
    assert told(path) == ["audit 1", "audit 2-3"]


async def test_one_node_is_recorded_without_the_others_and_without_gaps_for_them(streams, path):
    for n in range(8):
        streams.put("action", node="worker-1" if n % 3 == 0 else "worker-2")
    await record(streams, path, node="worker-1")
    assert told(path) == ["audit 1", "audit 4", "audit 7"]


async def test_of_one_node_a_gap_may_have_been_others_messages(streams, path):
    for n in range(4):
        streams.put("action", node="worker-1" if n % 2 == 0 else "worker-2")
    await record(streams, path, node="worker-1")
    for n in range(6):
        streams.put("action", node="worker-1" if n % 2 == 0 else "worker-2")
    streams.drop(AUDIT, *range(1, 8))
    await record(streams, path, node="worker-1")
    assert told(path) == ["audit 1", "audit 3", "audit 4-7?", "audit 9"]


async def test_of_one_node_what_goes_while_it_is_read_is_a_gap(streams, path):
    for n in range(8):
        streams.put("action", node="worker-1" if n % 2 == 0 else "worker-2")

    def let_go() -> None:
        streams.drop(AUDIT, *range(1, 5))

    streams.before_read = let_go
    await record(streams, path, node="worker-1")
    assert told(path) == ["audit 1-4?", "audit 5", "audit 7"]


async def test_since_finds_the_first_message_of_that_time(streams, path):
    for n in range(20):
        streams.put("action", ns=100 * n)
    streams.drop(AUDIT, 12, 13)
    await record(streams, path, since_ns=1001)
    assert told(path) == ["audit 12-13", *[f"audit {n}" for n in range(14, 21)]]


@pytest.mark.parametrize(("since_ns", "first"), [(0, 1), (500, 6), (501, 7), (1900, 20), (1901, None)])
async def test_since_is_exact(streams, path, since_ns, first):
    for n in range(20):
        streams.put("action", ns=100 * n)
    await record(streams, path, since_ns=since_ns)
    assert told(path) == ([] if first is None else [f"audit {n}" for n in range(first, 21)])


async def test_until_ends_before_what_was_stored_later(streams, path):
    for n in range(10):
        streams.put("action", ns=100 * n)
        streams.put("state", ns=100 * n + 1)
    await record(streams, path, until_ns=200)
    assert told(path) == ["audit 1", "state 1", "audit 2", "state 2", "audit 3"]
    await record(streams, path, until_ns=300)
    assert told(path)[5:] == ["state 3", "audit 4"]


async def test_following_takes_what_comes_and_ends_in_an_orderly_way(streams, path, monkeypatch):
    monkeypatch.setattr(module, "POLL_SECONDS", 0.001)
    streams.put("action")
    stop, seen = asyncio.Event(), []

    def on_progress(tally) -> None:
        seen.append(tally.messages)
        if len(seen) < 4:
            streams.put("action")
        else:
            stop.set()

    with create_recording(path, new_header(1, [])) as writer:
        recorder = Recorder(streams, writer, on_progress=on_progress)
        await recorder.open()
        await recorder.run(stop, follow=True)
    assert told(path) == ["audit 1", "audit 2", "audit 3", "audit 4"]


async def test_following_outlives_an_outage(streams, path, monkeypatch):
    monkeypatch.setattr(module, "POLL_SECONDS", 0.001)
    stop, said = asyncio.Event(), []
    with create_recording(path, new_header(1, [])) as writer:
        recorder = Recorder(streams, writer, say=said.append, on_progress=lambda _: stop.set())
        await recorder.open()
        streams.down = 2
        streams.put("action")
        await recorder.run(stop, follow=True)
    assert told(path) == ["audit 1"]
    assert said[:2] == ["no answer; trying again"] * 2


async def test_following_ends_at_its_end_though_nothing_comes(streams, path):
    streams.put("action", ns=5)
    await record(streams, path, follow=True, until_ns=100, clock_ns=lambda: 10**18)
    assert told(path) == ["audit 1"]


async def test_without_following_an_outage_is_an_error_and_the_file_can_be_gone_on_with(streams, path):
    streams.put("action")
    writer = create_recording(path, new_header(1, []))
    recorder = Recorder(streams, writer)
    await recorder.open()
    streams.down = 1
    with pytest.raises(BusError):
        await recorder.run(asyncio.Event())
    writer.abandon()
    await record(streams, path)
    assert told(path) == ["audit 1"]


async def test_ranges_grow_with_little_and_shrink_with_much(streams, path, monkeypatch):
    monkeypatch.setattr(module, "_FIRST_RANGE", 4)
    monkeypatch.setattr(module, "_BATCH_BYTES", 20_000)
    for _ in range(40):
        streams.put("action", b"{}")
    for _ in range(200):
        streams.put("action", b"x" * 2000)
    monkeypatch.setattr(module._Cursor, "width", 4, raising=False)
    await record(streams, path)
    widths = [last - first + 1 for _, first, last in streams.reads]
    assert max(widths) > 16
    assert set(widths[-5:-1]) <= {9, 10}
    assert told(path) == [f"audit {n}" for n in range(1, 241)]


# ---- which streams ---------------------------------------------------------------------------------------------------


async def test_streams_made_anew_are_not_recorded_into_the_same_file(streams, path):
    streams.put("action")
    streams.put("action")
    await record(streams, path)
    size = path.stat().st_size
    shorter = Streams()
    shorter.put("action")
    with pytest.raises(TrimtabError, match=rf"{AUDIT} ends at 1, but 2 is recorded: .* name another file"):
        await record(shorter, path)
    other = Streams()
    for _ in range(3):
        other.put("action", ns=7)
    with pytest.raises(TrimtabError, match="another message 2 than the one recorded"):
        await record(other, path)
    gone = Streams()
    del gone.messages[AUDIT]
    with pytest.raises(TrimtabError, match=f"{AUDIT} is not there"):
        await record(gone, path)
    assert path.stat().st_size == size


async def test_a_server_without_streams_gives_an_empty_recording(path):
    nothing = Streams()
    nothing.messages = {}
    tally = await record_now(nothing, path, new_header(1, []))
    assert tally.messages == 0
    assert told(path) == []


def test_the_subjects_of_a_node_in_each_stream():
    assert subject_in(STATE, None) == subject_in(AUDIT, None) == ">"
    assert subject_in(STATE, "a.b") == "trimtab.v1.state.a_b"
    assert subject_in(AUDIT, "a.b") == "trimtab.v1.*.a_b"
    assert subject_in(ORDERS, "a.b") == "trimtab.v1.command.a_b"
    with pytest.raises(ValueError, match="DNS"):
        subject_in(STATE, "*")


# ---- models and settings ---------------------------------------------------------------------------------------------


class WithObjects(Streams):
    """Streams, and a store of models."""

    def __init__(self, objects: dict[str, bytes | None]) -> None:
        super().__init__()
        self.objects = objects
        self.asked: list[tuple[str, str]] = []
        self.refuses = False

    async def get_object(self, bucket: str, name: str) -> bytes | None:
        self.asked.append((bucket, name))
        if self.refuses:
            raise BusError("no permission")
        return self.objects.get(name)


def naming(model: str) -> bytes:
    return json.dumps({"type": "action", "model": model}).encode()


def models(path) -> list[ModelCopy]:
    return [item for item in read_recording(path).items() if isinstance(item, ModelCopy)]


def digest_of(payload: bytes) -> str:
    return hashlib.sha256(payload).hexdigest()


ONE, TWO = digest_of(b"one"), digest_of(b"two")


async def test_a_model_is_taken_along_once_and_before_the_action_that_names_it(path):
    streams = WithObjects({f"a_b/{ONE}": b"one", f"a_b/{TWO}": b"two"})
    for model in (ONE, ONE, "", TWO):
        streams.put("action", naming(model), node="a.b")
    await record(streams, path)
    items = [item for item in read_recording(path).items() if isinstance(item, Stored | ModelCopy)]
    assert [type(item) for item in items] == [ModelCopy, Stored, Stored, Stored, ModelCopy, Stored]
    assert models(path) == [ModelCopy(digest=ONE, payload=b"one"), ModelCopy(digest=TWO, payload=b"two")]
    assert streams.asked == [("trimtab-models", f"a_b/{ONE}"), ("trimtab-models", f"a_b/{TWO}")]
    streams.put("action", naming(ONE))
    await record(streams, path)
    assert len(models(path)) == 2


def stored_model(run: str, why: str, parent: str | None = None, replaced: str | None = None) -> bytes:
    return json.dumps({"run": run, "why": why, "parent": parent, "replaced": replaced}).encode()


async def test_what_a_start_and_an_order_come_of_is_taken_along_too_and_no_more(path):
    oldest = stored_model("1", "start")
    before = stored_model("1", "stop", digest_of(oldest))  # of another run: what it comes of is not asked
    kept = stored_model("2", "checkpoint", digest_of(before))
    ordered = stored_model("2", "order", digest_of(b"wanted"), replaced=digest_of(kept))
    start = stored_model("2", "start", digest_of(ordered))
    later = stored_model("2", "checkpoint", digest_of(b"unasked"))
    everything = (oldest, before, kept, ordered, start, later, b"wanted", b"unasked")
    streams = WithObjects({f"worker-1/{digest_of(payload)}": payload for payload in everything})
    streams.put("action", naming(digest_of(start)))
    streams.put("action", naming(digest_of(later)))
    await record(streams, path)
    found = [copy.payload for copy in models(path)]
    assert found[0] == start
    assert set(found[:-1]) == {start, ordered, b"wanted", kept, before}
    assert found[-1] == later
    assert len(found) == 6
    items = [item for item in read_recording(path).items() if isinstance(item, Stored | ModelCopy)]
    assert [isinstance(item, Stored) for item in items] == [False] * 5 + [True, False, True]


async def test_a_start_whose_parent_is_not_there_says_so(path):
    start, said = stored_model("2", "start", ONE), []
    streams = WithObjects({f"worker-1/{digest_of(start)}": start})
    streams.put("action", naming(digest_of(start)))
    await record(streams, path, say=said.append)
    assert models(path)[1:] == [ModelCopy(digest=ONE, reason="trimtab-models does not have it")]
    assert said == [f"model {ONE[:12]} is not taken along: trimtab-models does not have it"]


async def test_models_that_name_one_after_another_are_not_followed_for_ever(path):
    chain = [stored_model("1", "order", ONE)]
    for _ in range(100):
        chain.append(stored_model("1", "order", digest_of(chain[-1])))
    streams = WithObjects({f"worker-1/{digest_of(payload)}": payload for payload in chain})
    streams.put("action", naming(digest_of(chain[-1])))
    await record(streams, path)
    assert len(models(path)) == module._MOST_BEHIND


async def test_a_model_that_is_not_there_is_told_and_looked_for_again_next_time(path):
    streams, said = WithObjects({}), []
    streams.put("action", naming(ONE))
    await record(streams, path, say=said.append)
    assert models(path) == [ModelCopy(digest=ONE, reason="trimtab-models does not have it")]
    assert said == [f"model {ONE[:12]} is not taken along: trimtab-models does not have it"]
    streams.objects[f"worker-1/{ONE}"] = b"one"
    streams.put("action", naming(ONE))
    await record(streams, path)
    assert models(path)[1:] == [ModelCopy(digest=ONE, payload=b"one")]


@pytest.mark.parametrize(
    ("digest", "payload", "reason"),
    [
        (ONE, b"half of i", "other bytes under its name"),
        (digest_of(bytes(2000)), bytes(2000), "it has 2000 bytes, the limit is 1000"),
        ("../x", b"one", "its name is no digest"),
        (ONE, None, "no permission"),
    ],
)
async def test_a_model_that_cannot_be_taken_along_costs_no_message(path, monkeypatch, digest, payload, reason):
    monkeypatch.setattr("lab.record.models.MOST_MODEL_BYTES", 1000)
    streams = WithObjects({f"worker-1/{digest}": payload})
    streams.refuses = payload is None
    streams.put("action", naming(digest))
    await record(streams, path)
    [model] = models(path)
    assert (model.digest, model.payload) == (digest, None)
    assert reason in model.reason
    assert told(path) == ["audit 1"]


async def test_a_bus_without_objects_has_no_models(streams, path):
    streams.put("action", naming(ONE))
    await record(streams, path)
    assert models(path) == [ModelCopy(digest=ONE, reason="this bus has no objects")]


@pytest.mark.parametrize("payload", [b"no json", b"\xff", b'{"model": 5}', b"[]", b""])
async def test_an_action_that_cannot_be_read_is_recorded_as_it_is(path, payload):
    streams = WithObjects({})
    streams.put("action", payload)
    await record(streams, path)
    assert [item.payload for item in read_recording(path).items() if isinstance(item, Stored)] == [payload]


async def test_settings_of_a_node_come_before_its_first_message(streams, path):
    def settings_for(node: str) -> Settings:
        return Settings(values={"shared": {"node": node}}, fingerprints={"guard": node_token(node)})

    streams.put("action", node="a.b")
    streams.put("action", node="c")
    streams.put("action", node="a.b")
    await record(streams, path, settings_for=settings_for)
    streams.put("action", node="c")
    await record(streams, path, settings_for=settings_for)
    items = [item for item in read_recording(path).items() if isinstance(item, Stored | Header)]
    assert [item.settings[0].values["shared"]["node"] if isinstance(item, Header) else 0 for item in items] == [
        *("a.b", 0, "c", 0, 0, 0)
    ]


async def test_messages_under_settings_that_it_does_not_have_are_counted(streams, path):
    known = Settings(values={}, fingerprints={"decider": "d1", "guard": "g1"})
    for kind, settings in [("action", "d1"), ("action", "d2"), ("action", "d2"), ("verdict", "g1"), ("verdict", "d1")]:
        streams.put(kind, f'{{"settings":"{settings}"}}'.encode())
    streams.put("verdict", b"{}")
    streams.put("reward", b"no json")
    recorder = await record(streams, path, settings_for=lambda _: known)
    assert recorder.tally.unknown_settings == {("decider", "d2"): 2, ("guard", "d1"): 1}


@pytest.mark.parametrize("node", [None, "worker-1"])
async def test_ranges_that_bring_too_much_are_gone_on_with_in_parts(streams, path, monkeypatch, node):
    monkeypatch.setattr(module, "_BATCH_BYTES", 2500)
    for _ in range(30):
        streams.put("action", b"x" * 1000)
    streams.drop(AUDIT, 8, 9, 20)
    await record(streams, path, node=node)
    expected = [f"audit {n}" for n in range(1, 31) if n not in (8, 9, 20)]
    if node is None:
        expected[7:7] = ["audit 8-9"]
        expected.insert(expected.index("audit 21"), "audit 20-20")
    assert told(path) == expected


async def test_memory_holds_a_range_not_the_stream(streams, path):
    payload = os.urandom(1000)
    for _ in range(3000):
        streams.put("action", payload)
    recorder = await record(streams, path)
    assert recorder.tally.payload_bytes == 3_000_000
    assert max(last - first + 1 for _, first, last in streams.reads) < 3000


async def test_a_gap_over_many_ranges_is_one_gap(streams, path):
    for _ in range(1500):
        streams.put("action")
    streams.drop(AUDIT, *range(3, 1400), 1499, 1500)
    await record(streams, path)
    assert told(path) == [
        "audit 1",
        "audit 2",
        "audit 3-1399",
        *[f"audit {n}" for n in range(1400, 1499)],
        "audit 1499-1500",
    ]
