"""A search over ideas: the best of a depth are what the ideas of the next one begin with.

The manifest is all that the search knows. It is written after every step, so that a run which died goes on
where it was: what was being tried is tried again, what was measured is not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from liza.domain.config import AtLeastOne, Count
from liza.domain.ideas import new_ideas
from liza.domain.metric_gate import Grade, MetricKind, MetricRule, grade_metrics, improvement
from liza.domain.record import Commit, Id, NonEmptyStr, Record
from liza.errors import UsageError

ROOT: Final = "root"
Figure = Annotated[float, Field(allow_inf_nan=False)]


class BeamSettings(Record):
    metrics: Annotated[tuple[MetricRule, ...], Field(min_length=1)]
    ideas_per_node: AtLeastOne = 7
    width: AtLeastOne = 1
    depth: AtLeastOne = 3
    evaluations: AtLeastOne | None = None  # in all
    retries: Count = 1


class BeamNode(Record):
    """A commit that ideas begin with, and its own figures, which are the baseline of these ideas."""

    id: Id
    commit: Commit
    depth: Count
    figures: Mapping[str, Figure]
    has_ideas: bool = False


class EvaluationStatus(StrEnum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class Evaluation(Record):
    """One idea on one node."""

    id: Id
    node: Id
    idea: NonEmptyStr
    status: EvaluationStatus = EvaluationStatus.WAITING
    attempts: Count = 0
    commit: Commit | None = None
    figures: Mapping[str, Figure] = Field(default_factory=dict)
    is_complete: bool = True  # every row of the results is there
    problem: str | None = None

    @property
    def is_open(self) -> bool:
        return self.status in {EvaluationStatus.WAITING, EvaluationStatus.RUNNING}


class BeamManifest(Record):
    settings: BeamSettings
    nodes: tuple[BeamNode, ...]
    evaluations: tuple[Evaluation, ...] = ()
    ended: str | None = None  # why there is no further depth

    @property
    def depth(self) -> int:
        return self.nodes[-1].depth

    @property
    def frontier(self) -> tuple[BeamNode, ...]:
        """The nodes of the current depth."""
        return tuple(node for node in self.nodes if node.depth == self.depth)

    def node(self, name: str) -> BeamNode:
        return next(node for node in self.nodes if node.id == name)


def begin_search(settings: BeamSettings, commit: str, figures: Mapping[str, float]) -> BeamManifest:
    missing = [rule.column for rule in settings.metrics if rule.column not in figures]
    if missing:
        raise UsageError(f"the baseline has no column {missing[0]}; measure it, or leave the metric out")
    return BeamManifest(
        settings=settings, nodes=(BeamNode(id=ROOT, commit=commit, depth=0, figures=figures),)
    )


def resume_search(manifest: BeamManifest) -> BeamManifest:
    """Return *manifest* as a run takes it over from a dead one: what was running waits again."""
    return manifest.replace(
        evaluations=tuple(
            one.replace(status=EvaluationStatus.WAITING) if one.status is EvaluationStatus.RUNNING else one
            for one in manifest.evaluations
        )
    )


def nodes_without_ideas(manifest: BeamManifest) -> tuple[BeamNode, ...]:
    if manifest.ended is not None:
        return ()
    return tuple(node for node in manifest.frontier if not node.has_ideas)


def with_ideas(manifest: BeamManifest, node: str, ideas: tuple[str, ...]) -> BeamManifest:
    """Return *manifest* with what is new of *ideas* to be tried on *node*, as many as the settings allow."""
    settings, known = manifest.settings, manifest.evaluations
    fresh = new_ideas(ideas, (one.idea for one in known))[: settings.ideas_per_node]
    if settings.evaluations is not None:
        fresh = fresh[: max(0, settings.evaluations - len(known))]
    added = tuple(
        Evaluation(id=f"{node}.{number}", node=node, idea=idea) for number, idea in enumerate(fresh, start=1)
    )
    nodes = tuple(one.replace(has_ideas=True) if one.id == node else one for one in manifest.nodes)
    return manifest.replace(nodes=nodes, evaluations=(*known, *added))


def next_evaluations(manifest: BeamManifest, most: int) -> tuple[Evaluation, ...]:
    """Return what to try now, so that at most *most* run at once."""
    running = sum(one.status is EvaluationStatus.RUNNING for one in manifest.evaluations)
    waiting = [one for one in manifest.evaluations if one.status is EvaluationStatus.WAITING]
    return tuple(waiting[: max(0, most - running)])


def with_started(manifest: BeamManifest, name: str) -> BeamManifest:
    return _with_evaluation(
        manifest,
        name,
        lambda one: one.replace(status=EvaluationStatus.RUNNING, attempts=one.attempts + 1),
    )


def with_figures(
    manifest: BeamManifest, name: str, commit: str, figures: Mapping[str, float], *, is_complete: bool
) -> BeamManifest:
    done = {"status": EvaluationStatus.DONE, "commit": commit, "figures": figures, "is_complete": is_complete}
    return _with_evaluation(manifest, name, lambda one: one.replace(**done))


def with_failure(manifest: BeamManifest, name: str, problem: str) -> BeamManifest:
    """Return *manifest* after a try that failed: it is tried again as often as the settings say."""

    def fail(one: Evaluation) -> Evaluation:
        is_over = one.attempts > manifest.settings.retries
        status = EvaluationStatus.FAILED if is_over else EvaluationStatus.WAITING
        return one.replace(status=status, problem=problem)

    return _with_evaluation(manifest, name, fail)


def _with_evaluation(
    manifest: BeamManifest, name: str, change: Callable[[Evaluation], Evaluation]
) -> BeamManifest:
    return manifest.replace(
        evaluations=tuple(change(one) if one.id == name else one for one in manifest.evaluations)
    )


class RankedIdea(NamedTuple):
    evaluation: Evaluation
    score: float  # beside the root
    grade: Grade
    is_promoted: bool


def rank_evaluations(manifest: BeamManifest) -> tuple[RankedIdea, ...]:
    """Return everything that was measured, the best beside the root first."""
    root = manifest.node(ROOT)
    ranked = []
    for one in manifest.evaluations:
        if one.status is EvaluationStatus.DONE:
            beside_root = grade_metrics(manifest.settings.metrics, root.figures, one.figures)
            ranked.append(RankedIdea(one, beside_root.score, beside_root.grade, may_promote(manifest, one)))
    return tuple(sorted(ranked, key=lambda idea: (-idea.score, idea.evaluation.id)))


def may_promote(manifest: BeamManifest, one: Evaluation) -> bool:
    """Return whether ideas may begin with *one*: complete, not worse than its parent, and worth it."""
    parent, rules = manifest.node(one.node), manifest.settings.metrics
    beside_parent = grade_metrics(rules, parent.figures, one.figures)
    primary = [rule for rule in rules if rule.kind is MetricKind.PRIMARY] or [rules[0]]
    is_not_worse = all(
        rule.column in one.figures
        and improvement(rule, parent.figures[rule.column], one.figures[rule.column]) >= 0
        for rule in primary
    )
    is_worth_it = beside_parent.should_explore or beside_parent.grade is Grade.MIXED
    return one.is_complete and not beside_parent.missing and is_not_worse and is_worth_it


def advance_search(manifest: BeamManifest) -> BeamManifest:
    """Return *manifest* one depth further, once all of this depth was tried; else as it is."""
    if manifest.ended is not None or nodes_without_ideas(manifest):
        return manifest
    if any(one.is_open for one in manifest.evaluations):
        return manifest
    here = {node.id for node in manifest.frontier}
    ranked = [
        idea for idea in rank_evaluations(manifest) if idea.evaluation.node in here and idea.is_promoted
    ]
    if not ranked:
        return manifest.replace(ended="no idea of this depth is worth to go on with")
    settings = manifest.settings
    if manifest.depth + 1 >= settings.depth:
        return manifest.replace(ended=f"the depth of {settings.depth} is reached")
    if settings.evaluations is not None and len(manifest.evaluations) >= settings.evaluations:
        return manifest.replace(ended=f"{settings.evaluations} ideas were tried")
    best = (idea.evaluation for idea in ranked[: settings.width])
    nodes = tuple(
        BeamNode(id=one.id, commit=one.commit, depth=manifest.depth + 1, figures=one.figures)
        for one in best
        if one.commit is not None
    )
    return manifest.replace(nodes=(*manifest.nodes, *nodes))
