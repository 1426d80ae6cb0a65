"""When a planner wakes, what it makes of an answer, what is wrong with a plan, when all is done.

It never wakes twice for the same thing: whatever it has looked at says so on the board (`asked`,
`considered`, `processed`, the goal's `questions`), in the same update that records what came of it.
"""

from __future__ import annotations

import re
from itertools import count
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.daemon.policy.pick import MOST_FAILED_INTEGRATIONS, conflict_task_in, is_given_up, is_retriable
from liza.domain import lifecycle as e
from liza.domain.answers import Replan, Step
from liza.domain.budget import RESERVED, RESERVED_IDS, is_cap_question_open
from liza.domain.changes import (
    HUMAN,
    SUPERVISOR,
    close_anomalies,
    dead_dependencies,
    is_for_planner,
    open_anomalies,
    with_notes_read,
)
from liza.domain.config import PlanApproval
from liza.domain.lifecycle import CLAIMABLE, SUCCEEDED, TERMINAL
from liza.domain.model import GoalStatus, Status, Task, Urgency
from liza.domain.record import with_records
from liza.domain.similarity import significant_words
from liza.domain.waits import is_plan_returned, proposed_tasks
from liza.workflow.document import IDEA_SOURCE, PLANNER_SPLITS, workflow_on
from liza.workflow.plan_approval import with_plan_replaced
from liza.workflow.transition import add_task, apply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from liza.domain.answers import Plan, PlannedTask
    from liza.domain.model import Actor, Discovery, Note, State


MOST_QUESTIONS: Final = 3
WHAT_NOW: Final = "What should be done differently, or should the task be given up?"
MOST_SHOWN: Final = 30  # anomalies, or discoveries, that one prompt carries
# The limits that a task meets outside of its workflow's rules.
NONE_PASSED: Final = "no idea is left to try, and none passed"
GIVEN_UP: Final = "failed_coders"
ORPHANED: Final = "dead_dependency"
NEVER_MERGES: Final = "failed_merges"


class PlanRequest(NamedTuple):
    """Why the planner's agent is needed, and what it is shown."""

    step: Step
    why: str
    task: str | None = None
    notes: tuple[str, ...] = ()
    discoveries: tuple[str, ...] = ()
    anomalies: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()  # the tasks of a plan that was sent back


def plan_request(state: State) -> PlanRequest | None:
    """Return what the planner's agent is needed for now; None where nothing is new."""
    woken = _bare_request(state)
    if woken is None:
        return None
    seen = [one.id for one in open_anomalies(state) if is_for_planner(one)][-MOST_SHOWN:]
    found = [item.id for item in state.discovered.values() if item.considered is None][-MOST_SHOWN:]
    return woken._replace(anomalies=tuple(seen), discoveries=tuple(found))


def is_next_for(state: State, task: Task, woken: PlanRequest | None) -> bool:
    """Return whether the BLOCKED *task* is for the planner before people; *woken* is its pending request."""
    if workflow_on(state).tasks.source != PLANNER_SPLITS:
        return False
    return task.asked is None or (woken is not None and woken.task == task.id)


def _bare_request(state: State) -> PlanRequest | None:
    if state.goal.status is not GoalStatus.IN_PROGRESS or workflow_on(state).tasks.source != PLANNER_SPLITS:
        return None
    general = [note for note in _unread_notes(state) if _is_general(state, note)]
    if is_unplanned(state):
        return _first_plan(state, general)
    if is_plan_returned(state) and (general or not state.goal.questions):
        drafts = tuple(task.id for task in proposed_tasks(state))
        return PlanRequest(Step.PLAN, "the plan was sent back", notes=_ids(general), replaces=drafts)
    for task in state.tasks.values():
        if task.status is Status.BLOCKED and _is_answerable(state, task) and _is_news(state, task):
            about = [note for note in _unread_notes(state) if note.about in (None, task.id)]
            return PlanRequest(Step.REPLAN, f"{task.id} is BLOCKED", task.id, _ids(about))
    return _more_work(state, general)


def _first_plan(state: State, general: list[Note]) -> PlanRequest | None:
    if state.goal.questions and not general:
        return None
    return PlanRequest(Step.PLAN, "there is no plan yet", notes=_ids(general))


def _more_work(state: State, general: list[Note]) -> PlanRequest | None:
    found = _urgent_discoveries(state)
    if not found and not general:
        return None
    why = " and ".join(
        [*(["urgent work was discovered"] if found else []), *(["people say something"] if general else [])]
    )
    return PlanRequest(Step.PLAN, why, notes=_ids(general))


def is_unplanned(state: State) -> bool:
    """Return whether there is no plan for the goal yet."""
    goal = state.goal
    if goal.begun is None:
        return not state.tasks and not state.archived
    return goal.planned is None and not _goal_statuses(state)


def is_to_be_filled(state: State) -> bool:
    """Return whether the tasks of the goal come from elsewhere than a planner, and are not there yet."""
    is_elsewhere = workflow_on(state).tasks.source != PLANNER_SPLITS
    is_first = is_elsewhere and is_unplanned(state) and not state.goal.planned
    return is_first or is_depth_over(state)


def is_depth_over(state: State) -> bool:
    """Return whether a search has tried all ideas that it began with, and has to say how it goes on."""
    is_open = state.config.experiment.search is not None and state.goal.search_ended is None
    is_going = is_open and state.goal.planned is not None and state.goal.status is GoalStatus.IN_PROGRESS
    return is_going and all(task.status in TERMINAL for task in state.tasks.values())


def _goal_statuses(state: State) -> list[Status]:
    """Return the statuses of the tasks that came since the goal's turn; of all where it was the first."""
    begun = state.goal.begun
    if begun is None:
        return [*(task.status for task in state.tasks.values()), *state.archived.values()]
    live = [task.status for task in state.tasks.values() if task.created >= begun]
    # Where a plan was made and none of it is left on the board, all of it is archived.
    return live or (list(state.archived.values()) if state.goal.planned else [])


def _is_general(state: State, note: Note) -> bool:
    """Return whether *note* is for the planner: no prompt of a finished task will ever show it."""
    return note.about is None or state.status_of(note.about) in TERMINAL


def _unread_notes(state: State) -> list[Note]:
    """Return the open notes of people, without those that say a conflict is resolved."""
    return [
        note
        for note in state.human_notes.values()
        if note.processed is None and not _is_for_reviewer(state, note)
    ]


def _is_for_reviewer(state: State, note: Note) -> bool:
    task = state.tasks.get(conflict_task_in(note) or "")
    return task is not None and is_retriable(task)


def _is_merge_retried(state: State, task: Task) -> bool:
    """Return whether the reviewer is about to try the merge of *task* again."""
    return is_retriable(task) and any(
        note.processed is None and conflict_task_in(note) == task.id for note in state.human_notes.values()
    )


def _is_answerable(state: State, task: Task) -> bool:
    """Return whether a planner may help *task*; a budget question is only for people."""
    return not _is_merge_retried(state, task) and not is_cap_question_open(state, task.id)


def _is_news(state: State, task: Task) -> bool:
    asked = task.asked
    return asked is None or any(
        note.timestamp > asked and note.processed is None and note.about in (None, task.id)
        for note in state.human_notes.values()
    )


def _urgent_discoveries(state: State) -> list[Discovery]:
    return [
        item
        for item in state.discovered.values()
        if item.urgency is Urgency.IMMEDIATE and item.became_task is None and item.considered is None
    ]


def _ids(notes: list[Note]) -> tuple[str, ...]:
    return tuple(note.id for note in notes)


def stuck_tasks(state: State) -> list[tuple[Task, e.Block]]:
    """Return the tasks that coders cannot finish as they are, with what to ask about each."""
    found = ((task, check(state, task)) for task in state.tasks.values() for check in _STUCK_CHECKS)
    return [(task, block) for task, block in found if block is not None]


def _dead_dependency_block(state: State, task: Task) -> e.Block | None:
    dead = dead_dependencies(state, task) if task.status in CLAIMABLE else ()
    if not dead:
        return None
    named = " and ".join(f"{name}, which is {state.status_of(name)}" for name in dead)
    question = f"Should it go on without {' and '.join(dead)}, be replaced, or be given up as well?"
    return e.Block(reason=f"it waits for {named}", questions=(question,), rule=ORPHANED)


def _failed_coders_block(state: State, task: Task) -> e.Block | None:
    is_free = task.status is Status.IDLE and not dead_dependencies(state, task)
    if not is_free or not is_given_up(state, task):
        return None
    why = f"{' and '.join(task.failed_by)} could not do it: {_last_failure(task)}"
    return e.Block(reason=why, questions=(WHAT_NOW,), rule=GIVEN_UP)


def _failed_merges_block(state: State, task: Task) -> e.Block | None:
    is_free = task.status is Status.INTEGRATION_FAILED and not dead_dependencies(state, task)
    if not is_free or task.integration_failures < MOST_FAILED_INTEGRATIONS:
        return None
    reason = task.integration_failure.reason if task.integration_failure else "it does not merge"
    why = f"it failed to merge {task.integration_failures} times: {reason}"
    return e.Block(reason=why, questions=(WHAT_NOW,), rule=NEVER_MERGES)


_STUCK_CHECKS: Final = (_dead_dependency_block, _failed_coders_block, _failed_merges_block)


def _last_failure(task: Task) -> str:
    facts = (entry.facts for entry in reversed(task.history) if "reason" in entry.facts)
    return next((str(fact["reason"]) for fact in facts), "no reason is known")


def is_complete(state: State) -> bool:
    """Return whether the goal is over: all tasks finished, and one succeeded or no more can be planned."""
    return (
        state.goal.status is GoalStatus.IN_PROGRESS
        and all(task.status in TERMINAL for task in state.tasks.values())
        and (_has_succeeded(state) or _is_used_up(state))
        and not is_depth_over(state)
        and not state.goal.questions
        and not _unread_notes(state)
        and plan_request(state) is None
    )


def _has_succeeded(state: State) -> bool:
    return not SUCCEEDED.isdisjoint(_goal_statuses(state))


def _is_used_up(state: State) -> bool:
    """Return whether every task of the goal was there, and no planner could think of another."""
    is_elsewhere = workflow_on(state).tasks.source != PLANNER_SPLITS
    return is_elsewhere and state.goal.planned is not None and bool(_goal_statuses(state))


def with_goal_completed(state: State, at: datetime) -> State:
    """Return the board with its goal COMPLETE where it is over, or ABANDONED where all of it was given up.

    Ideas are there to be tried: a goal of which none passed is COMPLETE as well, and says so.
    """
    if not is_complete(state):
        return state
    left = [one.id for one in open_anomalies(state)]
    state = close_anomalies(state, left, by=SUPERVISOR.id, at=at)
    goal = state.goal.replace(status=GoalStatus.COMPLETE, completed=at)
    if not _has_succeeded(state):
        is_tried = workflow_on(state).tasks.source == IDEA_SOURCE
        ended = {"search_ended": goal.search_ended or NONE_PASSED}
        goal = goal.replace(**(ended if is_tried else {"status": GoalStatus.ABANDONED}))
    return state.replace(goal=goal)


def with_plan(state: State, wake: PlanRequest, plan: Plan, *, by: Actor, at: datetime) -> State:
    """Return the board with the tasks of *plan*, or with its questions, and with what it answers marked."""
    tasks = tasks_under_free_ids(state, plan.tasks)
    state = _with_tasks(state, tasks, by, at)
    if tasks and wake.replaces:
        state = with_plan_replaced(state, wake.replaces, tuple(task.id for task in tasks), by, at)
    questions = plan.questions[:MOST_QUESTIONS]
    planned_at = at if tasks else state.goal.planned
    state = state.replace(goal=state.goal.replace(questions=questions, planned=planned_at))
    return with_request_processed(state, wake, by=by, at=at, became=tasks)


def tasks_under_free_ids(state: State, tasks: tuple[PlannedTask, ...]) -> tuple[PlannedTask, ...]:
    """Return *tasks* with a number behind the ids of those that were in the plan which was sent back."""
    if not is_plan_returned(state):
        return tasks
    taken = {name.casefold() for section in (state.tasks, state.archived) for name in section}
    taken |= {task.id.casefold() for task in tasks}
    replaced = {
        name.casefold()
        for name, task in state.tasks.items()
        if task.status in {Status.DRAFT, Status.SUPERSEDED}
    }
    names = {}
    for task in tasks:
        if task.id.casefold() in replaced:
            numbered = (f"{task.id}-{number}" for number in count(2))
            names[task.id] = next(name for name in numbered if name.casefold() not in taken)
            taken.add(names[task.id].casefold())
    return tuple(
        task.replace(
            id=names.get(task.id, task.id),
            depends_on=tuple(names.get(name, name) for name in task.depends_on),
        )
        for task in tasks
    )


def _with_tasks(state: State, tasks: tuple[PlannedTask, ...], by: Actor, at: datetime) -> State:
    is_approved = state.config.plan.approval is PlanApproval.NONE
    first = Status.IDLE if is_approved else Status.DRAFT
    for item in tasks:
        state = add_task(_new_task(item, first, by, at), by=by, at=at)(state)
    return state


def _new_task(item: PlannedTask, status: Status, by: Actor, at: datetime) -> Task:
    return Task(
        id=item.id,
        description=item.description,
        status=status,
        kind=item.kind,
        done_when=item.done_when,
        scope=item.scope,
        spec_ref=item.spec_ref,
        depends_on=item.depends_on,
        needs=item.needs,
        validation=item.validation,
        created=at,
        created_by=by.id,
    )


def with_replan(state: State, wake: PlanRequest, answer: Replan, *, by: Actor, at: datetime) -> State:
    """Return the board after a planner's answer about a BLOCKED task."""
    name = str(wake.task)
    if state.task(name).status is not Status.BLOCKED:
        return state  # somebody answered meanwhile
    if answer.questions and (note := _human_answer(state, wake)):
        state = apply(e.Answer(guidance=note.message), to=name, by=HUMAN, at=at)(state)
        return with_request_processed(state, wake, by=by, at=at)
    state = _with_tasks(state, answer.tasks, by, at)
    state = apply(_replan_event(answer), to=name, by=by, at=at)(state)
    return with_request_processed(state, wake, by=by, at=at, became=answer.tasks)


def _human_answer(state: State, wake: PlanRequest) -> Note | None:
    """Return what people said after the only question on the board was put to them: that is its answer.

    The planner may make something better of it than guidance; what it may not do is ask the same again.
    """
    task = state.task(str(wake.task))
    others = [
        one
        for one in state.tasks.values()
        if one.id != task.id and one.status in {Status.BLOCKED, Status.AWAITING_APPROVAL}
    ]
    if task.asked is None or others or state.goal.questions or is_retriable(task):
        return None
    notes = [state.human_notes[name] for name in wake.notes]
    return next((note for note in reversed(notes) if note.timestamp > task.asked), None)


def _replan_event(answer: Replan) -> e.Event:
    if answer.tasks:
        names = tuple(task.id for task in answer.tasks)
        return e.Supersede(superseded_by=names, rescope_reason=str(answer.rescope_reason))
    if answer.unblock:
        return e.Answer(guidance=answer.unblock.guidance)
    if answer.abandon:
        return e.Abandon(reason=answer.abandon.reason)
    return e.Defer(questions=answer.questions[:MOST_QUESTIONS])


def with_people_asked(state: State, wake: PlanRequest, why: str, *, by: Actor, at: datetime) -> State:
    """Return the board after the planner's agent gave no usable answer twice: people are asked instead."""
    question = f"The planner gave no usable answer ({why}). What should be done?"
    if wake.task is None:
        state = state.replace(goal=state.goal.replace(questions=(question,)))
        return with_request_processed(state, wake, by=by, at=at)
    task = state.task(wake.task)
    if task.status is not Status.BLOCKED:
        return state
    if note := _human_answer(state, wake):
        state = apply(e.Answer(guidance=note.message), to=task.id, by=HUMAN, at=at)(state)
        return with_request_processed(state, wake, by=by, at=at)
    deferred = apply(e.Defer(questions=(question,)), to=task.id, by=by, at=at)(state)
    return with_request_processed(deferred, wake, by=by, at=at)


def with_request_processed(
    state: State, wake: PlanRequest, *, by: Actor, at: datetime, became: tuple[PlannedTask, ...] = ()
) -> State:
    """Return the board with all that *wake* names marked processed; *became* are the tasks planned for it."""
    others = any(
        task.status is Status.BLOCKED and task.id != wake.task and _is_news(state, task)
        for task in state.tasks.values()
    )
    state = with_notes_read(
        state,
        tuple(n for n in wake.notes if not (others and state.human_notes[n].about is None)),
        by=by,
        at=at,
    )
    state = close_anomalies(state, wake.anomalies, by=by.id, at=at)
    found = [state.discovered[name] for name in wake.discoveries]
    items = {item.id: item.replace(considered=at, became_task=_task_for(item, became)) for item in found}
    return state.replace(discovered=with_records(state.discovered, items)) if items else state


def _task_for(item: Discovery, tasks: tuple[PlannedTask, ...]) -> str | None:
    """Return the task whose description has at least half of the words of the discovery; None if none."""
    wanted = significant_words(item.description)
    shares = {task.id: len(wanted & significant_words(task.description)) for task in tasks}
    best = max(shares, key=lambda name: shares[name], default=None)
    return best if best and shares[best] * 2 >= len(wanted) else None


# The checks of a plan before any of it is put on the board: the gates of the planner.
#
# Faults of a plan by itself (circles, ids used twice, tasks that only add tests) are refused when it is
# read. These checks need the board, the settings and the repository. Each fault is a sentence that
# goes back to the planner's agent.

MOST_CRITERIA: Final = 15  # lines of done_when that one review can hold in its head
LONGEST_TASK: Final = 4000  # characters of a description; what is longer is a spec, and belongs into one

# A line that is made of these alone cannot turn out to be false. What names a thing can.
_VAGUE: Final = (
    "a all also an and any are as at be been better clean code complete completed correct correctly "
    "criteria do does done enough etc everything expected fine fully good great high implemented improved "
    "in is it its looks made meets more new nice nicely of ok okay perfect perfectly possible properly "
    "quality ready requirements robust satisfied should so specified task tests that the there they thing "
    "things this to user users very was well were will with work worked working works "
)
_VAGUE_WORDS: Final = frozenset(_VAGUE.split())
_NAMES_SOMETHING: Final = re.compile(r"[`'\"\d/_]|\w\.\w")


class PlanContext(NamedTuple):
    """What a plan is checked against."""

    state: State
    has_file: Callable[[str], bool]  # whether the repository has a path


def problems(context: PlanContext, tasks: tuple[PlannedTask, ...]) -> list[str]:
    """Return why *tasks* cannot be put on the board; all faults at once, so that one answer can mend them."""
    if crowd := _too_many(context, tasks):
        return [crowd]
    tasks = tasks_under_free_ids(context.state, tasks)
    return [fault for task in tasks for check in _CHECKS for fault in check(context, task, tasks)]


def why_nothing(context: PlanContext, plan: Plan) -> list[str]:
    """Return why *plan* may not be empty: only a goal that has a plan already needs no tasks."""
    if plan.nothing_to_add is None:
        return []
    if is_plan_returned(context.state):
        return ["the plan was sent back; give all of its tasks anew, or questions"]
    if not is_unplanned(context.state):
        return []
    return ["there is no plan yet to which nothing had to be added; give tasks or questions"]


def concerns(tasks: tuple[PlannedTask, ...]) -> list[str]:
    """Return what a planner is asked to reconsider once; a plan that stays so is taken all the same."""
    unbounded = [task.id for task in tasks if not task.scope.include]
    if not unbounded:
        return []
    return [
        f"{', '.join(unbounded)}: scope says no path that may be touched (`in`); name files or directories"
    ]


def _too_many(context: PlanContext, tasks: tuple[PlannedTask, ...]) -> str | None:
    most = context.state.config.limits.max_plan_tasks
    if len(tasks) <= most:
        return None
    return f"a plan of {len(tasks)} tasks is more than {most}; plan the first steps, each worth one review"


def _id_flaws(context: PlanContext, task: PlannedTask, _: tuple[PlannedTask, ...]) -> Iterator[str]:
    known = {name.casefold() for section in (context.state.tasks, context.state.archived) for name in section}
    if task.id.casefold() in known:
        yield f"the id {task.id} is taken; choose another"
    if task.id.casefold() in RESERVED_IDS:
        yield RESERVED.format(task.id)


def _dependencies(context: PlanContext, task: PlannedTask, tasks: tuple[PlannedTask, ...]) -> Iterator[str]:
    mine = {other.id for other in tasks}
    for name in task.depends_on:
        status = context.state.status_of(name)
        if name not in mine and status is None:
            yield f"{task.id} depends on {name}, which is neither in the plan nor on the board"
        elif name not in mine and is_plan_returned(context.state) and status is Status.DRAFT:
            yield f"{task.id} depends on {name}, which was sent back and is replaced; name a task of the plan"
        elif name not in mine and status in TERMINAL - SUCCEEDED:
            yield f"{task.id} depends on {name}, which is {status} and will never be done"


def _criteria(_: PlanContext, task: PlannedTask, __: tuple[PlannedTask, ...]) -> Iterator[str]:
    for line in task.done_when:
        if not is_falsifiable(line):
            yield f"{task.id}: no test can show that {line!r} is false; say what is there, or printed"
    if len(task.done_when) > MOST_CRITERIA:
        yield f"{task.id} has {len(task.done_when)} lines of done_when; split it, {MOST_CRITERIA} are enough"


def is_falsifiable(line: str) -> bool:
    """Return whether a line of done_when says something that could turn out to be false."""
    if _NAMES_SOMETHING.search(line):
        return True
    words = re.findall(r"\w+", line.casefold())
    return any(word not in _VAGUE_WORDS for word in words)


def _size(_: PlanContext, task: PlannedTask, __: tuple[PlannedTask, ...]) -> Iterator[str]:
    if len(task.description) > LONGEST_TASK:
        yield f"the description of {task.id} has {len(task.description)} characters; move them to a spec file"


def _paths(_: PlanContext, task: PlannedTask, __: tuple[PlannedTask, ...]) -> Iterator[str]:
    yield from (f"{task.id}: scope: {problem}" for problem in task.scope.problems())


def _spec(context: PlanContext, task: PlannedTask, _: tuple[PlannedTask, ...]) -> Iterator[str]:
    if task.spec_ref is not None and not context.has_file(spec_file(task.spec_ref)):
        yield (
            f"{task.id}: its spec_ref {task.spec_ref!r} names no file of the repository; name one "
            "(`docs/x.md#part`), or leave it out"
        )


def spec_file(reference: str) -> str:
    """Return the file that a reference such as `docs/x.md#part` or `docs/x.md:12` is about."""
    return re.split(r"#|:\d|\s", reference.strip(), maxsplit=1)[0]


_CHECKS: Final = (_id_flaws, _dependencies, _criteria, _size, _paths, _spec)
