import io
import json
import logging

import pytest

from runtime.logs import get_log, set_up
from runtime.settings import LogSettings


@pytest.fixture(autouse=True)
def logging_as_before():
    root, nats = logging.getLogger(), logging.getLogger("nats")
    before = root.handlers[:], root.level, nats.level
    yield
    root.handlers[:], root.level = before[0], before[1]
    nats.setLevel(before[2])


def written(log_format: str, write, level: str = "info") -> str:
    stream = io.StringIO()
    set_up(LogSettings(level=level, format=log_format), stream)
    write(get_log("guard", node="n1"))
    return stream.getvalue()


def test_a_json_line_holds_event_level_time_and_every_field():
    line = json.loads(written("json", lambda log: log.bind(cycle=17).warning("blind", seconds=2.5, pods=("a",))))
    assert line.pop("at").endswith("Z")
    assert line == {
        "level": "warning",
        "event": "blind",
        "service": "guard",
        "node": "n1",
        "cycle": 17,
        "seconds": 2.5,
        "pods": ["a"],
    }


def test_off_a_terminal_auto_means_json():
    assert json.loads(written("auto", lambda log: log.info("started")))["event"] == "started"


def test_a_console_line_is_short():
    text = written("console", lambda log: log.error("write_failed", group="g", errno=22))
    assert text.split(" ", 1)[1] == "E guard     write_failed group=g errno=22\n"


@pytest.mark.parametrize(("level", "events"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_the_level_is_kept(level, events):
    def write(log):
        log.debug("a")
        log.info("b")
        log.warning("c")
        log.error("d")

    assert len(written("json", write, level).splitlines()) == events


@pytest.mark.parametrize(
    "value",
    ["two\nlines", "\ud800", 2**70, float("nan"), b"\xff", {1: 2}, object()],
    ids=["lines", "surrogate", "large", "nan", "bytes", "mapping", "object"],
)
@pytest.mark.parametrize("log_format", ["json", "console"])
def test_any_field_costs_one_line_and_no_error(log_format, value, capsys):
    text = written(log_format, lambda log: log.info("event", detail=value))
    assert len(text.splitlines()) == 1
    assert "event" in text
    assert capsys.readouterr().err == ""


def test_a_field_cannot_take_the_place_of_the_events_own():
    line = json.loads(written("json", lambda log: log.info("started", level="loud", at="noon")))
    assert line["level"] == "info"
    assert line["at"] != "noon"


def test_other_libraries_are_logged_in_the_same_form():
    line = json.loads(written("json", lambda _: logging.getLogger("kubernetes").warning("odd %s", "thing")))
    assert (line["event"], line["logger"]) == ("odd thing", "kubernetes")


def test_an_exception_stays_with_its_line():
    def write(_):
        try:
            raise ValueError("nonsense")
        except ValueError:
            logging.getLogger("asyncio").exception("failed")

    assert "ValueError: nonsense" in json.loads(written("json", write))["exception"]


def test_na_01_the_clients_own_complaints_about_connections_stay_quiet():
    assert written("json", lambda _: logging.getLogger("nats.aio.client").error("refused")) == ""
