"""The tables and the page of a bench: what they say, that they stand alone, and that nothing in a file breaks out."""

import math
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import msgspec
import pytest

from lab.arena.report import svg
from lab.arena.report.bars import regret
from lab.arena.report.page import render
from lab.arena.report.palette import slots
from lab.arena.report.summary import (
    AGENT,
    BASELINE,
    KEPT,
    RECOVERED,
    SETTLED,
    as_record,
    cells,
    columns_of,
    milliseconds,
    percent,
    summarise,
)
from lab.arena.report.timelines import arm_map, p99_over_time
from lab.arena.results import About, Band, BestStatic, Curves, Results, Row, read_results, write_results

SEEDS = (1, 2, 3)
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


def row(policy="trimtab", seed=1, score=-0.1, **fields):
    plain = {
        "scenario": "flood",
        "queue": "bounded",
        "cycles": 300,
        "violation_lc": 0.10,
        "violation_default": 0.04,
        "batch_share": 0.5,
        "p99_lc_ms": 20.0,
        "p99_default_ms": 90.0,
        "violation_seconds": 5.0,
        "changes_per_minute": 1.0,
        "rollbacks": 2,
        "worst_shortfall": 0.01,
        "regret_static": 0.05,
        "regret_phase": 0.15,
    }
    return Row(policy=policy, seed=seed, score=score, **{**plain, **fields})


def curves(policy="trimtab", cycles=300, arms=("lc3-d3-b1", "lc10-d3-b1"), **fields):
    plain = {"scenario": "flood", "queue": "bounded", "seed": 1}
    return Curves(
        **{**plain, **fields},
        policy=policy,
        scores=tuple(0.1 * math.sin(cycle) for cycle in range(cycles)),
        p99_lc_ms=tuple(None if cycle % 40 == 7 else 20.0 + 300.0 * (cycle % 9 == 0) for cycle in range(cycles)),
        p99_default_ms=tuple(150.0 + cycle % 11 for cycle in range(cycles)),
        batch_share=(0.5,) * cycles,
        arms=tuple(arms[cycle // 10 % len(arms)] for cycle in range(cycles)),
        outcomes=("held",) * cycles,
    )


def band(policy="trimtab", **fields):
    cycle = tuple(range(4, 301, 4))
    plain = {"scenario": "flood", "queue": "bounded", "cycle": cycle}
    mean = tuple(-0.1 * at for at in cycle)
    low, high = tuple(value - 1.0 for value in mean), tuple(value + 1.0 for value in mean)
    return Band(policy=policy, mean=mean, low=low, high=high, **{**plain, **fields})


def results(policies=(BASELINE, "step", "trimtab"), scenarios=("flood",), **fields):
    """A bench in which every policy scores 0.2 more than the one before it, and a seed 0.01 more than the one before."""
    pairs = [
        (name, policy, index, seed) for name in scenarios for index, policy in enumerate(policies) for seed in SEEDS
    ]
    plain = {
        "results": tuple(
            row(policy, seed, -0.5 + 0.2 * index + 0.01 * seed, scenario=name) for name, policy, index, seed in pairs
        ),
        "best_static": tuple(
            BestStatic(
                scenario=name,
                queue="bounded",
                seed=seed,
                profile={"latency-critical": 100, "batch": 1},
                score=-0.05 + 0.01 * seed,
                per_phase_score=0.05 + 0.01 * seed,
                phases={},
                tried=29,
            )
            for name in scenarios
            for seed in SEEDS
        ),
        "curves": tuple(curves(policy, scenario=name) for name in scenarios for policy in policies),
        "bands": tuple(band(policy, scenario=name) for name in scenarios for policy in policies),
        "phases": dict.fromkeys(scenarios, (("api", 0), ("web", 100), ("api", 200))),
        "about": {
            name: About(text=f"about {name}", cores=2, objectives={"latency-critical": 0.05, "default": 0.2})
            for name in scenarios
        },
        "cycles": 300,
        "seeds": SEEDS,
        "made_by": "trimtab bench --seeds 1-3",
        "made_at": "2026-01-01T00:00:00+00:00",
        "trimtab": "1.2",
        "commit": "abc123",
        "machine": "two slow CPUs",
        "versions": {"Python": "3.11", "numpy": "2"},
    }
    return Results(**{**plain, **fields})


class Page(HTMLParser):
    """What a browser would find: tags with their attributes, text outside of style and script, and open tags."""

    VOID = ("meta", "input", "br", "img", "link")
    EMPTY = ("path", "rect")

    def __init__(self, text):
        super().__init__()
        self.tags, self.words, self.open = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "script"):
            self.words.append(data)

    @property
    def text(self):
        return "".join(self.words)

    def named(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


# ---- the table -------------------------------------------------------------------------------------------------------


def test_a_line_is_the_mean_over_the_seeds_with_its_interval():
    base, step, ours, static, per_phase = summarise(results())
    assert [line.policy for line in (base, step, ours)] == [BASELINE, "step", "trimtab"]
    assert (static.policy, per_phase.policy) == ("best-static", "best-per-phase")
    assert ours.score.mean == pytest.approx(-0.08)
    assert ours.score.low == pytest.approx(-0.08 - 4.303 * 0.01 / math.sqrt(3))
    assert static.score.mean == pytest.approx(-0.03)
    assert per_phase.score.mean == pytest.approx(0.07)


def test_differences_are_paired_by_seed():
    base, step, ours, *_ = summarise(results())
    assert base.over_baseline is None
    assert ours.over_baseline is not None
    assert ours.over_static is not None
    assert ours.over_baseline.ends == pytest.approx((0.4, 0.4))
    assert ours.over_static.ends == pytest.approx((-0.05, -0.05))
    assert step.over_baseline.mean == pytest.approx(0.2)


def test_the_worst_seed_tells_the_shortfall():
    rows = (row(seed=1, worst_shortfall=0.02), row(seed=2, worst_shortfall=0.31), row(seed=3, worst_shortfall=0.0))
    (line,) = summarise(Results(results=rows, best_static=()))
    assert line.worst_shortfall == 0.31
    assert cells(line)["worst shortfall"] == "31.0 %"


def test_what_is_not_known_of_some_seeds_is_the_mean_of_the_others():
    rows = (row(seed=1, violation_lc=None, p99_lc_ms=None), row(seed=2, violation_lc=0.2, p99_lc_ms=30.0))
    (line,) = summarise(Results(results=rows, best_static=()))
    assert (line.violation_lc.mean, line.violation_lc.count, line.p99_lc_ms) == (0.2, 1, 30.0)


def test_scenarios_and_queues_are_kept_apart():
    rows = (row(), row(queue="unbounded", score=-0.9), row(scenario="swap", score=0.1))
    lines = summarise(Results(results=rows, best_static=()))
    assert [(line.scenario, line.queue, line.score.mean) for line in lines] == [
        ("flood", "bounded", -0.1),
        ("flood", "unbounded", -0.9),
        ("swap", "bounded", 0.1),
    ]


def test_recovery_is_the_part_of_the_way_to_being_alone():
    rows = (
        row(BASELINE, p99_lc_settled_ms=2017.0),
        row("alone", p99_lc_settled_ms=17.0),
        row("trimtab", p99_lc_ms=1900.0, p99_lc_settled_ms=117.0),
        row("step", p99_lc_ms=20.0),
    )
    lines = summarise(Results(results=rows, best_static=()))
    assert [line.recovered for line in lines[:3]] == pytest.approx([0.0, 1.0, 0.95])
    assert lines[3].recovered is None
    assert columns_of(lines)[-4:] == ("settled P99 ms", "P99 recovered", "batch of what is left", "agent CPU")
    assert (cells(lines[2])[SETTLED], cells(lines[2])[RECOVERED]) == ("117", "95.0 %")
    assert RECOVERED not in columns_of(summarise(results()))


def test_batch_is_judged_by_what_services_and_clients_leave_over_and_not_by_what_it_had_before():
    def shares(policy, batch, services, clients, agent):
        return row(
            policy,
            p99_lc_settled_ms={BASELINE: 1000.0, "alone": 10.0}.get(policy, 20.0),
            batch_share_settled=batch,
            services_share_settled=services,
            clients_share_settled=clients,
            agent_share_settled=agent,
        )

    rows = (
        shares(BASELINE, 0.80, 0.10, 0.05, 0.05),
        shares("alone", 0.00, 0.60, 0.05, 0.02),
        shares("trimtab", 0.27, 0.60, 0.05, 0.08),
        shares("trimtab-cold", 0.30, 0.59, 0.06, 0.05),
    )
    baseline, alone, ours, cold = summarise(Results(results=rows, best_static=()))
    assert (baseline.batch_kept, alone.batch_kept) == (1.0, None)
    assert ours.batch_kept == pytest.approx(0.27 / 0.30)
    assert cold.batch_kept == pytest.approx(1.0)
    assert (cells(ours)[KEPT], cells(ours)[AGENT]) == ("90.0 %", "8.0 %")


def test_where_alone_is_as_slow_as_the_baseline_nothing_is_recovered_and_the_columns_still_show_it():
    rows = (row(BASELINE, p99_lc_settled_ms=1000.0, batch_share_settled=0.8), row("alone", p99_lc_settled_ms=1000.0))
    lines = summarise(Results(results=rows, best_static=()))
    assert [line.recovered for line in lines] == [None, None]
    assert SETTLED in columns_of(lines)
    assert cells(lines[1])[SETTLED] == "1,000"


def test_nothing_is_said_of_batch_where_the_baseline_was_not_played():
    rows = (row("alone", p99_lc_settled_ms=17.0), row("trimtab", p99_lc_settled_ms=20.0, batch_share_settled=0.3))
    lines = summarise(Results(results=rows, best_static=()))
    assert [(line.recovered, line.batch_kept) for line in lines] == [(None, None), (None, None)]


def test_a_record_has_every_interval_with_its_ends():
    record = as_record(summarise(results())[2])
    assert (record["policy"], record["seeds"]) == ("trimtab", 3)
    assert record["score"] == pytest.approx(-0.08)
    assert record["score_low"] < record["score"] < record["score_high"]
    assert record["violation_lc"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("ratio", "words"),
    [(None, None), (0.0, "0.0 %"), (0.0001, "<0.1 %"), (0.0005, "0.1 %"), (0.123, "12.3 %"), (1.0, "100.0 %")],
)
def test_what_is_above_zero_is_never_shown_as_zero(ratio, words):
    assert percent(ratio) == words


@pytest.mark.parametrize(("value", "words"), [(None, None), (9.96, "10.0"), (99.96, "100.0"), (2172.4, "2,172")])
def test_milliseconds_have_the_digits_that_count(value, words):
    assert milliseconds(value) == words


# ---- the page --------------------------------------------------------------------------------------------------------


def test_the_page_stands_alone_and_is_well_formed():
    text = render(results())
    page = Page(text)
    assert page.open == []
    assert {"link", "img", "iframe", "base"} & {tag for tag, _ in page.tags} == set()
    assert not any(name in attributes for _, attributes in page.tags for name in ("src", "href", "onclick", "onload"))
    assert not re.search(r"url\(|@import|https?://", text)
    policy = next(meta["content"] for meta in page.named("meta") if meta.get("http-equiv"))
    assert "default-src 'none'" in policy


def test_every_figure_is_there_as_readable_svg():
    text = render(results())
    drawings = re.findall(r'<svg[^>]*role="img".*?</svg>', text, re.DOTALL)
    names = [ET.fromstring(drawing).get("aria-label") for drawing in drawings]
    assert names == [
        "score above other policies, by scenario",
        "P99 over time by policy",
        "cumulative score by policy",
        "arms of request-derived over time",
        "arms of step over time",
        "arms of trimtab over time",
        "regret by policy",
        "violations by policy",
    ]


def test_the_verdict_counts_what_the_intervals_say():
    text = Page(render(results())).text
    assert "trimtab scores above request-derived weights in 1 of 1 scenarios and below in 0" in text
    assert "it is at most 0.03 below in 0 of 1, and above in 0" in text
    assert "never more than 1.0 % below request-derived's" in text
    worse = Page(render(results(policies=("trimtab", BASELINE)))).text
    assert "in 0 of 1 scenarios and below in 1 (95 % intervals beyond zero)" in worse


def test_the_verdict_of_one_seed_claims_no_intervals():
    bench = results()
    first = msgspec.structs.replace(
        bench,
        results=tuple(found for found in bench.results if found.seed == 1),
        best_static=bench.best_static[:1],
        seeds=(1,),
    )
    text = Page(render(first)).text
    assert "in 1 of 1 scenarios and below in 0 (one seed: without intervals)" in text
    assert "beyond zero" not in text


def test_the_page_says_how_it_was_made():
    text = Page(render(results(notes=("failed: flood (bounded), step, seed 2: no arm",)))).text
    for words in (
        "trimtab bench --seeds 1-3",
        "2026-01-01T00:00:00+00:00",
        "1.2, commit abc123",
        "two slow CPUs",
        "Python 3.11, numpy 2",
        "1, 2, 3",
        "failed: flood (bounded), step, seed 2: no arm",
        "latency-critical 100, batch 1 (3 seeds)",
    ):
        assert words in text


def test_whatever_a_file_says_is_text():
    hostile = results(
        policies=(BASELINE, HOSTILE),
        scenarios=(HOSTILE,),
        notes=(HOSTILE,),
        made_by=HOSTILE,
        machine=HOSTILE,
        versions={HOSTILE: HOSTILE},
        phases={HOSTILE: ((HOSTILE, 0), (f"b{HOSTILE}", 100))},
        about={HOSTILE: About(text=HOSTILE, cores=2, objectives={"latency-critical": 0.05})},
        curves=(curves(HOSTILE, arms=(HOSTILE, "b"), scenario=HOSTILE), curves(HOSTILE, scenario=HOSTILE)),
    )
    text = render(hostile)
    page = Page(text)
    assert page.open == []
    assert len(page.named("script")) == 1
    assert page.named("img") == []
    assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
    assert HOSTILE in page.text


def test_one_section_is_open_and_it_is_one_in_which_weights_matter():
    quiet = About(text="", cores=2, objectives={}, matters=False)
    busy = About(text="", cores=2, objectives={})
    page = Page(render(results(scenarios=("quiet", "flood", "swap"), about={"quiet": quiet, "flood": busy})))
    assert ["open" in attributes for attributes in page.named("details")] == [False, True, False]


def test_many_policies_start_with_ours_the_baseline_and_the_best_of_the_rest():
    names = ("step", "pid", "good", BASELINE, "trimtab-cold", "trimtab", "other")
    rows = tuple(row(name, score=0.1 if name == "good" else -0.3) for name in names)
    page = Page(render(Results(results=rows, best_static=())))
    numbers = slots(names)
    boxes = {box["id"]: "checked" in box for box in page.named("input")}
    assert {name for name in names if boxes[f"b{numbers[name]}"]} == {"good", BASELINE, "trimtab-cold", "trimtab"}


def test_a_policy_keeps_its_colour_whoever_else_plays():
    few, many = slots(("trimtab",)), slots(("step", "pid", BASELINE, "trimtab"))
    assert few["trimtab"] == many["trimtab"]
    assert len({many[name] for name in ("step", "pid", BASELINE, "trimtab")}) == 4


@pytest.mark.parametrize(
    "sparse",
    [
        Results(results=(), best_static=()),
        Results(results=(), best_static=(), notes=("interrupted: 9 of 9 runs never ended",)),
        Results(results=(row(),), best_static=()),
        Results(results=(row(violation_lc=None, violation_default=None, p99_lc_ms=None, regret_static=None),), best_static=()),
        Results(results=(row(score=0.0, regret_static=0.0, regret_phase=0.0, violation_lc=0.0),), best_static=()),
        Results(results=(row(),), best_static=(), curves=(curves(cycles=0),), bands=()),
        Results(results=(row(),), best_static=(), curves=(curves(cycles=1),), bands=(), cycles=1),
        Results(results=(row(),), best_static=(), curves=(curves("stranger"),), bands=(band("another"),), cycles=300),
        results(cycles=0),
        results(bands=(band(cycle=(1, 2)),), curves=(msgspec.structs.replace(curves(), scores=()),)),
        results(phases={"flood": (("late", 900), ("early", -5))}),
        results(best_static=()),
        results(curves=()),
        results(bands=()),
        results(phases={}, about={}),
    ],
)  # fmt: skip
def test_a_page_is_made_of_whatever_there_is(sparse):
    page = Page(render(sparse))
    assert page.open == []
    assert "How it was made" in page.text
    assert "nan" not in page.text.lower().split()


def test_a_large_bench_stays_a_file_that_can_be_mailed():
    policies = (
        BASELINE,
        "trimtab",
        "trimtab-cold",
        "step",
        "pid",
        "epsilon-greedy",
        "river",
        "thompson",
        "vowpal",
        "static",
    )
    scenarios = tuple(f"scenario-{number}" for number in range(20))
    arms = tuple(f"lc{number}-d3-b1" for number in range(15))
    large = results(
        policies=policies,
        scenarios=scenarios,
        cycles=400,
        curves=tuple(curves(policy, 400, arms, scenario=name) for name in scenarios for policy in policies),
    )
    assert len(render(large).encode()) < 3_000_000


def test_the_file_that_a_bench_writes_is_read_as_it_was(tmp_path):
    path = str(tmp_path / "results.json")
    write_results(path, results())
    assert read_results(path) == results()


# ---- figures ---------------------------------------------------------------------------------------------------------


def test_a_scale_puts_values_where_they_belong_and_strays_at_the_edge():
    scale = svg.Scale(0.0, 10.0, 100.0, 200.0)
    assert [scale.at(value) for value in (0.0, 5.0, 10.0, 99.0, -1.0)] == [100.0, 150.0, 200.0, 200.0, 100.0]
    log = svg.Scale(1.0, 100.0, 0.0, 100.0, is_log=True)
    assert [log.at(value) for value in (1.0, 10.0, 100.0, 0.0)] == pytest.approx([0.0, 50.0, 100.0, 0.0])


@pytest.mark.parametrize(
    ("scale", "ticks"),
    [
        (svg.Scale(0.0, 400.0, 0.0, 1.0), [0, 100, 200, 300, 400]),
        (svg.Scale(-1.5, 0.3, 0.0, 1.0), [-1.5, -1.0, -0.5, 0.0]),
        (svg.Scale(0.0, 0.0021, 0.0, 1.0), [0.0, 0.0005, 0.001, 0.0015, 0.002]),
        (svg.Scale(15.0, 600.0, 0.0, 1.0, is_log=True), [20, 50, 100, 200, 500]),
        (svg.Scale(0.9, 2e4, 0.0, 1.0, is_log=True), [1, 10, 100, 1000, 10_000]),
    ],
)
def test_ticks_are_round_numbers_within_the_scale(scale, ticks):
    assert scale.ticks() == pytest.approx(ticks)


@pytest.mark.parametrize("values", [[], [0.0], [5.0, 5.0], [-3.0], [math.nan], [1e-12, 2e-12]])
def test_any_values_make_a_scale(values):
    for scale in (
        svg.linear(values, 0.0, 1.0),
        svg.linear(values, 0.0, 1.0, with_zero=True),
        svg.logarithmic(values, 0.0, 1.0),
    ):
        assert scale.high > scale.low
        assert scale.ticks()


def points_of(path):
    """The points of a line, from its relative steps."""
    found = []
    for stretch in re.findall(r"M([-\d. ]+)h0(?:l([-\d. ]*))?", path):
        x, y = map(float, stretch[0].split())
        found.append((x, y))
        steps = [float(step) for step in stretch[1].split()]
        for dx, dy in zip(steps[::2], steps[1::2], strict=True):
            x, y = x + dx, y + dy
            found.append((x, y))
    return found


def test_a_line_goes_through_its_points_without_drifting():
    points = [(index * 1.37, 50.0 + 40.0 * math.sin(index)) for index in range(200)]
    path = re.search(r' d="([^"]*)"', svg.polyline(points, "line")).group(1)
    assert [pair for point in points_of(path) for pair in point] == pytest.approx(
        [pair for point in points for pair in point], abs=0.051
    )


def test_a_line_has_gaps_where_nothing_is_known_and_a_dot_where_a_point_is_alone():
    path = re.search(
        r' d="([^"]*)"', svg.polyline([None, (1.0, 2.0), None, (3.0, 4.0), (5.0, 3.0), None], "line")
    ).group(1)
    assert path == "M1 2h0M3 4h0l2 -1"
    assert svg.polyline([None, None], "line") == ""


def test_peaks_survive_when_cycles_share_a_point():
    lone = curves(cycles=600)
    values = [19.0] * 600
    values[311] = 1900.0
    drawing = p99_over_time(
        [Curves(**{**{name: getattr(lone, name) for name in lone.__struct_fields__}, "p99_lc_ms": tuple(values)})],
        (("all", 0),), {"latency-critical": 0.05}, {"trimtab": 0},
    )  # fmt: skip
    line = re.search(r'<path class="line s0 t0 main" d="([^"]*)"', drawing).group(1)
    heights = [y for _, y in points_of(line)]
    assert len(heights) == 150
    assert sum(y < min(heights) + 1.0 for y in heights) == 1
    assert "objective 50 ms" in drawing


def test_the_map_has_a_row_per_arm_in_the_order_of_its_numbers_and_one_for_the_rare():
    few = arm_map(curves(arms=("lc10-d1", "lc3-d1", "lc3-d10")), ())
    assert re.findall(r'text-anchor="end">([^<]*)<', few) == ["lc3-d1", "lc3-d10", "lc10-d1"]
    many = arm_map(curves(arms=tuple(f"arm{number}" for number in range(30))), ())
    labels = re.findall(r'text-anchor="end">([^<]*)<', many)
    assert len(labels) == 12
    assert labels[-1] == "19 others"


def test_an_arm_is_darker_where_it_was_in_force_for_more_of_the_cycles():
    half = curves(cycles=300, arms=("a",))
    mixed = Curves(
        **{**{name: getattr(half, name) for name in half.__struct_fields__}, "arms": ("a", "a", "a", "b", *["a"] * 296)}
    )
    drawing = arm_map(mixed, ())
    cells_of = dict(re.findall(r'class="cell h(\d)" d="([^"]*)"', drawing))
    assert cells_of["3"].count("z") == 149
    assert cells_of["1"].count("z") == 2


def test_a_bar_goes_from_zero_to_its_value_on_either_side():
    rows = (row("step", regret_static=0.4, regret_phase=None), row("trimtab", regret_static=-0.2, regret_phase=None))
    drawing = regret(summarise(Results(results=rows, best_static=())), {"step": 4, "trimtab": 0})
    bars = re.findall(r'class="bar s(\d)" x="([\d.]+)"[^>]* width="([-\d.]+)"', drawing)
    (_, step_left, step_width), (_, our_left, our_width) = [(slot, float(x), float(w)) for slot, x, w in bars]
    assert step_width == pytest.approx(2 * our_width, abs=0.3)
    assert our_left + our_width == pytest.approx(step_left, abs=0.2)
