"""What a worker picks, what has to be true before, and what follows from how its run ended.

In this order: conditions of a turn and of a run as `liza explain` shows them, admission by providers and
money, then what coders pick and conclude, and last what reviewers do.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.agents.protocol import did_nothing
from liza.domain import budget
from liza.domain import lifecycle as e
from liza.domain.answers import LOOPS, STEP, FeedbackStatus, IssuedStep, Ruling, Step, WorkStatus, step_risk
from liza.domain.budget import Bill, Cap, ProviderRejection
from liza.domain.changes import dead_dependencies, waits_for
from liza.domain.config import SWITCH_MEANING, Switch, resume_command, strongest_switch, switch_cause
from liza.domain.lifecycle import Event
from liza.domain.model import (
    Evidence,
    Feedback,
    Outcome,
    Provenance,
    ProviderState,
    Risk,
    Role,
    Severity,
    Signal,
    SignalName,
    State,
    Status,
    Task,
    Verdict,
    WorkerStatus,
    index_leases,
)
from liza.domain.record import printable, with_record
from liza.domain.rules import RULE_BY_NAME, UNCLEAR_SPEC
from liza.errors import GitFailed, UnfitRepository
from liza.gates.scan import forbidden_command_in
from liza.system.run_control import MEANING, RunEnding
from liza.workflow.document import Predicate, process_at, workflow_on

if TYPE_CHECKING:
    from collections.abc import Collection

    from liza.agents.protocol import Reply
    from liza.domain.answers import CheckpointAnswer, Implement, Review
    from liza.domain.budget import AdmissionRequest, RunRequest
    from liza.domain.model import Note, Usage
    from liza.errors import LizaError
    from liza.workflow.document import Gate, Phase, Workflow
    from liza.workflow.engine import GatesResult


# What has to be true before a worker takes a turn or a task or starts a run, as people are shown it.
#
# A worker takes a task when every condition of its role holds. `liza explain` walks the very same tuple and
# tells of the first that does not: in words, since when, who can change it, and by which command.


class Candidate(NamedTuple):
    """A task that the worker *me* may take."""

    state: State
    task: Task
    me: str
    now: datetime


class Blocker(NamedTuple):
    """Why something does not go on."""

    what: str  # completes "t1 is IDLE: …"
    who: str
    command: str
    since: datetime | None = None


class AfterError(NamedTuple):
    """The event for a task after an error of its holder."""

    event: Event
    pause: str | None = None  # why everybody stops, where nobody can go on


class Condition(NamedTuple):
    holds: Callable[[Candidate], bool]
    blocker: Callable[[Candidate], Blocker]


def all_hold(conditions: tuple[Condition, ...], candidate: Candidate) -> bool:
    """Return whether every condition holds."""
    return all(condition.holds(candidate) for condition in conditions)


def first_blocker(conditions: tuple[Condition, ...], candidate: Candidate) -> tuple[int, Blocker] | None:
    """Return the first condition that does not hold, by its place, with what to tell; None if all do."""
    for place, condition in enumerate(conditions):
        if not condition.holds(candidate):
            return place, condition.blocker(candidate)
    return None


def status_since(task: Task) -> datetime:
    """Return when *task* came to the status it has."""
    arrived = (
        entry.at
        for entry in reversed(task.history)
        if entry.target is task.status and entry.source is not task.status
    )
    return next(arrived, task.created)


def is_at_work(state: State, me: str) -> bool:
    return task_held_by(state, me) is not None


def task_held_by(state: State, me: str) -> Task | None:
    """Return what *me* works on."""
    return next((state.tasks[name] for name in index_leases(state.tasks).by_holder.get(me, ())), None)


def _busy_blocker(candidate: Candidate) -> Blocker:
    other = task_held_by(candidate.state, candidate.me)
    name = other.id if other else "nothing"
    return Blocker(f"{candidate.me} is at work on {name}", candidate.me, f"liza task show {name}")


def _missing_labels(candidate: Candidate) -> list[str]:
    """Return the labels that the task, or the role of the worker, needs and its host does not have."""
    role = candidate.me.partition("-")[0]
    needed = {*candidate.task.needs, *getattr(candidate.state.config.needs, role, ())}
    return sorted(needed.difference(_labels_of(candidate.state, candidate.me))) if needed else []


def _labels_of(state: State, worker: str) -> tuple[str, ...]:
    known = state.agents.get(worker)
    return known.labels if known and known.status is not WorkerStatus.STOPPED else ()


def _label_blocker(candidate: Candidate) -> Blocker:
    missing = _missing_labels(candidate)
    named = " and ".join(missing)
    if any(set(missing) <= set(_labels_of(candidate.state, name)) for name in candidate.state.agents):
        return Blocker(
            f"it needs a host with the label {named}, and {candidate.me} is on one without",
            f"a host with {named}",
            f"liza task show {candidate.task.id}",
        )
    # On a board in files there is one machine, and it has the labels that its run is started with.
    verb = "host" if any(agent.host for agent in candidate.state.agents.values()) else "run"
    command = f"liza {verb} {' '.join(f'--label {one}' for one in missing)}"
    return Blocker(f"it needs a host with the label {named}, and no host has it", "you", command)


LABELLED: Final = Condition(lambda candidate: not _missing_labels(candidate), _label_blocker)
FREE: Final = Condition(lambda candidate: not is_at_work(candidate.state, candidate.me), _busy_blocker)


# What has to be true of a run before any worker takes a turn: the goal, the switches, the supervisor.


class RunContext(NamedTuple):
    """A run: its board, the thrown switches with their texts, whether a supervisor runs, and whether the disk
    is full.
    """

    state: State
    switches: Mapping[str, str]
    is_running: bool = True
    shortage: str | None = None  # why the disk lets nothing new start

    @property
    def switch(self) -> Switch:
        return strongest_switch(self.switches)


class Precondition(NamedTuple):
    """A condition of every turn. Where it does not hold, a worker waits, or *ends*."""

    holds: Callable[[RunContext], bool]
    blocker: Callable[[RunContext], Blocker]
    ends: bool = False


def first_unmet(context: RunContext) -> tuple[Precondition, Blocker] | None:
    """Return the first condition that keeps every worker from its turn, with what to tell people."""
    for one in PRECONDITIONS:
        if not one.holds(context):
            return one, one.blocker(context)
    return None


def _goal_blocker(context: RunContext) -> Blocker:
    goal = context.state.goal
    return Blocker(f"the goal is {goal.status}", "you", 'liza goal "…"; liza run', goal.completed)


def _switch_blocker(context: RunContext) -> Blocker:
    name = context.switch.name
    said = context.switches[name]
    cause = switch_cause(said)
    what = f"{name} is thrown{f' ({cause})' if cause else ''}: {SWITCH_MEANING[context.switch]}"
    return Blocker(what, "you", resume_command(said))


def _disk_blocker(context: RunContext) -> Blocker:
    return Blocker(str(context.shortage), "you", "liza status")


def _supervisor_blocker(_: RunContext) -> Blocker:
    return Blocker("nobody works, because no supervisor runs", "you", "liza run")


# All others come before it.
SUPERVISOR_RUNS: Final = Precondition(lambda context: context.is_running, _supervisor_blocker)
PRECONDITIONS: Final = (
    Precondition(lambda context: not context.state.goal.is_over, _goal_blocker, ends=True),
    Precondition(lambda context: context.switch is not Switch.ABORT, _switch_blocker, ends=True),
    Precondition(lambda context: context.switch is Switch.NORMAL, _switch_blocker),
    Precondition(lambda context: context.shortage is None, _disk_blocker),
    SUPERVISOR_RUNS,
)


# Whether a run may begin, given its provider's limits and the money, and what follows from its end.


class Denial(NamedTuple):
    """Why a run may not begin."""

    why: str
    until: datetime | None = None
    cap: Cap | None = None


class EndedRun(NamedTuple):
    """A run that ended, as the board should know it."""

    run: AdmissionRequest
    reply: Reply


STATE_AFTER_ENDING: Final[dict[RunEnding, ProviderState]] = {
    RunEnding.RATE_LIMITED: ProviderState.LIMITED,
    RunEnding.QUOTA: ProviderState.EXHAUSTED,
    RunEnding.AUTH: ProviderState.REFUSED,
}
# After these nobody knows whether the provider would have taken the run.
UNTRIED: Final = frozenset({RunEnding.STOPPED, RunEnding.NOT_STARTED, RunEnding.KILLED})


def denial_of(state: State, run: AdmissionRequest, now: datetime) -> Denial | None:
    """Return why *run* may not begin now; None where it may."""
    for provider in run.providers:
        if gate := budget.provider_wait(state, provider, run.want.worker, now):
            return Denial(gate.why, gate.until)
    cap = budget.cap_exceeded_by(state, run.want)
    if cap is None:
        return None
    if cap is Cap.RUN:
        return Denial(budget.budget_question(state), cap=cap)
    if cap is Cap.BUSY:
        return Denial(budget.why_budget_is_busy(state), cap=cap)
    return Denial(f"{run.want.task} may not cost more", cap=cap)


def admit(state: State, run: AdmissionRequest, now: datetime) -> State:
    """Return the board with the cost of *run* reserved, and its provider probed if that is due."""
    state = budget.reserve(state, run.want, now)
    for provider in run.providers:
        state = budget.with_probe(state, provider, run.want.worker)
    return _with_status(state, run.want.worker, WorkerStatus.RUNNING, now)


def park(state: State, run: AdmissionRequest, denial: Denial, now: datetime) -> State:
    """Return the board with the worker of *run* waiting, and the question on it if it is about money."""
    if denial.cap is Cap.RUN:
        state = budget.with_budget_question(state)
    return _with_status(state, run.want.worker, WorkerStatus.PARKED, now)


def _with_status(state: State, worker: str, status: WorkerStatus, now: datetime) -> State:
    agent = state.agents.get(worker)
    if agent is None or agent.status is status:
        return state
    return state.replace(agents=with_record(state.agents, agent.replace(status=status, since=now)))


def settle_ended_run(state: State, end: EndedRun, *, at: datetime, chance: float) -> State:
    """Return the board with a run settled and its provider's state updated; *chance* is between 0 and 1."""
    reply, run = end.reply, end.run
    if did_nothing(reply):
        state = budget.without_reservation(state, run.want.worker)
    else:
        state = budget.settle_run(state, _bill(state, run.want, reply.usage))
    worse = STATE_AFTER_ENDING.get(reply.ending)
    if worse is not None:
        how = ProviderRejection(worse, reply.why or MEANING[reply.ending], reply.reset)
        return budget.with_rejection(state, run.provider, run.want.worker, how, at=at, chance=chance)
    if reply.ending in UNTRIED:
        return budget.without_probes_of(state, {run.want.worker})
    return budget.with_success(state, run.provider, run.want.worker, at=at)


def _bill(state: State, want: RunRequest, usage: Usage) -> Bill:
    """Return what a run cost; one that is silent about it where its like was not counts as they do."""
    if usage.usd is not None:
        return Bill(want.worker, want.task, want.kind, usage.usd, usage.provenance)
    if not want.guess:  # a recording costs what it says
        return Bill(want.worker, want.task, want.kind, 0.0, Provenance.REPORTED)
    usual = budget.average_cost(state, want.kind)
    mark = Provenance.UNKNOWN if usual is None else Provenance.ESTIMATED
    return Bill(want.worker, want.task, want.kind, usual or 0.0, mark)


def release_unused(state: State, worker: str) -> State:
    """Return the board without the reservations and probes that *worker* did not use."""
    return budget.without_probes_of(budget.without_reservation(state, worker), {worker})


def settle_reservations_of(state: State, gone: Collection[str]) -> State:
    """Return the board with the reservations of the dead workers *gone* counted as spent."""
    held = {one.id for one in state.spend.reserved} | {one.probe or "" for one in state.providers.values()}
    return settle_reservations_except(state, held - set(gone))


def settle_reservations_except(state: State, living: Collection[str]) -> State:
    """Return the board with the reservations of all workers not in *living* counted as spent, and their
    probes given up.
    """
    state = budget.settle_reservations_of_dead(state, living)
    gone = {one.probe for one in state.providers.values() if one.probe and one.probe not in living}
    return budget.without_probes_of(state, gone)


# What a coder picks, and what follows from how its agent's run ended.

# Coders that failed a task, or rounds of the only one; the next would fail as well.
ENOUGH_FAILURES: Final = RULE_BY_NAME["hypothesis_exhaustion"].count.number
MOST_FAILED_INTEGRATIONS: Final = 3  # of one task; then somebody has to think, not to code
NOT_STARTED_QUESTION: Final = (
    "Is what it needs there: the agent (`agents` in the settings), the spec, the worktree?"
)
UNFIT_QUESTION: Final = "Can you put the repository right, so that this can go on?"
SIMPLE_LINES: Final = 10  # that are not empty: what says less is simple
_LONGEST_SUBJECT: Final = 72  # characters; where git log and forges cut it


def available_coders(state: State, role: Role = Role.CODER) -> frozenset[str]:
    """Return the workers of *role* that work or will: those of the settings and those that registered.

    One that was stopped because it kept crashing is not among them. One that ended in good order comes back
    with the next start, and its tasks wait for it.
    """
    count = 0 if state.has_hosts else getattr(state.config.workers, role)
    configured = {f"{role}-{number}" for number in range(1, count + 1)}
    coders = [agent for agent in state.agents.values() if agent.role is role]
    gone = {agent.id for agent in coders if agent.status is WorkerStatus.STOPPED and agent.crashes}
    there = {agent.id for agent in coders if agent.status is not WorkerStatus.STOPPED}
    return frozenset((configured | there) - gone)


def is_given_up(state: State, task: Task) -> bool:
    """Return whether no coder takes *task* again before a planner or a person decided about it."""
    if len(task.failed_by) >= ENOUGH_FAILURES:
        return True
    alone = not available_coders(state) - set(task.failed_by)
    return alone and bool(task.failed_by) and task.iteration >= ENOUGH_FAILURES


def pick_work(state: State, me: str) -> Task | None:
    """Return the task that coder *me* takes next: its own rejected ones, failed merges, then what is new."""
    if is_at_work(state, me):
        return None
    candidates = (Candidate(state, task, me, task.created) for task in state.tasks.values())
    free = [candidate for candidate in candidates if all_hold(_TASK_CONDITIONS, candidate)]
    first = min(free, key=lambda candidate: _rank(candidate.task, me), default=None)
    # Asked of the first alone: it counts all tasks, and new ones come last.
    return first.task if first and all_hold(_QUEUE_CONDITIONS, first) else None


def next_work(state: State, me: str, _now: datetime) -> Task | None:
    """Return the task that *me* takes next, as all kinds of workers are asked."""
    return pick_work(state, me)


def phase_of(state: State, task: Task) -> Phase:
    """Return the phase that *task* is in."""
    flow = workflow_on(state)
    return flow.phases[task.position.phase if task.position else flow.start]


def steps_of_work(state: State, task: Task) -> tuple[Step, ...]:
    """Return what the agent of a coder is asked for."""
    is_announced = phase_of(state, task).asks_checkpoint
    return (Step.CHECKPOINT, Step.IMPLEMENT) if is_announced else (Step.IMPLEMENT,)


def _other_coders(candidate: Candidate) -> frozenset[str]:
    return available_coders(candidate.state, _process(candidate)) - {candidate.me}


def process_for(state: State, task: Task) -> Role:
    """Return the kind of worker whose job of *task* is next."""
    return process_at(workflow_on(state), task.position) if task.position else Role.CODER


def _process(candidate: Candidate) -> Role:
    return process_for(candidate.state, candidate.task)


def _is_open(candidate: Candidate) -> bool:
    return candidate.task.status in _ORDER


def _work_status_blocker(candidate: Candidate) -> Blocker:
    return Blocker(
        f"{candidate.task.status} is not for coders", "nobody", f"liza task show {candidate.task.id}"
    )


def _dependency_blocker(candidate: Candidate) -> Blocker:
    waiting = waits_for(candidate.state, candidate.task)
    named = ", ".join(f"{name} ({candidate.state.status_of(name) or 'not on the board'})" for name in waiting)
    if dead := dead_dependencies(candidate.state, candidate.task):
        what = f"it waits for {named}, and {' and '.join(dead)} will never be done; the planner is asked next"
        return Blocker(what, "the planner, or you", "liza edit")
    return Blocker(f"it waits for {named}", "whoever works on that", f"liza explain {waiting[0]}")


def is_unfetched(task: Task) -> bool:
    """Return whether the issue of an open task has to be fetched before anybody can work on it."""
    return task.status is Status.IDLE and task.issue is not None and task.issue.branch is None


def _unfetched_blocker(candidate: Candidate) -> Blocker:
    return Blocker("its issue is fetched first", "the planner", f"liza task show {candidate.task.id}")


def _may_merge(candidate: Candidate) -> bool:
    failures = candidate.task.integration_failures
    return candidate.task.status is not Status.INTEGRATION_FAILED or failures < MOST_FAILED_INTEGRATIONS


def _merge_blocker(candidate: Candidate) -> Blocker:
    times = (
        f"it failed to merge {candidate.task.integration_failures} times, so somebody has to think about it"
    )
    return Blocker(times, "the planner", f'liza note "…" --for {candidate.task.id}')


def _is_unassigned_or_mine(candidate: Candidate) -> bool:
    return candidate.task.status is Status.IDLE or candidate.task.assigned_to not in _other_coders(candidate)


def _assigned_blocker(candidate: Candidate) -> Blocker:
    other = str(candidate.task.assigned_to)
    return Blocker(f"{other} takes it up again itself", other, f"liza explain {other}")


def _given_up_blocker(candidate: Candidate) -> Blocker:
    failed = " and ".join(candidate.task.failed_by)
    return Blocker(
        f"{failed} could not do it, so the planner looks at it first",
        "the planner",
        f'liza note "…" --for {candidate.task.id}',
    )


def _is_not_my_failure(candidate: Candidate) -> bool:
    return candidate.me not in candidate.task.failed_by or not _other_coders(candidate)


def _own_failure_blocker(candidate: Candidate) -> Blocker:
    return Blocker(
        f"{candidate.me} could not do it, so another coder takes it",
        "another coder",
        f"liza task show {candidate.task.id}",
    )


def unmerged_count(state: State) -> int:
    """Return how many tasks wait for reviewers; what waits for people holds up no coder."""
    return sum(
        task.status is Status.READY_FOR_REVIEW or (task.status is Status.APPROVED and not task.is_tainted)
        for task in state.tasks.values()
    )


def _has_queue_room(candidate: Candidate) -> bool:
    # What was rejected, or did not merge, is finished first: only new work makes the queue longer.
    return (
        candidate.task.status is not Status.IDLE
        or unmerged_count(candidate.state) < candidate.state.config.limits.max_unmerged
    )


def _queue_blocker(candidate: Candidate) -> Blocker:
    waiting, most = unmerged_count(candidate.state), candidate.state.config.limits.max_unmerged
    return Blocker(
        f"{waiting} tasks wait for review or merge, and with {most} no new one begins (limits.max_unmerged)",
        "the reviewers",
        "liza status",
    )


def _process_blocker(candidate: Candidate) -> Blocker:
    process = _process(candidate)
    return Blocker(
        f"its next job is one for a {process}", f"a {process}", f"liza task show {candidate.task.id}"
    )


def _is_mine(candidate: Candidate) -> bool:
    return candidate.me.partition("-")[0] == _process(candidate)


_TASK_CONDITIONS: Final = (
    Condition(_is_open, _work_status_blocker),
    Condition(_is_mine, _process_blocker),
    Condition(lambda candidate: not waits_for(candidate.state, candidate.task), _dependency_blocker),
    Condition(lambda candidate: not is_unfetched(candidate.task), _unfetched_blocker),
    Condition(_may_merge, _merge_blocker),
    Condition(lambda candidate: not is_given_up(candidate.state, candidate.task), _given_up_blocker),
    Condition(_is_unassigned_or_mine, _assigned_blocker),
    Condition(_is_not_my_failure, _own_failure_blocker),
    LABELLED,
    FREE,
)
_QUEUE_CONDITIONS: Final = (Condition(_has_queue_room, _queue_blocker),)
CONDITIONS: Final = (*_TASK_CONDITIONS, *_QUEUE_CONDITIONS)

_ORDER: Final = {Status.REJECTED: 0, Status.INTEGRATION_FAILED: 1, Status.IDLE: 2}


def _rank(task: Task, me: str) -> tuple[object, ...]:
    return _ORDER[task.status], task.assigned_to != me, -task.priority, task.created


def is_carried_on(task: Task) -> bool:
    """Return whether a later phase works on what an earlier phase made."""
    here = task.position
    return here is not None and task.review_commit is not None and here.made_in not in {None, here.phase}


def start_of(state: State, task: Task) -> str | None:
    """Return the commit of earlier work that *task* goes on from: its own, or that of what it waited for."""
    if task.issue and task.issue.begins:
        return task.issue.begins
    parents = (state.tasks[name] for name in reversed(task.depends_on) if name in state.tasks)
    return next((one.review_commit for one in parents if one.status is Status.COMPLETE), None)


def base_for(task: Task, me: str, head: str) -> str:
    """Return what the work of *me* on *task* is based on: what it was for the same coder, else *head*."""
    is_mine = task.authors[-1:] == (me,) or is_carried_on(task)
    goes_on = is_mine and task.status is not Status.INTEGRATION_FAILED
    return task.base_commit if goes_on and task.base_commit else head


def is_out_of_iterations(task: Task, most: int) -> bool:
    """Return whether the next round of *task* would be one too many."""
    return task.attempt == 0 and task.iteration >= most


def block_before_round(state: State, task: Task) -> e.Block | None:
    """Return why the next round of *task* does not begin, where it would be one too many."""
    flow, here = workflow_on(state), task.position
    most = phase_of(state, task).most(here.path if here else None)
    if most is None or here is None or here.phase != flow.start or not is_out_of_iterations(task, most):
        return None
    return iterations_block(most)


def iterations_block(most: int) -> e.Block:
    return e.Block(
        reason=f"Max iterations ({most}) reached without approval",
        questions=UNCLEAR_SPEC,
        rule="coder_iterations",
    )


# The endings without an answer after which a coder has failed; after all others it may try again.
_FAILED_ENDINGS: Final = frozenset(
    {
        RunEnding.DONE,  # it said something, but no answer
        *(RunEnding.TIMEOUT, RunEnding.SILENT, RunEnding.SLOW_START, RunEnding.CRASHED, RunEnding.EMPTY),
    }
)


def event_without_answer(reply: Reply, why: str) -> e.Event:
    """Return what happens to a task whose coder's agent gave no answer, because of *why*."""
    reason = why or reply.why or MEANING[reply.ending]
    if reply.ending is RunEnding.NOT_STARTED:
        return e.Block(reason=reason, questions=(NOT_STARTED_QUESTION,), only_people=True)
    return e.Release(
        reason=reason,
        killed=reply.ending is RunEnding.KILLED,
        used_up=reply.ending is RunEnding.CONTEXT_FULL,
        failed=reply.ending in _FAILED_ENDINGS,
    )


def after_work_error(error: LizaError) -> AfterError:
    """Return what becomes of a task whose repository, or whose worktree, cannot be worked with."""
    reason = printable(str(error))
    if isinstance(error, UnfitRepository):
        return AfterError(e.Block(reason=reason, questions=(UNFIT_QUESTION,), only_people=True))
    return AfterError(e.Release(reason=reason, failed=True))  # the agent left what git cannot work with


# An intent that is made of these alone could stand before any task.
_EMPTY: Final = (
    "a all and as asked be change changes code complete described do done everything finish fix for go i in "
    "implement is it make my needed now of on perform proceed requested required requirements solve start "
    "task that the things this to what will with work"
)
_EMPTY_WORDS: Final = frozenset(_EMPTY.split())
SAYS_NOTHING: Final = (
    "the checkpoint says nothing about the work: name in intent what will be there, in validation the "
    "command that shows it, in files_to_modify what you will touch; or say blocked, and what you must know"
)


def says_nothing(answer: CheckpointAnswer) -> bool:
    """Return whether *answer* announces nothing that the work could be checked against."""
    if answer.is_blocked or answer.validation or answer.files_to_modify:
        return False
    return not set(re.findall(r"\w+", (answer.intent or "").casefold())) - _EMPTY_WORDS


def event_for_answer(answer: Implement, head: str | None, reasons: tuple[str, ...]) -> e.Event:
    """Return what follows from an answer, the commit that the branch is at, and why it cannot be taken."""
    if answer.status is WorkStatus.BLOCKED:
        return e.Block(reason=str(answer.blocked_reason), questions=answer.blocked_questions)
    if answer.status is WorkStatus.NOTHING_TO_DO:
        return e.Report(nothing_to_do=answer.summary)
    if head is None or reasons:
        return e.Release(reason="; ".join(reasons) or "there is no commit to hand in", failed=True)
    return e.Report(commit=head)


def event_for_gates(outcome: Outcome, head: str, found: GatesResult) -> e.Event:
    """Return what follows from what the machines said about *head*."""
    said: dict[str, Any] = {"verdicts": found.verdicts, "known": found.known, "tree": found.tree}
    if outcome is Outcome.PASS:
        return e.Report(commit=head, **said)
    if outcome is Outcome.ASK:  # a gate that asks means a person
        asked = (f"How should this be settled: {found.reason}",)
        return e.Block(reason=found.reason, questions=asked, only_people=True)
    return e.Report(outcome=outcome, reason=found.reason, feedback=found.feedback, **said)


def commit_message(task: Task, answer: Implement) -> str:
    """Return the message for what the agent left without a commit."""
    first, _, rest = answer.summary.strip().partition("\n")
    subject = first if len(first) <= _LONGEST_SUBJECT else f"{first[: _LONGEST_SUBJECT - 1].rstrip()}…"
    body = answer.summary.strip() if subject != first else rest.strip()
    return "\n\n".join(part for part in (subject or task.description, body) if part)


def as_document_says(flow: Workflow, phase: Phase, event: e.Event) -> e.Event:
    """Return *event*, or a report in its place where the document has an edge for failures or blocks."""
    if flow.crash_consumes_iteration and isinstance(event, e.Release) and event.failed:
        return e.Report(outcome=Outcome.NONE, reason=event.reason)
    edges = phase.edges
    is_planned = Outcome.REVISE in edges and edges[Outcome.REVISE].to in flow.phases
    if is_planned and isinstance(event, e.Release) and event.failed:
        failed = Feedback(message=event.reason)
        return e.Report(outcome=Outcome.REVISE, reason=f"failed: {event.reason}", feedback=(failed,))
    if not isinstance(event, e.Block) or event.only_people:
        return event
    if Outcome.BLOCK in edges:
        return e.Report(outcome=Outcome.BLOCK, reason=event.reason, questions=event.questions)
    if is_planned:
        # Whoever planned it can say what to do instead: they get the blocker as what was found wrong.
        wrong = tuple(Feedback(message=one) for one in (event.reason, *event.questions))
        return e.Report(outcome=Outcome.REVISE, reason=f"blocked: {event.reason}", feedback=wrong)
    return event


def event_for_asking(phase: Phase, task: Task, answer: Implement) -> e.Report:
    """Return the report of a worker without write access that is blocked: a question, or a block."""
    is_asked = any(Predicate.ASKED in gate.when for gate in phase.gates)
    told = " ".join([f"{answer.blocked_reason}:", *answer.blocked_questions])
    return e.Report(
        outcome=Outcome.ASK if is_asked else Outcome.BLOCK,
        reason=told if is_asked else answer.blocked_reason,
        questions=answer.blocked_questions,
        artifacts={artifact_name(task): str(answer.blocked_reason)},
    )


def artifact_name(task: Task) -> str:
    return task.position.phase.lower() if task.position else "work"


def artifacts_of(task: Task, answer: Implement, head: str) -> dict[str, str]:
    """Return the artifacts of an answer: its summary, the planned loops, and the next step."""
    loops = "\n".join(f"{number}. {line}" for number, line in enumerate(answer.loops, start=1))
    made = {artifact_name(task): answer.summary, **({LOOPS: loops} if loops else {})}
    if answer.step is None:
        return made
    given = IssuedStep.model_validate({**answer.step.to_json(), "base": head})
    return made | {STEP: given.model_dump_json(indent=1, exclude_defaults=True)}


def known_facts(answer: Implement) -> frozenset[str]:
    """Return the predicates of gate conditions that hold by what *answer* says."""
    lines = [line for line in answer.summary.splitlines() if line.strip()]
    facts = {
        Predicate.RISK_MEDIUM_OR_HIGH: _risk(answer) in {Risk.MEDIUM, Risk.HIGH},
        Predicate.UPFRONT_PLAN: bool(answer.loops),
        Predicate.EMPTY_OUTPUT: not lines,
        Predicate.SIMPLE_OUTPUT: len(lines) < SIMPLE_LINES,
    }
    return frozenset(str(name) for name, holds in facts.items() if holds)


def _risk(answer: Implement) -> Risk | None:
    """Return the risk of what is to be done; a command that is forbidden is for a person to allow."""
    step = answer.step
    if step is None:
        return answer.risk
    if any(forbidden_command_in(line) for line in step.instructions.splitlines()):
        return Risk.HIGH
    return max(step_risk(step), answer.risk or Risk.LOW, key=list(Risk).index)


def signals_of(task: Task, answer: Implement, hat: str | None, at: datetime) -> list[Signal]:
    """Return what rules count of *answer*."""
    said = {
        SignalName.TESTS: answer.tests_ended,
        SignalName.CONFIDENCE: answer.confidence,
        SignalName.RISK: _risk(answer) if answer.step else None,
    }
    phase = task.position.phase if task.position else None
    about = Signal(name=SignalName.TESTS, at=at, phase=phase, role=hat)
    return [about.replace(name=name, value=value) for name, value in said.items() if value is not None]


# What a reviewer picks, what its verdict means, and when a failed merge needs a person.

_SUBMITTED: Final = frozenset({"submit", "find_nothing"})
_APPROVED: Final = frozenset({"approve", "retry_merge"})
_RESOLVED: Final = re.compile(r"\s*conflict resolved for\s+([\w.-]*\w)", re.IGNORECASE)


def pick_review(state: State, me: str, now: datetime) -> Task | None:
    """Return what *me* takes next: an approved task that is not merged yet, else the oldest submission."""
    return to_merge(state, me, now) or to_review(state, me, now)


def steps_of_review(_state: State, task: Task) -> tuple[Step, ...]:
    """Return what the agent of a reviewer is asked for; a merge needs none."""
    return (Step.REVIEW,) if task.status is Status.READY_FOR_REVIEW else ()


def after_review_error(error: LizaError) -> AfterError | None:
    """Return what becomes of a task whose repository is not as git left it: a person has to repair that."""
    if not isinstance(error, GitFailed | UnfitRepository):
        return None
    sentence = printable(str(error))
    return AfterError(e.Release(reason=sentence), pause=sentence)


def to_review(state: State, me: str, now: datetime) -> Task | None:
    return _oldest(state, me, now, _SUBMITTED, TO_REVIEW)


def to_merge(state: State, me: str, now: datetime) -> Task | None:
    return _oldest(state, me, now, _APPROVED, TO_MERGE)


def _oldest(
    state: State, me: str, now: datetime, events: frozenset[str], conditions: tuple[Condition, ...]
) -> Task | None:
    if is_at_work(state, me):
        return None
    found = [task for task in state.tasks.values() if all_hold(conditions, Candidate(state, task, me, now))]
    return min(found, key=lambda task: _last_event_time(task, events), default=None)


def _review_status_blocker(candidate: Candidate) -> Blocker:
    return Blocker(
        f"{candidate.task.status} is not for reviewers", "nobody", f"liza task show {candidate.task.id}"
    )


def _is_held(candidate: Candidate) -> bool:
    return candidate.task.lease is not None and candidate.task.lease.is_live(candidate.now)


def _lease_blocker(candidate: Candidate) -> Blocker:
    holder = candidate.task.lease.holder if candidate.task.lease else "nobody"
    return Blocker(f"{holder} is at it", holder, f"liza explain {holder}")


def _own_work_blocker(candidate: Candidate) -> Blocker:
    return Blocker(
        f"{candidate.me} wrote it, and nobody judges their own work",
        "another reviewer",
        f"liza task show {candidate.task.id}",
    )


def _taint_blocker(candidate: Candidate) -> Blocker:
    return Blocker(
        "it passed by force, and merges only once a person accepts that",
        "you",
        f"liza task accept {candidate.task.id}",
    )


def task_in_merge(state: State, now: datetime) -> Task | None:
    """Return the task that is being merged: its lease is the place at the head of the queue.

    One at a time: of two merges that are tested beside each other, the second to land is tested for nothing.
    """
    tasks = (task for task in state.tasks.values() if task.status is Status.APPROVED)
    return next((task for task in tasks if task.lease and task.lease.is_live(now)), None)


def is_next_to_merge(state: State, task: Task, now: datetime) -> bool:
    """Return whether the approved *task* is first in the queue of merges, and nobody else merges."""
    queue = [one for one in state.tasks.values() if one.status is Status.APPROVED and one.id != task.id]
    is_held = any(one.lease and one.lease.is_live(now) for one in queue)
    waiting = (one for one in queue if not one.is_tainted)  # that waits for a person
    return not is_held and all(approved_at(one) >= approved_at(task) for one in waiting)


def approved_at(task: Task) -> datetime:
    """Return since when *task* waits to be merged."""
    return _last_event_time(task, _APPROVED)


def _is_merge_free(candidate: Candidate) -> bool:
    other = task_in_merge(candidate.state, candidate.now)
    return other is None or other is candidate.task


def _merge_queue_blocker(candidate: Candidate) -> Blocker:
    other = task_in_merge(candidate.state, candidate.now)
    holder = other.lease.holder if other and other.lease else "nobody"
    name = other.id if other else "another task"
    return Blocker(
        f"{holder} merges {name}, and merges come one after the other", holder, f"liza explain {name}"
    )


_NOT_OWN: Final = Condition(lambda candidate: candidate.me not in candidate.task.authors, _own_work_blocker)
_NOT_HELD: Final = Condition(lambda candidate: not _is_held(candidate), _lease_blocker)
TO_REVIEW: Final = (
    Condition(lambda candidate: candidate.task.status is Status.READY_FOR_REVIEW, _review_status_blocker),
    _NOT_HELD,
    _NOT_OWN,
    LABELLED,
    FREE,
)
TO_MERGE: Final = (
    Condition(lambda candidate: candidate.task.status is Status.APPROVED, _review_status_blocker),
    Condition(lambda candidate: not candidate.task.is_tainted, _taint_blocker),
    _NOT_HELD,
    Condition(_is_merge_free, _merge_queue_blocker),
    _NOT_OWN,
    LABELLED,
    FREE,
)


def _last_event_time(task: Task, events: frozenset[str]) -> datetime:
    """Return when one of *events* last happened; long ago where history no longer shows it."""
    return next((entry.at for entry in reversed(task.history) if entry.event in events), task.created)


_OUTCOMES: Final = {Ruling.APPROVE: Outcome.PASS, Ruling.REJECT: Outcome.REVISE, Ruling.BLOCK: Outcome.BLOCK}


def verdict_of_review(gate: str, review: Review, *, tree: str, run: str, at: datetime) -> Verdict:
    """Return what the word of a reviewer's agent comes to; an approval with open points is none."""
    outcome, reason, feedback = _OUTCOMES[review.verdict], review.reason, review.feedback
    if outcome is Outcome.PASS and (left := open_points(review)):
        outcome, feedback = Outcome.REVISE, left
        reason = f"approved, although points are open: {left[0].message}"
    seen = Evidence(run=run)
    return Verdict(
        gate=gate,
        outcome=outcome,
        at=at,
        tree=tree,
        reason=reason,
        feedback=feedback,
        label=review.label,
        confidence=review.confidence,
        evidence=seen,
    )


def event_for_verdicts(task: Task, found: GatesResult) -> e.Event:
    """Return what follows from what machines and reviewers said about *task*."""
    new = new_verdicts(task, found.verdicts)
    facts: dict[str, Any] = {"verdicts": new, "known": found.known}
    if found.outcome is Outcome.ASK:  # a gate that asks means a person
        question = f"How should this be settled: {found.reason}"
        return e.Block(reason=found.reason, questions=(question,), only_people=True)
    if found.outcome is not Outcome.PASS:
        asked = tuple(item.message for item in found.feedback if item.message.endswith("?"))[:3]
        said = facts | {
            "reason": found.reason,
            "feedback": _earlier_refusals(task, found) or found.feedback,
            "questions": () if found.outcome is Outcome.REVISE else asked,
        }
        return e.Report(outcome=found.outcome, **said)
    if task.nothing_to_do:
        return e.Report(reason=found.reason, **facts)
    return e.Report(commit=task.review_commit, **facts)


def _earlier_refusals(task: Task, found: GatesResult) -> tuple[Feedback, ...]:
    """Return the feedback of earlier verdicts with this outcome, where no gate failed this time."""
    if any(one.outcome is not Outcome.PASS for one in found.verdicts):
        return ()
    return tuple(item for one in task.verdicts if one.outcome is found.outcome for item in one.feedback)


def new_verdicts(task: Task, verdicts: tuple[Verdict, ...]) -> tuple[Verdict, ...]:
    """Return the *verdicts* that were not submitted with the work: each is told, and counted, once."""
    return tuple(verdict for verdict in verdicts if verdict not in task.verdicts)


def open_points(review: Review) -> tuple[Feedback, ...]:
    """Return what the review itself says must still be mended; to approve that is a contradiction."""
    # A remark beside an approval that says nothing of its weight is a remark.
    weighed = (item for item in review.feedback if "severity" in item.model_fields_set)
    blockers = tuple(item for item in weighed if item.severity is Severity.BLOCKER)
    earlier = (prior for prior in review.prior_feedback if prior.status is FeedbackStatus.OPEN)
    return (*blockers, *(Feedback(message=prior.message) for prior in earlier))


def missing_feedback(task: Task, review: Review) -> str | None:
    """Return what an approval should have said about the review before; it is asked for once.

    A rejection is never asked for again: whoever was about to reject might approve the second time.
    """
    if review.verdict is not Ruling.APPROVE or not task.review_cycles_current or not task.rejection_feedback:
        return None
    if len(review.prior_feedback) >= len(task.rejection_feedback):
        return None
    return (
        f"prior_feedback says what became of {len(review.prior_feedback)} of "
        f"{len(task.rejection_feedback)} points of the review before; say it of each"
    )


def event_for_silence(
    why: str, gate: Gate, said: tuple[Verdict, ...], tree: str | None, at: datetime
) -> e.Event:
    """Return what the silence of a reviewer means: as the gate says, and never a pass."""
    reason = f"the review gave no verdict twice: {why}"
    question = "Should it be reviewed again, or is something wrong with the reviewer's agent?"
    silence = Verdict(gate=gate.id, outcome=Outcome.NONE, at=at, tree=tree, reason=reason)
    return e.Report(
        outcome=Outcome.NONE,
        reason=reason,
        questions=(question,),
        only_people=True,
        verdicts=(*said, silence),
    )


def events_for_conflict(task: Task, reason: str, paths: tuple[str, ...]) -> tuple[e.Event, ...]:
    """Return what follows from a conflict that is not trivial.

    Its coder gets it back, unless it came to nothing before on the same paths: then people are asked.
    """
    failed = e.Report(outcome=Outcome.REVISE, reason=reason, paths=paths)
    again = set(paths) & set(task.conflicted)
    if not again or task.integration_failures < MOST_FAILED_INTEGRATIONS - 1:
        return (failed,)
    note = f"Conflict resolved for {task.id}"
    question = f"Can you merge task/{task.id} into the integration branch, and note `{note}`?"
    reason = f"it conflicts again in {', '.join(sorted(again))}: {reason}"
    return failed, e.Block(reason=reason, questions=(question,), only_people=True)


class ResolvedConflict(NamedTuple):
    """A person says that a conflict is out of the way."""

    note: Note
    task: Task


def resolved_conflict(state: State) -> ResolvedConflict | None:
    """Return the oldest note that a person resolved the conflict of a task that still waits for it."""
    for note in state.human_notes.values():
        task = state.tasks.get(conflict_task_in(note) or "")
        if note.processed is None and task is not None and is_retriable(task):
            return ResolvedConflict(note, task)
    return None


def conflict_task_in(note: Note) -> str | None:
    """Return the task whose conflict *note* says is resolved."""
    match = _RESOLVED.match(note.message)
    return match[1] if match else None


def is_retriable(task: Task) -> bool:
    waits = task.status in {Status.INTEGRATION_FAILED, Status.BLOCKED}
    return waits and bool(task.approved_by and task.review_commit and task.integration_failure)
