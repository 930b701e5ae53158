"""Owns the arena as a Gymnasium environment, `trimtab/NodeWeight-v0`, registered when this module is imported."""

from typing import TYPE_CHECKING, Any, Final

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from msgspec import structs

from lab.arena.scenario import QUEUES, Queue, Scenario
from lab.arena.scenarios import named
from lab.arena.sim_world import SimWorld, shared_settings
from schemas.features import feature_names
from services.decider.core.arms import build_arms, nearest_profile
from services.decider.core.mask import mask
from services.rewarder.config import RewarderConfig
from services.rewarder.core.reward import RewardWeights, reward

if TYPE_CHECKING:
    from schemas.messages import State
    from services.decider.core.policy import Arm

ENV_ID: Final = "trimtab/NodeWeight-v0"
"""Its version rises with whatever changes what an action leads to."""

_OPTIONS: Final = frozenset({"scenario", "queue"})

_MOST_SECONDS: Final = 3600.0
"""Of a cycle."""

Observation = npt.NDArray[np.float32]


class NodeWeight(gymnasium.Env[Observation, np.int64]):
    """A node whose pods share CPUs by weight; every cycle one profile of class weights is chosen.

    ## Description
    Services get open-loop requests that follow a scenario's curves, batch pods take what CPU they can get, and all are
    siblings under weighted max-min sharing (lab/arena/node.py). It is the loop that Trimtab runs, without its guard: a
    cycle begins with a look, the action is put in force, a second look follows after the settle time.

    ## Action space
    `Discrete(n)`: the profiles of class weights that Trimtab's decider learns for the default classes, in its order.
    `info["action_mask"]` (int8) has 1 for those that the decider would offer now. It advises: others may be played.

    ## Observation space
    `Box(-1, 1, (m,), float32)`: the features of docs/features.md for the default classes, in their order.

    ## Rewards
    What Trimtab's rewarder makes of the second look with its default settings, in [-1, 1]. `info["reward_terms"]` has
    its terms before their weights, `info["score"]` the score of lab/arena/score.py for the whole cycle.

    ## Starting state
    An idle node with the first weights that the kubelet gives. The seed decides all requests to come, whatever the
    actions. `reset(options={"scenario": ..., "queue": ...})` plays another scenario, or the same one with the other
    queue, from then on; a Scenario given without a queue keeps its own.

    ## Episode end
    Never terminated; truncated after `cycles` steps.

    ## Arguments
    `scenario`: a name, `gen:SEED` or a Scenario. `queue`: of a scenario given by name. `cycles`: length of an episode,
    `cycle_seconds`: length of a cycle. `render_mode`: `ansi` for a line of text, or None.

    ## Versions
    - v0: the first.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi"], "render_fps": 1}  # noqa: RUF012 - as the base class has it

    def __init__(
        self,
        scenario: str | Scenario = "steady",
        *,
        queue: Queue = "bounded",
        cycles: int = 400,
        cycle_seconds: float = 5.0,
        render_mode: str | None = None,
    ) -> None:
        """Raises ValueError for a scenario, queue, length or render mode that does not exist."""
        if cycles < 1:
            raise ValueError("cycles: an episode has at least one")
        if not 0.0 < cycle_seconds <= _MOST_SECONDS:
            raise ValueError(
                f"cycle_seconds: {cycle_seconds:g} is out of range; give more than 0, up to {_MOST_SECONDS:g}"
            )
        _check_queue(queue)
        if render_mode not in (None, *self.metadata["render_modes"]):
            raise ValueError(f"render_mode {render_mode!r}; known: ansi")
        self.render_mode = render_mode
        self._queue: Queue = queue
        self._scenario = _scenario_of(scenario, queue)
        self._cycles = cycles
        self._cycle_seconds = cycle_seconds
        shared = shared_settings(self._scenario, cycle_seconds)
        self._names = feature_names(tuple(shared.classes))
        self._arms = tuple(arm for arm in build_arms(shared, {}) if arm.weights is not None)
        terms = RewarderConfig()
        self._terms = RewardWeights(
            terms.violation_weight, terms.severity_weight, terms.throughput_weight, terms.oscillation_weight
        )
        self.action_space = spaces.Discrete(len(self._arms))
        self.observation_space = spaces.Box(-1.0, 1.0, (len(self._names),), np.float32)
        self._world: SimWorld | None = None
        self._before: State | None = None
        self._in_force: Arm | None = None
        self._taken = 0
        self._line = "not started"

    @property
    def arms(self) -> tuple[str, ...]:
        """The names of the actions, in order."""
        return tuple(arm.name for arm in self._arms)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """A node at its first moment. ValueError for an option, scenario or queue that does not exist; then nothing has
        changed.
        """
        self._choose(options or {})
        super().reset(seed=seed)
        node_seed = int(self.np_random.integers(2**31))
        self._world = SimWorld(self._scenario, node_seed, cycle_seconds=self._cycle_seconds)
        self._before = self._world.before()
        self._taken = 0
        self._line = f"{self._scenario.name}: start"
        return self._observation(), {"action_mask": self._mask(), "reward_terms": {}, "score": 0.0}

    def _choose(self, options: dict[str, Any]) -> None:
        """Another scenario, another queue, or both."""
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise ValueError(f"options: {unknown[0]!r} is not known; known: {', '.join(sorted(_OPTIONS))}")
        queue, scenario = options.get("queue", self._queue), self._scenario
        _check_queue(queue)
        if "scenario" in options:
            scenario = _scenario_of(options["scenario"], queue)
        if "queue" in options:
            scenario = structs.replace(scenario, queue=queue)
        self._queue, self._scenario = queue, scenario

    def step(self, action: np.int64) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        """Plays one cycle. ResetNeeded before the first reset, ValueError for what is no action."""
        world, before = self._world, self._before
        if world is None or before is None:
            raise gymnasium.error.ResetNeeded("call reset() before step()")
        if not self.action_space.contains(action):
            last = len(self._arms) - 1
            raise ValueError(f"action {action!r:.40}: give a whole number from 0 to {last}, see the names in `arms`")
        arm = self._arms[int(action)]
        assert arm.weights is not None
        moved_to = None if arm is self._in_force else dict(arm.weights)
        if moved_to is not None:
            world.apply(moved_to, arm.name)
        after = world.after()
        outcome = world.finish()
        worth = reward(before, after, moved_to, world.shared.classes, self._terms)
        self._before = world.before()
        self._taken += 1
        told = f"{arm.name}, reward {worth.value:+.3f}, score {outcome.score:+.3f}"
        self._line = f"{self._scenario.name} cycle {self._taken}: {told}"
        shown = {"action_mask": self._mask(), "reward_terms": dict(worth.terms), "score": outcome.score}
        return self._observation(), worth.value, False, self._taken >= self._cycles, shown

    def render(self) -> str | None:
        """The last cycle in one line; None without a render mode."""
        return self._line if self.render_mode == "ansi" else None

    def _observation(self) -> Observation:
        assert self._before is not None
        seen = self._before.features
        return np.array([seen[name] for name in self._names], np.float32)

    def _mask(self) -> npt.NDArray[np.int8]:
        """What the decider would offer; the nearest profile where that is only to hold weights that are no profile.

        Remembers which profile is in force, if any.
        """
        world, before = self._world, self._before
        assert world is not None
        assert before is not None
        weights = world.class_weights()
        allowed = mask(
            self._arms, weights, before.classes, settings=world.shared.classes, limits=world.shared.weights
        ).allowed
        self._in_force = allowed[0] if allowed[0] in self._arms else None
        offered = [arm for arm in allowed if arm in self._arms]
        names = {arm.name for arm in offered or [nearest_profile(weights, self._arms, world.shared.weights)]}
        return np.array([arm.name in names for arm in self._arms], np.int8)


def _scenario_of(scenario: str | Scenario, queue: Queue) -> Scenario:
    if isinstance(scenario, Scenario):
        return scenario
    if isinstance(scenario, str):
        return named(scenario, queue)
    raise ValueError(f"scenario {scenario!r:.40}: give a name, gen:SEED or a Scenario")


def _check_queue(queue: str) -> None:
    if queue not in QUEUES:
        raise ValueError(f"queue {queue!r:.40}; known: {', '.join(QUEUES)}")


gymnasium.register(ENV_ID, entry_point="lab.arena.env:NodeWeight")
