"""Every verb starts with what it needs itself, and nothing else."""

import json
import os
import subprocess
import sys

import pytest

from cli.__main__ import VERBS, main

WITHOUT_RICH = "import sys; sys.modules['rich'] = None; from cli.__main__ import main; sys.exit(main(sys.argv[1:]))"


def without_rich(*words: str) -> subprocess.CompletedProcess[str]:
    env = {name: text for name, text in os.environ.items() if not name.startswith("TRIMTAB_")}
    env["TRIMTAB_BUS__CONNECT_TIMEOUT_SECONDS"] = "0.1"
    argv = [sys.executable, "-c", WITHOUT_RICH, *words]
    return subprocess.run(argv, capture_output=True, text=True, env=env, check=False, timeout=60)


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["tail", "--help"], ["up", "--print-config"]])
def test_what_shows_nothing_in_colour_works_without_the_demos_packages(words):
    done = without_rich(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_doctor_works_without_the_demos_packages():
    done = without_rich("doctor", "-o", "json", "--nats-url", "nats://127.0.0.1:1")
    assert done.returncode in (0, 1)
    assert "bus" in {check["name"] for check in json.loads(done.stdout)}


def test_the_demo_names_the_extra_that_it_misses():
    done = without_rich("demo")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "trimtab: demo: needs the package rich; run `pip install 'trimtab[demo]'`\n"


@pytest.mark.parametrize("verb", [verb.name for verb in VERBS])
def test_every_verb_explains_itself(verb, capsys):
    with pytest.raises(SystemExit) as ended:
        main([verb, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith(f"usage: trimtab {verb} ")


def test_the_list_of_verbs_needs_none_of_them(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    out = capsys.readouterr().out
    for verb in VERBS:
        assert verb.help in out


ENDS_WITH = """
import sys, types
import cli.__main__ as trimtab
verb = types.ModuleType("cli.say")
def run(args):
    print("one line" * args.times)
    return args.code
def add_flags(parser):
    parser.add_argument("code", type=int)
    parser.add_argument("times", type=int)
    parser.set_defaults(run=run)
verb.add_flags = add_flags
sys.modules["cli.say"] = verb
trimtab.VERBS = (trimtab.Verb("say", "say it"),)
sys.exit(trimtab.main(sys.argv[1:]))
"""


@pytest.fixture
def nobody():
    """A pipe whose other end is closed."""
    read, write = os.pipe()
    os.close(read)
    yield write
    os.close(write)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["say", "0", "1"], 141),  # it is in the buffer when the verb ends
        (["say", "0", "100000"], 141),  # the verb itself is interrupted
        (["say", "1", "1"], 1),  # what the verb found stays what it is
        (["--help"], 141),
    ],
)
def test_output_that_nobody_reads_is_no_success_and_hides_no_failure(words, code, nobody):
    argv = [sys.executable, "-c", ENDS_WITH, *words]
    env = {name: text for name, text in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(argv, stdout=nobody, stderr=subprocess.PIPE, text=True, check=False, timeout=60, env=env)
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize("times", ["1", "100000"])
def test_output_that_cannot_be_stored_is_an_error_of_one_line(times):
    argv = [sys.executable, "-c", ENDS_WITH, "say", "0", times]
    with open("/dev/full", "w") as full:
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    told = "the output could not be written: No space left on device; make room\n"
    assert (done.returncode, done.stderr) == (1, f"trimtab say: {told}")


RULES_TO_WATCH = (
    "those to watch are freshness, writable, known_classes, bounds, known_profile, contention, min_share, max_step, "
    "unchanged, rate, class_rate"
)


@pytest.mark.parametrize(
    ("name", "why_not"),
    [
        ("breaker", "it is no rule: after repeated rollbacks it refuses every change, whatever the rules say"),
        ("mode", "a mode is ordered and no rule; to only watch everything, use mode shadow"),
        ("shadow", "a mode is ordered and no rule; to only watch everything, use mode shadow"),
        ("budget", "the cycle is over by then"),
    ],
)
def test_what_cannot_be_watched_is_told_with_the_reason_and_the_rules_that_can(name, why_not, capsys):
    assert main(["up", "--set", f"guard.watch=[{name}]", "--print-config"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("trimtab up: ")
    assert err.endswith(f"guard.watch: '{name}' cannot be watched: {why_not}; {RULES_TO_WATCH}\n")
