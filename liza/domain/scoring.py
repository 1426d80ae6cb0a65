"""The score of an idea: its results beside those of the baseline, with a note where there is none."""

from __future__ import annotations

from typing import NamedTuple

from liza.domain.config import AtLeastOne
from liza.domain.measurement import columns_of, score_in_file
from liza.domain.record import NonEmptyStr, Record


class ScoreColumn(Record):
    """Which number counts, and which way is better."""

    column: NonEmptyStr
    higher_is_better: bool = True
    first_configurations: AtLeastOne | None = None  # of both files; without it, all


class ResultsFile(NamedTuple):
    """A file of results, or why there is none."""

    name: str
    data: bytes | None
    why: str = ""


class Score(Record):
    """How much better than the baseline; where *score* is None, *note* says why."""

    column: NonEmptyStr
    score: float | None = None
    baseline_mean: float | None = None
    candidate_mean: float | None = None
    delta: float | None = None
    baseline_columns: tuple[str, ...] = ()
    candidate_columns: tuple[str, ...] = ()
    note: str | None = None


def score_against(wanted: ScoreColumn, *, baseline: ResultsFile, candidate: ResultsFile) -> Score:
    """Return the mean of the candidate minus that of the baseline, with the sign that makes more better."""
    means, notes = [], []
    for whose, file in (("baseline", baseline), ("candidate", candidate)):
        if file.data is None:
            notes.append(f"the {whose} {file.name} {file.why}")
            continue
        found = score_in_file(file.name, file.data, wanted.column, wanted.first_configurations)
        means.append(found.value)
        if found.value is None:
            notes.append(f"the {whose}: {found.why}")
    if notes:
        return Score(
            column=wanted.column,
            baseline_columns=columns_of(baseline.data or b""),
            candidate_columns=columns_of(candidate.data or b""),
            note="; ".join(notes),
        )
    base, mean = (value for value in means if value is not None)
    delta = mean - base
    score = delta if wanted.higher_is_better else -delta
    return Score(column=wanted.column, score=score, baseline_mean=base, candidate_mean=mean, delta=delta)
