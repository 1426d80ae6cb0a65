"""A plan that waits for approval, as people read it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from liza.daemon.prompt_values import plan_text
from liza.domain.proposals import (
    ACCEPT_PLAN,
    awaits_plan_person,
    awaits_plan_reviewer,
    is_plan_returned,
    plan_question,
    proposed_tasks,
)
from liza.errors import Refused
from liza.workflow.plan_approval import NOTHING_PROPOSED

if TYPE_CHECKING:
    from liza.domain.model import State

SEND_BACK: Final = 'liza plan reject "…"'


def plan_lines(state: State) -> list[str]:
    """Return the tasks of the plan, then who decides about it; raise where no plan waits."""
    tasks = proposed_tasks(state)
    if not tasks:
        raise Refused(NOTHING_PROPOSED)
    return [*plan_text(tasks).splitlines(), "", _decision(state)]


def _decision(state: State) -> str:
    if is_plan_returned(state):
        return f"It was sent back ({state.goal.sent_back}); the planner makes another."
    if awaits_plan_reviewer(state):
        return f"A reviewer judges it first; `{ACCEPT_PLAN}` and `{SEND_BACK}` are faster."
    return f"It asks you: {plan_question(state)} `{ACCEPT_PLAN}`, or `{SEND_BACK}`."


def plan_json(state: State) -> dict[str, Any]:
    return {
        "tasks": [task.to_json() for task in proposed_tasks(state)],
        "sent_back": state.goal.sent_back,
        "waits_for_you": awaits_plan_person(state),
    }
