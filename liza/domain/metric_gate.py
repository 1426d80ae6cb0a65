"""Several metrics at once: how much better a candidate is in all, its grade, and whether to go on with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from liza.domain.record import NonEmptyStr, Record

CLAMP: Final = 2.0  # the most that one metric counts: twice as good, or worse
WORST_PRIMARY: Final = -0.05  # relative; a primary metric that is worse by more ends it
WORST_RISK: Final = -0.10  # relative, of a risk metric
ENOUGH: Final = 0.03  # the score from which on it is worth to go on
FEWEST_BETTER: Final = (
    2  # metrics that are better, and by how many more than worse ones, where the score is low
)


class MetricKind(StrEnum):
    PRIMARY = "primary"
    RISK = "risk"
    OTHER = "other"


class MetricRule(Record):
    column: NonEmptyStr
    kind: MetricKind = MetricKind.OTHER
    weight: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1.0
    higher_is_better: bool = True


class Grade(StrEnum):
    STRONG = "strong"
    PROMISING = "promising"
    MIXED = "mixed"
    WEAK = "weak"


GRADES: Final[tuple[tuple[float, Grade], ...]] = (
    (0.10, Grade.STRONG),
    (ENOUGH, Grade.PROMISING),
    (-0.02, Grade.MIXED),
)


class MetricResult(NamedTuple):
    score: float
    grade: Grade
    should_explore: bool
    improvements: Mapping[str, float]  # relative, by column
    missing: tuple[str, ...]  # columns that one of the two does not have


def grade_metrics(
    rules: Iterable[MetricRule], baseline: Mapping[str, float], candidate: Mapping[str, float]
) -> MetricResult:
    """Compare *candidate* with *baseline*; a metric that one of them lacks counts for nothing."""
    known = tuple(rules)
    there = [rule for rule in known if rule.column in baseline and rule.column in candidate]
    better = {rule.column: improvement(rule, baseline[rule.column], candidate[rule.column]) for rule in there}
    weight = sum(rule.weight for rule in there)
    score = sum(rule.weight * better[rule.column] for rule in there) / weight if weight else 0.0
    missing = tuple(rule.column for rule in known if rule not in there)
    return MetricResult(score, _grade(score), _is_worth_exploring(there, better, score), better, missing)


def improvement(rule: MetricRule, baseline: float, candidate: float) -> float:
    """Return by how much of the baseline the candidate is better, from -2 to 2."""
    delta = candidate - baseline if rule.higher_is_better else baseline - candidate
    if delta == 0:
        return 0.0
    relative = delta / abs(baseline) if baseline else delta * float("inf")
    return max(-CLAMP, min(CLAMP, relative))


def _grade(score: float) -> Grade:
    return next((grade for least, grade in GRADES if score >= least), Grade.WEAK)


def _is_worth_exploring(rules: list[MetricRule], better: Mapping[str, float], score: float) -> bool:
    worst = {MetricKind.PRIMARY: WORST_PRIMARY, MetricKind.RISK: WORST_RISK}
    if not rules or any(better[rule.column] < worst.get(rule.kind, -CLAMP) for rule in rules):
        return False
    positives = sum(value > 0 for value in better.values())
    negatives = sum(value < 0 for value in better.values())
    return score >= ENOUGH or positives >= max(FEWEST_BETTER, negatives + FEWEST_BETTER)
