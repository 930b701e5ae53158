import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.latency_records import (
    RequestRecord,
    Summary,
    WorkRecord,
    nearest_rank,
    parse_request,
    parse_work,
    read_requests,
    read_work,
    summarise,
    work_per_second,
)


def ok(scheduled, latency):
    return RequestRecord(scheduled, latency, "ok")


def failed(scheduled, latency, status="503"):
    return RequestRecord(scheduled, latency, status)


def test_a_request_line_is_scheduled_time_latency_and_status():
    assert parse_request(b'[1700000000.5,0.012,"ok"]') == ok(1700000000.5, 0.012)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[1.0,0.1",
        b"[1.0,0.1]",
        b"[1.0,0.1,200]",
        b'[1.0,0.1,"ok",1]',
        b'["1.0",0.1,"ok"]',
        b'[true,0.1,"ok"]',
        b'[NaN,0.1,"ok"]',
        b'[1.0,Infinity,"ok"]',
        b'[1.0,-0.1,"ok"]',
        b'{"at":1.0,"work":2}',
        b"\xff\xfe",
        b"[" * 100_000,
        b"[" + b"9" * 400 + b',0.1,"ok"]',
    ],
)
def test_what_is_no_request_line_is_none(line):
    assert parse_request(line) is None


@pytest.mark.parametrize("line", [b"", b'{"at":1.0}', b'{"at":1.0,"work":-1}', b'{"at":null,"work":1}', b"[1,2]", b"3"])
def test_what_is_no_work_line_is_none(line):
    assert parse_work(line) is None


def test_a_work_line_may_carry_more_keys():
    assert parse_work(b'{"at":2.5,"work":7,"kind":"hash"}') == WorkRecord(2.5, 7)


def test_a_cut_last_line_is_left_for_the_next_reading(tmp_path):
    path = tmp_path / "requests"
    path.write_bytes(b'[1.0,0.1,"ok"]\n[2.0,0.2,"o')
    first = read_requests(path)
    assert first.records == [ok(1.0, 0.1)]
    assert first.skipped_lines == 0
    with path.open("ab") as file:
        file.write(b'k"]\n[3.0,0.3,"ok"]\n')
    second = read_requests(path, first.next_byte)
    assert second.records == [ok(2.0, 0.2), ok(3.0, 0.3)]
    assert read_requests(path, second.next_byte).records == []


def test_a_bad_line_in_the_middle_is_skipped_and_counted(tmp_path):
    path = tmp_path / "requests"
    path.write_bytes(b'[1.0,0.1,"ok"]\ngarbage\n\n[2.0,0.2,"ok"]\n')
    log = read_requests(path)
    assert log.records == [ok(1.0, 0.1), ok(2.0, 0.2)]
    assert log.skipped_lines == 1


def test_an_absent_file_is_an_empty_one(tmp_path):
    assert read_requests(tmp_path / "absent").records == []
    assert read_work(tmp_path / "absent").records == []


@pytest.mark.parametrize(
    ("count", "percent", "expected"),
    [
        (1, 50, 1),
        (1, 99, 1),
        (2, 50, 1),
        (3, 50, 2),
        (4, 50, 2),
        (99, 99, 99),
        (100, 99, 99),
        (101, 99, 100),
        (100, 95, 95),
        (200, 99, 198),
    ],
)
def test_a_percentile_is_the_nearest_rank(count, percent, expected):
    assert nearest_rank(list(range(1, count + 1)), percent) == expected


def test_no_values_have_no_percentile():
    assert nearest_rank([], 99) is None


@given(st.lists(st.floats(0, 1e6), min_size=1), st.integers(1, 100))
def test_at_least_that_part_of_the_values_is_at_or_below_a_percentile(values, percent):
    rising = sorted(values)
    found = nearest_rank(rising, percent)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= percent * len(values)
    assert sum(value < found for value in values) * 100 < percent * len(values)


def test_a_summary_covers_what_was_scheduled_in_the_window_whenever_it_ended():
    records = [ok(9.999, 5.0), ok(10.0, 0.010), ok(19.999, 30.0), ok(20.0, 0.001)]
    summary = summarise(records, 10, 20, 0.1)
    assert summary == Summary(2, 0, pytest.approx(10.0), pytest.approx(30_000), pytest.approx(30_000), 0.5)


def test_percentiles_are_in_milliseconds():
    records = [ok(0.0, milliseconds / 1000) for milliseconds in range(1, 101)]
    assert summarise(records, 0, 1, 0.095) == Summary(
        100, 0, pytest.approx(50), pytest.approx(95), pytest.approx(99), 0.05
    )


def test_an_empty_window_has_no_numbers():
    assert summarise([ok(5.0, 0.1)], 10, 20, 0.1) == Summary(0, 0, None, None, None, None)


def test_a_latency_at_the_objective_keeps_it():
    assert summarise([ok(0.0, 0.1)], 0, 1, 0.1).violation_ratio == 0.0


def test_failing_fast_violates_and_cannot_make_a_service_look_fast():
    records = [ok(0.0, 0.5)] + [failed(0.0, 0.001)] * 9
    assert summarise(records, 0, 1, 1.0) == Summary(10, 9, 500.0, 500.0, 500.0, 0.9)


@pytest.mark.parametrize("status", ["503", "404", "timeout", "shed", "error", "cut"])
def test_every_status_but_ok_is_a_failure(status):
    assert summarise([failed(0.0, 0.0, status)], 0, 1, 1.0).failed == 1


def test_work_is_interpolated_between_records():
    records = [WorkRecord(0.0, 0), WorkRecord(1.0, 100), WorkRecord(2.0, 300)]
    assert work_per_second(records, 0.5, 1.5) == pytest.approx(150.0)  # from 50 to 200
    assert work_per_second(records, 0.0, 2.0) == pytest.approx(150.0)
    assert work_per_second(records, 1.25, 1.75) == pytest.approx(200.0)


def test_a_restarted_batch_counts_on_from_zero():
    records = [WorkRecord(0.0, 500), WorkRecord(1.0, 600), WorkRecord(2.0, 40), WorkRecord(3.0, 100)]
    assert work_per_second(records, 0.0, 3.0) == pytest.approx((100 + 40 + 60) / 3)


def test_a_batch_that_stood_still_has_a_rate_of_zero():
    assert work_per_second([WorkRecord(0.0, 5), WorkRecord(9.0, 5)], 1, 8) == 0.0


def test_a_late_writer_is_forgiven_but_a_window_without_records_has_no_rate():
    records = [WorkRecord(float(at), at * 10) for at in range(11)]
    assert work_per_second(records, 5.0, 11.5) == pytest.approx(10.0)
    assert work_per_second(records, -1.5, 5.0) == pytest.approx(10.0)
    assert work_per_second(records, 5.0, 13.0) is None
    assert work_per_second(records, -3.0, 5.0) is None
    assert work_per_second(records, 10.5, 11.5) is None
    assert work_per_second([], 0.0, 1.0) is None
    assert work_per_second(records[:1], 0.0, 1.0) is None


def test_records_from_a_clock_that_stepped_back_are_left_out():
    records = [WorkRecord(0.0, 0), WorkRecord(2.0, 200), WorkRecord(1.0, 210), WorkRecord(3.0, 300)]
    assert work_per_second(records, 0.0, 3.0) == pytest.approx(100.0)
