"""Settings that several processes must agree on: the node, the loop's times, the classes and the weights' limits.

Each service adds a section of its own (`services/<name>/config.py`). Structs forbid unknown fields, so a mistyped
setting is an error at start and not a silent default. `runtime/config.py` loads them.
"""

import hashlib
import re
from typing import Annotated, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from schemas.messages import Mode
from schemas.subjects import node_token
from schemas.version import CONFIG_VERSION

KERNEL_MIN_WEIGHT = 1
KERNEL_MAX_WEIGHT = 10_000
"""The range of `cpu.weight` (kernel: Documentation/admin-guide/cgroup-v2.rst)."""

Seconds: TypeAlias = Annotated[float, Meta(gt=0.0, le=86_400.0)]
Ratio: TypeAlias = Annotated[float, Meta(ge=0.0, le=1.0)]
Weight: TypeAlias = Annotated[int, Meta(ge=KERNEL_MIN_WEIGHT, le=KERNEL_MAX_WEIGHT)]


_CLASS_NAME: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_]{0,62}")


class SettingsError(ValueError):
    """Settings that contradict each other. The text is one line: which setting, what is wrong, the way out."""


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every section of the configuration."""


class LoopSettings(Section, frozen=True, kw_only=True):
    """The loop's times."""

    tick_seconds: Seconds = 5.0
    """Seconds between cycle starts. 5: several scheduler periods and enough requests for a P99 on a busy service."""

    settle_seconds: Seconds = 2.0
    """Seconds between a write and the second look. 2: most of what the old weights had queued is served by then, and
    the tick is not over."""

    decision_budget_seconds: Seconds = 0.1
    """Seconds from a state to its action; later the cycle is `late`. 0.1: 2 % of a tick."""


class WeightSettings(Section, frozen=True, kw_only=True):
    """The limits of every class weight, kept by the guard and known to the decider."""

    min_weight: Weight = 100
    """Smallest class weight. 100 is the kernel's default weight; a ratio of 1:100 to the largest is enough."""

    max_weight: Weight = 10_000
    """Largest class weight: the kernel's own limit."""

    max_step_ratio: Annotated[float, Meta(gt=1.0, le=100.0)] = 4.0
    """Largest factor by which a class weight may change in one cycle. 4: one step of the half-decade grid (3.16)."""

    max_changes_per_minute: Annotated[float, Meta(gt=0.0, le=600.0)] = 8.0
    """Most applied changes per minute. 8 of the 12 cycles at the 5 s tick: the rest is for looking."""


class ClassSettings(Section, frozen=True, kw_only=True):
    """One workload class."""

    kind: Literal["latency", "throughput"] = "latency"
    """`latency`: has an objective that comes first. `throughput`: is judged by the work it gets done."""

    label_values: tuple[str, ...] = ()
    """Exact label values that put a pod into this class. Empty: the class's own name."""

    objective_p99_seconds: Seconds | None = None
    """The P99 in seconds that this class should keep. `latency` needs this or a pressure ceiling, to be judged by."""

    objective_pressure_ratio: Ratio | None = None
    """Largest part of the time in which its worst pod may wait for CPU that others have (0-1). Judges the class where
    its pods bring no latency: no metrics endpoint, or no latency metric on the page."""

    violation_target_ratio: Ratio = 0.01
    """Fraction of requests that may be over the objective. 0.01, since the objective is a P99."""

    importance: Annotated[float, Meta(gt=0.0, le=1.0)] = 1.0
    """How much a violation here weighs in the reward against other classes (0-1]."""


DEFAULT_CLASSES: dict[str, ClassSettings] = {
    "latency-critical": ClassSettings(objective_p99_seconds=0.1, objective_pressure_ratio=0.3),
    "default": ClassSettings(objective_p99_seconds=0.5, objective_pressure_ratio=0.5, importance=0.5),
    "batch": ClassSettings(kind="throughput"),
}


class Shared(Section, frozen=True, kw_only=True):
    """The part of the configuration that every service reads."""

    version: int = CONFIG_VERSION
    """Version of the file format."""

    node: str = "localhost"
    """Name of this node, as Kubernetes calls it (DNS-1123). On a cluster: from the downward API as TRIMTAB_NODE."""

    mode: Mode = "shadow"
    """What the guard starts in. `shadow`, so that nothing is ever written before someone asks for it."""

    loop: LoopSettings = LoopSettings()
    weights: WeightSettings = WeightSettings()
    classes: dict[str, ClassSettings] = msgspec.field(default_factory=lambda: dict(DEFAULT_CLASSES))
    """The classes by name. Order is priority order in reports. Naming any replaces the whole default set."""

    def check(self) -> None:
        """Raises SettingsError for the first contradiction between settings."""
        if self.version != CONFIG_VERSION:
            raise SettingsError(
                f"version: {self.version} is not supported; this release reads version {CONFIG_VERSION}"
            )
        try:
            node_token(self.node)
        except ValueError as error:
            raise SettingsError(f"node: {error}") from error
        if self.weights.min_weight >= self.weights.max_weight:
            raise SettingsError(
                f"weights.min_weight: {self.weights.min_weight} is not below "
                f"weights.max_weight {self.weights.max_weight}; lower the one or raise the other"
            )
        if self.loop.decision_budget_seconds + self.loop.settle_seconds >= self.loop.tick_seconds:
            raise SettingsError(
                f"loop.tick_seconds: {self.loop.tick_seconds} must be more than settle_seconds "
                f"{self.loop.settle_seconds} + decision_budget_seconds {self.loop.decision_budget_seconds}"
            )
        self._check_classes()

    def _check_classes(self) -> None:
        if not self.classes:
            raise SettingsError("classes: none are defined; leave the section out for the default three")
        values: dict[str, str] = {}
        for name, spec in self.classes.items():
            if not _CLASS_NAME.fullmatch(name) or name == "node":  # `node.…` are the node's own features
                raise SettingsError(
                    f"classes: {name!r} is not a name for a class; use letters, digits, '-' and '_', and not 'node' "
                    f"(label_values may hold any text)"
                )
            if spec.kind == "latency" and spec.objective_p99_seconds is None and spec.objective_pressure_ratio is None:
                raise SettingsError(
                    f"classes.{name}: has no objective; set classes.{name}.objective_p99_seconds (seconds) or "
                    f"classes.{name}.objective_pressure_ratio (0-1), or kind: throughput if it has none"
                )
            for value in spec.label_values or (name,):
                if value in values:
                    raise SettingsError(
                        f"classes.{name}.label_values: {value!r} already belongs to class {values[value]!r}; "
                        f"a label value can name one class only"
                    )
                values[value] = name


def settings_digest(shared: Shared, section: Section) -> str:
    """The fingerprint of the settings that a service works by: what all share, and its own. 12 hex digits."""
    return hashlib.sha256(msgspec.json.encode([shared, section], order="deterministic")).hexdigest()[:12]
