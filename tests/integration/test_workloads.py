"""The workloads as processes: readiness, flags, signals, and that both ends of a request agree."""

import asyncio
import contextlib
import itertools
import json
import os
import select
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from lab.latency_records import read_requests, read_work, summarise

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 30


@contextlib.asynccontextmanager
async def workload(name, *flags):
    """A started workload and its readiness line; it and its children are killed at the end whatever happens."""
    children = []
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"lab.workloads.{name}",
        *map(str, flags),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = await process.stdout.readline()
        assert line, await process.stderr.read()
        ready = json.loads(line)
        children = [os.pidfd_open(pid) for pid in ready.get("children", ())]
        yield process, ready
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(child, signal.SIGKILL)
            os.close(child)
        async with asyncio.timeout(PATIENCE_SECONDS):
            await process.communicate()


async def outcome(process):
    async with asyncio.timeout(PATIENCE_SECONDS):
        stdout, stderr = await process.communicate()
    return process.returncode, stdout, stderr


async def terminate(process):
    process.terminate()
    return await outcome(process)


async def scrape(port):
    def read():
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS) as response:
            return response.read().decode()

    text = await asyncio.to_thread(read)
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


async def run_to_end(name, *flags):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"lab.workloads.{name}",
        *map(str, flags),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    return await outcome(process)


async def until_written(path, reader, count):
    """Wait until the file holds that many records; the writers flush on timers of their own."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(reader(path).records) < count:
            await asyncio.sleep(0.02)


async def test_what_the_generator_recorded_is_what_the_api_measured(tmp_path):
    record = tmp_path / "requests"
    async with workload("api", "--work-ms", 1, "--workers", 2) as (api, api_ready):
        assert api_ready["pid"] == api.pid
        target = f"http://127.0.0.1:{api_ready['port']}/work"
        flags = ("--target", target, "--rate", 40, "--duration", 2, "--seed", 3, "--record", record)
        async with workload("loadgen", *flags) as (loadgen, _):
            code, stdout, stderr = await outcome(loadgen)
        assert (code, stderr) == (0, b"")
        totals = json.loads(stdout)
        log = read_requests(record)
        assert log.skipped_lines == 0
        assert len(log.records) == totals["requests"] > 40
        answered = sum(request.is_ok for request in log.records)
        assert answered == totals["statuses"]["ok"] == len(log.records)
        metrics = await scrape(api_ready["port"])
        assert metrics['http_request_duration_seconds_count{route="/work"}'] == answered
        assert metrics["http_requests_rejected_total"] == 0
        summary = summarise(log.records, 0, float("inf"), objective_seconds=10.0)
        assert summary.requests == answered
        server_seconds = metrics['http_request_duration_seconds_sum{route="/work"}']
        assert sum(request.latency_seconds for request in log.records) >= server_seconds > 0.0005 * answered
        assert await terminate(api) == (0, b"", b"")


async def test_the_api_refuses_what_does_not_fit_into_its_queue_and_both_ends_count_it(tmp_path):
    record = tmp_path / "requests"
    async with workload("api", "--work-ms", 50, "--work-jitter", 0, "--workers", 1, "--max-queue", 1) as (_api, ready):
        target = f"http://127.0.0.1:{ready['port']}/work"
        code, _, stderr = await run_to_end(
            "loadgen", "--target", target, "--rate", 100, "--duration", 1, "--record", record
        )
        assert (code, stderr) == (0, b"")
        statuses = [request.status for request in read_requests(record).records]
        metrics = await scrape(ready["port"])
        assert set(statuses) == {"ok", "503"}
        assert metrics["http_requests_rejected_total"] == statuses.count("503")
        assert metrics['http_request_duration_seconds_count{route="/work"}'] == statuses.count("ok")


async def test_the_generator_pauses_and_resumes_on_signals_and_ends_cleanly_on_sigterm(tmp_path):
    record = tmp_path / "requests"
    async with workload("api", "--work-ms", 0.1) as (_, ready):
        target = f"http://127.0.0.1:{ready['port']}/work"
        async with workload("loadgen", "--target", target, "--rate", 100, "--record", record) as (loadgen, _):
            await until_written(record, read_requests, 5)
            loadgen.send_signal(signal.SIGUSR1)
            await until_quiet(record)
            before = len(read_requests(record).records)
            loadgen.send_signal(signal.SIGUSR2)
            await until_written(record, read_requests, before + 5)
            code, stdout, stderr = await terminate(loadgen)
    log = read_requests(record)
    assert (code, stderr, log.skipped_lines) == (0, b"", 0)
    assert json.loads(stdout)["requests"] == len(log.records)
    scheduled = sorted(request.scheduled_unix_seconds for request in log.records)
    # At 100/s a gap of 0.5 s without a pause has a probability of e^-50.
    assert max(after - before for before, after in itertools.pairwise(scheduled)) > 0.5


async def until_quiet(record):
    """Wait until nothing was added for two flush intervals."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        size = -1
        while size != (size := record.stat().st_size):
            await asyncio.sleep(1.0)


async def test_sigterm_under_overload_ends_the_api_cleanly_and_the_generator_records_the_rest(tmp_path):
    record = tmp_path / "requests"
    async with workload("api", "--work-ms", 200, "--workers", 1) as (api, ready):
        target = f"http://127.0.0.1:{ready['port']}/work"
        async with workload("loadgen", "--target", target, "--rate", 100, "--record", record) as (loadgen, _):
            await until_written(record, read_requests, 2)
            assert await terminate(api) == (0, b"", b"")
            code, stdout, stderr = await terminate(loadgen)
    assert (code, stderr) == (0, b"")
    statuses = json.loads(stdout)["statuses"]
    assert statuses["error"] > 0
    assert sum(statuses.values()) == len(read_requests(record).records)


async def test_batch_counts_its_blocks_and_ends_its_children(tmp_path):
    record = tmp_path / "work"
    async with workload("batch", "--processes", 2, "--block-kib", 16, "--record", record) as (batch, ready):
        children = [os.pidfd_open(pid) for pid in ready["children"]]
        await until_written(record, read_work, 3)
        metrics = await scrape(ready["port"])
        assert await terminate(batch) == (0, b"", b"")
        await until_ended(children)
    work = [sample.work for sample in read_work(record).records]
    assert work == sorted(work)
    assert 0 < metrics["batch_work_done_total"] <= work[-1]
    assert metrics["batch_cpu_seconds_total"] > 0


async def test_batch_children_die_with_a_parent_that_was_killed():
    async with workload("batch", "--processes", 2, "--kind", "hash") as (batch, ready):
        children = [os.pidfd_open(pid) for pid in ready["children"]]
        assert len(children) == 2
        await until_work_was_done(ready["port"])
        batch.kill()
        await until_ended(children)


async def until_work_was_done(port):
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await scrape(port))["batch_work_done_total"] == 0:
            pass


async def test_batch_ends_with_an_error_when_a_child_dies():
    async with workload("batch", "--processes", 2) as (batch, ready):
        children = [os.pidfd_open(pid) for pid in ready["children"]]
        os.kill(ready["children"][0], signal.SIGKILL)
        code, _, stderr = await outcome(batch)
        assert code == 1
        assert stderr == b"batch: a child process died; the rest was ended\n"
        await until_ended(children)


async def until_ended(pidfds):
    """Wait until each process has ended: its pidfd becomes readable."""
    for pidfd in pidfds:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        assert await asyncio.to_thread(poll.poll, PATIENCE_SECONDS * 1000)
        os.close(pidfd)


async def test_the_monitor_records_every_run_from_when_it_was_due(tmp_path):
    record = tmp_path / "runs"
    async with workload("monitor", "--interval-ms", 20, "--work-ms", 1, "--record", record) as (monitor, ready):
        await until_written(record, read_requests, 10)
        assert (await scrape(ready["port"]))["monitor_run_duration_seconds_count"] >= 10
        assert await terminate(monitor) == (0, b"", b"")
    due = [run.scheduled_unix_seconds for run in read_requests(record).records]
    assert [after - before for before, after in itertools.pairwise(due)] == pytest.approx(
        [0.02] * (len(due) - 1), abs=1e-5
    )


@pytest.mark.parametrize("name", ["api", "batch", "monitor"])
async def test_a_port_in_use_is_one_line_and_exit_code_1(name):
    async with workload("monitor") as (_, ready):
        code, stdout, stderr = await run_to_end(name, "--port", ready["port"])
    assert (code, stdout) == (1, b"")
    assert stderr.decode() == f"{name}: cannot listen on 127.0.0.1:{ready['port']}: Address already in use\n"


@pytest.mark.parametrize("name", ["api", "batch", "monitor", "loadgen"])
async def test_a_bad_flag_is_one_line_and_exit_code_2(name):
    code, stdout, stderr = await run_to_end(name, "--nonsense")
    assert (code, stdout, stderr.count(b"\n")) == (2, b"", 1)


@pytest.mark.parametrize("name", ["api", "batch", "monitor", "loadgen"])
async def test_help_needs_nothing_else(name):
    code, stdout, stderr = await run_to_end(name, "--help")
    assert (code, stderr) == (0, b"")
    assert b"usage: python -m lab.workloads." in stdout


async def test_a_target_that_does_not_answer_is_one_line_and_exit_code_1():
    code, _, stderr = await run_to_end("loadgen", "--target", "http://127.0.0.1:1/", "--wait-seconds", 0.2)
    assert code == 1
    assert stderr.startswith(b"loadgen: cannot connect to 127.0.0.1:1 within 0.2 s")
    assert stderr.count(b"\n") == 1
