"""The weight solver for every tree: in range, in order, in proportion, and nothing taken from neighbours."""

import random
from collections import defaultdict

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from schemas.canary import is_canary
from schemas.messages import PodState
from services.actuator.core.canary import not_steered, steerable
from services.actuator.core.solver import solve

CLASSES = ("critical", "default", "batch")
kernel_weights = st.integers(1, 10_000)
parents = st.sampled_from(["", "burstable/", "besteffort/", "kubepods-burstable.slice/"])


@st.composite
def trees(draw, *, parents=parents, classes=(*CLASSES, None)):
    """Pods of one node. Weights may be missing or 0, pods skipped or without a class."""
    count = draw(st.integers(0, 12))
    return [
        PodState(
            uid=f"u{number}",
            name=f"n{number}",
            group=f"{draw(parents)}pod{number}",
            cls=draw(st.sampled_from(classes)),
            weight=draw(st.one_of(kernel_weights, st.sampled_from([None, 0]))),
            skip=draw(st.sampled_from([None, None, None, "idle"])),
        )
        for number in range(count)
    ]


profiles = st.dictionaries(st.sampled_from(CLASSES), st.integers(-10, 40_000), max_size=3)
sane_profiles = st.fixed_dictionaries(dict.fromkeys(CLASSES, kernel_weights))


def originals_of(pods):
    return {pod.group: pod.weight for pod in pods if pod.weight}


def families(pods, targets):
    """Steered pods with their targets, by parent."""
    weight_of = {target.group: target.weight for target in targets}
    found = defaultdict(list)
    for pod in pods:
        if pod.group in weight_of:
            found[pod.group.rpartition("/")[0]].append((pod, weight_of[pod.group]))
    return found


@given(trees(), profiles, st.dictionaries(st.sampled_from([f"pod{n}" for n in range(12)]), kernel_weights))
def test_wt_02_every_target_is_an_integer_in_the_kernels_range(pods, profile, originals):
    for target in solve(pods, profile, originals):
        assert type(target.weight) is int
        assert 1 <= target.weight <= 10_000


@given(trees(), profiles)
def test_exactly_the_pods_that_can_be_steered_get_a_target(pods, profile):
    wanted = sorted(pod.group for pod in pods if pod.cls in profile and pod.skip is None and pod.weight)
    assert [target.group for target in solve(pods, profile, {})] == wanted


@given(trees(), sane_profiles, st.randoms(use_true_random=False))
def test_the_order_of_the_pods_does_not_matter(pods, profile, rng: random.Random):
    shuffled = list(pods)
    rng.shuffle(shuffled)
    targets = solve(pods, profile, originals_of(pods))
    assert solve(shuffled, profile, originals_of(pods)) == targets
    assert solve(pods, dict(reversed(profile.items())), originals_of(pods)) == targets


@given(trees(), sane_profiles)
def test_solving_again_after_writing_changes_nothing(pods, profile):
    originals = originals_of(pods)
    targets = solve(pods, profile, originals)
    weight_of = {target.group: target.weight for target in targets}
    written = [msgspec.structs.replace(pod, weight=weight_of.get(pod.group, pod.weight)) for pod in pods]
    assert solve(written, profile, originals) == targets


@given(trees(), sane_profiles)
def test_inside_a_class_pods_stay_in_proportion_to_their_originals(pods, profile):
    targets = solve(pods, profile, originals_of(pods))
    for family in families(pods, targets).values():
        for one, one_target in family:
            for other, other_target in family:
                if one.cls == other.cls and min(one_target, other_target) > 1:
                    off = abs(one_target * other.weight - other_target * one.weight)
                    assert off <= 0.5 * (one.weight + other.weight) + 1e-6


@given(trees(), sane_profiles)
def test_who_should_weigh_more_never_weighs_less(pods, profile):
    targets = solve(pods, profile, originals_of(pods))
    for family in families(pods, targets).values():
        of_class = defaultdict(int)
        for pod, _ in family:
            of_class[pod.cls] += pod.weight
        wish = {pod.group: profile[pod.cls] * pod.weight / of_class[pod.cls] for pod, _ in family}
        for one, one_target in family:
            for other, other_target in family:
                if wish[one.group] > wish[other.group] * (1 + 1e-9):
                    assert one_target >= other_target


@given(trees(parents=st.just("burstable/")), sane_profiles)
def test_beside_unsteered_neighbours_the_sum_stays_within_rounding(pods, profile):
    neighbour = PodState(uid="", name="x", group="burstable/other", weight=100)
    targets = solve([*pods, neighbour], profile, originals_of(pods))
    for family in families(pods, targets).values():
        had, has = sum(pod.weight for pod, _ in family), sum(target for _, target in family)
        assert has <= had + len(family)
        if max(target for _, target in family) < 10_000:
            assert has >= had - 0.5 * len(family)


@given(trees(parents=st.just("")), sane_profiles, st.sampled_from([None, *CLASSES]))
def test_beside_a_qos_group_that_holds_pods_the_sum_grows_by_rounding_only(pods, profile, cls):
    inside = PodState(uid="", name="x", group="burstable/pod-x", weight=100, cls=cls)
    targets = solve([*pods, inside], profile, originals_of(pods))
    for family in [family for parent, family in families(pods, targets).items() if parent == ""]:
        assert sum(target for _, target in family) <= sum(pod.weight for pod, _ in family) + len(family)


@given(trees(parents=st.just("burstable/"), classes=CLASSES), sane_profiles)
def test_without_neighbours_class_sums_are_the_class_weights(pods, profile):
    pods = [pod for pod in pods if pod.weight and pod.skip is None]
    targets = solve(pods, profile, originals_of(pods))
    for family in families(pods, targets).values():
        sums, counts = defaultdict(int), defaultdict(int)
        for pod, target in family:
            sums[pod.cls] += target
            counts[pod.cls] += 1
        for name, total in sums.items():
            assert profile[name] - 0.5 * counts[name] <= total <= profile[name] + counts[name]


# ---- canary: who is not in it is a neighbour ----

ratios = st.floats(0.0, 1.0)


@given(trees(), sane_profiles, ratios)
def test_in_a_canary_just_its_own_pods_get_a_target(pods, profile, ratio):
    targets = {target.group for target in solve(steerable(pods, ratio), profile, {})}
    may_be = {pod.group for pod in pods if pod.cls in profile and pod.skip is None and pod.weight}
    assert targets == {pod.group for pod in pods if pod.group in may_be and is_canary(pod.uid, ratio)}
    assert not targets & not_steered(pods, ratio, {pod.group for pod in pods}).keys()


@given(trees(), sane_profiles)
def test_a_canary_of_all_is_no_canary(pods, profile):
    assert (
        solve(steerable(pods, 1.0), profile, {})
        == solve(pods, profile, {})
        == solve(steerable(pods, None), profile, {})
    )


@given(trees(parents=st.sampled_from(["", "burstable/"]), classes=CLASSES), sane_profiles, ratios)
def test_beside_the_others_a_canary_keeps_its_sum_so_that_no_share_of_theirs_moves(pods, profile, ratio):
    targets = solve(steerable(pods, ratio), profile, originals_of(pods))
    others = {pod.group.rpartition("/")[0] for pod in pods if pod.weight and not is_canary(pod.uid, ratio)}
    for parent, family in families(pods, targets).items():
        if parent in others:
            had, has = sum(pod.weight for pod, _ in family), sum(target for _, target in family)
            assert has <= had + len(family)  # a weight is a whole number, and at least 1
            if max(target for _, target in family) < 10_000:
                assert has >= had - 0.5 * len(family)
