"""The safety case (docs/safety.md) holds what is said of files, tests and mutants."""

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.mutants import MUTANTS, REPOSITORY, Mutant, find, run_tests, try_out

TEXT = (REPOSITORY / "docs/safety.md").read_text(encoding="utf-8")
TITLES = {
    **{f"I{number}": f"I{number}" for number in range(1, 9)},
    "breaker": "The breaker",
    "excuses": "Excuses",
    "orders": "Orders",
}
INVARIANTS = list(TITLES)
_ALL_SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL))
SECTIONS: dict[str, str] = {name: _ALL_SECTIONS[title] for name, title in TITLES.items()}
FILES = set(re.findall(r"`((?:[\w-]+/)+[\w.-]*)`", TEXT))
TESTS = set(re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", TEXT))


def defines(path: str, test: str) -> bool:
    file = REPOSITORY / path
    return (
        file.is_file()
        and re.search(rf"^(?:async )?def {test}\(", file.read_text(encoding="utf-8"), re.MULTILINE) is not None
    )


def test_every_file_that_is_named_exists():
    assert len(FILES) > 15
    assert sorted(name for name in FILES if not (REPOSITORY / name).exists()) == []


def test_every_test_that_is_named_exists():
    assert len(TESTS) > 30
    assert sorted(f"{path}::{test}" for path, test in TESTS if not defines(path, test)) == []


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_every_invariant_has_a_row_in_the_table_and_a_section_that_says_what_is_not_covered(invariant):
    title = TITLES[invariant]
    assert f"| [{title}](#{title.lower().replace(' ', '-')}) |" in TEXT
    assert "If " in SECTIONS[invariant]
    assert "**Not covered.**" in SECTIONS[invariant]


@pytest.mark.parametrize("invariant", INVARIANTS)
def test_every_test_that_a_mutant_breaks_is_named_in_its_invariants_section_and_no_other(invariant):
    broken = {test for mutant in MUTANTS if mutant.invariant == invariant for test in mutant.tests}
    assert broken
    assert {f"{path}::{test}" for path, test in re.findall(r"`(tests/\S+)::(\w+)`", SECTIONS[invariant])} == broken


def test_the_table_counts_the_mutants():
    told = {title: int(count) for title, count in re.findall(r"^\| \[(.+?)\]\(#.*\| (\d+) \|$", TEXT, re.MULTILINE)}
    assert told == dict(Counter(TITLES[mutant.invariant] for mutant in MUTANTS))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.invariant}-{mutant.removes}")
def test_the_place_of_every_mutant_is_there_exactly_once(mutant):
    assert find(REPOSITORY, mutant) is not None


def a_tree(path: Path) -> Path:
    (path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    (path / "rule.py").write_text("LIMIT = 3\n\ndef allows(n):\n    return n <= LIMIT\n")
    (path / "test_rule.py").write_text(
        "from rule import allows\n\n"
        "def test_too_many():\n    assert not allows(4)\n\n"
        "def test_few():\n    assert allows(1)\n"
    )
    return path


def mutant_of(old: str, new: str, *tests: str) -> Mutant:
    return Mutant("I2", "the limit", "rule.py", old, new, tuple(f"test_rule.py::{test}" for test in tests))


def test_a_mutant_that_breaks_its_test_is_caught_and_the_tree_is_as_before(tmp_path):
    root = a_tree(tmp_path)
    before = (root / "rule.py").read_text()
    assert try_out(root, mutant_of("n <= LIMIT", "True", "test_too_many")) == ("rule.py:4", "test_too_many", True)
    assert (root / "rule.py").read_text() == before


def test_a_mutant_that_breaks_only_some_of_its_tests_survives(tmp_path):
    found = try_out(a_tree(tmp_path), mutant_of("n <= LIMIT", "True", "test_too_many", "test_few"))
    assert found == ("rule.py:4", "SURVIVES test_few", False)


def test_a_mutant_that_cannot_be_run_is_no_success(tmp_path):
    _, said, is_caught = try_out(a_tree(tmp_path), mutant_of("return n <= LIMIT", "return (", "test_too_many"))
    assert not is_caught
    assert "SyntaxError" in said or "error" in said


@pytest.mark.parametrize("old", ["not there", "LIMIT"])
def test_a_place_that_is_not_there_exactly_once_is_no_success(tmp_path, old):
    assert try_out(a_tree(tmp_path), mutant_of(old, "x", "test_few")) == (
        "rule.py",
        "its place is not there exactly once",
        False,
    )


def test_what_fails_without_a_mutant_is_told(tmp_path):
    root = a_tree(tmp_path)
    (root / "rule.py").write_text("def allows(n):\n    return True\n")
    assert run_tests(root, ["test_rule.py::test_too_many", "test_rule.py::test_few"]) == (
        {"test_rule.py::test_too_many"},
        "",
    )
