"""What waits for people on a board, as values; it loads little, so that `liza status` can say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from liza.domain import budget, providers
from liza.domain.model import ANSWER_PLAN, Status, WorkerStatus
from liza.domain.proposals import ACCEPT_PLAN, awaits_plan_person, plan_question, proposed_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from liza.domain.model import State, Task


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
            asked = f"{task.id} awaits approval: {task.approval_question}"
            yield HumanWait(asked, f"liza task accept {task.id}", _since(task))
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
    for provider in providers.refusing_providers(state):
        yield HumanWait(f"{provider.id} refuses: {provider.why}", providers.RESUME, is_told=True)


def trip_waits(state: State) -> Iterator[HumanWait]:
    """Yield the trips of the circuit breaker that nobody resolved."""
    for trip in state.circuit_breaker.trips:
        if trip.resolved_at is None:
            seen = "; ".join(trip.says or trip.evidence)
            then = f'liza breaker resolve {trip.id} --reason "…"'
            yield HumanWait(f"the rule {trip.rule} tripped: {seen}", then, trip.id)
