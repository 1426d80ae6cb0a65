"""The ideas that were tried, ranked by score, with what several metrics say and the patch to apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from liza.daemon.experiment_files import read_summaries
from liza.daemon.idea_outcome import EXPERIMENTS, means_in
from liza.domain.experiment_config import grade_metrics
from liza.domain.ideas import RESULTS, rank_ideas
from liza.gates.score import read_baseline, read_results_file

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.experiment_config import ExperimentConfig, MetricResult
    from liza.domain.ideas import IdeaRow

LONGEST_TITLE = 40  # characters of an idea in the table


class GradedIdea(NamedTuple):
    row: IdeaRow
    grade: MetricResult | None = None  # where the settings name metrics, and it has results

    def to_json(self) -> dict[str, Any]:
        row = self.row._asdict()
        if self.grade is None:
            return row
        return {**row, "grade": self.grade.grade, "should_explore": self.grade.should_explore}


def graded_ideas(home: Path, settings: ExperimentConfig) -> tuple[GradedIdea, ...]:
    """Return every idea that was tried, the best score first."""
    rows = rank_ideas(read_summaries(home / EXPERIMENTS))
    return tuple(GradedIdea(row, _grade(home, settings, row)) for row in rows)


def _grade(home: Path, settings: ExperimentConfig, row: IdeaRow) -> MetricResult | None:
    if not settings.metrics or row.score is None or settings.baseline is None:
        return None
    found = read_results_file(home / EXPERIMENTS / row.run_id / RESULTS)
    means = [means_in(settings, file) for file in (read_baseline(home.parent / settings.baseline), found)]
    return grade_metrics(settings.metrics, means[0], means[1])


def experiment_text(home: Path, ideas: tuple[GradedIdea, ...]) -> str:
    if not ideas:
        return "No idea was tried yet; `liza run` tries them."
    rows = [("", "score", "idea", "grade", "end"), *(_cells(idea) for idea in ideas)]
    shown = [row for row in zip(*rows, strict=True) if any(row[1:])]
    widths = [max(map(len, column)) for column in shown]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in zip(*shown, strict=True)
    ]
    best = next((idea.row for idea in ideas if idea.row.patch and idea.row.rank), None)
    if best:
        path = f"{home.name}/{EXPERIMENTS}/{best.patch}"
        lines += ["", f"Nothing was merged. The best one: git apply {path}"]
    return "\n".join(lines)


def _cells(idea: GradedIdea) -> tuple[str, ...]:
    row = idea.row
    title = " ".join(row.title.split())
    title = title if len(title) <= LONGEST_TITLE else f"{title[: LONGEST_TITLE - 1].rstrip()}…"
    return (
        str(row.rank or ""),
        "" if row.score is None else f"{row.score:+g}",
        title,
        str(idea.grade.grade) if idea.grade else "",
        f"{' '.join(row.end.split())}  {EXPERIMENTS}/{row.run_id}",
    )
