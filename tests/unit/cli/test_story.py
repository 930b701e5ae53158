"""One line a message, for every kind, that a person can read."""

from cli.story import line_of
from schemas.messages import (
    Action,
    Actuation,
    ClassState,
    CollectRequest,
    Command,
    Contention,
    Heartbeat,
    Latency,
    PodWrite,
    Reward,
    State,
    Verdict,
)

ID = {"node": "n1", "boot": "b", "cycle": 7, "at": 1}


def test_a_state_names_classes_latency_and_contention():
    state = State(
        **ID,
        phase="before",
        classes={
            "latency-critical": ClassState(
                pods=1, weight=1000, cpu_cores=0.5, latency=Latency(p99_seconds=0.0213, requests=90)
            ),
            "default": ClassState(
                pods=1, weight=316, latency=Latency(p99_seconds=10.0, saturated=("p99",), requests=50)
            ),
            "batch": ClassState(pods=0),
        },
        contention=Contention(contended=True, reason="batch waited 80 % of the time"),
    )
    assert line_of(state) == (
        "     7  state      before latency-critical P99 21 ms 0.50 cores weight 1000, default P99 >10000 ms weight 316; "
        "batch waited 80 % of the time"
    )


def told(**fields):
    """What a state's line says of one class of this kind."""
    line = line_of(State(**ID, phase="after", classes={"default": ClassState(pods=1, **fields)}))
    return line.partition("after  ")[2].partition(";")[0]


def test_a_class_that_pressure_judges_shows_its_wait_and_its_ceiling():
    judge = {"judged_by": "pressure", "objective_pressure_ratio": 0.1, "weight": 316}
    assert told(waited_ratio=0.4, **judge) == "default waited 40 % (ceiling 10 %) weight 316"
    assert told(waited_ratio=None, **judge) == "default waited unknown (ceiling 10 %) weight 316"
    assert told(waited_ratio=0.4, **{**judge, "objective_pressure_ratio": 0.005}).startswith(
        "default waited 40 % (ceiling 0.5 %)"
    )
    slow = Latency(p99_seconds=9.0)
    assert told(waited_ratio=0.4, latency=slow, **judge) == "default waited 40 % (ceiling 10 %) weight 316"


def test_a_class_that_latency_judges_says_why_it_is_unknown_and_not_how_long_it_waited():
    assert told(judged_by="latency", latency=Latency(reason="idle"), waited_ratio=0.4) == "default P99 unknown (idle)"
    assert told(judged_by="latency", latency=Latency(p99_seconds=0.02), waited_ratio=0.4) == "default P99 20 ms"


def test_a_class_that_nothing_judges_shows_neither():
    assert told(latency=Latency(reason="no_source"), waited_ratio=0.4, cpu_cores=1.5) == "default 1.50 cores"


def test_an_action_says_what_is_picked_how_and_with_which_probability():
    action = Action(**ID, policy="linucb", arm="lc10-d3-b1", weights={"a": 1000, "b": 100}, propensity=0.954)
    assert line_of(action) == "     7  action     linucb picks lc10-d3-b1 (1000:100) with probability 0.95"
    held = Action(**ID, policy="linucb", arm="hold", explored=True, propensity=0.01, reason="nothing better")
    assert line_of(held).endswith("linucb explores hold (nothing better) with probability 0.01")


def test_verdict_actuation_and_command_carry_the_rule_and_the_reason():
    verdict = Verdict(**ID, outcome="refuse", execute=False, mode="active", rule="rate", reason="8 a minute")
    assert line_of(verdict).endswith("verdict    refuse [rate: 8 a minute]")
    write = PodWrite(uid="u", group="burstable/podx", name="api", before=10, wanted=100, after=100)
    assert line_of(Actuation(**ID, outcome="applied", writes=(write,))).endswith("actuation  applied api 10→100")
    order = Command(**ID, verb="mode", mode="frozen", by="ada", reason="deploy")
    assert line_of(order).endswith("command    mode frozen by ada: deploy")


def test_a_reward_shows_its_terms_or_why_there_is_none():
    joined = Reward(**ID, outcome="joined", value=0.5, arm="a", terms={"throughput": 0.5, "severity.default": -0.1})
    assert line_of(joined).endswith("reward     +0.500 for a (throughput +0.50)")
    assert line_of(Reward(**ID, outcome="censored", reason="late")).endswith("reward     censored: late")


def test_every_other_kind_has_a_line():
    assert "look again" in line_of(CollectRequest(**ID))
    assert "guard is ok" in line_of(Heartbeat(**ID, service="guard"))
