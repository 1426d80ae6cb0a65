"""When a planner wakes, what it makes of an answer, and when the goal is reached.

It never wakes twice for the same thing: whatever it has looked at says so on the board (`asked`,
`considered`, `processed`, the goal's `questions`), in the same update that records what came of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza import events as e
from liza.changes import add_task, apply
from liza.lifecycle import SUCCEEDED, TERMINAL
from liza.model import GoalStatus, Status, Task, Urgency
from liza.money import awaits
from liza.record import with_records
from liza.replies import Replan, Step
from liza.roles.coder import MOST_FAILED_INTEGRATIONS, is_given_up
from liza.roles.reviewer import is_retriable, named_in

if TYPE_CHECKING:
    from datetime import datetime

    from liza.model import Actor, Discovery, Note, State
    from liza.replies import Plan, Planned

MOST_QUESTIONS: Final = 3
# The limits that a task meets outside of its workflow's rules.
GIVEN_UP: Final = "failed_coders"
NEVER_MERGES: Final = "failed_merges"


class Wake(NamedTuple):
    """Why the planner's agent is needed, and all that it should see."""

    step: Step
    why: str
    task: str | None = None
    notes: tuple[str, ...] = ()
    discoveries: tuple[str, ...] = ()


def wake(state: State) -> Wake | None:
    """Return what the planner's agent should think about now, or None while it would change nothing."""
    if state.goal.status is not GoalStatus.IN_PROGRESS:
        return None
    general = [note for note in _unread(state) if note.about is None]
    if not state.tasks and not state.archived:
        return _first_plan(state, general)
    for task in state.tasks.values():
        if task.status is Status.BLOCKED and _may_be_answered(state, task) and _is_news(state, task):
            about = [note for note in _unread(state) if note.about in (None, task.id)]
            return Wake(Step.REPLAN, f"{task.id} is BLOCKED", task.id, _ids(about))
    return _more_work(state, general)


def _first_plan(state: State, general: list[Note]) -> Wake | None:
    if state.goal.questions and not general:
        return None
    return Wake(Step.PLAN, "there is no plan yet", notes=_ids(general))


def _more_work(state: State, general: list[Note]) -> Wake | None:
    found = _urgent(state)
    if not found and not general:
        return None
    why = " and ".join(
        [*(["urgent work was discovered"] if found else []), *(["people say something"] if general else [])]
    )
    return Wake(Step.PLAN, why, notes=_ids(general), discoveries=tuple(item.id for item in found))


def _unread(state: State) -> list[Note]:
    """Return what people said and nobody acted on; that a conflict is resolved is for the reviewer."""
    return [
        note
        for note in state.human_notes.values()
        if note.processed is None and not _is_for_reviewer(state, note)
    ]


def _is_for_reviewer(state: State, note: Note) -> bool:
    task = state.tasks.get(named_in(note) or "")
    return task is not None and is_retriable(task)


def _answers(state: State, task: Task) -> bool:
    """Tell whether the reviewer is about to try the merge of *task* again."""
    return is_retriable(task) and any(
        note.processed is None and named_in(note) == task.id for note in state.human_notes.values()
    )


def _may_be_answered(state: State, task: Task) -> bool:
    """Tell whether thinking about *task* may help; what it may cost is for people to say."""
    return not _answers(state, task) and not awaits(state, task.id)


def _is_news(state: State, task: Task) -> bool:
    asked = task.asked
    return asked is None or any(
        note.timestamp > asked and note.processed is None and note.about in (None, task.id)
        for note in state.human_notes.values()
    )


def _urgent(state: State) -> list[Discovery]:
    return [
        item
        for item in state.discovered.values()
        if item.urgency is Urgency.IMMEDIATE and item.became_task is None and item.considered is None
    ]


def _ids(notes: list[Note]) -> tuple[str, ...]:
    return tuple(note.id for note in notes)


def stuck(state: State) -> list[tuple[Task, e.Block]]:
    """Return the tasks that coders cannot finish as they are, with what to ask about each."""
    found = []
    for task in state.tasks.values():
        if task.status is Status.IDLE and is_given_up(state, task):
            why = f"{' and '.join(task.failed_by)} could not do it: {_last_failure(task)}"
            found.append((task, why, GIVEN_UP))
        elif (
            task.status is Status.INTEGRATION_FAILED and task.integration_failures >= MOST_FAILED_INTEGRATIONS
        ):
            reason = task.integration_failure.reason if task.integration_failure else "it does not merge"
            why = f"it failed to merge {task.integration_failures} times: {reason}"
            found.append((task, why, NEVER_MERGES))
    question = "What should be done differently, or should the task be given up?"
    return [(task, e.Block(reason=why, questions=(question,), rule=rule)) for task, why, rule in found]


def _last_failure(task: Task) -> str:
    facts = (entry.facts for entry in reversed(task.history) if "reason" in entry.facts)
    return next((str(fact["reason"]) for fact in facts), "no reason is known")


def read_in_passing(state: State) -> tuple[str, ...]:
    """Return the notes about tasks that are on their way: every prompt of such a task shows them already."""
    return tuple(
        note.id
        for note in _unread(state)
        if note.about is not None and state.status_of(note.about) is not Status.BLOCKED
    )


def is_complete(state: State) -> bool:
    """Tell whether the goal is reached: all tasks finished, something done, nobody with anything to add."""
    statuses = [*(task.status for task in state.tasks.values()), *state.archived.values()]
    return (
        state.goal.status is GoalStatus.IN_PROGRESS
        and all(status in TERMINAL for status in statuses)
        and not SUCCEEDED.isdisjoint(statuses)
        and not _unread(state)
        and wake(state) is None
    )


def completed(state: State, at: datetime) -> State:
    """Return the board with its goal COMPLETE, where it is."""
    if not is_complete(state):
        return state
    return state.but(goal=state.goal.but(status=GoalStatus.COMPLETE, completed=at))


def planned(state: State, wake: Wake, plan: Plan, *, by: Actor, at: datetime) -> State:
    """Return the board with the tasks of *plan*, or with its questions, and with what it answers marked."""
    state = _with_tasks(state, plan.tasks, by, at)
    first = plan.tasks[0].id if plan.tasks else None
    questions = plan.questions if not state.tasks and not state.archived else ()
    state = state.but(goal=state.goal.but(questions=questions[:MOST_QUESTIONS]))
    return marked(state, wake, by=by, at=at, became=first)


def _with_tasks(state: State, tasks: tuple[Planned, ...], by: Actor, at: datetime) -> State:
    for item in tasks:
        state = add_task(_task(item, by, at), by=by, at=at)(state)
    return state


def _task(item: Planned, by: Actor, at: datetime) -> Task:
    return Task(
        id=item.id,
        description=item.description,
        status=Status.IDLE,
        kind=item.kind,
        done_when=item.done_when,
        scope=item.scope,
        spec_ref=item.spec_ref,
        depends_on=item.depends_on,
        validation=item.validation,
        created=at,
        created_by=by.id,
    )


def replanned(state: State, wake: Wake, answer: Replan, *, by: Actor, at: datetime) -> State:
    """Return the board after a planner's answer about a BLOCKED task."""
    name = str(wake.task)
    if state.task(name).status is not Status.BLOCKED:
        return state  # somebody answered meanwhile
    state = _with_tasks(state, answer.tasks, by, at)
    state = apply(_verdict(answer), to=name, by=by, at=at)(state)
    return marked(state, wake, by=by, at=at)


def _verdict(answer: Replan) -> e.Event:
    if answer.tasks:
        names = tuple(task.id for task in answer.tasks)
        return e.Supersede(superseded_by=names, rescope_reason=str(answer.rescope_reason))
    if answer.unblock:
        return e.Unblock(guidance=answer.unblock.guidance)
    if answer.abandon:
        return e.Abandon(reason=answer.abandon.reason)
    return e.Defer(questions=answer.questions[:MOST_QUESTIONS])


def without_answer(state: State, wake: Wake, why: str, *, by: Actor, at: datetime) -> State:
    """Return the board after the planner's agent gave no usable answer twice: people are asked instead."""
    question = f"The planner gave no usable answer ({why}). What should be done?"
    if wake.task is None:
        if not state.tasks and not state.archived:
            state = state.but(goal=state.goal.but(questions=(question,)))
        return marked(state, wake, by=by, at=at)
    task = state.task(wake.task)
    if task.status is not Status.BLOCKED:
        return state
    deferred = apply(e.Defer(questions=(question,)), to=task.id, by=by, at=at)(state)
    return marked(deferred, wake, by=by, at=at)


def marked(state: State, wake: Wake, *, by: Actor, at: datetime, became: str | None = None) -> State:
    """Return the board with the notes and discoveries of *wake* marked as looked at."""
    others = any(
        task.status is Status.BLOCKED and task.id != wake.task and _is_news(state, task)
        for task in state.tasks.values()
    )
    state = read(
        state,
        tuple(n for n in wake.notes if not (others and state.human_notes[n].about is None)),
        by=by,
        at=at,
    )
    items = {name: state.discovered[name].but(considered=at, became_task=became) for name in wake.discoveries}
    return state.but(discovered=with_records(state.discovered, items)) if items else state


def read(state: State, notes: tuple[str, ...], *, by: Actor, at: datetime) -> State:
    """Return the board with *notes* marked as processed."""
    seen = {
        name: state.human_notes[name].but(processed=at, processed_by=by.id)
        for name in notes
        if state.human_notes[name].processed is None
    }
    return state.but(human_notes=with_records(state.human_notes, seen)) if seen else state
