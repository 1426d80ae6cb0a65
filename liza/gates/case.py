"""What a gate may look at: a task, its two commits, what was said, and a place to run commands in.

What is asked of git is asked once, and a command that ran on a tree is not run on it again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Final, NamedTuple, Self

from liza.agents.protocol import Ending
from liza.config import Config
from liza.gates.checkout import Checkout, Prepared
from liza.gates.failures import cause_of, failed_tests, finds_no_tests
from liza.gates.files import facts_of
from liza.gates.finding import tail
from liza.gates.languages import test_places
from liza.gates.patterns import Bounds, bounds
from liza.gates.reports import Report, read_report, reporting
from liza.gates.results import Result, Results
from liza.gates.runners import passed_in
from liza.gates.running import Ran, Run
from liza.model import Checkpoint, Task
from liza.record import Record, Time, utc_now
from liza.repo.diff import Entry, diff
from liza.repo.objects import Change, Item, changes, contents, listing
from liza.repo.pool import Worktrees
from liza.repo.repository import Repository
from liza.verdicts import Feedback, Outcome

MOST_NAMES: Final = 20_000  # tests of a tree that are remembered by name
USAGE: Final = 4  # what pytest ends with where it does not know an option
MOST_COMMITS: Final = 200  # of one task, each of which has to be looked at by itself
LARGEST_KEPT: Final = 16 << 20  # bytes of a file that a command made and a gate reads


class Word(Record):
    """What a person said to a human gate, about one tree."""

    by: str
    at: Time
    outcome: Outcome
    text: str = ""
    tree: str | None = None


@dataclass(frozen=True)
class Said:
    """What agents and people said; gates compare it with what is."""

    text: str = ""  # the transcript of the run
    commands: tuple[str, ...] = ()  # what the agent ran, where its backend tells
    answers: tuple[str, ...] = ()  # summaries, plans, reasons
    feedback: tuple[Feedback, ...] = ()  # a reviewer's
    word: Word | None = None
    asked: datetime | None = None  # since when a person is waited for


def result_of(tree: str, trial: Trial) -> Result:
    """Return what *trial* came to on *tree*, to be kept."""
    ran, report = trial.ran, trial.report
    failed = None if ran.is_green else failed_tests(trial.line, ran.said)
    return Result(
        line=trial.line,
        tree=tree,
        at=utc_now(),
        code=ran.code,
        ending=ran.ending,
        is_green=ran.is_green,
        is_empty=not ran.is_green and finds_no_tests(ran),
        failed=None if failed is None else tuple(sorted(failed)),
        is_reported=report is not None,
        passed=len(report.passed) if report else passed_in(trial.line, ran.said),
        names=tuple(sorted(report.names)[:MOST_NAMES]) if report else (),
        cause=cause_of(trial.line, ran),
        tail=tail(ran.said),
        run=ran.run,
        seconds=ran.seconds,
    )


# What a person should try, given a command that is red whatever the work is, and what it said.
Likely = Callable[[str, Ran], str]


def _unexplained(_line: str, _ran: Ran) -> str:
    return "mend what it needs"


class Trial(NamedTuple):
    """A command on a tree, after the project's setup; where that failed, the command was not run."""

    line: str
    ran: Ran
    kept: Mapping[str, bytes] = {}
    is_setup: bool = False
    report: Report | None = None  # what the runner wrote, where it was asked to


class Past(NamedTuple):
    """A version of a file that a commit on the way had, and the head has not."""

    change: Change
    entry: Entry

    @property
    def where(self) -> str:
        """How to say where it is."""
        return f"by the commit {self.change.commit[:12]}, and stays in the history"


@dataclass(frozen=True)
class Case:
    """One task at one head; `with` gives the scratch directory back."""

    task: Task
    repository: Repository
    base: str
    head: str
    config: Config
    run: Run
    clock: Callable[[], datetime] = utc_now
    said: Said = field(default_factory=Said)
    results: Results = field(default_factory=Results, repr=False, compare=False)  # of the project's commands
    likely: Likely = field(default=_unexplained, repr=False, compare=False)
    _trials: dict[tuple[str, str], Trial] = field(default_factory=dict, repr=False, compare=False)

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
    def diff(self) -> tuple[Entry, ...]:
        return diff(self.repository, self.base, self.head)

    @cached_property
    def commits(self) -> tuple[Change, ...]:
        """The commits from the base to the head, the latest first; all that they hold is merged."""
        return tuple(changes(self.repository, self.base, self.head))

    @cached_property
    def history(self) -> tuple[Past, ...]:
        """What commits on the way added that the head no longer has so: it stays in what is merged."""
        if not 1 < len(self.commits) <= MOST_COMMITS:
            return ()
        now = {(entry.path, entry.blob) for entry in self.diff}
        return tuple(
            Past(change, entry)
            for change in self.commits
            for entry in diff(self.repository, change.before, change.commit)
            if entry.is_there and (entry.path, entry.blob) not in now
        )

    @cached_property
    def bounds(self) -> Bounds:
        return bounds(self.task.scope)

    @cached_property
    def head_files(self) -> dict[str, Item]:
        return listing(self.repository, self.head)

    @cached_property
    def base_files(self) -> dict[str, Item]:
        return listing(self.repository, self.base)

    @cached_property
    def test_places(self) -> frozenset[str]:
        """The directories that are there for tests, as the base has them."""
        return test_places(self.base_files)

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """What is in the files that differ, by blob, before and after; what is not text is left out."""
        blobs = {blob for entry in self.diff for blob in (entry.old_blob, entry.blob) if not entry.is_binary}
        found = contents(self.repository, {blob for blob in blobs if blob.strip("0")})
        return {blob: data.decode("utf-8", "replace") for blob, data in found.items()}

    @cached_property
    def facts(self) -> frozenset[str]:
        """The named predicates that hold; workflows switch gates on and off by them."""
        settings = {f"{name}_command" for name, line in self.config.gates.plain().items() if line}
        return facts_of(self.diff) | settings

    @cached_property
    def _checkout(self) -> Checkout:
        gates = self.config.gates
        return Checkout(Worktrees(self.repository), self.run, gates.setup, gates.teardown)

    def checkout(self, tree: str) -> Prepared:
        """Return a directory that is exactly *tree*, after the project's setup."""
        known = {self.base_tree: self.base, self.tree: self.head}
        return self._checkout.at(tree, known.get(tree))

    def trial(self, tree: str, name: str, line: str, keep: tuple[str, ...] = ()) -> Trial:
        """Run *line* on *tree*, unless it ran there already; *keep* are files that it makes."""
        known = self._trials.get((tree, line))
        if known and set(keep) <= set(known.kept):
            return known
        path, setup = self.checkout(tree)
        if setup is not None and not setup.is_green:
            return Trial(str(self.config.gates.setup), setup, is_setup=True)
        before = {wanted: _age(path / wanted) for wanted in keep}
        ran, report = self._reported(line, path, name)
        made = {wanted: _made(path, wanted, before[wanted]) for wanted in keep}
        trial = Trial(line, ran, made, report=report)
        if ran.ending is not Ending.STOPPED:
            self._trials[(tree, line)] = trial
            self._note(tree, trial)
        return trial

    def _reported(self, line: str, path: Path, name: str) -> tuple[Ran, Report | None]:
        """Run *line*, and ask a runner that can for its report; one that cannot is run as it is."""
        into = f".report-{secrets.token_hex(6)}.xml"
        asking = reporting(line, into) if self._is_own(line) else None
        ran = self.run(asking or line, path, name)
        if asking is None:
            return ran, None
        data = _made(path, into, None)
        if ran.code == USAGE and not data and "junitxml" in ran.said:
            return self.run(line, path, name), None
        return ran, read_report(data)

    def _is_own(self, line: str) -> bool:
        """Return whether *line* is one of the project's commands, and not a part of one, or an agent's."""
        return line in self.config.gates.plain().values()

    def setup_on(self, tree: str) -> Trial:
        """Return what the project's setup came to on *tree*; only for projects that have one."""
        line, ran = str(self.config.gates.setup), self.checkout(tree).setup
        trial = Trial(line, ran, is_setup=True) if ran else self.trial(tree, "setup", line)
        self._note(tree, trial)
        return trial

    def on_base(self, name: str, line: str, *, afresh: bool = False) -> Result:
        """Return what *line* comes to without the work; *afresh* believes nothing that was kept.

        What was red is tried again in any case: somebody may have mended it since.
        """
        known = self.results.of(self.base_tree, line)
        if known is not None and known.is_usable and not afresh:
            return known
        if name == "setup":
            trial = self.setup_on(self.base_tree)
        else:
            trial = self.trial(self.base_tree, f"{name}-base", line)
        return result_of(self.base_tree, trial)

    def _note(self, tree: str, trial: Trial) -> None:
        """Remember what the project's commands come to on the trees that work is, or will be, based on."""
        is_based_on = tree in (self.base_tree, self.tree)
        if is_based_on and trial.ran.ending is Ending.DONE and self._is_own(trial.line):
            self.results.keep(result_of(tree, trial))


def _age(path: Path) -> int | None:
    return path.lstat().st_ctime_ns if path.is_file() and not path.is_symlink() else None


def _made(top: Path, wanted: str, before: int | None) -> bytes:
    """Return what a command wrote; nothing where the file is as it was, is a link, or leads elsewhere."""
    path = top / wanted
    now = _age(path)
    if now is None or now == before or not path.resolve().is_relative_to(top.resolve()):
        return b""
    with path.open("rb") as file:
        return file.read(LARGEST_KEPT)
