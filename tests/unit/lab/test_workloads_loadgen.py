import argparse
import asyncio
import os

import pytest

from lab.workloads.loadgen import Target, resolve_target, schedule, until_told
from lab.workloads.process import WorkloadError, number, whole


def test_a_target_is_an_address_and_the_bytes_of_a_request():
    assert resolve_target("http://127.0.0.1:8080/work?x=1", allow_remote=False) == Target(
        ("127.0.0.1", 8080), b"GET /work?x=1 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n"
    )


@pytest.mark.parametrize("url", ["http://10.0.0.7:8080/", "http://0.0.0.0:8080/", "http://[2001:db8::1]:80/"])
def test_a_target_on_another_machine_needs_to_be_allowed(url):
    with pytest.raises(WorkloadError, match="--allow-remote"):
        resolve_target(url, allow_remote=False)


def test_a_remote_target_that_is_allowed_is_taken():
    assert resolve_target("http://192.0.2.7:8080/", allow_remote=True).address == ("192.0.2.7", 8080)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "127.0.0.1:80",
        "https://127.0.0.1/",
        "http:///work",
        "http://127.0.0.1:99999/",
        "http://127.0.0.1/a b",
        "http://127.0.0.1/\r\nX: y",
    ],
)
def test_what_is_no_plain_http_url_is_refused(url):
    with pytest.raises(WorkloadError):
        resolve_target(url, allow_remote=False)


def test_a_bad_schedule_is_a_bad_flag():
    with pytest.raises(argparse.ArgumentTypeError, match="not SECONDS:RATE"):
        schedule("fast")


@pytest.mark.parametrize("text", ["nan", "inf", "-1", "10.1", "x", ""])
def test_a_number_flag_takes_only_numbers_within_its_bounds(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a number from 0 to 10"):
        number(0, 10)(text)


@pytest.mark.parametrize("text", ["1.5", "-1", "11", "x"])
def test_a_whole_flag_takes_only_whole_numbers_within_its_bounds(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not a whole number from 0 to 10"):
        whole(0, 10)(text)


def test_the_bounds_themselves_are_allowed():
    assert (number(0, 10)("0"), number(0, 10)("10"), whole(0, 10)("0"), whole(0, 10)("10")) == (0.0, 10.0, 0, 10)


@pytest.mark.parametrize("end", ["a line", "the end of stdin", "a signal to stop"])
async def test_a_generator_that_waits_for_stdin_begins_at_a_line_or_its_end_or_stops(end, monkeypatch):
    reader, writer = os.pipe()
    stop = asyncio.Event()
    with os.fdopen(reader) as stdin, os.fdopen(writer, "w") as told:
        monkeypatch.setattr("sys.stdin", stdin)
        waiting = asyncio.ensure_future(until_told(stop))
        assert await asyncio.wait({waiting}, timeout=0.05) == (set(), {waiting})
        if end == "a line":
            told.write("begin\n")
            told.flush()
        elif end == "the end of stdin":
            told.close()
        else:
            stop.set()
        async with asyncio.timeout(10):
            await waiting
