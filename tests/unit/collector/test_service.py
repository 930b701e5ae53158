"""The collector on the bus: the grid of ticks, one state before, one after, and the action before."""

import asyncio
import math
from contextlib import asynccontextmanager

import pytest

from runtime.errors import ConfigError
from schemas.features import features_schema
from schemas.messages import CollectRequest, State
from schemas.settings import DEFAULT_CLASSES
from services.collector.config import CollectorConfig
from services.collector.core.page import HistogramPage, SummaryPage, SummarySeries
from services.collector.service import CollectorService
from tests.support.builders import NODE, START_NS, actuation
from tests.support.harness import harness
from tests.unit.collector.world import PODS_ROOT

BOOT = "run-1"
FILE = """\
workloads:
  - {uid: uid-api, group: pod-api, labels: {trimtab.dev/workload-class: latency-critical}}
  - {uid: uid-job, group: pod-job, labels: {workload-type: batch}}
  - {uid: uid-odd, group: pod-odd}
"""


@asynccontextmanager
async def collector(node, tmp_path, settings=None, *, text=FILE, **options):
    for group in ("pod-api", "pod-job", "pod-odd"):
        if not (node.base / group).exists():
            node.add(group)
    file = tmp_path / "workloads.yaml"
    file.write_text(text)
    wanted = {
        "host.cgroup_root": str(node.root),
        "host.pods_root": PODS_ROOT,
        "host.proc_root": str(node.proc),
        "host.simulated": True,
        "collector.workloads": str(file),
        **(settings or {}),
    }
    async with harness("collector", CollectorConfig, CollectorService, wanted, boot=BOOT, **options) as made:
        yield made


def request(cycle, boot=BOOT):
    return CollectRequest(node=NODE, boot=boot, cycle=cycle, at=START_NS)


def said(h):
    return [(state.cycle, state.phase) for state in h.sent(State)]


async def test_a_tick_makes_a_cycle_and_its_first_state(node, tmp_path):
    async with collector(node, tmp_path) as h:
        assert said(h) == []
        node.usage("pod-job", 5_000_000)
        await h.advance(5.0)
        (state,) = h.sent(State)
        assert (state.node, state.boot, state.cycle, state.phase) == (NODE, BOOT, 1, "before")
        assert state.at == START_NS + 5_000_000_000
        assert state.window_seconds == pytest.approx(5.0)
        assert {pod.name: (pod.cls, pod.weight) for pod in state.pods} == {
            "uid-api": ("latency-critical", 100),
            "uid-job": ("batch", 100),
            "uid-odd": (None, 100),
        }
        assert state.classes["batch"].cpu_cores == pytest.approx(1.0)
        assert state.features_schema == features_schema(tuple(DEFAULT_CLASSES))
        assert state.features["batch.present"] == 1.0
        assert (state.writable, state.notes, state.previous) == (True, (), None)
        assert h.service.cycle == 1


async def test_ticks_stay_on_the_grid(node, tmp_path):
    async with collector(node, tmp_path) as h:
        await h.advance(50.0)
        assert said(h) == [(cycle, "before") for cycle in range(1, 11)]
        assert [state.at - START_NS for state in h.sent(State)] == [n * 5_000_000_000 for n in range(1, 11)]


@pytest.mark.parametrize("lateness", [0.5, 4.9])
async def test_a_slow_collection_does_not_move_the_grid(node, tmp_path, monkeypatch, lateness):
    async with collector(node, tmp_path) as h:
        slow = [True]
        scrape = h.service._scraper.scrape

        async def waiting(workloads):
            if slow.pop() if slow else False:
                await h.clock.sleep(lateness)
            return await scrape(workloads)

        monkeypatch.setattr(h.service._scraper, "scrape", waiting)
        await h.advance(20.0)
        assert [round((state.at - START_NS) / 1e9, 3) for state in h.sent(State)] == [5 + lateness, 10.0, 15.0, 20.0]
        assert h.metric("trimtab_collector_missed_ticks_total") == 0


@pytest.mark.parametrize(("takes", "missed", "then"), [(5.5, 1, 15.0), (9.0, 1, 15.0), (12.0, 2, 20.0)])
async def test_ticks_that_came_too_late_are_skipped_and_counted(node, tmp_path, takes, missed, then):
    async with collector(node, tmp_path) as h:
        slow = [True]
        scrape = h.service._scraper.scrape

        async def waiting(workloads):
            if slow.pop() if slow else False:
                await h.clock.sleep(takes)
            return await scrape(workloads)

        h.service._scraper.scrape = waiting
        await h.advance(then)
        assert [round((state.at - START_NS) / 1e9, 3) for state in h.sent(State)] == [5 + takes, then]
        assert said(h) == [(1, "before"), (2, "before")]
        assert h.metric("trimtab_collector_missed_ticks_total") == missed


async def test_the_grid_does_not_follow_the_wall_clock(node, tmp_path):
    async with collector(node, tmp_path) as h:
        await h.advance(5.0)
        h.clock.step_wall(-3600)
        await h.advance(5.0)
        h.clock.step_wall(7200)
        await h.advance(5.0)
        assert said(h) == [(1, "before"), (2, "before"), (3, "before")]
        assert all(state.window_seconds == pytest.approx(5.0) for state in h.sent(State))


async def test_a_request_is_answered_once_with_the_state_after(node, tmp_path):
    async with collector(node, tmp_path) as h:
        await h.advance(5.0)
        await h.advance(2.0)
        await h.inject(request(1), request(1))
        assert said(h) == [(1, "before"), (1, "after")]
        assert h.sent(State)[1].window_seconds == pytest.approx(2.0)
        assert h.dropped("collect", "stale") == 1


@pytest.mark.parametrize("wrong", [request(0), request(2), request(1, boot="earlier-run")])
async def test_only_the_cycle_in_progress_is_looked_at_again(node, tmp_path, wrong):
    async with collector(node, tmp_path) as h:
        await h.inject(wrong)
        await h.advance(5.0)
        await h.inject(wrong)
        assert said(h) == [(1, "before")]


async def test_a_request_that_waited_for_the_next_tick_is_stale(node, tmp_path, monkeypatch):
    async with collector(node, tmp_path) as h:
        await h.advance(5.0)
        scrape, gate = h.service._scraper.scrape, asyncio.Event()

        async def waiting(workloads):
            await gate.wait()
            return await scrape(workloads)

        monkeypatch.setattr(h.service._scraper, "scrape", waiting)
        await h.advance(5.0)  # cycle 2 has begun and is at work
        await h.inject(request(1))
        gate.set()
        await h.inject(request(2))
        assert said(h) == [(1, "before"), (2, "before"), (2, "after")]


async def test_previous_comes_from_the_actuation(node, tmp_path):
    async with collector(node, tmp_path) as h:
        await h.advance(5.0)
        await h.inject(actuation(boot=BOOT, cycle=1, arm="favour", weights={"batch": 100}))
        await h.advance(5.0)
        previous = h.sent(State)[-1].previous
        assert previous is not None
        assert (previous.cycle, previous.outcome, previous.arm, previous.weights) == (
            1,
            "applied",
            "favour",
            {"batch": 100},
        )
        assert h.sent(State)[-1].features["node.previous_applied"] == 1.0


async def test_previous_is_not_of_another_run(node, tmp_path):
    async with collector(node, tmp_path) as h:
        await h.advance(5.0)
        await h.inject(actuation(boot="another", cycle=1))
        await h.advance(5.0)
        assert h.sent(State)[-1].previous is None


async def test_previous_never_goes_back(node, tmp_path):
    async with collector(node, tmp_path) as h:
        await h.advance(10.0)
        first, second = actuation(boot=BOOT, cycle=1), actuation(boot=BOOT, cycle=2, outcome="held", writes=())
        undone = actuation(boot=BOOT, cycle=2, outcome="rolled_back", weights=None)
        await h.inject(second, first)
        await h.advance(5.0)
        assert (h.sent(State)[-1].previous.cycle, h.sent(State)[-1].previous.outcome) == (2, "held")
        await h.inject(
            actuation(boot=BOOT, cycle=3), actuation(boot=BOOT, cycle=3, outcome="rolled_back", weights=None)
        )
        await h.inject(actuation(boot=BOOT, cycle=3), undone)  # delivered twice, and late
        await h.advance(5.0)
        assert (h.sent(State)[-1].previous.cycle, h.sent(State)[-1].previous.outcome) == (3, "rolled_back")


async def test_without_the_last_cycles_actuation_there_is_no_previous(node, tmp_path):
    async with collector(node, tmp_path) as h:
        await h.advance(5.0)
        await h.inject(actuation(boot=BOOT, cycle=1))
        await h.advance(10.0)
        second, third = h.sent(State)[1:]
        assert second.previous is not None
        assert third.previous is None
        assert third.features["node.previous_applied"] == 0.0


async def test_workloads_that_come_and_go_are_seen_and_a_broken_file_is_said(node, tmp_path):
    async with collector(node, tmp_path) as h:
        await h.advance(5.0)
        (tmp_path / "workloads.yaml").write_text("workloads: [")
        await h.advance(5.0)
        state = h.sent(State)[-1]
        assert len(state.pods) == 3
        assert "not valid YAML" in state.notes[-1]
        (tmp_path / "workloads.yaml").write_text("workloads: []\n")
        await h.advance(5.0)
        state = h.sent(State)[-1]
        assert (state.pods, state.notes) == ((), ())
        assert state.classes["batch"].pods == 0


async def test_a_failed_scrape_is_a_note_and_a_count(node, tmp_path):
    text = FILE.replace("uid: uid-api,", "uid: uid-api, metrics_url: 'http://127.0.0.1:1/metrics',")
    async with collector(node, tmp_path, text=text) as h:
        h.service._scraper.scrape = _refused
        await h.advance(5.0)
        state = h.sent(State)[-1]
        assert state.notes == ("uid-api: unreachable: ClientConnectorError",)
        assert state.classes["latency-critical"].latency.reason == "scrape_failed"
        assert h.metric("trimtab_collector_scrape_errors_total", reason="unreachable") == 2  # the first look's, too


async def _refused(workloads):
    return {}, {"uid-api": "unreachable: ClientConnectorError"}


async def test_a_node_without_any_metrics_endpoint_is_judged_by_what_the_kernel_shows(node, tmp_path):
    async with collector(node, tmp_path) as h:
        node.waited("pod-api", 2_000_000)
        await h.advance(5.0)
        (state,) = h.sent(State)
        api = state.classes["latency-critical"]
        assert (api.judged_by, api.waited_ratio, api.waited_source) == ("pressure", pytest.approx(0.4), "pressure")
        assert api.objective_pressure_ratio == DEFAULT_CLASSES["latency-critical"].objective_pressure_ratio
        assert api.latency.reason == "no_source"
        assert (state.features["latency-critical.waited_ratio"], state.notes) == (pytest.approx(0.4), ())
        assert state.features["latency-critical.waited_missing"] == 0.0
        assert state.classes["batch"].judged_by is None
        assert state.classes["default"].judged_by is None


async def test_without_pressure_the_run_delay_of_the_pods_tasks_is_read(node, tmp_path):
    async with collector(node, tmp_path) as h:
        for cycle in range(3):
            (node.base / "pod-api/cpu.pressure").unlink(missing_ok=True)
            node.tasks("pod-api", t7=cycle * 1_000_000_000)
            await h.advance(5.0)
        first, second, _ = (state.classes["latency-critical"] for state in h.sent(State))
        assert (first.waited_ratio, first.waited_source) == (None, None)  # there was pressure at the first look
        assert (second.waited_ratio, second.waited_source) == (pytest.approx(0.2), "run_delay")
        assert h.sent(State)[0].features["latency-critical.waited_missing"] == 1.0


async def test_pm_01_an_idle_summary_goes_out_as_a_reason_and_no_number(node, tmp_path):
    async with collector(node, tmp_path) as h:
        series = SummarySeries(407, {})

        async def scrape(targets):
            return {"uid-api": SummaryPage("rpc_seconds", {(): series})}, {}

        h.service._scraper.scrape = scrape
        await h.advance(10.0)
        series = SummarySeries(437, {0.95: 0.1, 0.99: 0.2})
        await h.advance(5.0)
        idle, busy = (state.classes["latency-critical"].latency for state in h.sent(State)[1:])
        assert (idle.reason, idle.p95_seconds, idle.p99_seconds, idle.requests) == ("idle", None, None, 0)
        assert (busy.reason, busy.p95_seconds, busy.p99_seconds, busy.requests) == (None, 0.1, 0.2, 30)
        assert math.isnan(h.metric("trimtab_collector_class_p99_seconds", **{"class": "batch"}))
        assert h.metric("trimtab_collector_class_p99_seconds", **{"class": "latency-critical"}) == 0.2


async def test_a_pod_that_cannot_be_scraped_as_it_asks_is_a_note_and_a_count(node, tmp_path):
    notes = "annotations: {prometheus.io/port: '99999'},"
    text = FILE.replace("uid: uid-api,", f"uid: uid-api, name: api-0, {notes}")
    async with collector(node, tmp_path, text=text) as h:
        await h.advance(5.0)
        state = h.sent(State)[-1]
        (note,) = state.notes
        assert note.startswith("api-0: no_target: prometheus.io/port is '99999'")
        api = state.classes["latency-critical"]
        assert (api.latency.reason, api.judged_by) == ("no_target", "pressure")
        assert h.metric("trimtab_collector_scrape_errors_total", reason="no_target") == 2  # the first look's, too


async def test_notes_are_few_and_short(node, tmp_path):
    text = "workloads:\n" + "".join(f"  - {{uid: u{n:02}, group: pod-{n}}}\n" for n in range(20))
    async with collector(node, tmp_path, text=text) as h:

        async def scrape(targets):
            return {}, {f"u{n:02}": "unreadable: " + "x" * 500 for n in range(20)}

        h.service._scraper.scrape = scrape
        await h.advance(5.0)
        notes = h.sent(State)[-1].notes
        assert [note.partition(":")[0] for note in notes] == [f"u{n:02}" for n in range(16)]
        assert {len(note) for note in notes} == {200}


async def test_a_pod_that_vanishes_costs_itself(node, tmp_path):
    async with collector(node, tmp_path) as h:
        await h.advance(5.0)
        (node.base / "pod-api").rename(node.root / "grave")
        await h.advance(5.0)
        assert {pod.name for pod in h.sent(State)[-1].pods} == {"uid-job", "uid-odd"}


async def test_a_bus_that_is_away_does_not_stop_the_clock(node, tmp_path):
    async with collector(node, tmp_path) as h:
        h.bus.partition = True
        await h.advance(10.0)
        h.bus.partition = False
        await h.advance(5.0)
        assert said(h) == [(3, "before")]


async def test_without_a_workloads_file_it_does_not_start(node, tmp_path):
    with pytest.raises(ConfigError, match=r"collector\.workloads: is not set"):
        async with collector(node, tmp_path, {"collector.workloads": None}):
            pass


async def test_without_its_proc_folder_it_does_not_start(node, tmp_path):
    for root in (tmp_path / "nowhere", node.proc / "stat"):
        with pytest.raises(ConfigError, match=rf"host\.proc_root: {root} is no folder; mount the host's /proc there"):
            async with collector(node, tmp_path, {"host.proc_root": str(root)}):
                pass


def logged(caplog, event):
    return [(one.levelname, one.trimtab_fields) for one in caplog.records if one.getMessage() == event]


async def test_that_the_node_has_no_pressure_is_said_once(node, tmp_path, caplog):
    async with collector(node, tmp_path) as h:
        await h.advance(15.0)
        assert len(h.sent(State)) == 3
    ((level, fields),) = logged(caplog, "no_pressure")
    assert (level, fields["reason"]) == ("WARNING", "psi_missing")
    assert "CONFIG_PSI" in fields["remedy"]


async def test_where_there_is_pressure_nothing_is_said(node, tmp_path, caplog):
    (node.proc / "pressure").mkdir()
    (node.proc / "pressure/cpu").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")
    async with collector(node, tmp_path) as h:
        await h.advance(5.0)
    assert logged(caplog, "no_pressure") == []


async def test_windows_of_latency_are_between_the_starts_of_rounds(node, tmp_path):
    """The second of three rounds takes 0.9 s, since some other endpoint is slow; ten requests come in a second."""
    text = FILE.replace("uid: uid-api,", "uid: uid-api, metrics_url: 'http://127.0.0.1:1/',")
    async with collector(node, tmp_path, text=text) as h:
        takes = iter([0.9, 0.0])

        async def scrape(targets):
            served = 10 * round(h.clock.monotonic() - start)
            await h.clock.sleep(next(takes))
            return {"uid-api": HistogramPage("m_seconds", {(): {0.1: served, math.inf: served}})}, {}

        start = h.clock.monotonic()
        h.service._scraper.scrape = scrape
        h.service._view.windows.add(None, {"uid-api": ("latency-critical", HistogramPage("m_seconds", {}))})
        await h.advance(10.0)
        latencies = [state.classes["latency-critical"].latency for state in h.sent(State)]
        assert [latency.window_seconds for latency in latencies] == [pytest.approx(5.0), pytest.approx(5.0)]
        assert [latency.requests_per_second for latency in latencies] == [pytest.approx(10.0), pytest.approx(10.0)]
