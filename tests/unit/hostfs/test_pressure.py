"""Pressure texts, and the several ways of having none."""

import errno
import os

import pytest

from hostfs.pressure import (
    Pressure,
    PressureAbsent,
    PressureLine,
    absent_because,
    parse_pressure,
    pressure_in,
    read_pressure,
)

BOTH = "some avg10=1.50 avg60=0.75 avg300=0.20 total=482133901\nfull avg10=0.10 avg60=0.00 avg300=0.00 total=1200\n"


def test_both_lines_are_read():
    assert parse_pressure(BOTH) == Pressure(
        some=PressureLine(1.5, 0.75, 0.2, 482_133_901), full=PressureLine(0.1, 0.0, 0.0, 1200)
    )


def test_st_03_a_text_without_a_full_line_is_complete():
    pressure = parse_pressure("some avg10=1.50 avg60=0.75 avg300=0.20 total=482133901\n")
    assert pressure == Pressure(some=PressureLine(1.5, 0.75, 0.2, 482_133_901), full=None)


def test_fields_that_a_later_kernel_adds_are_ignored():
    pressure = parse_pressure("some avg10=1.50 avg60=0.75 avg300=0.20 avg900=0.10 total=7\n")
    assert pressure is not None
    assert pressure.some == PressureLine(1.5, 0.75, 0.2, 7)


def test_lines_that_a_later_kernel_adds_are_ignored():
    extra = "most avg10=9.00 avg60=9.00 avg300=9.00 total=9\nsomebody avg10=9.00 avg60=9.00 avg300=9.00 total=9\n\n"
    assert parse_pressure(extra + BOTH + extra) == parse_pressure(BOTH)


def test_fields_in_another_order_and_words_without_a_value_do_no_harm():
    pressure = parse_pressure("some total=7 new avg300=0.20  avg60=0.75 unit=usec avg10=1.50\n")
    assert pressure == Pressure(some=PressureLine(1.5, 0.75, 0.2, 7))


def test_a_full_line_that_makes_no_sense_costs_itself_only():
    pressure = parse_pressure("some avg10=1.50 avg60=0.75 avg300=0.20 total=7\nfull avg10=x total=1\n")
    assert pressure == Pressure(some=PressureLine(1.5, 0.75, 0.2, 7), full=None)


@pytest.mark.parametrize(
    "text",
    [
        f"some avg10=1.50 avg60=0.75 avg300=0.20 total={2**64}\n",
        "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n",
        "some avg10=1.50 avg60=0.75 avg300=0.20\n",
        "some avg10=nan avg60=0.75 avg300=0.20 total=1\n",
        "some avg10=inf avg60=0.75 avg300=0.20 total=1\n",
        "some avg10=-0.1 avg60=0.75 avg300=0.20 total=1\n",
        "some avg10=1.50 avg60=0.75 avg300=0.20 total=-1\n",
        "0\n",
    ],
)
def test_without_a_complete_some_line_there_is_no_pressure(text):
    assert parse_pressure(text) is None
    assert pressure_in(text) == PressureAbsent("malformed")


def test_st_02_a_pressure_that_is_off_is_absent_and_says_how_to_get_it():
    absent = absent_because(OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP)))
    assert absent == PressureAbsent("psi_off")
    assert absent.lacks_capability
    assert "psi=1" in (absent.remedy or "")


def test_st_02_b_a_missing_pressure_file_is_a_missing_capability(tmp_path):
    absent = read_pressure(str(tmp_path / "cpu.pressure"))
    assert absent == PressureAbsent("psi_missing")
    assert absent.lacks_capability


@pytest.mark.parametrize(
    ("number", "reason"), [(errno.ENODEV, "vanished"), (errno.EACCES, "unreadable"), (errno.EIO, "unreadable")]
)
def test_other_failures_say_nothing_about_the_kernels_capability(number, reason):
    absent = absent_because(OSError(number, os.strerror(number)))
    assert absent.reason == reason
    assert not absent.lacks_capability


def test_cg_07_c_an_empty_pressure_file_is_a_group_that_is_going_away(tmp_path):
    (tmp_path / "cpu.pressure").write_text("")
    assert read_pressure(str(tmp_path / "cpu.pressure")) == PressureAbsent("vanished")


def test_a_file_is_read(tmp_path):
    (tmp_path / "cpu.pressure").write_text(BOTH)
    assert read_pressure(str(tmp_path / "cpu.pressure")) == parse_pressure(BOTH)


def test_a_folder_in_the_files_place_is_unreadable(tmp_path):
    assert read_pressure(str(tmp_path)) == PressureAbsent("unreadable")
