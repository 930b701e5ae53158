"""What a killed actuator left is put right by the next start, without a bus."""

import pytest

from runtime.errors import HostError
from runtime.logs import get_log
from services.actuator.config import ActuatorConfig
from services.actuator.core.solver import Target
from services.actuator.recover import recover
from tests.support.harness import config_of
from tests.unit.actuator.world import API, PODS_ROOT, killed, weights_on


def config(tree, journal):
    return config_of(
        "actuator",
        ActuatorConfig,
        {
            "host.cgroup_root": str(tree.root),
            "host.pods_root": PODS_ROOT,
            "host.proc_root": str(tree.proc),
            "host.simulated": True,
            "actuator.journal": str(journal),
        },
    )


def test_originals_return_from_the_journal(tree, journal):
    weights = weights_on(tree, journal)
    weights.apply([Target("u", "api", API, 200)], 0.0)
    killed(weights)
    recover(config(tree, journal), get_log("actuator"), must_succeed=False)
    assert tree.weight(API) == "100\n"
    recover(
        config(tree, journal), get_log("actuator"), must_succeed=False
    )  # lets go of the journal, and finds nothing more
    assert tree.weight(API) == "100\n"


def test_beside_a_running_actuator_nothing_is_restored(tree, journal):
    weights = weights_on(tree, journal)
    weights.apply([Target("u", "api", API, 200)], 0.0)
    with pytest.raises(HostError, match="another actuator"):
        recover(config(tree, journal), get_log("actuator"), must_succeed=False)
    assert tree.weight(API) == "200"
    killed(weights)


def test_a_restore_by_hand_that_cannot_finish_says_which_group_and_keeps_the_journal(tree, journal):
    weights = weights_on(tree, journal)
    weights.apply([Target("u", "api", API, 200)], 0.0)
    killed(weights)
    file = tree.root / PODS_ROOT / API / "cpu.weight"
    file.unlink()
    file.mkdir()
    with pytest.raises(HostError, match=f"1 of 1 weights could not be restored, {API}"):
        recover(config(tree, journal), get_log("actuator"), must_succeed=True)
    file.rmdir()
    file.write_text("200")
    recover(config(tree, journal), get_log("actuator"), must_succeed=True)
    assert tree.weight(API) == "100\n"
