"""A plan that nobody said yes to yet: its tasks are DRAFT, and somebody looks at it first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.domain.config import PlanApproval
from liza.domain.model import Status

if TYPE_CHECKING:
    from liza.domain.model import State, Task

ACCEPT_PLAN: Final = "liza plan accept"
_PEOPLE: Final = frozenset({"human", "assistant"})  # a DRAFT of theirs is released one by one


def proposed_tasks(state: State) -> tuple[Task, ...]:
    """Return the tasks that a planner proposed and nobody released."""
    drafts = (task for task in state.tasks.values() if task.status is Status.DRAFT)
    return tuple(task for task in drafts if task.created_by not in _PEOPLE)


def is_plan_returned(state: State) -> bool:
    """Return whether the plan was sent back, so that the planner makes another."""
    return state.goal.sent_back is not None and bool(proposed_tasks(state))


def awaits_plan_reviewer(state: State) -> bool:
    """Return whether a reviewer's agent is to judge the plan; people do, once it was sent back too often."""
    goal, config = state.goal, state.config
    is_for_reviewer = config.plan.approval is PlanApproval.REVIEWER
    is_left = goal.plan_returns < config.limits.max_rejections
    return is_for_reviewer and is_left and goal.sent_back is None and bool(proposed_tasks(state))


def awaits_plan_person(state: State) -> bool:
    """Return whether only a person can say yes to the plan."""
    is_elsewhere = is_plan_returned(state) or awaits_plan_reviewer(state)
    return bool(proposed_tasks(state)) and not is_elsewhere


def plan_question(state: State) -> str:
    """Return what a person is asked about the plan."""
    names = [task.id for task in proposed_tasks(state)]
    count = f"{len(names)} task{'s' if len(names) > 1 else ''}"
    returns = state.goal.plan_returns
    before = f"; reviewers did not let it pass {returns} time{'s' if returns > 1 else ''}" if returns else ""
    return f"may the plan be worked on: {count} ({', '.join(names)}){before}?"
