"""The documentation says what the code does: names, defaults, words and examples are held against their source."""

import argparse
import ast
import json
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from cli.__main__ import INTERRUPTED, NOBODY_READS, VERBS
from cli.up import SECTIONS
from hostfs.pod_tree import EXCLUSIVE_CPUS, NO_PROCESSES, OUTSIDE_PODS_ROOT
from runtime import errors, lifecycle, streams
from runtime.bus import Entry
from runtime.config import load
from runtime.metrics import CommonMetrics
from runtime.settings import BusSettings, HostSettings, HttpSettings, LogSettings
from schemas.codec import decode, encode
from schemas.features import feature_names
from schemas.messages import AnyMessage, Contention, Mode
from schemas.objective import NO_LATENCY
from schemas.settings import DEFAULT_CLASSES, ClassSettings, LoopSettings, Section, Shared, WeightSettings
from schemas.subjects import SERVICES, kind_of, message_id, node_name, subject_of
from services.actuator.metrics import ActuatorMetrics
from services.collector.core.features import features
from services.collector.core.workload import APART
from services.collector.metrics import CollectorMetrics
from services.collector.sources.workloads import read_workloads
from services.decider.config import TrialSettings
from services.decider.core.zoo import POLICIES
from services.decider.metrics import DeciderMetrics
from services.guard.core.rules import RULES
from services.guard.metrics import GuardMetrics
from services.guard.mode_entry import order_of
from services.rewarder.metrics import RewarderMetrics

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PACKAGES = ("schemas", "runtime", "hostfs", "services", "cli", "lab")

# ---- reading the documents ------------------------------------------------------------------------------------------


def text_of(name: str) -> str:
    return (DOCS / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    """What stands below a heading, up to the next of its level or above."""
    level = len(heading) - len(heading.lstrip("#"))
    begin = text.index(f"\n{heading}\n") + 1
    following = re.search(rf"^#{{1,{level}}} ", text[begin + len(heading) :], re.MULTILINE)
    return text[begin : begin + len(heading) + following.start()] if following else text[begin:]


def tables(text: str) -> Iterator[dict[str, str]]:
    """The rows of all tables, by their headings. Fenced blocks are no tables."""
    heading: list[str] | None = None
    for line in re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).split("\n"):
        if not line.startswith("|"):
            heading = None
        elif heading is None:
            heading = _cells(line)
        elif not set(line) <= set("|- "):
            yield dict(zip(heading, _cells(line), strict=True))


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def first_words(text: str, column: str) -> set[str]:
    """The words in back quotes in one column: `refused: <rule>` counts as `refused`."""
    return {re.split(r"[: ]", word)[0] for row in tables(text) for word in quoted(row.get(column, ""))}


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def code_words(pattern: str, *places: str) -> set[str]:
    """What a pattern's groups match in these files or folders of the code."""
    files = [
        file for place in places for file in ([ROOT / place] if place.endswith(".py") else (ROOT / place).rglob("*.py"))
    ]
    return {word for file in files for word in re.findall(pattern, file.read_text(encoding="utf-8"))}


# ---- metrics ---------------------------------------------------------------------------------------------------------


class Metric(NamedTuple):
    name: str
    type: str
    labels: frozenset[str]


OF_SERVICE = {
    "Collector": CollectorMetrics,
    "Decider": DeciderMetrics,
    "Guard": GuardMetrics,
    "Actuator": ActuatorMetrics,
    "Rewarder": RewarderMetrics,
}
SUFFIX = {"counter": "_total", "info": "_info"}


def registered(registry: CollectorRegistry) -> set[Metric]:
    """Every metric of a registry by the name under which it is exposed."""
    found = set()
    for collector in registry._collector_to_names:
        if isinstance(collector, MetricWrapperBase) and collector._type != "info":
            kind = collector._type
            found.add(Metric(collector._name + SUFFIX.get(kind, ""), kind, frozenset(collector._labelnames)))
            continue
        for family in collector.collect():
            labels = frozenset(label for sample in family.samples for label in sample.labels)
            found.add(Metric(family.name + SUFFIX.get(family.type, ""), family.type, labels))
    return found


def documented(heading: str) -> set[Metric]:
    rows = tables(section(text_of("metrics.md"), heading))
    return {
        Metric(quoted(row["Metric"])[0], row["Type"], frozenset(quoted(row["Labels"])))
        for row in rows
        if "Metric" in row
    }


def test_metrics_of_every_service_are_the_documented_ones() -> None:
    assert documented("## Every service") == registered(CommonMetrics("guard").registry)


@pytest.mark.parametrize("service", OF_SERVICE)
def test_metrics_of_one_service_are_the_documented_ones(service: str) -> None:
    registry = CollectorRegistry()
    OF_SERVICE[service](registry)
    assert documented(f"## {service}") == registered(registry)


def test_every_metric_says_its_unit_and_meaning() -> None:
    for row in tables(text_of("metrics.md")):
        if "Metric" in row:
            assert row["Unit"], row
            assert row["Meaning"], row


def test_steps_drops_and_restores_have_the_documented_label_values() -> None:
    text = text_of("metrics.md")
    rows = {quoted(row["Metric"])[0]: row["Meaning"] for row in tables(text) if "Metric" in row}
    assert set(quoted(rows["trimtab_step_duration_seconds"])) == code_words(r'\bstep\.labels\("(\w+)"\)', "services")
    assert set(quoted(rows["trimtab_actuator_restores_total"])) == (
        code_words(r'_restore(?:_and_say|_if_touched)?\([^)\n]*"(\w+)"\)', "services/actuator/service.py")
    )
    dropped = code_words(r'\bdrop\(\w+, "(\w+)"', "services") | code_words(r'_drop\(\w+, "(\w+)"', "runtime")
    dropped |= code_words(r'dropped\.labels\("\w+", "(\w+)"\)', "services") | set(lifecycle._COUNTED.values())
    dropped |= {"late", "duplicate", "stale"}  # chosen in expressions
    dropped |= code_words(r'_Unread\("(\w+)"', "runtime/messenger.py")
    dropped |= code_words(r'return "(\w+)" if skew', "services/guard/core/mode_order.py")
    dropped |= code_words(r'return "(\w+)"', "schemas/runs.py")
    assert first_words(section(text, "### Why a message was dropped"), "`reason`") == dropped


# ---- features --------------------------------------------------------------------------------------------------------


def feature_rows() -> dict[str, dict[str, str]]:
    return {quoted(row["Feature"])[0]: row for row in tables(text_of("features.md"))}


def test_features_are_the_documented_ones_in_their_order() -> None:
    names = list(feature_rows())
    of_node = [name for name in names if not name.startswith("<class>.")]
    of_class = [name.removeprefix("<class>.") for name in names if name.startswith("<class>.")]
    classes = tuple(DEFAULT_CLASSES)
    assert (*of_node, *(f"{cls}.{name}" for cls in classes for name in of_class)) == feature_names(classes)


def test_what_is_not_known_has_the_documented_value() -> None:
    unknown = features({}, Contention(), None, DEFAULT_CLASSES)
    for name, row in feature_rows().items():
        assert unknown[name.replace("<class>", "batch")] == float(row["When not known"]), name


def test_every_feature_says_what_it_means_and_its_range() -> None:
    for name, row in feature_rows().items():
        assert row["Meaning"], name
        assert row["Range"], name


# ---- configuration ---------------------------------------------------------------------------------------------------

STRUCTS: dict[str, type[msgspec.Struct]] = {
    "loop": LoopSettings,
    "weights": WeightSettings,
    "classes.<name>": ClassSettings,
    "bus": BusSettings,
    "http": HttpSettings,
    "log": LogSettings,
    "host": HostSettings,
    **SECTIONS,
    "decider.trial": TrialSettings,
}


def type_words(kind: Any) -> str:
    """A setting's type as the tables write it."""
    if get_origin(kind) is Annotated:
        base, *metas = get_args(kind)
        limits = [
            f"{sign} {limit if isinstance(limit, int) else format(limit, 'g')}"
            for meta in metas
            for sign, limit in ((">", meta.gt), ("≥", meta.ge), ("<", meta.lt), ("≤", meta.le))
            if limit is not None
        ]
        return ", ".join([type_words(base), *limits])
    if get_origin(kind) in (Union, UnionType):
        return " or ".join(type_words(part) for part in get_args(kind))
    if get_origin(kind) is Literal:
        return " ".join(f"`{value}`" for value in get_args(kind))
    if get_origin(kind) is tuple:
        return "list of texts"
    if get_origin(kind) is dict:
        return "mapping"
    words = {str: "text", int: "whole number", float: "number", bool: "true or false", type(None): "null"}
    return words[kind]


def settings() -> dict[str, tuple[str, str]]:
    """Default and type of every setting by its dotted name."""
    found = {}
    parts = {"": Shared, **STRUCTS}
    for prefix, struct in parts.items():
        for field in msgspec.structs.fields(struct):
            if prefix == "" and field.name in ("loop", "weights", "classes"):
                continue
            if isinstance(field.type, type) and issubclass(field.type, Section):
                continue  # it has rows of its own
            default = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
            name = f"{prefix}.{field.name}" if prefix else field.name
            found[name] = (json.dumps(msgspec.to_builtins(default), ensure_ascii=False), type_words(field.type))
    return found


def setting_rows() -> dict[str, dict[str, str]]:
    return {quoted(row["Setting"])[0]: row for row in tables(text_of("configuration.md")) if "Setting" in row}


def test_every_setting_is_documented_with_its_default_and_range() -> None:
    rows = setting_rows()
    assert {name: (quoted(row["Default"])[0], row["Type and range"]) for name, row in rows.items()} == settings()


def test_every_setting_says_what_it_does() -> None:
    for name, row in setting_rows().items():
        assert len(row["What it does, and why this default"]) > 15, name


def test_units_follow_from_the_names() -> None:
    units = {"_seconds": "seconds", "_ticks": "ticks", "_bytes": "bytes"}
    for name, row in setting_rows().items():
        for ending, unit in units.items():
            if name.endswith(ending):
                assert row["Unit"] == unit, name


def test_policies_are_the_documented_ones() -> None:
    intro = section(text_of("configuration.md"), "## `decider`").split("|")[0]
    assert f"`policy` is one of {', '.join(f'`{name}`' for name in POLICIES)}." in intro


def test_exit_codes_are_the_documented_ones() -> None:
    rows = tables(section(text_of("configuration.md"), "## Exit codes"))
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.TrimtabError)]
    assert {int(row["code"]) for row in rows} == {0, INTERRUPTED, NOBODY_READS} | {kind.exit_code for kind in kinds}


def test_the_variables_shown_are_settings() -> None:
    lines = [
        line for block in blocks(text_of("configuration.md"), "sh") for line in block.split("\n") if "TRIMTAB_" in line
    ]
    env = dict(line.split("=", 1) for line in lines if line.startswith("TRIMTAB_"))
    config = load(SECTIONS, env=env)
    assert config.warnings == ()
    assert len(config.origins) == len(env) > 3
    assert config.shared.classes["latency-critical"].objective_p99_seconds == 0.05
    assert set(config.shared.classes) == set(DEFAULT_CLASSES)


def test_the_default_classes_are_the_documented_ones(tmp_path: Path) -> None:
    path = tmp_path / "classes.yaml"
    path.write_text(blocks(text_of("configuration.md"), "yaml")[0])
    assert load({}, path=str(path), env={}).shared.classes == DEFAULT_CLASSES


# ---- the bus ---------------------------------------------------------------------------------------------------------

EXAMPLE = re.compile(
    r"^### `(\w+)`\n.*?^Subject `([^`]+)`, id `([^`]+)`:\n\n```json\n(.*?)^```", re.MULTILINE | re.DOTALL
)


def examples() -> list[tuple[str, str, str, bytes]]:
    return [(kind, subject, id_, raw.encode()) for kind, subject, id_, raw in EXAMPLE.findall(text_of("subjects.md"))]


def all_kinds() -> set[str]:
    return {str(kind.__struct_config__.tag) for kind in get_args(AnyMessage)}


def test_every_kind_of_message_has_an_example() -> None:
    assert [kind for kind, *_ in examples()] == [
        "state",
        "action",
        "verdict",
        "actuation",
        "collect",
        "reward",
        "command",
        "heartbeat",
    ]
    assert {kind for kind, *_ in examples()} == all_kinds()


@pytest.mark.parametrize("example", examples(), ids=lambda example: example[0])
def test_an_example_is_a_whole_message_on_its_subject(example: tuple[str, str, str, bytes]) -> None:
    kind, subject, id_, raw = example
    message = decode(raw)
    assert kind_of(message) == kind
    assert subject_of(message) == subject
    assert message_id(message) == id_
    assert json.loads(encode(message)) == json.loads(raw), "fields are missing, or there are some that no reader knows"


def test_every_subject_is_listed_with_who_speaks_and_who_listens() -> None:
    rows = {quoted(row["Subject"])[0]: row for row in tables(section(text_of("subjects.md"), "## Names"))}
    for _, subject, _, raw in examples():
        message = decode(raw)
        pattern = subject.replace(f".{message.node}", ".<node>")
        pattern = re.sub(rf"heartbeat\.({'|'.join(SERVICES)})", "heartbeat.<service>", pattern)
        assert pattern in rows, pattern
    for pattern, row in rows.items():
        stored = [stream.name for stream in streams.STREAMS if pattern.split(".")[2] in stream.kinds]
        assert quoted(row["Stored in"]) == stored, pattern


def test_services_publish_what_the_table_says() -> None:
    rows = list(tables(section(text_of("subjects.md"), "## Names")))
    for service in SERVICES:
        sent = code_words(r"\b([A-Z]\w+)\(\s*node=", f"services/{service}")
        kinds = {name.lower().replace("collectrequest", "rpc") for name in sent}
        listed = {
            quoted(row["Subject"])[0].split(".")[2]
            for row in rows
            if re.search(rf"\b{service}\b", row["Who publishes"])
        }
        assert listed == kinds, service


def test_services_listen_to_what_the_table_says() -> None:
    rows = list(tables(section(text_of("subjects.md"), "## Names")))
    for service in SERVICES:
        heard = code_words(r"(?:listen\(|learn_from\([^,]+, [^,]+, )(\w+),", f"services/{service}/service.py")
        kinds = {name.lower().replace("collectrequest", "rpc") for name in heard}
        listed = {
            quoted(row["Subject"])[0].split(".")[2] for row in rows if re.search(rf"\b{service}\b", row["Who listens"])
        }
        assert listed == kinds, service


def test_streams_and_buckets_are_the_documented_ones() -> None:
    rows = list(tables(section(text_of("subjects.md"), "## Streams and buckets")))
    found = {quoted(row["Stream"])[0]: row for row in rows if "Stream" in row}
    assert set(found) == {stream.name for stream in streams.STREAMS}
    for stream in streams.STREAMS:
        row, config = found[stream.name], stream.config()
        assert quoted(row["Captures"]) == config.subjects
        if stream.max_per_subject > 0:
            assert (row["Keeps"], row["At most"]) == ("for good", f"the newest {stream.max_per_subject:,} of each node")
            assert (stream.max_age_seconds, stream.max_bytes) == (0.0, -1)
        else:
            assert row["Keeps"] == f"{stream.max_age_seconds / 86_400:g} days"
            assert row["At most"] == f"{stream.max_bytes / 2**30:g} GiB"
        assert ("append only" in row[""]) == stream.append_only
    buckets = {quoted(row["Bucket"])[0]: row["Kind"] for row in rows if "Bucket" in row}
    assert buckets == dict.fromkeys(streams.KEY_VALUES, "key-value") | dict.fromkeys(streams.OBJECTS, "object store")


def returned_words(path: str, functions: Iterable[str]) -> set[str]:
    """The first words of the texts that these functions return."""
    found = set()
    for function in ast.walk(ast.parse((ROOT / path).read_text())):
        if not isinstance(function, ast.FunctionDef) or function.name not in functions:
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                texts = [
                    part
                    for part in ast.walk(node.value)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                ]
                if texts and isinstance(node.value, ast.Constant | ast.JoinedStr | ast.IfExp):
                    found |= {
                        re.split(r"[: ]", text.value)[0]
                        for text in texts[: 2 if isinstance(node.value, ast.IfExp) else 1]
                    }
    return found - {""}


def test_words_for_what_is_not_learned_are_the_documented_ones() -> None:
    told = first_words(section(text_of("subjects.md"), "#### Why a cycle is not learned from"), "`reason`")
    functions = (
        "_not_executed",
        "_not_seen",
        "_overridden",
        "_no_contention",
        "_no_evidence",
        "_not_judged",
        "_not_comparable",
    )
    words = returned_words("services/rewarder/core/censor.py", functions)
    words |= code_words(r'_finish\([\w.]+, "(\w+)"\)', "services/rewarder/service.py")
    assert told == words | {"shadow"}  # the rule of a verdict that is not to be executed


def test_rules_are_the_documented_ones_in_their_order() -> None:
    rows = tables(section(text_of("subjects.md"), "#### Verdict rules"))
    told = [quoted(row["`rule`"])[0] for row in rows]
    names = [rule.name for rule in RULES]
    assert [name for name in told if name in names] == names
    assert set(told) - set(names) == {"breaker", "shadow"}


def test_words_of_the_mask_are_the_documented_ones() -> None:
    told = first_words(section(text_of("subjects.md"), "### `action`"), "`masked`")
    assert told == code_words(r'(?:\bdrop\(|: )"(\w+)"[,}]', "services/decider/core/mask.py")


def test_reasons_for_unknown_latency_are_the_documented_ones() -> None:
    told = first_words(section(text_of("subjects.md"), "### `state`"), "`latency.reason`")
    words = code_words(r'reason(?: =|=)\s*"(\w+)"', "services/collector/core")
    words |= code_words(r'reason = "(\w+)" if', "services/collector/core") | code_words(
        r'else "(few_requests|scrape_failed)"', "services/collector/core"
    )
    assert told == words | NO_LATENCY


def test_reasons_for_skipped_pods_are_the_documented_ones() -> None:
    told = first_words(section(text_of("subjects.md"), "### `state`"), "`pods[].skip`")
    of_groups = {EXCLUSIVE_CPUS, NO_PROCESSES, OUTSIDE_PODS_ROOT}
    assert told == returned_words("services/collector/core/view.py", ["_skip"]) | APART | of_groups


def test_words_of_the_actuator_are_the_documented_ones() -> None:
    text = section(text_of("subjects.md"), "### `actuation`")
    rules = code_words(r'rule="(\w+)"', "services/actuator/service.py")
    rules |= code_words(r'return "(\w+)", ', "services/actuator/service.py")
    assert first_words(text, "`rule`") == rules
    results = {quoted(row["`writes[].result`"])[0] for row in tables(text) if "`writes[].result`" in row}
    assert results == code_words(
        r'"(applied|unchanged|skipped|failed|mismatch|released)"', "services/actuator/weights.py"
    )
    reasons = code_words(r'_skipped\([^"\n]+, "(\w+)"\)', "services/actuator/weights.py")
    reasons |= code_words(r'why_not = "(\w+)"', "services/actuator/weights.py")
    reasons |= code_words(r'_write\([^"\n]+, "(?:skipped|failed)", "(\w+)"\)', "services/actuator/weights.py")
    assert reasons <= first_words(text, "`writes[].reason`"), reasons


@pytest.mark.parametrize(
    ("heading", "kind"),
    [("### `verdict`", "verdict"), ("### `actuation`", "actuation")],
)
def test_outcomes_are_the_documented_ones(heading: str, kind: str) -> None:
    of_kind = next(struct for struct in get_args(AnyMessage) if struct.__struct_config__.tag == kind)
    outcomes = next(field.type for field in msgspec.structs.fields(of_kind) if field.name == "outcome")
    rows = [row for row in tables(section(text_of("subjects.md"), heading)) if list(row) == ["`outcome`", "meaning"]]
    assert [quoted(row["`outcome`"])[0] for row in rows] == list(get_args(outcomes))


# ---- operations and examples -----------------------------------------------------------------------------------------


def test_the_example_configuration_fits_every_service() -> None:
    config = load(SECTIONS, path=str(ROOT / "deploy/examples/trimtab.yaml"), env={})
    assert config.warnings == ()
    assert config.shared.mode == "shadow"
    assert config.shared.classes == DEFAULT_CLASSES


def test_the_example_workloads_can_be_read(tmp_path: Path) -> None:
    of_file = read_workloads(str(ROOT / "deploy/examples/workloads.yaml"), str(tmp_path))
    shown = tmp_path / "shown.yaml"
    shown.write_text(next(block for block in blocks(text_of("operations.md"), "yaml") if "workloads:" in block))
    assert read_workloads(str(shown), str(tmp_path)) == of_file[:1]
    assert [len(workload.labels) for workload in of_file] == [1, 1, 0]


def test_fields_of_the_workload_file_are_the_documented_ones() -> None:
    from services.collector.sources import workloads  # noqa: PLC0415 - its private struct is the format

    rows = {quoted(row["Field"])[0]: row for row in tables(text_of("operations.md")) if "Field" in row}
    fields = {field.name: field.required for field in msgspec.structs.fields(workloads._Entry)}
    assert {name: row["Required"] == "yes" for name, row in rows.items()} == fields


def test_modes_are_the_documented_ones() -> None:
    rows = [row for row in tables(section(text_of("operations.md"), "## Modes")) if "mode" in row]
    assert {quoted(row["mode"])[0] for row in rows} == set(get_args(Mode))


def test_the_entry_shown_is_one_that_orders() -> None:
    ((key, raw),) = re.findall(r"nats kv put trimtab-mode (\S+) '(\{.*\})'", text_of("operations.md"))
    order = order_of(Entry(key, raw.encode(), 1, 1), node_name(key), now_ns=1)
    assert (order.verb, order.mode, order.by) == ("mode", "frozen", "kv: jo")


def test_ports_are_the_documented_ones() -> None:
    rows = tables(section(text_of("operations.md"), "## Ports"))
    ports = {row["who"]: int(row["port"]) for row in rows}
    assert ports == {name: HttpSettings().port_of(name) for name in SERVICES} | {"NATS": 4222}


def test_log_events_are_ones_that_are_logged() -> None:
    logged = code_words(r'log\.(?:warning|error)\(\s*"(\w+)"', "runtime", "services")
    told = first_words(section(text_of("operations.md"), "## Troubleshooting"), "`event`")
    assert {event for event in told if not event.startswith("bus_")} == logged
    assert all(
        f'"{event.removeprefix("bus_")}"' in (ROOT / "runtime/nats_bus.py").read_text() for event in told - logged
    )


def command_lines() -> list[str]:
    found = set()
    for path in [*DOCS.glob("*.md"), ROOT / "README.md"]:
        for block in blocks(path.read_text(encoding="utf-8"), "sh"):
            found |= {line for line in block.split("\n") if line.startswith(("trimtab ", "python -m services."))}
    return sorted(found)


@pytest.mark.parametrize("line", command_lines())
def test_a_command_line_that_is_shown_has_flags_that_exist(line: str) -> None:
    words = shlex.split(line)
    parser = argparse.ArgumentParser(exit_on_error=False)
    if words[0] == "trimtab":
        verbs = parser.add_subparsers(required=True)
        for module in VERBS:
            module.add_parser(verbs)
        parser.parse_args(words[1:])
    else:
        assert words[2].removeprefix("services.") in SERVICES
        lifecycle.add_config_flags(parser)
        parser.add_argument("--restore", action="store_true")
        parser.parse_args(words[3:])


def anchors(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links() -> list[tuple[Path, str]]:
    files = [*DOCS.rglob("*.md"), ROOT / "README.md"]
    return [
        (path, target)
        for path in files
        for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))
        if "://" not in target
    ]


def test_links_lead_somewhere() -> None:
    lost = []
    for path, target in links():
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists() or (anchor and anchor not in anchors(file)):
            lost.append(f"{path.relative_to(ROOT)}: {target}")
    assert lost == []


def test_documents_that_the_code_names_exist() -> None:
    named = code_words(r"\b(docs/[\w/-]+\.md)\b", *PACKAGES)
    assert len(named) > 3
    assert sorted(name for name in named if not (ROOT / name).exists()) == []
