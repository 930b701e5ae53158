"""The rules of step 6, one a module. Each prevents one thing and says so in its first line.

A rule gets the proposal and the situation and answers None (no objection) or a Finding.
"""

from services.guard.core.rules.bounds import Bounds
from services.guard.core.rules.budget import Budget
from services.guard.core.rules.canary import Canary
from services.guard.core.rules.class_rate import ClassRate
from services.guard.core.rules.contention import Contention
from services.guard.core.rules.freshness import Freshness
from services.guard.core.rules.frozen import Frozen
from services.guard.core.rules.hold import Proposed
from services.guard.core.rules.judgement import ALWAYS_ENFORCED, RULES, WATCHABLE, Judgement, judge, replace_weights
from services.guard.core.rules.known_classes import KnownClasses
from services.guard.core.rules.known_profile import KnownProfile
from services.guard.core.rules.max_step import MaxStep, toward
from services.guard.core.rules.min_share import MinShare
from services.guard.core.rules.present_classes import PresentClasses
from services.guard.core.rules.rate import Rate
from services.guard.core.rules.situation import Finding, Rule, Situation
from services.guard.core.rules.unchanged import Unchanged, changed
from services.guard.core.rules.writable import Writable

__all__ = [
    "ALWAYS_ENFORCED",
    "RULES",
    "WATCHABLE",
    "Bounds",
    "Budget",
    "Canary",
    "ClassRate",
    "Contention",
    "Finding",
    "Freshness",
    "Frozen",
    "Judgement",
    "KnownClasses",
    "KnownProfile",
    "MaxStep",
    "MinShare",
    "PresentClasses",
    "Proposed",
    "Rate",
    "Rule",
    "Situation",
    "Unchanged",
    "Writable",
    "changed",
    "judge",
    "replace_weights",
    "toward",
]
