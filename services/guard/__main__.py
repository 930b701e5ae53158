"""`python -m services.guard`: one guard process."""

import sys

from runtime.lifecycle import ServiceDefinition, run_service
from services.guard.config import GuardConfig
from services.guard.service import GuardService

DEFINITION = ServiceDefinition("guard", GuardConfig, GuardService)

if __name__ == "__main__":
    sys.exit(run_service(DEFINITION))
