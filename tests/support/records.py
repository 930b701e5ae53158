"""Records made by hand: messages as a recorder would have kept them, and cycles that the services' own cores made."""

from pathlib import Path

import msgspec

from cli.inputs import SECTIONS
from lab.record.items import AnyItem, Gap, Header, ModelCopy, Settings, Stored
from lab.record.settings import settings_of
from lab.record.writer import create_recording
from runtime.config import load
from schemas.codec import encode
from schemas.messages import Action, AnyMessage, Command, Known, State
from schemas.settings import Shared, settings_digest
from schemas.subjects import subject_of
from services.decider.config import DeciderConfig, PolicySettings
from services.decider.core.mind import Heard, Mind
from services.decider.core.model import MODEL_VERSION, Model, encode_model
from services.guard.config import GuardConfig
from services.guard.core.known import Stand, verdict_of
from services.rewarder.config import RewarderConfig
from services.rewarder.core.censor import Cycle
from services.rewarder.core.conclude import conclude
from tests.support import builders

SECOND_NS = 10**9
STREAMS = ("TRIMTAB_AUDIT", "TRIMTAB_ORDERS", "TRIMTAB_STATE")
DECIDER = DeciderConfig(seed=3, shadows={"thompson": PolicySettings(policy="thompson")})


def stream_of(message: AnyMessage) -> str:
    if isinstance(message, State):
        return "TRIMTAB_STATE"
    return "TRIMTAB_ORDERS" if isinstance(message, Command) else "TRIMTAB_AUDIT"


class Record:
    """Items in order; sequences count by stream. `lose` leaves some out, as a gap."""

    def __init__(self, *messages: AnyMessage) -> None:
        self.items: list[AnyItem] = []
        self._next = dict.fromkeys(STREAMS, 1)
        self.keep(*messages)

    def keep(self, *messages: AnyMessage) -> "Record":
        for message in messages:
            stream = stream_of(message)
            sequence = self._next[stream]
            self._next[stream] = sequence + 1
            self.items.append(
                Stored(
                    stream=stream,
                    sequence=sequence,
                    stored_ns=message.at,
                    subject=subject_of(message),
                    payload=encode(message),
                )
            )
        return self

    def lose(self, stream: str = "TRIMTAB_AUDIT", count: int = 1) -> "Record":
        first = self._next[stream]
        self._next[stream] = first + count
        self.items.append(Gap(stream=stream, first=first, last=first + count - 1, exact=True, reason="they had aged"))
        return self

    def spoil(self, message: AnyMessage, payload: bytes | None = None, subject: str | None = None) -> "Record":
        """Keeps a message with other bytes, or on another subject."""
        self.keep(message)
        last = self.items[-1]
        assert isinstance(last, Stored)
        self.items[-1] = Stored(
            stream=last.stream,
            sequence=last.sequence,
            stored_ns=last.stored_ns,
            subject=subject or last.subject,
            payload=last.payload if payload is None else payload,
        )
        return self

    def write(self, path: Path, header: Header | None = None) -> Path:
        with create_recording(path, header or header_of()) as writer:
            for item in self.items:
                writer.add(item)
        return path


def settings_recorded(decider: DeciderConfig = DECIDER) -> Settings:
    config = load(SECTIONS, env={})
    found = settings_of(config, builders.NODE)
    values = {**found.values, "decider": msgspec.to_builtins(decider)}
    return Settings(values=values, fingerprints={**found.fingerprints, "decider": settings_digest(Shared(), decider)})


def header_of(decider: DeciderConfig = DECIDER) -> Header:
    return Header(streams=STREAMS, settings=(settings_recorded(decider),))


def at_of(cycle: int, seconds: float = 0.0) -> int:
    return builders.START_NS + cycle * 5 * SECOND_NS + int(seconds * SECOND_NS)


class Loop:
    """Cycles of a node whose decider, guard and rewarder are the real cores: all that a replay needs is in them.

    Weights go where the guard lets them. The decider's run began with a stored model.
    """

    def __init__(self, decider: DeciderConfig = DECIDER, boot: str = builders.BOOT) -> None:
        self.decider = decider
        self.mind = Mind(decider, Shared(), decider.seed or 0)
        self.boot = boot
        self.weights = dict(builders.WEIGHTS)
        self.heard = Heard("active", None)
        self.digest = ""
        self.model = self.store("start")

    def store(self, why: str) -> ModelCopy:
        """The decider stores what it knows; decisions from here on name this model."""
        self.digest, raw = encode_model(
            Model(
                version=MODEL_VERSION,
                node=builders.NODE,
                run="run1",
                why=why,
                made_at=0,
                parent=self.digest or None,
                lessons=self.mind.lessons,
                settings=settings_digest(Shared(), self.decider),
                features_schema=self.mind.schema,
                trimtab="",
                python="",
                river="",
                prior="",
                mind=self.mind.save(),
            )
        )
        self.mind.began()
        return ModelCopy(digest=self.digest, payload=raw)

    def state(self, cycle: int, **fields) -> State:
        classes = {
            builders.CRITICAL: builders.class_state(weight=self.weights[builders.CRITICAL]),
            builders.BATCH: builders.batch_state(weight=self.weights[builders.BATCH]),
        }
        pods = (
            builders.pod("api", weight=self.weights[builders.CRITICAL]),
            builders.pod("job", builders.BATCH, self.weights[builders.BATCH]),
        )
        features = {"bias": 1.0, "node.contended": 1.0, "default.present": 0.0}
        for name in (builders.CRITICAL, builders.BATCH):
            features[f"{name}.present"] = 1.0
        features[f"{builders.CRITICAL}.weight_log"] = 0.5
        features[f"{builders.CRITICAL}.cpu_ratio"] = 0.2 + 0.01 * (cycle % 7)
        return builders.state(
            boot=self.boot, cycle=cycle, at=at_of(cycle), classes=classes, pods=pods, features=features, **fields
        )

    def cycle(self, cycle: int) -> list[AnyMessage]:
        """The messages of one whole cycle, in their order."""
        before = self.state(cycle)
        action = msgspec.structs.replace(
            self.mind.decide(before, self.heard),
            at=at_of(cycle, 0.1),
            run="run1",
            model=self.digest,
            settings=settings_digest(Shared(), self.decider),
        )
        guard = GuardConfig()
        known = Known(seen_age_seconds=0.01, answer_seconds=0.1, changes_left=8)
        verdict = msgspec.structs.replace(
            verdict_of(
                before,
                action,
                known,
                Stand("active", "closed"),
                config=guard,
                shared=Shared(),
                at=at_of(cycle, 0.2),
            ),
            settings=settings_digest(Shared(), guard),
        )
        self.heard = Heard("active", verdict.changes_left)
        actuation, after = self._act(action, verdict, before)
        reward = conclude(Cycle(before, action, verdict, actuation, after), None, RewarderConfig(), Shared())
        reward = msgspec.structs.replace(
            reward, at=at_of(cycle, 3.0), settings=settings_digest(Shared(), RewarderConfig())
        )
        self.mind.learn(reward)
        return [before, action, verdict, actuation, after, reward]

    def _act(self, action: Action, verdict, before: State):
        cycle = before.cycle
        names = {builders.CRITICAL: "api", builders.BATCH: "job"}
        if not verdict.execute:
            held = builders.actuation(
                boot=self.boot,
                cycle=cycle,
                at=at_of(cycle, 0.3),
                outcome="held",
                arm=action.arm,
                weights=None,
                writes=(),
                rule=verdict.rule,
            )
            return held, self.state(cycle, phase="after")
        moved = {**self.weights, **verdict.weights}
        writes = tuple(builders.write(pod, self.weights[name], moved[name]) for name, pod in names.items())
        self.weights = moved
        done = builders.actuation(
            boot=self.boot,
            cycle=cycle,
            at=at_of(cycle, 0.3),
            arm=action.arm,
            weights=verdict.weights,
            writes=writes,
        )
        return done, self.state(cycle, phase="after")

    def record(self, cycles: int) -> Record:
        """A whole record of that many cycles, from the first on."""
        record = Record()
        record.items.append(self.model)
        for number in range(1, cycles + 1):
            record.keep(*self.cycle(number))
        return record
