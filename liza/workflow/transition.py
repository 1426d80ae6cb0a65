"""An event happens to a task: the lifecycle says whether it may, the engine where the task is after it.

This is the one place that changes a stored position, and it does so within the update of the board.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.domain import lifecycle
from liza.domain import lifecycle as e
from liza.domain.budget import BUDGET, PLAN_NAMES, allow, is_cap_question_open, raise_budget
from liza.domain.changes import (
    SUPERVISOR,
    Change,
    add_note,
    answer_plan,
    close_anomalies,
    dead_dependencies,
    is_for_planner,
    open_anomalies,
)
from liza.domain.lifecycle import ADDED, SENT_BACK, SUCCEEDED, TERMINAL, label_of
from liza.domain.memory import Memory, MemoryEntry, MemoryType, Retention, after_phase, with_entries
from liza.domain.model import (
    RELEASE,
    TAINT,
    Artifact,
    Decision,
    End,
    Evidence,
    Feedback,
    GoalStatus,
    HistoryEntry,
    IntegrationFailure,
    Outcome,
    Role,
    Stage,
    Status,
    Taint,
    Verdict,
    index_leases,
    taint_meaning,
    waits_for,
)
from liza.domain.record import with_record
from liza.domain.rules import (
    UNCLEAR_SPEC,
    RuleAction,
    Subject,
    evaluate,
    task_events,
    with_due_trips,
)
from liza.domain.similarity import normalized_digest
from liza.errors import Forbidden, Refused
from liza.workflow import engine
from liza.workflow.document import (
    IF_TAINTED,
    QUESTIONS,
    ArtifactKind,
    Edge,
    Effect,
    Gate,
    GateKind,
    Predicate,
    process_at,
    workflow_on,
)
from liza.workflow.engine import (
    Crashed,
    GateJob,
    Move,
    Proceeded,
    ProceedJob,
    WaitJob,
    Worked,
    WorkJob,
    end_work,
    enter_phase,
    follow_edge,
    force_pass,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from liza.domain.lifecycle import Event
    from liza.domain.model import Actor, Position, State, Task
    from liza.domain.rules import FiredRule
    from liza.workflow.document import Workflow
    from liza.workflow.engine import JobResult, WorkflowJob


SETTLE: Final = "How should this be settled: {}"
MOST_QUESTIONS: Final = 3
LONGEST_REASON: Final = 300  # characters of a decision's reason: enough to tell whether it is the same one
ROUNDS: Final = "coder_iterations"  # the limit that such a task has reached
_KNOWN: Final = frozenset(Predicate)
SHOWN_FIRST: Final = frozenset({Effect.ENSURE_DRAFT_PR, *IF_TAINTED.values()})


def apply(event: Event, *, to: str, by: Actor, at: datetime) -> Change:
    """Return the change that lets *event* happen to the task named *to*."""
    words: list[str] = []

    def make(state: State) -> State:
        task = state.task(to)
        after = advance(workflow_on(state), task, event, by=by, at=at)
        words[:] = [entry.event for entry in after.history[len(task.history) :]] or [event.words[0]]
        if refusal := _refusal(state, task, event, by):
            raise Refused(f"{to}: {by.id} may not {event.verb_by(by)} it, because {refusal}")
        moved = state.with_task(after)
        if isinstance(event, e.Supersede):
            return _rewire_dependants(moved, to, event.superseded_by)
        is_told_to_go_on = isinstance(event, e.Answer) and not event.merge
        return _drop_dead_dependencies(moved, to) if is_told_to_go_on else moved

    return Change(by.id, "", make, about=lambda: f"{' and '.join(words)} {to}")


def advance(workflow: Workflow, task: Task, event: Event, *, by: Actor, at: datetime) -> Task:
    """Return *task* after *event*, at the position to which *workflow* leads; raise why it may not happen."""
    row = lifecycle.row_for(task, event, by=by, at=at)
    if task.position is None:
        raise Refused(f"{task.id}: it has no position in the workflow, so nothing can happen to it")
    step = _Step(workflow, task.position, task, event, by, at)
    _require_own_job(step)
    move = _MOVES.get(type(event))
    moved = move(step) if move else Move(task.position)
    if isinstance(event, e.Report):
        return _after_report(step, row, moved)
    after = task.replace(**event.changes(task, by, at))
    if moved.position is not task.position or isinstance(event, e.Accept):
        after = _with_position(after, moved.position, at)
    status = label_of(moved.position, after.lease)
    if status not in row.targets and status is not task.status:
        raise Refused(_elsewhere(step, moved))
    return lifecycle.with_entry(task, after.replace(status=status), event, by=by, at=at)


class WantedEffects(NamedTuple):
    """What is to be done for a move, and the marks of the work that nobody accepted."""

    effects: tuple[Effect, ...] = ()
    taints: tuple[str, ...] = ()


def effects_of(workflow: Workflow, task: Task, event: Event, *, by: Actor, at: datetime) -> WantedEffects:
    """Return what the document wants done when *event* happens to *task*."""
    move = _MOVES.get(type(event))
    if task.position is None or move is None:
        return WantedEffects()
    moved = move(_Step(workflow, task.position, task, event, by, at))
    after, effects = moved.position, moved.effects
    if after.waiting == TAINT:  # a person is asked first, and is shown what they are asked about
        effects = tuple(one for one in effects if one in SHOWN_FIRST)
    return WantedEffects(effects, tuple(mark for mark in after.taints if mark not in after.accepted))


def _after_report(step: _Step, row: lifecycle.Transition, moved: Move) -> Task:
    """Return the task after a report: what follows from it, and where the document ends it, that too."""
    event, task, by, at = step.event, step.task, step.by, step.at
    if moved.position == step.position:
        raise Refused(_elsewhere(step, moved))
    after = _with_position(task.replace(**report_changes(step, moved)), moved.position, at)
    status = label_of(moved.position, after.lease)
    end = _ending_event(step, status, moved)
    is_sent_back = moved.decision is not None and moved.decision.outcome is Outcome.REVISE
    if end is not None and not is_sent_back:  # its own word: nothing else has to be told
        after = after.replace(**end.changes(task, by, at), status=status)
        return lifecycle.with_entry(task, after, end, by=by, at=at)
    if end is not None:
        back = SENT_BACK[Stage.JUDGE if step.position.stage is not Stage.EFFECT else Stage.EFFECT]
        after = lifecycle.with_entry(task, after.replace(status=back), event, by=by, at=at)
        ended = after.replace(**end.changes(after, SUPERVISOR, at), status=status)
        return lifecycle.with_entry(after, ended, end, by=SUPERVISOR, at=at)
    if status not in row.targets:
        raise Refused(_elsewhere(step, moved))
    return lifecycle.with_entry(task, after.replace(status=status), event, by=by, at=at)


def _elsewhere(step: _Step, moved: Move) -> str:
    where = f"the workflow {step.workflow.name} is at {moved.position.phase} with it"
    return f"{step.task.id}: {step.by.id} may not {step.event.verb_by(step.by)} it, because {where}"


def _require_own_job(step: _Step) -> None:
    """Refuse what another kind of worker has to do: the job's role says who takes it and reports on it."""
    if not isinstance(step.event, e.Take | e.Report | e.Write) or step.by.role in {
        Role.SUPERVISOR,
        Role.HUMAN,
    }:
        return
    process = process_at(step.workflow, step.position)
    if process is not step.by.role:
        why = f"its next job is one for a {process}"
        raise Refused(f"{step.task.id}: {step.by.id} may not {step.event.verb_by(step.by)} it, because {why}")


def _refusal(state: State, task: Task, event: Event, by: Actor) -> str | None:
    """Return why *event* may not happen to *task* because of other tasks, or None."""
    if isinstance(event, e.Take) and event.base_commit and (waiting := waits_for(state, task)):
        return f"it waits for {', '.join(waiting)}"
    if isinstance(event, e.Take):
        held = index_leases(state.tasks).by_holder.get(by.id, ())
        return next((f"{by.id} still holds {name}" for name in held if name != task.id), None)
    if isinstance(event, e.Supersede):
        dead = (name for name in event.superseded_by if state.status_of(name) in TERMINAL - SUCCEEDED)
        return next((f"{name} is {state.status_of(name)} itself" for name in dead), None)
    return None


def _rewire_dependants(state: State, gone: str, by_tasks: tuple[str, ...]) -> State:
    """Make the tasks that depend on a superseded one depend on its replacements, or they wait for ever.

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
    """Remove dependencies that were given up from a task that a person told to go on."""
    task = state.task(name)
    dead = dead_dependencies(state, task)
    if not dead:
        return state
    return state.with_task(task.replace(depends_on=tuple(one for one in task.depends_on if one not in dead)))


def _ending_event(step: _Step, status: Status, moved: Move) -> Event | None:
    """Return what happens to a task that the document ends: its rounds are used up, or an edge says so."""
    event = step.event
    if not isinstance(event, e.Report) or status not in {Status.BLOCKED, Status.ABANDONED}:
        return None
    said = event.reason or (moved.decision.reason if moved.decision else None)
    reason = moved.exhausted or said or "the workflow ends here"
    if status is Status.ABANDONED:
        return e.Abandon(reason=reason)
    if moved.exhausted:
        return e.Block(reason=reason, questions=UNCLEAR_SPEC, rule=ROUNDS)
    questions = event.questions[:MOST_QUESTIONS] or (SETTLE.format(reason),)
    return e.Block(reason=reason, questions=questions, only_people=event.only_people)


UNAPPROVED: Final = "it went to its end, and nobody let it pass"


class _Step(NamedTuple):
    """An event that may happen to a task, before the position follows."""

    workflow: Workflow
    position: Position
    task: Task
    event: Event
    by: Actor
    at: datetime

    def next(self, position: Position) -> WorkflowJob | None:
        return engine.next_job(self.workflow, position, self.facts)

    @property
    def facts(self) -> frozenset[Predicate]:
        known = (
            self.event.known if isinstance(self.event, e.Report) and self.event.known else self.position.known
        )
        return frozenset(Predicate(name) for name in known if name in _KNOWN)

    @property
    def reason(self) -> str | None:
        return self.event.reason if isinstance(self.event, e.Report) else None

    def report(self, position: Position, work: Worked | None = None) -> Move:
        said = self.event.verdicts if isinstance(self.event, e.Report) else ()
        return engine.report(self.workflow, position, self.at, work=work, verdicts=said, facts=self.facts)

    def say(self, moved: Move, outcome: Outcome) -> Move:
        """Answer the next job with *outcome*, as if its worker or gate had given it."""
        here = moved.position
        if isinstance(job := self.next(here), WaitJob) and job.on == TAINT:
            # It waits for somebody who accepts what it is tainted with, and is decided by another word.
            decision = Decision(phase=here.phase, outcome=outcome, at=self.at, reason=self.reason)
            return follow_edge(self.workflow, here.replace(waiting=None), decision)
        return engine.after(self.workflow, here, self._answer(here, outcome), self.facts)

    def _answer(self, position: Position, outcome: Outcome) -> JobResult:
        match self.next(position):
            case GateJob(gate) | WaitJob(_, Gate() as gate):
                label = self.event.label if isinstance(self.event, e.Report) else None
                said = Verdict(gate=gate.id, outcome=outcome, at=self.at, tree=position.tree, label=label)
                return said.replace(reason=self.reason)
            case WorkJob():
                return Worked(self.at, outcome, self.reason, position.tree, self.by.run)
        return Proceeded(self.at)


def _with_position(task: Task, position: Position, at: datetime) -> Task:
    """Return *task* at *position*; what either is tainted with, the other is, too."""
    known = {taint.mark for taint in task.taints}
    taints = (*task.taints, *(Taint(mark=mark, at=at) for mark in position.taints if mark not in known))
    open_marks = {taint.mark for taint in taints if not taint.accepted_by}
    return task.replace(
        taints=taints,
        position=position.replace(
            taints=tuple(taint.mark for taint in taints),
            accepted=tuple(taint.mark for taint in taints if taint.mark not in open_marks),
        ),
    )


def _report(step: _Step) -> Move:
    """Return where a report leads; where a person is next, it waits for one."""
    event = step.event
    if not isinstance(event, e.Report):
        return Move(step.position)
    if event.mark:
        moved = _force(step)
    elif step.position.stage is Stage.WORK and not step.position.worked:
        moved = _report_work(step, event)
    else:
        moved = _report_verdict(step, event)
    # What was known of work that is sent back says nothing about the work that comes in its place.
    known = () if moved.position.back_from is not None else tuple(sorted(step.facts))
    moved = moved._replace(position=moved.position.replace(known=known))
    return _wait_for_person(step, moved)


def _report_work(step: _Step, event: e.Report) -> Move:
    # What gates found decides by itself; without them it is the worker's own word.
    outcome = Outcome.PASS if event.verdicts else event.outcome
    is_nothing = event.nothing_to_do is not None
    work = Worked(step.at, outcome, event.reason, event.tree, step.by.run, nothing_to_do=is_nothing)
    moved = step.report(step.position, work)
    return _decide(step, moved, event.outcome) if event.outcome is Outcome.REVISE else moved


def _report_verdict(step: _Step, event: e.Report) -> Move:
    here, is_effect = step.position, step.position.stage is Stage.EFFECT
    if event.outcome is Outcome.ASK:
        return _ask(step)
    if event.outcome is Outcome.PASS and here.waiting == TAINT:
        return engine.report(step.workflow, here.replace(waiting=None), step.at, facts=step.facts)
    # The gates of an effect look at the tree that it would make.
    moved = step.report(here.replace(tree=None) if is_effect else here)
    if event.crashed:
        broken = Crashed(step.at, event.reason or "it could not be asked", event.crashed)
        return engine.after(step.workflow, moved.position, broken, step.facts)
    if event.outcome is Outcome.PASS:
        moved = _pass(step, moved, event)
    elif event.outcome is not Outcome.NONE:
        moved = _decide(step, moved, event.outcome)
    after = moved.position
    if is_effect and not after.worked:
        return moved._replace(position=after.replace(tree=here.tree))
    # Where it was judged in the phase of the work itself, it comes back from who judged it all the same.
    return (
        moved
        if is_forward(moved) or after.end
        else moved._replace(position=after.replace(back_from=Stage.JUDGE))
    )


def _pass(step: _Step, moved: Move, event: e.Report) -> Move:
    """Return where a pass without a verdict leads: it counts as the verdict of the gate that decides next."""
    if not event.verdicts:
        match step.next(moved.position):
            case GateJob(gate) | WaitJob(_, Gate() as gate) if (
                gate.decides or moved.position.waiting == gate.id
            ):
                moved = step.say(moved, Outcome.PASS)
    passed = engine.report(step.workflow, moved.position, step.at, facts=step.facts)
    return passed._replace(
        decision=passed.decision or moved.decision,
        decided=passed.decided or moved.decided,
        effects=(*moved.effects, *passed.effects),
    )


def _decide(step: _Step, moved: Move, outcome: Outcome) -> Move:
    """Return *moved*, unless the phase is not decided yet: then the event decides it."""
    is_decided = moved.decision is not None and moved.decision.outcome is not Outcome.PASS
    return moved if is_decided else step.say(moved, outcome)


def _ask(step: _Step) -> Move:
    moved = step.report(step.position)
    match step.next(moved.position):
        case GateJob(gate) | WaitJob(_, Gate() as gate) if moved.position.stage is not Stage.EFFECT:
            return Move(moved.position.replace(waiting=gate.id))
    return Move(moved.position.replace(waiting=TAINT))


def _wait_for_person(step: _Step, moved: Move) -> Move:
    """Return *moved*, waiting where a person is next; what is tainted waits to be accepted as it is."""
    here = moved.position
    if here.end is End.DONE and here.is_tainted and moved.decided is not None:
        # Nothing is called done that was forced through, before a person accepts that.
        if not step.workflow.publishes:  # and there is nothing to accept it for
            return moved._replace(position=here.replace(end=End.STOPPED), exhausted=UNAPPROVED)
        waits = moved.decided.replace(taints=here.taints, waiting=TAINT, forced=True)
        return moved._replace(position=waits)
    if here.waiting is not None or here.end is not None:
        return moved
    match step.next(here):
        case WaitJob(on, Gate() as gate) if on != TAINT:
            # A person says yes in the knowledge of what the yes is marked with.
            yes = Verdict(gate=gate.id, outcome=Outcome.PASS, at=step.at, tree=here.tree)
            marked = engine.after(step.workflow, here, yes, step.facts).position.taints
            return moved._replace(position=here.with_taints(*marked).replace(waiting=gate.id))
    return moved


def _finish_merge(step: _Step) -> Move:
    """Return where a merge leads that is on the branch already: its gates passed before it was started."""
    moved = Move(step.position.replace(tree=None))
    while isinstance(step.next(moved.position), GateJob | ProceedJob):
        before, moved = moved, step.say(moved, Outcome.PASS)
        moved = moved._replace(effects=(*before.effects, *moved.effects))
    return moved._replace(position=moved.position.replace(tree=step.position.tree))


def _force(step: _Step) -> Move:
    """Return the work let pass by force, up to where it is merged or where there is new work to do."""
    here = step.position
    while here.stage is not Stage.EFFECT and here.end is None:
        no = Decision(phase=here.phase, outcome=Outcome.REVISE, at=step.at)
        here = force_pass(step.workflow, here, no, mark=False).position
        if here.stage is Stage.WORK:
            break
    return Move(here)


def _let_go(step: _Step) -> Move:
    if isinstance(step.event, e.Reclaim) and step.event.lost:
        return Move(engine.redo(step.workflow, step.position, fresh=False))
    if step.position.stage is not Stage.WORK or step.position.worked:
        return Move(step.position)  # whoever judges it next goes on where it is
    return Move(step.position.replace(attempt=step.position.attempt + 1, back_from=None))


def _answer(step: _Step) -> Move:
    if not (isinstance(step.event, e.Answer) and step.event.merge):
        fresh = step.by.role is not Role.PLANNER or step.task.blocked_rule is not None
        return Move(engine.redo(step.workflow, step.position, fresh=fresh))
    phases = step.workflow.phases
    phase = next((name for name, phase in phases.items() if phase.stage is Stage.EFFECT), step.position.phase)
    return Move(enter_phase(step.workflow, step.position.replace(end=None), Edge(to=phase), Outcome.PASS))


def _over(end: End) -> Callable[[_Step], Move]:
    return lambda step: Move(end_work(step.workflow, step.position, end, None).position)


def _take(step: _Step) -> Move:
    if not (isinstance(step.event, e.Take) and step.event.base_commit):
        return Move(step.position)
    rounds = int(step.event.changes(step.task, step.by, step.at)["iteration"])
    return Move(step.position.replace(iterations={**step.position.iterations, step.position.phase: rounds}))


_MOVES: Final[dict[type[Event], Callable[[_Step], Move]]] = {
    e.Ready: lambda step: Move(step.position.replace(waiting=None)),
    e.Take: _take,
    e.Report: _report,
    e.Land: _finish_merge,
    e.Release: _let_go,
    e.Reclaim: _let_go,
    e.Block: _over(End.BLOCKED),
    e.Answer: _answer,
    e.Supersede: _over(End.SUPERSEDED),
    e.Abandon: _over(End.STOPPED),
}


def report_changes(step: _Step, moved: Move) -> e.FieldChanges:
    """Return what the task keeps of a report, by where it led."""
    event, task, after = step.event, step.task, moved.position
    if not isinstance(event, e.Report):
        return {}
    is_work = step.position.stage is Stage.WORK and not step.position.worked
    changes: e.FieldChanges = {
        "verdicts": event.verdicts if is_work else _merge_verdicts(task, event.verdicts),
        "decisions": _decisions(step, moved),
        "approval_question": _question(step, after) if after.waiting else None,
        "awaits_words": _gate_options(step, after).get("asks") == "answer",
        "lease": None,
        "intended": None,
    }
    if event.artifacts or is_work:
        changes["artifacts"] = {**task.artifacts, **_artifacts(step, event)}
    changes |= _work_changes(step, event) if is_work else _verdict_changes(step, event, moved)
    if is_forward(moved):
        changes |= _onward_changes(step, moved, changes.get("artifacts", task.artifacts))
    elif moved.decision is not None and moved.decision.outcome is Outcome.REVISE:
        changes |= _revise_changes(step, event, moved)
    changes["memory"] = _memory(step, event, moved, is_work=is_work)
    return changes | (e.NO_HOLDER if after.end is not None else {})


def _memory(step: _Step, event: e.Report, moved: Move, *, is_work: bool) -> Memory:
    """Return what is remembered of the task: what its agents said, and how its phases went."""
    here, task = step.position, step.task
    phase, rounds = here.phase, here.iterations.get(here.phase, 0)
    made = {"task": task.id, "phase": phase, "iteration": rounds, "at": step.at}
    said = [(one.type, one.text) for one in event.remember] if is_work else []
    is_left = is_forward(moved) and moved.position.phase != phase
    if step.workflow.remembers and not is_work and not is_left:
        said += _feedback_to_remember(step, event)
    if not (task.memory or said or step.workflow.remembers):
        return ()
    entries = [MemoryEntry.model_validate({"type": kind, "content": text, **made}) for kind, text in said]
    memory = with_entries(task.memory, entries)
    if not is_left:
        return memory
    result = {"type": MemoryType.PHASE_RESULT, "content": f"{phase}: {_phase_result(moved)}", **made}
    ended = [MemoryEntry.model_validate(result)] if step.workflow.remembers else []
    return with_entries(after_phase(memory, task.id), ended)


def _phase_result(moved: Move) -> str:
    is_forced = moved.decision is not None and moved.decision.outcome is not Outcome.PASS
    return "its rounds were over, and it went on all the same" if is_forced else "it was let pass"


def _feedback_to_remember(step: _Step, event: e.Report) -> list[tuple[MemoryType, str]]:
    """Return what agents found wrong: advice, and what who decides wants."""
    phase = step.workflow.phases[step.position.phase]
    found = []
    for verdict in event.verdicts:
        gate = phase.gate(verdict.gate)
        if gate is None or gate.kind is not GateKind.AGENT or verdict.outcome is Outcome.PASS:
            continue
        kind = MemoryType.JUDGE_DIRECTIVE if gate.decides else MemoryType.EVAL_FEEDBACK
        points = [one.message for one in verdict.feedback]
        found.append((kind, "; ".join(dict.fromkeys([verdict.reason or str(verdict.outcome), *points]))))
    return found


def _verdict_changes(step: _Step, event: e.Report, moved: Move) -> e.FieldChanges:
    """Return what a task keeps of who judged it, and who goes on with it."""
    task, after = step.task, moved.position
    if event.mark:
        return {"approved_by": step.by.id, "taints": (*task.taints, Taint(mark=event.mark, at=step.at))}
    if after.waiting or not is_forward(moved):
        return {}
    is_kept = label_of(after, task.lease) in {Status.APPROVED, Status.READY_FOR_REVIEW}
    lease = {"lease": task.lease} if is_kept else {}
    is_approval = bool(after.approvals) and after.approvals != step.position.approvals
    # Who let it pass before did so to what was forced; who accepts that lets all of it pass.
    is_accepted = step.position.waiting == TAINT and task.approved_by is None
    return {**lease, "approved_by": step.by.id} if is_approval or is_accepted else lease


def _onward_changes(step: _Step, moved: Move, artifacts: Mapping[str, Artifact]) -> e.FieldChanges:
    """Return what changes where work goes on: with what it left behind, and fresh rounds for new work."""
    before, after = step.position, moved.position
    is_forced = moved.decision is not None and moved.decision.outcome is not Outcome.PASS
    changes: e.FieldChanges = {"approved_by": SUPERVISOR.id} if is_forced else {}
    if after.phase == before.phase:
        return changes
    changes["artifacts"] = _kept_artifacts(step, artifacts, before.phase)
    if after.end is None and after.stage is Stage.WORK and not after.worked:
        changes |= {
            **e.NO_HOLDER,
            **e.FRESH_ROUNDS,
            **e.NO_REJECTION,
            # What later phases said of an earlier round counts on: it is the same work that goes round.
            "decisions": tuple(one for one in step.task.decisions if one.phase != before.phase),
            "checkpoint": None,
            "approved_by": None,
        }
    return changes


def is_forward(moved: Move) -> bool:
    """Return whether the work went on: it was let pass, or its rounds were over and it is forced through."""
    is_no = moved.decision is not None and moved.decision.outcome is not Outcome.PASS
    is_stopped = moved.position.back_from is not None or moved.position.end in {
        End.BLOCKED,
        End.PAUSED,
        End.STOPPED,
    }
    return not (is_no and is_stopped)


def _work_changes(step: _Step, event: e.Report) -> e.FieldChanges:
    made = step.task.base_commit if event.nothing_to_do else event.commit
    return {
        "review_commit": made or step.task.review_commit,
        "submitted_run": step.by.run,
        "nothing_to_do": event.nothing_to_do,
        "session": event.session,
        **({"guidance": None} if event.outcome is Outcome.PASS else {}),
    }


def _artifacts(step: _Step, event: e.Report) -> dict[str, Artifact]:
    made = {"phase": step.position.phase, "at": step.at, "by": step.by.id}
    return {name: Artifact.model_validate({"text": text, **made}) for name, text in event.artifacts.items()}


def _kept_artifacts(step: _Step, artifacts: Mapping[str, Artifact], left: str) -> dict[str, Artifact]:
    """Return *artifacts* without those that were for the phase *left* alone."""
    kinds = step.workflow.artifacts
    return {
        name: one
        for name, one in artifacts.items()
        if one.phase != left or kinds.get(name, ArtifactKind()).retention is not Retention.PHASE
    }


def _revise_changes(step: _Step, event: e.Report, moved: Move) -> e.FieldChanges:
    task, reason = step.task, event.reason or (moved.decision.reason if moved.decision else None)
    reason = reason or "it was sent back"
    if step.position.stage is Stage.EFFECT:
        return {
            "integration_failure": IntegrationFailure(reason=reason, paths=event.paths),
            "integration_failures": task.integration_failures + 1,
            "conflicted": event.paths,
            "merging": None,
            "attempt": 0,
        }
    is_work = step.position.stage is Stage.WORK and not step.position.worked
    cycles = {
        "review_cycles_current": task.review_cycles_current + 1,
        "review_cycles_total": task.review_cycles_total + 1,
    }
    return {
        "rejection_reason": reason,
        "rejection_feedback": event.feedback or (Feedback(message=reason),),
        "rejection_output": _rejecting_evidence(event.verdicts),
        "attempt": 0,
        **({"review_commit": task.review_commit, "submitted_run": task.submitted_run} if is_work else cycles),
    }


def _decisions(step: _Step, moved: Move) -> tuple[Decision, ...]:
    """Return the decisions of the task with the one that the verdicts led to: rules count these."""
    event, decision = step.event, moved.decision
    if not isinstance(event, e.Report) or decision is None:
        return step.task.decisions
    is_no = decision.outcome is Outcome.REVISE
    is_own_word = step.position.stage is Stage.WORK and event.outcome is Outcome.REVISE
    if not event.verdicts and not is_own_word:
        return step.task.decisions
    said = (event.reason or decision.reason) if is_no else None
    is_machine = is_no and step.position.stage is Stage.WORK and not step.position.worked
    return (
        *step.task.decisions,
        Decision(
            phase=decision.phase,
            outcome=decision.outcome,
            at=step.at,
            reason=said[:LONGEST_REASON].rstrip() if said else None,
            output=_output_digest(event.verdicts) if is_machine else None,
            is_merge=is_no and step.position.stage is Stage.EFFECT,
        ),
    )


def _gate_options(step: _Step, after: Position) -> Mapping[str, Any]:
    """Return what the human gate is told at which a person is waited for; nothing where none is."""
    gate = step.workflow.phases[after.phase].gate(after.waiting or "")
    return gate.options if gate else {}


def _question(step: _Step, after: Position) -> str:
    """Return the question that the waiting gate, or the taint, puts to a person."""
    event, options = step.event, _gate_options(step, after)
    if isinstance(event, e.Report) and event.outcome is Outcome.ASK and event.reason:
        return event.reason
    asked = options.get("question") or QUESTIONS[options.get("asks", "approve")]
    if after.waiting == TAINT and (marks := [one for one in after.taints if one not in after.accepted]):
        asked = f"Is it good as it is, though {'; '.join(map(taint_meaning, marks))}?"
    return f"{step.task.id}: {asked}"


def _output_digest(verdicts: tuple[Verdict, ...]) -> str | None:
    """Return a digest of the output of the gate that rejected; one command can fail for many reasons."""
    against = next((one for one in reversed(verdicts) if one.outcome is not Outcome.PASS), None)
    shown = against.evidence.tail if against and against.evidence else ""
    return normalized_digest(shown) if shown else None


def _merge_verdicts(task: Task, verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Return the task's verdicts, with newer verdicts of the same gates in place of older ones."""
    newer = {verdict.gate for verdict in verdicts}
    return (*(verdict for verdict in task.verdicts if verdict.gate not in newer), *verdicts)


def _rejecting_evidence(verdicts: tuple[Verdict, ...]) -> Evidence | None:
    """Return the evidence of the last gate that did not pass."""
    against = (one.evidence for one in reversed(verdicts) if one.outcome is not Outcome.PASS)
    return next(against, None)


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
    """A goal that was over is not, once there is more to do."""
    if state.goal.status is GoalStatus.IN_PROGRESS:
        return state
    return state.replace(goal=state.goal.replace(status=GoalStatus.IN_PROGRESS, completed=None))


def new_task_at_start(workflow: Workflow, task: Task, *, by: Actor, at: datetime) -> Task:
    """Return a new task at the start of *workflow*, with the first entry of its history."""
    if by.role not in lifecycle.ADDING_ROLES:
        raise Forbidden(task.id, by.id, "add", task.status)
    beginnings = lifecycle.INITIAL_STATUSES
    if task.status not in beginnings:
        message = f"{task.id}: a new task starts as {' or '.join(sorted(beginnings))}, not as {task.status}"
        raise Refused(message)
    entry = HistoryEntry(at=at, event=ADDED, by=by.id, role=by.role, target=task.status)
    waiting = RELEASE if task.status is Status.DRAFT else None
    return task.replace(history=(entry,), position=engine.begin(workflow).replace(waiting=waiting))


def answer_task(task: str, text: str, *, by: Actor, at: datetime) -> Change:
    """Return the change that answers a BLOCKED task: the answer is kept as a note and the task goes on."""

    def make(state: State) -> State:
        found = state.task(task)
        if found.asks_for_answer:
            judged = None if found.nothing_to_do else found.review_commit
            said = with_answer_noted(state, task, text, by=by, at=at)
            return apply(e.Report(commit=judged, reason=text), to=task, by=by, at=at)(said)
        if found.status is Status.AWAITING_APPROVAL:
            no = f'`liza task reject {task} --reason "…"`'
            message = f"{task}: it asks for a yes or a no; `{found.approval_command}`, or {no}"
            raise Refused(message)
        if found.status is not Status.BLOCKED:
            message = (
                f"{task}: it asks nothing, because it is {found.status}; "
                f'`liza note "…" --for {task}` tells the agents something'
            )
            raise Refused(message)
        noted = with_answer_noted(state, task, text, by=by, at=at)
        unblocked = apply(e.Answer(guidance=text), to=task, by=by, at=at)(noted)
        over = [one.id for one in open_anomalies(unblocked, task) if is_for_planner(one)]
        return close_anomalies(unblocked, over, by=by.id, at=at)

    return Change(by.id, f"answer {task}", make)


def with_answer_noted(state: State, task: str, text: str, *, by: Actor, at: datetime) -> State:
    """Return the board with a person's words as a processed note on *task*; no planner is woken."""
    noted = add_note(text, about=task, by=by, at=at)(state)
    note = list(noted.human_notes.values())[-1].replace(processed=at, processed_by=by.id)
    return noted.replace(human_notes=with_record(noted.human_notes, note))


def reply(who: str, text: str, *, by: Actor, at: datetime) -> Change:
    """Return the change that answers what *who*, a task, the plan or the budget, asks."""

    def make(state: State) -> State:
        if who == BUDGET and state.status_of(who) is None:
            return raise_budget(state, text)
        if who in PLAN_NAMES and state.status_of(who) is None:
            return answer_plan(text, by=by, at=at)(state)
        if is_cap_question_open(state, who):
            state = allow(state, who, text)
        return answer_task(who, text, by=by, at=at)(state)

    return Change(by.id, f"answer {who}", make)


def accept_task(task: str, reason: str, *, by: Actor, at: datetime, label: str | None = None) -> Change:
    """Return the change by which a person says yes to what *task* asks: its approval, its forced pass.

    *label* is which of several ways to go on.
    """

    def make(state: State) -> State:
        found = state.task(task)
        if found.asks_for_answer:
            asked, how = found.approval_question, found.approval_command
            raise Refused(f"{task}: a yes does not answer {asked!r}; `{how}` does")
        if found.is_tainted and found.position and found.position.waiting == TAINT:
            state = apply(e.Accept(reason=reason), to=task, by=by, at=at)(state)
            found = state.task(task)
        if found.status is Status.AWAITING_APPROVAL:
            judged = None if found.nothing_to_do else found.review_commit
            yes = e.Report(commit=judged, reason=reason, label=label)
            state = apply(yes, to=task, by=by, at=at)(state)
        elif not found.is_tainted:
            message = f"{task}: it asks for no consent, because it is {found.status}; `liza explain {task}`"
            raise Refused(message)
        if state.task(task).is_tainted:
            state = apply(e.Accept(reason=reason), to=task, by=by, at=at)(state)
        return state

    return Change(by.id, f"accept {task}", make)


def reject_task(
    task: str, reason: str, *, by: Actor, at: datetime, comments: tuple[Feedback, ...] = ()
) -> Change:
    """Return the change by which a person says no to what *task* asks; it goes back with *reason*.

    What they said about single lines are *comments*, and the reason is one more, so that no coder misses it.
    """
    said = (Feedback(message=reason), *comments)
    return apply(e.Report(outcome=Outcome.REVISE, reason=reason, feedback=said), to=task, by=by, at=at)


def apply_rules(workflow: Workflow, state: State, name: str, at: datetime) -> State:
    """Return *state* with the rules about the task *name* applied, in the supervisor's name.

    A task that they, or whoever updates it, blocked may break a rule of those that wait for it.
    """
    state = _apply_to(workflow, state, name, at)
    blocked = state.tasks.get(name)
    if blocked is None or blocked.status is not Status.BLOCKED:
        return state
    for waiting in [task.id for task in state.tasks.values() if name in task.depends_on]:
        state = _apply_to(workflow, state, waiting, at)
    return state


def _apply_to(workflow: Workflow, state: State, name: str, at: datetime) -> State:
    """Return *state* with every alert about the task recorded, and the strongest other rule applied."""
    task = state.tasks.get(name)
    if task is None or task.status in TERMINAL | {Status.BLOCKED} or task.merging:
        return state
    rules = [rule for rule in workflow.watched_rules() if rule.subject is Subject.TASK]
    events = [event for event in task_events(state, task) if event.at <= at]
    found = evaluate(rules, events, state.config.limits, at)
    if any(fired.action is RuleAction.ALERT for fired in found):
        alerts = [rule for rule in rules if rule.action is RuleAction.ALERT]
        state = with_due_trips(state, at, alerts, events)
    for fired in reversed(found):
        act = _EVENT_OF_ACTION.get(fired.action)
        if act is None:
            continue
        try:
            return apply(act(fired), to=name, by=SUPERVISOR, at=at)(state)
        except Refused:  # not from where the task is now; the next update looks again
            continue
    return state


def _block(fired: FiredRule) -> e.Event:
    reason = fired.row.reason.format(count=fired.needed) or f"{fired.rule}: {'; '.join(fired.evidence)}"
    is_for_people = fired.action in {RuleAction.ASK, RuleAction.PAUSE}
    return e.Block(reason=reason, questions=fired.row.then, rule=fired.rule, only_people=is_for_people)


def _force_pass(fired: FiredRule) -> e.Event:
    return e.Report(mark=f"forced:{fired.rule}")


_EVENT_OF_ACTION: Final[dict[RuleAction, Callable[[FiredRule], e.Event]]] = {
    RuleAction.BLOCK: _block,
    RuleAction.PAUSE: _block,  # a task that is paused waits for people, as one that is blocked does
    RuleAction.STOP: _block,
    RuleAction.ASK: _block,
    RuleAction.FORCE_PASS: _force_pass,
}
