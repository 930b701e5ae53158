"""Owns who plays a run: the simulator, in whatever process it is asked, or real cgroups on this machine.

The packages that simulate are imported when the first run begins: reading results needs none of them.
"""

import asyncio
import importlib
from pathlib import Path

from lab.arena.bench import BEST_STATIC, Job, Played, Player
from lab.arena.results import BestStatic


def play_simulated(job: Job) -> Played | BestStatic:
    """One run on the simulator."""
    episode = importlib.import_module("lab.arena.episode")
    if job.policy == BEST_STATIC:
        best: BestStatic = episode.best_static(job.scenario, job.seed, job.cycles)
        return best
    done = episode.play(job.scenario, job.policy, job.seed, job.cycles)
    return Played(done.row, tuple(done.scores), done.curves if job.with_curves else None)


def cgroup_player(tick_seconds: float, run_dir: Path, load_ratio: float = 1.0) -> Player:
    """Plays `load_ratio` of the requests on real cgroups, one run at a time, each with a folder of its own
    below `run_dir`.
    """
    backend = importlib.import_module("lab.arena.cgroup_backend")

    def play(job: Job) -> Played:
        name = f"{job.scenario.name}-{job.scenario.queue}-{job.policy}-{job.seed}".replace(":", "-")
        folder = run_dir / name
        folder.mkdir(parents=True, exist_ok=True)
        played = backend.play(job.scenario, job.policy, job.seed, job.cycles, tick_seconds, folder, load_ratio)
        row, curves = asyncio.run(played)
        return Played(row, curves.scores, curves if job.with_curves else None)

    return play
