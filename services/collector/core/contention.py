"""Whether the node's CPUs were fought over, from the best signal that there is."""

from collections.abc import Mapping

from schemas.messages import ClassState, Contention

_BUSY_RATIO = 0.9
_RUNNABLE = frozenset({"loadavg", "stat"})


def contention(
    classes: Mapping[str, ClassState],
    *,
    cpus: int,
    busy_ratio: float | None,
    node_pressure_ratio: float | None,
    run_queue: float | None,
    run_queue_source: str | None,
    pressure_limit: float,
    run_queue_limit: float,
    rivals: bool = False,
    unheld_ratio: float | None = None,
) -> Contention:
    """The verdict and its reason. What the classes waited decides where the kernel tells it (pressure or run delay per
    group): for others at least (`waited_ratio`), or, since that is a lower bound, at all (`unheld_ratio`, of the worst
    pod) on a busy node on which more than one class ran (`rivals`). Else the run queue on a busy node, less the one
    task per CPU that runs where the source counts those too; else it is unknown, which counts as none.
    """
    waits = {name: seen.waited_ratio for name, seen in classes.items() if seen.waited_ratio is not None}
    is_busy = busy_ratio is None or busy_ratio >= _BUSY_RATIO
    if waits:
        worst = max(waits, key=lambda name: waits[name])
        by_delay = " (run delay)" if classes[worst].waited_source == "run_delay" else ""
        contended = waits[worst] >= pressure_limit
        reason = f"{worst} waited {waits[worst] * 100:.0f} % of the time{by_delay}"
        if not contended and rivals and is_busy and unheld_ratio is not None and unheld_ratio >= pressure_limit:
            contended = True
            reason = f"a pod waited {unheld_ratio * 100:.0f} % of the time{by_delay}, on busy CPUs that classes share"
    elif run_queue is not None and run_queue_source != "pressure":
        waiting = max(0.0, run_queue - 1.0) if run_queue_source in _RUNNABLE else run_queue
        contended = waiting >= run_queue_limit and is_busy
        reason = f"{waiting:.1f} tasks waited per CPU ({run_queue_source}); the kernel shows no pressure per group"
    elif node_pressure_ratio is not None:
        contended = node_pressure_ratio >= pressure_limit
        reason = f"some task on the node waited {node_pressure_ratio * 100:.0f} % of the time"
    else:
        source = (
            f"{run_queue_source}: first look, or a counter went back" if run_queue_source else "no file for it here"
        )
        contended, reason = False, f"unknown: {source}"
    return Contention(
        contended=contended,
        cpus=cpus,
        busy_ratio=busy_ratio,
        pressure_ratio=node_pressure_ratio,
        run_queue=run_queue,
        run_queue_source=run_queue_source,
        reason=reason,
    )
