"""What a forge is told as work moves on; each may be repeated, and is done once.

Everything that a forge can answer becomes a `ForgeFailed` with one sentence.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.daemon.issue_tasks import forge_of
from liza.domain.issues import Issue
from liza.domain.model import Status
from liza.errors import FULL, DiskTrouble, ForgeFailed, GitFailed
from liza.forges.delivery import PhaseReport, ensure_pull_request, finalize_pull_request, report_phase
from liza.forges.protocol import ForgeProblem
from liza.repo.published import publishable
from liza.repo.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime
    from pathlib import Path

    from liza.domain.model import State, Task
    from liza.forges.protocol import PullRequest

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
    """Make a draft again of what was shown as ready by who died before that could be written down."""
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
