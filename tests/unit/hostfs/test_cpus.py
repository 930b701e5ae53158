"""Lists of CPUs."""

import pytest

from hostfs.cpus import parse_cpu_list, pods_apart


@pytest.mark.parametrize(
    ("text", "cpus"),
    [
        ("0-3,8\n", {0, 1, 2, 3, 8}),
        ("5\n", {5}),
        ("0-0\n", {0}),
        ("\n", set()),
        ("", set()),
        ("8191\n", {8191}),
        ("8192\n", None),
        ("3-1\n", None),
        ("1,,2\n", None),
        ("-1\n", None),
        ("1-\n", None),
        ("all\n", None),
        ("0-99999999999999999999\n", None),
    ],
)
def test_a_list_of_cpus_is_numbers_and_ranges(text, cpus):
    assert parse_cpu_list(text) == (None if cpus is None else frozenset(cpus))


def given(*cpus):
    return frozenset(cpus)


def test_two_pods_with_sets_that_have_nothing_in_common_are_apart():
    assert pods_apart({"a": [given(2, 3)], "b": [given(0, 1)]}) == {"a", "b"}


def test_pods_with_a_cpu_in_common_are_not_apart():
    assert pods_apart({"a": [given(2, 3)], "b": [given(3, 4)], "c": [given(7)]}) == {"c"}


@pytest.mark.parametrize("others", [{}, {"b": [given()]}, {"b": [given(), given()], "c": []}])
def test_groups_without_a_set_take_nobodys_cpus_away(others):
    assert pods_apart({"a": [given(), given(2, 3)], **others}) == {"a"}
