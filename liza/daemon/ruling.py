"""The rules of the workflow, applied to a task in the very update that gave them something to see."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.daemon.policy.coder import UNCLEAR_SPEC
from liza.domain import events as e
from liza.domain.changes import SUPERVISOR
from liza.domain.lifecycle import TERMINAL
from liza.domain.model import Status
from liza.errors import Refused
from liza.workflow.catalogue import RuleAction
from liza.workflow.rules import broken_task_rules
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from liza.domain.config import Limits
    from liza.domain.model import State
    from liza.workflow.document import Workflow
    from liza.workflow.rules import FiredRule

# The words of the contract, where it has some.
_REASONS: Final = {
    "coder_iterations": "Max iterations ({limits.max_coder_iterations}) reached without approval",
    "max_review_cycles": "Max review cycles ({limits.max_review_cycles}) reached without approval",
}
QUESTIONS: Final = {"coder_iterations": UNCLEAR_SPEC, "max_review_cycles": UNCLEAR_SPEC}
QUESTION: Final = "What should be done differently, or should the task be given up?"


def apply_rules(workflow: Workflow, state: State, name: str, at: datetime) -> State:
    """Return *state* with the strongest rule about the task *name* applied, in the supervisor's name.

    Alerts are left to the supervisor.
    """
    task = state.tasks.get(name)
    if task is None or task.status in TERMINAL | {Status.BLOCKED} or task.merging:
        return state
    for fired in reversed(broken_task_rules(workflow, task, state.config.limits, at)):
        act = _EVENTS.get(fired.action)
        if act is None:
            continue
        try:
            return apply(act(fired, state.config.limits), to=name, by=SUPERVISOR, at=at)(state)
        except Refused:  # not from where the task is now; the next update looks again
            continue
    return state


def _block(fired: FiredRule, limits: Limits) -> e.Event:
    said = _REASONS.get(fired.rule)
    reason = said.format(limits=limits) if said else f"{fired.rule}: {'; '.join(fired.evidence)}"
    questions = QUESTIONS.get(fired.rule, (QUESTION,))
    return e.Block(reason=reason, questions=questions, rule=fired.rule)


def _force_pass(fired: FiredRule, _: Limits) -> e.Event:
    return e.Report(mark=f"forced:{fired.rule}")


_EVENTS: Final[dict[RuleAction, Callable[[FiredRule, Limits], e.Event]]] = {
    RuleAction.BLOCK: _block,
    RuleAction.PAUSE: _block,  # a task that is paused waits for people, as one that is blocked does
    RuleAction.STOP: _block,
    RuleAction.ASK: _block,
    RuleAction.FORCE_PASS: _force_pass,
}
