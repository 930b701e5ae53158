"""`python -m services.actuator`: one actuator process."""

import sys

from runtime.lifecycle import ServiceDefinition, run_service
from services.actuator.config import ActuatorConfig
from services.actuator.recover import recover
from services.actuator.service import ActuatorService

DEFINITION = ServiceDefinition("actuator", ActuatorConfig, ActuatorService, recover=recover)

if __name__ == "__main__":
    sys.exit(run_service(DEFINITION))
