"""Where tasks come from, where no planner splits the goal: the goal itself, a file of ideas, a forge."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.daemon.experiment_files import read_ideas
from liza.daemon.policy.pick import is_unfetched
from liza.daemon.policy.planner import is_depth_over, is_to_be_filled
from liza.domain.changes import SUPERVISOR
from liza.domain.ideas import first_ideas
from liza.domain.lifecycle import Block
from liza.domain.model import Status, Task, TaskScope
from liza.errors import UsageError
from liza.system.plugins import Registry
from liza.workflow.document import IDEA_SOURCE, page_paths, workflow_on
from liza.workflow.transition import add_task, apply

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from liza.domain.config import Config
    from liza.domain.ideas import Idea
    from liza.domain.model import State, TaskIssue
    from liza.workflow.document import TaskSource

IDEAS_FILE: Final = "ideas.md"
DONE_WHEN: Final = "what it says is so, and shown to be"
MENDED: Final = "Is that mended, or should it be given up?"


class NewTask(NamedTuple):
    id: str
    description: str
    issue: TaskIssue | None = None
    depends_on: tuple[str, ...] = ()
    blocked: str | None = None  # why nobody can begin with it
    guidance: str | None = None


class FoundTasks(NamedTuple):
    """Tasks that the goal gets, or why a search for more of them is over."""

    tasks: list[NewTask]
    ended: str | None = None


class Source(NamedTuple):
    """A row: what finds the tasks of a goal, and what it is for."""

    find: Callable[[State, Path, TaskSource], list[NewTask]]
    meaning: str


def goal_task(state: State, _root: Path, _source: TaskSource) -> list[NewTask]:
    """Return the one task that the goal itself is."""
    return [NewTask(f"goal-{state.goal.number}", state.goal.description)]


def _ideas(state: State, root: Path, source: TaskSource) -> list[NewTask]:
    """Return a task for each idea of a file or a directory, in its order."""
    found = configured_ideas(state.config, root, source)
    if search := state.config.experiment.search:
        found = found[: min(search.ideas, search.most or search.ideas)]
    return [
        NewTask(f"idea-{state.goal.number}-{number}", idea.text) for number, idea in enumerate(found, start=1)
    ]


def configured_ideas(config: Config, root: Path, source: TaskSource) -> tuple[Idea, ...]:
    """Return the ideas that the settings name, or else the workflow; raise what is wrong with them."""
    wanted = config.experiment
    if wanted.archive and not (wanted.ideas and (root / wanted.ideas).is_dir()):
        raise UsageError(
            "experiment.archive moves files of a directory; name one in experiment.ideas, or leave it out"
        )
    return first_ideas(read_ideas(root / (wanted.ideas or source.file or IDEAS_FILE)), wanted.first)


OWN_SOURCES: Final[dict[str, Source | str]] = {
    "goal": Source(goal_task, "the goal is the one task"),
    IDEA_SOURCE: Source(_ideas, "each paragraph of a file, or each file of a directory, is a task"),
    "issues": "liza.daemon.issue_tasks:ISSUES",
}
SOURCES: Final[Registry[Source]] = Registry("liza.sources", "source of tasks", OWN_SOURCES, Source)


def find_tasks(state: State, root: Path) -> FoundTasks | None:
    """Return the tasks of the goal, where they come from elsewhere than a planner and are not there yet."""
    source = workflow_on(state).tasks
    if not is_to_be_filled(state):
        return None
    if is_depth_over(state):
        return _deeper_ideas(state, root, source)
    return FoundTasks(SOURCES[source.source].find(state, root, source)[: source.limit])


def _deeper_ideas(state: State, root: Path, source: TaskSource) -> FoundTasks:
    from liza.daemon.idea_outcome import next_ideas  # noqa: PLC0415 - few boards have a search

    found = next_ideas(state, root, configured_ideas(state.config, root, source))
    first = 1 + sum(name.startswith(f"idea-{state.goal.number}-") for name in state.tasks)
    tasks = [
        NewTask(
            f"idea-{state.goal.number}-{number}",
            one.text,
            depends_on=(one.node,),
            guidance=f"Begin with what {one.node} made, and keep it: {state.task(one.node).description}",
        )
        for number, one in enumerate(found.ideas, start=first)
    ]
    return FoundTasks(tasks, found.ended)


def with_source_tasks(state: State, found: FoundTasks | None, at: datetime) -> State:
    """Return the board with the tasks that were *found* for its goal."""
    if found is None or not is_to_be_filled(state) or any(one.id in state.tasks for one in found.tasks):
        return state
    for one in found.tasks:
        task = Task(
            id=one.id,
            description=one.description,
            status=Status.IDLE,
            done_when=(DONE_WHEN,),
            scope=TaskScope(exclude=page_paths(state)),
            depends_on=one.depends_on,
            issue=one.issue,
            guidance=one.guidance,
            created=at,
            created_by=SUPERVISOR.id,
        )
        state = _with_block(add_task(task, by=SUPERVISOR, at=at)(state), one, at)
    return state.replace(goal=state.goal.replace(planned=at, search_ended=found.ended))


def with_refetched_tasks(state: State, found: list[NewTask], at: datetime) -> State:
    """Return the board with the texts of issues that can be read by now."""
    for one in found:
        if is_unfetched(state.task(one.id)):
            task = state.task(one.id).replace(description=one.description, issue=one.issue)
            state = _with_block(state.with_task(task), one, at)
    return state


def _with_block(state: State, found: NewTask, at: datetime) -> State:
    if found.blocked is None:
        return state
    block = Block(reason=found.blocked, questions=(MENDED,), only_people=True)
    return apply(block, to=found.id, by=SUPERVISOR, at=at)(state)
