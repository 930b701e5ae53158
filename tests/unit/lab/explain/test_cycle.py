"""A cycle is told as it was: what its messages say, and what the cores that made them say of it once more."""

import ast
import inspect

import msgspec
import pytest

from lab.explain.cycle import Known as KnownBeside
from lab.explain.cycle import cycle_told
from lab.explain.gather import CycleMessages, find_cycle, gather
from lab.explain.lines import tree_of
from lab.explain.minds import mind_before
from lab.explain.settings import guard_settings, rewarder_settings
from lab.explain.tree import draw
from lab.explain.words import CENSORED, MASKED, why_censored
from schemas.codec import decode
from schemas.messages import Action, Known, Shadow, Trial
from schemas.settings import Shared
from services.decider.config import DeciderConfig, PolicySettings, TrialSettings
from services.decider.core import mask
from services.decider.core.mind import Mind
from services.guard.config import GuardConfig
from services.guard.core.rules import RULES
from services.rewarder.config import RewarderConfig
from services.rewarder.core import censor
from services.rewarder.core.conclude import INTERRUPTED
from tests.support import builders
from tests.support.records import Loop, Record, header_of

NOT_KNOWN = KnownBeside("no mind", "no settings of the guard", "no settings of the rewarder")


def messages(**fields) -> CycleMessages:
    record = Record(builders.state())
    return msgspec.structs.replace(gather(lambda: record.items, find_cycle(lambda: record.items, "1")), **fields)


def text_of(told) -> str:
    return "\n".join(draw(tree_of(told), 400))


def told_of(record: Record, wanted: str, header=None):
    cycle = find_cycle(lambda: record.items, wanted)
    found = gather(lambda: record.items, cycle)
    mind, library = mind_before(header or header_of(), lambda: record.items, cycle)
    known = KnownBeside(mind, guard_settings(library, found.verdict), rewarder_settings(library, found.reward))
    return cycle_told(found, known)


@pytest.fixture(scope="module")
def whole():
    """Sixty cycles of a loop on the real cores."""
    return Loop().record(60)


def test_each_policy_tells_why_as_it_was_then(whole):
    for wanted in ("1", "30", "60"):
        told = told_of(whole, wanted)
        champion, shadow = told.decision.policies
        assert (champion.name, champion.role, champion.unknown) == ("linucb", "champion", None)
        assert (shadow.name, shadow.role, shadow.unknown) == ("thompson", "shadow", None)
        for policy in (champion, shadow):
            own = {arm.arm: arm for arm in policy.arms}
            assert sum(part.amount for part in policy.parts) == pytest.approx(own[policy.arm].mean, abs=1e-9)
            assert sum(part.other for part in policy.parts) == pytest.approx(own[policy.against].mean, abs=1e-9)
        assert champion.questions[-1].decides


def test_the_mind_is_not_that_of_another_cycle(whole):
    parts = [[part.amount for part in told_of(whole, wanted).decision.policies[0].parts] for wanted in ("5", "50")]
    assert parts[0] != parts[1]


def test_without_the_model_it_says_so_and_tells_what_the_messages_do(whole):
    bare = Record()
    bare.items = [item for item in whole.items if item is not whole.items[0]]
    champion = told_of(bare, "30").decision.policies[0]
    assert "is not in the recording" in champion.unknown
    assert champion.parts == ()
    assert {arm.arm for arm in champion.arms if arm.propensity == 1.0} == {champion.arm}
    assert "why it scores so is not known: model" in text_of(told_of(bare, "30"))


def test_scores_that_the_mind_does_not_have_are_not_explained(whole):
    cycle = find_cycle(lambda: whole.items, "30")
    found = gather(lambda: whole.items, cycle)
    mind, _ = mind_before(header_of(), lambda: whole.items, cycle)
    forged = msgspec.structs.replace(
        found.action, scores={name: score + 1e-6 for name, score in found.action.scores.items()}
    )
    told = cycle_told(msgspec.structs.replace(found, action=forged), NOT_KNOWN._replace(mind=mind))
    assert "scores otherwise, by up to 1e-06" in told.decision.policies[0].unknown


def test_every_rule_is_told_in_its_order_and_they_lead_to_the_verdict(whole):
    for wanted in range(1, 61):
        guard = told_of(whole, str(wanted)).guard if wanted % 15 == 0 else None
        if guard is not None:
            assert [rule.rule for rule in guard.rules] == [rule.name for rule in RULES]
            assert guard.agrees is True
            said = [rule.said for rule in guard.rules]
            assert "not asked" not in said[: said.index("not asked")] if "not asked" in said else True


def guard_of(action, config=None, **fields):
    known = Known(seen_age_seconds=0.1, answer_seconds=0.1, changes_left=8)
    verdict = builders.verdict(known=known, breaker="closed", **fields)
    return cycle_told(
        messages(action=action, verdict=verdict), NOT_KNOWN._replace(guard=(Shared(), config or GuardConfig()))
    ).guard


def test_the_finding_that_ends_the_matter_is_told_and_nobody_is_asked_after_it():
    guard = guard_of(builders.action(weights={builders.CRITICAL: 20, builders.BATCH: 100}), outcome="refuse")
    said = {rule.rule: rule for rule in guard.rules}
    assert said["bounds"].said == "refuse"
    assert "weight 20 is outside" in said["bounds"].reason
    assert [said[name].said for name in ("budget", "known_classes")] == ["no objection"] * 2
    assert [said[name].said for name in ("known_profile", "rate")] == ["not asked"] * 2
    assert guard.agrees is False  # the verdict says no rule


def test_a_clamp_is_told_with_its_weights_and_the_next_are_asked():
    guard = guard_of(builders.action(weights={builders.CRITICAL: 10_000, builders.BATCH: 100}), outcome="clamp")
    said = {rule.rule: rule for rule in guard.rules}
    assert said["max_step"].said == "clamp"
    assert said["max_step"].weights == {builders.CRITICAL: 4000, builders.BATCH: 100}
    assert said["rate"].said == "no objection"


def test_a_watched_rule_is_told_as_one():
    unknown = builders.action(weights={builders.CRITICAL: 2000, builders.BATCH: 100})
    guard = guard_of(
        unknown, GuardConfig(profiles={"a": {builders.CRITICAL: 100, builders.BATCH: 100}}, watch=("known_profile",))
    )
    rule = next(rule for rule in guard.rules if rule.rule == "known_profile")
    assert (rule.said, rule.is_watched) == ("refuse", True)
    assert guard.rules[-1].said == "no objection"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"known": None}, "an older release"),
        ({"breaker": None}, "an older release"),
    ],
)
def test_rules_are_not_guessed(fields, why):
    known = Known(seen_age_seconds=0.1, answer_seconds=0.1, changes_left=8)
    verdict = builders.verdict(**{"known": known, "breaker": "closed", **fields})
    told = cycle_told(
        messages(action=builders.action(), verdict=verdict), NOT_KNOWN._replace(guard=(Shared(), GuardConfig()))
    )
    assert told.guard.rules == ()
    assert why in told.guard.unknown


def test_a_verdict_that_came_too_late_asked_no_rule():
    known = Known(seen_age_seconds=0.1, answer_seconds=0.6, changes_left=8, late="no action within 0.5 s")
    verdict = builders.verdict(outcome="late", arm=None, known=known, breaker="closed")
    told = cycle_told(messages(verdict=verdict), NOT_KNOWN._replace(guard=(Shared(), GuardConfig())))
    assert told.guard.unknown == "no rule was asked: no action within 0.5 s"


def test_each_term_of_a_reward_adds_up(whole):
    for wanted in ("1", "25", "59"):
        reward = told_of(whole, wanted).reward
        assert reward.total == pytest.approx(reward.value, abs=1e-12)
        assert [part.name for part in reward.parts] == ["throughput", "oscillation"]


def test_terms_of_a_broken_objective_add_up_too():
    terms = {"violation": -0.5, "severity": -0.25, "throughput": 0.9, "oscillation": -0.1}
    value = 0.05 * -0.1 - 0.05 - 0.9 * (0.3 * 0.5 + 0.7 * 0.25)
    told = cycle_told(
        messages(reward=builders.reward(terms=terms, value=value)),
        NOT_KNOWN._replace(rewarder=(Shared(), RewarderConfig())),
    ).reward
    assert told.total == pytest.approx(value, abs=1e-12)
    assert {part.name: part.weight for part in told.parts}["throughput"] == 0.0
    assert sum(part.amount for part in told.parts) == pytest.approx(told.value)


def test_the_reason_of_a_censored_reward_is_a_sentence():
    reward = builders.reward(outcome="censored", value=None, reason="few_requests: web: 3")
    told = cycle_told(messages(reward=reward), NOT_KNOWN)
    assert told.reward.meaning == CENSORED["few_requests"]
    assert "too few requests" in text_of(told)


def constants_returned(source: str) -> set[str]:
    """The texts that a module's functions can answer with, up to a colon."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Return) and node.value is not None:
            for part in ast.walk(node.value):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    found.add(part.value.partition(":")[0])
    return {word for word in found if word.isidentifier()}


def test_every_word_of_the_rewarder_has_a_meaning():
    words = constants_returned(inspect.getsource(censor)) | set(INTERRUPTED)
    known = {"latency", "pressure", "unknown", "applied", "unchanged", "skipped", "gone"}
    assert {"late", "clamped", "overridden"} <= words
    assert words - known <= set(CENSORED)


def test_every_reason_of_the_mask_has_a_meaning():
    source = inspect.getsource(mask)
    assert set(MASKED) == {word for word in MASKED if f'"{word}"' in source}
    assert {line.split("`")[1] for line in (mask.__doc__ or "").splitlines() if line.startswith("- `")} <= set(MASKED)


def test_a_verdict_that_was_not_executed_has_a_meaning_whatever_its_rule():
    assert why_censored("some_rule") == "the verdict was not executed"
    assert why_censored(None) is None


def test_what_came_after_stands_beside_what_was_before():
    before = builders.state()
    after = builders.with_p99(builders.after(before), 0.15, over_ratio=0.2)
    text = text_of(
        cycle_told(messages(before=before, after=after), NOT_KNOWN._replace(guard=(Shared(), GuardConfig())))
    )
    assert "50 → 150" in text
    assert "0 % → 20 %" in text


def test_who_misses_an_objective_is_told_where_the_settings_are_known():
    before = builders.with_p99(builders.state(), 0.5, over_ratio=0.3)
    known = cycle_told(messages(before=before), NOT_KNOWN._replace(guard=(Shared(), GuardConfig())))
    assert [one.is_violated for one in known.seen.classes] == [True, False]
    assert [one.is_violated for one in cycle_told(messages(before=before), NOT_KNOWN).seen.classes] == [None, None]


def test_what_was_written_and_read_back_and_taken_back_is_told_pod_by_pod():
    wrong = builders.write("web", 1000, 2000, result="mismatch", reason="somebody else wrote in between")
    done = builders.actuation(writes=(builders.write(), wrong), overridden=("pod-web",))
    back = builders.actuation(outcome="rolled_back", writes=(builders.write("api", 2000, 1000),), reason="worse")
    order = builders.command(
        verb="rollback", by="guard", weights=builders.WEIGHTS, p99_before_seconds=0.05, p99_after_seconds=0.2
    )
    text = text_of(cycle_told(messages(actuation=done, undone=(back,), commands=(order,)), NOT_KNOWN))
    for part in (
        "mismatch: somebody else wrote in between",
        "somebody else had replaced our value: pod-web",
        "taken back: rolled_back [worse]",
        "command: rollback by guard: because (id c1)",
        "P99 50 → 200 ms",
    ):
        assert part in text


def test_what_the_record_lacks_is_said():
    text = text_of(cycle_told(messages(before=None, gaps=("2 messages are missing",)), NOT_KNOWN))
    for part in ("first look", "action", "verdict", "actuation", "second look", "reward"):
        assert f"no {part}" in text or f"{part} is not in the record" in text
    assert "2 messages are missing" in text


def test_what_stands_in_the_place_of_a_message_and_cannot_be_read_is_said_there():
    unread = {"actuation": ("X 4 cannot be read: torn",), "state": ("X 5 cannot be read: torn", "X 6 cannot be read")}
    text = text_of(cycle_told(messages(unread=unread), NOT_KNOWN))
    assert "no actuation is in the record, but in its place: X 4 cannot be read: torn" in text
    second = "no second look is in the record, but in its place: X 5 cannot be read: torn; X 6 cannot be read"
    assert second in " ".join(part.strip(" │") for part in text.splitlines())
    assert text.count("in its place") == 2


def test_masked_arms_stand_under_their_reason():
    action = builders.action(masked={"a": "step", "b": "no_harm", "c": "step"}, context={"moved": 1.0})
    text = text_of(cycle_told(messages(action=action), NOT_KNOWN))
    assert f"step, {MASKED['step']}: a, c" in text
    assert f"no_harm, {MASKED['no_harm']}: b" in text
    assert "remembered: moved 1" in text


def test_a_shadow_that_failed_is_told_as_that():
    shadow = Shadow(policy="linucb", error="ValueError: broken")
    action = builders.action(shadows={"bold": shadow}, propensities={"favour": 1.0})
    assert "it failed: ValueError: broken" in text_of(cycle_told(messages(action=action), NOT_KNOWN))


@pytest.fixture(scope="module")
def tried():
    """A loop in which a challenger takes turns with the champion, and the champion explores."""
    config = DeciderConfig(
        seed=1,
        policy="epsilon-greedy",
        epsilon=0.5,
        shadows={"good": PolicySettings(policy="linucb"), "calm": PolicySettings(policy="thompson")},
        trial=TrialSettings(challenger="good", block_cycles=4, washout_cycles=1),
    )
    return Loop(config).record(24), header_of(config)


def cycle_of_turn(record: Record, name: str) -> int:
    """The last cycle that the policy of this name decided."""
    actions = [decode(item.payload) for item in record.items if getattr(item, "payload", b"").startswith(b'{"type":"a')]
    return max(told.cycle for told in actions if isinstance(told, Action) and told.trial.in_charge == name)


@pytest.mark.parametrize(
    ("turn", "kind", "role"), [("good", "linucb", "challenger"), ("epsilon-greedy", "epsilon-greedy", "champion")]
)
def test_in_a_trial_the_one_whose_turn_it_was_is_told_and_explained_as_who_decided(tried, turn, kind, role):
    record, header = tried
    told = told_of(record, str(cycle_of_turn(record, turn)), header)
    first, *others = told.decision.policies
    assert (told.decision.in_charge, told.decision.champion) == (turn, "epsilon-greedy")
    assert (first.name, first.policy, first.role, first.is_in_charge) == (turn, kind, role, True)
    assert [policy.unknown for policy in told.decision.policies] == [None] * 3
    assert first.parts
    roles = {"epsilon-greedy": "champion", "good": "challenger", "calm": "shadow"}
    assert {policy.name: policy.role for policy in told.decision.policies} == roles
    assert not any(policy.is_in_charge for policy in others)
    text = text_of(told)
    assert (
        f"{role} {turn}{' (linucb)' if kind == 'linucb' else ''} {'takes' if not first.explored else 'draws'}" in text
    )
    other = "champion epsilon-greedy would have" if role == "challenger" else "challenger good (linucb) would have"
    assert other in text
    assert "not known" not in text


@pytest.mark.parametrize(("phase", "role"), [("watch", "incumbent"), ("over", "shadow")])
def test_after_a_promotion_the_old_one_is_the_incumbent_and_in_the_end_a_shadow(phase, role):
    trial = Trial(challenger="new", phase=phase, block=8, in_charge="new", incumbent="old")
    action = builders.action(champion="new", trial=trial, shadows={"old": Shadow(policy="linucb", arm="favour")})
    told = cycle_told(messages(action=action), NOT_KNOWN).decision
    assert [(policy.name, policy.role) for policy in told.policies] == [("new", "champion"), ("old", role)]


def test_all_of_it_is_in_the_json_too(whole):
    told = told_of(whole, "30")
    plain = msgspec.json.decode(msgspec.json.encode(told))
    assert plain["decision"]["policies"][0]["parts"]
    assert [rule["rule"] for rule in plain["guard"]["rules"]] == [rule.name for rule in RULES]
    assert plain["reward"]["total"] == pytest.approx(plain["reward"]["value"])
    assert set(plain) == set(type(told).__struct_fields__)


def test_a_mind_is_found_from_the_last_model_though_what_was_before_is_lost():
    loop = Loop()
    record = Record()
    for number in range(1, 101):
        if number == 70:
            record.items.append(loop.store("checkpoint"))
        messages = loop.cycle(number)
        if number != 10:  # a cycle of which nothing was kept, and no model from before it
            record.keep(*messages)
        else:
            record.lose().lose("TRIMTAB_STATE")
    early, late = told_of(record, "60"), told_of(record, "100")
    assert early.decision.policies[0].unknown is not None
    assert late.decision.policies[0].unknown is None
    assert late.decision.model == loop.digest


def test_far_before_the_last_model_nothing_is_replayed(monkeypatch):
    loop = Loop()
    record = loop.record(60)
    record.items.append(loop.store("checkpoint"))
    for number in range(61, 81):
        record.keep(*loop.cycle(number))
    decided = []
    decide = Mind.decide
    monkeypatch.setattr(Mind, "decide", lambda self, *args: decided.append(self) or decide(self, *args))
    assert told_of(record, "80").decision.policies[0].unknown is None
    assert 20 <= len(decided) <= 20 + 33
