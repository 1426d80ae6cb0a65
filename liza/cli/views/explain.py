"""Why a task, a worker or the run does not go on: the first condition that does not hold, and what to do.

It asks the very objects by which workers decide, so it cannot say anything that they do not do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.agents.select import RunRequester, planned_run
from liza.board.protocol import SUPERVISOR_NAME
from liza.cli.views.questions import open_questions
from liza.cli.views.status import SAID_LINES, opinions, place_text
from liza.daemon.policy import pick, planner, progress
from liza.daemon.policy.jobs import JOB_POLICIES
from liza.daemon.policy.pick import (
    SUPERVISOR_RUNS,
    Blocker,
    Candidate,
    RunContext,
    denial_of,
    first_blocker,
    first_unmet,
    status_since,
    task_held_by,
)
from liza.daemon.policy.staffing import team_of
from liza.domain import budget
from liza.domain.answers import Step
from liza.domain.budget import Cap
from liza.domain.lifecycle import TERMINAL
from liza.domain.model import STATUS_MEANING, Role, Status, WorkerStatus
from liza.domain.report_words import duration_text
from liza.domain.waits import ACCEPT_PLAN, HumanWait, awaits_plan_reviewer, is_plan_returned, proposed_tasks
from liza.errors import NotThere
from liza.system.disk_space import disk_shortage

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.daemon.policy.pick import Condition
    from liza.domain.model import State, Task

RUN: Final = "run"


class Explanation(NamedTuple):
    """Why *subject* is where it is; *who* can change it, and by which command."""

    subject: str
    status: str
    what: str
    who: str
    command: str
    since: datetime | None = None
    said: tuple[str, ...] = ()  # the end of what the command printed that sent it back
    run: str | None = None  # the folder that has all of it
    asks: tuple[str, ...] = ()  # what people have to answer, whatever else stands in the way

    def to_json(self) -> dict[str, Any]:
        moment = self.since and f"{self.since:%Y-%m-%dT%H:%M:%SZ}"
        return {**self._asdict(), "since": moment}

    def told(self, now: datetime) -> str:
        lines = [f"{self.subject} is {self.status}: {self.what}."]
        if self.since is not None:
            lines.append(f"  since  {self.since:%Y-%m-%d %H:%M:%SZ} ({duration_text(now - self.since)})")
        lines += [f"  asks   {line}" for line in self.asks]
        lines += [f"  said   {line}" for line in self.said]
        lines += [f"  whole  .liza/runs/{self.run}"] if self.run else []
        return "\n".join([*lines, f"  who    {self.who}", f"  then   {self.command}"])


def observed_run_context(board: Board, state: State) -> RunContext:
    """Return the run of *board*, which is in *state*, as it is from outside."""
    lack = disk_shortage(board.home.parent, state.config.limits.free_disk_mb)
    running = board.presence.is_held(SUPERVISOR_NAME)
    return RunContext(state, board.switches.thrown(), running, lack)


def explanation_of(subject: str, context: RunContext, now: datetime) -> Explanation:
    """Return why the task, the worker or the run called *subject* does not go on."""
    state = context.state
    if subject in state.tasks:
        return _explain_task(state.tasks[subject], context, now)
    if subject in state.archived:
        status = state.archived[subject]
        done = Blocker(STATUS_MEANING[status], "nobody; it is final", f"liza task show {subject}")
        return _explanation(subject, status, done)
    if subject in (workers := team_of(state) | {a.id: a.role for a in state.agents.values()}):
        return _explain_worker(subject, workers[subject], context, now)
    if subject == RUN:
        return _explain_run(context, now)._replace(asks=_question_lines(state))
    known = f"tasks are listed by `liza status`; workers are {', '.join(workers)}; or say `run`"
    raise NotThere("task or worker", subject, known)


def _question_lines(state: State) -> tuple[str, ...]:
    return tuple(f"{one.subject}: {' '.join(one.asks)} (`{one.command}`)" for one in open_questions(state))


def _explanation(subject: str, status: str, found: Blocker, began: datetime | None = None) -> Explanation:
    return Explanation(subject, status, found.what, found.who, found.command, found.since or began)


def _explain_task(task: Task, context: RunContext, now: datetime) -> Explanation:
    """Tell what people have to do, what the task itself lacks, what stops everybody, then who is next."""
    found = _status_blocker(task, context.state) or _lease_blocker(context.state, task, now)
    if found is None:
        conditions, role, verb = _TAKERS[task.status](context.state, task)
        place, lacking = _closest_blocker(task, context.state, conditions, role, verb, now)
        # What only concerns the workers comes last: while all stand still, nobody is busy.
        found = lacking if place < len(conditions) - 1 else _run_blocker(context)
        if found is None and place == len(conditions):
            steps = _first_steps(context.state, task, role)
            found = _admission_blocker(context, lacking.who, role, steps, task.id, now)
        found = found or _supervisor_blocker(context) or lacking
    told = _explanation(task.id, task.status, found, status_since(task))
    if task.status not in _SENT_BACK:
        return told
    if seen := task.rejection_output:
        return told._replace(said=seen.last_lines(SAID_LINES), run=seen.run)
    return told._replace(said=_feedback_lines(task))


def _feedback_lines(task: Task) -> tuple[str, ...]:
    """Return what a check found that runs no command, such as which file is out of the scope."""
    points = [one for one in task.rejection_feedback if one.message != task.rejection_reason]
    return tuple(": ".join(filter(None, (one.file, one.message))) for one in points[:SAID_LINES])


_SENT_BACK: Final = frozenset({Status.REJECTED, Status.BLOCKED})


def _run_blocker(context: RunContext) -> Blocker | None:
    """Return what stops everybody, apart from that no supervisor runs: that is told after all else."""
    found = first_unmet(context)
    return found[1] if found and found[0] is not SUPERVISOR_RUNS else None


def _supervisor_blocker(context: RunContext) -> Blocker | None:
    found = first_unmet(context)
    return found[1] if found and found[0] is SUPERVISOR_RUNS else None


def _first_steps(state: State, task: Task, role: Role) -> tuple[Step, ...]:
    """Return what an agent is asked for when *role* takes *task*; a merge costs nothing."""
    return JOB_POLICIES[role].steps(state, task) or (Step.REVIEW,)


def _admission_blocker(
    context: RunContext, worker: str, role: Role, steps: tuple[Step, ...], task: str | None, now: datetime
) -> Blocker | None:
    """Return why money or a provider keeps *worker* from what it would begin: what admits runs decides."""
    state = context.state
    if task is not None and state.task(task).status is Status.APPROVED:
        return None
    run = planned_run(state, RunRequester(role, worker, now), steps[0], task, *steps[1:])
    denial = denial_of(state, run, now)
    if denial is None:
        return None
    if denial.cap is Cap.RUN:
        return Blocker(denial.why, "you", budget.raise_budget_command(state))
    if denial.cap is Cap.TASK:
        return Blocker(f"{denial.why}; {worker} takes it up only to ask you", "you", f"liza task show {task}")
    until = f" (until {denial.until:%H:%M:%SZ})" if denial.until else ""
    refused = any(one.id in run.providers for one in budget.refusing_providers(state))
    who = "you" if refused else "the provider; work goes on by itself"
    return Blocker(f"{denial.why}{until}", who, budget.RESUME if refused else "liza status")


def _status_blocker(task: Task, state: State) -> Blocker | None:
    """Return what keeps *task* where no worker takes tasks from."""
    if task.status in TERMINAL:
        why = f": {task.closing_reason}" if task.closing_reason else ""
        return Blocker(
            f"{STATUS_MEANING[task.status]}{why}", "nobody; it is final", f"liza task show {task.id}"
        )
    if task.status is Status.BLOCKED:
        return _question_blocker(task, state)
    if task.status is Status.AWAITING_APPROVAL:
        said = "".join(f"; {opinion}" for opinion in opinions(task))
        return Blocker(f"it asks you: {task.approval_question}{said}", "you", task.approval_command)
    if task.status is Status.DRAFT:
        return _draft_blocker(task, state)
    return None


def _draft_blocker(task: Task, state: State) -> Blocker:
    if task not in proposed_tasks(state):
        return Blocker("it is planned, and not released to coders", "you", f"liza task ready {task.id}")
    if is_plan_returned(state):
        why = f"its plan was sent back ({state.goal.sent_back}), and the planner makes another"
        return Blocker(why, "the planner", "liza plan show")
    if awaits_plan_reviewer(state):
        return Blocker("a reviewer judges its plan first", "a reviewer", "liza plan show")
    return Blocker("it is part of a plan that waits for your yes", "you", ACCEPT_PLAN)


def _question_blocker(task: Task, state: State) -> Blocker:
    questions = " ".join(task.questions)
    command = f'liza answer {task.id} "…"'
    if planner.is_next_for(state, task, planner.plan_request(state)):
        what = f"{task.blocked_reason}; it asks: {questions}; the planner looks at it next"
        return Blocker(what, "the planner", command)
    return Blocker(
        f"{task.blocked_reason}; it asks: {questions}{_unblocks_text(task)}", "you", command, task.asked
    )


def _unblocks_text(task: Task) -> str:
    times = f"{task.unblocks} time{'s' if task.unblocks > 1 else ''}"
    return f"; the planner has let it go on {times} already" if task.unblocks else ""


def _place_text(state: State, task: Task) -> str:
    """Return where in a workflow of several phases *task* is."""
    place = place_text(state, task)
    return f" ({place})" if place else ""


def _lease_blocker(state: State, task: Task, now: datetime) -> Blocker | None:
    lease = task.lease
    if lease is None:
        return None
    until = f"until {lease.expires:%H:%M:%SZ}, and longer while its agent lives"
    if lease.is_live(now):
        what = f"{lease.holder} holds it{_place_text(state, task)} {until}"
        return Blocker(what, lease.holder, f"liza task release {task.id}")
    gone = f"the lease of {lease.holder} ended at {lease.expires:%H:%M:%SZ} and is taken back next"
    return Blocker(gone, "the supervisor", f"liza task release {task.id}")


Takers = tuple["tuple[Condition, ...]", Role, str]


def _for_workers(state: State, task: Task) -> Takers:
    return pick.CONDITIONS, pick.process_for(state, task), "take it"


def _for_reviewers(_state: State, _task: Task) -> Takers:
    return pick.TO_REVIEW, Role.REVIEWER, "review it"


def _for_mergers(_state: State, _task: Task) -> Takers:
    return pick.TO_MERGE, Role.REVIEWER, "merge it"


_TAKERS: Final[dict[Status, Callable[[State, Task], Takers]]] = {
    Status.IDLE: _for_workers,
    Status.REJECTED: _for_workers,
    Status.INTEGRATION_FAILED: _for_workers,
    Status.WORKING: _for_workers,
    Status.READY_FOR_REVIEW: _for_reviewers,
    Status.APPROVED: _for_mergers,
}


def _closest_blocker(
    task: Task, state: State, conditions: tuple[Condition, ...], role: Role, verb: str, now: datetime
) -> tuple[int, Blocker]:
    """Return what the worker that comes closest to taking *task* still lacks."""
    takers = _possible_takers(state, role)
    found = {name: first_blocker(conditions, Candidate(state, task, name, now)) for name in takers}
    ready = [name for name, lacking in found.items() if lacking is None]
    if ready:
        command = f"liza task show {task.id}"
        return len(conditions), Blocker(f"{' or '.join(ready)} will {verb} next", ready[0], command)
    if not takers:
        return 0, Blocker(f"every {role} was stopped", "you", "liza stop; liza run")
    lacking = [hindrance for hindrance in found.values() if hindrance is not None]
    return max(lacking, key=lambda one: one[0])


def _possible_takers(state: State, role: Role) -> list[str]:
    if role is Role.REVIEWER:
        return progress.active_workers(state, role)
    return sorted(pick.available_coders(state, role))


def _explain_worker(name: str, role: Role, context: RunContext, now: datetime) -> Explanation:
    state = context.state
    agent = state.agents.get(name)
    began = agent.since if agent else None
    if agent and agent.status is WorkerStatus.STOPPED and agent.stopped_reason:
        stopped = Blocker(f"it was stopped: {agent.stopped_reason}", "you", "liza stop; liza run")
        return _explanation(name, agent.status, stopped, began)
    if task := task_held_by(state, name):
        work = Blocker(f"it works on {task.id}{_place_text(state, task)}", name, f"liza task show {task.id}")
        return _explanation(name, "at work", work, status_since(task))
    found = _run_blocker(context) or _next_work_blocker(name, role, context, now)
    return _explanation(name, "waiting", found, began)


def _next_work_blocker(name: str, role: Role, context: RunContext, now: datetime) -> Blocker:
    work = _work_for(name, role, context.state, now)
    if work is not None:
        denied = _admission_blocker(context, name, role, work.steps, work.task, now)
        return denied or _supervisor_blocker(context) or Blocker(work.says, name, work.command)
    if unmanned := _supervisor_blocker(context):
        return unmanned
    if role is Role.PLANNER:
        return Blocker("nothing on the board is new to it", "you", 'liza note "…"')
    return Blocker("no task is for it now", "whoever works on the tasks that others wait for", "liza status")


class _NextWork(NamedTuple):
    """What a worker would begin now."""

    steps: tuple[Step, ...]
    task: str | None
    says: str
    command: str


def _work_for(name: str, role: Role, state: State, now: datetime) -> _NextWork | None:
    if role is Role.PLANNER:
        wake = planner.plan_request(state)
        # What a task may cost does not keep anybody from thinking about it.
        if wake:
            return _NextWork((wake.step,), None, f"it plans next: {wake.why}", "liza status")
    task = JOB_POLICIES[role].pick(state, name, now)
    if task is None:
        return None
    return _NextWork(
        _first_steps(state, task, role),
        task.id,
        f"it takes {task.id} next",
        f"liza task show {task.id}",
    )


def _wait_blocker(waits: tuple[HumanWait, ...], *, is_running: bool) -> Blocker:
    more = f", and {len(waits) - 1} more (`liza status`)" if len(waits) > 1 else ""
    then = waits[0].then if is_running or waits[0].then.endswith("liza run") else f"{waits[0].then}; liza run"
    return Blocker(f"{waits[0].what}{more}", "you", then)


def _common_admission_blocker(context: RunContext, now: datetime) -> Blocker | None:
    """Return the money or the provider that everybody with something to do waits for."""
    state, found = context.state, list[Blocker]()
    for name, role in team_of(state).items():
        work = _work_for(name, role, state, now)
        if work is not None:
            denied = _admission_blocker(context, name, role, work.steps, work.task, now)
            if denied is None:
                return None
            found.append(denied)
    return found[0] if found and not any(task.lease for task in state.tasks.values()) else None


def _explain_run(context: RunContext, now: datetime) -> Explanation:
    state = context.state
    if halted := _run_blocker(context):
        return _explanation(RUN, "not going on", halted)
    unmanned = _supervisor_blocker(context)
    if waits := progress.only_people(state, now):
        return _explanation(RUN, "waiting for you", _wait_blocker(waits, is_running=unmanned is None))
    if halted := _common_admission_blocker(context, now) or unmanned:
        return _explanation(RUN, "not going on", halted)
    held = [f"{task.lease.holder} on {task.id}" for task in state.tasks.values() if task.lease]
    what = f"{', '.join(held)}" if held else "somebody takes the next task at once"
    return _explanation(RUN, "going on", Blocker(what, "the workers", "liza watch"))
