"""A recording read back: as it was written, and every damage told in its place."""

import io
import random
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.record import blocks
from lab.record.blocks import START, Block, Blocks, NotARecording, encode_block
from lab.record.file import Reading, read_recording
from lab.record.items import Closed, Damage, Gap, Header, ModelCopy, Settings, Stored
from lab.record.writer import create_recording, resume_recording
from runtime.errors import ConfigError, TrimtabError

A, B = "TRIMTAB_AUDIT", "TRIMTAB_STATE"
HEADER = Header(
    trimtab="0.1.0",
    made_at=5,
    node="worker-1",
    since_ns=3,
    streams=(A, B),
    settings=(Settings(values={"shared": {"node": "x", "tick": 2.5}}, fingerprints={"guard": "abc"}),),
    versions={"python": "3.11"},
)


def stored(sequence: int, stream: str = A, payload: bytes | None = None) -> Stored:
    return Stored(
        stream=stream,
        sequence=sequence,
        stored_ns=1000 + sequence,
        subject=f"trimtab.v1.action.{stream.lower()}",
        payload=payload if payload is not None else b'{"cycle":%d}' % sequence,
    )


def write(path: Path, *parts: list) -> Path:
    """A recording of one block for each part, and of one that closes it."""
    with create_recording(path, HEADER) as writer:
        for part in parts:
            for item in part:
                writer.add(item)
            writer.flush()
    return path


def cut(path: Path) -> list[bytes]:
    """The start of a file, and then its blocks."""
    raw = path.read_bytes()
    with path.open("rb") as file:
        reader = Blocks(file, path)
        parts = [START]
        while (block := reader.take()) is not None:
            assert isinstance(block, Block)
            parts.append(raw[block.offset : block.end])
    assert b"".join(parts) == raw
    return parts


def damages(path: Path) -> list[Damage]:
    return [entry for entry in read_recording(path).items() if isinstance(entry, Damage)]


def sequences(path: Path) -> list:
    """The sequences of the messages, gaps as pairs, and damages as their kinds."""
    return [
        entry.kind
        if isinstance(entry, Damage)
        else entry.sequence
        if isinstance(entry, Stored)
        else (entry.first, entry.last)
        for entry in read_recording(path).items()
        if isinstance(entry, Damage | Stored | Gap)
    ]


@pytest.fixture
def path(tmp_path) -> Path:
    """Four blocks of three messages each, after the header's and before the last."""
    parts = [[stored(n) for n in range(first, first + 3)] for first in (1, 4, 7, 10)]
    return write(tmp_path / "a.recording", *parts)


# ---- what is whole ---------------------------------------------------------------------------------------------------


def test_all_that_was_written_is_read_in_order(tmp_path):
    items = [
        stored(1, payload=b"\x00\xff not json"),
        Gap(stream=A, first=2, last=4, exact=False, reason="gone"),
        ModelCopy(digest="d1", payload=b"\x01" * 5000),
        ModelCopy(digest="d2", reason="not stored"),
        stored(5),
        stored(1, B),
    ]
    path = write(tmp_path / "a", items[:3], items[3:])
    recording = read_recording(path)
    assert recording.header == HEADER
    assert list(recording.items()) == [*items, Closed(messages={A: 2, B: 1})]
    assert list(recording.items(strict=True)) == list(recording.items())


def test_a_block_is_written_when_there_is_enough_for_one(tmp_path):
    path = tmp_path / "a"
    payload = random.Random(1).randbytes(200_000)
    writer = create_recording(path, HEADER)
    for n in range(1, 8):
        writer.add(stored(n, payload=payload))
    assert sequences(path) == [1, 2, 3, 4, 5, 6, "unclosed"]
    writer.close()
    assert sequences(path) == [1, 2, 3, 4, 5, 6, 7]


@settings(max_examples=25)
@given(st.lists(st.lists(st.integers(0, 300), max_size=5), max_size=6))
def test_whatever_the_blocks_the_items_are_the_same(tmp_path_factory, sizes):
    path = tmp_path_factory.mktemp("blocks") / "a"
    n = 0
    parts = []
    for part in sizes:
        parts.append([])
        for size in part:
            n += 1
            parts[-1].append(stored(n, payload=bytes(size)))
    write(path, *parts)
    assert list(read_recording(path).items())[:-1] == [item for part in parts for item in part]


# ---- what is damaged -------------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_found(tmp_path):
    path = write(tmp_path / "a", [stored(1), stored(2)], [stored(3)])
    raw = path.read_bytes()
    whole = list(Reading(io.BytesIO(raw), path))
    for bit in range(8 * len(raw)):
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            entries = list(Reading(io.BytesIO(flipped), path))
        except NotARecording:
            assert bit < 8 * len(START)
            continue
        kinds = [entry.kind for entry in entries if isinstance(entry, Damage)]
        assert set(kinds) & {"changed", "torn"}, f"bit {bit}"
        assert all(entry in whole for entry in entries if not isinstance(entry, Damage)), f"bit {bit}"


def test_flipped_bits_of_a_large_recording_are_found_where_they_are(tmp_path):
    source = random.Random(7)
    parts = [
        [stored(n, payload=source.randbytes(3000)) for n in range(first, first + 20)] for first in range(1, 201, 20)
    ]
    path = write(tmp_path / "a", *parts)
    raw, pieces = path.read_bytes(), cut(path)
    starts = [sum(map(len, pieces[:index])) for index in range(1, len(pieces))]
    for _ in range(200):
        bit = source.randrange(8 * starts[1], 8 * len(raw))
        flipped = bytearray(raw)
        flipped[bit // 8] ^= 1 << bit % 8
        path.write_bytes(flipped)
        hit = max(index for index, start in enumerate(starts) if start <= bit // 8)
        [damage] = damages(path)
        assert (damage.block, damage.offset) == (hit, starts[hit])
        assert damage.kind in ("changed", "torn")
        if hit <= 10:  # the last one has no messages
            assert damage.before == ({A: 20 * (hit - 1)} if hit > 1 else {})
            assert damage.after == {A: 20 * hit + 1}


def test_a_damaged_block_is_not_joined_over(path):
    pieces = cut(path)
    pieces[3] = pieces[3][:-1] + bytes([pieces[3][-1] ^ 1])
    path.write_bytes(b"".join(pieces))
    assert sequences(path) == [1, 2, 3, "changed", 7, 8, 9, 10, 11, 12]
    [damage] = damages(path)
    assert (damage.before, damage.after) == ({A: 3}, {A: 7})
    assert str(damage) == (
        f"block 2 at byte {sum(map(len, pieces[:3]))}: its bytes are not those that were written; lost: {A} 4 to 6"
    )


def test_strict_ends_at_the_damage(path):
    pieces = cut(path)
    del pieces[3]
    path.write_bytes(b"".join(pieces))
    entries = read_recording(path).items(strict=True)
    assert [next(entries).sequence for _ in range(3)] == [1, 2, 3]
    with pytest.raises(TrimtabError, match=r"block 2 at byte \d+: 1 of its blocks are missing; lost: .* 4 to 6"):
        next(entries)


def test_strict_takes_a_recording_that_is_being_made(tmp_path):
    writer = create_recording(tmp_path / "a", HEADER)
    writer.add(stored(1))
    writer.flush()
    assert [type(entry) for entry in read_recording(tmp_path / "a").items(strict=True)] == [Stored, Damage]
    writer.abandon()


@pytest.mark.parametrize("gone", [1, 2, 3, 4, 5])
def test_a_removed_block_is_found(path, gone):
    pieces = cut(path)
    assert len(pieces) == 7
    del pieces[gone + 1]
    path.write_bytes(b"".join(pieces))
    [damage] = damages(path)
    if gone == 5:  # the one that closed it
        assert (damage.kind, damage.block, damage.before) == ("unclosed", 5, {A: 12})
        return
    first = 3 * gone - 2
    assert (damage.kind, damage.block) == ("missing", gone)
    assert damage.after == {A: first + 3}
    assert first not in sequences(path)


def test_a_removed_header_makes_it_none(path):
    pieces = cut(path)
    del pieces[1]
    path.write_bytes(b"".join(pieces))
    with pytest.raises(NotARecording, match="the first block"):
        read_recording(path)


@pytest.mark.parametrize(("one", "other"), [(a, b) for a in range(1, 6) for b in range(a + 1, 6)])
def test_swapped_blocks_are_found_and_no_message_comes_twice_or_out_of_order(path, one, other):
    pieces = cut(path)
    pieces[one + 1], pieces[other + 1] = pieces[other + 1], pieces[one + 1]
    path.write_bytes(b"".join(pieces))
    assert {"missing", "misplaced"} <= {damage.kind for damage in damages(path)}
    read = [number for number in sequences(path) if isinstance(number, int)]
    assert read == sorted(set(read))


def test_a_doubled_block_is_found(path):
    pieces = cut(path)
    path.write_bytes(b"".join([*pieces[:4], pieces[3], *pieces[4:]]))
    assert sequences(path) == [*range(1, 7), "misplaced", *range(7, 13)]


def test_a_block_of_another_recording_is_found(path, tmp_path):
    other = write(tmp_path / "other", *[[stored(n, payload=b"lie")] for n in (1, 4, 7, 10)])
    pieces = cut(path)
    pieces[3] = cut(other)[3]
    path.write_bytes(b"".join(pieces))
    assert [damage.kind for damage in damages(path)] == ["changed", "changed"]


def test_a_message_taken_out_of_a_block_that_was_made_anew_is_found(path):
    pieces = cut(path)
    with path.open("rb") as file:
        reader = Blocks(file, path)
        taken = [reader.take() for _ in range(3)]
    made, _, _ = encode_block(2, taken[2].previous, {A: 3}, [stored(4), stored(6)])
    pieces[3] = made
    path.write_bytes(b"".join(pieces))
    assert [damage.kind for damage in damages(path)] == ["changed"]


ALL_NODES = msgspec.structs.replace(HEADER, node=None)


def test_a_message_that_was_never_written_is_missed(tmp_path):
    with create_recording(tmp_path / "a", ALL_NODES) as writer:
        for item in (stored(1), stored(7, B), stored(2), stored(8, B), stored(4), stored(9, B)):
            writer.add(item)
    assert sequences(tmp_path / "a") == [1, 7, 2, 8, "missing", 4, 9]
    [damage] = damages(tmp_path / "a")
    assert str(damage).endswith(f"1 messages are missing, and no gap says why; lost: {A} 3")


@pytest.mark.parametrize("item", [stored(3), Gap(stream=A, first=3, last=3, exact=True, reason="gone")])
def test_a_message_or_a_gap_in_its_place_misses_nothing(tmp_path, item):
    with create_recording(tmp_path / "a", ALL_NODES) as writer:
        for each in (stored(2), item, stored(4)):
            writer.add(each)
    assert damages(tmp_path / "a") == []


def test_of_one_node_other_numbers_are_not_missed(tmp_path):
    assert damages(write(tmp_path / "a", [stored(1), stored(4)], [stored(9)])) == []


@pytest.mark.parametrize("header", [HEADER, ALL_NODES])
def test_a_message_that_comes_twice_or_too_late_is_left_out(tmp_path, header):
    with create_recording(tmp_path / "a", header) as writer:
        for item in (stored(4), stored(5), stored(5), stored(2), stored(6)):
            writer.add(item)
            writer.tracker.last[A] = max(writer.tracker.last[A], 5 if item.sequence > 4 else 4)
    assert sequences(tmp_path / "a")[:2] == [4, 5]
    assert sequences(tmp_path / "a").count(5) == 1
    assert {damage.kind for damage in damages(tmp_path / "a")} >= {"misplaced"}


def test_a_recording_made_anew_without_a_block_is_found(tmp_path):
    """All digests and numbers are right; only what the next block knows of the one before is not."""
    path, previous, raw = tmp_path / "a", blocks.SEED, START
    parts = [({}, [HEADER]), ({}, [stored(1)]), ({A: 2}, [stored(3)]), ({A: 3}, [Closed(messages={A: 2})])]
    for number, (positions, items) in enumerate(parts):
        made, previous, _ = encode_block(number, previous, positions, items)
        raw += made
    path.write_bytes(raw)
    assert sequences(path) == [1, "changed", 3]
    assert (damages(path)[0].before, damages(path)[0].after) == ({A: 1}, {A: 3})


@pytest.mark.parametrize("left", [0.1, 0.5, 0.99])
def test_a_torn_last_block_is_told(path, left):
    pieces = cut(path)
    path.write_bytes(b"".join(pieces[:5]) + pieces[5][: int(left * len(pieces[5]))])
    assert sequences(path) == [*range(1, 10), "torn"]
    [damage] = damages(path)
    assert (damage.block, damage.before, damage.after) == (4, {A: 9}, {})


def test_two_damages_in_a_row_are_one(path):
    pieces = cut(path)
    for index in (3, 4):
        pieces[index] = bytes(len(pieces[index]))
    path.write_bytes(b"".join(pieces))
    assert sequences(path) == [1, 2, 3, "changed", 10, 11, 12]
    assert damages(path)[0].after == {A: 10}


def test_what_was_lost_of_each_stream_is_told(tmp_path):
    path = write(tmp_path / "a", [stored(1), stored(8, B)], [stored(2), stored(9, B), stored(3)], [stored(4)])
    pieces = cut(path)
    del pieces[3]
    path.write_bytes(b"".join(pieces))
    assert damages(path)[0].reason == "1 of its blocks are missing"
    assert str(damages(path)[0]).endswith(f"lost: {A} 2 to 3, {B} 9")


# ---- what is no recording --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "is empty"),
        (b"\x89TT", "is no recording"),
        (b'{"at": 1}\n' * 10, "is no recording"),
        (START[:11] + b"\x02" + START[12:], "is of format 2, this release reads 1"),
        (START[:11] + b"\x00" + START[12:], "damaged"),
        (START[:15] + b"\x01", "damaged"),
        (START, "the first block"),
        (START + b"\xd7TTB" + b"\xff" * 200, "the first block"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path, raw, why):
    (tmp_path / "a").write_bytes(raw)
    with pytest.raises(NotARecording, match=why):
        read_recording(tmp_path / "a")


def test_a_file_that_cannot_be_opened_is_told(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read_recording(tmp_path / "none")
    with pytest.raises(ConfigError, match="Is a directory"):
        read_recording(tmp_path)


# ---- what is meant to hurt -------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch):
    monkeypatch.setattr(blocks, "MAX_CONTENT_BYTES", 4 << 20)


def forged(path: Path, payload: bytes, kind: int = blocks.ITEMS) -> None:
    """The third block holds `payload`; all digests are right."""
    pieces = cut(path)
    with path.open("rb") as file:
        reader = Blocks(file, path)
        taken = [reader.take() for _ in range(5)]
    signed = blocks._HEAD.pack(blocks.SYNC, 2, len(payload), kind, taken[2].previous, b"")[: blocks._SIGNED_BYTES]
    digest = blocks._digest(signed, payload)
    pieces[3] = signed + digest + payload
    following = blocks._HEAD.pack(blocks.SYNC, 3, len(taken[3].payload), 1, digest, b"")[: blocks._SIGNED_BYTES]
    pieces[4] = following + blocks._digest(following, taken[3].payload) + taken[3].payload
    path.write_bytes(b"".join(pieces))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (zlib.compress(bytes((4 << 20) + 1)), "inflates to more than"),
        (zlib.compress(b"\x92\x80\x90") + b"more", "no whole zlib stream"),
        (zlib.compress(b"\x92\x80\x90")[:-2], "no whole zlib stream"),
        (b"no zlib", "content cannot be read"),
        (zlib.compress(b"\x92\x80\x91\x92\xa7unknown\x01"), "content cannot be read"),
        (zlib.compress(b"\x91" * 100_000), "content cannot be read"),
        (zlib.compress(b"\x92\x80\xdd\xff\xff\xff\xff"), "content cannot be read"),
        (zlib.compress(b"\x92\x81\xa1A\xa1B\x90"), "content cannot be read"),
    ],
)
def test_content_that_no_recorder_wrote_costs_its_block(path, payload, why):
    forged(path, payload)
    first = damages(path)[0]
    assert (first.kind, first.block, first.before, first.after) == ("unreadable", 2, {A: 3}, {A: 7})
    assert why in first.reason
    assert sequences(path)[:6] == [1, 2, 3, "unreadable", 7, 8]


def test_a_block_of_a_kind_to_come_costs_its_block(path):
    forged(path, zlib.compress(b"\x92\x80\x90"), kind=2)
    assert "kind 2" in damages(path)[0].reason


def test_a_length_that_is_absurd_costs_its_block(path):
    pieces = cut(path)
    pieces[3] = pieces[3][:8] + b"\xff\xff\xff\xff" + pieces[3][12:]
    path.write_bytes(b"".join(pieces))
    assert sequences(path) == [1, 2, 3, "changed", *range(7, 13)]
    assert "limit" in damages(path)[0].reason


def test_a_length_beyond_the_end_costs_its_block(path):
    pieces = cut(path)
    pieces[3] = pieces[3][:8] + b"\x00\x10\x00\x00" + pieces[3][12:]
    path.write_bytes(b"".join(pieces))
    assert sequences(path) == [1, 2, 3, "changed", *range(7, 13)]


def test_sync_marks_in_the_messages_are_no_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "_SCAN_BYTES", 100)
    monkeypatch.setattr(blocks, "_LEVEL", 0)
    parts = [[stored(n, payload=blocks.SYNC * 300)] for n in range(1, 5)]
    path = write(tmp_path / "a", *parts)
    pieces = cut(path)
    pieces[3] = b"?" + pieces[3][1:]
    path.write_bytes(b"".join(pieces))
    assert sequences(path) == [1, "changed", 3, 4]


@given(st.binary(max_size=400))
def test_whatever_follows_the_header_is_never_an_exception(tmp_path_factory, junk):
    path = tmp_path_factory.mktemp("junk") / "a"
    create_recording(path, HEADER).abandon()
    with path.open("ab") as file:
        file.write(junk)
    assert all(isinstance(entry, Damage) for entry in read_recording(path).items())


# ---- going on --------------------------------------------------------------------------------------------------------


def test_a_closed_recording_is_gone_on_with(path):
    writer, torn = resume_recording(path)
    assert torn is None
    assert writer.header == HEADER
    assert (writer.position(A), writer.position(B)) == (12, 0)
    assert writer.tracker.messages == {A: 12}
    with writer:
        writer.add(stored(13))
    assert sequences(path) == list(range(1, 14))
    assert list(read_recording(path).items())[-1] == Closed(messages={A: 13})


@pytest.mark.parametrize("left", [1, 30, 79, -1])
def test_a_torn_last_block_is_cut_off_and_gone_on_from(path, left):
    pieces = cut(path)
    path.write_bytes(b"".join(pieces[:5]) + pieces[5][:left])
    writer, torn = resume_recording(path)
    assert "block 4" in torn
    assert writer.position(A) == 9
    with writer:
        writer.add(Gap(stream=A, first=10, last=20, exact=True, reason="gone"))
        writer.add(stored(21))
    assert sequences(path) == [*range(1, 10), (10, 20), 21]


def test_of_a_torn_block_nothing_is_left(path):
    with path.open("ab") as file:
        file.write(blocks.SYNC + bytes(100_000))
    writer, torn = resume_recording(path)
    assert torn is not None
    with writer:
        writer.add(stored(13))
    assert sequences(path) == list(range(1, 14))


def test_a_recording_that_is_damaged_before_its_end_is_not_gone_on_with(path):
    pieces = cut(path)
    pieces[3] = bytes(len(pieces[3]))
    raw = b"".join(pieces)
    path.write_bytes(raw)
    with pytest.raises(TrimtabError, match=r"block 2 .*name another file"):
        resume_recording(path)
    assert path.read_bytes() == raw


def test_an_unreadable_last_block_is_not_cut_off(path):
    forged(path, b"no zlib")
    raw = b"".join(cut(path)[:4])
    path.write_bytes(raw)
    with pytest.raises(TrimtabError, match="name another file"):
        resume_recording(path)
    assert path.read_bytes() == raw


def test_models_and_settings_of_a_file_are_known_when_it_is_gone_on_with(tmp_path):
    more = Settings(values={}, fingerprints={"guard": "other"})
    header = msgspec.structs.replace(HEADER, settings=(more,))
    path = write(tmp_path / "a", [ModelCopy(digest="d", payload=b"x"), ModelCopy(digest="e", reason="gone"), header])
    writer, _ = resume_recording(path)
    assert writer.models == {"d"}
    assert writer.settings == [*HEADER.settings, more]
    writer.abandon()


def test_two_recorders_do_not_share_a_file(path):
    writer, _ = resume_recording(path)
    with pytest.raises(TrimtabError, match="another process"):
        resume_recording(path)
    writer.abandon()


def test_a_new_recording_takes_the_place_of_nothing(path):
    with pytest.raises(ConfigError, match="File exists"):
        create_recording(path, HEADER)


def test_a_recording_ended_by_an_error_is_not_closed(tmp_path):
    def fails() -> None:
        with create_recording(tmp_path / "a", HEADER) as writer:
            writer.add(stored(1))
            writer.flush()
            writer.add(stored(2))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert sequences(tmp_path / "a") == [1, "unclosed"]


def test_a_full_disk_is_told_and_leaves_no_half_block(path, monkeypatch):
    writer, _ = resume_recording(path)
    writer.add(stored(13))
    size = path.stat().st_size

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lab.record.writer.os.fsync", full)
    with pytest.raises(TrimtabError, match=r"No space left on device; make room"):
        writer.flush()
    writer.abandon()
    assert path.stat().st_size == size


def test_what_is_too_large_for_any_reader_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "MAX_CONTENT_BYTES", 100_000)
    writer = create_recording(tmp_path / "a", HEADER)
    writer.add(stored(1))
    with pytest.raises(TrimtabError, match="the limit is"):
        writer.add(ModelCopy(digest="d", payload=bytes(600_000)))
    writer.abandon()
    assert sequences(tmp_path / "a") == ["unclosed"]
