"""What an idea came to, gathered where it ends, and how a search over ideas goes on from there.

Everything is read from the board, from git and from the recorded runs, so that it can be written again after
a crash, and comes out the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.agents.protocol import PATCH as RUN_PATCH
from liza.agents.protocol import STDERR, STDOUT, ended_runs, recorded_reply
from liza.board.location import HOME
from liza.daemon.experiment_files import IdeaFolder, archive_idea, read_ideas
from liza.domain.dialects import patch_in
from liza.domain.experiment_config import ROOT, IdeaSearch, MeasuredIdea, SearchSettings
from liza.domain.ideas import (
    APPROVED,
    IDEA,
    PATCH,
    REJECTED,
    RESULTS,
    ROLE_FILES,
    SWEEP_LOG,
    TESTS_LOG,
    UNDECIDED,
    IdeaSummary,
    ResultsFile,
    count_rows,
    dropped_issues_name,
    new_ideas,
    run_id,
    score_in_file,
)
from liza.domain.lifecycle import SUCCEEDED
from liza.domain.model import Outcome
from liza.domain.review_rounds import DROPPED
from liza.errors import LizaError, UsageError
from liza.gates.score import read_baseline, read_results_file, score_sweep
from liza.repo.repository import binary_patch
from liza.workflow.document import GateKind, workflow_on

if TYPE_CHECKING:
    from pathlib import Path

    from liza.agents.protocol import Brief
    from liza.domain.experiment_config import ExperimentConfig
    from liza.domain.ideas import Idea, Score
    from liza.domain.model import Evidence, State, Task, Verdict
    from liza.repo.repository import Repository


EXPERIMENTS: Final = "experiments"  # below .liza: a folder for each idea that was tried
RUNS: Final = "runs"
_VERDICTS: Final = {Outcome.PASS: APPROVED, Outcome.REVISE: REJECTED}
NO_PATCH: Final = "no patch was made"
_IN_ROUNDS: Final = frozenset({"coder", "reviewer"})  # whose every round is kept


def run_id_of(task: Task) -> str:
    """Return the name of the folder of an idea."""
    number = task.id.rpartition("-")[2]
    return run_id(task.created, int(number) if number.isdecimal() else 1)


def means_in(settings: ExperimentConfig, file: ResultsFile) -> dict[str, float]:
    """Return the mean of each metric that *file* has."""
    # A copy is called `.csv` whatever it is a copy of.
    name, data = str(settings.results), file.data or b""
    known = {
        rule.column: score_in_file(name, data, rule.column, settings.configurations).value
        for rule in settings.metrics
    }
    return {column: value for column, value in known.items() if value is not None}


class TriedIdea(NamedTuple):
    """An idea at its end, and where what is known of it lies."""

    home: Path
    repository: Repository
    state: State
    task: Task

    @property
    def run_id(self) -> str:
        return run_id_of(self.task)

    @property
    def folder(self) -> IdeaFolder:
        return IdeaFolder(self.home / EXPERIMENTS / self.run_id)

    def verdict(self, kind: GateKind) -> Verdict | None:
        """Return what the last gate of *kind* said."""
        phases = workflow_on(self.state).phases.values()
        names = {gate.id for phase in phases for gate in phase.gates if gate.kind is kind}
        return next((one for one in reversed(self.task.verdicts) if one.gate in names), None)

    def evidence(self, kind: GateKind) -> Evidence | None:
        found = self.verdict(kind)
        return found.evidence if found else None

    @property
    def patch(self) -> str:
        """Return all that was changed for the idea, as a patch that `git apply` takes."""
        base, made = self._first_base(), self.task.review_commit
        if base is None or made is None:
            return ""
        return binary_patch(self.repository, base, made).decode("utf-8", "replace")

    def _first_base(self) -> str | None:
        """Return what the ideas that this one was tried on began with: its patch has theirs in it."""
        task = self.task
        while parent := next((self.state.tasks.get(name) for name in task.depends_on), None):
            task = parent
        return task.base_commit

    def artifact(self, phase: str) -> str:
        found = self.task.artifacts.get(phase)
        return found.text if found else ""


def write_outcome(idea: TriedIdea) -> str:
    """Write every file of *idea*; return where."""
    idea.folder.write(IDEA, f"{idea.task.description}\n")
    _write_roles(idea)
    patch = idea.patch
    if patch:
        idea.folder.write(PATCH, patch)
    for name, one in idea.task.artifacts.items():
        if name.startswith(DROPPED):
            idea.folder.write(dropped_issues_name(int(name.removeprefix(DROPPED))), f"{one.text}\n")
    _write_log(idea, GateKind.COMMAND, TESTS_LOG)
    _write_log(idea, GateKind.SCORE, SWEEP_LOG)
    idea.folder.write_summary(_summary(idea, is_applied=bool(patch)))
    _archive(idea)
    return f"written to .liza/{EXPERIMENTS}/{idea.run_id}"


def _summary(idea: TriedIdea, *, is_applied: bool) -> IdeaSummary:
    task, review = idea.task, idea.verdict(GateKind.AGENT)
    tests, sweep = idea.evidence(GateKind.COMMAND), idea.evidence(GateKind.SCORE)
    data = _results(idea)
    return IdeaSummary(
        run_id=idea.run_id,
        idea=task.description,
        coordinator=idea.artifact("coord"),
        plan=idea.artifact("plan"),
        patch_applied=is_applied,
        # Why its last round failed tells more than that its rounds are over.
        patch_error=None if is_applied else task.rejection_reason or task.closing_reason or NO_PATCH,
        review_verdict=_VERDICTS.get(review.outcome, UNDECIDED) if review else None,
        tests_exit_code=tests.code if tests else None,
        sweep_exit_code=sweep.code if sweep else None,
        results_csv=idea.folder.keep_results(ResultsFile("", data or None)),
        score=_score(idea, data),
    )


def _score(idea: TriedIdea, data: bytes) -> Score | None:
    settings = idea.state.config.experiment
    is_run = idea.evidence(GateKind.SCORE) is not None
    return score_sweep(settings, idea.repository.root, data) if is_run and settings.sweep else None


def _results(idea: TriedIdea) -> bytes:
    """Return what the sweep of *idea* wrote, as its gate kept it."""
    seen, name = idea.evidence(GateKind.SCORE), idea.state.config.experiment.results
    if seen is None or seen.run is None or name is None:
        return b""
    path = idea.home / RUNS / seen.run / name.rpartition("/")[2]
    return path.read_bytes() if path.is_file() else b""


def _write_log(idea: TriedIdea, kind: GateKind, name: str) -> None:
    seen = idea.evidence(kind)
    if seen is None or seen.run is None:
        return
    files = (idea.home / RUNS / seen.run / stream for stream in (STDOUT, STDERR))
    text = "".join(path.read_text("utf-8", "replace") for path in files if path.is_file())
    idea.folder.write(name, text)


def _write_roles(idea: TriedIdea) -> None:
    """Write what each role was asked and said: every round of coder and reviewer, of others the last."""
    runs = list(ended_runs(idea.home / RUNS, idea.task.id))
    for hat in ROLE_FILES:
        rounds = {run.iteration: run for run in runs if run.hat == hat and not run.only_answer}
        kept = list(rounds.values())
        for number, run in enumerate(kept if hat in _IN_ROUNDS else kept[-1:]):
            idea.folder.write_role(hat, run.prompt, _said(idea, run), number)


def _said(idea: TriedIdea, run: Brief) -> str:
    reply = recorded_reply(run)
    text = reply.text if reply else ""
    if run.hat == "coder":
        path = run.folder / RUN_PATCH
        made = path.read_text("utf-8", "replace") if path.is_file() else ""
        return made or patch_in(text)
    phase = {"coordinator": "coord", "planner": "plan"}.get(run.hat)
    return (idea.artifact(phase) if phase else "") or text


def _archive(idea: TriedIdea) -> None:
    """Move the file of an idea of a directory away, so that it is not tried again."""
    settings = idea.state.config.experiment
    if not settings.archive or settings.ideas is None:
        return
    path = idea.repository.root / settings.ideas
    if not path.is_dir():
        return
    try:
        found = next((one for one in read_ideas(path) if one.text == idea.task.description), None)
    except LizaError:  # it was moved before, and no other is left
        return
    if found:
        archive_idea(found, idea.run_id)


# How a search over ideas goes on: the best that was tried is what the next ideas begin with.


class DeeperIdea(NamedTuple):
    text: str
    node: str  # the idea that it begins with


class NextIdeas(NamedTuple):
    ideas: tuple[DeeperIdea, ...] = ()
    ended: str | None = None  # why there are none


def next_ideas(state: State, root: Path, ideas: tuple[Idea, ...]) -> NextIdeas:
    """Return the ideas of the next depth, each on the best of the last; or why the search is over."""
    tasks = [task for task in state.tasks.values() if task.id.startswith(f"idea-{state.goal.number}-")]
    search = _search_of(state, root, tasks)
    found = search.next_depth()
    fresh = new_ideas((one.text for one in ideas), (task.description for task in tasks))[: search.left()]
    if found.ended is not None or not fresh:
        return NextIdeas(ended=found.ended or "every idea was tried")
    nodes = [node for node in found.nodes for _ in range(search.settings.ideas)]
    return NextIdeas(tuple(DeeperIdea(text, node) for text, node in zip(fresh, nodes, strict=False)))


def _search_of(state: State, root: Path, tasks: list[Task]) -> IdeaSearch:
    settings = state.config.experiment
    baseline = read_baseline(root / str(settings.baseline))
    figures = means_in(settings, baseline)
    missing = [rule.column for rule in settings.metrics if rule.column not in figures]
    if missing:
        why = (
            f"{baseline.name} {baseline.why}"
            if baseline.data is None
            else f"it has no number in {missing[0]}"
        )
        raise UsageError(f"the search cannot go on without its baseline: {why}")
    rows = _count_rows(state, baseline)

    def tried(task: Task) -> MeasuredIdea:
        results = read_results_file(root / HOME / EXPERIMENTS / run_id_of(task) / RESULTS)
        is_good = task.status in SUCCEEDED and results.data is not None
        parent = task.depends_on[0] if task.depends_on else ROOT
        measured = means_in(settings, results) if is_good else None
        return MeasuredIdea(task.id, parent, measured, is_whole=_count_rows(state, results) >= rows)

    wanted = settings.search or SearchSettings()
    return IdeaSearch(wanted, settings.metrics, figures, [tried(task) for task in tasks])


def _count_rows(state: State, file: ResultsFile) -> int:
    return count_rows(str(state.config.experiment.results), file.data or b"")
