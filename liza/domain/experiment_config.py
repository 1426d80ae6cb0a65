"""What experiments are told: the ideas, the sweep that measures them, the baseline to beat."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from liza.domain.beam_search import SearchSettings
from liza.domain.metric_gate import MetricRule
from liza.domain.record import NonEmptyStr, Record

SWEEP_PARTS = ("results", "column", "baseline")


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
        if not self.sweep and (idle := [name for name in SWEEP_PARTS if getattr(self, name) is not None]):
            raise ValueError(
                f"{' and '.join(idle)} do nothing without a sweep; name the command that measures"
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
