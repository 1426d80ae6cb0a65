"""What waits for people on a board, as values; it loads little, so that `liza status` can say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain import budget
from liza.domain.config import PlanApproval
from liza.domain.model import ANSWER_PLAN, Status, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from liza.domain.model import State, Task


# A plan that nobody said yes to yet: its tasks are DRAFT, and somebody looks at it first.

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


class HumanWait(NamedTuple):
    """Something that waits for a person: what, and the command that lets it go on."""

    what: str
    then: str
    since: str = ""  # which of several times it is: what was answered may be asked again
    is_told: bool = False  # whoever met it has told people already

    def __str__(self) -> str:
        return f"{self.what} (`{self.then}`)"


def human_waits(state: State) -> tuple[HumanWait, ...]:
    """Return all that waits for people, whether or not others can make progress meanwhile."""
    return (
        *trip_waits(state),
        *_question_waits(state),
        *_stopped_waits(state),
        *_budget_waits(state),
        *_provider_waits(state),
    )


def stop_reasons(state: State) -> dict[str, str]:
    """Return the workers that were stopped because they crashed again and again, with the reason."""
    agents = (agent for agent in state.agents.values() if agent.status is WorkerStatus.STOPPED)
    return {agent.id: agent.stopped_reason for agent in agents if agent.stopped_reason}


def _question_waits(state: State) -> Iterator[HumanWait]:
    if state.goal.questions:
        yield HumanWait(f"the plan needs to know: {'; '.join(state.goal.questions)}", ANSWER_PLAN)
    proposed = proposed_tasks(state)
    if awaits_plan_person(state):
        since = max(task.created for task in proposed).isoformat()
        yield HumanWait(plan_question(state), ACCEPT_PLAN, since)
    for task in state.tasks.values():
        if task.status is Status.BLOCKED:
            asked = "; ".join(task.questions)
            yield HumanWait(f"{task.id} is BLOCKED: {asked}", f'liza answer {task.id} "…"', _since(task))
        elif task.status is Status.AWAITING_APPROVAL:
            what = "asks" if task.asks_for_answer else "awaits approval"
            asked = f"{task.id} {what}: {task.approval_question}"
            yield HumanWait(asked, task.approval_command, _since(task))
        elif task.status is Status.APPROVED and task.is_tainted:
            yield HumanWait(
                f"{task.id} passed by force and needs your consent", f"liza task accept {task.id}"
            )
        elif task.status is Status.DRAFT and task not in proposed:
            yield HumanWait(f"{task.id} is a DRAFT that nobody released", f"liza task ready {task.id}")


def _since(task: Task) -> str:
    """Return when the task came to be as it is; a long time ago where its history no longer shows it."""
    moved = (entry.at for entry in reversed(task.history) if entry.source is not entry.target)
    return (task.asked or next(moved, task.created)).isoformat()


def _stopped_waits(state: State) -> Iterator[HumanWait]:
    for name, reason in stop_reasons(state).items():
        yield HumanWait(f"{name} was stopped: {reason}", "liza stop; liza run")


def _budget_waits(state: State) -> Iterator[HumanWait]:
    if budget.is_budget_question_open(state):
        yield HumanWait(budget.budget_question(state), budget.raise_budget_command(state), is_told=True)


def _provider_waits(state: State) -> Iterator[HumanWait]:
    for provider in budget.refusing_providers(state):
        yield HumanWait(f"{provider.id} refuses: {provider.why}", budget.RESUME, is_told=True)


def trip_waits(state: State) -> Iterator[HumanWait]:
    """Yield the trips of the circuit breaker that nobody resolved."""
    for trip in state.circuit_breaker.trips:
        if trip.resolved_at is None:
            seen = "; ".join(trip.says or trip.evidence)
            then = f'liza breaker resolve {trip.id} --reason "…"'
            yield HumanWait(f"the rule {trip.rule} tripped: {seen}", then, trip.id)
