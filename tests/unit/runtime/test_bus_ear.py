"""What becomes of the bus's events: health, metrics, and lines of the log."""

import asyncio

from runtime.health import Health
from runtime.lifecycle import bus_ear
from runtime.logs import get_log
from runtime.metrics import CommonMetrics


async def test_a_flood_is_counted_wholly_and_logged_once_in_ten_seconds(caplog):
    metrics, now = CommonMetrics("guard"), [0.0]
    lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    hear = bus_ear(metrics, Health(60.0, 0.0), get_log("guard", node="n"), lost, lambda: now[0])
    for at in (0.0, 5.0, 9.9, 10.0, 19.9):
        now[0] = at
        hear("slow_consumer", f"trimtab.v1.command.n: the handler is too slow, {at}")
        hear("refused", "another matter")
    dropped = metrics.registry.get_sample_value("trimtab_messages_dropped_total", {"kind": "any", "reason": "overflow"})
    assert dropped == 5
    told = [record.getMessage() for record in caplog.records]
    assert (told.count("bus_slow_consumer"), told.count("bus_refused")) == (2, 5)
