"""Owns what one window of a node showed: counts and times per pod, whatever played the node."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ServiceWindow:
    """Requests of one service pod that ended in a window. `latencies_seconds` are those that were answered or given up
    by time-out, in any order; `shed` were turned away on arrival, `timeouts` are among the latencies. `arrivals` counts
    all that came in the window; `waiting` and `in_service` are what was there at its end.
    """

    arrivals: int
    shed: int
    timeouts: int
    latencies_seconds: Floats = field(repr=False)
    waiting: int = 0
    in_service: int = 0


@dataclass(frozen=True)
class PodWindow:
    """CPU of one pod in a window, in seconds: used, threads' time spent runnable without a CPU, and the time in which
    some of its threads waited (the kernel's pressure `some`). `service` for pods that answer requests.
    """

    cpu_seconds: float
    waiting_seconds: float
    some_seconds: float
    service: ServiceWindow | None = None


@dataclass(frozen=True)
class Window:
    """All pods by name, over `seconds`. `some_seconds` is the node's own: some thread had no CPU."""

    seconds: float
    cores: int
    some_seconds: float
    pods: dict[str, PodWindow]
