"""What a gate may look at: the task, its base and head, statements of agents and people, and command runs.

Answers of git are cached, and a command is run only once on a tree.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, Self

from liza.domain.config import Config
from liza.domain.model import Checkpoint, Task
from liza.domain.record import Record, Time, utc_now
from liza.domain.step_spec import IssuedStep, StepSpec, issued_step
from liza.domain.verdicts import Feedback, Outcome
from liza.gates.checkout import Checkout, PreparedTree
from liza.gates.failures import cause_of, failed_tests, finds_no_tests
from liza.gates.files import diff_facts
from liza.gates.finding import tail
from liza.gates.junit_reports import JunitReport, parse_report, with_report_option
from liza.gates.known_runners import passed_count
from liza.gates.languages import folders_for_tests
from liza.gates.patterns import ScopePatterns, scope_patterns
from liza.gates.results import CachedResult, ResultCache
from liza.gates.runner import CommandResult, CommandRunner
from liza.repo.diff import DiffEntry, diff_trees
from liza.repo.objects import CommitInfo, TreeItem, blob_contents, commits_between, list_tree
from liza.repo.pool import Worktrees
from liza.repo.repository import Repository
from liza.system.run_control import RunEnding

MOST_NAMES: Final = 20_000  # tests of a tree that are remembered by name
PYTEST_USAGE_ERROR: Final = 4  # what pytest ends with where it does not know an option
MOST_COMMITS: Final = 200  # of one task, each of which has to be looked at by itself
LARGEST_KEPT: Final = 16 << 20  # bytes of a file that a command made and a gate reads


class PersonAnswer(Record):
    """What a person said to a human gate, about one tree."""

    by: str
    at: Time
    outcome: Outcome
    text: str = ""
    tree: str | None = None


@dataclass(frozen=True)
class Statements:
    """What agents and people said; gates compare it with what is."""

    text: str = ""  # the transcript of the run
    commands: tuple[str, ...] = ()  # what the agent ran, where its backend tells
    answers: tuple[str, ...] = ()  # summaries, plans, reasons
    feedback: tuple[Feedback, ...] = ()  # a reviewer's
    step: StepSpec | None = None  # that is to be done next
    handoff: Record | None = None  # what is handed on to the next phase
    word: PersonAnswer | None = None
    asked: datetime | None = None  # since when a person is waited for


def result_of(tree: str, trial: TreeRun) -> CachedResult:
    """Return what *trial* came to on *tree*, to be kept."""
    ran, report = trial.ran, trial.report
    failed = None if ran.is_green else failed_tests(trial.line, ran.said)
    return CachedResult(
        line=trial.line,
        tree=tree,
        at=utc_now(),
        code=ran.code,
        ending=ran.ending,
        is_green=ran.is_green,
        is_empty=finds_no_tests(ran),
        failed=None if failed is None else tuple(sorted(failed)),
        is_reported=report is not None,
        passed=len(report.passed) if report else passed_count(trial.line, ran.said),
        names=tuple(sorted(report.names)[:MOST_NAMES]) if report else (),
        cause=cause_of(trial.line, ran),
        tail=tail(ran.said),
        run=ran.run,
        seconds=ran.seconds,
    )


# What a person should try, given a command that is red whatever the work is, and what it said.
CauseExplainer = Callable[[str, CommandResult], str]


# Keeps a file that a command made in the folder of its run, by the id of the run and a name.
FileKeeper = Callable[[str, str, bytes], None]


def _keep_nothing(_run: str, _name: str, _data: bytes) -> None:
    pass


def _no_explanation(_line: str, _ran: CommandResult) -> str:
    return "mend what it needs"


class TreeRun(NamedTuple):
    """A command run on a tree after the project's setup; where the setup failed, the setup's own run."""

    line: str
    ran: CommandResult
    kept: Mapping[str, bytes] = {}
    is_setup: bool = False
    report: JunitReport | None = None  # what the runner wrote, where it was asked to


class PastVersion(NamedTuple):
    """A version of a file that a commit on the way had, and the head has not."""

    change: CommitInfo
    entry: DiffEntry

    @property
    def where(self) -> str:
        """How to say where it is."""
        return f"by the commit {self.change.commit[:12]}, and stays in the history"


@dataclass(frozen=True)
class GateContext:
    """One task at one head; leaving the `with` block returns the scratch directory."""

    task: Task
    repository: Repository
    base: str
    head: str
    config: Config
    run: CommandRunner
    clock: Callable[[], datetime] = utc_now
    said: Statements = field(default_factory=Statements)
    # Of the project's commands.
    results: ResultCache = field(default_factory=ResultCache, repr=False, compare=False)
    likely: CauseExplainer = field(default=_no_explanation, repr=False, compare=False)
    keep_file: FileKeeper = field(default=_keep_nothing, repr=False, compare=False)
    _tree_runs: dict[tuple[str, str], TreeRun] = field(default_factory=dict, repr=False, compare=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._checkout.close()

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self.task.checkpoint

    @cached_property
    def tree(self) -> str:
        return self.repository.tree_of(self.head)

    @cached_property
    def base_tree(self) -> str:
        return self.repository.tree_of(self.base)

    @cached_property
    def diff(self) -> tuple[DiffEntry, ...]:
        return diff_trees(self.repository, self.base, self.head)

    @cached_property
    def step(self) -> IssuedStep | None:
        """The step that this is the work of; None where there is none, or the work has another beginning."""
        step = issued_step(self.task.artifacts)
        return step if step and self.repository.contains(self.head, step.base) else None

    @cached_property
    def step_diff(self) -> tuple[DiffEntry, ...]:
        """What the last step changed; all of the work where there are no steps."""
        return diff_trees(self.repository, self.step.base, self.head) if self.step else self.diff

    @cached_property
    def commits(self) -> tuple[CommitInfo, ...]:
        """The commits from the base to the head, the latest first; all that they hold is merged."""
        return tuple(commits_between(self.repository, self.base, self.head))

    @cached_property
    def history(self) -> tuple[PastVersion, ...]:
        """What commits on the way added that the head no longer has so: it stays in what is merged."""
        if not 1 < len(self.commits) <= MOST_COMMITS:
            return ()
        now = {(entry.path, entry.blob) for entry in self.diff}
        return tuple(
            PastVersion(change, entry)
            for change in self.commits
            for entry in diff_trees(self.repository, change.before, change.commit)
            if entry.is_there and (entry.path, entry.blob) not in now
        )

    @cached_property
    def bounds(self) -> ScopePatterns:
        return scope_patterns(self.task.scope)

    @cached_property
    def head_files(self) -> dict[str, TreeItem]:
        return list_tree(self.repository, self.head)

    @cached_property
    def base_files(self) -> dict[str, TreeItem]:
        return list_tree(self.repository, self.base)

    @cached_property
    def folders_for_tests(self) -> frozenset[str]:
        """The directories that are there for tests, as the base has them."""
        return folders_for_tests(self.base_files)

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """What is in the files that differ, by blob, before and after; what is not text is left out."""
        blobs = {blob for entry in self.diff for blob in (entry.old_blob, entry.blob) if not entry.is_binary}
        found = blob_contents(self.repository, {blob for blob in blobs if blob.strip("0")})
        return {blob: data.decode("utf-8", "replace") for blob, data in found.items()}

    @cached_property
    def facts(self) -> frozenset[str]:
        """The named predicates that hold; workflows switch gates on and off by them."""
        settings = {f"{name}_command" for name, line in self.config.gates.to_json().items() if line}
        return diff_facts(self.diff) | settings

    @cached_property
    def _checkout(self) -> Checkout:
        gates = self.config.gates
        return Checkout(Worktrees(self.repository), self.run, gates.setup, gates.teardown)

    def checkout(self, tree: str) -> PreparedTree:
        """Return a directory that is exactly *tree*, after the project's setup."""
        known = {self.base_tree: self.base, self.tree: self.head}
        return self._checkout.at(tree, known.get(tree))

    def run_on(self, tree: str, name: str, line: str, keep: tuple[str, ...] = ()) -> TreeRun:
        """Run *line* on *tree*, unless it ran there already; *keep* are files that it makes."""
        known = self._tree_runs.get((tree, line))
        if known and set(keep) <= set(known.kept):
            return known
        path, setup = self.checkout(tree)
        if setup is not None and not setup.is_green:
            return TreeRun(str(self.config.gates.setup), setup, is_setup=True)
        before = {wanted: _ctime_of(path / wanted) for wanted in keep}
        ran, report = self._run_with_report(line, path, name)
        made = {wanted: _new_content(path, wanted, before[wanted]) for wanted in keep}
        trial = TreeRun(line, ran, made, report=report)
        if ran.ending is not RunEnding.STOPPED:
            self._tree_runs[(tree, line)] = trial
            self._note(tree, trial)
        return trial

    def _run_with_report(self, line: str, path: Path, name: str) -> tuple[CommandResult, JunitReport | None]:
        """Run *line*, and ask a runner that can for its report; one that cannot is run as it is."""
        into = f".report-{secrets.token_hex(6)}.xml"
        asking = with_report_option(line, into) if self._is_project_command(line) else None
        ran = self.run(asking or line, path, name)
        if asking is None:
            return ran, None
        data = _new_content(path, into, None)
        if ran.code == PYTEST_USAGE_ERROR and not data and "junitxml" in ran.said:
            return self.run(line, path, name), None
        return ran, parse_report(data)

    def _is_project_command(self, line: str) -> bool:
        """Return whether *line* is one of the project's commands, and not a part of one, or an agent's."""
        return line in self.config.gates.to_json().values()

    def run_setup_on(self, tree: str) -> TreeRun:
        """Return what the project's setup came to on *tree*; only for projects that have one."""
        line, ran = str(self.config.gates.setup), self.checkout(tree).setup
        trial = TreeRun(line, ran, is_setup=True) if ran else self.run_on(tree, "setup", line)
        self._note(tree, trial)
        return trial

    def base_result(self, name: str, line: str, *, afresh: bool = False) -> CachedResult:
        """Return the result of *line* on the base; *afresh* ignores the cache.

        A cached red result is always tried again: somebody may have mended it since.
        """
        known = self.results.of(self.base_tree, line)
        if known is not None and known.is_usable and not afresh:
            return known
        if name == "setup":
            trial = self.run_setup_on(self.base_tree)
        else:
            trial = self.run_on(self.base_tree, f"{name}-base", line)
        return result_of(self.base_tree, trial)

    def _note(self, tree: str, trial: TreeRun) -> None:
        """Remember what the project's commands come to on the trees that work is, or will be, based on."""
        is_based_on = tree in (self.base_tree, self.tree)
        if is_based_on and trial.ran.ending is RunEnding.DONE and self._is_project_command(trial.line):
            self.results.keep(result_of(tree, trial))


def _ctime_of(path: Path) -> int | None:
    return path.lstat().st_ctime_ns if path.is_file() and not path.is_symlink() else None


def _new_content(top: Path, wanted: str, before: int | None) -> bytes:
    """Return what a command wrote; nothing where the file is as it was, is a link, or leads elsewhere."""
    path = top / wanted
    now = _ctime_of(path)
    if now is None or now == before or not path.resolve().is_relative_to(top.resolve()):
        return b""
    with path.open("rb") as file:
        return file.read(LARGEST_KEPT)
