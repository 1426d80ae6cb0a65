"""All that waits for a person, as values: what is asked, since when, and by which command it goes on."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.cli.views.status import SAID_LINES, opinions
from liza.daemon.policy import planner
from liza.daemon.policy.conditions import status_since
from liza.daemon.prompt_values import plan_text
from liza.domain import budget, providers
from liza.domain.model import ANSWER_PLAN, Status, WorkerStatus
from liza.domain.proposals import ACCEPT_PLAN, awaits_plan_person, plan_question, proposed_tasks
from liza.domain.trips import open_trips, resolve_command, trip_sentence

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from liza.domain.model import State, Task

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
    APPROVAL = "approval"  # a gate of the workflow asks a person
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
            is_next = task.asked is None or (woken is not None and woken.task == task.id)
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
        QuestionKind.APPROVAL,
        task.id,
        (task.approval_question or "",),
        f"liza task accept {task.id}",
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
    for provider in providers.refusing_providers(state):
        asks = (f"{provider.id} refuses: {provider.why}",)
        yield OpenQuestion(QuestionKind.PROVIDER, provider.id, asks, providers.RESUME, since=provider.since)
