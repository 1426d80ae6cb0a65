"""Collects the facts for a recovery and performs its plan; `policy.recovery` makes the plan."""

from __future__ import annotations

import os
import select
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.board.protocol import SUPERVISOR_NAME, open_board
from liza.daemon.policy import recovery
from liza.daemon.policy.recovery import (
    FinishMerge,
    KillLeftover,
    Leftover,
    MarkStopped,
    PruneWorktree,
    ReclaimTask,
    RecoveryFacts,
    RepeatTask,
    ReportLoss,
    RetireBranch,
)
from liza.daemon.policy.staffing import foreign_workers
from liza.daemon.project_sandbox import SANDBOXES
from liza.daemon.travel import integration_ref, shared_remote
from liza.domain.model import Status
from liza.domain.record import utc_now
from liza.errors import DiskTrouble, GitFailed, LizaError, RemoteTrouble, UnfitRepository
from liza.repo.command import close_readers
from liza.repo.pool import Worktrees
from liza.repo.private_gitdir import import_after_crash
from liza.repo.repository import BRANCHES, Repository
from liza.repo.worktree import broken_refs, empty_objects, missing_commits, present
from liza.system import files
from liza.system.host import host
from liza.system.platform import DEAD_STATES, Process
from liza.system.process import kill_all, leftover_processes, mark_of, process_of, process_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.daemon.policy.recovery import Action
    from liza.domain.model import State

RUNS: Final = "runs"
OWN_GIT: Final = "supervisor.git"  # the mark of the git processes that a supervisor starts


@dataclass(frozen=True)
class Recovery:
    """The board and the repository that a recovery reads and repairs."""

    board: Board
    repository: Repository
    host: str | None = None  # which machine this is, where there are several

    @property
    def home(self) -> Path:
        return self.board.home

    def facts(self, now: datetime, *, living: frozenset[str] = frozenset()) -> RecoveryFacts:
        """Return the present facts; *living* are the workers of this supervisor, foreign ones are added."""
        state = self.board.read()
        living |= foreign_workers(state, self.host)
        ref = integration_ref(self.repository, state.config)
        begun = {
            task.merging.commit for task in state.tasks.values() if task.merging and not task.merge_commit
        }
        if begun:
            with suppress(RemoteTrouble):  # what was on the branch stays there
                self.fetch(state)
        return RecoveryFacts(
            state=state,
            now=now,
            living=living,
            leftovers=tuple(_leftovers(self.home, living)),
            contained=frozenset(commit for commit in begun if self.repository.contains(ref, commit)),
            worktrees=frozenset(Worktrees(self.repository).tasks()),
            merged_branches=frozenset(self._merged_branches(state, ref)),
        )

    def _merged_branches(self, state: State, ref: str) -> Iterator[str]:
        if state.archived and self.repository.commit_at(ref):
            names = Worktrees(self.repository).branches(merged_into=ref)
            yield from (name for name in names if name in state.archived)

    def crash_facts(self, now: datetime) -> RecoveryFacts:
        """Return the facts, with the commits that the board names and that a machine crash may have lost."""
        facts = self.facts(now)
        tasks = facts.state.tasks.values()
        waiting = {*recovery.SUBMITTED, Status.AWAITING_APPROVAL}
        submitted = {
            task.review_commit: task.base_commit
            for task in tasks
            if task.status in waiting and task.review_commit
        }
        merged = {task.merge_commit for task in tasks if task.merge_commit}
        if named := {*submitted, *merged} - present(self.repository, {*submitted, *merged}):
            away = [task.id for task in tasks if {task.review_commit, task.merge_commit} & named]
            self.fetch(facts.state, away)
        missing = merged - present(self.repository, merged)
        return replace(facts, lost=missing_commits(self.repository, submitted) | missing)

    def fetch(self, state: State, tasks: Iterable[str] = ()) -> None:
        """Bring here what others merged, and the submissions of *tasks*, where the settings name a remote."""
        if remote := shared_remote(self.repository, state.config):
            remote.fetch(tasks)

    def retire_work(self, state: State) -> None:
        """Delete the submissions of merged tasks from the remote; where that fails, another time."""
        if remote := shared_remote(self.repository, state.config):
            tasks = (*state.tasks, *state.archived)
            with suppress(RemoteTrouble):
                remote.fetch()
                remote.retire_work(name for name in tasks if state.status_of(name) is Status.MERGED)

    def repair_refs(self, state: State) -> list[str]:
        """Remove refs and objects that a machine crash damaged; return a sentence for each repair."""
        integration = BRANCHES + state.config.integration_branch
        told = []
        for wreck in broken_refs(self.repository, integration):
            wreck.path.unlink()
            told.append(f"{wreck.ref} named no commit, as where the power fails, and is taken away")
        if told:
            for path in empty_objects(self.repository):
                path.unlink()
        if shared_remote(self.repository, state.config):
            return told  # the next start takes the branch from there
        if self.repository.commit_at(integration) is None and (last := self._last_merge(state)):
            self.repository.move_ref(integration, to=last, expected=None, why="put back after a crash")
            told.append(f"{integration} is put back to {last[:12]}, the last merge that the board knows")
        return told

    def _last_merge(self, state: State) -> str | None:
        """Return the merge that contains all others which the board knows and that are there."""
        merged = [task.merge_commit for task in state.tasks.values() if task.merge_commit]
        there = "".join(f"{commit}\n" for commit in present(self.repository, merged))
        words = ("rev-list", "--topo-order", "--max-count=1", "--stdin")
        return self.repository.git(*words, stdin=there.encode()) if there else None

    def perform(self, actions: Iterable[Action], facts: RecoveryFacts) -> list[str]:
        """Do *actions*, which may have been done before; return the processes that could not be ended."""
        todo = list(actions)
        survivors = _kill_leftovers([action.process for action in todo if isinstance(action, KillLeftover)])
        for merge in (action for action in todo if isinstance(action, FinishMerge)):
            self.board.update(recovery.finish_merge(merge.task, merge.commit, at=facts.now))
        if lost := [action.task for action in todo if isinstance(action, ReclaimTask)]:
            self.secure(lost, at=facts.now)
            reclaim = recovery.reclaim_tasks(facts.living, at=facts.now, killed=True, host=self.host)
            self.board.update(reclaim)
        self._repeat([action for action in todo if isinstance(action, RepeatTask | ReportLoss)], facts)
        if gone := {action.agent for action in todo if isinstance(action, MarkStopped)}:
            self.board.update(recovery.mark_stopped(gone, at=facts.now))
        self._clear([action for action in todo if isinstance(action, PruneWorktree | RetireBranch)], facts)
        return survivors

    def _clear(self, actions: list[PruneWorktree | RetireBranch], facts: RecoveryFacts) -> None:
        """Remove worktrees and branches; raise the first failure after all were tried."""
        trouble: LizaError | OSError | None = None
        into = integration_ref(self.repository, facts.state.config)
        for action in actions:
            try:
                if isinstance(action, PruneWorktree):
                    self.prune(action.task, facts)
                else:
                    Worktrees(self.repository).retire_branch(action.task, into=into)
            except (GitFailed, UnfitRepository, DiskTrouble, OSError) as error:
                trouble = trouble or error
        if trouble:
            raise trouble

    def _repeat(self, losses: list[RepeatTask | ReportLoss], facts: RecoveryFacts) -> None:
        """Alert people about lost commits, and reset the tasks whose submission is lost."""
        for path in empty_objects(self.repository) if losses else ():  # or git takes them for written
            path.unlink()
        for loss in losses:
            self.board.alerts.append(str(loss), at=facts.now)
            if isinstance(loss, RepeatTask):
                self.board.update(recovery.repeat_task(loss.task, loss.commit, at=facts.now))

    def secure(self, tasks: Iterable[str], *, at: datetime) -> None:
        """Restore the `.git` links of the worktrees of *tasks*, whose workers died before they could."""
        worktrees = Worktrees(self.repository)
        for task in tasks:
            if found := worktrees.of(task):
                worktrees.secure(found, task, at=at)

    def prune(self, task: str, facts: RecoveryFacts) -> None:
        worktrees = Worktrees(self.repository)
        if found := worktrees.worktree_at(worktrees.path_of(task)):
            import_after_crash(self.home / SANDBOXES, found, task)
        worktrees.release(task, at=facts.now)


def recover(home: Path, *, dry_run: bool) -> tuple[Action, ...]:
    """Repair what a crash left in *home*, or only plan it with *dry_run*; return the plan."""
    board = open_board(home)
    crash_recovery = Recovery(board, Repository.around(home.parent))
    if dry_run and board.presence.is_held(SUPERVISOR_NAME):
        return ()  # the running supervisor recovers by itself
    if dry_run:
        return recovery.plan(crash_recovery.crash_facts(utc_now()))
    with board.presence.hold(SUPERVISOR_NAME, at=utc_now()):
        for sentence in crash_recovery.repair_refs(board.read()):
            board.alerts.append(sentence, at=utc_now())
        facts = crash_recovery.crash_facts(utc_now())
        actions = recovery.plan(facts)
        if survivors := crash_recovery.perform(actions, facts):
            raise LizaError(f"these processes could not be ended: {', '.join(survivors)}; end them by hand")
        return actions


def is_run_of(run: str, worker: str) -> bool:
    """Return whether the run named *run* was started by *worker*."""
    return run.startswith(worker) and not run[len(worker) : len(worker) + 1].isdigit()


def _leftovers(home: Path, living: Collection[str]) -> list[Leftover]:
    close_readers()  # they bear the same mark, and are our own
    orphans = {process.pid: process for process in orphaned_workers(home, living)}
    found = leftover_processes(home / RUNS, lambda run: not any(is_run_of(run, name) for name in living))
    agents = [process for process in found if not _is_own_git(process)]
    # An orphaned worker comes before its agents: it would start others.
    return [
        *(_leftover(process, "the worker") for process in orphans.values()),
        *(_leftover(process, "the agent's process") for process in agents if process.pid not in orphans),
    ]


def _is_own_git(process: Process) -> bool:
    """Return whether *process* is the git that stays for this process; an adopted orphan is not."""
    return process.parent == os.getpid() and (mark_of(process.pid) or "").endswith(f"/{OWN_GIT}")


def _leftover(process: Process, what: str) -> Leftover:
    return Leftover(process.pid, process.started, f"{what} {process.name}")


def orphaned_workers(home: Path, living: Collection[str] = ()) -> list[Process]:
    """Return the processes that hold the lock of a worker that is not among *living*."""
    held = {
        str(home / files.WORKERS_DIRECTORY / f"{name}.lock")
        for name in files.live_workers(home) - set(living)
    }
    if not held:
        return []
    return [process for process in process_table().values() if held & host().open_files_of(process.pid)]


def supervisor_processes(home: Path) -> list[Process]:
    """Return the process that holds the supervisor's lock, as the kernel says; the pid in the file may be
    stale.
    """
    path = home / files.SUPERVISOR_LOCK
    if not files.is_held(path):
        return []
    return [process for process in process_table().values() if host().is_locked_by(process.pid, path)]


def await_exit(processes: Iterable[Process], patience: float) -> None:
    """Return once all of *processes* ended, or after *patience* seconds."""
    deadline = time.monotonic() + patience
    with ExitStack() as stack:
        waiting: list[int] = []
        for process in processes:
            with suppress(OSError):  # it ended already
                waiting.append(host().open_exit(process.pid))
                stack.callback(os.close, waiting[-1])
        while waiting and (left := deadline - time.monotonic()) > 0:
            over = select.select(waiting, [], [], left)[0]
            waiting = [descriptor for descriptor in waiting if descriptor not in over]


def _kill_leftovers(leftovers: list[Leftover]) -> list[str]:
    def still() -> list[Process]:
        known = ((leftover, process_of(leftover.pid)) for leftover in leftovers)
        return [
            now
            for leftover, now in known
            if now and now.started == leftover.started and now.state not in DEAD_STATES
        ]

    return [str(process) for process in kill_all(still)]
