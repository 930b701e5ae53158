"""How much of each class comes from which family: a transport problem, solved exactly.

Given: the share of each family's steered pods, the classes' weights, and which class has pods where. Wanted: class
totals in the ratio of their weights. A set of classes cannot have more than the families that they are in, and that is
all that stands in the way (Gale, A theorem on flows in networks, 1957). Where it does, the nearest is: the set that has
least of what it should shares all that there is for it, in proportion, and the others share the rest, and so on, which
is where iterative proportional fitting would end up (Pretzel, Convergence of the iterative scaling procedure for
non-negative matrices, 1980), without its slow end.

Of all flows with these totals the one nearest to the originals (least relative entropy) is taken: each class's share in
a family is its original one times a factor of the class and one of the family (Sinkhorn). The factors are found by
Newton's method on the convex dual: the iteration takes thousands of rounds near the border of what can be reached.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

_MOST_SETS: Final = 256
"""Most sets of families that are looked at: 8 kinds of classes that differ in where they have pods. Beyond it, sets are
only told apart by single kinds, and totals may be further off than they need be."""
_ROUNDING: Final = 1e-9
_REACHED: Final = 1e-6
_ROUNDS: Final = 60
_MOST_STEP: Final = 4.0


def confined(places: Mapping[str, frozenset[str]]) -> list[tuple[frozenset[str], list[str]]]:
    """Sets of families with the classes that have no pods elsewhere. `places` are each class's families."""
    kinds = sorted(set(places.values()), key=lambda kind: (len(kind), sorted(kind)))
    found: dict[frozenset[str], None] = {}
    for kind in kinds:
        if len(found) * 2 >= _MOST_SETS:
            found = dict.fromkeys([*kinds, frozenset().union(*kinds)])
            break
        found |= dict.fromkeys([kind, *(kind | other for other in found)])
    return [(families, [name for name in places if places[name] <= families]) for families in found]


def totals(
    shares: Mapping[str, float], weights: Mapping[str, float], places: Mapping[str, frozenset[str]]
) -> Iterator[tuple[frozenset[str], dict[str, float]]]:
    """Sets of families, the most wanted first, with the totals of the classes that share just these. Together they are
    all families and all classes. In each set the totals are in the ratio of `weights`.
    """
    left = dict(places)
    while left:
        candidates = [
            (sum(weights[n] for n in names) / sum(shares[f] for f in families), families, names)
            for families, names in confined(left)
        ]
        most = max(wanted for wanted, _, _ in candidates)
        tight = [item for item in candidates if item[0] >= most * (1 - _ROUNDING)]
        _, families, names = min(tight, key=lambda item: (len(item[1]), sorted(item[1])))
        available, asked = sum(shares[f] for f in families), sum(weights[n] for n in names)
        yield families, {name: available * weights[name] / asked for name in names}
        left = {name: kind - families for name, kind in left.items() if name not in names}


def natural_flows(
    shares: Mapping[str, float], weights: Mapping[str, float], seeds: Mapping[str, Mapping[str, float]]
) -> dict[str, dict[str, float]]:
    """What each class would have where, by class and family, if all had what they should and each class were divided
    among its families as it was. `shares` are the families' under the originals, `seeds` the originals' sums there.
    """
    sums = {place: sum(seed.get(place, 0.0) for seed in seeds.values()) for place in shares}
    asked, found = sum(weights.values()), {}
    for name, seed in seeds.items():
        was = {place: shares[place] * own / sums[place] for place, own in seed.items()}
        found[name] = {place: weights[name] / asked * share / sum(was.values()) for place, share in was.items()}
    return found


def flows(
    shares: Mapping[str, float],
    weights: Mapping[str, float],
    seeds: Mapping[str, Mapping[str, float]],
    natural: Mapping[str, Mapping[str, float]],
) -> dict[str, dict[str, float]]:
    """The share of each class in each family, by class and family. `seeds` are the originals' sums of the pods that the
    class has there, `natural` its flows as in `natural_flows`. Each family's share is given out completely.

    Where some class cannot have what it should, the others are not driven out of its families for it altogether: the
    further away it stays, the more of the natural way to divide a family is mixed in.
    """
    found = {name: dict.fromkeys(seed, 0.0) for name, seed in seeds.items()}
    for families, names in _components({name: frozenset(seed) for name, seed in seeds.items()}):
        here = {place: shares[place] for place in families}
        ratio = sum(here.values()) / sum(weights[name] for name in names)
        least = 1.0
        places = {name: frozenset(seeds[name]) for name in names}
        for columns, wanted in totals(here, weights, places):
            least = min(least, min(total / weights[name] for name, total in wanted.items()) / ratio)
            block = _fit(
                [[seeds[name].get(place, 0.0) for place in sorted(columns)] for name in wanted],
                list(wanted.values()),
                [here[place] for place in sorted(columns)],
            )
            for name, row in zip(wanted, block, strict=True):
                found[name] |= {
                    place: p for place, p in zip(sorted(columns), row, strict=True) if place in places[name]
                }
        if least < 1.0 - _REACHED:
            sums = {place: sum(natural[name].get(place, 0.0) for name in names) for place in families}
            for name in names:
                for place in places[name]:
                    mixed_in = (1.0 - least) * here[place] * natural[name][place] / sums[place]
                    found[name][place] = least * found[name][place] + mixed_in
    return found


def _components(places: Mapping[str, frozenset[str]]) -> list[tuple[frozenset[str], list[str]]]:
    """Families and classes that have to do with each other, if only by others in between."""
    found: list[tuple[frozenset[str], list[str]]] = []
    for name, families in places.items():
        touched = [part for part in found if part[0] & families]
        found = [part for part in found if part not in touched]
        found.append(
            (families.union(*(part[0] for part in touched)), [*(n for part in touched for n in part[1]), name])
        )
    return found


@dataclass(frozen=True)
class Line:
    """A share that depends linearly on how the free sum is set: `at` 0 and by how much more at 1."""

    at: float
    slope: float

    def __call__(self, z: float) -> float:
        """The share at `z`."""
        return self.at + self.slope * z


def best_setting(
    lines: Mapping[str, Line],
    weights: Mapping[str, float],
    places: Mapping[str, frozenset[str]],
    natural: Mapping[str, float],
) -> float:
    """How to set the free sum, between 0 and 1; `lines` are the families' shares for it.

    Where all classes can have what they should, they have. Where not, what the class that has least can have at best is
    sought the less the further away it is (its square is enough): no class is turned inside out for another's lost
    cause. Among what is left, the families' shares come as near as they can to the `natural` ones, which leave each
    class divided among families as it was (least relative entropy).
    """
    cuts = _cuts(lines, weights, places)
    everything = _everything(lines)

    def strangeness(z: float) -> float:
        parts = ((line(z) / everything(z), natural[family]) for family, line in lines.items())
        return sum(part * math.log(part / wish) for part, wish in parts if part > 0)

    start = _top(lambda z: -strangeness(z))
    best = nearest_setting(lines, weights, places)
    enough = min(1.0, _least(cuts, everything, best)) ** 2 * (1 - _ROUNDING)
    low, high = 0.0, 1.0
    for line, part in cuts:
        at, slope = line.at - enough * part * everything.at, line.slope - enough * part * everything.slope
        if slope > 0:
            low = max(low, -at / slope)
        elif slope < 0:
            high = min(high, -at / slope)
    return max(low, min(high, start)) if low <= high else best


def nearest_setting(
    lines: Mapping[str, Line], weights: Mapping[str, float], places: Mapping[str, frozenset[str]]
) -> float:
    """How to set the free sum for the class that has least of what it should to have as much as it can."""
    cuts, everything = _cuts(lines, weights, places), _everything(lines)
    return _top(lambda z: _least(cuts, everything, z))


def _cuts(
    lines: Mapping[str, Line], weights: Mapping[str, float], places: Mapping[str, frozenset[str]]
) -> list[tuple[Line, float]]:
    """What each set of families has, and the part of all that the classes confined to it should have."""
    asked = sum(weights.values())
    return [
        (
            Line(sum(lines[f].at for f in families), sum(lines[f].slope for f in families)),
            sum(weights[name] for name in names) / asked,
        )
        for families, names in confined(places)
    ]


def _everything(lines: Mapping[str, Line]) -> Line:
    return Line(sum(line.at for line in lines.values()), sum(line.slope for line in lines.values()))


def _least(cuts: Sequence[tuple[Line, float]], everything: Line, z: float) -> float:
    return min(line(z) / (part * everything(z)) for line, part in cuts)


def _top(function: Callable[[float], float]) -> float:
    """Where between 0 and 1 a function with one hill is highest."""
    low, high = 0.0, 1.0
    for _ in range(_ROUNDS):
        one, other = low + (high - low) / 3, high - (high - low) / 3
        low, high = (one, high) if function(one) < function(other) else (low, other)
    return max((0.0, (low + high) / 2, 1.0), key=function)


def _fit(seed: Sequence[Sequence[float]], rows: Sequence[float], columns: Sequence[float]) -> list[list[float]]:
    """The seed times a factor a row and one a column, so that the columns add up to `columns`, and the rows to `rows`
    as far as these can be reached.
    """
    logs = [0.0] * len(rows)
    flow, height = _spread(seed, logs, columns, rows)
    for _ in range(_ROUNDS if len(rows) > 1 else 0):
        sums = [sum(row) for row in flow]
        if all(abs(total - wish) <= _ROUNDING * wish for total, wish in zip(sums, rows, strict=True)):
            break
        step = _newton(flow, sums, rows, columns)
        part = min(1.0, _MOST_STEP / max(_ROUNDING, *map(abs, step)))
        for _ in range(_ROUNDS):
            trial = [log + part * change for log, change in zip(logs, step, strict=True)]
            trial_flow, trial_height = _spread(seed, trial, columns, rows)
            if trial_height < height:
                break
            part /= 2
        else:
            break  # as near as numbers go
        logs, flow, height = trial, trial_flow, trial_height
    return flow


def _spread(
    seed: Sequence[Sequence[float]], logs: Sequence[float], columns: Sequence[float], rows: Sequence[float]
) -> tuple[list[list[float]], float]:
    """The flow for these logarithms of row factors, columns exact; and the dual's height, which is to be lowered."""
    largest = max(logs)
    factors = [math.exp(log - largest) for log in logs]
    height = -sum(wish * (log - largest) for wish, log in zip(rows, logs, strict=True))
    flow = [[0.0] * len(columns) for _ in rows]
    for column, wish in enumerate(columns):
        raw = [row[column] * factor for row, factor in zip(seed, factors, strict=True)]
        total = sum(raw)
        height += wish * math.log(total)
        for number, value in enumerate(raw):
            flow[number][column] = wish * value / total
    return flow, height


def _newton(
    flow: Sequence[Sequence[float]], sums: Sequence[float], rows: Sequence[float], columns: Sequence[float]
) -> list[float]:
    """The step of the row factors' logarithms; the first stays, since only ratios count."""
    size = len(rows)
    matrix = [
        [
            (sums[i] if i == j else 0.0)
            - sum(a * b / wish for a, b, wish in zip(flow[i], flow[j], columns, strict=True))
            for j in range(1, size)
        ]
        + [rows[i] - sums[i]]
        for i in range(1, size)
    ]
    for number, row in enumerate(matrix):
        row[number] += _ROUNDING * sums[number + 1]
    return [0.0, *_solved(matrix)]


def _solved(matrix: list[list[float]]) -> list[float]:
    """Gaussian elimination; the last column is the right side. The matrix is positive definite: no row is swapped."""
    size = len(matrix)
    for i in range(size):
        matrix[i][i] = matrix[i][i] if matrix[i][i] > 0 else 1.0  # a share too small for numbers: it stays
        for j in range(i + 1, size):
            factor = matrix[j][i] / matrix[i][i]
            matrix[j] = [b - factor * a for a, b in zip(matrix[i], matrix[j], strict=True)]
    found = [0.0] * size
    for i in reversed(range(size)):
        known = sum(matrix[i][j] * found[j] for j in range(i + 1, size))
        found[i] = (matrix[i][size] - known) / matrix[i][i]
    return found
