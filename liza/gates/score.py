"""The score gate: a number of the candidate beside that of the baseline, from a file or printed."""

from __future__ import annotations

from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from liza.domain.measurement import Measurement, score_in_file, score_in_text
from liza.domain.record import NonEmptyStr, Record
from liza.domain.verdicts import Evidence
from liza.gates.command import finding_of
from liza.gates.context import GateContext
from liza.gates.finding import Finding, blocker, concern, passed, revise, unknown
from liza.gates.runner import evidence_of
from liza.repo.objects import blob_contents

Number = Annotated[float, Field(allow_inf_nan=False)]
RUN: Final = "run"  # a baseline that is measured now, by the same command on the base


class ScoreOptions(Record):
    run: NonEmptyStr
    results: NonEmptyStr | None = None  # the CSV or JSON that the command writes; without it, what it prints
    # Of a CSV; a dotted path of a JSON; a word before the number in what is printed.
    column: NonEmptyStr | None = None
    baseline: Number | NonEmptyStr | None = None  # a number, a file of the base, or `run`
    higher_is_better: bool = True
    min_delta: Number = 0.0
    at_least: Number | None = None
    at_most: Number | None = None
    mode: Literal["gate", "record"] = "gate"

    @model_validator(mode="after")
    def _can_be_read(self) -> Self:
        if self.results and not self.column:
            raise ValueError("a file of results needs the column, or the path, of its number")
        return self


def judge(options: ScoreOptions, case: GateContext) -> Finding:
    """Measure the candidate, then the baseline, and compare them."""
    keep = (options.results,) if options.results else ()
    trial = case.run_on(case.tree, "score", options.run, keep)
    shown = evidence_of(trial.line, trial.ran)
    if not trial.ran.is_green:
        found = finding_of("score", trial)
        return found if options.mode == "gate" else _no_score(options, found.reason, shown)
    candidate = _read_score(options, trial.ran.out, trial.kept.get(options.results or "", b""))
    if candidate.value is None:
        return _no_score(options, candidate.why, shown)
    baseline = _measure_baseline(options, case)
    if options.baseline is not None and baseline.value is None:
        return _no_score(options, f"the baseline has no number: {baseline.why}", shown)
    return _compare(options, candidate.value, baseline.value, shown)


def _no_score(options: ScoreOptions, why: str, shown: Evidence) -> Finding:
    if options.mode == "record":
        return passed(f"recorded: there is no score ({why})", [concern(why)], shown, label="no_score")
    return unknown(f"there is no score: {why}", shown)


def _read_score(options: ScoreOptions, printed: str, data: bytes) -> Measurement:
    if options.results is None:
        return score_in_text(printed, options.column)
    if not data:
        return Measurement(None, f"{options.results} was not written by the command")
    return score_in_file(options.results, data, str(options.column))


def _measure_baseline(options: ScoreOptions, case: GateContext) -> Measurement:
    wanted = options.baseline
    if wanted is None or isinstance(wanted, int | float):
        return Measurement(wanted)
    if wanted == RUN:
        trial = case.run_on(
            case.base_tree, "score-base", options.run, (options.results,) if options.results else ()
        )
        if not trial.ran.is_green:
            return Measurement(None, "the command fails on the base")
        return _read_score(options, trial.ran.out, trial.kept.get(options.results or "", b""))
    item = case.base_files.get(wanted)
    if item is None:
        return Measurement(None, f"the base has no file {wanted}")
    data = blob_contents(case.repository, [item.blob]).get(item.blob, b"")
    return score_in_file(wanted, data, str(options.column))


def _compare(options: ScoreOptions, candidate: float, baseline: float | None, shown: Evidence) -> Finding:
    label = f"{candidate:g}" if baseline is None else f"{_improvement(options, candidate - baseline):+g}"
    misses = []
    if options.at_least is not None and candidate < options.at_least:
        misses.append(f"the score is below {options.at_least:g}")
    if options.at_most is not None and candidate > options.at_most:
        misses.append(f"the score is above {options.at_most:g}")
    if baseline is not None and _improvement(options, candidate - baseline) < options.min_delta:
        misses.append(f"the score is not better than the baseline by {options.min_delta:g}")
    told = f"candidate {candidate:g}" + ("" if baseline is None else f", baseline {baseline:g}")
    if options.mode == "record":
        return passed(f"recorded: {told}", [concern(miss) for miss in misses], shown, label=label)
    if misses:
        return revise(misses[0], [blocker(f"{miss} ({told})") for miss in misses], shown)._replace(
            label=label
        )
    return passed(told, (), shown, label=label)


def _improvement(options: ScoreOptions, delta: float) -> float:
    return delta if options.higher_is_better else -delta
