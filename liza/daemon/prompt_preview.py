"""A prompt as an agent would get it now, for people who write one or want to know what theirs are told."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from liza.daemon import prompt_values, prompting
from liza.daemon.bootstrap import Bootstrap, RunPaths
from liza.daemon.policy import planner
from liza.daemon.policy.planner import PlanRequest
from liza.domain.answers import ROLE_OF_STEP, Step
from liza.domain.model import Status, Task, TaskScope
from liza.domain.record import printable
from liza.errors import UsageError
from liza.gates.feedback import gate_report
from liza.repo.objects import commits_between
from liza.repo.repository import BRANCHES

if TYPE_CHECKING:
    from datetime import datetime

    from liza.domain.model import State
    from liza.repo.repository import Repository

# A task to show where the board has none.
EXAMPLE: Final = "greet"


def preview_prompt(
    state: State, repository: Repository, step: Step, name: str | None, *, now: datetime
) -> str:
    """Return the prompt of *step*, about the task *name*, the first on the board, or an example of one."""
    task = _task_to_show(state, name, now) if step is not Step.PLAN else None
    if step is Step.PLAN and name is not None:
        raise UsageError("a plan is about the goal as a whole; leave the task out")
    if task is not None and task.id not in state.tasks:
        state = state.replace(tasks={**state.tasks, task.id: task})
    root = repository.root
    begin = Bootstrap.of(ROLE_OF_STEP[step], step, state, task, RunPaths(root, root, root))
    facts = {**_values_for(state, repository, step, task), prompting.BOOTSTRAP: begin.text()}
    return prompting.render_prompt(
        step, {key: printable(text) for key, text in facts.items()}, nonce=secrets.token_hex(8)
    )


def _task_to_show(state: State, name: str | None, now: datetime) -> Task:
    if name is not None:
        return state.task(name)
    example = Task(
        id=EXAMPLE,
        description="Add a function that greets",
        status=Status.IDLE,
        done_when=("greet('you') returns Hello, you",),
        scope=TaskScope(include=("greet.py", "tests")),
        created=now,
        created_by="human",
    )
    return next(iter(state.tasks.values()), example)


def _values_for(
    state: State, repository: Repository, step: Step, task: Task | None
) -> prompt_values.PromptValues:
    if task is None:
        return prompt_values.for_plan(
            state, planner.plan_request(state) or PlanRequest(Step.PLAN, "somebody wants to see it")
        )
    if step is Step.REPLAN:
        return prompt_values.for_replan(state, PlanRequest(step, "somebody wants to see it", task.id))
    if step is Step.CHECKPOINT:
        return prompt_values.for_checkpoint(state, task)
    if step is Step.IMPLEMENT:
        return prompt_values.for_implement(state, task)
    head = repository.commit_at(BRANCHES + state.config.integration_branch) or repository.head()
    base, commit = task.base_commit or head, task.review_commit or task.base_commit or head
    work = task.replace(base_commit=base, review_commit=commit)
    diff = repository.git("diff", "--no-color", str(base), str(commit))
    log = "\n\n".join(one.message for one in commits_between(repository, str(base), str(commit)))
    return prompt_values.for_review(state, work, diff=diff, log=log, checks=gate_report(task.verdicts))
