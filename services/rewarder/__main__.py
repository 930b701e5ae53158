"""`python -m services.rewarder`: one rewarder process."""

import sys

from runtime.lifecycle import ServiceDefinition, run_service
from services.rewarder.config import RewarderConfig
from services.rewarder.service import RewarderService

DEFINITION = ServiceDefinition("rewarder", RewarderConfig, RewarderService)

if __name__ == "__main__":
    sys.exit(run_service(DEFINITION))
