"""A search over ideas: the best of a depth are what the ideas of the next one begin with.

All that it knows is on the board: what was tried, on which idea it was tried, and what it measured. A run
that died goes on where it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, NamedTuple

from pydantic import Field

from liza.domain.metric_gate import Grade, MetricKind, MetricRule, grade_metrics, improvement
from liza.domain.record import Record

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
