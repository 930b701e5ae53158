"""Owns the list of all services' sections of the configuration, for who reads it as a whole."""

from typing import Final

from schemas.settings import Section
from services.actuator.config import ActuatorConfig
from services.collector.config import CollectorConfig
from services.decider.config import DeciderConfig
from services.guard.config import GuardConfig
from services.rewarder.config import RewarderConfig

SECTIONS: Final[dict[str, type[Section]]] = {
    "collector": CollectorConfig,
    "decider": DeciderConfig,
    "guard": GuardConfig,
    "actuator": ActuatorConfig,
    "rewarder": RewarderConfig,
}
