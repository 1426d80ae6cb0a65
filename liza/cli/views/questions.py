"""All that waits for a person, as values: what is asked, since when, and by which command it goes on."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.cli.views.status import SAID_LINES, opinions
from liza.daemon.policy import planner
from liza.daemon.policy.pick import status_since
from liza.daemon.prompting import plan_text
from liza.domain import budget
from liza.domain.model import ANSWER_PLAN, Status, WorkerStatus
from liza.domain.rules import open_trips, resolve_command, trip_sentence
from liza.domain.waits import (
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
    from collections.abc import Iterator
    from datetime import datetime

    from liza.domain.model import State, Task


# A plan that waits for approval, as people read it.

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


YOU: Final = "you"
PLANNER: Final = "the planner"
PLAN: Final = "plan"  # the subject of what is asked about it


class QuestionKind(StrEnum):
    """What kind of thing waits; `ACTIONS` says what a person can do about each."""

    TRIP = "trip"  # the circuit breaker halted everybody
    BUDGET = "budget"
    PLAN = "plan"  # the planner has to know something before it plans
    PROPOSAL = "proposal"  # a plan that nobody said yes to
    BLOCKED = "blocked"  # a task asks: its coder, a rule, or the planner
    APPROVAL = "approval"  # a gate of the workflow asks a person for a yes
    CLARIFICATION = "clarification"  # a gate of the workflow asks a person for words
    TAINT = "taint"  # work passed by force
    DRAFT = "draft"  # a task that nobody released
    STOPPED = "stopped"  # a worker that crashed again and again
    PROVIDER = "provider"  # it refuses the key or the bill


class PersonAction(StrEnum):
    """What a person does about a question, by the command of the same name."""

    ANSWER = "answer"
    ACCEPT = "accept"
    REJECT = "reject"
    READY = "ready"
    RETRY = "retry"
    RESOLVE = "resolve"
    RESUME = "resume"
    RESTART = "restart"


ACTIONS: Final[dict[QuestionKind, tuple[PersonAction, ...]]] = {
    QuestionKind.TRIP: (PersonAction.RESOLVE,),
    QuestionKind.BUDGET: (PersonAction.ANSWER,),
    QuestionKind.PLAN: (PersonAction.ANSWER,),
    QuestionKind.PROPOSAL: (PersonAction.ACCEPT, PersonAction.REJECT),
    QuestionKind.BLOCKED: (PersonAction.ANSWER, PersonAction.RETRY),
    QuestionKind.APPROVAL: (PersonAction.ACCEPT, PersonAction.REJECT),
    QuestionKind.CLARIFICATION: (PersonAction.ANSWER,),
    QuestionKind.TAINT: (PersonAction.ACCEPT,),
    QuestionKind.DRAFT: (PersonAction.READY,),
    QuestionKind.STOPPED: (PersonAction.RESTART,),
    QuestionKind.PROVIDER: (PersonAction.RESUME,),
}


class OpenQuestion(NamedTuple):
    """Something that waits for a person. *subject* is what the command names: a task, `plan`, a trip."""

    kind: QuestionKind
    subject: str
    asks: tuple[str, ...]
    command: str
    because: str = ""
    said: tuple[str, ...] = ()  # opinions of reviewers, or the end of what a red command printed
    run: str | None = None  # the folder that has all of it
    since: datetime | None = None
    who: str = YOU  # or the planner, where it looks at it first

    @property
    def actions(self) -> tuple[PersonAction, ...]:
        return ACTIONS[self.kind]


def open_questions(state: State) -> tuple[OpenQuestion, ...]:
    """Return all that waits for people on *state*, what stops everybody first."""
    return (*_of_breaker(state), *_of_budget(state), *_of_plan(state), *_of_tasks(state), *_of_others(state))


def _of_breaker(state: State) -> Iterator[OpenQuestion]:
    for trip in open_trips(state):
        says = trip.says or trip.evidence
        command, fired = resolve_command(trip), trip_sentence(trip).removeprefix(f"{trip.id}: ")
        yield OpenQuestion(QuestionKind.TRIP, trip.id, (fired,), command, said=says, since=trip.at)


def _of_budget(state: State) -> Iterator[OpenQuestion]:
    if budget.is_budget_question_open(state):
        command = budget.raise_budget_command(state)
        yield OpenQuestion(QuestionKind.BUDGET, budget.BUDGET, (budget.budget_question(state),), command)


def _of_plan(state: State) -> Iterator[OpenQuestion]:
    if state.goal.questions:
        yield OpenQuestion(QuestionKind.PLAN, PLAN, state.goal.questions, ANSWER_PLAN)
    if awaits_plan_person(state):
        proposed = proposed_tasks(state)
        yield OpenQuestion(
            QuestionKind.PROPOSAL,
            PLAN,
            (plan_question(state),),
            ACCEPT_PLAN,
            said=tuple(plan_text(proposed).splitlines()),
            since=max(task.created for task in proposed),
        )


def _of_tasks(state: State) -> Iterator[OpenQuestion]:
    woken, proposed = planner.plan_request(state), proposed_tasks(state)
    for task in state.tasks.values():
        if task.status is Status.BLOCKED:
            is_next = planner.is_next_for(state, task, woken)
            yield _blocked(task)._replace(who=PLANNER if is_next else YOU)
        elif task.status is Status.AWAITING_APPROVAL:
            yield _approval(task)
        elif task.status is Status.APPROVED and task.is_tainted:
            yield _taint(task)
        elif task.status is Status.DRAFT and task not in proposed:
            asks = (f"{task.id} is a DRAFT that nobody released",)
            command = f"liza task ready {task.id}"
            yield OpenQuestion(QuestionKind.DRAFT, task.id, asks, command, since=status_since(task))


def _blocked(task: Task) -> OpenQuestion:
    seen = task.rejection_output
    return OpenQuestion(
        QuestionKind.BLOCKED,
        task.id,
        task.questions,
        f'liza answer {task.id} "…"',
        because=task.blocked_reason or "",
        said=seen.last_lines(SAID_LINES) if seen else (),
        run=seen.run if seen else None,
        since=task.asked or status_since(task),
    )


def _approval(task: Task) -> OpenQuestion:
    return OpenQuestion(
        QuestionKind.CLARIFICATION if task.asks_for_answer else QuestionKind.APPROVAL,
        task.id,
        (task.approval_question or "",),
        task.approval_command,
        said=tuple(opinions(task)),
        since=status_since(task),
    )


def _taint(task: Task) -> OpenQuestion:
    marks = ", ".join(taint.mark for taint in task.taints if taint.accepted_by is None)
    asks = f"{task.id} passed by force and needs your consent"
    command = f"liza task accept {task.id}"
    return OpenQuestion(
        QuestionKind.TAINT, task.id, (asks,), command, because=marks, since=status_since(task)
    )


def _of_others(state: State) -> Iterator[OpenQuestion]:
    for agent in state.agents.values():
        if agent.status is WorkerStatus.STOPPED and agent.stopped_reason:
            asks = (f"{agent.id} was stopped: {agent.stopped_reason}",)
            yield OpenQuestion(QuestionKind.STOPPED, agent.id, asks, "liza stop; liza run", since=agent.since)
    for provider in budget.refusing_providers(state):
        asks = (f"{provider.id} refuses: {provider.why}",)
        yield OpenQuestion(QuestionKind.PROVIDER, provider.id, asks, budget.RESUME, since=provider.since)
