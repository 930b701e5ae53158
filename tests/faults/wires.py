"""Between guard and actuator: partitions, and verdicts that come twice, late or out of order (tests/faults/proxy.py)."""

import contextlib

from schemas.codec import encode
from schemas.messages import Actuation, Verdict
from schemas.subjects import subject_of
from tests.faults.proxy import Proxy, Tamper, Wire
from tests.faults.rows import Bench, Fault
from tests.faults.stand import DEAD_MAN_SECONDS, Case, Red, Stand

_DROPPED = "trimtab_messages_dropped_total"


async def _behind_proxies(stand: Stand) -> None:
    url = await stand.rig.start_server()
    ways = stand.gear["proxies"] = {service: Proxy(url) for service in ("guard", "actuator")}
    for service, proxy in ways.items():
        await proxy.start()
        stand.undo.append(proxy.close)
        stand.stage.alter(service).flags += ["--nats-url", proxy.url]


def _proxy(stand: Stand, service: str) -> Proxy:
    proxy: Proxy = stand.gear["proxies"][service]
    return proxy


def _partition(service: str, wire: Wire) -> Fault:
    async def run(stand: Stand, case: Case) -> None:
        proxy = _proxy(stand, service)
        await stand.strike(case, lambda: proxy.set_wire(wire))
        try:
            back = await stand.originals(case, "the dead man")
            case.safe(await stand.log_line(case, "actuator", "dead_man"), back)
        finally:
            proxy.set_wire("whole")

    how = "connection cut and refused" if wire == "cut" else "nothing passes, all of it comes later"
    return Fault(
        f"partition of the {service}: {how}",
        f"originals after {DEAD_MAN_SECONDS:g} s by the dead man; nothing late is written; whole when healed",
        run,
        cost=10.0,
    )


@contextlib.contextmanager
def _tampered(stand: Stand, tamper: Tamper):
    proxy = _proxy(stand, "actuator")
    proxy.tamper = tamper
    try:
        yield
    finally:
        proxy.tamper = None


async def _duplicated(stand: Stand, case: Case) -> None:
    before = await stand.metric("actuator", _DROPPED, kind="verdict", reason="duplicate")
    case.struck()
    with _tampered(stand, Tamper("verdict", copies=5)):
        since = stand.count()
        await stand.until(lambda: len(stand.applied(since)) >= 2, "applications of verdicts that come five times")
        case.safe(await stand.counted(before, "actuator", _DROPPED, kind="verdict", reason="duplicate"))


async def _delayed(stand: Stand, case: Case) -> None:
    tamper = Tamper("verdict", delay_seconds=0.8)
    case.struck()
    with _tampered(stand, tamper):
        since = stand.count()
        late = await stand.next(Actuation, lambda a: a.rule == "deadline", "a skip for the deadline", since)
        case.safe(f"actuation {late.outcome}, rule deadline: {late.reason}"[:56])
        await stand.until(lambda: tamper.touched >= 4, "four verdicts delayed")
        keys = {(v.boot, v.cycle) for v in stand.of(Verdict, since)}
        if any((a.boot, a.cycle) in keys for a in stand.applied(since)):
            raise Red("a verdict was applied after its deadline")


async def _reordered(stand: Stand, case: Case) -> None:
    before = await stand.metric("actuator", _DROPPED, kind="verdict", reason="duplicate")
    tamper = Tamper("verdict", swap=True)
    case.struck()
    with _tampered(stand, tamper):
        await stand.until(lambda: tamper.touched >= 4, "two pairs of verdicts swapped", 60.0)
        case.safe(await stand.counted(before, "actuator", _DROPPED, kind="verdict", reason="duplicate"))


async def _state_after_verdict(stand: Stand, case: Case) -> None:
    tamper = Tamper("state", delay_seconds=0.1)
    case.struck()
    with _tampered(stand, tamper):
        since = stand.count()
        await stand.until(lambda: len(stand.applied(since)) >= 2, "applications though the state came last", 60.0)
        case.safe("actuation applied, its state 100 ms behind")


async def _replayed(stand: Stand, case: Case) -> None:
    """Everything that was ever allowed, again, to everybody."""
    before = await stand.metric("actuator", _DROPPED, kind="verdict", reason="duplicate")
    old = stand.of(Verdict)[-200:]
    case.struck()
    assert stand.rig.bus is not None
    for verdict in (*old, *reversed(old)):
        await stand.rig.bus.publish(subject_of(verdict), encode(verdict))
    case.safe(await stand.counted(before, "actuator", _DROPPED, kind="verdict", reason="duplicate"))


BENCHES = (
    Bench(
        "wires",
        "between guard and actuator",
        (
            *(_partition(service, wire) for service in ("actuator", "guard") for wire in ("held", "cut")),
            Fault("verdicts five times each", "each is applied once", _duplicated),
            Fault("verdicts 0.8 s late, past the deadline", "none is applied", _delayed),
            Fault(
                "verdicts out of order, each second one first", "the newest counts, older ones are dropped", _reordered
            ),
            Fault("states behind their verdicts", "applied when the state is there", _state_after_verdict),
            Fault("old verdicts replayed, forth and back", "all dropped; the loop goes on", _replayed),
        ),
        _behind_proxies,
    ),
)
