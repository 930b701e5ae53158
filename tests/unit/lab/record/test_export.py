"""A recording as a table: one row for each decision, with what was executed and what it was worth."""

import json
import math

import msgspec
import pyarrow.parquet as pq
import pytest

from cli.__main__ import main
from lab.record import parquet
from lab.record.export import OPEN_CYCLES, Decision, Decisions
from lab.record.file import read_recording
from lab.record.items import Damage, Gap, Header, Stored
from lab.record.parquet import SCHEMA, write_parquet
from lab.record.writer import create_recording
from runtime.errors import TrimtabError
from runtime.streams import AUDIT, STATE
from schemas.codec import encode
from schemas.messages import AnyMessage, Contention, State, Trial
from schemas.subjects import subject_of
from tests.support.builders import (
    NODE,
    PROPOSED,
    START_NS,
    WEIGHTS,
    action,
    actuation,
    after,
    command,
    hold,
    reward,
    state,
    verdict,
)


def stored(*messages: AnyMessage) -> list[Stored]:
    """The messages as streams have them."""
    last = {AUDIT: 0, STATE: 0}
    found = []
    for n, message in enumerate(messages):
        stream = STATE if isinstance(message, State) else AUDIT
        last[stream] += 1
        found.append(
            Stored(
                stream=stream,
                sequence=last[stream],
                stored_ns=n,
                subject=subject_of(message),
                payload=encode(message),
            )
        )
    return found


def cycle(n: int = 1, node: str = NODE, boot: str = "boot1", **parts) -> list[AnyMessage]:
    """One ordinary cycle; a part may be another message, or None for none."""
    ids = {"node": node, "cycle": n, "boot": boot}
    made = {
        "state": state(**ids),
        "action": action(**ids),
        "verdict": verdict(**ids),
        "actuation": actuation(**ids),
        "reward": reward(**ids),
    }
    return [message for message in (made | parts).values() if message is not None]


def rows(*entries) -> list[Decision]:
    return list(Decisions(entries))


def row_of(**parts) -> Decision:
    [row] = rows(*stored(*cycle(**parts)))
    return row


def test_all_that_a_row_has():
    messages = cycle(
        state=state(features={"bias": 1.0, "x": 2.0}, features_schema="abc"),
        action=action(
            policy="trimtab",
            policy_updates=7,
            arm="favour",
            propensity=0.25,
            propensities={"hold": 0.75, "favour": 0.25},
            masked={"flat": "too far"},
            explored=True,
            context={"trend": -1.0},
            decide_seconds=0.002,
        ),
        verdict=verdict(outcome="allow", mode="active", propensity=0.25),
        actuation=actuation(outcome="applied", weights=PROPOSED),
        reward=reward(value=0.5, terms={"violation": -0.1}, outcome="joined", at=START_NS + 3_000_000_000),
    )
    items = stored(*messages)
    named = msgspec.json.decode(items[1].payload) | {"run": "r1", "model": "m1"}
    items[1] = msgspec.structs.replace(items[1], payload=msgspec.json.encode(named))
    assert rows(*items) == [
        Decision(
            node=NODE,
            boot="boot1",
            cycle=1,
            ts_ns=START_NS,
            policy="trimtab",
            in_charge="trimtab",
            policy_updates=7,
            model="m1",
            run="r1",
            context={"bias": 1.0, "x": 2.0, "trend": -1.0},
            action_set=["hold", "favour"],
            pi_b=[0.75, 0.25],
            masked={"flat": "too far"},
            action="favour",
            action_weights=PROPOSED,
            propensity=0.25,
            explored=True,
            executed_arm="favour",
            executed_weights=PROPOSED,
            pscore=0.25,
            reward=0.5,
            reward_terms={"violation": -0.1},
            outcome="joined",
            censored_reason=None,
            mode="active",
            verdict="allow",
            verdict_rule=None,
            actuation="applied",
            actuation_rule=None,
            taken_back=None,
            contended=True,
            delay_seconds=3.0,
            decide_seconds=0.002,
            gap_before=False,
            features_schema="abc",
            schema=1,
        )
    ]


def test_a_row_names_who_decided_and_not_the_champion_where_it_was_the_others_turn():
    trial = Trial(challenger="new", phase="trial", block=1, in_charge="new", incumbent="old")
    row = row_of(action=action(policy="linucb", champion="old", trial=trial))
    assert (row.in_charge, row.policy) == ("new", "linucb")
    assert row_of(action=action(policy="linucb", champion="old")).in_charge == "old"


# ---- what was executed, and with which probability -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "arm", "weights"),
    [
        ({}, "favour", PROPOSED),
        ({"verdict": verdict(outcome="clamp", rule="max_step", propensity=None)}, None, PROPOSED),
        ({"verdict": verdict(mode="canary")}, None, None),
        ({"actuation": actuation(outcome="failed")}, None, None),
        ({"actuation": actuation(outcome="skipped", weights=None)}, None, None),
        ({"actuation": None}, None, None),
        ({"verdict": None}, None, None),
    ],
)
def test_only_an_arm_that_was_in_force_on_the_whole_node_has_a_pscore(parts, arm, weights):
    row = row_of(**parts)
    assert (row.executed_arm, row.executed_weights) == (arm, weights)
    assert row.pscore == (0.5 if arm else None)
    assert row.propensity == 0.5


@pytest.mark.parametrize(
    ("rule", "arm"),
    [("hold", "hold"), ("unchanged", "hold"), ("contention", None), ("canary", None), ("judgement", None)],
)
def test_a_hold_is_an_arm_only_if_it_was_proposed_or_in_force(rule, arm):
    held = verdict(outcome="hold", execute=False, rule=rule, weights=None, previous_weights=WEIGHTS)
    row = row_of(action=hold(), verdict=held, actuation=actuation(outcome="held", weights=None))
    assert (row.executed_arm, row.executed_weights) == (arm, WEIGHTS)
    assert row.pscore == (0.5 if arm else None)


def test_what_was_refused_was_not_executed():
    refused = verdict(outcome="refuse", execute=False, rule="rate", weights=None)
    row = row_of(verdict=refused, actuation=actuation(outcome="skipped", weights=None, rule="rate"))
    assert (row.executed_arm, row.pscore, row.verdict, row.verdict_rule) == (None, None, "refuse", "rate")
    assert (row.actuation, row.actuation_rule) == ("skipped", "rate")


def test_what_was_taken_back_before_its_reward_says_so():
    messages = cycle(reward=None)
    messages += [actuation(outcome="rolled_back"), reward(outcome="censored", value=None, reason="rolled_back")]
    [row] = rows(*stored(*messages))
    assert (row.actuation, row.taken_back, row.reward, row.outcome) == ("applied", "rolled_back", None, "censored")
    assert row.censored_reason == "rolled_back"


# ---- which messages make a row ---------------------------------------------------------------------------------------


def test_a_cycle_without_an_action_is_no_row():
    late = cycle(action=None, verdict=verdict(outcome="late", arm=None, weights=None), actuation=None)
    assert rows(*stored(*late)) == []


def test_a_cycle_whose_reward_never_came_is_a_row_without_an_outcome():
    row = row_of(reward=None)
    assert (row.outcome, row.reward, row.reward_terms, row.delay_seconds) == (None, None, {}, None)


def test_without_its_state_a_row_has_the_features_of_its_reward():
    row = row_of(state=None, reward=reward(features={"bias": 3.0}, features_schema="f"))
    assert (row.context, row.features_schema, row.contended) == ({"bias": 3.0}, "f", None)
    row = row_of(state=None, action=action(context={"trend": 1.0}), reward=None)
    assert row.context == {"trend": 1.0}


def test_a_reward_from_before_its_action_has_no_delay():
    assert row_of(reward=reward(at=START_NS - 1)).delay_seconds is None


def test_an_uncontended_state_says_so():
    assert row_of(state=state(contention=Contention(contended=False))).contended is False


def test_messages_of_one_cycle_may_come_in_any_order():
    messages = cycle()
    whole = rows(*stored(*messages))
    assert rows(*stored(*messages[::-1])) == whole
    assert rows(*stored(messages[1], messages[4], messages[0], messages[3], messages[2])) == whole


def test_rows_are_in_the_order_of_the_cycles_of_each_node():
    messages = cycle(1, reward=None) + cycle(2) + [reward(cycle=1)] + cycle(3)
    assert [row.cycle for row in rows(*stored(*messages))] == [1, 2, 3]


def test_nodes_and_runs_of_the_collector_are_kept_apart():
    messages = cycle(1) + cycle(1, node="other") + cycle(1, boot="boot2")
    found = [(row.node, row.boot, row.cycle) for row in rows(*stored(*messages))]
    assert sorted(found) == [(NODE, "boot1", 1), (NODE, "boot2", 1), ("other", "boot1", 1)]


def test_a_row_does_not_wait_for_ever():
    messages = cycle(1, reward=None)
    for n in range(2, OPEN_CYCLES + 10):
        messages += cycle(n)
    decisions = Decisions(stored(*messages, reward(cycle=1)))
    found = list(decisions)
    assert [row.cycle for row in found] == list(range(1, OPEN_CYCLES + 10))
    assert found[0].outcome is None
    assert decisions.counts.late == 0  # it came so late that nobody knows its row any more


def test_memory_does_not_grow_with_cycles_that_never_end():
    def entries():
        for n in range(1, 3000):
            yield from stored(action(cycle=n))

    decisions = Decisions(entries())
    for _ in zip(range(2500), decisions, strict=False):
        assert len(decisions._open[NODE]) <= OPEN_CYCLES + 1
        assert len(decisions._written[NODE]) <= OPEN_CYCLES + 1


def test_what_comes_twice_counts_once_and_is_told():
    first = action(arm="first")
    decisions = Decisions(stored(first, action(arm="second"), verdict(), actuation(), reward()))
    [row] = decisions
    assert row.action == "first"
    assert decisions.counts.repeated == 1


def test_what_comes_after_its_row_is_told_unless_it_is_due_then():
    seen = state()
    messages = [*cycle(), *cycle(2), after(seen), actuation(outcome="restored"), verdict()]
    decisions = Decisions(stored(*messages))
    assert len(list(decisions)) == 2
    assert decisions.counts.late == 1


def test_what_cannot_be_read_and_orders_are_passed_over():
    items = stored(*cycle(), command())
    junk = msgspec.structs.replace(items[0], payload=b"{")
    decisions = Decisions([junk, *items])
    assert len(list(decisions)) == 1
    assert decisions.counts.unread == 1


# ---- gaps ------------------------------------------------------------------------------------------------------------

GAP = Gap(stream=AUDIT, first=5, last=9, exact=True, reason="gone")
DAMAGE = Damage(kind="changed", block=1, offset=9, reason="its bytes differ")
UNCLOSED = Damage(kind="unclosed", block=1, offset=9, reason="it was not closed")


@pytest.mark.parametrize(("between", "is_gap"), [([GAP], True), ([DAMAGE], True), ([UNCLOSED], False), ([], False)])
def test_the_row_after_a_gap_says_so(between, is_gap):
    found = rows(*stored(*cycle(1)), *between, *stored(*cycle(2)), *stored(*cycle(3)))
    assert [row.gap_before for row in found] == [False, is_gap, False]


def test_every_node_has_the_gap_before_its_next_row():
    found = rows(
        *stored(*cycle(1), *cycle(1, node="other")),
        GAP,
        *stored(*cycle(2)),
        *stored(*cycle(2, node="other"), *cycle(3)),
    )
    assert [(row.cycle, row.gap_before) for row in found if row.node == NODE] == [(1, False), (2, True), (3, False)]
    assert [(row.cycle, row.gap_before) for row in found if row.node == "other"] == [(1, False), (2, True)]


def test_a_gap_within_a_cycle_is_before_the_next():
    messages = cycle(1)
    found = rows(*stored(*messages[:2]), GAP, *stored(*messages[2:]), *stored(*cycle(2)))
    assert [row.gap_before for row in found] == [False, True]


def test_damages_are_told_and_counted():
    decisions = Decisions([GAP, DAMAGE, UNCLOSED])
    assert list(decisions) == []
    counts = decisions.counts
    assert (counts.gaps, counts.damages, len(counts.damage)) == (1, 1, 2)


# ---- Parquet ---------------------------------------------------------------------------------------------------------


def test_the_file_has_every_field_and_reads_back(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet, "GROUP_ROWS", 10)
    messages = [message for n in range(1, 36) for message in cycle(n, reward=reward(cycle=n, value=n / 100))]
    messages += cycle(36, reward=None, verdict=None, actuation=None, state=None)
    found = rows(*stored(*messages))
    write_parquet(tmp_path / "out.parquet", found, lambda: {"trimtab.rows": "36"})
    file = pq.ParquetFile(tmp_path / "out.parquet")
    assert file.num_row_groups == 4
    assert set(file.schema_arrow.names) == {"ts" if name == "ts_ns" else name for name in Decision.__struct_fields__}
    assert file.metadata.metadata[b"trimtab.rows"] == b"36"
    table = file.read()
    assert table.schema.equals(SCHEMA)
    assert {at.timestamp() for at in table["ts"].to_pylist()} == {START_NS / 1e9}
    back = table.drop_columns(["ts"]).to_pylist(maps_as_pydicts="strict")
    for row, plain in zip(found, back, strict=True):
        assert plain == {name: value for name, value in msgspec.structs.asdict(row).items() if name != "ts_ns"}


def test_an_export_that_fails_leaves_no_file(tmp_path):
    def fails():
        yield from rows(*stored(*cycle()))
        raise TrimtabError("the recording is damaged")

    with pytest.raises(TrimtabError, match="damaged"):
        write_parquet(tmp_path / "out.parquet", fails(), dict)
    assert list(tmp_path.iterdir()) == []


def test_an_export_where_nobody_may_write_is_told(tmp_path):
    with pytest.raises(TrimtabError, match="name a file that this user may write"):
        write_parquet(tmp_path / "none" / "out.parquet", [], dict)


# ---- the verb --------------------------------------------------------------------------------------------------------


@pytest.fixture
def recording(tmp_path):
    path = tmp_path / "a.recording"
    with create_recording(path, Header(trimtab="0.1.0", node=NODE, streams=(AUDIT, STATE))) as writer:
        for number, item in enumerate(stored(*cycle(1), *cycle(2), *cycle(3)), 1):
            writer.add(item)
            if number % 5 == 0:
                writer.flush()
    return path


def test_the_verb_writes_parquet(recording, tmp_path, capsys):
    out = tmp_path / "out.parquet"
    assert main(["export", str(recording), str(out)]) == 0
    assert capsys.readouterr().err == "trimtab export: 3 decisions\n"
    file = pq.ParquetFile(out)
    assert file.read()["cycle"].to_pylist() == [1, 2, 3]
    told = {name.decode(): json.loads(value) for name, value in file.metadata.metadata.items() if b"trimtab" in name}
    assert told["trimtab.node"] == NODE
    assert told["trimtab.version"] == "0.1.0"
    assert told["trimtab.counts"]["rows"] == 3


def test_the_verb_writes_lines(recording, tmp_path, capsys):
    assert main(["export", str(recording), "-o", "jsonl"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["cycle"] for line in lines] == [1, 2, 3]
    assert main(["export", str(recording), str(tmp_path / "out"), "-o", "jsonl"]) == 0
    assert [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()] == lines
    assert all(math.isfinite(line["pscore"]) for line in lines)


def test_the_verb_tells_of_damage_and_with_strict_ends_there(recording, tmp_path, capsys):
    raw = bytearray(recording.read_bytes())
    raw[-400] ^= 1
    recording.write_bytes(raw)
    assert any(isinstance(entry, Damage) for entry in read_recording(recording).items())
    assert main(["export", str(recording), "-o", "jsonl"]) == 0
    assert "1 damages" in capsys.readouterr().err
    out = tmp_path / "out.parquet"
    assert main(["export", str(recording), str(out), "--strict"]) == 1
    assert "record it again" in capsys.readouterr().err
    assert not out.exists()


def test_without_pyarrow_the_verb_says_what_to_do(recording, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["export", str(recording), str(tmp_path / "out.parquet")]) == 1
    assert "pip install 'trimtab[export]'" in capsys.readouterr().err
    assert main(["export", str(recording), "-o", "jsonl"]) == 0


@pytest.mark.parametrize(
    ("words", "text"), [([], "OUT: name the Parquet file"), (["{same}"], "is the recording that is read")]
)
def test_a_wrong_output_is_told(recording, words, text, capsys):
    raw = recording.read_bytes()
    assert main(["export", str(recording), *(word.format(same=recording) for word in words)]) == 2
    assert text in capsys.readouterr().err
    assert recording.read_bytes() == raw
