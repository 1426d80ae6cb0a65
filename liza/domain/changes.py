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
from liza.domain.events import (
    AcceptTaint,
    Approve,
    Claim,
    Confirm,
    Reject,
    Retry,
    Supersede,
    TakeReview,
    Unblock,
)
from liza.domain.lifecycle import (
    ADDED,
    INITIAL_STATUSES,
    LEASED_ROLES,
    SUCCEEDED,
    TERMINAL,
    advance,
    event_name,
)
from liza.domain.metrics import with_metrics
from liza.domain.model import (
    Actor,
    Discovery,
    Goal,
    GoalStatus,
    HistoryEntry,
    NextGoal,
    Note,
    PastGoal,
    Role,
    Status,
)
from liza.domain.model import waits_for as waits_for  # noqa: PLC0414 - a claim is refused by it
from liza.domain.record import next_id, with_record
from liza.domain.sprints import begin_next_sprint as next_sprint
from liza.domain.sprints import with_sprint_scope
from liza.domain.verdicts import Feedback
from liza.errors import Forbidden, NotThere, Refused, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from liza.domain.anomalies import Details
    from liza.domain.events import Event
    from liza.domain.model import State, Task, Urgency

HUMAN: Final = Actor(role=Role.HUMAN, id="human")
SUPERVISOR: Final = Actor(role=Role.SUPERVISOR, id="supervisor")


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
        return f"{self.what} {self.about()}" if self.about else self.what

    def __call__(self, state: State) -> State:
        made = self.make(state)
        # Here, because every engine of the board lets every change happen by this one call.
        return (
            made
            if made is state
            else with_metrics(state, close_with_finished_tasks(state, with_sprint_scope(state, made)))
        )


def apply(event: Event, *, to: str, by: Actor, at: datetime) -> Change:
    """Return the change that lets *event* happen to the task named *to*."""

    def make(state: State) -> State:
        task = state.task(to)
        moved = state.with_task(advance(task, event, by=by, at=at))
        if refusal := _refusal(state, task, event, by):
            message = f"{to}: {by.id} may not {event.verb} it, because {refusal}"
            raise Refused(message)
        if isinstance(event, Supersede):
            return _with_successors(moved, to, event.superseded_by)
        return _without_dead_dependencies(moved, to) if isinstance(event, Unblock | Retry) else moved

    return Change(by.id, f"{event_name(type(event))} {to}", make)


def _refusal(state: State, task: Task, event: Event, by: Actor) -> str | None:
    """Return why *event* may not happen to *task* because of other tasks, or None."""
    if isinstance(event, Claim) and (waiting := waits_for(state, task)):
        return f"it waits for {', '.join(waiting)}"
    if isinstance(event, Claim | TakeReview):
        held = (other.id for other in state.tasks.values() if other.lease and other.lease.holder == by.id)
        return next((f"{by.id} still holds {name}" for name in held if name != task.id), None)
    if isinstance(event, Supersede):
        dead = (name for name in event.superseded_by if state.status_of(name) in TERMINAL - SUCCEEDED)
        return next((f"{name} is {state.status_of(name)} itself" for name in dead), None)
    return None


def _with_successors(state: State, gone: str, by_tasks: tuple[str, ...]) -> State:
    """Replace a superseded task by its successors in other tasks' dependencies, or they wait for ever.

    This is no amendment, which a planner may not make to a leased task; the journal records it.
    """
    for task in state.tasks.values():
        if gone in task.depends_on and task.status not in TERMINAL:
            kept = [name for name in task.depends_on if name != gone]
            # A successor that waited for what it replaces must not wait for its siblings, nor they for it.
            more = () if task.id in by_tasks else by_tasks
            state = state.with_task(task.replace(depends_on=tuple(dict.fromkeys([*kept, *more]))))
    return state


def dead_dependencies(state: State, task: Task) -> tuple[str, ...]:
    """Return the dependencies of *task* that ended without success."""
    return tuple(name for name in task.depends_on if state.status_of(name) in TERMINAL - SUCCEEDED)


def _without_dead_dependencies(state: State, name: str) -> State:
    """Drop the dependencies of a resumed task that ended without success."""
    task = state.task(name)
    dead = dead_dependencies(state, task)
    if not dead:
        return state
    return state.with_task(task.replace(depends_on=tuple(one for one in task.depends_on if one not in dead)))


def add_task(task: Task, *, by: Actor, at: datetime) -> Change:
    """Return the change that puts a new task, DRAFT or IDLE, on the board."""

    def make(state: State) -> State:
        if state.status_of(task.id) is not None:
            message = (
                f"{task.id}: there is such a task already ({state.status_of(task.id)}); choose another id"
            )
            raise Refused(message)
        return _with_goal_reopened(state).with_task(with_first_entry(task, by=by, at=at))

    return Change(by.id, f"{ADDED} {task.id}", make)


def _with_goal_reopened(state: State) -> State:
    """Return the board with a completed goal in progress again."""
    if state.goal.status is not GoalStatus.COMPLETE:
        return state
    return state.replace(goal=state.goal.replace(status=GoalStatus.IN_PROGRESS, completed=None))


def with_first_entry(task: Task, *, by: Actor, at: datetime) -> Task:
    """Return a new task with the first entry of its history."""
    if by.role in LEASED_ROLES:
        raise Forbidden(task.id, by.id, "add", task.status)
    if task.status not in INITIAL_STATUSES:
        message = (
            f"{task.id}: a new task starts as {' or '.join(sorted(INITIAL_STATUSES))}, not as {task.status}"
        )
        raise Refused(message)
    entry = HistoryEntry(at=at, event=ADDED, by=by.id, role=by.role, target=task.status)
    return task.replace(history=(entry,))


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


def answer_task(task: str, text: str, *, by: Actor, at: datetime) -> Change:
    """Return the change that answers a BLOCKED task: the answer is kept as a note and the task goes on."""

    def make(state: State) -> State:
        if state.task(task).status is not Status.BLOCKED:
            message = (
                f"{task}: it asks nothing, because it is {state.task(task).status}; "
                f'`liza note "…" --for {task}` tells the agents something'
            )
            raise Refused(message)
        noted = add_note(text, about=task, by=by, at=at)(state)
        note = list(noted.human_notes.values())[-1].replace(processed=at, processed_by=by.id)
        unblocked = apply(Retry(guidance=text), to=task, by=by, at=at)(noted)
        over = [one.id for one in open_anomalies(unblocked, task) if is_for_planner(one)]
        unblocked = close_anomalies(unblocked, over, by=by.id, at=at)
        return unblocked.replace(human_notes=with_record(unblocked.human_notes, note))

    return Change(by.id, f"answer {task}", make)


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


def accept(task: str, reason: str, *, by: Actor, at: datetime) -> Change:
    """Return the change by which a person approves *task*, or accepts its taints."""

    def make(state: State) -> State:
        found = state.task(task)
        if found.status is Status.AWAITING_APPROVAL:
            yes = Confirm(reason=reason) if found.nothing_to_do else Approve(commit=str(found.review_commit))
            state = apply(yes, to=task, by=by, at=at)(state)
        elif not found.is_tainted:
            message = f"{task}: it asks for no consent, because it is {found.status}; `liza explain {task}`"
            raise Refused(message)
        if state.task(task).is_tainted:
            state = apply(AcceptTaint(reason=reason), to=task, by=by, at=at)(state)
        return state

    return Change(by.id, f"accept {task}", make)


def refuse(task: str, reason: str, *, by: Actor, at: datetime) -> Change:
    """Return the change by which a person rejects *task* with *reason*."""
    return apply(Reject(reason=reason, feedback=(Feedback(message=reason),)), to=task, by=by, at=at)
