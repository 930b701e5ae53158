import pytest

from runtime.config import describe, load
from runtime.errors import ConfigError
from schemas.settings import Section, SettingsError, Shared
from services.collector.config import CollectorConfig
from services.decider.config import DeciderConfig
from services.guard.config import GuardConfig

SECTIONS = {"guard": GuardConfig, "collector": CollectorConfig}


@pytest.fixture
def write(tmp_path):
    def to_file(text: str) -> str:
        path = tmp_path / "trimtab.yaml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return to_file


def complaint(sections=SECTIONS, **arguments) -> str:
    with pytest.raises(ConfigError) as caught:
        load(sections, **{"env": {}, **arguments})
    text = str(caught.value)
    assert len(text.splitlines()) == 1
    return text


def shown(config, dotted: str) -> str:
    (line,) = [line for line in describe(config) if line.startswith(f"{dotted}: ")]
    return line.removeprefix(f"{dotted}: ")


# ---- precedence and origins ----


def test_without_anything_all_is_default():
    config = load(SECTIONS, env={})
    assert config.shared == Shared()
    assert config.warnings == ()
    assert all(line.endswith("  # default") for line in describe(config))


def test_flag_beats_variable_beats_file_beats_default(write):
    path = write("mode: canary\nloop: {tick_seconds: 6.0, settle_seconds: 1.5}\nguard: {min_requests: 30}\n")
    config = load(
        SECTIONS,
        path=path,
        env={"TRIMTAB_LOOP__TICK_SECONDS": "7", "TRIMTAB_MODE": "frozen"},
        overrides=[("mode", "active", "--mode")],
    )
    assert shown(config, "mode") == '"active"  # flag --mode'
    assert shown(config, "loop.tick_seconds") == "7.0  # env TRIMTAB_LOOP__TICK_SECONDS"
    assert shown(config, "loop.settle_seconds") == f"1.5  # file {path}"
    assert shown(config, "guard.min_requests") == f"30  # file {path}"
    assert shown(config, "loop.decision_budget_seconds") == "0.1  # default"
    assert config.shared.loop.tick_seconds == 7.0
    assert config.section("guard", GuardConfig).min_requests == 30


def test_the_variable_of_a_class_with_a_dash_changes_one_field_and_keeps_the_rest():
    name = "TRIMTAB_CLASSES__LATENCY_CRITICAL__OBJECTIVE_P99_SECONDS"
    config = load(SECTIONS, env={name: "0.05"})
    assert list(config.shared.classes) == ["latency-critical", "default", "batch"]
    assert shown(config, "classes.latency-critical.objective_p99_seconds") == f"0.05  # env {name}"
    assert shown(config, "classes.latency-critical.kind") == '"latency"  # default'


def test_a_variable_gives_a_class_of_the_file_a_field_that_the_file_leaves_out(write):
    path = write("classes: {web-shop: {importance: 0.5}, batch: {kind: throughput}}")
    config = load(SECTIONS, path=path, env={"TRIMTAB_CLASSES__WEB_SHOP__OBJECTIVE_P99_SECONDS": "0.2"})
    assert list(config.shared.classes) == ["web-shop", "batch"]
    assert config.shared.classes["web-shop"].objective_p99_seconds == 0.2


def test_naming_classes_in_the_file_replaces_the_default_set(write):
    config = load(SECTIONS, path=write("classes: {jobs: {kind: throughput}}"), env={})
    assert list(config.shared.classes) == ["jobs"]


def test_a_whole_mapping_from_a_flag_takes_over_the_origin_of_all_below_it(write):
    path = write("classes: {web: {kind: throughput}}")
    config = load(SECTIONS, path=path, env={}, overrides=[("classes", "{web: {kind: throughput}}", "--set")])
    assert shown(config, "classes.web.kind") == '"throughput"  # flag --set'


@pytest.mark.parametrize("section", ["loop", "weights", "bus", "guard"])
@pytest.mark.parametrize("empty", ["", " {}", " # nothing yet"])
def test_a_section_with_everything_commented_out_is_no_section(write, section, empty):
    config = load(SECTIONS, path=write(f"{section}:{empty}\n"), env={})
    assert all(line.endswith("  # default") for line in describe(config))


def test_sections_of_other_services_are_left_unread(write):
    load(SECTIONS, path=write("decider: {nonsense: [1]}"), env={"TRIMTAB_DECIDER__POLICY": "static"})


def test_a_merge_key_is_overridden_and_not_a_duplicate(write):
    path = write("bus: &base {url: 'nats://a:1', user: x}\nhttp: {base_port: 9500}\n")
    assert load(SECTIONS, path=path, env={}).bus.user == "x"
    path = write("classes:\n  a: &a {kind: throughput, importance: 0.5}\n  b: {<<: *a, importance: 0.25}\n")
    classes = load(SECTIONS, path=path, env={}).shared.classes
    assert (classes["b"].kind, classes["b"].importance) == ("throughput", 0.25)


# ---- texts stay texts ----


@pytest.mark.parametrize(
    "secret", ["12345", "null", "no", "p #1", "a: b", "[1", "*x", "0x1F", "2026-01-05", "  ", "'q'"]
)
def test_a_password_is_taken_letter_by_letter(secret):
    assert load({}, env={"TRIMTAB_BUS__PASSWORD": secret}).bus.password == secret
    assert load({}, env={}, overrides=[("bus.password", secret, "--set")]).bus.password == secret


def test_a_node_called_by_a_number_is_still_a_name():
    assert load({}, env={"TRIMTAB_NODE": "10"}).shared.node == "10"


@pytest.mark.parametrize("null", ["null", "~"])
def test_a_text_that_may_be_unset_can_be_unset(write, null):
    path = write("host: {pods_root: kubepods}")
    assert load({}, path=path, env={"TRIMTAB_HOST__PODS_ROOT": null}).host.pods_root is None


def test_lists_and_booleans_are_read_as_yaml():
    config = load(
        SECTIONS,
        env={"TRIMTAB_COLLECTOR__CLASS_LABELS": "[a, b]", "TRIMTAB_HOST__SIMULATED": "true"},
        overrides=[("classes.batch.label_values", "[x]", "--set")],
    )
    assert config.section("collector", CollectorConfig).class_labels == ("a", "b")
    assert config.host.simulated is True
    assert config.shared.classes["batch"].label_values == ("x",)


# ---- variables that are not ours ----


@pytest.mark.parametrize(
    "name",
    [
        "TRIMTAB_SERVICE_HOST",
        "TRIMTAB_SERVICE_PORT",
        "TRIMTAB_SERVICE_PORT_HTTP_METRICS",
        "TRIMTAB_PORT",
        "TRIMTAB_PORT_4222_TCP",
        "TRIMTAB_PORT_4222_TCP_ADDR",
        "TRIMTAB_PORT_4222_TCP_PORT",
        "TRIMTAB_PORT_4222_TCP_PROTO",
        "TRIMTAB_PORT_53_UDP",
        "TRIMTAB_NATS_SERVICE_HOST",
        "TRIMTAB_NATS_PORT_4222_TCP_ADDR",
        "TRIMTAB_LIFELINE_FD",
        "TRIMTAB_CONFIG",
        "trimtab_mode",
        "NATS_URL",
    ],
)
def test_service_links_of_kubernetes_are_neither_settings_nor_worth_a_word(name):
    config = load(SECTIONS, env={name: "tcp://10.96.0.1:4222"})
    assert config == load(SECTIONS, env={})


def test_a_setting_that_ends_like_a_service_link_is_still_a_setting():
    assert load(SECTIONS, env={"TRIMTAB_HTTP__BASE_PORT": "9000"}).http.base_port == 9000


@pytest.mark.parametrize(
    "name", ["TRIMTAB_LOP__TICK_SECONDS", "TRIMTAB_LOOP__TICK", "TRIMTAB_", "TRIMTAB_CLASSES__X__KIND"]
)
def test_a_mistyped_variable_is_told_and_ignored(name):
    config = load(SECTIONS, env={name: "2"})
    assert [warning.partition(":")[0] for warning in config.warnings] == [name]
    assert config.shared == Shared()


# ---- errors: one line, with where, what and the way out ----


def test_ms_03_c_an_unknown_field_names_itself_its_file_and_the_known_ones(write):
    path = write("weights: {maxx_weight: 300}")
    assert complaint(path=path) == (
        f"{path}: weights.maxx_weight: unknown field; "
        f"known are min_weight, max_weight, max_step_ratio, max_changes_per_minute"
    )


def test_ms_03_c_every_section_forbids_unknown_fields():
    def sections(kind):
        return [kind, *(deeper for sub in kind.__subclasses__() for deeper in sections(sub))]

    kinds = [kind for kind in sections(Section) if kind.__module__.split(".")[0] in ("schemas", "runtime", "services")]
    assert len(kinds) >= 10
    assert all(kind.__struct_config__.forbid_unknown_fields for kind in kinds)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("weights: {min_weight: 0}", "weights.min_weight: expected `int` >= 1"),
        ("weights: {max_weight: 10001}", "weights.max_weight: expected `int` <= 10000"),
        ("weights: {min_weight: 50.0}", "weights.min_weight: expected `int`, got `float`"),
        ("weights: {min_weight: 10000}", "weights.min_weight: 10000 is not below weights.max_weight 10000; lower"),
        ("loop: {tick_seconds: .nan}", "loop.tick_seconds: expected `float` > 0.0"),
        ("loop: {tick_seconds: .inf}", "loop.tick_seconds: expected `float` <= 86400.0"),
        ("loop: 5", "loop: expected `object`, got `int`"),
        (
            "classes: {web: {}}",
            "classes.web: has no objective; set classes.web.objective_p99_seconds (seconds) or classes.web.objective_pressure",
        ),
        (
            "classes: {web: {objectiv: 1}}",
            "classes.web.objectiv: unknown field; known are kind, label_values, objective",
        ),
        ("classes: {a: {kind: throughput}, b: {importance: 2}}", "classes.b.importance: expected `float` <= 1.0"),
        ("classes: {a: {label_values: [x, 1]}}", "classes.a.label_values.1: expected `str`, got `int`"),
        (
            "classes: {1: {kind: throughput}}",
            "classes: a key is not a text: expected `str`, got `int`; put it in quotes",
        ),
        ("classes:", "classes: expected `object`, got `null`"),
        ("classes: {}", "classes: none are defined; leave the section out for the default three"),
        ("mode: reckless", "mode: invalid enum value 'reckless'"),
        ("node: Node_1", "node: node name 'Node_1' is not a DNS-1123 subdomain"),
        ("node: 2026-01-05", "node: expected `str`, got `date`"),
        ("version: 7", "version: 7 is not supported; this release reads version 1"),
        ("host: {pods_root: ../x}", "host.pods_root: '../x' must be a path below the cgroup root"),
        ("http: {base_port: 65531}", "http.base_port: expected `int` <= 65530"),
        ("guard: {apply_within_seconds: 5}", "guard.apply_within_seconds: 5.0 + loop.decision_budget_seconds"),
        ("collectr: {}", "unknown field 'collectr'; known are actuator, bus, classes, collector, decider"),
        ("mode: active\nmode: shadow", "not valid YAML: duplicate key 'mode'"),
        ("loop:\n  tick_seconds: 5\n  tick_seconds: 6", "not valid YAML: duplicate key 'tick_seconds'"),
        ("- a", "must be a mapping of sections"),
        ("7: a", "must be a mapping of sections"),
        ("a: [", "not valid YAML"),
        ("node: !!python/object:os.system {}", "not valid YAML: could not determine a constructor"),
        ("node: 2026-13-45", "a value does not fit its type (month must be in 1..12); put texts in quotes"),
        ("[" * 5000, "nested too deeply"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_an_error_in_a_file_names_file_field_and_fault(write, text, expected):
    path = write(text)
    assert complaint(path=path).startswith(f"{path}: {expected}")


def test_the_offending_profile_is_named_although_two_levels_deep(write):
    path = write("decider: {profiles: {good: {batch: 100}, bad: {latency-critical: 100, batch: 0}}}")
    assert complaint({"decider": DeciderConfig}, path=path) == (
        f"{path}: decider.profiles.bad.batch: expected `int` >= 1"
    )


def test_an_error_from_a_variable_names_the_variable():
    assert complaint(env={"TRIMTAB_WEIGHTS__MAX_WEIGHT": "10001"}) == (
        "env TRIMTAB_WEIGHTS__MAX_WEIGHT: weights.max_weight: expected `int` <= 10000"
    )


def test_an_error_from_a_flag_names_the_flag():
    assert complaint(overrides=[("weights.maxx", "3", "--set")]).startswith("flag --set: weights.maxx: unknown field;")


@pytest.mark.parametrize("dotted", ["lop.tick_seconds", "", ".", "loop.", "a..b", "loop..x"])
def test_a_flag_for_no_setting_is_an_error(dotted):
    text = complaint(overrides=[(dotted, "3", "--set")])
    assert text.startswith(f"flag --set: {dotted!r}: no such setting; write --set section.field=value")


def test_a_flag_below_a_plain_value_is_an_error(write):
    path = write("loop: {tick_seconds: 6}")
    assert complaint(path=path, overrides=[("loop.tick_seconds.x", "3", "--set")]) == (
        "flag --set: loop.tick_seconds.x: 'tick_seconds' is a value, not a section"
    )


def test_a_variable_that_is_no_yaml_names_the_variable_and_the_setting():
    assert complaint(env={"TRIMTAB_CLASSES": "[1"}).startswith("env TRIMTAB_CLASSES: classes: not valid YAML:")


def test_a_contradiction_names_the_variable_that_made_it_not_the_file(write):
    path = write("mode: active")
    text = complaint(path=path, env={"TRIMTAB_WEIGHTS__MIN_WEIGHT": "10000"})
    assert text.startswith("env TRIMTAB_WEIGHTS__MIN_WEIGHT: weights.min_weight: 10000 is not below")


def test_a_contradiction_with_a_default_names_what_is_not_a_default():
    text = complaint(env={"TRIMTAB_LOOP__SETTLE_SECONDS": "8"})
    assert text.startswith(
        "env TRIMTAB_LOOP__SETTLE_SECONDS: loop.tick_seconds: 5.0 must be more than settle_seconds 8"
    )


def test_a_class_without_objective_names_the_flag_that_made_it():
    text = complaint(overrides=[("classes.web.importance", "1", "--set")])
    assert text.startswith("flag --set: classes.web: has no objective")


def test_an_error_quotes_no_line_breaks(write):
    assert "classes: 'a\\nb' is not a name" in complaint(path=write('classes: {"a\\nb": {kind: throughput}}'))
    assert "mode: invalid enum value 'a\\nb\\n'" in complaint(path=write("mode: |\n  a\n  b\n"))


def test_text_that_is_not_unicode_is_an_error_not_a_crash_later(write):
    assert "host" in complaint(path=write('host: {cgroup_root: "\\ud800"}'))


def test_a_file_that_cannot_be_read_says_why_and_what_to_check(tmp_path):
    missing = tmp_path / "no.yaml"
    assert complaint(path=str(missing)) == (
        f"{missing}: cannot be read: No such file or directory; check --config and the file's permissions"
    )
    assert complaint(path=str(tmp_path)).startswith(f"{tmp_path}: cannot be read: Is a directory")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"\xff\xfe\x00")
    assert complaint(path=str(binary)).startswith(f"{binary}: cannot be read: not UTF-8 text")


def test_a_services_own_check_is_a_config_error_too():
    class Odd(Section, frozen=True, kw_only=True):
        size: int = 1

        def check(self, shared: Shared) -> None:
            raise SettingsError(f"odd.size: {self.size} is odd; make it even")

    assert complaint({"odd": Odd}, overrides=[("odd.size", "3", "--set")]) == (
        "flag --set: odd.size: 3 is odd; make it even"
    )


def test_config_errors_end_the_process_with_code_2():
    assert ConfigError.exit_code == 2


# ---- what --print-config shows ----


def test_secrets_are_masked_wherever_they_come_from(write):
    path = write("bus: {url: 'nats://me:hunter2@h:4222,nats://me:hunter2@i:4222', password: hunter2}")
    config = load(SECTIONS, path=path, env={"TRIMTAB_BUS__TOKEN": "hunter2"})
    text = "\n".join(describe(config))
    assert "hunter2" not in text
    assert shown(config, "bus.password") == f'"***"  # file {path}'
    assert shown(config, "bus.token") == '"***"  # env TRIMTAB_BUS__TOKEN'
    assert shown(config, "bus.url") == f'"nats://***@h:4222,nats://***@i:4222"  # file {path}'
    assert config.bus.password == "hunter2"


def test_a_url_without_scheme_is_masked_too():
    assert "hunter2" not in "\n".join(describe(load({}, env={"TRIMTAB_BUS__URL": "me:hunter2@h:4222"})))


def test_an_unset_secret_is_shown_as_unset():
    assert shown(load({}, env={}), "bus.password") == "null  # default"


def test_every_setting_of_every_section_is_shown_once():
    lines = describe(load(SECTIONS, env={}))
    names = [line.partition(": ")[0] for line in lines]
    assert len(set(names)) == len(names)
    assert {
        "mode",
        "loop.tick_seconds",
        "classes.batch.kind",
        "bus.url",
        "http.base_port",
        "guard.min_requests",
    } <= set(names)
