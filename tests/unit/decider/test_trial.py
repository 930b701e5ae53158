"""Trials with known truth: who is promoted, who is not, and how often in error, however often one looks."""

import math
import random

import msgspec
import pytest

from schemas.settings import SettingsError, Shared
from services.decider.config import DeciderConfig, PolicySettings, TrialSettings
from services.decider.core.trial import WATCHED_EACH, Contest, interval, is_chosen

QUICK = TrialSettings(challenger="new", block_cycles=6, washout_cycles=2)
DEFAULT = TrialSettings(challenger="new")


class World:
    """Rewards with memory: noise that lasts (AR(1)), and a policy whose merit comes in over some cycles."""

    def __init__(self, difference: float, seed: int, noise: float = 0.1) -> None:
        self.difference = difference
        self.rng = random.Random(seed)
        self.noise = noise
        self.level = 0.0
        self.drift = 0.0

    def reward(self, in_charge: str) -> float:
        self.level = 0.5 * self.level + 0.5 * (self.difference if in_charge == "new" else 0.0)
        self.drift = 0.8 * self.drift + self.rng.gauss(0.0, self.noise)
        return max(-1.0, min(1.0, 0.2 + self.level + self.drift))


def play(contest: Contest, world: World, cycles: int, seed: int = 1, first: int = 1) -> list:
    """Plays on; what was told, cycle by cycle. A tenth of the rewards is censored and never comes."""
    told = []
    for cycle in range(first, first + cycles):
        turn = contest.turn("node-1", "b", cycle, seed)
        value = world.reward(turn.in_charge)
        if world.rng.random() < 0.9:
            contest.reward(f"b/{cycle}", value)
        told.append(turn)
    return told


def events(told) -> list[str]:
    return [turn.told.event for turn in told if turn.told is not None and turn.told.event is not None]


# ---- known truth -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_better_challenger_is_promoted_and_stays(seed):
    contest = Contest(DEFAULT, "old")
    told = play(contest, World(0.05, seed), 20_000, seed)
    promoted, *later = events(told)
    assert promoted.startswith("promoted: new is better than old by +0.")
    assert [event.partition(":")[0] for event in later] in ([], ["confirmed"])
    assert contest.champion == "new"


def test_one_that_is_better_still_while_it_is_watched_is_confirmed_and_the_trial_over():
    contest = Contest(DEFAULT, "old")
    told = play(contest, World(0.2, 1), 20_000)
    assert [event.partition(":")[0] for event in events(told)] == ["promoted", "confirmed"]
    assert contest.phase == "over"
    assert told[-1] == ("new", None)


@pytest.mark.parametrize("seed", range(5))
def test_a_worse_challenger_is_never_promoted_and_its_trial_ends(seed):
    contest = Contest(DEFAULT, "old")
    told = play(contest, World(-0.05, seed), 20_000, seed)
    (ended,) = events(told)
    assert ended.startswith("the trial ends: new is worse than old by -0.")
    assert told[-1] == ("old", None)


def test_of_equal_ones_at_most_one_in_twenty_is_promoted_though_one_looks_after_every_pair():
    promoted = ended = 0
    for seed in range(300):
        contest = Contest(QUICK, "old")
        happened = events(play(contest, World(0.0, seed), 100 * 2 * QUICK.block_cycles, seed))
        promoted += any(event.startswith("promoted") for event in happened)
        ended += any(event.startswith("the trial ends") for event in happened[:1])
    assert promoted <= 15
    assert promoted + ended >= 1  # an interval that never errs is too wide


def test_one_that_turns_bad_after_its_promotion_is_demoted():
    contest, world = Contest(QUICK, "old"), World(0.2, 3)
    cycle = 1
    while contest.phase == "trial":
        play(contest, world, 1, first=cycle)
        cycle += 1
    world.difference = -0.2
    told = play(contest, world, 6000, first=cycle)
    (demoted,) = events(told)
    assert demoted.startswith("demoted: new is worse than old by -0.")
    assert (contest.champion, told[-1].in_charge) == ("old", "old")


def test_the_interval_is_the_one_of_the_paper_and_narrowest_where_it_was_asked_to_be():
    """alpha 0.05, 20 pairs, rho for 32: by hand from theorem 2.2."""
    rho2 = (2 * math.log(20) + math.log(2 * math.log(20) + 1)) / 32
    width = math.sqrt(2 * (20 * rho2 + 1) / (400 * rho2) * math.log(math.sqrt(20 * rho2 + 1) / 0.05))
    low, high = interval(20, 0.3, 19 * 0.04, 0.95, 32)
    assert (low, high) == (pytest.approx(0.3 - 0.2 * width), pytest.approx(0.3 + 0.2 * width))
    assert interval(1, 0.3, 0.0, 0.95, 32) is None

    def width_at(pairs: int, design: int) -> float:
        low, high = interval(pairs, 0.0, float(pairs - 1), 0.95, design)
        return high - low

    assert min(range(4, 400), key=lambda design: width_at(64, design)) in range(50, 80)


# ---- whose turn ------------------------------------------------------------------------------------------------------


def test_both_get_a_block_of_each_pair_in_an_order_that_is_drawn():
    contest = Contest(QUICK, "old")
    told = play(contest, World(0.0, 1), 40 * 12)
    blocks = [told[at : at + 6] for at in range(0, len(told), 6)]
    assert all(len({turn.in_charge for turn in block}) == 1 for block in blocks)
    pairs = [(blocks[at][0].in_charge, blocks[at + 1][0].in_charge) for at in range(0, len(blocks), 2)]
    assert set(pairs) == {("old", "new"), ("new", "old")}
    assert [block[0].told.block for block in blocks] == list(range(80))


def test_while_it_is_watched_the_old_one_gets_a_block_in_one_pair_of_four():
    contest = Contest(TrialSettings(challenger="new", block_cycles=4, washout_cycles=0, min_pairs=2), "old")
    for cycle in range(1, 21):
        turn = contest.turn("n", "b", cycle, 1)
        contest.reward(f"b/{cycle}", 0.5 + cycle / 1000 if turn.in_charge == "new" else -0.5)
    assert (contest.phase, contest.champion) == ("watch", "new")
    begin = contest._watched_since * 2
    told = [contest.turn("n", "b", cycle, 1) for cycle in range(21, 21 + 400)]
    blocks = {turn.told.block: turn.in_charge for turn in told}
    groups = range(begin, begin + 2 * WATCHED_EACH * 10, 2 * WATCHED_EACH)
    olds = [[block - group for block in range(group, group + 8) if blocks[block] == "old"] for group in groups]
    assert all(len(found) == 1 for found in olds)
    assert len({found[0] for found in olds}) > 3  # in no fixed place


def test_the_first_cycles_of_a_block_do_not_count_nor_do_rewards_after_the_pair_was_closed():
    settings = TrialSettings(challenger="new", block_cycles=4, washout_cycles=2, min_pairs=2)
    contest = Contest(settings, "old")
    turns = {cycle: contest.turn("n", "b", cycle, 1) for cycle in range(1, 9)}
    for cycle in (1, 2, 5, 6):
        contest.reward(f"b/{cycle}", 1.0 if turns[cycle].in_charge == "old" else -1.0)
    for cycle in (3, 4, 7, 8):
        contest.reward(f"b/{cycle}", 0.5 if turns[cycle].in_charge == "new" else 0.25)
        contest.reward(f"b/{cycle}", -1.0)  # once
    assert contest.turn("n", "b", 9, 1).told.pairs == 0
    closed = contest.turn("n", "b", 10, 1).told
    assert (closed.pairs, closed.difference, closed.low) == (1, 0.25, None)
    contest.reward("b/8", -1.0)
    assert contest.turn("n", "b", 11, 1).told.difference == 0.25


@pytest.mark.parametrize("value", [1e9, -2.0, math.nan, math.inf])
def test_what_is_no_reward_does_not_count(value):
    contest = Contest(TrialSettings(challenger="new", block_cycles=2, washout_cycles=0), "old")
    for cycle in range(1, 5):
        turn = contest.turn("n", "b", cycle, 1)
        contest.reward(f"b/{cycle}", value if turn.in_charge == "new" else 0.1)
    told = [contest.turn("n", "b", cycle, 1).told for cycle in (5, 6)]
    assert told[-1].pairs == 0


def test_a_pair_with_too_few_rewards_is_passed_over():
    contest = Contest(TrialSettings(challenger="new", block_cycles=8, washout_cycles=0), "old")
    for cycle in range(1, 17):
        turn = contest.turn("n", "b", cycle, 1)
        if turn.in_charge == "old" or cycle % 8 == 0:
            contest.reward(f"b/{cycle}", 0.1)
    assert [contest.turn("n", "b", cycle, 1).told.pairs for cycle in (17, 18, 19)] == [0, 0, 0]


def test_without_promotion_it_is_only_said_once():
    settings = msgspec.structs.replace(QUICK, promote=False)
    contest = Contest(settings, "old")
    told = play(contest, World(0.3, 1), 3000)
    (better,) = events(told)
    assert better.startswith("better: new than old by +0.")
    assert (contest.phase, contest.champion) == ("trial", "old")


def test_who_cannot_decide_is_out_at_once_and_the_other_stays():
    for name, winner in (("new", "old"), ("old", "new")):
        contest = Contest(QUICK, "old")
        contest.turn("n", "b", 1, 1)
        contest.out("somebody else", "x")
        assert contest.phase == "trial"
        contest.out(name, "ValueError: no")
        turn = contest.turn("n", "b", 2, 1)
        assert (turn.in_charge, turn.told.phase) == (winner, "over")
        assert turn.told.event == f"{name} is out, {winner} is in charge: ValueError: no"
        assert contest.turn("n", "b", 3, 1).told is None


def test_a_word_from_outside_ends_it():
    contest = Contest(QUICK, "old")
    contest.put_in_charge("third")
    assert contest.turn("n", "b", 1, 1) == ("third", None)


# ---- the same again --------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_turns_and_another_one_others():
    one, same, other = (Contest(QUICK, "old") for _ in range(3))
    turns = [play(contest, World(0.0, 1), 600, seed) for contest, seed in ((one, 1), (same, 1), (other, 2))]
    assert turns[0] == turns[1]
    assert [turn.in_charge for turn in turns[0]] != [turn.in_charge for turn in turns[2]]


@pytest.mark.parametrize("stop", [1, 7, 13, 250, 601, 1500])
def test_a_trial_that_was_saved_and_loaded_goes_on_as_if_nothing_had_been(stop):
    whole, first, second = (Contest(QUICK, "old") for _ in range(3))
    world, again = World(0.2, 1), World(0.2, 1)
    expected = play(whole, world, 2000)
    found = play(first, again, stop)
    raw = msgspec.json.encode(first.save())
    assert second.load(msgspec.json.decode(raw, type=type(first.save())))
    found += play(second, again, 2000 - stop, first=stop + 1)
    assert found == expected
    assert "promoted" in events(expected)[0]
    assert second.save() == whole.save()


def test_a_trial_of_other_settings_is_not_gone_on_with():
    contest = Contest(QUICK, "old")
    assert not contest.load(Contest(DEFAULT, "old").save())
    assert contest.phase == "trial"


def test_what_is_remembered_is_bounded():
    contest = Contest(QUICK, "old")
    for cycle in range(1, 5000):
        contest.turn("n", "b", cycle, 1)  # no reward ever comes
    state = contest.save()
    assert len(state.decided) <= 4 * QUICK.block_cycles
    assert len(state.sums) <= 4


# ---- by node ---------------------------------------------------------------------------------------------------------


def test_by_node_it_decides_on_its_share_of_the_nodes_always():
    settings = TrialSettings(challenger="new", by="node", share=0.3)
    nodes = [f"worker-{number}.eu" for number in range(2000)]
    chosen = [Contest(settings, "old").turn(node, "b", 1, 1).in_charge == "new" for node in nodes]
    assert 0.25 < sum(chosen) / len(nodes) < 0.35
    assert chosen == [is_chosen(node, "new", 0.3) for node in nodes]
    assert not any(is_chosen(node, "new", 0.0) for node in nodes)
    assert all(is_chosen(node, "new", 1.0) for node in nodes)
    contest = Contest(settings, "old")
    told = play(contest, World(0.5, 1), 500)
    assert len({turn.in_charge for turn in told}) == 1
    assert events(told) == []


# ---- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"challenger": "nobody"}, "decider.trial.challenger: 'nobody' is no shadow (calm); name one of"),
        (
            {"challenger": "calm", "block_cycles": 4, "washout_cycles": 4},
            "decider.trial.washout_cycles: 4 of 4 cycles of a block leave none to count",
        ),
    ],
)
def test_settings_that_make_no_trial_are_refused(fields, text):
    config = DeciderConfig(shadows={"calm": PolicySettings()}, trial=TrialSettings(**fields))
    with pytest.raises(SettingsError) as caught:
        config.check(Shared())
    assert text in str(caught.value)
