"""What is pure about playing on real cgroups: rates for these CPUs, what records and messages come to, policies by name."""

import signal

import numpy as np
import pytest
from msgspec.structs import replace

from lab.arena import cgroup_backend, scenarios
from lab.arena.cgroup_backend import decider_of, play
from lab.arena.cgroup_loads import beside_clients, count_at, most_at_once, own_work_ms, scaled, schedule_text
from lab.arena.cgroup_pauses import outside
from lab.arena.cgroup_records import settled_share, told_of, windows_of
from lab.arena.episode import summary
from lab.arena.scenario import Curve, Scenario, ServicePod, SpinnerPod, constant
from lab.arena.sim_world import outcome_of
from lab.cgroup_sandbox import SandboxUnavailable
from lab.latency_records import RequestRecord
from lab.workloads.arrivals import parse_schedule
from runtime.config import load
from runtime.errors import HostError
from runtime.flags import assignments
from schemas.messages import Actuation, PodWrite
from services.decider.config import DeciderConfig

EDGES = [1000.0, 1002.0, 1004.0]
NODE = Scenario(
    name="one",
    text="One of each.",
    pods=(
        ServicePod(name="api", cls="latency-critical", request_millicpu=250, rate=constant(10.0), work_seconds=0.005),
        ServicePod(name="web", cls="default", request_millicpu=500, rate=constant(10.0), work_seconds=0.005),
        SpinnerPod(name="batch", cls="batch", request_millicpu=4000, processes=constant(4.0)),
    ),
    objectives={"latency-critical": 0.05, "default": 0.2},
)
IDLE = {"api": 0.0, "web": 0.0, "batch": 0.0}


def windows(api=(), web=(), used=(IDLE, IDLE, IDLE)):
    return windows_of(NODE, {"api": api, "web": web}, EDGES, used)


def actuation(at_seconds, outcome, arm=None, weights=None, before=10, after=10):
    write = PodWrite(uid="u", group="g", before=before, wanted=after, after=after)
    return Actuation(
        node="n",
        boot="b",
        cycle=1,
        at=round(at_seconds * 1e9),
        outcome=outcome,
        arm=arm,
        weights=weights,
        writes=(write,),
    )


# ---- loads ----


def test_on_half_the_cpus_rates_halve_and_processes_round_up():
    steep = Curve(((0.0, 3.0), (5.0, 0.0), (9.0, 4.0)), period=20.0)
    pods = (
        ServicePod(
            name="api",
            cls="latency-critical",
            request_millicpu=250,
            rate=Curve(((0.0, 30.0), (100.0, 200.0)), "linear", 200.0),
            work_seconds=0.005,
        ),
        SpinnerPod(name="batch", cls="batch", request_millicpu=4000, processes=steep),
    )
    whole = Scenario(name="s", text="t", pods=pods, objectives={"latency-critical": 0.075, "default": 0.15})
    found = scaled(whole, 1)
    assert found.cores == 1
    assert found.pods[0].rate == Curve(((0.0, 15.0), (100.0, 100.0)), "linear", 200.0)
    assert found.pods[0].work_seconds == 0.005
    assert found.objectives == {"latency-critical": 0.15, "default": 0.3}
    assert scaled(whole, 4).objectives == whole.objectives
    assert found.pods[1].processes == Curve(((0.0, 2.0), (5.0, 0.0), (9.0, 2.0)), period=20.0)


def test_beside_their_clients_services_need_the_same_part_of_what_is_left():
    api = ServicePod(name="api", cls="latency-critical", request_millicpu=9, rate=constant(60.0), work_seconds=0.005)
    web = replace(api, name="web", rate=Curve(((0.0, 20.0), (1.0, 40.0)), period=2.0), work_seconds=0.01)
    batch = SpinnerPod(name="batch", cls="batch", request_millicpu=9, processes=constant(3.0))
    scenario = Scenario(name="s", text="t", cores=1, pods=(api, web, batch))
    found = beside_clients(scenario, 0.001, 10)
    rates = [pod.rate.at(0.5) + pod.rate.at(1.5) for pod in found.pods[:2]]
    needed = (rates[0] * 0.005 + rates[1] * 0.01) / 2.0
    assert needed / (1.0 - sum(rates) / 2.0 * 0.001) == pytest.approx(0.6, rel=1e-4)
    assert found.pods[2] == batch
    assert beside_clients(scenario, 0.0, 10) == scenario


def test_on_as_many_cpus_nothing_changes():
    flood = scenarios.named("flood", "unbounded")
    assert scaled(flood, 2) == flood


def test_a_schedule_has_a_step_where_the_rate_changes_and_repeats_by_period():
    curve = Curve(((0.0, 120.0), (30.0, 440.0), (40.0, 120.0)), period=80.0)
    text = schedule_text(curve, 120, 2.0)
    assert text == "0:120.000,60:440.000,80:120.000,220:440.000"
    assert [step.at_seconds for step in parse_schedule(text, max_rate_per_second=5000.0)] == [0.0, 60.0, 80.0, 220.0]


def test_a_linear_curve_is_played_at_its_rate_in_the_middle_of_each_cycle():
    assert schedule_text(Curve(((0.0, 0.0), (4.0, 80.0)), "linear"), 5, 5.0) == (
        "0:10.000,5:30.000,10:50.000,15:70.000,20:80.000"
    )


def test_spinning_processes_are_counted_in_the_middle_of_a_cycle():
    curve = Curve(((0.0, 0.0), (2.0, 3.0)), period=4.0)
    assert [count_at(curve, cycle) for cycle in range(6)] == [0, 0, 3, 3, 0, 0]
    assert (most_at_once(curve, 2), most_at_once(curve, 3), most_at_once(curve, 0)) == (0, 3, 0)


@pytest.mark.parametrize(
    ("work", "overhead", "expected_ms"), [(0.005, 0.0, 5.0), (0.005, 0.002, 3.0), (0.005, 0.009, 1.0)]
)
def test_work_is_less_by_what_a_request_costs_beside_it_but_never_nothing(work, overhead, expected_ms):
    assert own_work_ms(work, overhead) == pytest.approx(expected_ms)


# ---- records ----


def test_a_request_counts_where_it_ended():
    first, second = windows([RequestRecord(1000.5, 0.01, "ok"), RequestRecord(1001.9, 0.4, "ok")])
    assert first.pods["api"].service.latencies_seconds.tolist() == [0.01]
    assert second.pods["api"].service.latencies_seconds.tolist() == [0.4]
    assert (first.pods["api"].service.arrivals, second.pods["api"].service.arrivals) == (2, 0)
    assert (first.pods["api"].service.waiting, second.pods["api"].service.waiting) == (1, 0)


def test_what_came_before_or_ended_after_the_run_is_no_result():
    early, late, cut = (
        RequestRecord(999.0, 0.5, "ok"),
        RequestRecord(1003.9, 0.2, "ok"),
        RequestRecord(1003.0, 0.1, "cut"),
    )
    first, second = (window.pods["api"].service for window in windows([early, late, cut]))
    assert (len(first.latencies_seconds), first.shed, first.waiting) == (0, 0, 0)
    assert (len(second.latencies_seconds), second.shed, second.waiting) == (0, 0, 2)


def test_refused_unsent_and_broken_requests_are_shed_and_timeouts_are_late():
    records = [
        RequestRecord(1000.1, 0.001, "503"),
        RequestRecord(1000.2, 0.1, "error"),
        RequestRecord(1001.5, 1.0, "shed"),
        RequestRecord(1000.3, 1.0, "timeout"),
        RequestRecord(1000.4, 0.01, "ok"),
    ]
    window = windows(records)[0]
    service = window.pods["api"].service
    assert (service.arrivals, service.shed, service.timeouts) == (5, 3, 1)
    assert sorted(service.latencies_seconds) == [0.01, 1.0]
    assert outcome_of(NODE, [window]).violation_lc == 4 / 5


def test_only_an_answer_counts_as_one():
    words = ("ok", "ok", "timeout", "503", "error", "cut")
    first, second = windows([RequestRecord(1000.1, 0.5, status) for status in words])
    assert cgroup_backend.answered_in(first) == {"api": 2, "web": 0}
    assert cgroup_backend.answered_in(second) == {"api": 0, "web": 0}


def test_a_class_whose_requests_all_wait_is_not_without_requests():
    first, second = windows([RequestRecord(1000.1, 60.0, "cut")])
    assert outcome_of(NODE, [first]).violation_lc == outcome_of(NODE, [second]).violation_lc == 1.0
    assert outcome_of(NODE, [first]).violation_default is None


def test_batch_has_what_its_counter_grew_by_and_both_ratios_count():
    used = (IDLE, {"api": 0.1, "web": 0.1, "batch": 3.0}, {"api": 0.1, "web": 0.1, "batch": 4.0})
    fast, slow = RequestRecord(1000.5, 0.01, "ok"), RequestRecord(1002.5, 0.5, "ok")
    first, second = (outcome_of(NODE, [window]) for window in windows([fast, slow], [fast, slow], used))
    assert (first.batch_share, second.batch_share) == (0.75, 0.25)
    assert first.score == pytest.approx(0.3 * 0.75)
    assert second.score == pytest.approx(-1.5)


def test_a_counter_that_cannot_be_read_is_no_use_of_cpu():
    first, second = windows(used=(IDLE, {"api": 0.1}, {"api": 0.3}))
    assert [window.pods["batch"].cpu_seconds for window in (first, second)] == [0.0, 0.0]
    assert second.pods["api"].cpu_seconds == pytest.approx(0.2)
    assert np.all([window.seconds == 2.0 and window.cores == 2 for window in (first, second)])


def test_what_is_settled_is_the_second_half_of_the_cycles_alone():
    slow, fast = RequestRecord(1000.5, 0.9, "ok"), RequestRecord(1002.5, 0.02, "ok")
    used = (IDLE, {"api": 0.1, "web": 0.1, "batch": 3.0}, {"api": 0.5, "web": 0.5, "batch": 4.0})
    row = summary(NODE, "trimtab", 1, [outcome_of(NODE, [w]) for w in windows([slow, fast], used=used)], 2.0)
    assert row.p99_lc_ms > 890.0
    assert (row.p99_lc_settled_ms, row.batch_share, row.batch_share_settled) == (20.0, 0.5, 0.25)
    assert row.services_share_settled == pytest.approx(0.8 / 4.0)


def test_the_clients_and_the_agent_have_their_part_of_the_second_half():
    edges = [0.0, 2.0, 4.0, 6.0, 8.0]
    used = [{"agent": seconds} for seconds in (0.0, 3.0, 3.5, 3.7, 4.3)]
    assert settled_share("agent", edges, used, 2) == pytest.approx(0.8 / (4.0 * 2))
    assert settled_share("agent", edges[:4], used[:4], 1) == pytest.approx(0.7 / 4.0)
    assert settled_share("clients", edges, used, 2) is None


def test_requests_due_about_a_pause_are_left_out_however_long_they_took():
    due = [10.0, 10.94, 10.96, 11.2, 11.4, 11.7, 11.8]
    records = [RequestRecord(at, 5.0 if at == 10.0 else 0.01, "ok") for at in due]
    assert [record.scheduled_unix_seconds for record in outside(records, [(11.0, 11.3)])] == [10.0, 10.94, 11.7, 11.8]
    assert outside(records, []) == records


def test_a_second_ctrl_c_does_not_break_the_cleaning_up():
    before = signal.getsignal(signal.SIGINT)
    with cgroup_backend.undisturbed():
        signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


# ---- messages ----


def test_the_arm_in_force_stays_until_another_and_changes_are_counted_by_what_was_written():
    told = told_of(
        [
            actuation(1000.5, "held"),
            actuation(1002.1, "applied", "lc10-d3-b1", before=10, after=100),
            actuation(1004.2, "applied", "lc10-d3-b1"),
            actuation(1006.3, "rolled_back", weights={"latency-critical": 100, "batch": 400}, before=100, after=10),
            actuation(1007.0, "held"),
            actuation(1009.0, "restored", before=10, after=11),
        ],
        [1000.0, 1002.0, 1004.0, 1006.0, 1008.0, 1010.0, 1012.0],
    )
    assert told.arms == ("request-derived", "lc10-d3-b1", "lc10-d3-b1", "l1-b4", "request-derived", "request-derived")
    assert told.outcomes == ("held", "applied", "applied", "rolled_back", "restored", "none")
    assert (told.changes, told.rollbacks) == (3, 1)


def test_what_the_agent_did_before_and_after_the_run_is_not_told():
    told = told_of([actuation(999.0, "applied", "x", after=5), actuation(1004.0, "applied", "y", after=5)], EDGES)
    assert (told.arms, told.outcomes, told.changes) == (("request-derived",) * 2, ("none", "none"), 0)


# ---- policies ----


def test_policies_are_known_by_the_benchs_names_the_deciders_and_alone():
    assert decider_of("alone").policy == decider_of("hold").policy == decider_of("request-derived").policy == "hold"
    assert decider_of("linucb") == DeciderConfig()
    assert decider_of("static:lc10-d3-b1") == DeciderConfig(policy="static", static_profile="lc10-d3-b1")
    given = decider_of("static:100:10:1")
    assert (given.policy, given.static_profile) == ("static", "given")
    assert given.profiles == {"given": {"latency-critical": 10_000, "default": 1000, "batch": 100}}


def test_an_unknown_policy_is_told_the_known_ones():
    with pytest.raises(ValueError, match=r"unknown policy 'nope'; known: alone, request-derived, .*static:PROFILE"):
        decider_of("nope")


def test_the_services_are_told_what_is_not_as_shipped_and_the_objectives():
    flags = cgroup_backend.flags_of(NODE, decider_of("static:10:3:1"))
    assert set(flags[::2]) == {"--set"}
    config = load({"decider": DeciderConfig}, overrides=assignments(["node=n", *flags[1::2]]), env={})
    assert config.sections["decider"] == decider_of("static:10:3:1")
    objectives = {name: spec.objective_p99_seconds for name, spec in config.shared.classes.items()}
    assert (objectives["latency-critical"], objectives["default"]) == (0.05, 0.2)


def test_a_request_costs_what_it_did_in_the_cheapest_second_that_was_busy_enough():
    assert cgroup_backend.least_cost([40, 50, 10, 30], [1.0, 1.2, 1.3, 1.31, 1.4]) == pytest.approx(0.1 / 50)


def test_without_an_answered_request_nothing_is_known_of_its_cost():
    with pytest.raises(ValueError, match="no request was answered"):
        cgroup_backend.least_cost([0, 0], [1.0, 1.1, 1.2])


async def test_where_there_are_no_real_cgroups_it_says_why_and_the_way_out(monkeypatch, tmp_path):
    def refuse():
        raise SandboxUnavailable("no cgroup v2", "run it on a cgroup v2 machine")

    monkeypatch.setattr("lab.cgroup_stage.open_sandbox", refuse)
    with pytest.raises(HostError, match=r"no real cgroups: no cgroup v2\. To use them: run it on a .*--backend sim"):
        await play(NODE, "hold", 1, 2, 2.0, tmp_path)
