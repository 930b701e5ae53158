"""What a server's refusal is told as, and what it advises."""

import pytest

from runtime.bus_refusals import Refusals, way_out

SHOW = "`trimtab creds show DIR` lists what each credential may do"
ORDERS = f"orders are given with the operator's credential (operator.seed), by the guard with its own; {SHOW}"


def violation(kind: str, subject: str) -> Exception:
    return Exception(f'nats: permissions violation for {kind} to "{subject}"')


@pytest.mark.parametrize(
    ("kind", "subject", "expected"),
    [
        ("publish", "trimtab.v1.command.a", ORDERS),
        ("publish", "$kv.trimtab-mode.a", ORDERS),
        ("publish", "$js.api.stream.info.trimtab_orders", ORDERS),
        ("publish", "$js.api.consumer.create.trimtab_orders.x1y2.trimtab.v1.command.a", ORDERS),
        ("subscription", "trimtab.v1.command.a", SHOW),
        ("subscription", "trimtab.v1.heartbeat.guard.a", SHOW),
        ("publish", "trimtab.v1.verdict.a", SHOW),
        ("publish", "$js.api.stream.info.trimtab_audit", SHOW),
        ("publish", "nottrimtab.v1.command.a", SHOW),
    ],
)
async def test_a_refusal_is_told_once_with_what_helps(kind, subject, expected):
    told = []
    refusals = Refusals(lambda event, detail: told.append((event, detail)))
    may_not = f"this credential may not {'subscribe' if kind == 'subscription' else 'publish'} to {subject}"
    assert refusals.take(violation(kind, subject))
    assert refusals.take(violation(kind, subject))
    assert told == [("refused", f"{may_not}; {expected}")]
    assert refusals.about(lambda where: where == subject) == f"{may_not}; {expected}"
    assert refusals.about(lambda where: where == "trimtab.v1.state.a") is None
    assert await refusals.first == may_not


async def test_what_is_no_refusal_is_left_to_others_and_what_is_forgotten_is_told_anew():
    told = []
    refusals = Refusals(lambda event, detail: told.append(event))
    assert not refusals.take(Exception("nats: stale connection"))
    refusals.take(violation("publish", "trimtab.v1.command.a"))
    refusals.forget()
    assert refusals.about(lambda _: True) is None
    refusals.take(violation("publish", "trimtab.v1.command.a"))
    assert told == ["refused", "refused"]


def test_subjects_are_known_in_capitals_too():
    assert way_out("this credential may not publish to $KV.trimtab-mode.a") == ORDERS
    assert way_out("this credential may not publish to $JS.API.STREAM.INFO.TRIMTAB_ORDERS") == ORDERS
