"""The weight solver over whole trees: nobody unsteered loses, what can be reached is reached, and the rest is nearest."""

import itertools
import math
import random
from collections import defaultdict

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from schemas.messages import PodState
from schemas.tree import parent_of, structural_shares
from services.actuator.core import integers
from services.actuator.core.flows import flows, natural_flows, totals
from services.actuator.core.solver import solution, solve

CLASSES = ("critical", "default", "batch")
PLACES = ("", "burstable", "besteffort", "burstable/deeper")
kernel_weights = st.integers(1, 10_000)
kubelets = st.sampled_from([1, 2, 4, 10, 39, 79, 157, 391, 10_000])
profiles = st.fixed_dictionaries(dict.fromkeys(CLASSES, kernel_weights))
tree_weights = st.fixed_dictionaries({"burstable": kubelets, "besteffort": kubelets, "burstable/deeper": kubelets})


def in_place(place, number, cls, weight, skip=None):
    group = f"{place}/pod{number}" if place else f"pod{number}"
    return PodState(uid=f"u{number}", name=f"n{number}", group=group, cls=cls, weight=weight, skip=skip)


@st.composite
def trees(
    draw,
    *,
    places=PLACES,
    classes=(*CLASSES, *CLASSES, None),
    skips=(None, None, None, "exclusive_cpus"),
    heaviest=10_000,
):
    """Pods of one node and the weights of the groups above them."""
    pods = [
        in_place(
            draw(st.sampled_from(places)),
            number,
            draw(st.sampled_from(classes)),
            min(heaviest, draw(st.one_of(kubelets, kernel_weights))),
            draw(st.sampled_from(skips)),
        )
        for number in range(draw(st.integers(1, 12)))
    ]
    weights = draw(tree_weights)
    above = {place for pod in pods for place in (parent_of(pod.group), parent_of(parent_of(pod.group))) if place}
    return pods, {place: weights[place] for place in sorted(above)}


def originals_of(pods):
    return {pod.group: pod.weight for pod in pods if pod.weight}


def written(pods, targets):
    """The pods after the targets were written."""
    weight_of = {target.group: target.weight for target in targets}
    return [msgspec.structs.replace(pod, weight=weight_of.get(pod.group, pod.weight)) for pod in pods]


def is_steered(pod, profile):
    return pod.cls in profile and pod.skip is None and bool(pod.weight) and pod.weight > 0


def class_shares(pods, parents):
    shares, found = structural_shares(pods, parents), defaultdict(float)
    for pod in pods:
        if pod.cls is not None and pod.skip is None:
            found[pod.cls] += shares[pod.group]
    return found


def families(pods, profile):
    found = defaultdict(list)
    for pod in pods:
        if is_steered(pod, profile):
            found[parent_of(pod.group)].append(pod)
    return found


# ---- what is written ----


@given(trees(), profiles)
def test_exactly_the_steered_pods_get_a_target_and_no_group_above_them_ever(tree, profile):
    """So nothing outside the pods root moves: its own weight, and the kubelet's inside, are never written."""
    pods, parents = tree
    targets = solve(pods, profile, originals_of(pods), parents)
    assert [target.group for target in targets] == sorted(pod.group for pod in pods if is_steered(pod, profile))
    assert all(type(target.weight) is int and 1 <= target.weight <= 10_000 for target in targets)
    assert not {target.group for target in targets} & {"", *parents}
    assert sum(structural_shares(written(pods, targets), parents).values()) == pytest.approx(1.0)


odd_weights = st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1), st.sampled_from([0, -1, 10_001]))


@given(
    st.lists(
        st.builds(
            PodState,
            uid=st.just("u"),
            name=st.just("n"),
            group=st.sampled_from(["a", "b", "a/x", "a/y", "b/z", "a/x/deep", "c/d/e/f", ""]),
            cls=st.sampled_from([*CLASSES, None, "unheard-of"]),
            weight=odd_weights,
            skip=st.sampled_from([None, "idle"]),
        ),
        max_size=12,
    ),
    st.dictionaries(st.sampled_from(CLASSES), st.integers(-(2**63), 2**63 - 1), max_size=3),
    st.dictionaries(st.sampled_from(["a", "b", "a/x", "c", "c/d", "z", ""]), st.integers(-(2**63), 2**63 - 1)),
    st.dictionaries(st.sampled_from(["a", "a/x", "c/d/e/f"]), st.integers(1, 2**63 - 1)),
)
def test_whatever_a_state_says_targets_are_in_range_and_only_for_steered_pods(pods, profile, parents, originals):
    last = {pod.group: pod for pod in pods if pod.weight is not None and pod.weight > 0}
    for target in solve(pods, profile, originals, parents):
        assert 1 <= target.weight <= 10_000
        assert is_steered(last[target.group], profile)


def test_three_hundred_pods_and_none():
    everywhere = [in_place(PLACES[n % 4], n, CLASSES[n % 3], 1 + n * 37 % 10_000) for n in range(300)]
    parents = {"burstable": 391, "besteffort": 1, "burstable/deeper": 10}
    targets = solve(everywhere, {"critical": 10_000, "default": 316, "batch": 100}, {}, parents)
    assert len(targets) == 300
    assert all(1 <= target.weight <= 10_000 for target in targets)
    assert solve([], {"critical": 100}, {}, parents) == []
    assert solve(everywhere, {}, {}, parents) == []


# ---- who is not steered ----


@given(trees(), profiles)
def test_who_is_not_steered_never_has_less_than_under_the_originals(tree, profile):
    """Not by rounding either: sums are rounded in his favour."""
    pods, parents = tree
    before = structural_shares(pods, parents)
    after = structural_shares(written(pods, solve(pods, profile, originals_of(pods), parents)), parents)
    for pod in pods:
        if not is_steered(pod, profile):
            assert after[pod.group] >= before[pod.group] * (1 - 1e-12)


@given(trees(places=("", "burstable", "burstable/deeper")), profiles, kubelets)
def test_nor_a_group_beside_pods_that_holds_nobody_steered(tree, profile, weight):
    pods, parents = tree
    everything = [*pods, PodState(uid="", name="besteffort", group="besteffort", weight=weight)]
    before = structural_shares(everything, parents)
    after = written(everything, solve(everything, profile, originals_of(pods), parents))
    assert structural_shares(after, parents)["besteffort"] >= before["besteffort"] * (1 - 1e-12)


# ---- once and again ----


@given(trees(), profiles, st.randoms(use_true_random=False))
def test_the_order_of_the_pods_does_not_matter(tree, profile, rng: random.Random):
    pods, parents = tree
    shuffled = list(pods)
    rng.shuffle(shuffled)
    found = solution(pods, profile, {}, parents)
    assert solution(shuffled, dict(reversed(profile.items())), {}, dict(reversed(parents.items()))) == found


@given(trees(), profiles)
def test_solving_again_after_writing_changes_nothing(tree, profile):
    pods, parents = tree
    originals = originals_of(pods)
    found = solution(pods, profile, originals, parents)
    assert solution(written(pods, found.targets), profile, originals, parents) == found


# ---- inside a parent ----


@given(trees(), profiles)
def test_inside_a_class_and_a_parent_pods_stay_in_proportion_to_their_originals(tree, profile):
    """To a whole number: each is within 1 of its part."""
    pods, parents = tree
    weight_of = {target.group: target.weight for target in solve(pods, profile, originals_of(pods), parents)}
    for family in families(pods, profile).values():
        for one in family:
            for other in family:
                mine, others = weight_of[one.group], weight_of[other.group]
                if one.cls == other.cls and min(mine, others) > 1:
                    assert abs(mine * other.weight - others * one.weight) <= one.weight + other.weight


@given(trees(), profiles)
def test_a_class_that_weighs_more_by_its_originals_has_no_pod_that_weighs_less(tree, profile):
    pods, parents = tree
    weight_of = {target.group: target.weight for target in solve(pods, profile, originals_of(pods), parents)}
    for family in families(pods, profile).values():
        above = {
            (one.cls, other.cls)
            for one in family
            for other in family
            if weight_of[one.group] > weight_of[other.group] and one.weight <= other.weight
        }
        assert not {(lower, upper) for upper, lower in above if upper != lower} & above


wishes = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.floats(1e-9, 1e9), min_size=1, max_size=12)


@given(wishes, st.integers(0, 20_000))
def test_bound_weights_keep_their_sum_and_their_order(asked, spare):
    total = len(asked) + spare
    found = integers.bound(asked, total)
    assert all(1 <= weight <= 10_000 for weight in found.values())
    assert sum(found.values()) == total or max(found.values()) >= 9_999
    assert sum(found.values()) <= total
    assert all(found[a] >= found[b] for a in asked for b in asked if asked[a] > asked[b])


@given(wishes)
def test_free_weights_keep_their_order_and_as_much_of_the_ratios_as_fits(asked):
    found = integers.free(asked)
    assert all(1 <= weight <= 10_000 for weight in found.values())
    assert all(found[a] >= found[b] for a in asked for b in asked if asked[a] > asked[b])
    if max(asked.values()) < 300 * min(asked.values()):
        factor = found[max(asked, key=asked.get)] / max(asked.values())
        assert all(weight == pytest.approx(asked[group] * factor, rel=0.11) for group, weight in found.items())


# ---- what can be reached ----


def reachable_orders(shares, present, draw):
    """Class weights that some division of the families' shares gives: each class has a part of each family it is in."""
    totals = defaultdict(float)
    for place, names in present.items():
        parts = {name: draw(st.integers(1, 100)) for name in sorted(names)}
        for name, part in parts.items():
            totals[name] += shares[place] * part / sum(parts.values())
    largest = max(totals.values())
    return {name: max(1, round(total / largest * 10_000)) for name, total in totals.items()}


def one_unit(pods, parents):
    """The share of one unit of weight, by parent."""
    shares = structural_shares(pods, parents)
    return {parent_of(pod.group): shares[pod.group] / pod.weight for pod in pods}


@given(trees(places=("", "burstable", "besteffort"), heaviest=391), st.data())
def test_what_the_families_can_give_as_they_are_is_reached_to_a_whole_number(tree, data):
    """Far from the kernel's largest weight: a pod that would be beyond it takes the pods beside it down with it."""
    pods, parents = tree
    profile = dict.fromkeys(CLASSES, 1)
    before, present, shares = structural_shares(pods, parents), defaultdict(set), defaultdict(float)
    for pod in pods:
        if is_steered(pod, profile):
            present[parent_of(pod.group)].add(pod.cls)
            shares[parent_of(pod.group)] += before[pod.group]
    assume(present)
    order = reachable_orders(shares, present, data.draw)
    assume(min(order.values()) >= 100)
    found = solution(pods, order, originals_of(pods), parents)
    assert found.unreachable is None
    reached = class_shares(now := written(pods, found.targets), parents)
    total, asked, unit = sum(reached[name] for name in order), sum(order.values()), one_unit(now, parents)
    for name, weight in order.items():
        # A unit for each pod of the families that the class is in (none of them is below 1), and one of their sum; and,
        # since its part is one of all, that part of a unit of every family's sum.
        rounding = weight / asked * sum(unit[place] for place in present) + sum(
            unit[place] * (1 + sum(parent_of(pod.group) == place for pod in pods))
            for place, names in present.items()
            if name in names
        )
        assert reached[name] == pytest.approx(weight / asked * total, rel=0.03, abs=rounding)


@given(trees(classes=CLASSES, skips=(None,), places=("", "burstable", "besteffort")), st.data())
def test_what_some_weights_of_steered_pods_alone_come_to_is_reached(tree, data):
    """The sum of the pods at the top moves where it must; all weights are fine enough for whole numbers."""
    pods, parents = tree
    parents = {place: weight * 20 + 1000 for place, weight in parents.items() if weight <= 391}
    assume(all(parent_of(pod.group) in ("", *parents) for pod in pods))
    factor = {(cls, place): data.draw(st.integers(1, 10)) for cls in CLASSES for place in PLACES}
    small = [msgspec.structs.replace(pod, weight=100 + pod.weight % 100) for pod in pods]
    known = [msgspec.structs.replace(pod, weight=pod.weight * factor[pod.cls, parent_of(pod.group)]) for pod in small]
    totals = class_shares(known, parents)
    order = {name: max(1, round(total / max(totals.values()) * 10_000)) for name, total in totals.items()}
    assume(min(order.values()) >= 100)
    found = solution(small, order, originals_of(small), parents)
    assert found.unreachable is None
    reached = class_shares(written(small, found.targets), parents)
    for name, total in totals.items():
        assert reached[name] == pytest.approx(total, rel=0.03)


def spread(sums, profile):
    """The log of the ratio of the class that has most of what it should to the one that has least."""
    ratios = [total / profile[name] for name, total in sums.items()]
    return math.log(max(ratios) / min(ratios)) if ratios else 0.0


arms = st.fixed_dictionaries({"critical": st.just(10_000), "default": st.just(316), "batch": st.just(100)})


@given(trees(places=("", "burstable"), heaviest=79), st.one_of(arms, profiles))
def test_no_two_classes_are_off_their_ratio_by_more_than_5_percent_without_a_word(tree, profile):
    pods, parents = tree
    found = solution(pods, profile, originals_of(pods), parents)
    reached, present = class_shares(written(pods, found.targets), parents), {pod.cls for pod in pods if pod.cls}
    sums = {name: reached[name] for name in present if reached[name]}
    if spread(sums, profile) > math.log(1.05) + 1e-9:
        assert found.unreachable or found.coarse


shares_of_places = st.dictionaries(st.sampled_from("pqrs"), st.floats(1e-4, 1.0), min_size=1)
class_weights = st.dictionaries(st.sampled_from("abcde"), st.floats(1e-4, 1.0), min_size=1)


@st.composite
def transports(draw):
    """Families' shares, classes' weights, and originals' sums where a class has pods: somewhere, and each family some."""
    shares, weights = draw(shares_of_places), draw(class_weights)
    seeds = {
        name: {place: draw(st.floats(1e-3, 1e3)) for place in sorted(shares) if draw(st.booleans())}
        for name in sorted(weights)
    }
    seeds = {name: seed for name, seed in seeds.items() if seed}
    shares = {place: share for place, share in shares.items() if any(place in seed for seed in seeds.values())}
    assume(shares)
    return shares, {name: weights[name] for name in seeds}, seeds


def possible_ratio(shares, weights, seeds):
    """What the class that has least of what it should can have of it: by all sets of classes, and all their families."""
    asked, total = sum(weights.values()), sum(shares.values())
    sets = [names for count in range(1, len(seeds) + 1) for names in itertools.combinations(seeds, count)]
    return min(
        sum(shares[place] for place in set().union(*(seeds[name] for name in names)))
        / (sum(weights[name] for name in names) / asked * total)
        for names in sets
    )


@given(transports())
def test_flows_give_out_every_family_completely_and_every_class_what_it_should_have_where_it_can(transport):
    shares, weights, seeds = transport
    found = flows(shares, weights, seeds, natural_flows(shares, weights, seeds))
    for place, share in shares.items():
        assert sum(flow.get(place, 0.0) for flow in found.values()) == pytest.approx(share)
    assert all(set(flow) == set(seeds[name]) for name, flow in found.items())
    assert all(part >= 0.0 and math.isfinite(part) for flow in found.values() for part in flow.values())
    asked, total = sum(weights.values()), sum(shares.values())
    ratios = [sum(flow.values()) * asked / (weights[name] * total) for name, flow in found.items()]
    least = possible_ratio(shares, weights, seeds)
    assert min(ratios) >= min(1.0, least) ** 2 * (1 - 1e-5) * min(1.0, 1 / max(ratios))
    if least >= 1 - 1e-7:
        assert ratios == pytest.approx([1.0] * len(ratios), rel=1e-4)


@given(transports())
def test_the_sets_that_share_their_families_are_worked_off_from_the_most_wanted_to_the_least(transport):
    """So nothing that a class has too much of could be given to one that lacks it."""
    shares, weights, seeds = transport
    sets = list(totals(shares, weights, {name: frozenset(seed) for name, seed in seeds.items()}))
    assert sorted(name for _, wanted in sets for name in wanted) == sorted(weights)
    left, ratios = set(shares), []
    for places, wanted in sets:
        assert places <= left
        left -= places
        assert sum(wanted.values()) == pytest.approx(sum(shares[place] for place in places))
        assert all(set(seeds[name]) & (left | places) <= places for name in wanted)
        ratios.append({name: total / weights[name] for name, total in wanted.items()})
    assert not left
    assert all(max(found.values()) == pytest.approx(min(found.values())) for found in ratios)
    least = [min(found.values()) for found in ratios]
    assert all(one <= other * (1 + 1e-6) for one, other in itertools.pairwise(least))


@pytest.mark.parametrize("ratio", [1, 10, 100, 1000, 9_999])
def test_the_border_of_what_can_be_reached_is_reached(ratio):
    """`a` and `b` share one parent, `a` alone has the other: nearly all of the first is left to `b`."""
    shares = {"p": 0.5, "q": 0.5}
    wanted = {"a": 0.5 + 0.5 / (1 + ratio), "b": 0.5 - 0.5 / (1 + ratio)}
    seeds = {"a": {"p": 100.0, "q": 1.0}, "b": {"p": 1.0}}
    found = flows(shares, wanted, seeds, natural_flows(shares, wanted, seeds))
    assert sum(found["a"].values()) == pytest.approx(wanted["a"], rel=1e-6)
    assert found["a"]["p"] == pytest.approx(0.5 / (1 + ratio), rel=1e-4)


def test_more_kinds_of_classes_than_sets_are_looked_at_still_get_everything():
    places = [f"p{n}" for n in range(12)]
    seeds = {f"c{n}": {places[n]: 1.0, places[(n + 1) % 12]: 1.0} for n in range(12)}
    shares, weights = dict.fromkeys(places, 1 / 12), {f"c{n}": 1.0 + n for n in range(12)}
    found = flows(shares, weights, seeds, natural_flows(shares, weights, seeds))
    assert sum(sum(flow.values()) for flow in found.values()) == pytest.approx(1.0)
