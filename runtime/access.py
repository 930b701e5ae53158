"""Who may say and hear what on the bus: the permissions of every credential, as data (docs/access.md).

JetStream delivers what is stored to whatever subject a request names as its reply, whoever may publish there. So a
consumer is made of as few kinds as can be, and of messages that its maker may write himself only by the guard and an
operator; and services take nothing from a stream on a live subject (`NatsBus.subscribe`). What a consumer may hold is
part of the subject of the request that makes it: `$JS.API.CONSUMER.CREATE.<stream>.<name>.<filter>`.
"""

from dataclasses import dataclass
from typing import Final

from runtime.streams import AUDIT, MODELS, ORDERS, STATE
from schemas.subjects import REPLAY_ROOT, ROOT, SERVICES, node_token

EVERY_NODE: Final = "*"
MODE_BUCKET: Final = "trimtab-mode"
OPERATOR, AUDITOR, ADMIN = PEOPLE = ("operator", "auditor", "admin")
ROLES: Final = (*SERVICES, *PEOPLE)

_API: Final = "$JS.API"
_MODE_STREAM: Final = f"KV_{MODE_BUCKET}"
_MODEL_STREAM: Final = f"OBJ_{MODELS}"
_SAYS: Final = {
    "collector": ("state",),
    "decider": ("action",),
    "guard": ("verdict", "command"),
    "actuator": ("actuation",),
    "rewarder": ("reward",),
}
_HEARS: Final = {
    "collector": ("actuation",),
    "decider": ("state", "verdict", "command"),
    "guard": ("state", "action", "actuation", "command"),
    "actuator": ("state", "verdict", "command"),
    "rewarder": ("state", "action", "verdict", "actuation"),
}


@dataclass(frozen=True)
class Access:
    """One credential: its name, its private inbox, and the subjects that it may publish and subscribe to."""

    role: str
    node: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its files: the role, and the node where it is for one."""
        return self.role if self.node == EVERY_NODE else f"{self.role}_{self.node}"

    @property
    def inbox_prefix(self) -> str:
        """Where its answers arrive: what `bus.inbox_prefix` must be."""
        return _inbox_prefix(self.role, self.node)


def access_of(role: str, node: str | None = None) -> Access:
    """What a role may do on one node, or on all. Raises ValueError for an unknown role or what is no node's name."""
    token = EVERY_NODE if node is None else node_token(node)
    if role in SERVICES:
        publish, subscribe = _service(role, token)
    elif role == OPERATOR:
        publish, subscribe = _operator(token)
    elif role == AUDITOR:
        publish = (
            *_gets(STATE, AUDIT, ORDERS, _MODE_STREAM, _MODEL_STREAM),
            *_reports(STATE, AUDIT, ORDERS, _MODE_STREAM, _MODEL_STREAM),
        )
        subscribe = _hears_all(token)
    elif role == ADMIN:
        publish, subscribe = (f"{_API}.>",), ()
    else:
        raise ValueError(f"unknown role {role!r}, known are {', '.join(ROLES)}")
    return Access(role, token, publish, (*subscribe, f"{_inbox_prefix(role, token)}.>"))


def _inbox_prefix(role: str, token: str) -> str:
    return f"_INBOX_{role}" if token == EVERY_NODE else f"_INBOX_{role}_{token}"


def _service(role: str, node: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    publish = [f"{ROOT}.{kind}.{node}" for kind in _SAYS[role]] + [f"{ROOT}.heartbeat.{role}.{node}"]
    subscribe = [f"{ROOT}.{kind}.{node}" for kind in _HEARS[role]]
    collect = f"{ROOT}.rpc.collector.{node}.collect"
    if role == "collector":
        subscribe.append(collect)
    elif role == "decider":
        publish += _consumes(AUDIT, f"{ROOT}.reward.{node}")
        publish.append(f"$JS.ACK.{AUDIT}.{'*' if node == EVERY_NODE else f'trimtab-decider-{node}'}.>")
        publish += _consumes(ORDERS, f"{ROOT}.command.{node}")
        publish += _keeps_models(node)
    elif role == "guard":
        publish += _consumes(AUDIT, f"{ROOT}.verdict.{node}")
        publish += _consumes(ORDERS, f"{ROOT}.command.{node}")
        publish.append(f"{_API}.STREAM.MSG.GET.{ORDERS}")  # when the oldest order was stored
        publish += _consumes(_MODE_STREAM, f"$KV.{MODE_BUCKET}.{node}")
    elif role == "actuator":
        subscribe.append(f"{ROOT}.heartbeat.guard.{node}")
    elif role == "rewarder":
        publish.append(collect)
    return tuple(publish), tuple(subscribe)


def _operator(node: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    publish = (
        f"{ROOT}.command.{node}",
        f"$KV.{MODE_BUCKET}.{node}",
        _replays(node),
        *_gets(STATE, AUDIT, ORDERS, _MODE_STREAM, _MODEL_STREAM),
        *_consumes(ORDERS, f"{ROOT}.command.{node}"),
        *_consumes(AUDIT, f"{ROOT}.actuation.{node}"),
    )
    return tuple(dict.fromkeys(publish)), _hears_all(node)


def _hears_all(node: str) -> tuple[str, ...]:
    if node == EVERY_NODE:
        return (f"{ROOT}.>", _replays(node))
    return (_replays(node), f"{ROOT}.*.{node}", f"{ROOT}.heartbeat.*.{node}", f"{ROOT}.rpc.collector.{node}.collect")


def _replays(node: str) -> str:
    """What is published again: under a root of its own, which no service may hear."""
    return f"{REPLAY_ROOT}.*.*.{node}"


def _consumes(stream: str, *filters: str) -> tuple[str, ...]:
    """Makes consumers of these messages alone, and fetches from those whose name it knows."""
    return (
        f"{_API}.STREAM.INFO.{stream}",
        *(f"{_API}.CONSUMER.CREATE.{stream}.*.{subject}" for subject in filters),
        f"{_API}.CONSUMER.INFO.{stream}.*",
        f"{_API}.CONSUMER.MSG.NEXT.{stream}.*",
    )


def _keeps_models(node: str) -> tuple[str, ...]:
    """Puts and deletes models, and reads them: by no consumer, since it writes what they are made of."""
    return (
        f"$O.{MODELS}.C.{node}.*.*",
        f"$O.{MODELS}.M.*",
        *_gets(_MODEL_STREAM),
        f"{_API}.STREAM.PURGE.{_MODEL_STREAM}",
    )


def _gets(*streams: str) -> tuple[str, ...]:
    """Reads what is stored message by message: the answer wraps it, so that it can pass for nothing else."""
    return tuple(f"{_API}.{call}.{name}" for name in streams for call in ("STREAM.INFO", "STREAM.MSG.GET"))


def _reports(*streams: str) -> tuple[str, ...]:
    """Lists streams and consumers."""
    return (
        *(f"{_API}.{call}" for call in ("INFO", "STREAM.NAMES", "STREAM.LIST")),
        *(f"{_API}.CONSUMER.LIST.{name}" for name in streams),
        *(f"{_API}.CONSUMER.INFO.{name}.*" for name in streams),
    )
