"""Stages that can be tampered with: other settings, environment or rights for one service, other metrics pages."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from lab.cgroup_stage import CgroupStage
from lab.sim_stage import SimStage
from runtime.processes import Spec


@dataclass
class Alteration:
    """What is different for one service."""

    flags: list[str] = field(default_factory=list)
    env: dict[str, str] = field(default_factory=dict)
    enter: Callable[[], None] | None = None


class Tampering:
    """Mixed into a stage: `alterations` by service, `pages` replaces metrics URLs by pod name."""

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)
        self.alterations: dict[str, Alteration] = {}
        self.pages: dict[str, str] = {}
        self.real_pages: dict[str, str | None] = {}

    def alter(self, service: str) -> Alteration:
        return self.alterations.setdefault(service, Alteration())

    async def open(self, run_dir: Path) -> None:
        await super().open(run_dir)
        self.real_pages = {pod.name: pod.metrics_url for pod in self.pods}
        self.pods = tuple(replace(pod, metrics_url=self.pages.get(pod.name, pod.metrics_url)) for pod in self.pods)

    def place(self, spec: Spec) -> Spec:
        placed = super().place(spec)
        altered = self.alterations.get(spec.name)
        if altered is None:
            return placed
        steps = [step for step in (placed.enter, altered.enter) if step is not None]

        def enter() -> None:
            for step in steps:
                step()

        return replace(
            placed,
            argv=[*placed.argv, *altered.flags],
            env={**(placed.env or {}), **altered.env},
            enter=enter if steps else None,
        )

    def file_of(self, pod: str) -> Path:
        """The pod's `cpu.weight`."""
        group = next(staged.group for staged in self.pods if staged.name == pod)
        return Path(self.host.cgroup_root) / self.host.pods_root / group / "cpu.weight"


class FaultSimStage(Tampering, SimStage):
    """The simulated node."""


class FaultCgroupStage(Tampering, CgroupStage):
    """Real cgroups."""
