"""What `trimtab doctor` says of a kernel's signals."""

import pytest

from cli.doctor import _pressure

LINE = "some avg10=1.50 avg60=0.75 avg300=0.20 total=482133901\n"


@pytest.fixture
def proc(tmp_path):
    (tmp_path / "pressure").mkdir()
    (tmp_path / "self").mkdir()
    return tmp_path


def test_pressure_that_is_on_is_well(proc):
    (proc / "pressure/cpu").write_text(LINE)
    assert (_pressure(str(proc)).status, _pressure(str(proc)).remedy) == ("ok", None)


@pytest.mark.parametrize(
    ("schedstat", "words"),
    [
        ("5000000 120 3\n", "the waits of single tasks stand in for it"),
        ("0 0 0\n", "only the run queue is left"),
        (None, "only the run queue is left"),
    ],
)
def test_st_02_without_pressure_it_says_what_stands_in_and_how_to_get_it(proc, schedstat, words):
    if schedstat is not None:
        (proc / "self/schedstat").write_text(schedstat)
    check = _pressure(str(proc))
    assert (check.status, words in check.found) == ("note", True)
    assert "CONFIG_PSI" in (check.remedy or "")
