"""Issues of a forge as tasks: fetched outside of any lock, since a forge takes its time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.daemon.policy.pick import is_unfetched
from liza.daemon.sources import NewTask, Source, goal_task
from liza.domain.issues import IssueSelection, parse_selection, queue_issues
from liza.domain.model import SUCCEEDED, TaskIssue
from liza.domain.phase_handoff import issue_text
from liza.errors import ForgeFailed, GitFailed, UsageError
from liza.forges.comments import choose_branch
from liza.forges.protocol import FORGES, ForgeProblem, fetch_issues, open_forge
from liza.repo.repository import Repository

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.config import Config
    from liza.domain.issues import Issue, UnfitIssue
    from liza.domain.model import State
    from liza.forges.protocol import Forge
    from liza.workflow.document import TaskSource

NAME: Final = "issues"  # of this source of tasks
SAY_WHICH: Final = "say which: `--issues 1-5,8`, `--issues label:agent`, or `issues` in liza.yaml"


def forge_of(config: Config, root: Path) -> Forge:
    """Open the forge that *config* names; every reason why it cannot be used is a `ForgeFailed`."""
    ((name, options),) = config.forge.items()
    try:
        return open_forge(name, options, root)
    except UsageError as error:
        raise ForgeFailed(f"use the forge {name}", str(error), ForgeProblem.INVALID) from error


def require_forge(config: Config, root: Path, source: str) -> None:
    """Refuse a forge that cannot be used, and a forge or issues in a workflow that uses none."""
    if (config.forge or config.issues) and source != NAME:
        raise UsageError(f"the workflow {config.workflow} takes no issues; leave `forge` and `issues` out")
    if config.issues and not config.forge:
        named = " or ".join(f"`forge: {{{name}: {{…}}}}`" for name in FORGES.names())
        raise UsageError(f"the issues {config.issues} are named, and no forge; set one in liza.yaml: {named}")
    if config.forge and not config.issues:
        raise UsageError(f"a forge is set up, and no issues are named; {SAY_WHICH}")
    if config.forge:
        ((name, options),) = config.forge.items()
        open_forge(name, options, root)


def _find(state: State, root: Path, source: TaskSource) -> list[NewTask]:
    return _issue_tasks(state, root) if state.config.forge else goal_task(state, root, source)


def _issue_tasks(state: State, root: Path) -> list[NewTask]:
    """Return a task for each issue that the settings name, in the order in which they can be done."""
    forge = forge_of(state.config, root)
    fetched = fetch_issues(forge, parse_selection(str(state.config.issues)))
    queue = queue_issues(fetched.issues, ended=_issues_done(state), unfit=fetched.unfit)
    fetcher = _Fetcher(forge, root)
    tasks = [
        fetcher.task(issue, queue.waits_for.get(issue.number, ()), queue.blocked.get(issue.number))
        for issue in sorted(fetched.issues, key=lambda one: _place(queue.order, one.number))
    ]
    tasks += map(_unfit_task, fetched.unfit)
    return [one for one in tasks if state.status_of(one.id) is None]


def _unfit_task(unfit: UnfitIssue) -> NewTask:
    there = TaskIssue(number=unfit.number, title=f"issue #{unfit.number}")
    return NewTask(task_name(unfit.number), str(unfit), there, blocked=str(unfit))


def refetch_tasks(state: State, root: Path) -> list[NewTask]:
    """Fetch the issues again that could not be fetched; return their tasks."""
    again = [task.issue.number for task in state.tasks.values() if task.issue and is_unfetched(task)]
    if not again:
        return []
    forge = forge_of(state.config, root)
    fetched, fetcher = fetch_issues(forge, IssueSelection(tuple(again))), _Fetcher(forge, root)
    known = [task.issue.number for task in state.tasks.values() if task.issue]
    queue = queue_issues(fetched.issues, ended=set(known) - set(again), unfit=fetched.unfit)
    return [
        *(fetcher.task(one, (), queue.blocked.get(one.number)) for one in fetched.issues),
        *map(_unfit_task, fetched.unfit),
    ]


def task_name(number: int) -> str:
    return f"issue-{number}"


def _issues_done(state: State) -> list[int]:
    done = (task.issue for task in state.tasks.values() if task.status in SUCCEEDED)
    return [issue.number for issue in done if issue]


def _place(order: tuple[int, ...], number: int) -> tuple[int, int]:
    """Return where issue *number* comes: those that cannot be done come last."""
    return (order.index(number) if number in order else len(order), number)


class _Fetcher:
    """Looks once at what others published, and makes a task of each issue."""

    def __init__(self, forge: Forge, root: Path) -> None:
        self._forge = forge
        try:
            self._branches = forge.branches()
        except GitFailed as error:
            raise ForgeFailed("look for branches", str(error), ForgeProblem.UNREACHABLE) from error
        self._base = Repository.around(root).branch() or TaskIssue.model_fields["base"].default

    def task(self, issue: Issue, parents: tuple[int, ...], blocked: str | None) -> NewTask:
        branch = choose_branch(self._forge, issue, self._branches)
        begins = self._forge.fetch_branch(branch) if branch in self._branches else None
        there = TaskIssue(
            number=issue.number, title=issue.title, branch=branch, base=self._base, begins=begins
        )
        text = issue_text(issue, branch if begins else None)
        waits = () if blocked else tuple(map(task_name, parents))
        return NewTask(task_name(issue.number), text, there, waits, blocked)


ISSUES: Final = Source(
    _find, "each issue of the forge that the settings name; without a forge the goal itself"
)
