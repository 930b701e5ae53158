"""The wall clock jumps by an hour, for the whole node or for one process (tests/faults/seam)."""

import time
from pathlib import Path

from schemas.messages import Actuation, Verdict
from schemas.subjects import SERVICES
from tests.faults.rows import Bench, Fault
from tests.faults.stand import Case, Stand

_SEAM = str(Path(__file__).parent / "seam")
_HOUR = 3600


def _file(stand: Stand, service: str) -> Path:
    return stand.run_dir / f"{service}.clock"


async def _prepare(stand: Stand) -> None:
    for service in SERVICES:
        stand.stage.alter(service).env = {"PYTHONPATH": _SEAM, "FAULT_CLOCK": str(_file(stand, service))}


def _set(stand: Stand, services: tuple[str, ...], seconds: int) -> None:
    for service in services:
        fresh = _file(stand, service).with_suffix(".next")
        fresh.write_text(str(seconds))
        fresh.rename(_file(stand, service))


def _node(seconds: int) -> Fault:
    async def run(stand: Stand, case: Case) -> None:
        case.struck()
        _set(stand, SERVICES, seconds)
        try:
            since = stand.count()
            await stand.until(lambda: bool(stand.whole(since)) and bool(stand.applied(since)), "a whole cycle after it")
            shown = (stand.of(Verdict, since)[-1].at - time.time_ns()) / 1e9
            assert abs(shown - seconds) < 60, shown
            case.safe(f"verdict of {shown:+.0f} s, applied")
            await stand.until(lambda: len(stand.whole(since)) >= 4, "more whole cycles")
        finally:
            _set(stand, SERVICES, 0)

    return Fault(
        f"all five clocks {seconds / _HOUR:+g} h, and back", "the loop goes on; nothing twice, nothing late", run,
        cost=12.0,
    )  # fmt: skip


def _alone(service: str, seconds: int, rule: str | None) -> Fault:
    """`rule`: what then keeps writes from happening; None: nothing does."""

    async def run(stand: Stand, case: Case) -> None:
        case.struck()
        _set(stand, (service,), seconds)
        try:
            since = stand.count()
            if rule is None:
                await stand.until(lambda: len(stand.applied(since)) >= 3, "writes go on")
                case.safe("actuation applied, by monotonic clocks")
            else:
                skip = await stand.next(Actuation, lambda a: a.rule == rule, f"a skip: {rule}", since)
                case.safe(f"actuation {skip.outcome}, rule {rule}: {skip.reason}"[:56])
        finally:
            _set(stand, (service,), 0)

    expected = "writes go on, bounded by monotonic clocks" if rule is None else f"nothing is written: rule {rule}"
    return Fault(f"the {service}'s clock alone {seconds / _HOUR:+g} h, and back", expected, run)


BENCHES = (
    Bench(
        "clocks",
        "clock jumps",
        (
            _node(_HOUR),
            _node(-_HOUR),
            _alone("actuator", _HOUR, "deadline"),
            _alone("actuator", -_HOUR, None),
            _alone("guard", -_HOUR, "deadline"),
            _alone("guard", _HOUR, "freshness"),
            _alone("collector", -_HOUR, "freshness"),
            _alone("collector", _HOUR, "deadline"),
        ),
        _prepare,
    ),
)
