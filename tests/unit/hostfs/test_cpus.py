"""Lists of CPUs."""

import pytest

from hostfs.cpus import Affinity, parse_cpu_list, pods_apart


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


def given(*cpus, weight=None):
    return Affinity(frozenset(cpus), weight)


def test_two_pods_with_sets_that_have_nothing_in_common_are_apart():
    assert pods_apart({"a": [given(2, 3)], "b": [given(0, 1)]}) == {"a", "b"}


def test_a_single_pod_with_a_set_is_apart_from_nobody():
    assert pods_apart({"a": [given(2, 3)], "b": [given(weight=1)], "c": []}) == set()


def test_a_pod_that_may_run_anywhere_is_on_everybodys_cpus():
    pods = {"a": [given(2, 3)], "b": [given(0, 1)], "c": [given(weight=39)]}
    assert pods_apart(pods) == set()
