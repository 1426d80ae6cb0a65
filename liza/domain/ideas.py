"""Ideas to try: as people write them, their score beside the baseline, and what is left of each."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple

from liza.domain.config import AtLeastOne
from liza.domain.record import NonEmptyStr, Record
from liza.domain.similarity import normalize
from liza.errors import UsageError


class Idea(NamedTuple):
    text: str
    source: str  # the file that it is from

    @property
    def title(self) -> str:
        return self.text.splitlines()[0].strip()


def split_ideas(text: str, source: str) -> tuple[Idea, ...]:
    """Return the ideas of a file; blank lines separate them."""
    paragraphs = re.split(r"\n(?:[^\S\n]*\n)+", text.replace("\r\n", "\n"))
    found = tuple(Idea(part.strip(), source) for part in paragraphs if part.strip())
    if not found:
        raise UsageError(f"{source} has no idea in it; write one a paragraph, with a blank line between two")
    return found


def ideas_of_files(texts: Mapping[str, str], source: str) -> tuple[Idea, ...]:
    """Return the ideas of a directory, one a file, by name."""
    if not texts:
        raise UsageError(f"{source} has no idea in it; write one a file, such as {source}/01.md")
    for name, text in sorted(texts.items()):
        if not text.strip():
            raise UsageError(f"the idea {name} is blank; write it down, or remove the file")
    return tuple(Idea(text.strip(), name) for name, text in sorted(texts.items()))


def first_ideas(ideas: tuple[Idea, ...], count: int | None) -> tuple[Idea, ...]:
    """Return the first *count* ideas, or all; raise where there are fewer."""
    if count is None:
        return ideas
    if not 1 <= count <= len(ideas):
        said = "one idea" if len(ideas) == 1 else f"{len(ideas)} ideas"
        raise UsageError(
            f"{count} ideas are asked for, and {said} can be tried; choose from 1 to {len(ideas)}"
        )
    return ideas[:count]


def new_ideas(ideas: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    """Return *ideas* without blank ones and without those that say the same as another or as one *known*."""
    seen = {normalize(idea) for idea in known}
    found = []
    for idea in ideas:
        words = normalize(idea)
        if idea.strip() and words not in seen:
            seen.add(words)
            found.append(idea.strip())
    return tuple(found)


def run_id(at: datetime, index: int) -> str:
    """Return the name of the run of idea number *index*, from 1."""
    return f"{at:%Y%m%d_%H%M%S}_{index:02d}"


# Numbers out of what a command wrote or printed: a column of a CSV, a value of a JSON, a figure.

_FIGURE: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_NO_FIGURE: Final = r"[-+]?(?i:nan|inf(?:inity)?)\b"  # what programs print in its place


class Measurement(NamedTuple):
    """A number, with what was left out of it; or why there is none."""

    value: float | None
    why: str = ""


def score_in_file(path: str, data: bytes, column: str, first: int | None = None) -> Measurement:
    """Return the mean of a column of a CSV, or of what a dotted path finds in a JSON.

    Of a CSV only the *first* configurations count, if that is given: by `config_id`, else by row.
    """
    text = _text_of(data)
    if path.endswith(".json"):
        try:
            values = list(_values_at(json.loads(text), column.split(".")))
        except (ValueError, RecursionError):
            return Measurement(None, f"{path} is no JSON")
        return _mean(values, f"{path} has {'no number' if values else 'nothing'} at {column}")
    rows, columns = _rows_of(text)
    if column not in columns:
        return Measurement(
            None, f"{path} has no column {column}; it has {', '.join(columns) or 'no columns'}"
        )
    if columns.count(column) > 1:
        return Measurement(
            None, f"{path} has {columns.count(column)} columns {column}; give each its own name"
        )
    return _mean((row[column] for row in _first_rows(rows, first)), f"{path} has no number in {column}")


def _text_of(data: bytes) -> str:
    """Return what was written, without the mark that some programs put before UTF-8."""
    return data.decode("utf-8-sig", "replace")


def _rows_of(text: str) -> tuple[list[dict[str, str]], list[str]]:
    try:
        reader = csv.DictReader(io.StringIO(text))
        return list(reader), [name for name in reader.fieldnames or () if name]
    except csv.Error:  # a field of megabytes, or a byte that no CSV has
        return [], []


def csv_columns(data: bytes) -> tuple[str, ...]:
    """Return the columns of a CSV."""
    return tuple(_rows_of(_text_of(data))[1])


def count_rows(path: str, data: bytes) -> int:
    """Return how many rows a CSV has; of a JSON that is not asked."""
    return 0 if path.endswith(".json") else len(_rows_of(_text_of(data))[0])


def _first_rows(rows: list[dict[str, str]], first: int | None) -> list[dict[str, str]]:
    if first is None:
        return rows
    numbers = [_number(row.get("config_id")) for row in rows]
    if any(number is None for number in numbers):
        return rows[:first]
    return [row for row, number in zip(rows, numbers, strict=True) if number is not None and number < first]


def _values_at(value: Any, path: list[str]) -> Iterable[object]:  # noqa: ANN401 - whatever the JSON says
    if isinstance(value, list) and not (path and path[0].isdigit()):
        return [found for one in value for found in _values_at(one, path)]
    if not path:
        return [value]
    if isinstance(value, list):
        return _values_at(value[int(path[0])], path[1:]) if int(path[0]) < len(value) else []
    return _values_at(value[path[0]], path[1:]) if isinstance(value, dict) and path[0] in value else []


def score_in_text(printed: str, word: str | None) -> Measurement:
    """Return the last number that is printed, or the last behind *word*."""
    if word is not None:
        figure = f"({_FIGURE.pattern}|{_NO_FIGURE})"
        found = re.findall(re.escape(word) + r"\W{0,3}?\s*" + figure, printed)
        return _mean(found[-1:], f"no number is printed behind {word}")
    return _mean(_FIGURE.findall(printed)[-1:], "no number is printed")


def _mean(values: Iterable[object], why: str) -> Measurement:
    found = [_number(value) for value in values]
    numbers = [number for number in found if number is not None]
    if not numbers:
        return Measurement(None, why)
    left_out = len(found) - len(numbers)
    said = f"{left_out} of {len(found)} values are no finite numbers, and left out" if left_out else ""
    return Measurement(math.fsum(numbers) / len(numbers), said)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


# The score of an idea: its results beside those of the baseline, with a note where there is none.


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
    """How much better than the baseline; *note* says why *score* is None, or what was left out of it."""

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
        if found.why:
            notes.append(f"the {whose}: {found.why}")
    note = "; ".join(notes) or None
    if len(means) < 2 or None in means:  # noqa: PLR2004 - of baseline and candidate
        return Score(
            column=wanted.column,
            baseline_columns=csv_columns(baseline.data or b""),
            candidate_columns=csv_columns(candidate.data or b""),
            note=note,
        )
    base, mean = (value for value in means if value is not None)
    delta = mean - base
    score = delta if wanted.higher_is_better else -delta
    return Score(
        column=wanted.column, score=score, baseline_mean=base, candidate_mean=mean, delta=delta, note=note
    )


# What is left of an idea that was tried: its files, its `summary.json`, its row in the table of all.

IDEA: Final = "idea.md"
PATCH: Final = "patch.diff"
TESTS_LOG: Final = "tests.log"
SWEEP_LOG: Final = "sweep.log"
RESULTS: Final = "meta_config_sweep_results.csv"
SUMMARY: Final = "summary.json"
# What each role was asked, and what it said.
ROLE_FILES: Final[dict[str, tuple[str, str]]] = {
    "coordinator": ("coordinator_prompt.txt", "coordinator.md"),
    "planner": ("planner_prompt.txt", "plan.md"),
    "coder": ("coder_prompt.txt", PATCH),
    "reviewer": ("reviewer_prompt.txt", "review.md"),
}
APPROVED: Final = "APPROVE"
REJECTED: Final = "REJECT"
UNDECIDED: Final = "UNKNOWN"


def round_name(name: str, number: int) -> str:
    """Return the name of a file of a later round, as `review_round_1.md`; the first has the plain name."""
    stem, dot, ending = name.partition(".")
    return f"{stem}_round_{number}{dot}{ending}" if number else name


def dropped_issues_name(number: int) -> str:
    """Return the name of the file with the issues that came too late in a round."""
    return f"review_round_{number}_dropped_new_issues.txt"


SWEEP_PATHS: Final = ("AGENTIC_OUTPUT_DIR", "AGENTIC_RESULTS_CSV")


def sweep_variables(output: str, results: str, configurations: int | None) -> dict[str, str]:
    """Return what a sweep is told in its environment: where its output goes, and how much to try."""
    limit = {} if configurations is None else {"AGENTIC_SWEEP_CONFIG_LIMIT": str(configurations)}
    return {**dict(zip(SWEEP_PATHS, (output, results), strict=True)), **limit}


class IdeaSummary(Record):
    """`summary.json`: these keys and no others, all of them always there."""

    run_id: NonEmptyStr
    idea: NonEmptyStr
    coordinator: str = ""
    plan: str = ""
    patch_applied: bool = False
    patch_error: str | None = None
    review_verdict: str | None = None
    tests_exit_code: int | None = None
    sweep_exit_code: int | None = None
    results_csv: str | None = None
    score: Score | None = None

    @property
    def end(self) -> str:
        """How far the idea came, in a few words."""
        if not self.patch_applied:
            return f"error: {self.patch_error or 'no patch'}"
        is_scored = self.score is not None and self.score.score is not None
        is_tried = is_scored or self.tests_exit_code is not None or self.sweep_exit_code is not None
        if self.review_verdict != APPROVED and not is_tried:
            return f"review: {self.review_verdict or 'no verdict'}"
        if self.tests_exit_code:
            return f"tests failed ({self.tests_exit_code})"
        if not is_scored:
            return f"no score: {self.score.note if self.score else 'no results'}"
        end = "scored" if self.review_verdict == APPROVED else "scored, not approved"
        return f"{end}; {self.score.note}" if self.score and self.score.note else end


def summary_text(summary: IdeaSummary) -> str:
    return json.dumps(summary.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n"


class IdeaRow(NamedTuple):
    rank: int | None  # None where there is no score
    run_id: str
    title: str
    score: float | None
    end: str
    patch: str | None  # what to apply, relative to the directory of all runs


def rank_ideas(summaries: Iterable[IdeaSummary]) -> tuple[IdeaRow, ...]:
    """Return a row an idea: the best score first, then those without one, in the order of their runs."""
    ordered = sorted(summaries, key=lambda one: (-_score_of(one), one.run_id))
    return tuple(
        IdeaRow(
            None if _score_of(one) == float("-inf") else position,
            one.run_id,
            one.idea.splitlines()[0].strip(),
            one.score.score if one.score else None,
            one.end,
            f"{one.run_id}/{PATCH}" if one.patch_applied else None,
        )
        for position, one in enumerate(ordered, start=1)
    )


def _score_of(summary: IdeaSummary) -> float:
    score = summary.score.score if summary.score else None
    return float("-inf") if score is None else score
