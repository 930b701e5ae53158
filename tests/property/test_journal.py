"""The journal for every history and every damage: what comes back is a beginning of what was written, or nothing."""

from hypothesis import given
from hypothesis import strategies as st

from services.actuator.core.journal_format import JournalDamaged, header, lines_of, records_of
from services.actuator.core.ledger import Ledger, ledger_of
from services.actuator.core.records import Intend, Original, Rebase

BOOT = "boot-1"
groups = st.one_of(st.sampled_from(["pod-a", "burstable/pod-b"]), st.text(max_size=8))
values = st.one_of(st.sampled_from(["100\n", "39\n", "200"]), st.text(max_size=6))
records = st.one_of(
    st.builds(Original, group=groups, identity=st.integers(0, 2**64 - 1), value=values, name=st.text(max_size=5)),
    st.builds(Intend, group=groups, values=st.lists(values, max_size=3).map(tuple)),
    st.builds(Rebase, group=groups, value=values),
)
histories = st.lists(records, max_size=8)


def stored(history):
    return header(BOOT) + lines_of(history)


@given(histories)
def test_what_is_written_comes_back(history):
    assert records_of(stored(history), BOOT) == history


@given(histories, st.data())
def test_a_file_cut_anywhere_gives_the_records_that_were_whole(history, data):
    raw = stored(history)
    cut = data.draw(st.integers(len(header(BOOT)), len(raw)))
    found = records_of(raw[:cut], BOOT)
    assert found == history[: len(found)]
    whole = max(n for n in range(len(history) + 1) if len(stored(history[:n])) <= cut)
    assert len(found) == whole


@given(histories, st.data())
def test_a_flipped_bit_is_noticed_or_costs_the_end_of_the_file_only(history, data):
    raw = bytearray(stored(history))
    position = data.draw(st.integers(0, len(raw) - 1))
    raw[position] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = records_of(bytes(raw), BOOT)
    except JournalDamaged:
        return
    assert found == history[: len(found)]
    assert len(found) >= len(history) - 2  # a newline that was flipped joins the last two lines


@given(st.binary(max_size=200))
def test_any_bytes_give_records_or_say_that_they_are_damaged(raw):
    said = ""
    try:
        assert records_of(raw, BOOT) == []
    except JournalDamaged as error:
        said = str(error)
    assert "\n" not in said


@given(histories)
def test_another_boot_is_never_believed(history):
    try:
        records_of(stored(history), "boot-2")
    except JournalDamaged:
        return
    raise AssertionError("believed")


@given(histories)
def test_the_compacted_journal_means_the_same(history):
    ledger = ledger_of(history)
    again = ledger_of(ledger.records())
    assert again.entries == ledger.entries


@given(histories, histories)
def test_the_ledger_is_the_sum_of_its_records_whenever_they_come(first, second):
    live = Ledger()
    for record in [*first, *second]:
        live.take(record)
    resumed = ledger_of(ledger_of(first).records())
    for record in second:
        resumed.take(record)
    assert resumed.entries == live.entries
