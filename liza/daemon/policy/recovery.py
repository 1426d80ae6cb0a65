"""What to put right after a crash: a pure plan from the board, git and the process table.

Doing the plan and planning again gives nothing: an action changes the very facts that it was planned from.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from liza.daemon.policy.pick import settle_reservations_except, settle_reservations_of
from liza.daemon.policy.staffing import foreign_workers
from liza.domain.changes import SUPERVISOR, Change
from liza.domain.lifecycle import TERMINAL, Land, Reclaim
from liza.domain.model import Status, WorkerStatus
from liza.domain.record import with_records
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime

    from liza.domain.model import State, Task


SUBMITTED: Final = frozenset({Status.READY_FOR_REVIEW, Status.APPROVED, Status.INTEGRATION_FAILED})
# How long a living worker may take to clear up after a finished task.
CLEANUP_GRACE: Final = timedelta(seconds=60)


@dataclass(frozen=True)
class Leftover:
    """A process that should not be there: an orphaned worker, or an agent of a worker that is dead."""

    pid: int
    started: int  # clock ticks since boot, which tell it from a later process of the same pid
    what: str

    def __str__(self) -> str:
        return f"{self.what} (pid {self.pid})"


@dataclass(frozen=True)
class RecoveryFacts:
    """All that a plan depends on."""

    state: State
    now: datetime
    living: frozenset[str] = frozenset()  # workers that may go on: they hold their lock and have a supervisor
    leftovers: tuple[Leftover, ...] = ()
    contained: frozenset[str] = frozenset()  # recorded merges that the integration branch contains
    worktrees: frozenset[str] = frozenset()  # names in the area of worktrees
    merged_branches: frozenset[str] = frozenset()  # tasks off the board whose branch integration has all of
    lost: frozenset[str] = frozenset()  # commits that the board names and that are not there whole


@dataclass(frozen=True)
class KillLeftover:
    process: Leftover

    def __str__(self) -> str:
        return f"end {self.process}, which outlived its parent"


@dataclass(frozen=True)
class FinishMerge:
    task: str
    commit: str

    def __str__(self) -> str:
        return f"{self.task}: write down that it is merged, because {self.commit[:12]} is on the branch"


@dataclass(frozen=True)
class ReclaimTask:
    task: str
    holder: str
    reason: str

    def __str__(self) -> str:
        return f"{self.task}: take it from {self.holder}, because {self.reason}"


@dataclass(frozen=True)
class RepeatTask:
    task: str
    commit: str

    def __str__(self) -> str:
        return f"{self.task}: do it again, because {lost_sentence(self.commit)}"


@dataclass(frozen=True)
class ReportLoss:
    task: str
    commit: str
    status: Status

    def __str__(self) -> str:
        return f"{self.task} is {self.status}, but {lost_sentence(self.commit)}; look for it in your backups"


@dataclass(frozen=True)
class MarkStopped:
    agent: str

    def __str__(self) -> str:
        return f"{self.agent}: write down that it does not run"


@dataclass(frozen=True)
class PruneWorktree:
    task: str
    status: Status

    def __str__(self) -> str:
        return f"{self.task}: save what is in its worktree and remove it, because it is {self.status}"


@dataclass(frozen=True)
class RetireBranch:
    task: str

    def __str__(self) -> str:
        return f"{self.task}: delete its branch, which is merged, because the task is archived"


Action = (
    KillLeftover
    | FinishMerge
    | ReclaimTask
    | RepeatTask
    | ReportLoss
    | MarkStopped
    | PruneWorktree
    | RetireBranch
)


def lost_sentence(commit: str) -> str:
    return f"its commit {commit[:12]} is gone or damaged, as where the power fails"


def action_json(action: Action) -> dict[str, object]:
    """Return *action* as JSON values, with its name and its sentence."""
    return {"action": type(action).__name__, **asdict(action), "says": str(action)}


def plan(facts: RecoveryFacts) -> tuple[Action, ...]:
    """Return the actions in order: processes end before their worktree is given to another worker."""
    return (*settling_actions(facts), *clearing_actions(facts))


def clearing_actions(facts: RecoveryFacts) -> tuple[Action, ...]:
    """Return the actions that remove worktrees and branches which are not needed any more."""
    return (*worktrees_to_prune(facts), *branches_to_retire(facts))


def settling_actions(facts: RecoveryFacts) -> tuple[Action, ...]:
    """Return what the next run depends on; all else can be cleared up at any time."""
    return (
        *(KillLeftover(process) for process in facts.leftovers),
        *_merges(facts),
        *_leases(facts),
        *_losses(facts),
        *_agents(facts),
    )


def _merges(facts: RecoveryFacts) -> Iterator[FinishMerge]:
    for task in facts.state.tasks.values():
        commit = _landed_merge(task, facts)
        if commit and (task.lease is None or why_dead(task, facts.living, facts.now)):
            yield FinishMerge(task.id, commit)


def _landed_merge(task: Task, facts: RecoveryFacts) -> str | None:
    """Return the recorded merge of *task* that the branch contains, though the board does not say so yet."""
    if task.status is not Status.APPROVED or task.merging is None or task.is_tainted:
        return None
    return task.merging.commit if task.merging.commit in facts.contained else None


def _losses(facts: RecoveryFacts) -> Iterator[RepeatTask | ReportLoss]:
    for task in facts.state.tasks.values():
        if task.status in SUBMITTED and task.review_commit in facts.lost:
            yield RepeatTask(task.id, str(task.review_commit))
        elif task.status is Status.AWAITING_APPROVAL and task.review_commit in facts.lost:
            yield ReportLoss(task.id, str(task.review_commit), task.status)
        elif task.status is Status.MERGED and task.merge_commit in facts.lost:
            yield ReportLoss(task.id, str(task.merge_commit), task.status)


def repeat_task(name: str, commit: str, *, at: datetime) -> Change:
    """Let a task be done again whose submitted *commit* is gone."""

    def make(state: State) -> State:
        task = state.tasks.get(name)
        if task is None or task.status not in SUBMITTED or task.review_commit != commit:
            return state
        reason = f"{lost_sentence(commit)}; do the work again"
        return apply(Reclaim(reason=reason, lost=True), to=name, by=SUPERVISOR, at=at)(state)

    return Change(SUPERVISOR.id, f"repeat {name}", make)


def _leases(facts: RecoveryFacts) -> Iterator[ReclaimTask]:
    for task in facts.state.tasks.values():
        reason = why_dead(task, facts.living, facts.now)
        if task.lease and reason and not _landed_merge(task, facts):
            yield ReclaimTask(task.id, task.lease.holder, reason)


def why_dead(task: Task, living: Collection[str], now: datetime) -> str | None:
    """Return why the lease of *task* is worth nothing, or None where it is, or there is none."""
    if task.lease is None:
        return None
    if task.lease.holder not in living:
        return f"{task.lease.holder} does not run"
    if not task.lease.is_live(now):
        return f"{task.lease.holder} let its lease run out at {task.lease.expires:%H:%M:%SZ}"
    return None


def _agents(facts: RecoveryFacts) -> Iterator[MarkStopped]:
    for agent in facts.state.agents.values():
        if agent.status is not WorkerStatus.STOPPED and agent.id not in facts.living:
            yield MarkStopped(agent.id)


def worktrees_to_prune(facts: RecoveryFacts, most: int | None = None) -> Iterator[PruneWorktree]:
    """Yield the worktrees of finished tasks but the newest *most*, so many as the settings keep.

    It is a step that may be taken in the middle of a run.
    """
    done = {action.task for action in _merges(facts)}
    most = kept_worktrees(facts.state) if most is None else most
    there = [task.id for task in finished_tasks(facts.state) if task.id in facts.worktrees]
    kept = {*there[max(0, len(there) - most) :], *(done if most else ())}
    for name in sorted(facts.worktrees - kept):
        status = Status.MERGED if name in done else facts.state.status_of(name)
        # What the board does not know is not ours: people keep worktrees in such a place, too.
        if status in TERMINAL and not _is_fresh(name, facts):
            yield PruneWorktree(name, status)


def kept_worktrees(state: State) -> int:
    """Return of how many finished tasks the worktree is kept, as long as there is room on the disk."""
    config = state.config
    return len(state.tasks) if config.experiment.keep_worktrees else config.limits.kept_worktrees


def finished_tasks(state: State) -> list[Task]:
    """Return the finished tasks of the board, those that were finished first before the others."""
    done = [task for task in state.tasks.values() if task.status in TERMINAL]
    return sorted(done, key=lambda task: task.history[-1].at)


def branches_to_retire(facts: RecoveryFacts) -> Iterator[RetireBranch]:
    """Yield the merged branches of tasks that have left the board."""
    yield from (RetireBranch(name) for name in sorted(facts.merged_branches))


def _is_fresh(name: str, facts: RecoveryFacts) -> bool:
    """Return whether a worker that finished the task *name* may be about to clear its worktree itself."""
    task = facts.state.tasks.get(name)
    return bool(facts.living) and task is not None and facts.now - task.history[-1].at < CLEANUP_GRACE


def reclaim_tasks(
    living: Collection[str], *, at: datetime, killed: bool = False, host: str | None = None
) -> Change:
    """Return the change that takes back every task whose holder is dead or silent.

    Nothing follows for a task from the death of a holder that was *killed*. Whether a worker of another
    host lives is not known to *host*: only the end of its lease counts.
    """

    def make(state: State) -> State:
        alive = {*living, *foreign_workers(state, host)}
        for task in state.tasks.values():
            if reason := why_dead(task, alive, at):
                is_dead = task.lease is not None and task.lease.holder not in alive
                reclaim = Reclaim(reason=reason + _begun_text(task), killed=killed and is_dead)
                state = apply(reclaim, to=task.id, by=SUPERVISOR, at=at)(state)
        return settle_reservations_except(state, alive)

    return Change(SUPERVISOR.id, "reclaim", make)


def _begun_text(task: Task) -> str:
    """Return the part of a sentence that names the effects which a dead holder had begun."""
    if task.intended is None:
        return ""
    return f"; {' and '.join(task.intended.effects)} had begun for it, and is looked at again"


def finish_merge(task: str, commit: str, *, at: datetime) -> Change:
    """Return the change that records a merge which happened, unless it was recorded meanwhile."""
    change = apply(Land(commit=commit), to=task, by=SUPERVISOR, at=at)

    def make(state: State) -> State:
        return change(state) if state.status_of(task) is Status.APPROVED else state

    return Change(SUPERVISOR.id, f"merge {task}", make)


def mark_stopped(agents: Collection[str], *, at: datetime) -> Change:
    """Return the change that writes down that *agents* do not run; they come back with the next start."""

    def make(state: State) -> State:
        changed = {
            name: agent.replace(status=WorkerStatus.STOPPED, since=at)
            for name, agent in state.agents.items()
            if name in agents and agent.status is not WorkerStatus.STOPPED
        }
        state = settle_reservations_of(state, agents)
        return state.replace(agents=with_records(state.agents, changed)) if changed else state

    return Change(SUPERVISOR.id, f"stopped {', '.join(sorted(agents))}", make)
