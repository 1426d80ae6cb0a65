"""What the daemon does when work moves on, also on a forge; no agent does any of it.

An effect is intended on the board, then performed, then the move that asks for it is written down. It may
be performed again where a worker died in between: each finds what it did before. Where it is not wanted any
more by then, it is taken back as far as others see it. What came of it is told in the history.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.daemon.idea_outcome import TriedIdea, write_outcome
from liza.daemon.issue_tasks import forge_of
from liza.domain.issues import Issue
from liza.domain.model import Status
from liza.errors import FULL, DiskTrouble, ForgeFailed, GitFailed
from liza.forges.comments import PhaseReport, ensure_pull_request, finalize_pull_request, report_phase
from liza.forges.protocol import ForgeProblem
from liza.repo.remote import publishable
from liza.repo.repository import Repository
from liza.repo.worktree import write_text_whole
from liza.workflow.document import IDEA_SOURCE, Effect, workflow_on

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime
    from pathlib import Path

    from liza.domain.model import State, Task
    from liza.forges.protocol import PullRequest
    from liza.repo.pool import Worktrees


# What a forge is told as work moves on; each may be repeated, and is done once.
#
# Everything that a forge can answer becomes a `ForgeFailed` with one sentence.

NO_FORGE: Final = "no forge is set up, so that nobody is shown it there"
NOTHING_MADE: Final = "there is nothing to show yet"


class Delivery(NamedTuple):
    """A task on its way to the forge: its commit, and what it is marked with."""

    state: State
    root: Path
    task: Task
    at: datetime
    commit: str | None
    taints: tuple[str, ...] = ()


def ensure_draft(delivery: Delivery) -> str:
    """Publish the work, and see to it that there is one pull request for it."""
    with _one_failure("publish the work"):
        found = _pull_request(delivery)
    return found if isinstance(found, str) else f"pull request #{found.number} {found.url}".strip()


def finalize(delivery: Delivery) -> str:
    """Mark the pull request as ready, or say in it why a person has to look first."""
    with _one_failure("publish the work"):
        found = _pull_request(delivery)
        if isinstance(found, str):
            return found
        finalize_pull_request(forge_of(delivery.state.config, delivery.root), found, delivery.taints)
    said = f"waits for a person: {', '.join(delivery.taints)}" if delivery.taints else "is ready"
    return f"pull request #{found.number} {said}"


def retract(delivery: Delivery) -> str:
    """Turn a pull request back into a draft that a worker marked as ready before it died unrecorded."""
    issue = delivery.task.issue
    if issue is None or issue.branch is None or not delivery.state.config.forge:
        return NO_FORGE
    with _one_failure("take back that the work is ready"):
        forge = forge_of(delivery.state.config, delivery.root)
        shown = [one for one in forge.open_pull_requests() if one.branch == issue.branch and not one.is_draft]
        for one in shown:
            forge.mark_draft(one.number)
    told = ", ".join(f"#{one.number}" for one in shown)
    return f"pull request {told} is a draft again" if shown else "it was not ready yet"


@contextmanager
def _one_failure(doing: str) -> Iterator[None]:
    """Turn what git and the disk of a forge say into a failure of the forge; a full disk is everybody's."""
    try:
        yield
    except GitFailed as error:
        raise ForgeFailed(doing, str(error), ForgeProblem.CONFLICT) from error
    except DiskTrouble as error:
        if error.errno in FULL:
            raise
        raise ForgeFailed(doing, str(error), ForgeProblem.OTHER) from error


def _pull_request(delivery: Delivery) -> PullRequest | str:
    """Return the pull request with all that was made so far; or why there is none."""
    issue, commit, task = delivery.task.issue, delivery.commit, delivery.task
    if issue is None or issue.branch is None or not delivery.state.config.forge:
        return NO_FORGE
    if commit is None or commit == task.base_commit:
        return NOTHING_MADE
    forge = forge_of(delivery.state.config, delivery.root)
    told = Issue(number=issue.number, title=issue.title, body=task.description)
    base = parent_branch(delivery.state, task) or issue.base
    shown = publishable(Repository.around(delivery.root), issue.branch, commit, at=delivery.at)
    return ensure_pull_request(forge, told, branch=issue.branch, commit=shown, base=base)


def parent_branch(state: State, task: Task) -> str | None:
    """Return the branch of the last issue that *task* waited for, where that is published and not merged."""
    parents = (state.tasks[name] for name in reversed(task.depends_on) if name in state.tasks)
    done = (one.issue for one in parents if one.status is Status.COMPLETE and one.review_commit)
    return next((issue.branch for issue in done if issue), None)


def comment(delivery: Delivery, role: str, text: str) -> None:
    """Say on the issue, or on its pull request, what *role* said in this round."""
    task, here = delivery.task, delivery.task.position
    issue = task.issue
    if issue is None or issue.branch is None or here is None or not delivery.state.config.forge:
        return
    report = PhaseReport(task.id, here.phase, role, here.iterations.get(here.phase, 1), text)
    with _one_failure(f"comment on issue #{issue.number}"):
        forge = forge_of(delivery.state.config, delivery.root)
        pulls = (one.number for one in forge.open_pull_requests() if one.branch == issue.branch)
        report_phase(forge, report, issue.number, next(pulls, None))


SUMMARIES: Final = "summaries"  # below .liza
FINISHED: Final = "finished"  # below .liza


class EffectContext(NamedTuple):
    """Where effects are performed, and on what: the commit that was made or judged, and its marks."""

    home: Path
    worktrees: Worktrees
    at: datetime
    state: State
    after: Task
    commit: str | None = None
    taints: tuple[str, ...] = ()

    def delivery(self, task: Task) -> Delivery:
        return Delivery(self.state, self.home.parent, task, self.at, self.commit, self.taints)


class EffectPerformer(NamedTuple):
    """One effect: the function that performs it and returns its result, and what it is for."""

    perform: Callable[[EffectContext, Task], str]
    meaning: str


def _write_summary(context: EffectContext, task: Task) -> str:
    if workflow_on(context.state).tasks.source == IDEA_SOURCE:
        return write_outcome(
            TriedIdea(context.home, context.worktrees.repository, context.state, context.after)
        )
    return _write(context, task, SUMMARIES)


def _archive(context: EffectContext, task: Task) -> str:
    return _write(context, task, FINISHED)


def _write(context: EffectContext, task: Task, folder: str) -> str:
    path = context.home / folder / f"{task.id}.json"
    told = {key: value for key, value in task.to_json().items() if key != "lease"}
    write_text_whole(path, json.dumps(told, indent=1) + "\n")
    return f"written to .liza/{folder}/{path.name}"


def _cleanup_worktree(context: EffectContext, task: Task) -> str:
    trees = context.worktrees
    worktree = trees.worktree_at(trees.path_of(task.id))
    if worktree is None:
        return "there is no worktree"
    if context.state.config.experiment.keep_worktrees:
        return f"the worktree is kept in {worktree.path.name}"
    trees.release(task.id, at=context.at)
    return "the worktree is gone; its branch is kept"


def _ensure_draft_pr(context: EffectContext, task: Task) -> str:
    return ensure_draft(context.delivery(task))


def _finalize_pr(context: EffectContext, task: Task) -> str:
    return finalize(context.delivery(task))


PERFORMERS: Final[dict[Effect, EffectPerformer]] = {
    Effect.WRITE_SUMMARY: EffectPerformer(_write_summary, "the task as JSON; of an idea, all its files"),
    Effect.ARCHIVE: EffectPerformer(_archive, "the same, of what succeeded"),
    Effect.CLEANUP_WORKTREE: EffectPerformer(_cleanup_worktree, "the worktree goes; its branch stays"),
    Effect.ENSURE_DRAFT_PR: EffectPerformer(_ensure_draft_pr, "a draft of the change on the forge"),
    Effect.FINALIZE_PR: EffectPerformer(_finalize_pr, "the draft is shown as ready"),
    Effect.MARK_NOMERGE: EffectPerformer(_finalize_pr, "the draft says that a person has to look"),
}


def take_back(context: EffectContext, task: Task, wanted: tuple[Effect, ...]) -> dict[str, str]:
    """Undo effects that a crash interrupted and that are not *wanted* any more; return their results."""
    begun = task.intended.effects if task.intended else ()
    if Effect.FINALIZE_PR not in begun or Effect.FINALIZE_PR in wanted:
        return {}
    return {str(Effect.FINALIZE_PR): retract(context.delivery(task))}


def perform_effects(context: EffectContext, task: Task, effects: tuple[Effect, ...]) -> dict[str, str]:
    """Perform *effects* one after the other; return the result of each."""
    return {str(effect): PERFORMERS[effect].perform(context, task) for effect in effects}
