"""Removes, one at a time, every rule and check that enforces an invariant, and shows which test breaks.

`python -m tests.mutants [TEXT ...]` (or `make mutants`) works on a copy of the tree. With texts, only mutants with one
of them in their row are made. Exit code 1 if one survives, if its place is not found exactly once, or if a named test
fails without it.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

REPOSITORY: Final = Path(__file__).parents[1]
CODE: Final = ("schemas", "hostfs", "runtime", "services", "lab", "cli")
SECONDS: Final = 120.0
"""Longest run of the tests of one mutant. A mutant that hangs is told from one that survives: it is an error."""

GUARD, RULES, ACTUATOR = "services/guard/service.py", "services/guard/core/rules", "services/actuator/service.py"
WEIGHTS, LEDGER = "services/actuator/weights.py", "services/actuator/core/ledger.py"
WRITER, FORMAT = "services/actuator/cgroup_writer.py", "services/actuator/core/journal_format.py"
MESSENGER, CODEC = "runtime/messenger.py", "schemas/codec.py"
MODE_ORDERS, MODE_ORDER = "services/guard/mode_orders.py", "services/guard/core/mode_order.py"
AFTERMATH, BREAKER = "services/guard/aftermath.py", "services/guard/core/breaker.py"
TRIAL = "services/guard/core/trial.py"
EXCUSES, REGRESSION = "services/guard/core/excuses.py", "services/guard/core/regression.py"
JOURNAL, FAMILIES = "services/actuator/journal.py", "services/actuator/core/families.py"

_OF_RULES, _OF_VERDICTS = "tests/unit/guard/test_rules.py::test_", "tests/unit/guard/test_service_verdicts.py::test_"
_OF_MODES, _OF_ACTUATOR = "tests/unit/guard/test_service_modes.py::test_", "tests/unit/actuator/test_service.py::test_"
_OF_RELEASED = "tests/unit/actuator/test_service_released.py::test_"
_OF_WAYS_BACK = "tests/unit/actuator/test_service_ways_back.py::test_"
_OF_WEIGHTS, _OF_WRITER = (
    "tests/unit/actuator/test_weights.py::test_",
    "tests/unit/actuator/test_cgroup_writer.py::test_",
)
_OF_JOURNAL, _OF_CODEC = "tests/unit/actuator/test_journal.py::test_", "tests/unit/schemas/test_codec.py::test_"
_OF_MESSENGER = "tests/unit/runtime/test_messenger.py::test_"
_OF_HALF_OPEN = "tests/unit/guard/test_service_half_open.py::test_"
_OF_RESTARTS = "tests/unit/guard/test_service_breaker_restart.py::test_"
_OF_SOLVER, _OF_TREE = "tests/unit/actuator/test_solver.py::test_", "tests/property/test_solver_tree.py::test_"
_OF_BREAKER = "tests/unit/guard/test_breaker.py::test_"
_OF_TRIAL = "tests/unit/guard/test_trial.py::test_"
_OF_GIVEN_BACK = "tests/unit/guard/test_service_orders_given_back.py::test_"
_OF_EXCUSES, _OF_ROLLBACKS = (
    "tests/unit/guard/test_excuses.py::test_",
    "tests/unit/guard/test_service_rollbacks.py::test_",
)
_STARVED = "tests/property/test_guard.py::test_the_most_important_class_that_keeps_its_objective_cannot_be_starved_"
_STARVED_BUT = "tests/property/test_guard.py::test_no_class_that_keeps_its_objective_is_starved_"
_OF_ORDERS, _OF_ORDER = "tests/unit/guard/test_service_orders.py::test_", "tests/unit/guard/test_mode_order.py::test_"


@dataclass(frozen=True)
class Mutant:
    """One check taken out: `old` becomes `new` in `where`, a file or a folder of modules; every test must then fail."""

    invariant: str
    removes: str
    where: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS: Final = (
    Mutant(
        "I1",
        "the writer refuses QoS groups and the pods root",
        WRITER,
        """raise ValueError(f"{group!r} is a QoS group: the kubelet's, never written")""",
        "pass",
        (_OF_WRITER + "what_is_no_pod_group_is_refused_and_nothing_changes",),
    ),
    Mutant(
        "I1",
        "the writer refuses groups inside a pod",
        WRITER,
        """raise ValueError(f"{group!r} is inside a pod's group: weights are written to pods only")""",
        "pass",
        (_OF_WRITER + "what_is_no_pod_group_is_refused_and_nothing_changes",),
    ),
    Mutant(
        "I1",
        "no group leaves the root by its name",
        "hostfs/cgroup.py",
        'if component in ("", ".", ".."):',
        'if component == "":',
        (_OF_WRITER + "what_is_no_pod_group_is_refused_and_nothing_changes",),
    ),
    Mutant(
        "I1",
        "no link is followed to a folder",
        WRITER,
        "folder = os.open(component, _FOLDER | os.O_NOFOLLOW, dir_fd=parent)",
        "folder = os.open(component, _FOLDER, dir_fd=parent)",
        (_OF_WRITER + "a_link_to_a_folder_outside_is_not_followed",),
    ),
    Mutant(
        "I1",
        "no link is followed to a file",
        WRITER,
        "os.open(_FILE, os.O_WRONLY | os.O_NOFOLLOW |",
        "os.open(_FILE, os.O_WRONLY |",
        (_OF_WRITER + "a_link_in_place_of_the_weight_file_is_not_followed",),
    ),
    Mutant(
        "I2",
        "actuator: no state from before its own last move or its start",
        ACTUATOR,
        "state.at < self._moved_at_ns and",
        "state.at < 0 and",
        (
            "tests/property/test_protocol.py::test_i2_a_verdict_that_an_order_to_restore_overtook_is_not_carried_out",
            "tests/property/test_protocol.py::test_i6_a_verdict_that_comes_again_after_a_restart_is_not_applied_again",
        ),
    ),
    Mutant(
        "I2",
        "guard: bounds",
        RULES,
        "if not low <= weight <= high:",
        "if False:",
        (_OF_RULES + "wt_02_a_weight_outside_the_bounds_is_refused",),
    ),
    Mutant(
        "I2",
        "actuator: bounds, whoever sent it",
        ACTUATOR,
        "if not limits.min_weight <= weight <= limits.max_weight:",
        "if False:",
        (_OF_ACTUATOR + "i2_a_verdict_with_a_weight_out_of_bounds_is_not_carried_out_whoever_sent_it",),
    ),
    Mutant(
        "I2",
        "writer: nothing but a weight",
        WRITER,
        "if not _is_weight(text) or int(text) < KERNEL_MIN_WEIGHT:",
        "if False:",
        (_OF_WRITER + "wt_02_only_weights_are_ever_written",),
    ),
    Mutant(
        "I2",
        "guard: the step ratio",
        RULES,
        "if widest <= math.log(limit) * (1 + _ROUNDING):",
        "if True:",
        (_OF_RULES + "a_step_is_clamped_to_the_ratio",),
    ),
    Mutant(
        "I2",
        "guard: no second step on one picture",
        RULES,
        "if age > situation.since_moved_seconds:",
        "if False:",
        (_OF_VERDICTS + "i2_a_backlog_does_not_make_two_steps_of_one_picture",),
    ),
    Mutant(
        "I2",
        "guard: the rate",
        RULES,
        "if situation.changes_left > 0:",
        "if True:",
        (_OF_VERDICTS + "i2_no_more_changes_than_the_rate",),
    ),
    Mutant(
        "I2",
        "guard: the rate survives a restart",
        GUARD,
        "for age in change_ages(",
        "for age in [] and change_ages(",
        (_OF_MODES + "i2_a_restart_does_not_refill_the_change_budget",),
    ),
    Mutant(
        "I2",
        "solver: pods that are not steered keep their share in a QoS group that loses",
        FAMILIES,
        "total = family.before * kept - family.rest",
        "total = Fraction(family.own)",
        (
            _OF_SOLVER + "what_the_group_loses_the_steered_pods_in_it_go_without",
            _OF_TREE + "who_is_not_steered_never_has_less_than_under_the_originals",
        ),
    ),
    Mutant(
        "I2",
        "solver: a group without steered pods keeps its share",
        FAMILIES,
        "return Fraction(1) if family.loose else",
        "return Fraction(0) if family.loose else",
        (
            _OF_SOLVER + "a_group_that_is_not_steered_beside_them_bounds_that_weight_by_what_it_was",
            _OF_TREE + "nor_a_group_beside_pods_that_holds_nobody_steered",
        ),
    ),
    Mutant(
        "I3",
        "guard: freshness",
        RULES,
        "if age > situation.max_state_age_seconds:",
        "if False:",
        (_OF_VERDICTS + "i3_a_state_older_than_two_ticks_is_refused",),
    ),
    Mutant(
        "I3",
        "guard: a deadline within the state's two ticks",
        "services/guard/core/known.py",
        "good_for = min(lifetime, situation.max_state_age_seconds - known.seen_age_seconds) - known.answer_seconds",
        "good_for = lifetime - known.answer_seconds",
        (_OF_VERDICTS + "i3_the_deadline_is_never_later_than_two_ticks_after_the_state_s_stamp",),
    ),
    Mutant(
        "I3",
        "guard: a clock set back makes nothing fresh",
        "services/guard/core/state_age.py",
        "if by_wall >= -self._skew_seconds else",
        "if True else",
        ("tests/unit/guard/test_state_age.py::test_na_09_a_clock_set_back_does_not_make_an_old_state_fresh",),
    ),
    Mutant(
        "I3",
        "actuator: the deadline",
        ACTUATOR,
        "if late > 0:",
        "if False:",
        (_OF_ACTUATOR + "i3_nothing_is_applied_after_the_deadline",),
    ),
    Mutant(
        "I3",
        "actuator: freshness",
        ACTUATOR,
        "if age > limit:",
        "if False:",
        (_OF_ACTUATOR + "i3_a_state_that_was_old_when_it_came_is_not_acted_on",),
    ),
    Mutant(
        "I3",
        "actuator: the deadline by its own clock",
        ACTUATOR,
        "if known > max(0.0, (verdict.deadline - state.at) / 1e9):",
        "if False:",
        (_OF_ACTUATOR + "i3_a_step_of_the_wall_clock_never_makes_a_late_verdict_good",),
    ),
    Mutant(
        "I3",
        "actuator: the deadline again after the journal",
        WEIGHTS,
        "batch.late = too_late() if batch.ready else None",
        "batch.late = None",
        (_OF_ACTUATOR + "i3_a_slow_journal_does_not_carry_a_write_over_the_deadline",),
    ),
    Mutant(
        "I4",
        "actuator: restores when it ends",
        ACTUATOR,
        'await self._restore_and_say("stop", "stop")',
        "pass",
        (_OF_WAYS_BACK + "i4_the_end_restores_and_says_so", _OF_WAYS_BACK + "i4_the_end_restores_without_a_bus"),
    ),
    Mutant(
        "I4",
        "actuator: who is not steered any more is released",
        ACTUATOR,
        "released = self._give_back(known[0], verdict.canary_ratio) if known is not None else []",
        "released: list[PodWrite] = []",
        (f"{_OF_RELEASED}a_pod_that_is_opted_out_has_its_original_back_whatever_comes_of_the_verdict",),
    ),
    Mutant(
        "I4",
        "actuator: the dead man",
        ACTUATOR,
        "if self._dead_man.fires(now) and",
        "if False and",
        (
            _OF_WAYS_BACK + "i4_originals_return_when_the_guard_is_silent",
            _OF_WAYS_BACK + "i4_the_dead_man_needs_no_bus",
        ),
    ),
    Mutant(
        "I4",
        "actuator: restores after a crash",
        ACTUATOR,
        'self._restore("restart")',
        "pass",
        (_OF_WAYS_BACK + "i4_a_restart_after_a_crash_restores_before_it_listens",),
    ),
    Mutant(
        "I4",
        "actuator: tries again what could not be restored",
        ACTUATOR,
        "elif self._restore_again_at is not None and now >= self._restore_again_at:",
        "elif False:",
        (_OF_WAYS_BACK + "i4_what_could_not_be_restored_is_tried_again",),
    ),
    Mutant(
        "I4",
        "actuator: an order to stand still restores",
        ACTUATOR,
        'elif command.verb == "restore" or command.mode in _STANDS_STILL:',
        'elif command.verb == "restore":',
        (_OF_WAYS_BACK + "i4_a_mode_that_stands_still_restores",),
    ),
    Mutant(
        "I4",
        "guard: weights that nobody watches are ordered back",
        GUARD,
        "if silent > self._config.blind_after_ticks * tick and not self._blind:",
        "if False:",
        (_OF_MODES + "when_states_stop_coming_originals_are_ordered_back_once",),
    ),
    Mutant(
        "I4",
        "journal: on disk before the first write",
        WEIGHTS,
        "sync=any(isinstance(record, Original) for record in records)",
        "sync=False",
        (_OF_WEIGHTS + "the_journal_is_on_disk_before_the_first_write",),
    ),
    Mutant(
        "I4",
        "journal: checksums",
        FORMAT,
        'if checksum != b"%08x" % zlib.crc32(body):',
        "if False:",
        (_OF_JOURNAL + "a_flipped_byte_anywhere_before_the_last_line_sets_the_file_aside",),
    ),
    Mutant(
        "I4",
        "journal: an emptied file is damage",
        FORMAT,
        "if not complete:",
        "if not raw:\n        return []\n    if not complete:",
        (_OF_JOURNAL + "a_file_that_was_emptied_is_damaged",),
    ),
    Mutant(
        "I4",
        "journal: of this boot of the machine",
        FORMAT,
        "if head.boot_id != boot_id:",
        "if False:",
        (_OF_JOURNAL + "a_journal_of_another_boot_is_set_aside",),
    ),
    Mutant(
        "I4",
        "readiness says that originals are lost",
        ACTUATOR,
        'self._context.health.require("originals", lost)',
        "pass",
        (_OF_WAYS_BACK + "a_damaged_journal_is_no_readiness_until_somebody_has_looked",),
    ),
    Mutant(
        "I4",
        "journal: what was set aside is not written over",
        JOURNAL,
        "while found.exists() and number < _MOST_ASIDE:",
        "while False:",
        (_OF_JOURNAL + "what_was_set_aside_once_is_never_written_over_by_a_second_damage",),
    ),
    Mutant(
        "I4",
        "journal: one of another boot is not damaged",
        JOURNAL,
        "outlived = isinstance(error, JournalOutlived)",
        "outlived = False",
        (_OF_WAYS_BACK + "a_journal_of_another_boot_loses_nothing",),
    ),
    Mutant(
        "I4",
        "writer: the same group, not one of its name",
        WRITER,
        "if os.fstat(folder).st_ino != identity:",
        "if False:",
        (_OF_WRITER + "a_group_made_again_between_reading_and_writing_is_not_written",),
    ),
    Mutant(
        "I5",
        "a foreign value is the new original",
        WEIGHTS,
        "batch.records.append(Rebase(group=group, value=found.text))",
        "pass",
        (_OF_WEIGHTS + "wt_04_a_foreign_value_is_the_new_baseline_and_reported",),
    ),
    Mutant(
        "I5",
        "restoring leaves a foreign value",
        LEDGER,
        'return "write" if text in entry.ours else "foreign"',
        'return "write"',
        (_OF_WEIGHTS + "wt_04_a_foreign_value_at_restore_stays",),
    ),
    Mutant(
        "I5",
        "a rollback leaves a foreign value",
        WEIGHTS,
        'if only_ours and owner != "ours":',
        "if False:",
        (
            _OF_WEIGHTS + "a_rollback_writes_over_our_values_only",
            _OF_WAYS_BACK + "wt_04_a_rollback_leaves_somebody_elses_value_alone",
        ),
    ),
    Mutant(
        "I5",
        "left alone after three in a row",
        LEDGER,
        "if others.in_a_row < limit:",
        "if True:",
        (
            _OF_WEIGHTS + "wt_04_after_three_in_a_row_the_group_is_left_alone",
            _OF_ACTUATOR + "wt_04_after_three_in_a_row_a_pod_is_left_alone_and_keeps_its_value",
        ),
    ),
    Mutant(
        "I6",
        "guard: one verdict a state",
        GUARD,
        "if refused is not None:",
        "if False:",
        (_OF_VERDICTS + "i6_one_verdict_whatever_is_delivered_twice",),
    ),
    Mutant(
        "I6",
        "guard: one verdict, whatever is proposed later",
        GUARD,
        """if cycle.verdict is not None:
            self._context.messenger.drop(action,""",
        """if False:
            self._context.messenger.drop(action,""",
        (_OF_VERDICTS + "i6_a_second_different_action_changes_nothing",),
    ),
    Mutant(
        "I6",
        "actuator: one application a cycle",
        ACTUATOR,
        "if not self._order.accept(verdict.boot, verdict.cycle):",
        "if False:",
        (
            _OF_ACTUATOR + "i6_whatever_is_delivered_twice_is_applied_once",
            _OF_ACTUATOR + "i6_an_older_verdict_after_a_newer_one_is_dropped",
        ),
    ),
    Mutant(
        "I7",
        "a message that cannot be read is counted and dropped",
        MESSENGER,
        'return _Unread("decode", 0, str(error))',
        "raise",
        (_OF_MESSENGER + "ms_03_a_bad_message_is_counted_and_the_reader_goes_on",),
    ),
    Mutant(
        "I7",
        "a message about another node is dropped",
        MESSENGER,
        "return message if message.node == self.node else",
        "return message if True else",
        (_OF_MESSENGER + "a_message_about_another_node_is_dropped_even_on_this_nodes_subject",),
    ),
    Mutant(
        "I7",
        "a message that is too large is not read",
        CODEC,
        """if len(raw) > MAX_MESSAGE_BYTES:
        raise DecodeError""",
        """if False:
        raise DecodeError""",
        (_OF_CODEC + "a_message_over_the_limit_neither_leaves_nor_is_read",),
    ),
    Mutant(
        "I7",
        "NaN and infinity never leave",
        CODEC,
        "    if where is not None:\n        raise EncodeError",
        "    if False:\n        raise EncodeError",
        (_OF_CODEC + "a_number_that_is_not_finite_never_leaves_and_is_located",),
    ),
    Mutant(
        "I7",
        "a bad group costs its pod, not the cycle",
        WEIGHTS,
        "except ValueError as error:  # a state that names what is no pod group costs that pod, not the cycle",
        "except ZeroDivisionError as error:",
        (
            _OF_ACTUATOR + "i7_a_bad_group_path_costs_that_pod_only",
            _OF_WEIGHTS + "i7_a_bad_group_path_costs_that_pod_only",
        ),
    ),
    Mutant(
        "I8",
        "the default mode",
        "schemas/settings.py",
        'mode: Mode = "shadow"',
        'mode: Mode = "active"',
        ("tests/unit/schemas/test_settings.py::test_the_defaults_agree_with_each_other_and_touch_nothing",),
    ),
    Mutant(
        "I8",
        "guard: shadow executes nothing",
        RULES,
        'if situation.mode == "shadow":',
        "if False:",
        (
            _OF_RULES + "shadow_decides_and_executes_nothing",
            _OF_VERDICTS + "i8_shadow_executes_nothing_and_uses_no_rate",
        ),
    ),
    Mutant(
        "I8",
        "actuator: a verdict in a standing mode is not carried out",
        ACTUATOR,
        "if verdict.mode in _STANDS_STILL:",
        "if False:",
        (_OF_ACTUATOR + "i8_a_verdict_that_contradicts_its_mode_writes_nothing",),
    ),
    Mutant(
        "I8",
        "actuator: an order to stand still that the guard missed",
        ACTUATOR,
        "if self._stand_still is not None:",
        "if False:",
        (_OF_ACTUATOR + "i8_an_order_to_stand_still_that_the_guard_missed_is_kept_until_it_shows_or_is_lifted",),
    ),
    Mutant(
        "breaker",
        "repeated rollbacks open it",
        BREAKER,
        "if again or (self._opened_at is None and len(self._rollbacks) >= self.rollbacks_to_open):",
        "if again:",
        (_OF_BREAKER + "it_opens_with_the_nth_rollback_and_says_so_once",),
    ),
    Mutant(
        "breaker",
        "a trial that got worse opens it again",
        BREAKER,
        "if again or (",
        "if (",
        (_OF_HALF_OPEN + "a_later_look_that_shows_it_got_worse_takes_it_back_and_opens_it_again",),
    ),
    Mutant(
        "breaker",
        "nothing is tried while it is open",
        BREAKER,
        "if left > 0:",
        "if False:",
        (
            _OF_RESTARTS + "open_it_stays_so_for_the_time_that_is_left",
            _OF_HALF_OPEN + "a_change_that_nothing_becomes_known_of_is_taken_back_and_it_opens_again",
        ),
    ),
    Mutant(
        "breaker",
        "half open it lets one change through",
        BREAKER,
        """if self._tried_at is not None:
            return "the breaker is half open""",
        """if False:
            return "the breaker is half open""",
        (_OF_HALF_OPEN + "one_change_goes_through_however_long_nothing_is_known_of_it",),
    ),
    Mutant(
        "breaker",
        "the one change is for the canary's pods",
        "services/guard/core/known.py",
        'if stand.mode != "active" or stand.breaker != "half_open":',
        "if True:",
        (_OF_HALF_OPEN + "the_one_change_is_for_the_canary_s_pods_alone",),
    ),
    Mutant(
        "breaker",
        "what is not known yet does not end the trial",
        AFTERMATH,
        'if evidence == "unknown" and cycle is self._trial:',
        "if False:",
        (
            _OF_HALF_OPEN + "a_change_that_nothing_becomes_known_of_is_taken_back_and_it_opens_again",
            _OF_HALF_OPEN + "evidence_that_comes_later_closes_it",
        ),
    ),
    Mutant(
        "breaker",
        "the change under trial is judged by later looks",
        AFTERMATH,
        'if trial.applied and evidence != "unknown":',
        "if False:",
        (
            _OF_HALF_OPEN + "evidence_that_comes_later_closes_it",
            _OF_HALF_OPEN + "a_later_look_that_shows_it_got_worse_takes_it_back_and_opens_it_again",
        ),
    ),
    Mutant(
        "breaker",
        "a change of which nothing was heard is no success",
        AFTERMATH,
        'if trial.applied and evidence != "unknown":',
        'if evidence != "unknown":',
        (_OF_HALF_OPEN + "a_change_whose_actuation_is_never_heard_of_is_no_success",),
    ),
    Mutant(
        "breaker",
        "a trial without evidence is given up",
        AFTERMATH,
        "if self.breaker.gives_up(self._now()):",
        "if False:",
        (
            _OF_HALF_OPEN + "a_change_that_nothing_becomes_known_of_is_taken_back_and_it_opens_again",
            _OF_HALF_OPEN + "a_change_whose_actuation_is_never_heard_of_is_no_success",
        ),
    ),
    Mutant(
        "breaker",
        "a trial lasts to its end",
        AFTERMATH,
        "if trial.applied and self.breaker.is_due(self._now())",
        "if trial.applied",
        (
            _OF_HALF_OPEN
            + "a_change_under_which_no_more_is_missed_than_before_has_stood_its_trial_at_its_end_and_not_before",
        ),
    ),
    Mutant(
        "breaker",
        "at its end only a change that was heard of is a success",
        AFTERMATH,
        "if trial.applied and self.breaker.is_due(self._now())",
        "if self.breaker.is_due(self._now())",
        (_OF_HALF_OPEN + "a_change_whose_actuation_is_never_heard_of_is_no_success",),
    ),
    Mutant(
        "breaker",
        "at its end no more is missed than before",
        TRIAL,
        "return is_known and all(gain >= -_ROUNDING for gain in so_far)",
        "return is_known",
        (
            _OF_TRIAL + "more_missed_than_before_is_worse",
            _OF_TRIAL + "misses_are_weighed_by_importance",
            _OF_HALF_OPEN + "a_change_under_which_more_is_missed_than_before_has_not",
        ),
    ),
    Mutant(
        "breaker",
        "at its end nobody misses an objective that was kept",
        TRIAL,
        "if counted_now > 0.0 and counted <= 0.0:",
        "if False:",
        (_OF_TRIAL + "no_gain_of_others_makes_up_for_a_class_that_kept_its_objective",),
    ),
    Mutant(
        "breaker",
        "at its end not knowing is no good word",
        TRIAL,
        "if missed is None or name not in classes or _answers_less(then, now):",
        "if missed is None:\n            continue\n        if name not in classes or _answers_less(then, now):",
        (_OF_TRIAL + "what_is_not_known_is_no_good_word",),
    ),
    Mutant(
        "breaker",
        "at its end only of the lost a few requests will do",
        TRIAL,
        "return (missed, max(missed, missed_now)) if is_lost else None",
        "return missed, max(missed, missed_now)",
        (
            _OF_TRIAL + "too_few_requests_are_not_known",
            _OF_TRIAL + "of_a_class_that_was_lost_a_few_will_do_but_not_none",
        ),
    ),
    Mutant(
        "breaker",
        "at its end a few requests of the lost gain nothing",
        TRIAL,
        "return (missed, max(missed, missed_now)) if is_lost else None",
        "return (missed, missed_now) if is_lost else None",
        (_OF_TRIAL + "what_a_few_requests_of_the_lost_gain_makes_up_for_nothing",),
    ),
    Mutant(
        "breaker",
        "at its end the looks are of the same pods",
        TRIAL,
        "if not are_comparable(before, after):",
        "if False:",
        (_OF_TRIAL + "fewer_pods_or_fewer_that_answer_prove_nothing",),
    ),
    Mutant(
        "breaker",
        "at its end no less is answered than half",
        TRIAL,
        "or rate_now < _ANSWERED_RATIO * rate",
        "",
        (_OF_TRIAL + "less_than_half_of_what_was_answered_is_another_load",),
    ),
    Mutant(
        "breaker",
        "at its end somebody must be known",
        TRIAL,
        "return is_known and all(",
        "return all(",
        (_OF_TRIAL + "without_anybody_who_is_known_there_is_nothing_to_go_by",),
    ),
    Mutant(
        "breaker",
        "it stays open over a restart",
        AFTERMATH,
        "opened_at = None if past.opened is None else now - past.opened",
        "opened_at = None",
        (_OF_RESTARTS + "half_open_it_tries_one_change_however_long_ago_it_opened",),
    ),
    Mutant(
        "breaker",
        "a start while it is half open takes all back",
        AFTERMATH,
        'if self.breaker.state(now) == "half_open":',
        "if False:",
        (_OF_RESTARTS + "killed_with_a_change_under_trial_it_takes_that_back_and_tries_another_one",),
    ),
    Mutant(
        "breaker",
        "a change under trial that is not in force proves nothing",
        AFTERMATH,
        "if self._trial is not None and self._trial.is_undone_in(state):",
        "if False:",
        (_OF_HALF_OPEN + "weights_that_are_no_longer_those_of_the_change_prove_nothing_about_it",),
    ),
    Mutant(
        "breaker",
        "a trial that was taken back costs a cool-down",
        AFTERMATH,
        "if trial is not None and trial.applied:",
        "if False:",
        (
            _OF_HALF_OPEN + "an_operator_who_takes_the_weights_back_ends_the_trial_without_a_second_one",
            _OF_HALF_OPEN + "originals_that_returned_by_themselves_end_the_trial_without_a_second_one",
        ),
    ),
    Mutant(
        "excuses",
        "lost: only a class that missed nearly everything before",
        EXCUSES,
        "return (_over_ratio(name, before) or 0.0) > lost_ratio",
        "return True",
        (
            _OF_EXCUSES + "a_class_of_which_nearly_every_request_was_over_before_was_lost",
            _OF_ROLLBACKS + "by_default_what_is_lost_on_a_class_is_not_given_back_to_it",
            _STARVED + "whatever_the_others_show",
        ),
    ),
    Mutant(
        "excuses",
        "given more: only a larger part",
        EXCUSES,
        "return name in _given(before, after)",
        "return True",
        (
            _OF_EXCUSES + "the_same_part_or_hardly_more_is_not_more",
            _OF_ROLLBACKS + "what_a_class_was_given_is_not_taken_back_for_its_load",
            _STARVED + "whatever_the_others_show",
        ),
    ),
    Mutant(
        "excuses",
        "given more: only among the same pods, of known weights",
        EXCUSES,
        "if not are_comparable(before, after):",
        "if False:",
        (
            _OF_EXCUSES + "the_part_that_another_class_left_behind_was_not_given",
            _OF_EXCUSES + "the_part_of_more_pods_is_not_more_for_each",
            _OF_EXCUSES + "nothing_is_known_to_be_more_where_one_weight_is_not_known",
        ),
    ),
    Mutant(
        "excuses",
        "yielded: only to a more important class",
        EXCUSES,
        "importance > own and",
        "importance and",
        (
            _OF_EXCUSES + "nobody_yields_to_one_that_is_not_more_important",
            _STARVED + "whatever_the_others_show",
            _STARVED_BUT + "but_for_a_more_important_one_in_need_that_gets_half",
        ),
    ),
    Mutant(
        "excuses",
        "yielded: only to one in need",
        EXCUSES,
        " and (_over_ratio(other, before) or 0.0) > _IN_NEED_RATIO",
        "",
        (
            _OF_EXCUSES + "nobody_yields_to_one_that_is_not_in_need",
            _STARVED_BUT + "but_for_a_more_important_one_in_need_that_gets_half",
        ),
    ),
    Mutant(
        "excuses",
        "yielded: only what those in need got",
        EXCUSES,
        "return received > 0.0 and received >= _PASSED_ON_RATIO * lost",
        "return received > 0.0",
        (
            _OF_EXCUSES + "what_goes_elsewhere_under_the_cover_of_one_in_need_is_no_yielding",
            _STARVED_BUT + "but_for_a_more_important_one_in_need_that_gets_half",
        ),
    ),
    Mutant(
        "excuses",
        "good trade: never a class that kept its objective",
        EXCUSES,
        "over_before is None or over_before <= spec.violation_target_ratio",
        "over_before is None",
        (
            _OF_EXCUSES + "a_class_that_kept_its_objective_or_may_have_is_never_traded_away",
            _OF_EXCUSES + "a_trade_does_not_excuse_one_that_kept_its_objective_beside_one_that_did_not",
            _STARVED + "whatever_the_others_show",
        ),
    ),
    Mutant(
        "excuses",
        "good trade: clearly less is missed",
        EXCUSES,
        "return sums[1] < sums[0] - _CLEARLY_LESS",
        "return True",
        (
            _OF_EXCUSES + "clearly_fewer_misses_of_all_together_by_importance_are_a_good_trade",
            _OF_EXCUSES + "a_good_trade_is_not_taken_back_and_a_bad_one_is",
        ),
    ),
    Mutant(
        "excuses",
        "good trade: nobody falls silent",
        EXCUSES,
        """if over_now is None:
            return False""",
        """if over_now is None:
            continue""",
        (_OF_EXCUSES + "who_is_starved_of_all_answers_makes_no_good_trade",),
    ),
    Mutant(
        "excuses",
        "good trade: no class that pressure judges",
        EXCUSES,
        'if any(seen.judged_by == "pressure" for seen in looks):',
        "if False:",
        (_OF_EXCUSES + "misses_of_a_class_that_pressure_judges_are_not_counted_in_requests",),
    ),
    Mutant(
        "excuses",
        "a canary excuses by nothing but having been lost",
        EXCUSES,
        "if not self.node_wide:",
        "if False:",
        (
            _OF_EXCUSES + "what_a_class_yields_is_not_given_back",
            _OF_ROLLBACKS + "in_a_canary_the_weights_of_the_class_excuse_nothing",
        ),
    ),
    Mutant(
        "excuses",
        "the guard says when it is a canary",
        AFTERMATH,
        "node_wide=cycle.verdict is not None and cycle.verdict.canary_ratio is None",
        "node_wide=True",
        (_OF_ROLLBACKS + "in_a_canary_the_weights_of_the_class_excuse_nothing",),
    ),
    Mutant(
        "excuses",
        "an excuse is no good word for the change",
        REGRESSION,
        """excuses.find(name, before, after) is not None:
                evidence = "unknown\"""",
        """excuses.find(name, before, after) is not None:
                evidence = "keep\"""",
        (
            _OF_EXCUSES + "what_a_lost_class_loses_is_unknown_and_never_good",
            _STARVED_BUT + "but_for_a_more_important_one_in_need_that_gets_half",
        ),
    ),
    Mutant(
        "orders",
        "guard: to stand still is obeyed when it is heard",
        MODE_ORDERS,
        """if command.mode in STANDS_STILL:
            self._remember""",
        """if False:
            self._remember""",
        (_OF_ORDERS + "an_order_to_stand_still_is_obeyed_though_the_store_is_full",),
    ),
    Mutant(
        "orders",
        "guard: to move is obeyed when it is stored",
        MODE_ORDERS,
        "if not await self._obey_if_stored(command, stop):",
        'self._change_to(command, "mode_changed")\n        if not await self._obey_if_stored(command, stop):',
        (
            _OF_ORDERS + "an_order_to_move_is_obeyed_when_it_is_stored_and_not_before",
            _OF_ORDERS + "an_order_to_move_that_is_never_stored_is_never_obeyed",
            _OF_ORDERS + "an_order_to_move_under_a_message_id_that_keeps_it_out_of_the_store_is_not_obeyed",
        ),
    ),
    Mutant(
        "orders",
        "guard: no order to move lifts a later stop",
        MODE_ORDERS,
        "elif self._stop is stop:",
        "else:",
        (_OF_ORDERS + "an_order_to_move_that_is_stored_late_does_not_lift_a_stop_that_came_after_it",),
    ),
    Mutant(
        "orders",
        "guard: a stop that was not stored holds as well",
        MODE_ORDERS,
        "if held is None or (self._stop is not None and held[0].mode not in STANDS_STILL):",
        "if held is None:",
        (_OF_ORDERS + "a_stop_that_was_never_stored_is_not_lifted_by_an_older_order_that_was",),
    ),
    Mutant(
        "orders",
        "guard: no order is heard twice",
        MODE_ORDERS,
        "if key_of(command) in self._known:",
        "if False:",
        (_OF_ORDERS + "a_freeze_that_is_replayed_after_a_thaw_is_dropped",),
    ),
    Mutant(
        "orders",
        "guard: no order counts twice in the stream",
        MODE_ORDER,
        """if key_of(order) in known:
        return "duplicate\"""",
        """if False:
        return "duplicate\"""",
        (
            _OF_ORDER + "an_order_that_is_stored_again_under_its_id_is_a_replay_and_does_not_count",
            _OF_ORDERS + "what_was_replayed_does_not_hold_after_a_restart_either",
        ),
    ),
    Mutant(
        "orders",
        "guard: no old order lets weights move",
        MODE_ORDER,
        "if skew_seconds > max_skew_seconds:",
        "if False:",
        (
            _OF_ORDER + "an_old_order_to_move_under_a_new_id_is_stale",
            _OF_ORDERS + "an_order_to_move_with_another_time_is_dropped_and_counted",
        ),
    ),
    Mutant(
        "orders",
        "guard: no order from the future lets weights move",
        MODE_ORDER,
        'return "future" if skew_seconds < -max_skew_seconds else None',
        "return None",
        (
            _OF_ORDER + "an_order_to_move_from_the_future_does_not_count",
            _OF_ORDERS + "an_order_to_move_with_another_time_is_dropped_and_counted",
        ),
    ),
    Mutant(
        "orders",
        "guard: a stop counts whatever its time is",
        MODE_ORDER,
        "if order.mode in STANDS_STILL:",
        "if False:",
        (_OF_ORDER + "an_order_to_stand_still_is_never_too_old_nor_too_early",),
    ),
    Mutant(
        "orders",
        "guard: what holds is said again",
        MODE_ORDERS,
        "if self._since >= _AGAIN_AFTER:",
        "if False:",
        (
            _OF_ORDERS + "an_order_is_said_again_before_it_is_too_far_back_to_be_found",
            _OF_ORDERS + "after_the_order_itself_is_gone_what_was_said_again_holds",
        ),
    ),
    Mutant(
        "orders",
        "guard: what is found far back is said again at once",
        MODE_ORDERS,
        """"mode_taken_up")
        await self._say_again_in_time(orders)""",
        '"mode_taken_up")',
        (_OF_ORDERS + "an_order_found_far_back_at_start_is_said_again_at_once",),
    ),
    Mutant(
        "orders",
        "guard: what a flood pushed out is said from memory",
        MODE_ORDERS,
        "in_force(orders, self._max_skew_seconds) or self._known_to_hold()",
        "in_force(orders, self._max_skew_seconds)",
        (_OF_GIVEN_BACK + "a_stop_that_a_flood_pushed_out_before_it_was_said_again_is_said_again_from_memory",),
    ),
    Mutant(
        "orders",
        "guard: what was not heard in a flood is found",
        MODE_ORDERS,
        'self._obey_stored(orders, "mode_changed", heard=0)',
        "pass",
        (_OF_GIVEN_BACK + "a_stop_that_was_not_heard_in_a_flood_is_found_in_the_stream",),
    ),
    Mutant(
        "orders",
        "guard: what a server has lost is given back to it",
        MODE_ORDERS,
        "self._start(self._give_back())",
        "pass",
        (
            _OF_GIVEN_BACK + "a_stop_that_a_full_store_did_not_take_is_stored_when_there_is_room_again",
            _OF_GIVEN_BACK + "a_server_that_lost_its_store_is_told_what_holds",
        ),
    ),
    Mutant(
        "orders",
        "guard: what is said again lifts nothing",
        MODE_ORDER,
        "if held is None and refusal(",
        "if None is refusal(",
        (_OF_ORDER + "what_is_said_again_never_counts_against_an_order_that_came_between",),
    ),
    Mutant(
        "orders",
        "guard: an old word that comes again lets nothing move",
        MODE_ORDER,
        "if held is None and refusal(order, stored_ns, (), max_skew_seconds) is None:",
        "if held is None:",
        (_OF_ORDER + "an_old_word_that_comes_again_lets_nothing_move",),
    ),
    Mutant(
        "orders",
        "guard: rubbish in the stream hides no order",
        MESSENGER,
        "if len(whole) >= limit or len(found) < asked or asked >= _MOST_STORED:",
        "if True:",
        (
            _OF_ORDERS + "rubbish_hides_no_freeze_from_the_next_guard",
            _OF_MESSENGER + "rubbish_and_other_nodes_messages_hide_nothing_that_lies_behind_them",
        ),
    ),
    Mutant(
        "orders",
        "guard: rubbish pushes no order out",
        MODE_ORDERS,
        """        self._since += 1
        if self._since >= _AGAIN_AFTER:""",
        """        self._since += 1
        if False:""",
        (_OF_ORDERS + "rubbish_on_the_orders_subject_makes_the_guard_say_again_what_holds",),
    ),
    Mutant(
        "orders",
        "guard: no order for another node is taken up",
        MESSENGER,
        "return message if message.node == self.node else",
        "return message if True else",
        (_OF_ORDERS + "an_order_for_another_node_on_this_nodes_subject_is_not_taken_up",),
    ),
    Mutant(
        "orders",
        "guard: nobody else says again",
        MODE_ORDER,
        "return order.by == _BY and _AGAIN_ID",
        "return _AGAIN_ID",
        (_OF_ORDER + "nobody_but_the_guard_says_again",),
    ),
    Mutant(
        "orders",
        "actuator: no order is obeyed twice",
        ACTUATOR,
        "if key in self._heard:",
        "if False:",
        (
            _OF_WAYS_BACK + "an_order_to_restore_that_is_replayed_is_dropped_and_counted",
            _OF_WAYS_BACK + "a_rollback_is_done_once",
        ),
    ),
    Mutant(
        "orders",
        "actuator: what the guard says again lifts no stop",
        ACTUATOR,
        'if command.verb == "mode" and command.by == "guard":',
        "if False:",
        (_OF_WAYS_BACK + "what_the_guard_says_again_lifts_no_stop_that_the_guard_has_missed",),
    ),
)


def find(root: Path, mutant: Mutant) -> Path | None:
    """The one file in which the mutant's place is, exactly once; None if there is none, or more than one place."""
    where = root / mutant.where
    files = sorted(where.rglob("*.py")) if where.is_dir() else [where]
    counts = {file: file.read_text(encoding="utf-8").count(mutant.old) for file in files if file.is_file()}
    return next((file for file, count in counts.items() if count), None) if sum(counts.values()) == 1 else None


def run_tests(root: Path, tests: Sequence[str]) -> tuple[set[str], str]:
    """The tests that failed, without parameters, and what pytest said if it could not run them all."""
    # What was compiled from the text before may be of the same second and size as the text now.
    env = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "1000"}
    options = ("-q", "--tb=no", "-rfE", "-p", "no:cacheprovider", "--no-header")
    command = (sys.executable, "-m", "pytest", *options, *tests)
    try:
        ran = subprocess.run(
            command, cwd=root, env=env, capture_output=True, text=True, timeout=SECONDS + 5 * len(tests), check=False
        )
    except subprocess.TimeoutExpired:
        return set(), "hangs"
    failed = {name.partition("[")[0] for name in re.findall(r"^FAILED (\S+?::\w+)", ran.stdout, re.MULTILINE)}
    if ran.returncode not in (0, 1) or re.search(r"^ERROR ", ran.stdout, re.MULTILINE):
        return failed, (ran.stdout + ran.stderr).strip()[-1000:] or f"pytest ended with {ran.returncode}"
    return failed, ""


def try_out(root: Path, mutant: Mutant) -> tuple[str, str, bool]:
    """Where it was, what broke, and whether all of what must break did. The copy is as before afterwards."""
    place = find(root, mutant)
    if place is None:
        return mutant.where, "its place is not there exactly once", False
    text = place.read_text(encoding="utf-8")
    line = text[: text.index(mutant.old)].count("\n") + 1
    where = f"{place.relative_to(root)}:{line}"
    place.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        failed, trouble = run_tests(root, mutant.tests)
    finally:
        place.write_text(text, encoding="utf-8")
    alive = [test for test in mutant.tests if test not in failed]
    if trouble:
        return where, trouble, False
    if alive:
        return where, f"SURVIVES {', '.join(_short(test) for test in alive)}", False
    return where, ", ".join(_short(test) for test in mutant.tests), True


def main(wanted: Sequence[str]) -> int:
    """Tries all mutants that are wanted; 0 if every one was caught."""
    chosen = [mutant for mutant in MUTANTS if not wanted or any(text in str(mutant) for text in wanted)]
    if not chosen:
        _say(f"no mutant has {' or '.join(wanted)} in its text; see MUTANTS in tests/mutants.py", sys.stderr)
        return 2
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trimtab-mutants-") as folder:
        root = Path(folder)
        for name in (*CODE, "tests", "deploy"):
            shutil.copytree(REPOSITORY / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(REPOSITORY / "pyproject.toml", root)
        failed, trouble = run_tests(root, sorted({test for mutant in chosen for test in mutant.tests}))
        if failed or trouble:
            _say(f"without any mutant: {', '.join(sorted(failed))} {trouble}", sys.stderr)
            return 1
        _say(f"{'':7}  {'what is removed':57}  {'where':45}  test that broke")
        caught = 0
        for mutant in chosen:
            where, what, is_caught = try_out(root, mutant)
            caught += is_caught
            _say(f"{mutant.invariant:7}  {mutant.removes:57}  {where:45}  {what}")
    _say(f"{caught} of {len(chosen)} mutants caught in {time.monotonic() - started:.0f} s", sys.stderr)
    return 0 if caught == len(chosen) else 1


def _say(line: str, where: TextIO | None = None) -> None:
    print(line, file=where, flush=True)  # the table is data on stdout, the rest is talk on stderr


def _short(test: str) -> str:
    return test.partition("::")[2]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
