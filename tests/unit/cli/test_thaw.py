"""What a thaw orders, on a bus in memory."""

import pytest

from cli.order_desk import Desk, Ear
from cli.thaw import thawing
from runtime.errors import ConfigError
from runtime.memory_bus import MemoryBus
from schemas.codec import encode
from schemas.subjects import subject
from tests.support.builders import command


def desk_of(**ordered):
    """A desk with the modes ordered so far, by node."""
    bus = MemoryBus()
    for node, modes in ordered.items():
        for mode in modes:
            bus.store(subject("command", node), encode(command(node=node, verb="mode", mode=mode)))
    return Desk(bus, Ear(), "nats://here")


@pytest.mark.parametrize("before", ["active", "canary"])
async def test_a_thaw_that_lets_weights_move_takes_a_reason(before):
    made = desk_of(a=[before, "frozen"])
    with pytest.raises(ConfigError, match=f"mode {before} lets weights move; .*`trimtab thaw TEXT`"):
        await thawing(made, ["a"], None, None, "jo")
    (order,) = await thawing(made, ["a"], None, "it is out", "jo")
    assert (order.mode, order.reason, order.by) == (before, "it is out", "jo")


@pytest.mark.parametrize(
    ("modes", "to"), [(["shadow", "frozen"], None), (["frozen"], None), (["active", "frozen"], "shadow")]
)
async def test_a_thaw_that_stands_still_takes_none(modes, to):
    (order,) = await thawing(desk_of(a=modes), ["a"], to, None, "jo")
    assert (order.mode, order.reason) == ("shadow", "none given")


async def test_one_node_that_would_move_keeps_the_thaw_of_all_without_a_reason():
    made = desk_of(a=["frozen"], b=["active", "frozen"])
    with pytest.raises(ConfigError, match="mode active"):
        await thawing(made, ["a", "b"], None, None, "jo")


async def test_what_is_not_frozen_is_said_and_needs_no_reason(capsys):
    assert await thawing(desk_of(a=["frozen", "active"]), ["a"], None, None, "jo") == []
    assert capsys.readouterr().err == (
        "trimtab thaw: a: not frozen (no guard was heard, and the last order is none to freeze); nothing sent\n"
    )


async def test_what_its_guard_shows_as_frozen_is_thawed_though_nobody_ordered_it():
    made = desk_of()
    made.ear.modes["a"] = "frozen"
    assert [order.mode for order in await thawing(made, ["a"], None, None, "jo")] == ["shadow"]
