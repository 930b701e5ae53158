"""What `trimtab compare` reads and shows."""

import json

from cli.compare import show_comparison, stored_messages
from lab.compare import compare
from runtime.memory_bus import MemoryBus
from runtime.streams import MODELS
from schemas.codec import encode
from schemas.messages import Action, Shadow, Trial
from schemas.subjects import message_id, subject, subject_of
from tests.support import builders


def action(cycle, node="a.b"):
    trial = Trial(challenger="new", phase="trial", block=1, in_charge="old", pairs=3, difference=0.125, incumbent="old")
    return Action(
        node=node,
        boot="b",
        cycle=cycle,
        at=0,
        policy="linucb",
        arm="x",
        champion="old",
        shadows={"new": Shadow(policy="pid", arm="x")},
        trial=trial,
    )


async def a_bus(*messages):
    bus = MemoryBus()
    for message in messages:
        await bus.publish(subject_of(message), encode(message), msg_id=message_id(message))
    return bus


async def test_all_nodes_with_a_decider_are_read_or_the_one_that_is_named():
    bus = await a_bus(action(1), builders.reward(node="a.b", boot="b", cycle=1, value=0.5), action(1, "c"), action(2))
    await bus.publish(subject("action", "a.b"), b"{")
    for name in ("a_b", "c"):
        await bus.put_object(MODELS, f"{name}/x", b"")
    nodes = compare(await stored_messages(bus, None, 100))
    assert {name: node.policies["old"].decided for name, node in nodes.items()} == {"a.b": 2, "c": 1}
    assert nodes["a.b"].policies["old"].mean_reward == 0.5
    assert set(compare(await stored_messages(bus, "c", 100))) == {"c"}
    assert [message.cycle for message in await stored_messages(bus, "a.b", 1)] == [1]  # of each kind, what can be read


async def test_the_table_names_their_parts_and_what_follows_the_trial(capsys):
    nodes = compare([action(1), builders.reward(node="a.b", boot="b", cycle=1, value=0.5)])
    show_comparison(nodes, "table")
    lines = capsys.readouterr().out.splitlines()
    assert lines[1].split() == ["a.b", "old", "champion", "1", "+0.5000", "1", "-", "0"]
    assert lines[2].split() == ["a.b", "new", "challenger", "0", "-", "0", "1.000", "0"]
    assert lines[3] == "a.b: new against old, trial, 3 pairs: +0.1250 a cycle, too few for an interval"
    assert lines[4].startswith("over nodes: new, 0 nodes against 0: 0 nodes of new with 30 rewards or more; it takes 4")
    show_comparison(nodes, "json")
    node, across = json.loads(capsys.readouterr().out)
    assert (node["node"], node["policies"][1]["agreement_ratio"], node["trial"]["pairs"]) == ("a.b", 1.0, 3)
    assert across["over_nodes"]["challenger"] == "new"
