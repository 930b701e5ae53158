"""`python -m lab.bench_replay`: how long a replay takes, from the file to the last compared byte, on one core.

Makes a recording of the asked length in simulated time, unless one is given. What is timed is what `trimtab replay`
does: read, inflate, decode, decide, learn, judge, conclude, compare. Speed is measured, never asserted.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from lab.record.file import read_recording
from lab.replay.made import Plan, make_recording
from lab.replay.replayer import KINDS, Replayer, Report
from runtime.errors import TrimtabError

_SAY_EVERY: Final = 1000


def replay_all(path: Path) -> Report:
    """Replays a whole recording. Raises TrimtabError."""
    recording = read_recording(path)
    replayer = Replayer(recording.header)
    for entry in recording.items():
        for found in replayer.take(entry):
            print(found, file=sys.stderr)
    for found in replayer.end():
        print(found, file=sys.stderr)
    return replayer.report


def main() -> int:
    """Prints one line of figures; 1 if the replay does not agree."""
    parser = argparse.ArgumentParser(prog="python -m lab.bench_replay", description=__doc__)
    parser.add_argument("--cycles", type=int, default=20_000, help="length of the recording (20000)")
    parser.add_argument("--recording", type=Path, metavar="FILE", help="replay this one; made there if it is missing")
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="trimtab-bench-") as folder:
            return _bench(args.recording or Path(folder) / "bench.recording", args.cycles)
    except TrimtabError as error:
        print(f"bench_replay: {error}", file=sys.stderr)
        return error.exit_code


def _bench(path: Path, cycles: int) -> int:
    if not path.exists():
        plan = Plan(cycles, restarts=(cycles // 2,))
        make_recording(path, plan, lambda done: None if done % _SAY_EVERY else print(f"{done} made", file=sys.stderr))
    started, cpu_started = time.perf_counter(), time.process_time()
    report = replay_all(path)
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    told = ", ".join(f"{report.counts[kind].agree} {kind}s" for kind in KINDS)
    print(
        f"{report.cycles} cycles ({path.stat().st_size / 1e6:.1f} MB) in {seconds:.1f} s, {cpu_seconds:.1f} s of CPU "
        f"({1000 * cpu_seconds / max(1, report.cycles):.2f} ms a cycle); agree: {told}, "
        f"{report.models_verified} stored models"
    )
    for kind in KINDS:
        for reason, count in report.counts[kind].not_replayed.items():
            print(f"not replayed: {count} {kind}s: {reason}", file=sys.stderr)
    return 0 if report.agrees else 1


if __name__ == "__main__":
    sys.exit(main())
