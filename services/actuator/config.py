"""The actuator's own settings."""

from typing import Annotated

from msgspec import Meta

from schemas.settings import Seconds, Section, SettingsError, Shared


class ActuatorConfig(Section, frozen=True, kw_only=True):
    """Where the originals are kept, and when they return."""

    journal: str = "/var/lib/trimtab/journal"
    """File that holds every original weight before the first write to its group. It must survive the process."""

    dead_man_seconds: Seconds = 15.0
    """Seconds without a sign of the guard after which originals return, without the bus. 15: three ticks."""

    foreign_writes_to_yield: Annotated[int, Meta(ge=1, le=100)] = 3
    """Times in a row that somebody else may overwrite a group before it is left alone."""

    yield_seconds: Seconds = 600.0
    """Seconds that such a group is left alone."""

    def check(self, shared: Shared) -> None:
        """Raises SettingsError for a dead man that would fire between two cycles."""
        if self.dead_man_seconds < 2 * shared.loop.tick_seconds:
            raise SettingsError(
                f"actuator.dead_man_seconds: {self.dead_man_seconds} is less than two ticks of "
                f"{shared.loop.tick_seconds} s; weights would return between cycles"
            )
