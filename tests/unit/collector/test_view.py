"""From the kernel's files to a state's content: what vanishes, what is skipped, what is counted."""

import errno
import math
import os

import pytest

from schemas.codec import encode, non_finite
from schemas.messages import Latency, State
from schemas.settings import DEFAULT_CLASSES, ClassSettings
from services.collector.core.features import features
from services.collector.core.in_force import Ordered
from services.collector.core.page import HistogramPage, SummaryPage, SummarySeries
from tests.unit.collector.world import failing, look, view, workload

INF = math.inf
API, JOB = workload("api", url="http://x/"), workload("job")
MEMBERS = [(API, "latency-critical"), (JOB, "batch")]


def page(fast):
    return HistogramPage("m_seconds", {(): {0.1: fast, INF: fast}})


def by_group(seen):
    return {pod.group: pod for pod in seen.pods}


@pytest.fixture
def two(node):
    node.add("pod-api")
    node.add("pod-job")
    return node


def test_a_first_look_knows_weights_and_no_rates(two):
    seen = look(view(), two.kernel(), 100.0, MEMBERS)
    assert seen.window_seconds is None
    assert {group: (pod.weight, pod.cpu_cores) for group, pod in by_group(seen).items()} == {
        "pod-api": (100, None),
        "pod-job": (100, None),
    }
    assert seen.classes["batch"].pods == 1
    assert not seen.contention.contended


def test_a_second_look_knows_what_happened_since(two):
    eyes, kernel = view(), two.kernel()
    look(eyes, kernel, 100.0, MEMBERS)
    two.usage("pod-api", 2_500_000)
    two.waited("pod-api", 2_000_000)
    two.usage("pod-job", 7_500_000)
    two.cpu_time(busy=1000, idle=0)
    two.run_queue(waited_nsec=5_000_000_000)
    seen = look(eyes, kernel, 105.0, MEMBERS)
    assert seen.window_seconds == pytest.approx(5.0)
    api, batch = seen.classes["latency-critical"], seen.classes["batch"]
    assert (api.cpu_cores, batch.cpu_cores) == (pytest.approx(0.5), pytest.approx(1.5))
    assert (api.share, batch.share) == (pytest.approx(0.5), pytest.approx(0.5))
    assert (api.pressure_ratio, api.waited_ratio) == (pytest.approx(0.4), pytest.approx(0.15))
    assert api.waited_source == "pressure"
    assert api.waited_for == ("batch",)
    assert api.memory_bytes == 4096
    assert seen.contention.contended
    assert (seen.contention.busy_ratio, seen.contention.run_queue) == (1.0, pytest.approx(1.0))
    assert (seen.contention.cpus, seen.contention.run_queue_source) == (2, "schedstat")


@pytest.mark.parametrize("case", ["a", "b", "c"])
def test_cg_07_a_group_that_dies_while_it_is_read_costs_itself_and_its_baseline(two, case):
    eyes, kernel = view(), two.kernel()
    look(eyes, kernel, 0.0, MEMBERS)
    stat = two.base / "pod-api/cpu.stat"
    before = stat.read_text()
    two.usage("pod-job", 100)
    if case == "a":
        failing(kernel, "pod-api/cpu.stat", errno.ENODEV)
    elif case == "b":
        stat.unlink()
    else:
        stat.write_text("")
    seen = look(eyes, kernel, 5.0, MEMBERS)
    assert set(by_group(seen)) == {"pod-job"}
    assert by_group(seen)["pod-job"].cpu_cores == pytest.approx(100 / 1e6 / 5)
    assert seen.classes["latency-critical"].pods == 0
    assert seen.classes["latency-critical"].latency.reason == "no_pods"

    kernel = two.kernel()
    stat.write_text(before)
    two.usage("pod-api", 5_000_000)
    assert by_group(look(eyes, kernel, 10.0, MEMBERS))["pod-api"].cpu_cores is None
    two.usage("pod-api", 10_000_000)
    assert by_group(look(eyes, kernel, 15.0, MEMBERS))["pod-api"].cpu_cores == pytest.approx(1.0)


def test_cg_07_a_whole_group_that_is_not_there_is_an_absence(two):
    seen = look(view(), two.kernel(), 0.0, [*MEMBERS, (workload("none"), "batch")])
    assert set(by_group(seen)) == {"pod-api", "pod-job"}


def test_st_01_a_pod_made_again_under_its_name_has_no_rate_at_5_and_half_a_core_at_10(two):
    eyes, kernel = view(), two.kernel()
    two.usage("pod-api", 9_000_000)
    look(eyes, kernel, 0.0, MEMBERS)
    two.again("pod-api")
    two.usage("pod-api", 120_000)
    assert by_group(look(eyes, kernel, 5.0, MEMBERS))["pod-api"].cpu_cores is None
    two.usage("pod-api", 2_620_000)
    assert by_group(look(eyes, kernel, 10.0, MEMBERS))["pod-api"].cpu_cores == pytest.approx(0.5)


@pytest.mark.parametrize("case", ["a", "b"])
def test_st_02_without_pressure_the_state_is_built_all_the_same(two, case):
    eyes, kernel = view(), two.kernel()
    for group in ("pod-api", "pod-job"):
        if case == "a":
            failing(kernel, f"{group}/cpu.pressure", errno.EOPNOTSUPP)
        (two.base / group / "cpu.pressure").unlink()
    look(eyes, kernel, 0.0, MEMBERS)
    two.run_queue(waited_nsec=10_000_000_000)
    two.cpu_time(busy=1000, idle=0)
    seen = look(eyes, kernel, 5.0, MEMBERS)
    assert seen.classes["latency-critical"].pressure_ratio is None
    assert seen.contention.contended
    assert seen.contention.reason == "2.0 tasks waited per CPU (schedstat); the kernel shows no pressure per group"


def test_throttling_is_not_contention(two):
    eyes, kernel = view(), two.kernel()
    look(eyes, kernel, 0.0, MEMBERS)
    two.waited("pod-api", 4_000_000)
    two.usage("pod-api", 1_000_000, throttled=3_900_000)
    seen = look(eyes, kernel, 5.0, MEMBERS)
    assert (seen.classes["latency-critical"].pressure_ratio, seen.contention.contended) == (pytest.approx(0.8), False)


def without_pressure(node, **tasks):
    for group, delays in tasks.items():
        (node.base / f"pod-{group}/cpu.pressure").unlink(missing_ok=True)
        node.tasks(f"pod-{group}", **delays)


def test_st_02_without_pressure_the_run_delay_of_its_tasks_stands_in_and_the_state_says_so(two):
    eyes, kernel = view(), two.kernel()
    without_pressure(two, api={"t7": 0, "t8": 0}, job={"t9": 0})
    look(eyes, kernel, 0.0, MEMBERS)
    without_pressure(two, api={"t7": 1_500_000_000, "t8": 500_000_000}, job={"t9": 0})
    seen = look(eyes, kernel, 5.0, MEMBERS)
    api = seen.classes["latency-critical"]
    assert (api.pressure_ratio, api.run_delay, api.waited_ratio) == (None, pytest.approx(0.4), pytest.approx(0.4))
    assert (api.waited_source, api.judged_by) == ("run_delay", "pressure")
    assert seen.classes["batch"].waited_ratio == 0.0
    assert seen.contention.contended
    assert seen.contention.reason == "latency-critical waited 40 % of the time (run delay)"


def test_run_delay_is_read_only_where_there_is_no_pressure(two):
    eyes, kernel = view(), two.kernel()
    without_pressure(two, job={"t9": 0})
    two.tasks("pod-api", t7=0)
    assert set(kernel.sweep(["pod-api", "pod-job", "pod-none"]).run_delays) == {"pod-job"}
    look(eyes, kernel, 0.0, MEMBERS)
    two.tasks("pod-api", t7=5_000_000_000)
    two.waited("pod-api", 500_000)
    seen = look(eyes, kernel, 5.0, MEMBERS).classes
    api, job = seen["latency-critical"], seen["batch"]
    assert (api.waited_ratio, api.waited_source, api.run_delay) == (pytest.approx(0.1), "pressure", None)
    assert (job.waited_ratio, job.waited_source, job.run_delay) == (0.0, "run_delay", 0.0)


def test_st_02_without_pressure_and_task_accounting_the_wait_is_unknown_and_not_zero(two):
    eyes, kernel = view(), two.kernel()
    without_pressure(two, api={"t7": 0}, job={"t9": 0})
    for task in ("7", "9"):
        (two.proc / task / "schedstat").write_text("0 0 0\n")
    look(eyes, kernel, 0.0, MEMBERS)
    api = look(eyes, kernel, 5.0, MEMBERS).classes["latency-critical"]
    assert (api.waited_ratio, api.waited_source, api.run_delay, api.judged_by) == (None, None, None, "pressure")


def test_throttling_is_taken_off_the_run_delay_too(two):
    eyes, kernel = view(), two.kernel()
    without_pressure(two, api={"t7": 0, "t8": 0}, job={"t9": 0})
    look(eyes, kernel, 0.0, MEMBERS)
    without_pressure(two, api={"t7": 4_000_000_000, "t8": 4_000_000_000}, job={"t9": 0})
    two.usage("pod-api", 0, throttled=4_000_000)
    seen = look(eyes, kernel, 5.0, MEMBERS)
    api = seen.classes["latency-critical"]
    assert (api.run_delay, api.throttled_ratio, api.waited_ratio) == (pytest.approx(1.6), pytest.approx(0.8), 0.0)
    assert not seen.contention.contended


def test_usage_of_nested_groups_is_counted_once(node):
    for group in ("burstable", "burstable/pod-api", "burstable/pod-api/app", "burstable/pod-api/app/nested", "pod-job"):
        node.add(group)
    members = [(workload("api", group="burstable/pod-api"), "latency-critical"), (JOB, "batch")]
    eyes, kernel = view(), node.kernel()
    look(eyes, kernel, 0.0, members)
    for group in ("burstable", "burstable/pod-api", "burstable/pod-api/app", "burstable/pod-api/app/nested"):
        node.usage(group, 5_000_000)
    seen = look(eyes, kernel, 5.0, members)
    assert seen.classes["latency-critical"].cpu_cores == pytest.approx(1.0)
    assert sum(pod.cpu_cores or 0.0 for pod in seen.pods) == pytest.approx(1.0)


def test_wt_07_without_the_cpu_controller_a_pod_is_skipped_and_its_usage_is_seen(node):
    node.add("burstable")
    node.controllers("burstable", "memory pids")
    node.add("burstable/pod-api", weight=None)
    members = [(workload("api", group="burstable/pod-api"), "batch")]
    eyes, kernel = view(), node.kernel()
    look(eyes, kernel, 0.0, members)
    node.usage("burstable/pod-api", 5_000_000)
    seen = look(eyes, kernel, 5.0, members)
    pod = by_group(seen)["burstable/pod-api"]
    assert (pod.weight, pod.skip, pod.cpu_cores) == (None, "no_cpu_controller", pytest.approx(1.0))
    assert (node.base / "burstable/cgroup.subtree_control").read_text() == "memory pids\n"


def test_wt_03_an_idle_pod_is_skipped(node):
    node.add("pod-api", weight=0, idle=1)
    node.add("pod-job", weight=100, idle=1)
    assert {pod.skip for pod in look(view(), node.kernel(), 0.0, MEMBERS).pods} == {"idle"}


def test_neighbours_are_seen_and_belong_to_nobody(two):
    two.add("pod-other", weight=39)
    two.add("burstable", weight=79)
    two.add("burstable/pod-b")
    members = [*MEMBERS, (workload("b", group="burstable/pod-b"), "batch")]
    seen = by_group(look(view(), two.kernel(), 0.0, members))
    assert set(seen) == {"pod-api", "pod-job", "burstable/pod-b", "pod-other"}
    assert (seen["pod-other"].cls, seen["pod-other"].uid, seen["pod-other"].weight) == (None, "", 39)


def test_a_neighbour_whose_name_is_no_text_is_shown_and_does_not_silence_the_node(two):
    two.add(os.fsdecode(b"caf\xe9"), weight=39)
    seen = look(view(), two.kernel(), 0.0, MEMBERS)
    assert [pod.group for pod in seen.pods if not pod.uid] == ["caf\\udce9"]
    assert encode(State(node="n", boot="b", cycle=1, at=0, phase="before", pods=seen.pods))


def test_an_unclassified_pod_is_observed(two):
    seen = by_group(look(view(), two.kernel(), 0.0, [(API, "latency-critical"), (JOB, None)]))
    assert (seen["pod-job"].cls, seen["pod-job"].uid) == (None, "uid-job")


def test_shares_of_a_class_stay_within_the_node_before_anything_ran(two):
    for name in ("a", "b", "c", "d"):
        two.add(f"pod-{name}")
    members = [(workload(name), "batch") for name in ("a", "b", "c", "d")] + MEMBERS
    seen = look(view(), two.kernel(), 0.0, members)
    assert all(0.0 <= (state.share or 0.0) <= 1.0 for state in seen.classes.values())


def test_latency_has_a_reason_for_every_absence(two):
    eyes, kernel = view(), two.kernel()
    first = look(eyes, kernel, 0.0, MEMBERS, {API.uid: page(0)})
    assert first.classes["latency-critical"].latency == Latency(reason="first_scrape")
    assert first.classes["batch"].latency == Latency(reason="no_source")
    assert first.classes["default"].latency == Latency(reason="no_pods")
    second = look(eyes, kernel, 5.0, MEMBERS, {API.uid: page(50)})
    assert second.classes["latency-critical"].latency.requests == 50
    third = look(eyes, kernel, 10.0, MEMBERS, errors={API.uid: "timeout"})
    assert third.classes["latency-critical"].latency == Latency(reason="scrape_failed", silent_pods=1)


OTHER = workload("api2")
PAIR = [(API, "latency-critical"), (OTHER, "latency-critical")]


@pytest.mark.parametrize(
    ("errors", "reason", "silent", "judge"),
    [
        ({}, "no_source", 0, "pressure"),
        ({"api": "no_metric: none on the page"}, "no_metric", 0, "pressure"),
        ({"api": "unit_suspect: ms", "api2": "no_metric: none"}, "no_metric", 0, "pressure"),
        ({"api": "no_target: no port", "api2": "shared_target: two pods"}, "no_target", 0, "pressure"),
        ({"api": "timeout"}, "scrape_failed", 1, "latency"),
        ({"api": "unreachable: ClientConnectorError"}, "scrape_failed", 1, "latency"),
        ({"api": "queued"}, "scrape_failed", 1, "latency"),
        ({"api": "queued", "api2": "queued"}, "scrape_failed", 2, "latency"),
        ({"api": "no_target: no port", "api2": "timeout"}, "scrape_failed", 1, "latency"),
        ({"api": "unreadable: HTTP status 500", "api2": "no_metric: none"}, "scrape_failed", 1, "latency"),
    ],
)
def test_a_class_without_a_page_is_judged_by_pressure_unless_some_pod_only_failed_for_now(
    two, errors, reason, silent, judge
):
    two.add("pod-api2")
    words = {f"uid-{name}": word for name, word in errors.items()}
    found = look(view(), two.kernel(), 0.0, PAIR, errors=words).classes["latency-critical"]
    assert (found.latency, found.judged_by) == (Latency(reason=reason, silent_pods=silent), judge)


def test_without_a_pressure_ceiling_a_class_is_judged_by_latency_also_where_it_has_none(two):
    classes = {"latency-critical": ClassSettings(objective_p99_seconds=0.1), "batch": ClassSettings(kind="throughput")}
    seen = look(view(classes=classes), two.kernel(), 0.0, MEMBERS).classes
    assert (seen["latency-critical"].judged_by, seen["batch"].judged_by) == ("latency", None)


def test_a_page_of_one_pod_is_enough_to_be_judged_by_latency(two):
    two.add("pod-api2")
    eyes, kernel, words = view(), two.kernel(), {OTHER.uid: "no_metric: none on the page"}
    look(eyes, kernel, 0.0, PAIR, {API.uid: page(0)}, errors=words)
    found = look(eyes, kernel, 5.0, PAIR, {API.uid: page(50)}, errors=words).classes["latency-critical"]
    assert (found.latency.requests, found.latency.pods, found.pods, found.judged_by) == (50, 1, 2, "latency")


def test_pm_01_an_idle_summary_is_a_reason_and_every_number_of_the_state_is_finite(two):
    def summary(count, p99=None):
        return {API.uid: SummaryPage("rpc_seconds", {(): SummarySeries(count, {} if p99 is None else {0.99: p99})})}

    eyes, kernel = view(), two.kernel()
    look(eyes, kernel, 0.0, MEMBERS, summary(407))
    seen = look(eyes, kernel, 5.0, MEMBERS, summary(407), may_grow=True)
    latency = seen.classes["latency-critical"].latency
    assert (latency.p95_seconds, latency.p99_seconds, latency.reason, latency.requests) == (None, None, "idle", 0)
    assert seen.classes["latency-critical"].judged_by == "latency"
    assert non_finite(seen.classes) is None
    vector = features(seen.classes, seen.contention, None, DEFAULT_CLASSES)
    assert all(math.isfinite(value) for value in vector.values())
    assert vector["latency-critical.latency_missing"] == 1.0
    after = look(eyes, kernel, 10.0, MEMBERS, summary(437, 0.2)).classes["latency-critical"].latency
    assert (after.requests, after.p99_seconds, after.source) == (30, 0.2, "summary")


def test_one_pod_that_did_not_answer_costs_itself_only(two):
    two.add("pod-api2")
    other = workload("api2", url="http://y/")
    members = [*MEMBERS, (other, "latency-critical")]
    eyes, kernel = view(), two.kernel()
    look(eyes, kernel, 0.0, members, {API.uid: page(0), other.uid: page(0)})
    seen = look(eyes, kernel, 5.0, members, {API.uid: page(50)})
    assert seen.classes["latency-critical"].latency.requests == 50


def test_only_before_a_decision_the_window_grows(two):
    eyes, kernel = view(), two.kernel()
    for number in range(4):
        look(eyes, kernel, 5.0 * number, MEMBERS, {API.uid: page(10 * number)})
    after = look(eyes, kernel, 20.0, MEMBERS, {API.uid: page(40)})
    assert after.classes["latency-critical"].latency.requests == 10
    before = look(eyes, kernel, 25.0, MEMBERS, {API.uid: page(50)}, may_grow=True)
    assert before.classes["latency-critical"].latency.requests == 20


def test_no_workloads_are_an_empty_state(node):
    seen = look(view(), node.kernel(), 0.0, [])
    assert seen.pods == ()
    assert not seen.contention.contended


def test_a_node_without_any_proc_file_says_that_it_does_not_know(two):
    (two.proc / "stat").unlink()
    (two.proc / "schedstat").unlink()
    for group in ("pod-api", "pod-job"):
        (two.base / group / "cpu.pressure").unlink()
    eyes, kernel = view(), two.kernel()
    look(eyes, kernel, 0.0, MEMBERS)
    seen = look(eyes, kernel, 5.0, MEMBERS)
    assert (seen.contention.contended, seen.contention.run_queue) == (False, None)
    assert (seen.contention.reason or "").startswith("unknown")


@pytest.mark.parametrize(
    ("words", "silent"),
    [
        (("timeout", "unreadable: half a page"), 2),
        (("queued", "no_metric: none"), 1),
        (("unit_suspect: ms", "no_target: no port"), 0),
        (("tls: self-signed", None), 1),
    ],
)
def test_pods_that_are_asked_and_do_not_answer_are_counted_beside_those_that_do(two, words, silent):
    """A third pod of the class answers; one of another class that does not is no matter of this one."""
    others = [workload("b"), workload("c")]
    for other in others:
        two.add(other.group)
    members = [*MEMBERS, *((other, "latency-critical") for other in others)]
    errors = {other.uid: word for other, word in zip(others, words, strict=True) if word} | {JOB.uid: "timeout"}
    eyes, kernel = view(), two.kernel()
    look(eyes, kernel, 0.0, members, {API.uid: page(0)}, errors=errors)
    seen = look(eyes, kernel, 5.0, members, {API.uid: page(50)}, errors=errors).classes
    latency = seen["latency-critical"].latency
    assert (latency.requests, latency.pods, latency.silent_pods) == (50, 1, silent)
    assert seen["batch"].latency.silent_pods == 1


def test_a_pod_whose_group_is_gone_is_not_silent(two):
    """It is still in the list of workloads, and nobody answers at its address any more."""
    eyes, kernel, gone = view(), two.kernel(), {OTHER.uid: "unreachable: Connection refused"}
    look(eyes, kernel, 0.0, PAIR, {API.uid: page(0)}, errors=gone)
    seen = look(eyes, kernel, 5.0, PAIR, {API.uid: page(50)}, errors=gone).classes["latency-critical"]
    assert (seen.pods, seen.latency.pods, seen.latency.silent_pods) == (1, 1, 0)
    words = gone | {API.uid: "no_metric: none on the page"}
    seen = look(eyes, kernel, 10.0, PAIR, errors=words).classes["latency-critical"]
    assert (seen.latency, seen.judged_by) == (Latency(reason="no_metric"), "pressure")


def test_a_slow_endpoint_does_not_make_another_pods_window_longer(two):
    """Every round begins on its second; the one in the middle ends late, since some endpoint took its time."""
    eyes, kernel = view(), two.kernel()
    look(eyes, kernel, 0.1, MEMBERS, {API.uid: page(0)}, scraped_at=0.0)
    slow = look(eyes, kernel, 6.0, MEMBERS, {API.uid: page(100)}, scraped_at=5.0)
    after = look(eyes, kernel, 10.1, MEMBERS, {API.uid: page(200)}, scraped_at=10.0)
    for seen, kernels_window in ((slow, 5.9), (after, 4.1)):
        latency = seen.classes["latency-critical"].latency
        assert (latency.requests_per_second, latency.window_seconds) == (pytest.approx(20.0), pytest.approx(5.0))
        assert seen.window_seconds == pytest.approx(kernels_window)


def test_the_kernels_rates_are_over_the_time_between_its_own_readings(two):
    eyes, kernel = view(), two.kernel()
    look(eyes, kernel, 0.0, MEMBERS, scraped_at=0.0)
    two.usage("pod-api", 6_000_000)
    seen = look(eyes, kernel, 6.0, MEMBERS, scraped_at=5.0)
    assert seen.classes["latency-critical"].cpu_cores == pytest.approx(1.0)


EMPTY = HistogramPage("m_seconds", {})


def test_a_metric_that_is_declared_and_has_no_samples_yet_makes_an_idle_class_that_latency_judges(two):
    eyes, kernel = view(), two.kernel()
    first = look(eyes, kernel, 0.0, MEMBERS, {API.uid: EMPTY}).classes["latency-critical"]
    assert (first.latency, first.judged_by) == (Latency(reason="first_scrape"), "latency")
    idle = look(eyes, kernel, 5.0, MEMBERS, {API.uid: EMPTY}).classes["latency-critical"]
    assert (idle.latency.reason, idle.latency.requests, idle.judged_by) == ("idle", 0, "latency")
    seen = look(eyes, kernel, 10.0, MEMBERS, {API.uid: page(50)}).classes["latency-critical"]
    assert (seen.latency.requests, seen.latency.reason, seen.judged_by) == (50, None, "latency")


def held(node, group, own, *containers):
    """Microseconds that a limit held the pod's group, and each of the groups directly below it."""
    node.usage(group, 0, throttled=own)
    for number, usec in enumerate(containers):
        name = f"{group}/c{number}"
        if not (node.base / name).exists():
            node.add(name)
        node.usage(name, 0, throttled=usec)


def test_the_limits_of_the_containers_hold_the_pod_too(two):
    """The kubelet leaves the pod's own limit at max when one container has none."""
    eyes, kernel = view(), two.kernel()
    held(two, "pod-api", 0, 1_000_000, 7_000_000)
    look(eyes, kernel, 0.0, MEMBERS)
    held(two, "pod-api", 0, 2_000_000, 8_500_000)
    two.waited("pod-api", 4_000_000)
    api = look(eyes, kernel, 5.0, MEMBERS).classes["latency-critical"]
    assert (api.throttled_ratio, api.pressure_ratio) == (pytest.approx(0.5), pytest.approx(0.8))
    assert api.waited_ratio == pytest.approx(0.3)
    held(two, "pod-api", 500_000, 2_500_000, 8_500_000)
    api = look(eyes, kernel, 10.0, MEMBERS).classes["latency-critical"]
    assert api.throttled_ratio == pytest.approx(0.2)


def test_what_holds_groups_inside_a_container_or_a_neighbour_is_not_added(two):
    kernel = two.kernel()
    held(two, "pod-api", 5, 70)
    held(two, "pod-api/c0", 70, 900)
    two.add("pod-other")
    held(two, "pod-other", 3, 70)
    groups = kernel.sweep(["pod-api", "pod-job"]).groups
    found = {name: reading.stat.throttled_usec for name, reading in groups.items()}
    assert found == {"pod-api": 75, "pod-job": 0, "pod-other": 3}


def test_without_the_cpu_controller_no_limit_holds_a_pod_and_its_containers_are_not_asked(two):
    kernel = two.kernel()
    held(two, "pod-api", 0, 70)
    (two.base / "pod-api/cpu.stat").write_text("usage_usec 5\nuser_usec 5\nsystem_usec 0\n")
    assert kernel.sweep(["pod-api"]).groups["pod-api"].stat.throttled_usec is None


@pytest.mark.parametrize("text", ["", "nonsense\n", "usage_usec 5\nuser_usec 5\nsystem_usec 0\n"])
def test_a_container_whose_limit_cannot_be_read_adds_nothing(two, text):
    kernel = two.kernel()
    held(two, "pod-api", 5, 70, 900)
    (two.base / "pod-api/c0/cpu.stat").write_text(text)
    assert kernel.sweep(["pod-api"]).groups["pod-api"].stat.throttled_usec == 905


def test_a_container_that_is_made_again_leaves_the_wait_unknown_for_a_window(two):
    eyes, kernel = view(), two.kernel()
    held(two, "pod-api", 0, 9_000_000)
    look(eyes, kernel, 0.0, MEMBERS)
    held(two, "pod-api", 0, 0)
    api = look(eyes, kernel, 5.0, MEMBERS).classes["latency-critical"]
    assert (api.throttled_ratio, api.waited_ratio, api.waited_reason) == (None, None, "counter_reset")
    api = look(eyes, kernel, 10.0, MEMBERS).classes["latency-critical"]
    assert (api.throttled_ratio, api.waited_ratio, api.waited_reason) == (0.0, 0.0, None)


def test_a_wait_that_is_unknown_says_why(two):
    eyes, kernel = view(), two.kernel()
    first = look(eyes, kernel, 0.0, MEMBERS).classes
    assert {name: seen.waited_reason for name, seen in first.items()} == {
        "latency-critical": "first_look",
        "batch": "first_look",
        "default": "no_pods",
    }
    (two.base / "pod-api/cpu.pressure").unlink()
    (two.base / "pod-job/cpu.pressure").write_text("nonsense\n")
    second = look(eyes, kernel, 5.0, MEMBERS).classes
    assert (second["latency-critical"].waited_reason, second["batch"].waited_reason) == ("psi_missing", "malformed")
    failing(kernel, "pod-job/cpu.pressure", errno.EOPNOTSUPP)
    two.waited("pod-api", 0)
    third = look(eyes, kernel, 10.0, MEMBERS).classes
    assert (third["latency-critical"].waited_reason, third["batch"].waited_reason) == ("first_look", "psi_off")
    failing(kernel, "pod-job/cpu.pressure", errno.EACCES)
    fourth = look(eyes, kernel, 15.0, MEMBERS).classes
    assert (fourth["latency-critical"].waited_reason, fourth["latency-critical"].waited_ratio) == (None, 0.0)
    assert fourth["batch"].waited_reason == "unreadable"


def test_contention_that_is_unknown_tells_a_missing_file_from_a_first_look(two):
    seen = look(view(), two.kernel(), 0.0, MEMBERS)
    assert seen.contention.reason == "unknown: schedstat: first look, or a counter went back"
    (two.proc / "stat").unlink()
    (two.proc / "schedstat").unlink()
    seen = look(view(), two.kernel(), 0.0, MEMBERS)
    assert seen.contention.reason == "unknown: no file for it here"


# ---- the groups above the pods ----

IN_TREE = [
    (workload("db", "latency-critical"), "latency-critical"),
    (workload("job", "batch", group="burstable/pod-job"), "batch"),
]


@pytest.fixture
def qos(node):
    """A Guaranteed pod beside the kubelet's two groups, one of them with a pod."""
    node.add("pod-db", weight=20)
    node.add("burstable", weight=80)
    node.add("burstable/pod-job", weight=1000)
    node.add("besteffort", weight=1)
    return node


def test_a_state_tells_the_weights_of_the_groups_on_the_way_to_a_pod(qos):
    seen = look(view(), qos.kernel(), 0.0, IN_TREE)
    assert seen.parents == {"burstable": 80}
    assert by_group(seen)["besteffort"].weight == 1
    assert (seen.classes["latency-critical"].weight, seen.classes["batch"].weight) == (100, 400)


def test_a_deep_tree_has_all_groups_above_and_one_that_is_not_known_is_left_out(node):
    for group, weight in (("a", 10), ("a/b", None), ("a/b/c", 30), ("a/b/c/pod-x", 1)):
        node.add(group, weight=weight)
    seen = look(view(), node.kernel(), 0.0, [(workload("x", "batch", group="a/b/c/pod-x"), "batch")])
    assert seen.parents == {"a": 10, "a/b/c": 30}


def test_a_group_above_whose_name_is_no_text_is_left_out(node):
    odd = os.fsdecode(b"caf\xe9")
    node.add(odd)
    node.add(f"{odd}/pod-x")
    assert look(view(), node.kernel(), 0.0, [(workload("x", "batch", group=f"{odd}/pod-x"), "batch")]).parents == {}


def test_a_tree_of_more_groups_than_a_state_names_is_not_named_in_part(node):
    members = []
    for number in range(257):
        node.add(f"g{number}")
        node.add(f"g{number}/pod-x")
        members.append((workload(str(number), "batch", group=f"g{number}/pod-x"), "batch"))
    assert look(view(), node.kernel(), 0.0, members).parents == {}
    assert len(look(view(), node.kernel(), 0.0, members[:256]).parents) == 256


def ordered_for(weights):
    return Ordered({"latency-critical": 400, "batch": 100}, weights)


def test_an_order_over_several_parents_is_in_force_until_the_kubelet_changes_what_it_comes_to(qos):
    eyes, kernel = view(), qos.kernel()
    look(eyes, kernel, 0.0, IN_TREE)
    (qos.base / "pod-db/cpu.weight").write_text("319\n")
    order = ordered_for({"pod-db": 319, "burstable/pod-job": 1000})

    def weight():
        return look(eyes, kernel, 5.0, IN_TREE, ordered=order).classes["latency-critical"].weight

    assert weight() == 400
    (qos.base / "burstable/cpu.weight").write_text("81\n")
    assert weight() == 400
    (qos.base / "burstable/cpu.weight").write_text("160\n")
    assert weight() == 199
    (qos.base / "burstable/cpu.weight").write_text("80\n")
    assert weight() == 400


def test_a_qos_group_that_changed_before_the_order_was_seen_again_is_noticed(qos):
    eyes, kernel = view(), qos.kernel()
    look(eyes, kernel, 0.0, IN_TREE)
    (qos.base / "pod-db/cpu.weight").write_text("320\n")
    (qos.base / "burstable/cpu.weight").write_text("160\n")
    order = ordered_for({"pod-db": 320, "burstable/pod-job": 1000})
    assert look(eyes, kernel, 5.0, IN_TREE, ordered=order).classes["latency-critical"].weight == 200


def test_in_one_parent_no_weight_above_ends_an_order(qos):
    eyes, kernel = view(), qos.kernel()
    qos.add("burstable/pod-web", weight=77)
    members = [IN_TREE[1], (workload("web", group="burstable/pod-web"), "latency-critical")]
    order = ordered_for({"burstable/pod-web": 77, "burstable/pod-job": 1000})
    look(eyes, kernel, 0.0, members)
    (qos.base / "burstable/cpu.weight").write_text("1000\n")
    assert look(eyes, kernel, 5.0, members, ordered=order).classes["latency-critical"].weight == 400


# ---- who is looked at and not steered ----


@pytest.mark.parametrize("skip", ["excluded", "namespace", "terminating"])
def test_a_pod_that_is_set_apart_is_of_no_class_and_a_neighbour_to_the_others(two, skip):
    apart = workload("job", skip=skip)
    seen = look(view(), two.kernel(), 0.0, [(API, "latency-critical"), (apart, "batch")])
    pod = by_group(seen)["pod-job"]
    assert (pod.cls, pod.skip, pod.uid, pod.weight) == (None, skip, "uid-job", 100)
    assert seen.classes["batch"].pods == 0


def test_a_pod_with_cpus_of_its_own_shows_its_class_and_takes_no_part_in_it(two):
    pinned = workload("api2", url="http://y/", skip="exclusive_cpus")
    two.add("pod-api2")
    members = [*MEMBERS, (pinned, "latency-critical")]
    eyes, kernel = view(), two.kernel()
    look(eyes, kernel, 0.0, members, {API.uid: page(0), pinned.uid: page(0)})
    two.usage("pod-api2", 5_000_000)
    two.waited("pod-api2", 5_000_000)
    two.usage("pod-job", 5_000_000)
    two.cpu_time(busy=1000, idle=0)
    seen = look(eyes, kernel, 5.0, members, {API.uid: page(50), pinned.uid: page(5000)})
    pod = by_group(seen)["pod-api2"]
    assert (pod.cls, pod.skip, pod.cpu_cores) == ("latency-critical", "exclusive_cpus", pytest.approx(1.0))
    found = seen.classes["latency-critical"]
    assert (found.pods, found.pods_weight, found.cpu_cores, found.waited_ratio) == (1, 100, 0.0, 0.0)
    assert (found.latency.requests, found.latency.pods) == (50, 1)
    assert not seen.contention.contended


def test_a_class_of_which_nobody_takes_part_is_not_here(two):
    pinned = workload("api", url="http://x/", skip="exclusive_cpus")
    eyes, kernel = view(), two.kernel()
    for number in range(2):
        members = [(pinned, "latency-critical"), MEMBERS[1]]
        seen = look(eyes, kernel, 5.0 * number, members, {pinned.uid: page(50 * number)}, errors={API.uid: "timeout"})
    found = seen.classes["latency-critical"]
    assert (found.pods, found.latency, found.weight) == (0, Latency(reason="no_pods"), None)


def test_who_is_skipped_by_his_source_is_skipped_for_that_whatever_his_files_say(two):
    two.add("pod-still", weight=0, idle=1)
    seen = look(view(), two.kernel(), 0.0, [*MEMBERS, (workload("still", skip="exclusive_cpus"), "batch")])
    assert by_group(seen)["pod-still"].skip == "exclusive_cpus"


# ---- the objective that pods bring with them ----


def objectives(node, kind="latency", setting=0.1, **own):
    """The objective that the state shows for pods with these of their own."""
    spec = ClassSettings(kind=kind, objective_p99_seconds=setting, objective_pressure_ratio=0.3)
    members = []
    for name, seconds in own.items():
        if name != "absent":
            node.add(f"pod-{name}")
        members.append((workload(name, objective_p99_seconds=seconds), "api"))
    return look(view(classes={"api": spec}), node.kernel(), 0.0, members).classes["api"].objective_seconds


def test_a_class_goes_by_the_strictest_objective_of_its_pods(node):
    assert objectives(node, a=0.05, b=0.02, c=0.5) == 0.02


def test_a_pod_without_one_of_its_own_goes_by_its_classs(node):
    assert objectives(node, a=0.5, b=None) == 0.1


def test_where_all_pods_have_one_of_their_own_the_classs_does_not_count(node):
    assert objectives(node, a=0.5) == 0.5


def test_a_class_without_an_objective_goes_by_what_its_pods_bring(node):
    assert objectives(node, setting=None, a=0.5, b=None) == 0.5


@pytest.mark.parametrize("seconds", [0.0, -1.0, math.nan, math.inf])
def test_an_objective_that_is_none_does_not_count(node, seconds):
    assert objectives(node, a=seconds) == 0.1


def test_a_pod_that_is_not_here_brings_none(node):
    assert objectives(node, a=0.05, absent=0.001) == 0.05


def test_a_throughput_class_has_none_whatever_its_pods_wish(node):
    assert objectives(node, kind="throughput", setting=None, a=0.05) is None


def test_requests_over_a_pods_own_objective_are_counted_and_latency_judges_a_class_that_has_no_other(two):
    spec = ClassSettings(objective_pressure_ratio=0.3)
    eyes, kernel = view(classes={"latency-critical": spec, "batch": DEFAULT_CLASSES["batch"]}), two.kernel()
    own = workload("api", url="http://x/", objective_p99_seconds=0.1)

    def pages(fast, slow):
        return {own.uid: HistogramPage("m_seconds", {(): {0.1: fast, 1.0: fast + slow, INF: fast + slow}})}

    look(eyes, kernel, 0.0, [(own, "latency-critical")], pages(0, 0))
    seen = look(eyes, kernel, 5.0, [(own, "latency-critical")], pages(75, 25)).classes["latency-critical"]
    assert (seen.latency.over_ratio, seen.objective_seconds, seen.judged_by) == (pytest.approx(0.25), 0.1, "latency")
