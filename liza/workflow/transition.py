"""An event happens to a task: the lifecycle says whether it may, the engine where the task is after it.

This is the one place that changes a stored position, and it does so within the update of the board.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain import events as e
from liza.domain import lifecycle
from liza.domain.anomaly_closing import close_anomalies, is_for_planner, open_anomalies
from liza.domain.budget import BUDGET, PLAN_NAMES, allow, is_cap_question_open, raise_budget
from liza.domain.changes import SUPERVISOR, Change, add_note, answer_plan, dead_dependencies
from liza.domain.lifecycle import ADDED, SUCCEEDED, TERMINAL, event_name, label_of
from liza.domain.model import GoalStatus, HistoryEntry, Status, Taint, waits_for
from liza.domain.position import RELEASE, TAINT, End, Stage
from liza.domain.record import with_record
from liza.domain.rules import UNCLEAR_SPEC
from liza.domain.verdicts import Decision, Feedback, Outcome, Verdict
from liza.errors import Forbidden, Refused
from liza.workflow import engine
from liza.workflow.document import Edge, Gate, Predicate
from liza.workflow.load import workflow_on
from liza.workflow.position import GateJob, Move, Proceeded, ProceedJob, WaitJob, Worked, WorkJob
from liza.workflow.routes import end_work, enter_phase, follow_edge, force_pass

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from liza.domain.events import Event
    from liza.domain.model import Actor, State, Task
    from liza.domain.position import Position
    from liza.workflow.document import Workflow
    from liza.workflow.position import JobResult, WorkflowJob

SETTLE: Final = "How should this be settled: {}"
ROUNDS: Final = "coder_iterations"  # the limit that such a task has reached
_KNOWN: Final = frozenset(Predicate)


def apply(event: Event, *, to: str, by: Actor, at: datetime) -> Change:
    """Return the change that lets *event* happen to the task named *to*."""

    def make(state: State) -> State:
        task = state.task(to)
        moved = state.with_task(advance(workflow_on(state), task, event, by=by, at=at))
        if refusal := _refusal(state, task, event, by):
            message = f"{to}: {by.id} may not {event.verb} it, because {refusal}"
            raise Refused(message)
        if isinstance(event, e.Supersede):
            return _rewire_dependants(moved, to, event.superseded_by)
        return _drop_dead_dependencies(moved, to) if isinstance(event, e.Unblock | e.Retry) else moved

    return Change(by.id, f"{event_name(type(event))} {to}", make)


def advance(workflow: Workflow, task: Task, event: Event, *, by: Actor, at: datetime) -> Task:
    """Return *task* after *event*, at the position to which *workflow* leads; raise why it may not happen."""
    after = lifecycle.advance(task, event, by=by, at=at)
    if isinstance(event, _STAYING):
        return after
    if task.position is None:
        raise Refused(f"{task.id}: it has no position in the workflow, so nothing can happen to it")
    step = _Step(workflow, task.position, after, event, by, at)
    moved = next((move(step) for kind, move in _MOVES.items() if isinstance(event, kind)), None)
    moved = moved or Move(task.position)
    position = moved.position
    after = _with_position(after, position, at)
    label = label_of(position, after.lease)
    if (
        label is not after.status
        and isinstance(event, _SENDING_BACK)
        and (end := _ending_event(label, moved))
    ):
        after = lifecycle.advance(after, end, by=SUPERVISOR, at=at)
    if label_of(position, after.lease) is not after.status:
        where = f"the workflow {workflow.name} is at {position.phase} with it"
        raise Refused(f"{task.id}: {by.id} may not {event.verb} it, because {where}")
    return after


def _refusal(state: State, task: Task, event: Event, by: Actor) -> str | None:
    """Return why *event* may not happen to *task* because of other tasks, or None."""
    if isinstance(event, e.Claim) and (waiting := waits_for(state, task)):
        return f"it waits for {', '.join(waiting)}"
    if isinstance(event, e.Claim | e.TakeReview):
        held = (other.id for other in state.tasks.values() if other.lease and other.lease.holder == by.id)
        return next((f"{by.id} still holds {name}" for name in held if name != task.id), None)
    if isinstance(event, e.Supersede):
        dead = (name for name in event.superseded_by if state.status_of(name) in TERMINAL - SUCCEEDED)
        return next((f"{name} is {state.status_of(name)} itself" for name in dead), None)
    return None


def _rewire_dependants(state: State, gone: str, by_tasks: tuple[str, ...]) -> State:
    """Point whoever waited for a superseded task at the tasks that replace it, or they wait for ever.

    This is no amendment, which a planner may not make to a task in somebody's hands; the journal has it.
    """
    for task in state.tasks.values():
        if gone in task.depends_on and task.status not in TERMINAL:
            kept = [name for name in task.depends_on if name != gone]
            # A successor that waited for what it replaces must not wait for its siblings, nor they for it.
            more = () if task.id in by_tasks else by_tasks
            state = state.with_task(task.replace(depends_on=tuple(dict.fromkeys([*kept, *more]))))
    return state


def _drop_dead_dependencies(state: State, name: str) -> State:
    """Let whoever is told to go on wait no more for what was given up: that is what going on means."""
    task = state.task(name)
    dead = dead_dependencies(state, task)
    if not dead:
        return state
    return state.with_task(task.replace(depends_on=tuple(one for one in task.depends_on if one not in dead)))


def _ending_event(label: Status, moved: Move) -> Event | None:
    """Return what happens next, where the document ends what the event sent back: rounds, or an edge."""
    said = moved.decision.reason if moved.decision else None
    reason = moved.exhausted or said or "the workflow ends here"
    if label is Status.ABANDONED:
        return e.Abandon(reason=reason)
    if label is not Status.BLOCKED:
        return None
    if moved.exhausted:
        return e.Block(reason=reason, questions=UNCLEAR_SPEC, rule=ROUNDS)
    return e.Block(reason=reason, questions=(SETTLE.format(reason),))


class _Step(NamedTuple):
    """An event that the lifecycle let happen, before the position follows."""

    workflow: Workflow
    position: Position  # before it
    task: Task  # after it, but for its position
    event: Event
    by: Actor
    at: datetime

    def next(self, position: Position) -> WorkflowJob | None:
        return engine.next_job(self.workflow, position, self.facts)

    @property
    def facts(self) -> frozenset[Predicate]:
        known = self.event.known if isinstance(self.event, e.Report) else ()
        return frozenset(Predicate(name) for name in known if name in _KNOWN)

    @property
    def reason(self) -> str | None:
        match self.event:
            case e.Revise(reason=said) | e.Reject(reason=said) | e.Confirm(reason=said):
                return said
            case e.FailIntegration(failure=failure):
                return failure.reason
        return None

    def report(self, position: Position, work: Worked | None = None) -> Move:
        said = self.event.verdicts if isinstance(self.event, e.Report) else ()
        return engine.report(self.workflow, position, self.at, work=work, verdicts=said, facts=self.facts)

    def say(self, moved: Move, outcome: Outcome) -> Move:
        """Answer the next job with *outcome*: an event is the word of whoever is asked there."""
        here = moved.position
        if isinstance(job := self.next(here), WaitJob) and job.on == TAINT:
            # It waits for somebody who accepts what it is tainted with, and is decided by another word.
            decision = Decision(phase=here.phase, outcome=outcome, at=self.at)
            return follow_edge(self.workflow, here.replace(waiting=None), decision)
        return engine.after(self.workflow, here, self._answer(here, outcome), self.facts)

    def _answer(self, position: Position, outcome: Outcome) -> JobResult:
        match self.next(position):
            case GateJob(gate) | WaitJob(_, Gate() as gate):
                return Verdict(
                    gate=gate.id, outcome=outcome, at=self.at, tree=position.tree, reason=self.reason
                )
            case WorkJob():
                return Worked(self.at, outcome, self.reason, position.tree, self.by.run)
        return Proceeded(self.at)


def _with_position(task: Task, position: Position, at: datetime) -> Task:
    """Return *task* at *position*; what either is tainted with, the other is, too."""
    known = {taint.mark for taint in task.taints}
    taints = (*task.taints, *(Taint(mark=mark, at=at) for mark in position.taints if mark not in known))
    return task.replace(
        taints=taints,
        position=position.replace(
            taints=tuple(taint.mark for taint in taints),
            accepted=tuple(taint.mark for taint in taints if taint.accepted_by),
        ),
    )


def _hand_in(step: _Step) -> Move:
    return step.report(step.position, _work(step))


def _work(step: _Step) -> Worked:
    event = step.event
    tree = event.tree if isinstance(event, e.Report) else None
    return Worked(step.at, tree=tree, run=step.by.run, nothing_to_do=isinstance(event, e.FindNothing))


def _revise(step: _Step) -> Move:
    return _decide(step, step.report(step.position, _work(step)), Outcome.REVISE)


def _decide(step: _Step, moved: Move, outcome: Outcome) -> Move:
    """Return *moved*, unless the phase is not decided yet: then the event decides it."""
    is_decided = moved.decision is not None and moved.decision.outcome is outcome
    return moved if is_decided else step.say(moved, outcome)


def _approve(step: _Step) -> Move:
    if step.position.waiting == TAINT:
        return Move(step.position.replace(waiting=None))
    moved = step.report(step.position)
    match step.next(moved.position):
        case GateJob(gate) | WaitJob(_, Gate() as gate) if gate.decides or moved.position.waiting == gate.id:
            moved = step.say(moved, Outcome.PASS)
    return engine.report(step.workflow, moved.position, step.at, facts=step.facts)


def _reject(step: _Step) -> Move:
    moved = _decide(step, step.report(step.position), Outcome.REVISE)
    return moved._replace(position=moved.position.replace(back_from=Stage.JUDGE))


def _ask(step: _Step) -> Move:
    moved = step.report(step.position)
    match step.next(moved.position):
        case GateJob(gate) | WaitJob(_, Gate() as gate) if moved.position.stage is not Stage.EFFECT:
            return Move(moved.position.replace(waiting=gate.id))
    return Move(moved.position.replace(waiting=TAINT))


def _finish_merge(step: _Step) -> Move:
    """What is on the branch needs no verdict: its merge was started after the gates had let it pass."""
    moved = Move(step.position.replace(tree=None))
    while isinstance(step.next(moved.position), GateJob | ProceedJob):
        moved = step.say(moved, Outcome.PASS)
    return moved._replace(position=moved.position.replace(tree=step.position.tree))


def _fail_merge(step: _Step) -> Move:
    # The gates looked at the tree that the merge would make, and not at the one that was submitted.
    moved = _decide(step, step.report(step.position.replace(tree=None)), Outcome.REVISE)
    return moved._replace(position=moved.position.replace(tree=step.position.tree))


def _force(step: _Step) -> Move:
    moved = Move(step.position)
    while moved.position.stage is not Stage.EFFECT and moved.position.end is None:
        here = moved.position
        no = Decision(phase=here.phase, outcome=Outcome.REVISE, at=step.at)
        moved = force_pass(step.workflow, here, no, mark=False)
    return moved


def _retry_merge(step: _Step) -> Move:
    phases = step.workflow.phases
    phase = next((name for name, phase in phases.items() if phase.stage is Stage.EFFECT), step.position.phase)
    return Move(enter_phase(step.workflow, step.position.replace(end=None), Edge(to=phase), Outcome.PASS))


def _proceed(step: _Step) -> Move:
    phase = step.event.phase if isinstance(step.event, e.Proceed) else ""
    if phase not in step.workflow.phases:
        raise Refused(f"{step.task.id}: the workflow {step.workflow.name} has no phase {phase!r}")
    return Move(enter_phase(step.workflow, step.position, Edge(to=phase), Outcome.PASS))


def _let_go(step: _Step) -> Move:
    if step.position.stage is not Stage.WORK or step.position.worked:
        return Move(step.position)  # whoever judges it next goes on where it is
    return Move(step.position.replace(attempt=step.position.attempt + 1, back_from=None))


def _unblock(step: _Step) -> Move:
    return Move(engine.redo(step.workflow, step.position, fresh=step.task.iteration == 0))


def _over(end: End) -> Callable[[_Step], Move]:
    return lambda step: Move(end_work(step.workflow, step.position, end, None).position)


def _complete(step: _Step) -> Move:
    # Nothing is merged, so that it did not end where things are.
    return Move(step.position.replace(end=End.DONE, stage=Stage.JUDGE, waiting=None))


def _claim(step: _Step) -> Move:
    rounds = {**step.position.iterations, step.position.phase: step.task.iteration}
    return Move(step.position.replace(iterations=rounds))


_SENDING_BACK: Final = (e.Revise, e.Reject, e.FailIntegration)
_STAYING: Final = (e.Renew, e.Amend, e.WriteCheckpoint, e.Defer, e.TakeReview)
_MOVES: Final[dict[type[Event], Callable[[_Step], Move]]] = {
    e.Ready: lambda step: Move(step.position.replace(waiting=None)),
    e.Claim: _claim,
    e.Submit: _hand_in,
    e.FindNothing: _hand_in,
    e.Revise: _revise,
    e.Approve: _approve,
    e.Confirm: _approve,
    e.Reject: _reject,
    e.AskHuman: _ask,
    e.ForcePass: _force,
    e.Merge: _finish_merge,
    e.FailIntegration: _fail_merge,
    e.RetryMerge: _retry_merge,
    e.Complete: _complete,
    e.Proceed: _proceed,
    e.Release: _let_go,  # and Reclaim
    e.Fail: _let_go,
    e.Lose: lambda step: Move(engine.redo(step.workflow, step.position, fresh=False)),
    e.Block: _over(End.BLOCKED),
    e.Unblock: _unblock,
    e.Retry: lambda step: Move(engine.redo(step.workflow, step.position, fresh=True)),
    e.Supersede: _over(End.SUPERSEDED),
    e.Abandon: _over(End.STOPPED),
}


def add_task(task: Task, *, by: Actor, at: datetime) -> Change:
    """Return the change that puts a new task, DRAFT or IDLE, on the board."""

    def make(state: State) -> State:
        if state.status_of(task.id) is not None:
            message = (
                f"{task.id}: there is such a task already ({state.status_of(task.id)}); choose another id"
            )
            raise Refused(message)
        return _reopen_goal(state).with_task(new_task_at_start(workflow_on(state), task, by=by, at=at))

    return Change(by.id, f"{ADDED} {task.id}", make)


def _reopen_goal(state: State) -> State:
    """A goal that was complete is not, once there is more to do."""
    if state.goal.status is not GoalStatus.COMPLETE:
        return state
    return state.replace(goal=state.goal.replace(status=GoalStatus.IN_PROGRESS, completed=None))


def new_task_at_start(workflow: Workflow, task: Task, *, by: Actor, at: datetime) -> Task:
    """Return a new task at the start of *workflow*, with the first entry of its history."""
    if by.role in lifecycle.LEASED_ROLES:
        raise Forbidden(task.id, by.id, "add", task.status)
    beginnings = lifecycle.INITIAL_STATUSES
    if task.status not in beginnings:
        message = f"{task.id}: a new task starts as {' or '.join(sorted(beginnings))}, not as {task.status}"
        raise Refused(message)
    entry = HistoryEntry(at=at, event=ADDED, by=by.id, role=by.role, target=task.status)
    waiting = RELEASE if task.status is Status.DRAFT else None
    return task.replace(history=(entry,), position=engine.begin(workflow).replace(waiting=waiting))


def answer(task: str, text: str, *, by: Actor, at: datetime) -> Change:
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
        unblocked = apply(e.Retry(guidance=text), to=task, by=by, at=at)(noted)
        over = [one.id for one in open_anomalies(unblocked, task) if is_for_planner(one)]
        unblocked = close_anomalies(unblocked, over, by=by.id, at=at)
        return unblocked.replace(human_notes=with_record(unblocked.human_notes, note))

    return Change(by.id, f"answer {task}", make)


def reply(who: str, text: str, *, by: Actor, at: datetime) -> Change:
    """Return the change that answers what *who*, a task, the plan or the budget, asks."""

    def make(state: State) -> State:
        if who == BUDGET and state.status_of(who) is None:
            return raise_budget(state, text)
        if who in PLAN_NAMES and state.status_of(who) is None:
            return answer_plan(text, by=by, at=at)(state)
        if is_cap_question_open(state, who):
            state = allow(state, who, text)
        return answer(who, text, by=by, at=at)(state)

    return Change(by.id, f"answer {who}", make)


def accept_task(task: str, reason: str, *, by: Actor, at: datetime) -> Change:
    """Return the change by which a person says yes to what *task* asks: its approval, its forced pass."""

    def make(state: State) -> State:
        found = state.task(task)
        if found.status is Status.AWAITING_APPROVAL:
            yes = (
                e.Confirm(reason=reason)
                if found.nothing_to_do
                else e.Approve(commit=str(found.review_commit))
            )
            state = apply(yes, to=task, by=by, at=at)(state)
        elif not found.is_tainted:
            message = f"{task}: it asks for no consent, because it is {found.status}; `liza explain {task}`"
            raise Refused(message)
        if state.task(task).is_tainted:
            state = apply(e.AcceptTaint(reason=reason), to=task, by=by, at=at)(state)
        return state

    return Change(by.id, f"accept {task}", make)


def reject_task(
    task: str, reason: str, *, by: Actor, at: datetime, comments: tuple[Feedback, ...] = ()
) -> Change:
    """Return the change by which a person says no to what *task* asks; it goes back with *reason*.

    What they said about single lines are *comments*, and the reason is one more, so that no coder misses it.
    """
    return apply(
        e.Reject(reason=reason, feedback=(Feedback(message=reason), *comments)), to=task, by=by, at=at
    )
