"""Reading a kernel file whole."""

import errno
import os

import pytest

from hostfs import files
from hostfs.files import read_at, read_text


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 200_000])
def test_a_file_of_any_size_is_read_to_its_end(tmp_path, size):
    text = ("0123456789\n" * (size // 11 + 1))[:size]
    (tmp_path / "file").write_text(text)
    assert read_text(str(tmp_path / "file")) == text


def test_short_reads_are_not_the_end(tmp_path):
    read_end, write_end = os.pipe()
    os.write(write_end, b"version 15\n")
    pieces = []
    real = os.read

    def read_then_feed(fd, size):
        if not pieces:
            pieces.append(real(fd, size))
            os.write(write_end, b"cpu0 1\n")
            os.close(write_end)
            return pieces[0]
        return real(fd, size)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files.os, "read", read_then_feed)
        assert read_text(f"/proc/self/fd/{read_end}") == "version 15\ncpu0 1\n"
    os.close(read_end)


def test_bytes_that_are_no_text_survive(tmp_path):
    (tmp_path / "file").write_bytes(b"\xff\n")
    assert os.fsencode(read_text(str(tmp_path / "file"))) == b"\xff\n"


def test_a_file_without_end_is_refused():
    with pytest.raises(OSError) as error:
        read_text("/dev/zero")
    assert error.value.errno == errno.EFBIG


def test_a_link_is_not_read_through_a_folder(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "link").symlink_to("file")
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        assert read_at("file", folder) == "text"
        with pytest.raises(OSError) as error:
            read_at("link", folder)
    finally:
        os.close(folder)
    assert error.value.errno == errno.ELOOP
