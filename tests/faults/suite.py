"""All benches, in the order of the table."""

from tests.faults import (
    breakers,
    clocks,
    deciders,
    disks,
    journals,
    kernel,
    memory,
    orders,
    pages,
    server,
    signals,
    wires,
)
from tests.faults.rows import Bench

BENCHES: tuple[Bench, ...] = (
    *signals.BENCHES,
    *server.BENCHES,
    *orders.BENCHES,
    *breakers.BENCHES,
    *journals.BENCHES,
    *disks.BENCHES,
    *wires.BENCHES,
    *deciders.BENCHES,
    *kernel.BENCHES,
    *pages.BENCHES,
    *memory.BENCHES,
    *clocks.BENCHES,
)
