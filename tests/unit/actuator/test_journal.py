"""The journal's file: what it survives, what it refuses, and that it never lies about having stored something."""

import errno
import os
import zlib
from pathlib import Path

import pytest

from runtime.errors import HostError
from services.actuator.core.journal_format import header, lines_of
from services.actuator.core.records import Intend, Original, Rebase
from services.actuator.journal import Journal, boot_id
from tests.unit.actuator.world import BOOT_ID

ORIGINAL = Original(group="pod-a", identity=7, value="100\n", name="a")
INTEND = Intend(group="pod-a", values=("200",))
REBASE = Rebase(group="pod-a", value="39\n")
RECORDS = [ORIGINAL, INTEND, REBASE]


@pytest.fixture
def opened(journal):
    made = Journal(journal, BOOT_ID)
    made.open()
    yield made
    made.close()


def reread(path, boot=BOOT_ID):
    made = Journal(path, boot)
    try:
        return made.open()
    finally:
        made.close()


def filled(opened, path):
    opened.append(RECORDS, sync=True)
    opened.close()
    return path.read_bytes()


def test_a_new_journal_has_a_header_and_no_records(opened, journal):
    assert journal.read_bytes() == header(BOOT_ID)
    opened.close()
    assert reread(journal) == ([], None)


def test_a_file_that_was_emptied_is_damaged(journal):
    journal.parent.mkdir(parents=True)
    journal.write_bytes(b"")
    records, trouble = reread(journal)
    assert (records, trouble) == ([], f"{journal}: it is empty; set aside as journal.set-aside")


def test_a_whole_last_line_with_a_wrong_checksum_is_damage_and_no_tear(opened, journal):
    raw = filled(opened, journal)
    journal.write_bytes(raw[:-2] + bytes([raw[-2] ^ 1]) + raw[-1:])
    records, trouble = reread(journal)
    assert (records, "does not match its checksum" in (trouble or "")) == ([], True)


def test_records_come_back_as_they_were(opened, journal):
    filled(opened, journal)
    assert reread(journal) == (RECORDS, None)


def test_every_tear_of_the_last_line_loses_that_line_only(opened, journal):
    raw = filled(opened, journal)
    last = len(lines_of([REBASE]))
    for cut in range(1, last + 1):
        journal.write_bytes(raw[:-cut])
        assert reread(journal) == (RECORDS[:2], None)


def test_a_torn_journal_can_be_appended_to(opened, journal):
    raw = filled(opened, journal)
    journal.write_bytes(raw[:-5])
    again = Journal(journal, BOOT_ID)
    again.open()
    again.append([REBASE], sync=False)
    again.close()
    assert reread(journal) == (RECORDS, None)


def test_a_flipped_byte_anywhere_before_the_last_line_sets_the_file_aside(opened, journal):
    raw = filled(opened, journal)
    for position in range(len(raw) - len(lines_of([REBASE]))):
        if raw[position : position + 1] == b"\n":
            continue
        damaged = bytearray(raw)
        damaged[position] ^= 0x10
        journal.write_bytes(bytes(damaged))
        records, trouble = reread(journal)
        assert records == []
        assert trouble is not None
        assert str(journal) in trouble
        assert "\n" not in trouble
        aside = journal.with_suffix(".set-aside")
        assert aside.read_bytes() == bytes(damaged)
        aside.unlink()
        assert journal.read_bytes() == header(BOOT_ID)


def test_a_journal_of_another_boot_is_set_aside(opened, journal):
    filled(opened, journal)
    records, trouble = reread(journal, boot="another")
    assert records == []
    assert trouble is not None
    assert "earlier boot" in trouble
    assert [path.name for path in journal.parent.glob("*.other-boot")] == ["journal.other-boot"]
    assert list(journal.parent.glob("*.set-aside*")) == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"unheard_of","group":"pod-a"}',
        b'{"kind":"original","group":"pod-a","identity":"x","value":"100"}',
        b'{"kind":"original","group":"pod-a"}',
        b"[]",
        b"\xff",
    ],
)
def test_a_whole_line_that_is_no_record_sets_the_file_aside(journal, body):
    journal.parent.mkdir(parents=True)
    line = b"%08x %s\n" % (zlib.crc32(body), body)
    journal.write_bytes(header(BOOT_ID) + line + lines_of([ORIGINAL]))
    records, trouble = reread(journal)
    assert records == []
    assert trouble is not None
    assert "line 2" in trouble


@pytest.mark.parametrize("raw", [b"\n", b"garbage", b"garbage\n", lines_of([ORIGINAL]), bytes(range(256))])
def test_a_file_that_is_no_journal_is_set_aside(journal, raw):
    journal.parent.mkdir(parents=True)
    journal.write_bytes(raw)
    records, trouble = reread(journal)
    assert records == []
    assert trouble is not None


def test_a_damaged_file_that_cannot_be_set_aside_is_not_overwritten(journal, monkeypatch):
    journal.parent.mkdir(parents=True)
    journal.write_bytes(b"garbage\n")

    def refuse(self, target):
        raise OSError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(type(journal), "replace", refuse)
    made = Journal(journal, BOOT_ID)
    with pytest.raises(HostError, match="Permission denied"):
        made.open()
    made.close()
    assert journal.read_bytes() == b"garbage\n"


@pytest.mark.parametrize("path", ["/proc/nowhere/journal", "/dev/null/journal", "/sys/journal"])
def test_an_unwritable_path_is_one_line_that_says_the_way_out(path):
    with pytest.raises(HostError) as caught:
        reread(Path(path))
    text = str(caught.value)
    assert text.startswith(f"actuator.journal: {path}: ")
    assert "set actuator.journal to a writable path" in text
    assert "\n" not in text


def test_two_actuators_cannot_share_a_journal(opened, journal):
    with pytest.raises(HostError, match="another actuator runs on it"):
        Journal(journal, BOOT_ID).open()


def test_appending_to_a_closed_journal_is_refused(opened):
    opened.close()
    with pytest.raises(HostError, match="not open"):
        opened.append([ORIGINAL], sync=True)


@pytest.mark.parametrize("fits", [0, 1, 20, 60])
def test_a_full_disk_leaves_no_half_record_behind(opened, journal, monkeypatch, fits):
    opened.append([ORIGINAL], sync=True)
    real, left = os.write, [fits]

    def full(descriptor, block):
        if left[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done = real(descriptor, block[: left[0]])
        left[0] -= done
        return done

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(HostError, match="No space left on device"):
        opened.append([INTEND, INTEND], sync=False)
    monkeypatch.undo()
    assert opened.is_sound
    opened.append([REBASE], sync=False)  # there is room again
    opened.close()
    assert reread(journal) == ([ORIGINAL, REBASE], None)


def test_a_failing_fsync_takes_the_records_back(opened, journal, monkeypatch):
    def broken(descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(HostError, match="Input/output error"):
        opened.append([ORIGINAL], sync=True)
    monkeypatch.undo()
    opened.close()
    assert reread(journal) == ([], None)


def test_a_half_record_that_cannot_be_cut_off_ends_the_file(opened, journal, monkeypatch):
    opened.append([ORIGINAL], sync=True)
    real = os.write

    def torn(descriptor, block):
        real(descriptor, block[:10])
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    def stuck(descriptor, size):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "write", torn)
    monkeypatch.setattr(os, "ftruncate", stuck)
    with pytest.raises(HostError):
        opened.append([INTEND], sync=False)
    monkeypatch.undo()
    assert not opened.is_sound
    with pytest.raises(HostError):
        opened.append([INTEND], sync=False)
    opened.close()
    assert reread(journal) == ([ORIGINAL], None)


def test_a_journal_that_somebody_removed_is_not_sound(opened, journal):
    assert opened.is_sound
    journal.unlink()
    assert not opened.is_sound
    opened.rewrite([ORIGINAL])
    assert opened.is_sound
    opened.close()
    assert reread(journal) == ([ORIGINAL], None)


def test_a_failed_rewrite_leaves_the_old_file_in_use(opened, journal, monkeypatch):
    opened.append([ORIGINAL], sync=True)

    def broken(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(HostError):
        opened.rewrite([])
    monkeypatch.undo()
    opened.append([INTEND], sync=False)
    opened.close()
    assert reread(journal) == ([ORIGINAL, INTEND], None)


def test_the_boot_is_the_kernels_word_for_it(tree):
    assert boot_id(str(tree.proc)) == BOOT_ID
    assert boot_id("/nowhere") == "unknown"


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS])
def test_i4_a_journal_that_can_only_be_read_still_says_what_belongs_back(opened, journal, monkeypatch, number):
    """The disk filled up or turned read-only, and the actuator was killed: the originals must be found all the same."""
    filled(opened, journal)
    real = os.open

    def refuses(path, flags, *args, **fields):
        if number == errno.EROFS and flags & (os.O_RDWR | os.O_WRONLY | os.O_CREAT):
            raise OSError(number, os.strerror(number))
        return real(path, flags, *args, **fields)

    def broken(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuses)
    monkeypatch.setattr(os, "fsync", broken)
    again = Journal(journal, BOOT_ID)
    records, trouble = again.open()
    assert trouble is None
    assert records == RECORDS
    assert not again.is_sound
    with pytest.raises(HostError):
        again.append([ORIGINAL], sync=True)
    with pytest.raises(HostError, match="another actuator runs on it"):
        Journal(journal, BOOT_ID).open()
    again.close()


def test_a_new_journal_on_a_disk_without_room_is_refused(tmp_path, monkeypatch):
    def broken(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", broken)
    with pytest.raises(HostError, match="No space left on device"):
        Journal(tmp_path / "journal", BOOT_ID).open()


def test_what_was_set_aside_once_is_never_written_over_by_a_second_damage(journal):
    """The first of them may hold the only true originals."""
    journal.parent.mkdir(parents=True, exist_ok=True)
    for number in range(20):
        journal.write_bytes(b"damage %d\n" % number)
        assert reread(journal)[1] is not None
    aside = sorted(journal.parent.glob("*.set-aside*"))
    assert journal.with_suffix(".set-aside").read_bytes() == b"damage 0\n"
    assert len(aside) == 16
