"""All benches, in the order of the table."""

from tests.faults import clocks, deciders, disks, kernel, memory, pages, server, signals, wires
from tests.faults.rows import Bench

BENCHES: tuple[Bench, ...] = (
    *signals.BENCHES,
    *server.BENCHES,
    *disks.BENCHES,
    *wires.BENCHES,
    *deciders.BENCHES,
    *kernel.BENCHES,
    *pages.BENCHES,
    *memory.BENCHES,
    *clocks.BENCHES,
)
