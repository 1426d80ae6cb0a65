"""The rules of the workflow, applied to a task in the very update that gave them something to see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.daemon.policy.coder import UNCLEAR
from liza.domain import events as e
from liza.domain.changes import SUPERVISOR
from liza.domain.lifecycle import TERMINAL
from liza.domain.model import Status
from liza.errors import Refused
from liza.workflow.catalogue import Action
from liza.workflow.rules import broken
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from liza.domain.config import Limits
    from liza.domain.model import State
    from liza.workflow.document import Workflow
    from liza.workflow.rules import Fired

# The words of the contract, where it has some.
_SAID: Final = {
    "coder_iterations": "Max iterations ({limits.max_coder_iterations}) reached without approval",
    "max_review_cycles": "Max review cycles ({limits.max_review_cycles}) reached without approval",
}
QUESTIONS: Final = {"coder_iterations": UNCLEAR, "max_review_cycles": UNCLEAR}
QUESTION: Final = "What should be done differently, or should the task be given up?"


def ruled(workflow: Workflow, state: State, name: str, at: datetime) -> State:
    """Return *state* as the rules about the task *name* leave it.

    They act in the supervisor's name, whoever's update it is. The strongest that can act on the task as it is
    now acts alone; alerts are for people, and the supervisor tells them.
    """
    task = state.tasks.get(name)
    if task is None or task.status in TERMINAL | {Status.BLOCKED} or task.merging:
        return state
    for fired in reversed(broken(workflow, task, state.config.limits, at)):
        act = _ACTS.get(fired.action)
        if act is None:
            continue
        try:
            return apply(act(fired, state.config.limits), to=name, by=SUPERVISOR, at=at)(state)
        except Refused:  # not from where the task is now; the next update looks again
            continue
    return state


def _blocked(fired: Fired, limits: Limits) -> e.Event:
    said = _SAID.get(fired.rule)
    reason = said.format(limits=limits) if said else f"{fired.rule}: {'; '.join(fired.evidence)}"
    questions = QUESTIONS.get(fired.rule, (QUESTION,))
    return e.Block(reason=reason, questions=questions, rule=fired.rule)


def _forced(fired: Fired, _: Limits) -> e.Event:
    return e.ForcePass(mark=f"forced:{fired.rule}")


_ACTS: Final[dict[Action, Callable[[Fired, Limits], e.Event]]] = {
    Action.BLOCK: _blocked,
    Action.PAUSE: _blocked,  # a task that is paused waits for people, as one that is blocked does
    Action.STOP: _blocked,
    Action.ASK: _blocked,
    Action.FORCE_PASS: _forced,
}
