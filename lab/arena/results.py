"""Owns the bench's results: rows, the best static profile, the curves for the report; JSON on disk."""

import os
import stat
import tempfile
from contextlib import suppress
from typing import Literal

import msgspec

RESULTS_VERSION = 1


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One policy in one scenario with one seed.

    `score` is the mean per cycle (lab/arena/score.py). `violation_lc` and `violation_default` are the parts (0-1) of
    all requests that missed their class's objective, None without requests; `batch_share` is batch's part of all CPUs;
    `p99_lc_ms` is over all requests of the run. `violation_seconds` is time in cycles with more than 1 % of requests
    over. `worst_shortfall` is the largest amount, at any cycle, by which the cumulative score lay below that of
    request-derived weights with the same seed, as a part of the magnitude of the latter (score.py). `plateau_cycle` is
    from which cycle on the score is as good as it gets. `seconds` is what the run took.

    `..._settled` are over the second half of the cycles alone, when a policy has found its way: the latency-critical
    P99, and what batch, all other pods, the clients and the agent had of all CPUs. Clients and agent are known on real
    cgroups only, where they run on the same CPUs.
    """

    scenario: str
    queue: str
    policy: str
    seed: int
    cycles: int
    score: float
    violation_lc: float | None
    violation_default: float | None
    batch_share: float
    p99_lc_ms: float | None
    p99_default_ms: float | None
    violation_seconds: float
    changes_per_minute: float
    rollbacks: int
    worst_shortfall: float
    regret_static: float | None = None
    regret_phase: float | None = None
    batch_cpu_seconds: float = 0.0
    plateau_cycle: int | None = None
    seconds: float = 0.0
    p99_lc_settled_ms: float | None = None
    batch_share_settled: float | None = None
    services_share_settled: float | None = None
    clients_share_settled: float | None = None
    agent_share_settled: float | None = None


class Curves(msgspec.Struct, frozen=True, kw_only=True):
    """One run, cycle by cycle: the score, the P99s in milliseconds (None: no requests), the arm in force, and what
    happened (`applied`, `held`, `rolled_back`, ...).
    """

    scenario: str
    queue: str
    policy: str
    seed: int
    scores: tuple[float, ...]
    p99_lc_ms: tuple[float | None, ...]
    p99_default_ms: tuple[float | None, ...]
    batch_share: tuple[float, ...]
    arms: tuple[str, ...]
    outcomes: tuple[str, ...]


class BestStatic(msgspec.Struct, frozen=True, kw_only=True):
    """The best single profile in hindsight, and the best one per phase, for one scenario and seed; of `tried` profiles.

    `profile` are class weights; `phases` names the best profile and its mean score in each phase.
    """

    scenario: str
    queue: str
    seed: int
    profile: dict[str, int]
    score: float
    per_phase_score: float
    phases: dict[str, tuple[dict[str, int], float]]
    tried: int


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """The cumulative score of one policy in one scenario over all seeds: its mean and 95 % t interval at some cycles
    (`low` and `high` are empty with one seed). `cycle` counts those that are over.
    """

    scenario: str
    queue: str
    policy: str
    cycle: tuple[int, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...] = ()
    high: tuple[float, ...] = ()


class About(msgspec.Struct, frozen=True, kw_only=True):
    """What the report says of a scenario: its text, cores, objectives (P99 in seconds by class), if weights matter."""

    text: str
    cores: int
    objectives: dict[str, float]
    matters: bool = True


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """A whole bench. `made_by` is the command, `version` of this format, `trimtab` of the program, `commit` of its
    source if known; `machine` is what it ran on. `phases` and `about` are by scenario; `phases` names each stretch of
    the run with its first cycle. `versions` are those of Python and of the packages that the figures depend on.
    """

    results: tuple[Row, ...]
    best_static: tuple[BestStatic, ...]
    curves: tuple[Curves, ...] = ()
    phases: dict[str, tuple[tuple[str, int], ...]] = {}
    backend: Literal["sim", "cgroup"] = "sim"
    cycles: int = 0
    cycle_seconds: float = 5.0
    seeds: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    made_by: str = ""
    made_at: str = ""
    trimtab: str = ""
    commit: str = ""
    machine: str = ""
    version: int = RESULTS_VERSION
    bands: tuple[Band, ...] = ()
    about: dict[str, About] = {}
    versions: dict[str, str] = {}


def write_results(path: str, results: Results) -> None:
    """Writes the file at once: whoever reads it finds what was there before, or all of it. Raises OSError.

    A link is followed, so that what it names is replaced and not the link. What is no regular file, or lies in a folder
    that takes no new one, is written to as it is: hours of runs are in `results`.
    """
    raw = msgspec.json.format(msgspec.json.encode(results), indent=1)
    target = os.path.realpath(path)
    folder = os.path.dirname(target)
    if os.path.exists(target) and not (os.path.isfile(target) and os.access(folder, os.W_OK | os.X_OK)):
        with open(target, "wb") as file:
            file.write(raw)
        return
    beside, name = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(target)[:200]}.")
    try:
        with open(beside, "wb") as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, _mode_of(target))
        os.replace(name, target)
    except BaseException:
        with suppress(OSError):
            os.unlink(name)
        raise


def _mode_of(path: str) -> int:
    """The rights of the file that is replaced, or those of any new file."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def read_results(path: str) -> Results:
    """Raises OSError, and ValueError for what is no such file or of a later version."""
    with open(path, "rb") as file:
        raw = file.read()
    try:
        results = msgspec.json.decode(raw, type=Results)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a file of `trimtab bench`: {error}") from error
    if results.version > RESULTS_VERSION:
        raise ValueError(f"format {results.version}, this program reads up to {RESULTS_VERSION}")
    return results
