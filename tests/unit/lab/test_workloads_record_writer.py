import pytest

from lab.latency_records import RequestRecord, WorkRecord, read_requests, read_work
from lab.workloads.process import WorkloadError
from lab.workloads.record_writer import MAX_BUFFERED_LINES, RecordWriter


def test_what_is_written_is_what_is_read(tmp_path):
    writer = RecordWriter(tmp_path / "requests")
    writer.add_request(1_700_000_000.25, 0.0125, "ok")
    writer.add_request(1_700_000_001.5, 10.0, "timeout")
    writer.close()
    log = read_requests(tmp_path / "requests")
    assert log.skipped_lines == 0
    assert log.records == [
        RequestRecord(1_700_000_000.25, 0.0125, "ok"),
        RequestRecord(1_700_000_001.5, 10.0, "timeout"),
    ]


def test_work_is_read_back(tmp_path):
    writer = RecordWriter(tmp_path / "work")
    writer.add_work(1_700_000_000.5, 12)
    writer.close()
    assert read_work(tmp_path / "work").records == [WorkRecord(1_700_000_000.5, 12)]


def test_lines_reach_the_file_only_with_a_flush_or_a_full_buffer(tmp_path):
    path = tmp_path / "requests"
    writer = RecordWriter(path)
    writer.add_request(1.0, 0.1, "ok")
    assert path.read_bytes() == b""
    writer.flush()
    assert path.read_bytes() == b'[1.000000,0.100000,"ok"]\n'
    for _ in range(MAX_BUFFERED_LINES):
        writer.add_request(1.0, 0.1, "ok")
    assert len(read_requests(path).records) == MAX_BUFFERED_LINES + 1
    writer.close()


def test_a_line_that_an_earlier_writer_left_cut_does_not_swallow_the_next_one(tmp_path):
    path = tmp_path / "requests"
    path.write_bytes(b'[1.0,0.1,"ok"]\n[2.0,0.')
    writer = RecordWriter(path)
    writer.add_request(3.0, 0.3, "ok")
    writer.close()
    log = read_requests(path)
    assert [record.scheduled_unix_seconds for record in log.records] == [1.0, 3.0]
    assert log.skipped_lines == 1


def test_without_a_path_nothing_is_kept():
    writer = RecordWriter(None)
    writer.add_request(1.0, 0.1, "ok")
    writer.close()


def test_a_file_that_cannot_be_opened_is_one_line_that_names_it(tmp_path):
    with pytest.raises(WorkloadError, match=r"cannot open record file .*absent.*: No such file or directory"):
        RecordWriter(tmp_path / "absent" / "requests")


def test_a_full_disk_is_one_line_that_names_the_file(tmp_path):
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    writer = RecordWriter.__new__(RecordWriter)
    writer._lines, writer._timer, writer._file = ["x\n"], None, full.open("ab", buffering=0)
    with pytest.raises(WorkloadError, match=r"cannot write record file .*full: No space left on device"):
        writer.flush()
    writer._file.close()
