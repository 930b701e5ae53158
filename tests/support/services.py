"""The guard and the rewarder in a harness."""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from services.guard.config import GuardConfig
from services.guard.service import GuardService
from services.rewarder.config import RewarderConfig
from services.rewarder.service import RewarderService
from tests.support.harness import Harness, harness


def guard_in(
    mode: str = "active", settings: Mapping[str, Any] | None = None, **options: Any
) -> AbstractAsyncContextManager[Harness[GuardService]]:
    """A guard that starts in this mode; `options` are those of `harness`."""
    return harness("guard", GuardConfig, GuardService, {"mode": mode, **(settings or {})}, **options)


def rewarder(
    settings: Mapping[str, Any] | None = None, **options: Any
) -> AbstractAsyncContextManager[Harness[RewarderService]]:
    """A rewarder; `options` are those of `harness`."""
    return harness("rewarder", RewarderConfig, RewarderService, settings, **options)
