"""Saying yes or no to a plan as a whole: its tasks are released, or the planner makes another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.domain import lifecycle as e
from liza.domain.changes import Change
from liza.domain.waits import proposed_tasks
from liza.errors import Refused
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from datetime import datetime

    from liza.domain.model import Actor, State

NOTHING_PROPOSED: Final = (
    "there is no plan that waits for approval; `liza status` says what there is, and with "
    "`plan: {approval: human}` in liza.yaml the next one waits"
)


def accept_plan(*, by: Actor, at: datetime) -> Change:
    """Return the change that releases every task of the plan to the coders."""

    def make(state: State) -> State:
        found = proposed_tasks(state)
        if not found:
            raise Refused(NOTHING_PROPOSED)
        for task in found:
            state = apply(e.Ready(), to=task.id, by=by, at=at)(state)
        # What the planner wanted to know was for another plan than this one.
        return state.replace(goal=state.goal.replace(sent_back=None, plan_returns=0, questions=()))

    return Change(by.id, "accept the plan", make)


def return_plan(comment: str, *, by: Actor, returns: int = 0) -> Change:
    """Return the change that sends the plan back with *comment*; *returns* is how often that happened."""

    def make(state: State) -> State:
        if not proposed_tasks(state):
            raise Refused(NOTHING_PROPOSED)
        return state.replace(goal=state.goal.replace(sent_back=comment, plan_returns=returns))

    return Change(by.id, "send the plan back", make)


def with_plan_replaced(
    state: State, old: tuple[str, ...], new: tuple[str, ...], by: Actor, at: datetime
) -> State:
    """Return the board with the tasks *old* of a plan that was sent back superseded by *new* ones."""
    event = e.Supersede(superseded_by=new, rescope_reason=f"the plan was sent back: {state.goal.sent_back}")
    for task in proposed_tasks(state):
        if task.id in old:
            state = apply(event, to=task.id, by=by, at=at)(state)
    return state.replace(goal=state.goal.replace(sent_back=None))
