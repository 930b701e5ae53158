"""I1 to I6 for the real guard and actuator on a real journal, in any order of messages, crashes, refusals and time.

`tests/support/protocol.py` holds the world and what must be true of it; here is what may happen in it.
"""

import errno

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.builders import BATCH, CRITICAL, action, after, command, hold, with_p99
from tests.support.protocol import DEAD_MAN, STEERED, TICK, World

GROUPS = st.sampled_from(sorted(STEERED))
ENDS = st.sampled_from(["guard", "actuator"])
INDEX = st.integers(0, 30)
GOOD = st.fixed_dictionaries(
    {CRITICAL: st.sampled_from([100, 200, 316, 399, 1000]), BATCH: st.sampled_from([100, 300])}
)
WEIGHTS = st.one_of(
    GOOD,
    st.fixed_dictionaries(
        {CRITICAL: st.sampled_from([100, 316, 1000, 3162, 10_000]), BATCH: st.sampled_from([100, 316])}
    ),
    st.fixed_dictionaries({CRITICAL: st.integers(-5, 20_000), BATCH: st.integers(-5, 20_000)}),
    st.dictionaries(st.sampled_from([CRITICAL, BATCH, "default", "unheard-of"]), st.integers(1, 12_000), max_size=3),
)
THEIRS = st.sampled_from(["39\n", "41\n", "100\n", "777\n"])
SECONDS = st.sampled_from([0.01, 0.1, 0.4, 0.7, 1.5, 5.0, 9.8, 16.5, 35.0, 61.0])
SPELL = st.lists(st.tuples(GOOD, st.sampled_from([0.0, TICK, 14.0])), max_size=4)
POINTS = st.sampled_from(["send", "sent", "write", "written", "append", "appended", "rewrite", "rewritten"])


class Protocol(RuleBasedStateMachine):
    @initialize(spell=SPELL)
    def begin(self, spell):
        self.world = World()
        self._cycles(spell)

    def teardown(self):
        if not hasattr(self, "world"):
            return
        try:
            self.world.refusals.clear()
            if "actuator" in self.world.alive:
                self.world.terminate("actuator")
            else:
                self.world.start("actuator")
            self.world.check()
        finally:
            self.world.close()

    @invariant()
    def everything_holds(self):
        if hasattr(self, "world"):
            self.world.check()

    # ---- the loop as it should be ----

    @rule(weights=GOOD | WEIGHTS, seconds=st.sampled_from([0.0, TICK]))
    def an_ordinary_cycle(self, weights, seconds):
        world = self.world
        world.pass_time(seconds)
        world.beat()
        seen = world.see()
        world.say(seen)
        world.say(action(boot=seen.boot, cycle=seen.cycle, at=world.clock.now_ns(), weights=weights))
        world.land_all()

    @rule(spell=SPELL)
    def a_good_spell(self, spell):
        """All is well for a while: what was broken works again."""
        world = self.world
        world.refusals.clear()
        for name in ("actuator", "guard"):
            if name in world.cut_off:
                self.the_bus_is_lost_or_comes_back(name)
            if name not in world.alive:
                world.start(name)
        world.land_all()
        self.an_order_of_a_mode("active")
        self._cycles(spell)

    def _cycles(self, spell):
        for weights, seconds in spell:
            self.an_ordinary_cycle(weights, seconds)

    @rule(group=GROUPS, times=st.integers(1, 6))
    def somebody_fights(self, group, times):
        for number in range(times):
            self.an_ordinary_cycle({CRITICAL: (200, 316)[number % 2], BATCH: (100, 150)[number % 2]}, 14.0)
            self.world.somebody_writes(group, ("39\n", "41\n")[number % 2])

    @rule(p99=st.sampled_from([0.04, 0.5]))
    def a_second_look(self, p99):
        world = self.world
        seen = world.states.get((world.boot, world.cycle))
        if seen is not None and CRITICAL in seen.classes:
            world.say(with_p99(after(seen, at=world.clock.now_ns()), p99))

    @rule(weights=GOOD, group=st.none() | GROUPS, text=THEIRS)
    def a_change_that_makes_things_worse(self, weights, group, text):
        """It is rolled back, maybe after somebody else wrote to one of its groups."""
        self.an_ordinary_cycle(weights, TICK)
        if group is not None:
            self.somebody_writes(group, text)
        self.a_second_look(0.5)
        self.world.land_all()

    @rule()
    def a_heartbeat(self):
        self.world.beat()

    # ---- one message at a time ----

    @rule()
    def a_state_is_made(self):
        self.world.say(self.world.see())

    @rule()
    def the_collector_begins_anew(self):
        self.world.boot, self.world.cycle = f"{self.world.boot}+", 0

    @rule(cycle=st.integers(1, 5))
    def a_state_of_another_run(self, cycle):
        if ("elsewhere", cycle) not in self.world.made:
            self.world.say(self.world.see("elsewhere", cycle))

    @rule(weights=st.none() | WEIGHTS, back=st.integers(0, 2))
    def an_action_is_made(self, weights, back):
        world = self.world
        fields = {"boot": world.boot, "cycle": max(1, world.cycle - back), "at": world.clock.now_ns()}
        world.say(hold(**fields) if weights is None else action(weights=weights, **fields))

    @rule(index=INDEX)
    def a_message_arrives(self, index):
        if self.world.flying:
            to, received = self.world.flying.pop(index % len(self.world.flying))
            self.world.landed.append((to, received))
            self.world.land(to, received)

    @rule()
    def all_messages_arrive(self):
        self.world.land_all()

    @rule()
    def all_messages_arrive_backwards(self):
        self.world.flying.reverse()
        self.world.land_all()

    @rule(index=INDEX)
    def a_message_is_lost(self, index):
        if self.world.flying:
            self.world.flying.pop(index % len(self.world.flying))

    @rule(index=INDEX)
    def a_message_arrives_twice(self, index):
        if self.world.flying:
            to, received = self.world.flying[index % len(self.world.flying)]
            self.world.land(to, received)

    @rule(index=INDEX)
    def an_earlier_message_comes_again(self, index):
        if self.world.landed:
            self.world.land(*self.world.landed[-1 - index % len(self.world.landed)])

    @rule(end=ENDS)
    def the_bus_is_lost_or_comes_back(self, end):
        world = self.world
        world.cut_off ^= {end}
        process = world.processes[end]
        if process.bus.partition and end not in world.cut_off:
            process.bus.ended_partitions += 1
        process.bus.partition = end in world.cut_off

    # ---- time ----

    @rule(seconds=SECONDS)
    def time_passes(self, seconds):
        self.world.pass_time(seconds)

    @rule(hours=st.sampled_from([-1, 1]))
    def the_wall_clock_jumps(self, hours):
        self.world.step_wall(3600.0 * hours)

    # ---- processes ----

    @rule(name=ENDS)
    def a_process_is_killed(self, name):
        if name in self.world.alive:
            self.world.kill(name)

    @rule(name=ENDS, point=POINTS, count=st.integers(1, 3), torn_at=st.integers(0, 2000))
    def a_process_will_die(self, name, point, count, torn_at):
        process = self.world.processes[name]
        process.doom, process.torn_at = (point, count), torn_at

    @rule(name=ENDS)
    def a_process_comes_back(self, name):
        if name not in self.world.alive:
            self.world.start(name)

    @rule(point=POINTS, count=st.integers(1, 3))
    def the_actuator_dies_while_it_starts(self, point, count):
        if "actuator" not in self.world.alive:
            self.world.start("actuator", doom=(point, count))

    @rule(name=ENDS)
    def a_process_is_asked_to_end(self, name):
        self.world.terminate(name)

    # ---- the node ----

    @rule(group=GROUPS, text=THEIRS)
    def somebody_writes(self, group, text):
        self.world.somebody_writes(group, text)

    @rule(group=GROUPS, text=THEIRS)
    def somebody_will_write_right_after_us(self, group, text):
        self.world.races[group] = text

    @rule(group=GROUPS)
    def a_group_vanishes(self, group):
        if group in self.world.known:
            self.world.vanishes(group)

    @rule(group=GROUPS, text=st.sampled_from(["100\n", "55\n", "1000\n"]))
    def a_group_is_made_anew(self, group, text):
        if group in self.world.known:
            self.world.vanishes(group)
        self.world.appears(group, text)

    @rule(group=GROUPS)
    def a_pod_is_opted_out_or_in_again(self, group):
        self.world.opted_out ^= {group}

    @rule(group=GROUPS, weights=st.none() | GOOD)
    def a_pod_is_opted_out_and_seen(self, group, weights):
        """Whatever the verdict of that cycle comes to: none may move, or something may."""
        world = self.world
        world.opted_out ^= {group}
        seen = world.see()
        world.beat()
        world.say(seen)
        fields = {"boot": seen.boot, "cycle": seen.cycle, "at": world.clock.now_ns()}
        world.say(hold(**fields) if weights is None else action(weights=weights, **fields))
        world.land_all()

    @rule(group=GROUPS | st.just("*"), number=st.sampled_from([errno.EROFS, errno.EACCES, errno.EINVAL, errno.ENODEV]))
    def the_kernel_refuses(self, group, number):
        self.world.refusals[group] = number

    @precondition(lambda self: self.world.refusals)
    @rule()
    def the_kernel_takes_weights_again(self):
        self.world.refusals.clear()

    # ---- the operator ----

    @rule(mode=st.sampled_from(["shadow", "canary", "active", "active", "frozen"]))
    def an_order_of_a_mode(self, mode):
        self._order(verb="mode", mode=mode)

    @rule()
    def an_order_to_restore(self):
        self._order(verb="restore")

    def _order(self, **fields):
        world = self.world
        number = len(world.audit)
        world.say(command(boot="cli", cycle=number, at=world.clock.now_ns(), id=f"order-{number}", **fields))


Protocol.TestCase.settings = settings(max_examples=2000, stateful_step_count=10, deadline=None, print_blob=True)
TestProtocol = pytest.mark.timeout(900)(Protocol.TestCase)


# ---- the same world, along paths that chance takes rarely ----

FIRST, SECOND = {CRITICAL: 300, BATCH: 100}, {CRITICAL: 900, BATCH: 100}


@pytest.fixture
def world():
    made = World()
    _propose(made, FIRST)
    made.land_all()
    assert list(made.applied.values()) == [1]
    yield made
    made.close()


def _propose(world, weights):
    seen = world.see()
    world.beat()
    world.say(seen)
    world.say(action(boot=seen.boot, cycle=seen.cycle, at=world.clock.now_ns(), weights=weights))


def _lands(world, to, kind, *, again=False):
    """The newest message of a kind that flies to this end arrives; or `again`, one that did before."""
    where = world.landed if again else world.flying
    found = next(item for item in reversed(where) if item[0] == to and f".{kind}." in item[1].subject)
    if not again:
        where.remove(found)
        world.landed.append(found)
    world.land(*found)


def _ends_well(world):
    """Nothing was applied on an old picture, nothing twice, and the loop goes on."""
    world.check()
    world.pass_time(TICK)
    before = sum(world.applied.values())
    _propose(world, {CRITICAL: 400, BATCH: 100})
    world.land_all()
    world.check()
    assert sum(world.applied.values()) == before + 1


def test_an_ordinary_cycle_is_applied_and_the_next_one_too(world):
    _ends_well(world)


def test_i6_a_verdict_that_comes_again_after_a_restart_is_not_applied_again(world):
    world.kill("actuator")
    world.start("actuator")
    _lands(world, "actuator", "state", again=True)
    _lands(world, "actuator", "verdict", again=True)
    _ends_well(world)


def test_i6_a_cycle_that_is_judged_again_after_both_restarted_is_not_applied_again(world):
    for name in ("actuator", "guard"):
        world.kill(name)
        world.start(name)
    _lands(world, "guard", "state", again=True)
    _lands(world, "guard", "action", again=True)
    _lands(world, "actuator", "state", again=True)
    world.land_all()
    _ends_well(world)


def test_i2_a_state_from_before_a_restart_of_the_actuator_is_not_acted_on(world):
    _propose(world, SECOND)
    world.kill("actuator")
    world.start("actuator")
    world.land_all()
    _ends_well(world)


def test_i2_a_state_from_before_the_dead_man_fired_is_not_acted_on(world):
    world.pass_time(DEAD_MAN - 1.0)
    _propose(world, SECOND)
    world.pass_time(2.0)
    world.land_all()
    _ends_well(world)


def test_i2_a_verdict_that_an_order_to_restore_overtook_is_not_carried_out(world):
    _propose(world, SECOND)
    _lands(world, "guard", "state")
    _lands(world, "guard", "action")
    _lands(world, "actuator", "state")
    world.say(command(boot="cli", cycle=1, at=world.clock.now_ns()))
    _lands(world, "actuator", "command")
    _lands(world, "actuator", "verdict")
    world.land_all()
    _ends_well(world)


def test_i2_a_state_from_between_a_verdict_and_its_application_is_not_acted_on(world):
    _propose(world, SECOND)
    _lands(world, "guard", "state")
    _lands(world, "guard", "action")
    _lands(world, "actuator", "state")
    between = world.see()
    _lands(world, "actuator", "verdict")
    world.say(between)
    world.say(
        action(boot=between.boot, cycle=between.cycle, at=world.clock.now_ns(), weights={CRITICAL: 1100, BATCH: 100})
    )
    world.land_all()
    _ends_well(world)


def test_i8_a_verdict_that_an_order_to_stand_still_overtook_is_not_carried_out(world):
    _propose(world, SECOND)
    _lands(world, "guard", "state")
    _lands(world, "guard", "action")
    _lands(world, "actuator", "state")
    world.say(command(boot="cli", cycle=1, at=world.clock.now_ns(), verb="mode", mode="frozen"))
    _lands(world, "actuator", "command")
    _lands(world, "actuator", "verdict")
    world.check()
    assert list(world.applied.values()) == [1]
    world.originals_are_back("after the order")
    world.check()


def test_i4_a_pod_that_was_opted_out_has_its_original_though_nothing_is_carried_out(world):
    group = "burstable/pod-a"
    assert world.text(group).strip() == "300"
    world.opted_out.add(group)
    world.pass_time(TICK)
    seen = world.see()
    world.say(seen)
    world.say(hold(boot=seen.boot, cycle=seen.cycle, at=world.clock.now_ns()))
    world.land_all()
    world.check()
    assert world.text(group) == "100\n"
    assert list(world.applied.values()) == [1]


def test_i2_a_state_from_before_a_pod_was_given_back_is_not_acted_on(world):
    """The collector begins anew: the state that was made before comes after."""
    world.pass_time(TICK)
    early = world.see("elsewhere", 1)
    world.opted_out.add("burstable/pod-a")
    seen = world.see()
    world.say(seen)
    world.say(hold(boot=seen.boot, cycle=seen.cycle, at=world.clock.now_ns()))
    world.land_all()
    assert world.text("burstable/pod-a") == "100\n"
    world.say(early)
    world.say(action(boot="elsewhere", cycle=1, at=world.clock.now_ns(), weights=SECOND))
    world.land_all()
    world.check()
    assert sum(world.applied.values()) == 1
