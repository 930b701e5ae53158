"""What the doctor asks of which service's container."""

import json

import pytest

from cli import doctor
from cli.doctor_place import own_service, service_of
from runtime.flags import FlagParser
from schemas.subjects import SERVICES


def command(tmp_path, *words):
    (tmp_path / "1").mkdir(exist_ok=True)
    (tmp_path / "1/cmdline").write_bytes(b"".join(word.encode() + b"\0" for word in words))
    return own_service(str(tmp_path))


@pytest.mark.parametrize("service", SERVICES)
def test_process_1_of_a_container_says_whose_it_is(service, tmp_path):
    assert command(tmp_path, "python", "-m", f"services.{service}") == service
    assert command(tmp_path, "/usr/bin/python3", "-I", "-m", f"services.{service}", "--config", "x") == service


@pytest.mark.parametrize(
    "words",
    [
        ("/sbin/init",),
        ("python", "-m", "services.other"),
        ("python", "-m", "guard"),
        ("sh", "-c", "services.guard"),
        (),
    ],
)
def test_on_a_machine_process_1_is_no_service(words, tmp_path):
    assert command(tmp_path, *words) is None


def test_only_the_first_module_of_a_command_line_counts():
    assert service_of(["trimtab", "-m", "cli", "-m", "services.guard"]) is None


def test_without_a_readable_process_1_it_is_a_machine(tmp_path):
    assert own_service(str(tmp_path)) is None


# ---- the verb ----


def examined(tmp_path, capsys, *flags, bus='url: "nats://127.0.0.1:1", connect_timeout_seconds: 0.2', host=None):
    """The exit code, and the checks by name."""
    root = host or f"{{cgroup_root: {tmp_path / 'nothing'}, pods_root: kubepods}}"
    (tmp_path / "trimtab.yaml").write_text(f"host: {root}\nbus: {{{bus}}}\n")
    parser = FlagParser("trimtab doctor")
    doctor.add_flags(parser)
    args = parser.parse_args(["--config", str(tmp_path / "trimtab.yaml"), "-o", "json", *flags])
    code = args.run(args)
    return code, {check["name"]: check for check in json.loads(capsys.readouterr().out)}


def statuses(checks):
    return {name: check["status"] for name, check in checks.items()}


@pytest.fixture
def no_bus_is_said(monkeypatch):
    """The bus answers, and has no state."""

    async def answers(*_):
        return doctor.Check("bus", "ok", "NATS answers"), "no state of n on the bus"

    monkeypatch.setattr(doctor, "_bus", answers)


@pytest.mark.parametrize("service", ["decider", "guard", "rewarder"])
def test_who_needs_no_groups_is_not_told_that_there_are_none(service, tmp_path, capsys, no_bus_is_said):
    code, checks = examined(tmp_path, capsys, "--for", service)
    assert code == 0
    assert checks["cgroup"] == {
        "name": "cgroup",
        "status": "skip",
        "found": f"the {service} has no part in the groups",
        "remedy": "run `trimtab doctor` in the actuator's or the collector's container",
    }
    assert statuses(checks)["collector"] == "note"  # what the bus knows of it is said here, too
    assert "nats-server" not in checks  # `up --embedded` is for machines


@pytest.mark.parametrize("service", [None, "collector", "actuator"])
def test_who_needs_groups_is_told(service, tmp_path, capsys, no_bus_is_said):
    code, checks = examined(tmp_path, capsys, *(["--for", service] if service else []))
    assert (code, statuses(checks)["cgroup"]) == (1, "bad")


@pytest.fixture
def read_only(tmp_path, monkeypatch):
    """A simulated node that this user may read and not write, as in the collector's container."""
    (tmp_path / "node/kubepods").mkdir(parents=True)
    (tmp_path / "node/cgroup.controllers").write_text("cpu\n")
    monkeypatch.setattr("cli.doctor.os.access", lambda *_, **__: False)
    return f"{{cgroup_root: {tmp_path / 'node'}, pods_root: kubepods, simulated: true}}"


@pytest.mark.parametrize(
    ("service", "code", "status"), [("collector", 0, "skip"), ("actuator", 1, "bad"), (None, 1, "bad")]
)
def test_only_the_actuator_s_tree_must_be_writable(
    service, code, status, tmp_path, capsys, read_only, no_bus_is_said, monkeypatch
):
    monkeypatch.setattr(doctor, "own_service", lambda: service)
    ended, checks = examined(tmp_path, capsys, host=read_only)
    assert (ended, statuses(checks)["writable"]) == (code, status)
    if status == "skip":
        assert (checks["writable"]["found"], checks["writable"]["remedy"]) == (
            "the collector only reads",
            "run `trimtab doctor` in the actuator's container",
        )


def test_a_service_s_container_without_a_bus_steers_nothing_and_a_machine_may_do_without(tmp_path, capsys):
    code, checks = examined(tmp_path, capsys, "--for", "guard")
    assert (code, statuses(checks)["bus"]) == (1, "bad")
    _, checks = examined(tmp_path, capsys)
    assert statuses(checks)["bus"] == "note"
    assert "or `trimtab up --embedded`" in checks["bus"]["remedy"]


def test_a_container_that_has_its_service_s_seed_alone_is_well_and_told_how_to_ask(tmp_path, capsys):
    bus = f'url: "nats://127.0.0.1:1", connect_timeout_seconds: 0.2, nkey_seed_file: "{tmp_path}/{{service}}.seed"'
    code, checks = examined(tmp_path, capsys, "--for", "guard", bus=bus)
    assert (code, statuses(checks)["bus"]) == (0, "skip")
    assert checks["bus"]["found"] == f"bus.nkey_seed_file: {tmp_path}/operator.seed: No such file or directory"
    assert "TRIMTAB_BUS__NKEY_SEED_FILE=/dev/stdin" in checks["bus"]["remedy"]
