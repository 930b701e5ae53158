"""The permissions as data, and what no process may load."""

import ast
from pathlib import Path

import pytest

from runtime.access import ADMIN, PEOPLE, ROLES, access_of
from schemas.subjects import SERVICES

ROOT = Path(__file__).parents[3]
TURNS_BYTES_INTO_CODE = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib", "_pickle", "jsonpickle"}


def test_on_one_node_a_service_names_that_node_only():
    for role in SERVICES:
        access = access_of(role, "ip-10-0-0-7.eu")
        said = [subject for subject in access.publish if not subject.startswith("$")]
        heard = [subject for subject in access.subscribe if not subject.startswith("_INBOX")]
        assert said
        assert heard
        assert all("ip-10-0-0-7_eu" in subject.split(".") for subject in said + heard)
        assert not any("*" in subject or ">" in subject for subject in said + heard)


def test_names_and_inboxes_tell_the_credentials_apart():
    every = [access_of(role, node) for role in ROLES for node in (None, "a", "a.b", "a-b")]
    assert len({access.name for access in every}) == len({access.inbox_prefix for access in every}) == len(every)
    assert access_of("guard").name == "guard"
    assert access_of("guard", "a.b").name == "guard_a_b"
    assert access_of("guard", "a.b").inbox_prefix == "_INBOX_guard_a_b"


def test_no_inbox_is_part_of_another():
    every = [access_of(role, node) for role in ROLES for node in (None, "a")]
    for access in every:
        inboxes = [subject for subject in access.subscribe if subject.startswith("_INBOX")]
        assert inboxes == [f"{access.inbox_prefix}.>"]


@pytest.mark.parametrize("role", [role for role in ROLES if role != ADMIN])
def test_only_the_admin_has_more_of_jetstream_than_calls_that_are_named(role):
    for subject in access_of(role, "n").publish:
        assert not subject.endswith(">") or subject == "$JS.ACK.TRIMTAB_AUDIT.trimtab-decider-n.>"
        assert not {"CREATE", "DELETE", "UPDATE", "PURGE"} & set(subject.split(".")[2:4]) or (
            (
                subject.startswith("$JS.API.CONSUMER.CREATE.")
                and subject.split(".")[5] == "*"
                and len(subject.split(".")) > 6
            )
            or (role, subject) == ("decider", "$JS.API.STREAM.PURGE.OBJ_trimtab-models")
        )


def test_nobody_may_make_a_consumer_of_what_it_says_but_the_guard_and_an_operator():
    for role in ROLES:
        access = access_of(role, "n")
        held = {subject.split(".*.")[1] for subject in access.publish if ".CONSUMER.CREATE." in subject}
        own = held & set(access.publish)
        assert own == {
            "guard": {"trimtab.v1.command.n", "trimtab.v1.verdict.n"},
            "operator": {"trimtab.v1.command.n"},
        }.get(role, set())


def test_nobody_may_make_a_consumer_of_models():
    for role in ROLES:
        calls = [subject for subject in access_of(role, "n").publish if "OBJ_" in subject]
        assert not any("CONSUMER.CREATE" in call or "MSG.NEXT" in call or "DIRECT" in call for call in calls)


def test_a_decider_of_one_node_writes_into_its_own_folder_of_models():
    written = [subject for subject in access_of("decider", "a.b").publish if subject.startswith("$O.")]
    assert written == ["$O.trimtab-models.C.a_b.*.*", "$O.trimtab-models.M.*"]


def test_nobody_has_a_part_in_replays():
    for role in ROLES:
        access = access_of(role)
        assert not any(subject.startswith("trimtabsim") for subject in access.publish + access.subscribe)


@pytest.mark.parametrize(
    ("role", "node"), [("god", None), ("guard", "UPPER"), ("guard", "a_b"), ("guard", "*"), ("guard", "")]
)
def test_what_is_no_role_or_no_node_is_refused(role, node):
    with pytest.raises(ValueError, match=r"role|DNS-1123"):
        access_of(role, node)


def test_people_work_on_all_nodes_unless_told_otherwise():
    assert [access_of(role).node for role in PEOPLE] == ["*", "*", "*"]


@pytest.mark.parametrize("folder", ["schemas", "hostfs", "runtime", "services", "cli"])
def test_nothing_of_ours_can_turn_received_bytes_into_code(folder):
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files
    for path in files:
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(alias.name for alias in node.names)]
            elif isinstance(node, ast.Attribute):
                names = [node.attr] if node.attr in ("unsafe_load", "full_load", "UnsafeLoader", "FullLoader") else []
                assert not names, f"{path}:{node.lineno}"
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), f"{path}:{node.lineno}"
            elif isinstance(node, ast.keyword):
                assert node.arg != "allow_pickle", f"{path}:{node.lineno}"
            assert not TURNS_BYTES_INTO_CODE & {name.partition(".")[0] for name in names}, f"{path}:{node.lineno}"
