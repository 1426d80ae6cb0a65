"""What is left of an idea that was tried: its files, its `summary.json`, its row in the table of all."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, NamedTuple

from liza.domain.record import NonEmptyStr, Record
from liza.domain.scoring import Score

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


def sweep_variables(output: str, results: str, configurations: int | None) -> dict[str, str]:
    """Return what a sweep is told in its environment: where its output goes, and how much to try."""
    limit = {} if configurations is None else {"AGENTIC_SWEEP_CONFIG_LIMIT": str(configurations)}
    return {"AGENTIC_OUTPUT_DIR": output, "AGENTIC_RESULTS_CSV": results, **limit}


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
        return "scored" if self.review_verdict == APPROVED else "scored, not approved"


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
