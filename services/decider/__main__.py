"""`python -m services.decider`: one decider process."""

import sys

from runtime.lifecycle import ServiceDefinition, run_service
from services.decider.config import DeciderConfig
from services.decider.service import DeciderService

DEFINITION = ServiceDefinition("decider", DeciderConfig, DeciderService)

if __name__ == "__main__":
    sys.exit(run_service(DEFINITION))
