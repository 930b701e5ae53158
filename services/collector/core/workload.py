"""What a source of workloads says of one pod, and what its labels, namespace and annotations make of it."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from schemas.settings import ClassSettings

EXCLUDE: Final = "trimtab.dev/exclude"
OBJECTIVE: Final = "trimtab.dev/slo-p99"

PENDING: Final = "pending"
TERMINATING: Final = "terminating"
FINISHED: Final = "finished"
EXCLUDED: Final = "excluded"
NAMESPACE: Final = "namespace"

APART: Final = frozenset({PENDING, TERMINATING, FINISHED, EXCLUDED, NAMESPACE})
"""Reasons to skip a pod that leave it without a class: it is seen, and neither scraped nor judged nor written."""

MAX_UNKNOWN_VALUES: Final = 10
"""Most label values that are counted one by one; anybody may write a label."""

REST: Final = "(other)"
"""What the values beyond that are counted under; no label of Kubernetes can hold brackets."""

TRUE_WORDS: Final = frozenset({"true", "1", "yes", "on"})
FALSE_WORDS: Final = frozenset({"false", "0", "no", "off", ""})
"""What people write for yes and no, in any case."""

_MAX_SHOWN: Final = 63
_DURATION: Final = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(us|ms|s)")
_SECONDS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_MAX_SECONDS: Final = 86_400.0
_MIN_SECONDS: Final = 1e-6


@dataclass(frozen=True)
class Workload:
    """One pod. `group` is its pod-level cgroup below the pods root.

    `metrics_url`, `latency_metric` and `latency_unit` are what somebody wrote out; else `annotations` say it, with the
    pod's `address` (its IP) and the `ports` that its containers declare (core/targets.py). `skip` says why it is looked
    at and never steered, whatever its files say. `objective_p99_seconds` is the pod's own objective.
    """

    uid: str
    name: str
    group: str
    labels: Mapping[str, str] = field(default_factory=dict)
    metrics_url: str | None = None
    latency_metric: str | None = None
    latency_unit: str | None = None
    annotations: Mapping[str, str] = field(default_factory=dict)
    address: str | None = None
    ports: tuple[int, ...] = ()
    namespace: str = ""
    skip: str | None = None
    objective_p99_seconds: float | None = None


@dataclass(frozen=True)
class Namespaces:
    """Whose pods are steered: those of `include` (None: of all) without `exclude`."""

    include: frozenset[str] | None = None
    exclude: frozenset[str] = frozenset()

    def takes(self, namespace: str) -> bool:
        """Whether this namespace is one of them. A workload that names none is not judged by it."""
        if not namespace:
            return True
        return namespace not in self.exclude and (self.include is None or namespace in self.include)


@dataclass(frozen=True)
class Classified:
    """A workload with all that it says of itself taken in. `unknown` is a class label's value that names no class,
    `note` what is wrong with an annotation.
    """

    workload: Workload
    cls: str | None
    unknown: str | None = None
    note: str | None = None


def settle(
    workload: Workload, keys: Sequence[str], classes: Mapping[str, ClassSettings], namespaces: Namespaces
) -> Classified:
    """The workload's class, its reason to be skipped (of several: where it is in its life, its own wish, its namespace,
    its group) and its objective. Whoever writes that he wants to be left alone is, unless it plainly says the opposite.
    """
    objective, notes = workload.objective_p99_seconds, []
    wish = workload.annotations.get(EXCLUDE, "").strip().lower()
    unclear = None
    if wish not in TRUE_WORDS | FALSE_WORDS:
        unclear = f'{EXCLUDE} is {_shown(wish)!r}, taken as "true"; "true" or "false" is expected'
    if OBJECTIVE in workload.annotations:
        try:
            objective = parse_duration(workload.annotations[OBJECTIVE])
        except ValueError as error:
            notes.append(f"{OBJECTIVE} {error}; the class's objective holds")
    skip = workload.skip
    if skip not in APART:
        if wish not in FALSE_WORDS:
            skip = EXCLUDED
        elif not namespaces.takes(workload.namespace):
            skip = NAMESPACE
    if (skip, objective) != (workload.skip, workload.objective_p99_seconds):
        workload = replace(workload, skip=skip, objective_p99_seconds=objective)
    if skip in APART:
        return Classified(workload, None, note=unclear if skip == EXCLUDED else None)
    cls, value = classify(workload.labels, keys, classes), class_label(workload.labels, keys)
    return Classified(workload, cls, value if cls is None else None, "; ".join(notes) or None)


def classify(labels: Mapping[str, str], keys: Sequence[str], classes: Mapping[str, ClassSettings]) -> str | None:
    """The class that the first present label key names, by exact value; None for no label or an unknown value."""
    value = class_label(labels, keys)
    if value is None:
        return None
    return next((name for name, spec in classes.items() if value in (spec.label_values or (name,))), None)


def class_label(labels: Mapping[str, str], keys: Sequence[str]) -> str | None:
    """The value of the first label key that is present."""
    return next((labels[key] for key in keys if key in labels), None)


def unknown_values(values: Iterable[str]) -> dict[str, int]:
    """How many pods have each label value that names no class: the most frequent ones, and the rest together."""
    counted = Counter(_shown(value) for value in values)
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    found = dict(ranked[:MAX_UNKNOWN_VALUES])
    rest = sum(count for _, count in ranked[MAX_UNKNOWN_VALUES:])
    return found | ({REST: rest} if rest else {})


def parse_duration(text: str) -> float:
    """Seconds of a number with its unit: "100ms", "0.25s", "800us". Raises ValueError with what is wrong.

    Minutes are refused: "100m" is a tenth in Kubernetes' own quantities.
    """
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise ValueError(f'is {_shown(text)!r}; a number with its unit is expected, like "100ms" or "0.25s"')
    seconds = float(match[1]) * _SECONDS[match[2]]
    if not math.isfinite(seconds) or not _MIN_SECONDS <= seconds <= _MAX_SECONDS:
        raise ValueError(f"is {_shown(text)!r}; 1us to 86400s is expected")
    return seconds


def _shown(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
