"""The score gate: a number of the candidate beside that of the baseline, from a file or printed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from posixpath import basename
from shlex import quote
from typing import Annotated, Final, Literal, Self

from pydantic import Field, model_validator

from liza.domain.experiment_config import ExperimentConfig
from liza.domain.ideas import (
    SWEEP_PATHS,
    Measurement,
    ResultsFile,
    Score,
    ScoreColumn,
    score_against,
    score_in_file,
    score_in_text,
    sweep_variables,
)
from liza.domain.model import Evidence
from liza.domain.record import NonEmptyStr, Record
from liza.gates.command import finding_of, in_directory
from liza.gates.context import (
    LARGEST_KEPT,
    Finding,
    GateContext,
    blocker,
    concern,
    describe_ending,
    evidence_of,
    let_pass,
    revise,
    unknown,
)
from liza.repo.repository import blob_contents

Number = Annotated[float, Field(allow_inf_nan=False)]
OUTPUT: Final = "sweep_output"  # where a sweep may write, in a checkout that nobody else has
NO_SWEEP: Final = "no sweep is set; name the command that measures as experiment.sweep in liza.yaml"
RUN: Final = "run"  # a baseline that is measured now, by the same command on the base


class ScoreOptions(Record):
    run: NonEmptyStr | None = None
    # `settings`: command, file, column and baseline are the project's own.
    source: Literal["settings"] | None = Field(default=None, alias="from")
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
        if (self.run is None) == (self.source is None):
            raise ValueError("say what measures: `run` a command, or `from: settings`")
        if self.source and (idle := self.model_fields_set - {"source", "mode"}):
            raise ValueError(f"{', '.join(sorted(idle))} do nothing: the settings of the experiment say it")
        return self


def judge(options: ScoreOptions, context: GateContext) -> Finding:
    """Measure the candidate, then the baseline, and compare them."""
    if options.source:
        return judge_sweep(context)
    keep = (options.results,) if options.results else ()
    trial = context.run_on(context.tree, "score", str(options.run), keep)
    shown = evidence_of(trial.line, trial.ran)
    if not trial.ran.is_green:
        found = finding_of("score", trial)
        return found if options.mode == "gate" else _no_score(options, found.reason, shown)
    candidate = _read_score(options, trial.ran.out, trial.kept.get(options.results or "", b""))
    if candidate.value is None:
        return _no_score(options, candidate.why, shown)
    baseline = _measure_baseline(options, context)
    if options.baseline is not None and baseline.value is None:
        return _no_score(options, f"the baseline has no number: {baseline.why}", shown)
    return _compare(options, candidate.value, baseline.value, shown)


def judge_sweep(context: GateContext) -> Finding:
    """Run the sweep of the experiment, keep what it wrote, and record its score against the baseline.

    A sweep that fails has a score all the same where its results are new.
    """
    settings = context.config.experiment
    if settings.sweep is None or settings.results is None:
        return let_pass(f"recorded: there is no score ({NO_SWEEP})", [concern(NO_SWEEP)], label="no_score")
    told = sweep_variables(OUTPUT, settings.results, settings.configurations)
    trial = context.run_on(context.tree, "sweep", _sweep_line(settings, told), (settings.results,))
    shown = evidence_of(settings.sweep, trial.ran)
    if trial.is_setup:
        why = f"the setup {describe_ending(trial.ran)}, so that the sweep was not run"
        return let_pass(f"recorded: there is no score ({why})", [concern(why)], label="no_score")
    data = trial.kept.get(settings.results, b"")
    if data and trial.ran.run:
        context.keep_file(trial.ran.run, basename(settings.results), data)
    score = score_sweep(settings, context.repository.root, data)
    if score.score is None:
        why = str(score.note)
        return let_pass(f"recorded: there is no score ({why})", [concern(why)], shown, label="no_score")
    said = f"recorded: candidate {score.candidate_mean:g}, baseline {score.baseline_mean:g}"
    left_out = [concern(score.note)] if score.note else []
    return let_pass(said, left_out, shown, label=f"{score.score:+g}")


def _sweep_line(settings: ExperimentConfig, told: Mapping[str, str]) -> str:
    """Return the command of the sweep with what it is *told*, where it is to run."""
    top = '"$PWD"/' if settings.sweep_directory else ""
    paths = {
        key: f"{top}{quote(value)}" if key in SWEEP_PATHS else quote(value) for key, value in told.items()
    }
    line = f"{' '.join(f'{key}={value}' for key, value in paths.items())}; export {' '.join(told)}"
    return f"{line}; {in_directory(settings.sweep_directory, str(settings.sweep))}"


def score_sweep(settings: ExperimentConfig, root: Path, data: bytes) -> Score:
    """Return the score of what a sweep wrote anew, *data*, against the baseline."""
    results, baseline = str(settings.results), str(settings.baseline)
    why = "was not written by the sweep; a file from an earlier run does not count"
    return score_against(
        ScoreColumn(
            column=str(settings.column),
            higher_is_better=settings.higher_is_better,
            first_configurations=settings.configurations,
        ),
        baseline=read_baseline(root / baseline),
        candidate=ResultsFile(basename(results), data or None, "" if data else why),
    )


def read_baseline(path: Path) -> ResultsFile:
    if not path.exists():
        return ResultsFile(path.name, None, "is not there; make one with `liza baseline refresh`")
    return read_results_file(path)


def read_results_file(path: Path) -> ResultsFile:
    try:
        if path.stat().st_size > LARGEST_KEPT:
            return ResultsFile(path.name, None, f"is larger than {LARGEST_KEPT >> 20} MiB")
        return ResultsFile(path.name, path.read_bytes())
    except OSError as error:
        return ResultsFile(path.name, None, f"cannot be read: {error.strerror or error}")


def _no_score(options: ScoreOptions, why: str, shown: Evidence) -> Finding:
    if options.mode == "record":
        return let_pass(f"recorded: there is no score ({why})", [concern(why)], shown, label="no_score")
    return unknown(f"there is no score: {why}", shown)


def _read_score(options: ScoreOptions, printed: str, data: bytes) -> Measurement:
    if options.results is None:
        return score_in_text(printed, options.column)
    if not data:
        return Measurement(None, f"{options.results} was not written by the command")
    return score_in_file(options.results, data, str(options.column))


def _measure_baseline(options: ScoreOptions, context: GateContext) -> Measurement:
    wanted = options.baseline
    if wanted is None or isinstance(wanted, int | float):
        return Measurement(wanted)
    if wanted == RUN:
        trial = context.run_on(
            context.base_tree, "score-base", str(options.run), (options.results,) if options.results else ()
        )
        if not trial.ran.is_green:
            return Measurement(None, "the command fails on the base")
        return _read_score(options, trial.ran.out, trial.kept.get(options.results or "", b""))
    item = context.base_files.get(wanted)
    if item is None:
        return Measurement(None, f"the base has no file {wanted}")
    data = blob_contents(context.repository, [item.blob]).get(item.blob, b"")
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
        return let_pass(f"recorded: {told}", [concern(miss) for miss in misses], shown, label=label)
    if misses:
        return revise(misses[0], [blocker(f"{miss} ({told})") for miss in misses], shown)._replace(
            label=label
        )
    return let_pass(told, (), shown, label=label)


def _improvement(options: ScoreOptions, delta: float) -> float:
    return delta if options.higher_is_better else -delta
