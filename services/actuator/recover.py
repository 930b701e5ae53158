"""What a killed actuator could not do: restores from its journal, needing neither the bus nor other services."""

from pathlib import Path

from prometheus_client import CollectorRegistry

from runtime.config import Config
from runtime.errors import HostError
from runtime.host_roots import HostRoots, find_roots
from runtime.logs import Log
from services.actuator.cgroup_writer import CgroupWriter
from services.actuator.config import ActuatorConfig
from services.actuator.journal import Journal, boot_id
from services.actuator.metrics import ActuatorMetrics
from services.actuator.weights import Weights


def open_weights(config: ActuatorConfig, roots: HostRoots, metrics: ActuatorMetrics, log: Log) -> Weights:
    """The weights of this node, on their journal; nothing is opened yet."""
    return Weights(
        CgroupWriter(roots.cgroup_root, roots.pods_root),
        Journal(Path(config.journal), boot_id(roots.proc_root)),
        metrics,
        log,
        foreign_limit=config.foreign_writes_to_yield,
        yield_seconds=config.yield_seconds,
    )


def recover(config: Config, log: Log, must_succeed: bool) -> None:  # noqa: FBT001 - the definition's shape
    """Restores every original that the journal still holds, and says what was done. Raises HostError where it cannot
    begin, and with `must_succeed` for any group that could not be restored.
    """
    section = config.section("actuator", ActuatorConfig)
    weights = open_weights(section, find_roots(config.host), ActuatorMetrics(CollectorRegistry()), log)
    try:
        trouble = weights.recover()
        if trouble is not None:
            log.error("journal_set_aside", detail=trouble)
        if weights.touched:
            writes = weights.restore()
            failed = [write.group for write in writes if write.result == "failed"]
            log.info("restored", why="restart", groups=len(writes), failed=len(failed))
            if failed and must_succeed:
                raise HostError(
                    f"{len(failed)} of {len(writes)} weights could not be restored, {failed[0]} among them; they stay "
                    f"in {section.journal}: run this again as a user who may write them"
                )
    finally:
        weights.close()
