"""`trimtab bench`, `report` and `train` as people run them: real processes, files, exit codes, interrupts.

The runs are short and few: what a policy is worth is not asked here.
"""

import asyncio
import json
import os
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from lab.arena.results import Results, read_results, write_results
from lab.arena.scenarios import named

DEADLINE_SECONDS = 110.0
SHORT = ("--scenarios", "quiet", "--policies", "request-derived", "--cycles", "4", "--workers", "2")

pytestmark = pytest.mark.timeout(240)


class Ended(NamedTuple):
    code: int
    out: str
    err: str


@asynccontextmanager
async def started(*words, **env):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "cli",
        *map(str, words),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **env},
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def trimtab(*words, **env):
    async with started(*words, **env) as process, asyncio.timeout(DEADLINE_SECONDS):
        out, err = await process.communicate()
    return Ended(process.returncode, out.decode(), err.decode())


async def refused(*words, code=2, says=()):
    """It ends at once with one line on stderr that says these words, and nothing on stdout."""
    ended = await trimtab(*words)
    assert (ended.code, ended.out) == (code, ""), ended
    lines = ended.err.splitlines()
    assert len(lines) == 1, ended.err
    for word in says:
        assert word in lines[0]


# ---- a whole bench ---------------------------------------------------------------------------------------------------


async def test_a_bench_keeps_its_results_shows_a_table_and_makes_a_page(tmp_path):
    file, page = tmp_path / "results.json", tmp_path / "report.html"
    ended = await trimtab(
        "bench", "--scenarios", "steady,gen:7", "--policies", "all", "--seeds", "2-3", "--cycles", "6",
        "--json", file, "--html", page,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    results = read_results(str(file))
    policies = list(dict.fromkeys(row.policy for row in results.results))
    assert {"request-derived", "trimtab", "trimtab-cold"} <= set(policies)
    assert [(row.scenario, row.queue, row.policy, row.seed) for row in results.results] == [
        (scenario, queue, policy, seed)
        for scenario in ("steady", "gen:7")
        for queue in ("bounded", "unbounded")
        for policy in policies
        for seed in (2, 3)
    ]
    assert all(row.cycles == 6 and row.regret_static is not None for row in results.results)
    assert len(results.best_static) == 2 * 2 * 2
    assert (results.backend, results.cycles, results.seeds, results.notes) == ("sim", 6, (2, 3), ())
    assert {curve.seed for curve in results.curves} == {2}
    heading, *lines = ended.out.splitlines()
    assert heading.split()[:4] == ["scenario", "queue", "policy", "seeds"]
    assert len(lines) == 2 * 2 * (len(policies) + 2)
    assert "runs of 6 cycles" in ended.err
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    again = await trimtab("report", file)
    assert (again.code, again.out, again.err) == (0, ended.out, "")


async def test_the_same_bench_gives_the_same_scores_however_many_processes_play_it(tmp_path):
    words = ("bench", "--scenarios", "swap", "--queue", "bounded", "--policies", "trimtab-cold", "--seeds", "1-2")
    one, two = tmp_path / "one.json", tmp_path / "two.json"
    for file, workers in ((one, "1"), (two, "2")):
        ended = await trimtab(*words, "--cycles", "8", "--workers", workers, "--json", file)
        assert ended.code == 0, ended.err
    first, second = read_results(str(one)), read_results(str(two))
    assert [(row.seed, row.score) for row in first.results] == [(row.seed, row.score) for row in second.results]
    assert first.best_static == second.best_static


async def test_the_summary_as_json_has_numbers(tmp_path):
    ended = await trimtab("bench", *SHORT, "--seeds", "1-2", "--queue", "unbounded", "-o", "json")
    assert ended.code == 0, ended.err
    record = json.loads(ended.out)[0]
    assert (record["scenario"], record["queue"], record["policy"], record["seeds"]) == (
        "quiet",
        "unbounded",
        "request-derived",
        2,
    )
    assert record["score_low"] <= record["score"] <= record["score_high"]


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupt_keeps_what_is_there_and_says_how_much(tmp_path, signum):
    file = tmp_path / "results.json"
    words = (
        "--scenarios",
        "steady",
        "--policies",
        "request-derived",
        "--seeds",
        "1-100",
        "--cycles",
        "60",
        "--queue",
        "bounded",
    )
    async with started("bench", *words, "--json", file) as process, asyncio.timeout(DEADLINE_SECONDS):
        assert process.stderr is not None
        lines = []
        while not any(b" left" in line for line in lines):
            lines.append(await process.stderr.readline())
            assert lines[-1], lines
        process.send_signal(signum)
        out, err = await process.communicate()
    assert process.returncode == 130, err
    last = err.decode().splitlines()[-1]
    results = read_results(str(file))
    assert 0 < len(results.results) < 100
    assert [row.seed for row in results.results] == list(results.seeds) == [best.seed for best in results.best_static]
    assert f"{len(results.results)} are in {file}" in last
    assert last.startswith("trimtab bench: interrupted; ")
    assert any(note.startswith("interrupted: ") for note in results.notes)
    assert out.startswith(b"scenario")


# ---- what cannot be ---------------------------------------------------------------------------------------------------

WRONG = {
    "scenario": (["--scenarios", "stedy"], ("--scenarios", "'stedy'", "steady", "gen:SEED")),
    "generated": (["--scenarios", "gen:x"], ("--scenarios", "gen:17")),
    "no_file": (["--scenarios", "/nowhere/mine.yaml"], ("--scenarios", "/nowhere/mine.yaml", "No such file")),
    "no_scenario": (["--scenarios", ","], ("--scenarios", "all")),
    "policy": (["--policies", "trimtab,mine"], ("--policies", "'mine'", "trimtab-cold")),
    "alone": (["--policies", "alone"], ("--policies", "'alone'")),
    "no_policy": (["--policies", "best-static"], ("--policies", "none named")),
    "seeds": (["--seeds", "10-1"], ("--seeds", "1-10")),
    "cycles": (["--cycles", "0"], ("--cycles 0", "1 to")),
    "workers": (["--workers", "0"], ("--workers 0", "at least 1")),
    "tick": (["--tick", "2"], ("--tick", "--backend cgroup")),
    "load": (["--load", "0.5"], ("--load", "--backend cgroup")),
    "run_dir": (["--run-dir", "x"], ("--run-dir", "--backend cgroup")),
    "json": (["--json", "/nowhere/at/all.json"], ("--json", "/nowhere/at/all.json", "name a file")),
    "html": (["--html", "/nowhere/at/all.html"], ("--html", "/nowhere/at/all.html", "name a file")),
    "same": (["--json", "/tmp/one.file", "--html", "/tmp/one.file"], ("--json", "--html", "two files")),
    "backend": (["--backend", "cloud"], ("--backend", "cgroup")),
    "cgroup_workers": (["--backend", "cgroup", "--workers", "2"], ("--workers", "--backend sim")),
    "cgroup_tick": (["--backend", "cgroup", "--tick", "0.1"], ("--tick 0.1", "0.5 to 60")),
    "cgroup_load": (["--backend", "cgroup", "--load", "1.5"], ("--load 1.5", "up to 1")),
    "cgroup_no_load": (["--backend", "cgroup", "--load", "nan"], ("--load nan", "up to 1")),
}


@pytest.mark.parametrize("case", WRONG)
async def test_a_bench_that_cannot_be_is_refused_before_anything_starts(case):
    flags, words = WRONG[case]
    await refused("bench", *flags, says=words)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("- 120.0", "- -.inf", ("points", "-inf", "$.pods[0].rate")),
        ("period: 80.0", "period: 1.0e-09", ("period", "1e-09", "$.pods[0].rate")),
        ("latency-critical: 0.075", "latency-critical: 0.0", ("objectives", "latency-critical")),
        ("name: api", "name: ''", ("name", "$.pods[0]")),
    ],
)
async def test_a_file_of_a_scenario_that_cannot_be_is_refused_with_its_field(tmp_path, old, new, words):
    file = tmp_path / "mine.yaml"
    text = msgspec.yaml.encode(msgspec.structs.replace(named("flash-sale"), name="mine")).decode()
    assert old in text
    file.write_text(text.replace(old, new, 1))
    await refused("bench", "--scenarios", file, says=("--scenarios", str(file), *words))


async def test_a_scenario_of_ones_own_is_played_and_the_command_names_it_without_its_folder(tmp_path):
    file, kept = tmp_path / "mine.yaml", tmp_path / "results.json"
    file.write_bytes(msgspec.yaml.encode(msgspec.structs.replace(named("steady"), name="mine")))
    ended = await trimtab(
        "bench", "--scenarios", f"{file},quiet", "--policies", "request-derived", "--seeds", "1", "--cycles", "3",
        "--queue", "both", "--json", kept,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    results = read_results(str(kept))
    assert [(row.scenario, row.queue) for row in results.results] == [
        (name, queue) for name in ("mine", "quiet") for queue in ("bounded", "unbounded")
    ]
    assert "--scenarios mine.yaml,quiet " in results.made_by


async def test_a_missing_package_is_named_with_its_extra(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as util\n"
        "found = util.find_spec\n"
        "util.find_spec = lambda name, *rest: None if name == 'numba' else found(name, *rest)\n"
    )
    for words in (("bench", *SHORT), ("train", "--out", tmp_path / "prior.json")):
        ended = await trimtab(*words, PYTHONPATH=f"{tmp_path}:{Path(__file__).parents[2]}")
        assert (ended.code, ended.out) == (1, "")
        assert (
            ended.err == f"trimtab {words[0]}: {words[0]}: needs the package numba; run `pip install 'trimtab[lab]'`\n"
        )
    assert not (tmp_path / "prior.json").exists()


async def test_a_report_of_what_is_no_bench_is_refused(tmp_path):
    other, later = tmp_path / "other.json", tmp_path / "later.json"
    other.write_text('{"rows": 1}')
    write_results(str(later), Results(results=(), best_static=(), version=99))
    await refused("report", tmp_path / "missing.json", says=("missing.json", "trimtab bench --json"))
    await refused("report", tmp_path, says=(str(tmp_path), "trimtab bench --json"))
    await refused("report", other, says=("other.json", "not a file of `trimtab bench`"))
    await refused("report", later, says=("later.json", "format 99"))


async def test_a_report_does_not_overwrite_what_it_reads(tmp_path):
    file = tmp_path / "results.json"
    write_results(str(file), Results(results=(), best_static=()))
    before = file.read_bytes()
    await refused("report", file, "--html", file, says=("--html", "name another"))
    assert file.read_bytes() == before


async def test_a_report_needs_none_of_the_packages_that_compute(tmp_path):
    file, page = tmp_path / "results.json", tmp_path / "report.html"
    write_results(str(file), Results(results=(), best_static=(), notes=("interrupted: 9 of 9 runs never ended",)))
    for name in ("numpy", "scipy", "numba", "river", "gymnasium"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not here')\n")
    ended = await trimtab("report", file, "--html", page, PYTHONPATH=f"{tmp_path}:{Path(__file__).parents[2]}")
    assert (ended.code, ended.err) == (0, "trimtab report: interrupted: 9 of 9 runs never ended\n")
    assert "never ended" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--scenarios", "0"], ("--scenarios 0", "at least 1")),
        (["--cycles", "-1"], ("--cycles -1", "at least 1")),
        (["--seed", "-1"], ("--seed -1", "0 or more")),
        ([], ("--out", "trimtab train --help")),
    ],
)
async def test_a_training_that_cannot_be_is_refused(tmp_path, flags, words):
    out = ["--out", tmp_path / "prior.json"] if flags else []
    await refused("train", *flags, *out, says=words)
