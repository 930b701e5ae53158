"""What an action tells of its decider: on whose order it goes on from another model, and what it began without."""

import hashlib

import msgspec
import pytest

from lab.record.items import ModelCopy
from schemas.messages import Trial
from services.decider.core.words import not_obeyed, obeyed
from tests.support import builders
from tests.support.records import Record, at_of
from tests.unit.lab.audit.test_timeline import of_kind

OLD, NEW = "a" * 64, "b" * 64


def order(by="bob", reason="better", model="bold", seconds=0.0, **fields):
    fields = {"id": f"{by}-{reason}", **fields}
    return builders.command(
        boot="operator", cycle=0, verb="model", model=model, by=by, reason=reason, at=at_of(1, seconds), **fields
    )


def action(cycle, event=None, **fields):
    return builders.action(cycle=cycle, at=at_of(cycle), event=event, **{"run": "r1", "model": OLD, **fields})


def said(*orders):
    return "; ".join(f"{obeyed(one.model, one.by)}{one.reason}" for one in orders)


def copy(why="start", run="r1", **fields) -> ModelCopy:
    payload = msgspec.json.encode({"why": why, "run": run, "parent": None, **fields})
    return ModelCopy(digest=hashlib.sha256(payload).hexdigest(), payload=payload)


def ids(record: Record) -> list[str | None]:
    return [event.cause.id if event.cause else None for event in of_kind(record, "model")]


def test_an_order_of_a_digest_is_the_cause_though_an_older_one_named_who_is_in_charge_then():
    """Promote, roll back, roll back: the last one puts the promoted policy in charge again, on another's word."""
    alice, bob = order("alice", "pid", "careful"), order("bob", "undo", OLD)
    carol = order("carol", "again", NEW)
    record = Record(action(1, champion="main"), alice, action(2, said(alice), champion="careful"), bob)
    record.keep(action(3, said(bob), champion="main"), carol, action(4, said(carol), champion="careful"))
    assert ids(record) == ["alice-pid", "bob-undo", "carol-again"]
    assert of_kind(record, "model")[-1].text == (
        f"policy careful is in charge instead of main; goes on from {NEW[:12]} on the word of carol: again"
    )


@pytest.mark.parametrize(
    "other",
    [
        order("alice", "better", "bold"),
        order("bob", "bett", "bold"),
        order("bob", "better so", "bold"),
        order("bob", "better", "bolder"),
        order("bob", "better", OLD),
    ],
)
def test_an_order_that_the_event_contradicts_is_not_named(other):
    told = said(order())
    record = Record(action(1, champion="main"), other, action(2, told, champion="bold"))
    assert ids(record) == [None]
    assert of_kind(record, "model")[0].text.endswith(f"{told}; the record does not have that order")
    record = Record(action(1, champion="main"), order(), other, action(2, told, champion="bold"))
    assert ids(record) == ["bob-better"]


def test_of_orders_in_the_same_words_each_is_used_once_and_where_two_fit_that_is_said():
    first, second = order(id="one"), order(id="two", seconds=6.0)
    record = Record(action(1), first, action(2, said(first)), second, action(3, said(second)))
    assert ids(record) == ["one", "two"]
    record = Record(action(1), first, order(id="two"), action(2, said(first)))
    (event,) = of_kind(record, "model")
    assert event.cause is None
    assert event.text == f"{said(first)}; which of the orders one and two it was cannot be told: they fit equally"


def test_the_model_that_was_stored_for_an_order_says_which_of_two_it_was_or_that_it_was_neither():
    for asked, found in (("one", "one"), ("two", "two"), ("three", None)):
        stored = copy("order", order=asked)
        record = Record(action(1), order(id="one"), order(id="two"))
        record.items.append(stored)
        record.keep(action(2, said(order()), model=stored.digest))
        assert ids(record) == [found]


def test_an_order_behind_the_last_one_obeyed_is_not_taken_for_it_and_an_older_one_is_passed():
    """Orders are obeyed as they come: what was passed over is not obeyed later."""
    passed, taken, again = order(id="one"), order("carol", id="x"), order(id="two")
    record = Record(action(1), passed, taken, action(2, said(taken)), again, action(3, said(again)))
    assert ids(record) == ["x", "two"]
    late = order(id="late", seconds=60.0)
    assert ids(Record(action(1), action(2, said(late)), late)) == [None]


def test_an_order_that_stands_a_second_behind_what_it_led_to_is_found():
    one = order(seconds=4.0)
    later = builders.verdict(cycle=2, at=at_of(2, 0.9))
    assert ids(Record(action(1), action(2, said(one)), later, one)) == ["bob-better"]


def test_an_action_that_tells_of_two_orders_has_an_event_for_each():
    one, two = order("alice", "first; of two"), order("bob", "second")
    record = Record(action(1, champion="main"), one, two, action(2, said(one, two), champion="bold"))
    assert ids(record) == ["alice-first; of two", "bob-second"]
    assert [event.text for event in of_kind(record, "model")] == [
        said(one),
        f"policy bold is in charge instead of main; {said(two)}",
    ]


def test_a_reason_that_speaks_like_another_order_is_a_reason():
    bob = order("bob", "undo", "careful")
    alice = order("alice", f"so; {said(bob)}")
    short = order("alice", "so")
    assert ids(Record(action(1), bob, short, alice, action(2, said(alice)))) == [alice.id]
    assert ids(Record(action(1), bob, action(2, said(alice)))) == [None]


def test_an_order_that_was_not_obeyed_is_the_cause_of_what_is_said_of_it_and_of_nothing_else():
    refused = f"{not_obeyed('bold', 'bob')}it is missing"
    record = Record(action(1, champion="main"), order(), action(2, refused, champion="main"))
    record.keep(action(3, champion="bold"))
    assert [event.text for event in of_kind(record, "model")] == [
        refused,
        "policy bold is in charge instead of main",
    ]
    assert ids(record) == ["bob-better", None]


def test_a_run_that_begins_without_it_obeys_the_newest_order_again():
    one = order()
    record = Record(
        action(1), one, action(2, said(one)), action(3, said(one), run="r2"), action(4, said(one), run="r2")
    )
    assert ids(record) == ["bob-better", "bob-better", None]


def test_words_that_were_cut_fit_the_one_order_that_begins_so():
    long = order(reason="x" * 2000, id="long")
    record = Record(action(1), order(reason="xx"), long, action(2, said(long)[:1000]))
    assert ids(record) == ["long"]


def test_where_the_action_that_told_of_it_is_lost_the_model_names_the_order():
    begun, stored = copy("start"), copy("order", order="bob-undo")
    for orders, found in (((order("alice", "undo", OLD), order("bob", "undo", OLD)), "bob-undo"), ((), None)):
        record = Record()
        record.items += [begun, stored]
        record.keep(action(1, model=begun.digest), *orders).lose().keep(action(3, model=stored.digest))
        (event,) = of_kind(record, "model")
        assert ids(record) == [found]
        assert event.text.endswith(
            "by order of bob: undo" if found else "by an order, bob-undo: the record does not have that order"
        )


def test_what_the_decider_says_counts_where_the_model_is_not_the_one_that_was_stored_for_it():
    """It could not be stored: the model that is named is still the one from before, or the one that was ordered."""
    stored = copy("order", order="another")
    for one, before in ((order(), stored.digest), (order(model=stored.digest), OLD)):
        record = Record()
        record.items.append(stored)
        record.keep(action(1, model=before), one, action(2, said(one), model=stored.digest))
        assert ids(record)[-1] == "bob-better"


def test_a_policy_that_was_promoted_by_a_trial_or_returns_unsaid_is_on_nobodys_order():
    trial = Trial(challenger="bold", phase="watch", block=9, in_charge="bold", event="promoted")
    record = Record(action(1, champion="main"), order(), action(2, champion="bold", trial=trial))
    assert ids(record) == [None]
    one = order()
    record = Record(action(1, champion="main"), one, action(2, said(one), champion="bold"))
    record.keep(action(3, champion="main", run="r2"), action(4, champion="bold", run="r2"))
    assert ids(record) == ["bob-better", None, None]


def test_a_checkpoint_is_on_nobodys_order():
    first, second = copy("start", order="bob-undo"), copy("checkpoint", order="bob-undo")
    record = Record(order("bob", "undo", OLD))
    record.items += [first, second]
    record.keep(action(1, model=first.digest), action(2, model=second.digest))
    assert ids(record) == [None]


# ---- what it began without ----


def started(parent=None, lessons=22, has_copy=True, run="r2", between=(), knows=1):
    begun = copy("start", run, parent=parent)
    record = Record(action(1, policy_updates=lessons))
    record.items += [*between, *([begun] if has_copy else [])]
    record.keep(action(2, run="r2", model=begun.digest, policy_updates=knows))
    (event,) = of_kind(record, "model")
    return event.text, begun.digest[:12]


def test_a_start_from_nothing_is_told_as_what_was_lost():
    text, model = started()
    assert text == (
        f"the decider began anew without what was learned (run r2): model {model} comes of none before it, "
        "though run r1 had learned from 22 rewards; it knows of 1 now"
    )


@pytest.mark.parametrize("fields", [{"parent": OLD}, {"lessons": 0}, {"has_copy": False}, {"run": "r1"}], ids=str)
def test_a_start_that_goes_on_or_of_which_that_is_not_known_has_the_plain_words(fields):
    text, model = started(**fields)
    assert text == f"the decider started anew (run r2), from model {model}"


def test_a_start_that_stored_more_than_one_model_is_followed_to_its_first():
    first = copy("checkpoint", "r2")
    assert "without what was learned" in started(parent=first.digest, between=[first])[0]


@pytest.mark.parametrize(("knows", "said_so"), [(21, "without what was learned"), (22, "and learned again")])
def test_a_start_from_nothing_that_learned_the_streams_rewards_again_has_not_lost_them(knows, said_so):
    text, model = started(knows=knows)
    assert text.startswith(f"the decider began anew {said_so} (run r2): model {model} comes of none before it, though")
    assert text.endswith("it knows of 21 now" if knows < 22 else "; of the stream's it knows 22")


def test_a_decider_that_has_no_store_began_with_nothing():
    record = Record(action(1, policy_updates=5), action(2, run="r2", model=""))
    (event,) = of_kind(record, "model")
    assert "without what was learned (run r2): model none stored" in event.text
