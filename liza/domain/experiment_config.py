"""What experiments are told: the ideas, the sweep that measures them, the baseline to beat."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

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
        return self
