"""What experiments are told: ideas, the sweep that measures them, metrics at once, a search in depth."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Annotated, Final, NamedTuple, Self

from pydantic import AfterValidator, Field, model_validator

from liza.domain.record import NonEmptyStr, Record

# Several metrics at once: how much better a candidate is in all, its grade, and whether to go on with it.

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
    return MetricResult(score, _grade(score), _is_worth_exploring(there, better, score), missing)


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


# A search over ideas: the best of a depth are what the ideas of the next one begin with.
#
# All that it knows is on the board: what was tried, on which idea it was tried, and what it measured. A run
# that died goes on where it was.

ROOT: Final = "root"  # what the first ideas begin with
AtLeastOne = Annotated[int, Field(ge=1)]
Figures = Mapping[str, float]


class SearchSettings(Record):
    """`experiment.search`: how wide, how deep, and how much in all."""

    ideas: AtLeastOne = 7  # that are tried on each of what is gone on with
    width: AtLeastOne = 1  # of a depth, that is gone on with
    depth: AtLeastOne = 3
    most: AtLeastOne | None = None  # ideas in all


class MeasuredIdea(NamedTuple):
    """An idea that was tried on another, or on the root."""

    id: str
    parent: str
    figures: Figures | None  # None where it has none, or nobody let it pass
    is_whole: bool = True  # every row of the results is there


class NextDepth(NamedTuple):
    """What the next ideas begin with, or why the search is over."""

    nodes: tuple[str, ...] = ()
    ended: str | None = None


class IdeaSearch(NamedTuple):
    settings: SearchSettings
    metrics: tuple[MetricRule, ...]
    root: Figures
    tried: Sequence[MeasuredIdea]

    def next_depth(self) -> NextDepth:
        """Return where to go on, once all of this depth was tried."""
        depths = self._depths()
        last = max(depths.values(), default=0)
        here = [one for one in self.tried if depths[one.id] == last and self.may_promote(one)]
        if not here:
            return NextDepth(ended="no idea of the last depth is worth to go on with")
        if last + 1 >= self.settings.depth:
            return NextDepth(ended=f"the depth of {self.settings.depth} is reached")
        if self.left() == 0:
            return NextDepth(ended=f"{len(self.tried)} ideas were tried")
        best = sorted(here, key=lambda one: (-self.score(one), one.id))
        return NextDepth(tuple(one.id for one in best[: self.settings.width]))

    def left(self) -> int | None:
        """Return how many more ideas may be tried; None where nothing limits it."""
        most = self.settings.most
        return None if most is None else max(0, most - len(self.tried))

    def score(self, one: MeasuredIdea) -> float:
        """Return by how much *one* is better than the root, in all metrics."""
        return grade_metrics(self.metrics, self.root, one.figures or {}).score

    def may_promote(self, one: MeasuredIdea) -> bool:
        """Return whether ideas may begin with *one*: whole, not worse than its parent, and worth it."""
        if one.figures is None or not one.is_whole:
            return False
        parent = self._figures_of(one.parent)
        beside_parent = grade_metrics(self.metrics, parent, one.figures)
        if beside_parent.missing:
            return False
        primary = [rule for rule in self.metrics if rule.kind is MetricKind.PRIMARY] or [self.metrics[0]]
        is_not_worse = all(
            improvement(rule, parent[rule.column], one.figures[rule.column]) >= 0 for rule in primary
        )
        return is_not_worse and (beside_parent.should_explore or beside_parent.grade is Grade.MIXED)

    def _figures_of(self, name: str) -> Figures:
        return self.root if name == ROOT else next(one.figures or {} for one in self.tried if one.id == name)

    def _depths(self) -> dict[str, int]:
        depths: dict[str, int] = {}
        for one in self.tried:  # a parent was tried before
            depths[one.id] = 0 if one.parent == ROOT else depths[one.parent] + 1
        return depths


SWEEP_PARTS = ("results", "column", "baseline")
OF_A_SWEEP = (*SWEEP_PARTS, "sweep_directory", "configurations")


def _check_inside(path: str) -> str:
    if path.startswith("/") or ".." in path.split("/"):
        raise ValueError(f"{path!r} leads out of the repository; give a path in it, as `results/sweep.csv`")
    return path


PathInRepository = Annotated[NonEmptyStr, AfterValidator(_check_inside)]


class ExperimentConfig(Record):
    """The section `experiment`; a path is one in the repository."""

    ideas: PathInRepository | None = None  # a file with one a paragraph, or a directory with one a file
    first: Annotated[int, Field(ge=1)] | None = None  # ideas that are tried; without it, all
    archive: bool = False  # the file of an idea of a directory goes to `completed/` once it was tried
    sweep: NonEmptyStr | None = None  # the command that measures
    sweep_directory: PathInRepository | None = None  # where it runs; without it, at the top
    test_directory: PathInRepository | None = None  # where `gates.test` runs for an idea
    results: PathInRepository | None = None  # the CSV or JSON that it writes
    column: NonEmptyStr | None = None  # of the CSV, or a dotted path of the JSON
    higher_is_better: bool = True
    baseline: PathInRepository | None = None  # `liza baseline refresh` writes it
    configurations: Annotated[int, Field(ge=1)] | None = None  # of a sweep; without it, all
    metrics: tuple[MetricRule, ...] = ()  # of the same results: they grade an idea beside its score
    search: SearchSettings | None = None  # the best of some ideas are what the next ones begin with
    review_rounds: Annotated[int, Field(ge=0)] = (
        0  # further rounds of a coder whose patch does not apply, or was rejected
    )
    converge: bool = False  # of these, a later review may insist on what the first said, and add nothing
    proceed_unapproved: bool = False  # what is rejected in its last round is scored all the same, and marked
    base_on_working_tree: bool = False  # worktrees have what is not committed in your checkout
    keep_worktrees: bool = False

    @model_validator(mode="after")
    def _refuse_half(self) -> Self:
        missing = [name for name in SWEEP_PARTS if getattr(self, name) is None]
        if self.sweep and missing:
            raise ValueError(f"a sweep needs {' and '.join(missing)} as well: no idea has a score without")
        idle = [name for name in OF_A_SWEEP if getattr(self, name) is not None]
        idle += [] if self.higher_is_better else ["higher_is_better"]
        if not self.sweep and idle:
            verb = "does" if len(idle) == 1 else "do"
            raise ValueError(
                f"{' and '.join(idle)} {verb} nothing without a sweep; name the command that measures"
            )
        if self.results is not None and self.results == self.baseline:
            raise ValueError("results and baseline are one file; a baseline that is overwritten is none")
        if self.search and not (self.sweep and self.metrics):
            raise ValueError("a search needs a sweep and metrics to rank ideas by; set both, or leave it out")
        if self.search and self.first is not None:
            raise ValueError("`first` does nothing in a search; say search.most instead")
        if self.metrics and not self.sweep:
            raise ValueError("metrics do nothing without a sweep; name the command that measures")
        if self.converge and not self.review_rounds:
            raise ValueError("converge does nothing without a second review; set review_rounds, as 2")
        return self
