"""`python -m services.collector`: one collector process."""

import sys

from runtime.lifecycle import ServiceDefinition, run_service
from services.collector.config import CollectorConfig
from services.collector.service import CollectorService

DEFINITION = ServiceDefinition("collector", CollectorConfig, CollectorService)

if __name__ == "__main__":
    sys.exit(run_service(DEFINITION))
