"""Changes of the whole board: pure functions from state to state, with the name of who makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from liza.domain.anomalies import Anomaly
from liza.domain.anomaly_closing import (
    close_anomalies,
    close_with_finished_tasks,
    is_for_planner,
    open_anomalies,
)
from liza.domain.lifecycle import SUCCEEDED, TERMINAL
from liza.domain.metrics import with_metrics
from liza.domain.model import Actor, Discovery, EffectIntent, Goal, GoalStatus, NextGoal, Note, PastGoal, Role
from liza.domain.model import waits_for as waits_for  # noqa: PLC0414 - a claim is refused by it
from liza.domain.record import next_id, with_record
from liza.domain.sprints import begin_next_sprint as next_sprint
from liza.domain.sprints import with_sprint_scope
from liza.errors import NotThere, Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from liza.domain.anomalies import Details
    from liza.domain.model import State, Task, Urgency
    from liza.domain.verdicts import Signal

HUMAN: Final = Actor(role=Role.HUMAN, id="human")
# A person who acts through an assistant: the role says whose it is, the id that an assistant did it.
ASSISTANT: Final = Actor(role=Role.HUMAN, id="assistant")
SUPERVISOR: Final = Actor(role=Role.SUPERVISOR, id="supervisor")
MAX_SIGNALS: Final = 50  # of a task that the board keeps, the latest: more than any rule waits for


@dataclass(frozen=True)
class Change:
    """What one update does to the board, and what the journal says of it."""

    by: str
    what: str
    make: Callable[[State], State]
    about: Callable[[], str] | None = None  # the task, where *make* is what chooses it

    @property
    def told(self) -> str:
        """What the journal says, once the change was made."""
        return f"{self.what} {self.about()}".strip() if self.about else self.what

    def __call__(self, state: State) -> State:
        made = self.make(state)
        # Here, because every engine of the board lets every change happen by this one call.
        return (
            made
            if made is state
            else with_metrics(state, close_with_finished_tasks(state, with_sprint_scope(state, made)))
        )


def dead_dependencies(state: State, task: Task) -> tuple[str, ...]:
    """Return the dependencies of *task* that ended without success."""
    return tuple(name for name in task.depends_on if state.status_of(name) in TERMINAL - SUCCEEDED)


def queue_goal(text: str, *, spec: str | None, by: Actor, at: datetime) -> Change:
    """Return the change that puts a goal behind those that are there."""
    if not text.strip():
        raise UsageError("the goal is empty; say in a sentence what to build")

    def make(state: State) -> State:
        more = NextGoal(description=text, spec_ref=spec, created=at)
        return state.replace(goal=state.goal.replace(queued=(*state.goal.queued, more)))

    return Change(by.id, "queue a goal", make)


def begin_next_goal(state: State, at: datetime) -> State:
    """Return the board with the next goal begun where the current one is over; the same board elsewhere."""
    goal = state.goal
    if goal.status is GoalStatus.IN_PROGRESS or not goal.queued:
        return state
    report = state.sprint.retrospective
    past = PastGoal(
        description=goal.description,
        spec_ref=goal.spec_ref,
        status=goal.status,
        created=goal.created,
        completed=goal.completed,
        report=report,
    )
    following = Goal(
        description=goal.queued[0].description,
        spec_ref=goal.queued[0].spec_ref,
        created=goal.queued[0].created,
        number=goal.number + 1,
        begun=at,
        queued=goal.queued[1:],
        past=(*goal.past, past),
    )
    return next_sprint(state, at).replace(goal=following)


def add_note(message: str, *, about: str | None, by: Actor, at: datetime) -> Change:
    """Return the change that records what a person tells the agents."""
    if not message.strip():
        raise UsageError("a note needs words; say what the agents should know")

    def make(state: State) -> State:
        if by.role is not Role.HUMAN:
            sentence = f"{by.id} may not write in the name of people; agents log anomalies and discoveries"
            raise Refused(sentence)
        if about is not None and state.status_of(about) is None:
            raise NotThere("task", about, "`liza status` lists the tasks")
        name = next_id(state.human_notes, "note")
        note = Note(id=name, timestamp=at, message=message, about=about)
        return state.replace(human_notes=with_record(state.human_notes, note))

    return Change(by.id, f"note {about}" if about else "note", make)


def with_anomaly(state: State, details: Details, *, about: str | None, by: str, at: datetime) -> State:
    """Return the board with something logged that should not have happened."""
    anomaly = Anomaly(
        id=next_id(state.anomalies, "anomaly"),
        type=details.type,
        task_id=about,
        logged_by=by,
        timestamp=at,
        details=details,
    )
    return state.replace(anomalies=with_record(state.anomalies, anomaly))


def with_effects_intended(state: State, task: str, intent: EffectIntent, by: Actor) -> State:
    """Return the board with what is about to be done for *task*; raise where somebody else holds it now."""
    found = state.task(task)
    if found.lease is None or found.lease.token != by.token:
        raise Refused(f"{task}: {by.id} may not act for it, because it does not hold it any more")
    return state.with_task(found.replace(intended=intent))


def with_signals(state: State, task: str, *signals: Signal) -> State:
    """Return the board with what an agent said, or left unsaid, about *task*."""
    found = state.task(task)
    kept = (*found.signals, *signals)[-MAX_SIGNALS:]
    return state.with_task(found.replace(signals=kept)) if signals else state


def with_discovery(
    state: State, description: str, *, urgency: Urgency, about: str | None, by: str, at: datetime
) -> State:
    """Return the board with work that somebody saw beside their task."""
    found = Discovery(
        id=next_id(state.discovered, "discovery"),
        description=description,
        discovered_by=by,
        task_id=about,
        timestamp=at,
        urgency=urgency,
    )
    return state.replace(discovered=with_record(state.discovered, found))


def answer_plan(text: str, *, by: Actor, at: datetime) -> Change:
    """Return the change that answers what the planner has to know before it plans."""

    def make(state: State) -> State:
        if not state.goal.questions:
            message = 'the plan asks nothing; `liza note "…"` tells the agents something'
            raise Refused(message)
        noted = add_note(text, about=None, by=by, at=at)(state)
        over = [one.id for one in open_anomalies(noted) if one.task_id is None and is_for_planner(one)]
        answered = noted.replace(goal=noted.goal.replace(questions=()))
        return close_anomalies(answered, over, by=by.id, at=at)

    return Change(by.id, "answer the plan", make)
