from schemas.messages import Verdict
from services.guard.config import GuardConfig
from services.guard.service import GuardService
from tests.support.builders import action, state
from tests.support.harness import harness


async def test_a_cycle_gets_its_verdict():
    async with harness("guard", GuardConfig, GuardService, {"mode": "active"}) as guard:
        await guard.inject(state(), action())
        assert [v.outcome for v in guard.sent(Verdict)] == ["allow"]
