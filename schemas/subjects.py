"""The subjects of the bus and the id of every message (docs/subjects.md).

`trimtab.v1.<kind>.<node>`; `trimtab.v1.heartbeat.<service>.<node>`; `trimtab.v1.rpc.<service>.<node>.<verb>`.
What is replayed is published elsewhere: `trimtabsim.<run>.<kind>.<node>`, which no service hears.
In the node token `.` becomes `_`: node names are DNS names and cannot contain `_`, so the mapping is reversible.
"""

import functools
import re
from typing import Final

from schemas.messages import Actuation, AnyMessage, CollectRequest, Command, Heartbeat, State

ROOT: Final = "trimtab.v1"
REPLAY_ROOT: Final = "trimtabsim"
KINDS: Final = ("state", "action", "verdict", "actuation", "reward", "command")
SERVICES: Final = ("collector", "decider", "guard", "actuator", "rewarder")

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_RUN = re.compile(r"[A-Za-z0-9][-A-Za-z0-9_]{0,62}")
_NODE = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")


def node_token(node: str) -> str:
    """The node's name as one subject token. Raises ValueError for what is not a DNS-1123 subdomain."""
    if not _NODE.fullmatch(node):
        raise ValueError(f"node name {node!r} is not a DNS-1123 subdomain (lower-case letters, digits, '-' and '.')")
    return node.replace(".", "_")


def node_name(token: str) -> str:
    """The node that a subject token stands for: the inverse of `node_token`."""
    return token.replace("_", ".")


def kind_of(message: AnyMessage) -> str:
    """The message's kind: the tag of its type."""
    tag = message.__struct_config__.tag
    assert isinstance(tag, str)
    return tag


@functools.lru_cache(maxsize=1024)
def subject(kind: str, node: str) -> str:
    """The subject of one kind of loop message for one node."""
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}, known are {', '.join(KINDS)}")
    return f"{ROOT}.{kind}.{node_token(node)}"


def heartbeat_subject(service: str, node: str) -> str:
    """The heartbeat subject of one service on one node; `*` stands for every service."""
    return f"{ROOT}.heartbeat.{service}.{node_token(node)}"


def rpc_subject(service: str, node: str, verb: str) -> str:
    """The subject on which `service` takes requests for `node`."""
    return f"{ROOT}.rpc.{service}.{node_token(node)}.{verb}"


def subject_of(message: AnyMessage) -> str:
    """The subject that a message belongs on."""
    if isinstance(message, Heartbeat):
        return heartbeat_subject(message.service, message.node)
    if isinstance(message, CollectRequest):
        return rpc_subject("collector", message.node, "collect")
    return subject(kind_of(message), message.node)


def replay_subject(run: str, message: AnyMessage) -> str:
    """The subject on which a recorded message is published again, in a replay of that name. Raises ValueError for what
    is no name, and for a message that is not of a loop.
    """
    kind = kind_of(message)
    if kind not in KINDS:
        raise ValueError(f"kind {kind!r} is not replayed; {', '.join(KINDS)} are")
    return f"{REPLAY_ROOT}.{run_token(run)}.{kind}.{node_token(message.node)}"


def run_token(run: str) -> str:
    """The name of a replay as one subject token. Raises ValueError for what cannot be one."""
    if not _RUN.fullmatch(run):
        raise ValueError(f"{run!r} is no name for a replay; use up to 63 letters, digits, '-' and '_'")
    return run


def message_id(message: AnyMessage) -> str:
    """The deterministic `Nats-Msg-Id`: `<node>.<boot>.<cycle>.<kind>[.<phase>]`.

    A second actuation of a cycle (its rollback or a restore) and a command carry what they are as phase, so that the
    stream's duplicate window swallows a repeated send and nothing else.
    """
    base = f"{node_token(message.node)}.{message.boot}.{message.cycle}.{kind_of(message)}"
    if isinstance(message, State):
        return f"{base}.{message.phase}"
    if isinstance(message, Actuation) and message.outcome in ("rolled_back", "restored"):
        return f"{base}.{message.outcome}.{message.at}"
    if isinstance(message, Command):
        return f"{base}.{message.verb}.{message.id or message.at}"
    if isinstance(message, Heartbeat):
        return f"{base}.{message.service}.{message.at}"
    return base
