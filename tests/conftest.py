"""What all tests share: Hypothesis without deadlines, and real NATS servers on loopback ports of their own."""

from collections.abc import AsyncIterator
from itertools import count

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, settings

from runtime.nats_server import EmbeddedServer

# The machine may be busy: how long an example takes says nothing of the code.
settings.register_profile("trimtab", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("trimtab")

_nodes = count(1)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def nats_server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EmbeddedServer]:
    """One server for the whole session: tests keep apart by node, and leave it running."""
    server = EmbeddedServer(tmp_path_factory.mktemp("nats"))
    await server.start()
    yield server
    await server.stop()


@pytest_asyncio.fixture
async def fresh_server(tmp_path) -> AsyncIterator[EmbeddedServer]:
    """A server for one test, which may kill it and start it again."""
    server = EmbeddedServer(tmp_path / "nats")
    await server.start()
    yield server
    await server.stop()


@pytest.fixture
def node() -> str:
    """A node name that no other test uses."""
    return f"node-{next(_nodes)}.test"
