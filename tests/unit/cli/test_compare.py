"""What `trimtab compare` reads and shows."""

import json

from cli.compare import messages_of, show_comparison
from lab.compare import compare
from lab.record.items import Stored
from runtime.streams import AUDIT
from schemas.codec import encode
from schemas.messages import Action, Shadow, Trial
from schemas.subjects import subject_of
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


def stored(sequence, message):
    payload, subject = (
        (message, "trimtab.v1.action.c") if isinstance(message, bytes) else (encode(message), subject_of(message))
    )
    return Stored(stream=AUDIT, sequence=sequence, stored_ns=0, subject=subject, payload=payload)


def test_of_a_record_actions_and_rewards_are_read_of_all_nodes_or_of_one():
    items = [
        stored(1, action(1)),
        stored(2, builders.reward(node="a.b", boot="b", cycle=1, value=0.5)),
        stored(3, b"{"),
        stored(4, builders.verdict(node="a.b")),
        stored(5, action(1, "c")),
        stored(6, action(2)),
    ]
    nodes = compare(messages_of(items, None))
    assert {name: node.policies["old"].decided for name, node in nodes.items()} == {"a.b": 2, "c": 1}
    assert nodes["a.b"].policies["old"].mean_reward == 0.5
    assert set(compare(messages_of(items, "c"))) == {"c"}


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
