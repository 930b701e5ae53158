"""`make fuzz` itself: it finds what is broken, says how to see it again, and ends in time."""

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import strategies as st

from tests.fuzz.runner import BATCH_EXAMPLES, Fuzzing, main
from tests.fuzz.targets import TARGETS, Target, TooSlow, bounded_cpu

ROOT = Path(__file__).parents[2]
FOREVER_SECONDS = 600.0


def nothing(drawn):
    pass


def refuse_large(drawn):
    if drawn >= 10:
        raise LookupError("too large")


def run_forever():
    while True:
        pass


def fuzz(check, seconds, name="numbers"):
    run = Fuzzing({name: Target(name, st.integers(), check)}, seconds, 1)
    return run, run.run()


def test_a_failure_is_made_small_printed_to_be_pasted_and_counted(capsys):
    _, code = fuzz(refuse_large, FOREVER_SECONDS)  # ends by itself: no target is left
    out = capsys.readouterr().out
    assert code == 1
    assert "FAILED numbers (seed 2): LookupError in tests/unit/test_fuzz_runner.py:" in out
    assert "\ncheck('numbers', 10)\nEND\n" in out
    assert re.search(r"^numbers +\d+ +\d+\.\d  1$", out, re.MULTILINE)


def test_two_faults_of_one_target_are_told_apart(capsys):
    def check(drawn):
        if drawn < 0:
            raise KeyError(drawn)
        refuse_large(drawn)

    run, code = fuzz(check, FOREVER_SECONDS)
    assert code == 1
    assert {key.split()[0] for key in run.scores["numbers"].failures} == {"KeyError", "LookupError"}
    assert {failure.drawn for failure in run.scores["numbers"].failures.values()} == {"-1", "10"}


def test_without_a_failure_it_runs_until_the_time_is_up(capsys):
    started = time.monotonic()
    run, code = fuzz(nothing, 0.5)
    assert code == 0
    assert time.monotonic() - started >= 0.5
    assert run.scores["numbers"].examples > 0
    assert "fuzzing numbers for 0.5 s, seed 1" in capsys.readouterr().err


def test_a_batch_does_not_outlast_the_time():
    def check(drawn):
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            pass

    run, code = fuzz(check, 0.5)  # a whole batch would take 20 s
    assert code == 0
    assert 0 < run.scores["numbers"].examples < BATCH_EXAMPLES


def test_after_one_batch_comes_another_with_a_new_seed():
    seen = []

    def check(drawn):
        seen.append(drawn)
        if len(seen) > 2 * BATCH_EXAMPLES:
            raise KeyboardInterrupt

    _, code = fuzz(check, FOREVER_SECONDS)
    assert code == 130
    assert seen[:BATCH_EXAMPLES] != seen[BATCH_EXAMPLES : 2 * BATCH_EXAMPLES]


def test_a_target_that_cannot_draw_is_no_failure_of_the_code_and_comes_out():
    run = Fuzzing({"broken": Target("broken", st.integers().map(lambda number: number / 0), nothing)}, 5.0, 1)
    with pytest.raises(ZeroDivisionError):
        run.run()


def test_work_that_never_ends_is_ended_by_its_cpu_time():
    with pytest.raises(TooSlow), bounded_cpu(0.05):
        run_forever()


def test_work_whose_end_was_taken_for_another_error_is_too_slow_all_the_same():
    with pytest.raises(TooSlow), bounded_cpu(0.05), suppress(AssertionError):
        run_forever()


def test_the_command_line_runs_every_target_and_refuses_one_that_is_not_there(capsys):
    assert main(["--seconds", "0.01", "--seed", "1"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:-1]] == list(TARGETS)
    with pytest.raises(SystemExit):
        main(["--target", "nothing-of-the-kind"])


def test_an_interrupt_ends_it_with_the_table():
    runs = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from tests.fuzz.runner import main"
    # Whoever runs the tests in the background of a shell may ignore the signal, and what it starts inherits that.
    command = [sys.executable, "-c", f"{runs}; raise SystemExit(main())", "--target", "kernel-texts"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    ) as process:
        assert process.stderr is not None
        assert "fuzzing kernel-texts" in process.stderr.readline()
        assert " of 600 s: kernel-texts, " in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in err
    assert "Traceback" not in err
    assert re.search(r"^kernel-texts +\d+ ", out, re.MULTILINE)
