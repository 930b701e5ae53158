"""Order of cycles without wall clocks: what is new, what was seen, what belongs to a run that has ended."""

from collections import OrderedDict

_MEMORY = 512


class CycleOrder:
    """Accepts each (boot, cycle) once and never goes back: neither within a run nor to an earlier run."""

    def __init__(self) -> None:
        self._boot: str | None = None
        self._cycle = 0
        self._ended: OrderedDict[str, None] = OrderedDict()

    @property
    def boot(self) -> str | None:
        """The run in progress."""
        return self._boot

    @property
    def cycle(self) -> int:
        """The newest cycle accepted in it."""
        return self._cycle

    def accept(self, boot: str, cycle: int) -> bool:
        """Whether this is new; remembers it if so."""
        if boot in self._ended:
            return False
        if boot != self._boot:
            if self._boot is not None:
                self._ended[self._boot] = None
                while len(self._ended) > _MEMORY:
                    self._ended.popitem(last=False)
            self._boot, self._cycle = boot, cycle
            return True
        if cycle <= self._cycle:
            return False
        self._cycle = cycle
        return True

    def is_current(self, boot: str, cycle: int) -> bool:
        """Whether this is the newest cycle accepted."""
        return boot == self._boot and cycle == self._cycle
