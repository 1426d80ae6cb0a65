"""Why a task, a worker or the run does not go on: the first condition that does not hold, and what to do.

It asks the very objects by which workers decide, so it cannot say anything that they do not do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.agents.select import Asker, run_of
from liza.cli.views.status import SAID_LINES, opinions
from liza.daemon.policy import coder, planner, progress, reviewer
from liza.daemon.policy.admission import closed
from liza.daemon.policy.conditions import Hindrance, Look, first_hindrance, held_by, since
from liza.daemon.policy.preconditions import NOBODY, Setting, hindered
from liza.daemon.policy.staffing import names
from liza.daemon.project import switches_of
from liza.daemon.reports.words import ago
from liza.domain import budget, providers
from liza.domain.answers import Step
from liza.domain.budget import Cap
from liza.domain.lifecycle import TERMINAL
from liza.domain.model import MEANING, AgentStatus, Role, Status
from liza.errors import NotThere
from liza.system import locks
from liza.system.disk_space import shortage

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from liza.daemon.policy.conditions import Condition
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

    def plain(self) -> dict[str, Any]:
        moment = self.since and f"{self.since:%Y-%m-%dT%H:%M:%SZ}"
        return {**self._asdict(), "since": moment}

    def told(self, now: datetime) -> str:
        lines = [f"{self.subject} is {self.status}: {self.what}."]
        if self.since is not None:
            lines.append(f"  since  {self.since:%Y-%m-%d %H:%M:%SZ} ({ago(now - self.since)})")
        lines += [f"  said   {line}" for line in self.said]
        lines += [f"  whole  .liza/runs/{self.run}"] if self.run else []
        return "\n".join([*lines, f"  who    {self.who}", f"  then   {self.command}"])


def setting_of(home: Path, state: State) -> Setting:
    """Return the run of the board in *home*, as it is from outside."""
    lack = shortage(home.parent, state.config.limits.free_disk_mb)
    return Setting(state, switches_of(home), locks.is_held(home / locks.SUPERVISOR), lack)


def explained(subject: str, setting: Setting, now: datetime) -> Explanation:
    """Return why the task, the worker or the run called *subject* does not go on."""
    state = setting.state
    if subject in state.tasks:
        return _of_task(state.tasks[subject], setting, now)
    if subject in state.archived:
        status = state.archived[subject]
        done = Hindrance(MEANING[status], "nobody; it is final", f"liza task show {subject}")
        return _explanation(subject, status, done)
    if subject in (workers := names(state.config.workers) | {a.id: a.role for a in state.agents.values()}):
        return _of_worker(subject, workers[subject], setting, now)
    if subject == RUN:
        return _of_run(setting, now)
    known = f"tasks are listed by `liza status`; workers are {', '.join(workers)}; or say `run`"
    raise NotThere("task or worker", subject, known)


def _explanation(subject: str, status: str, found: Hindrance, began: datetime | None = None) -> Explanation:
    return Explanation(subject, status, found.what, found.who, found.command, found.since or began)


def _of_task(task: Task, setting: Setting, now: datetime) -> Explanation:
    """Tell what people have to do, what the task itself lacks, what stops everybody, then who is next."""
    found = _settled(task, setting.state) or _held(task, now)
    if found is None:
        conditions, role, verb = _TAKERS[task.status](task)
        place, lacking = _nearest(task, setting.state, conditions, role, verb, now)
        # What only concerns the workers comes last: while all stand still, nobody is busy.
        found = lacking if place < len(conditions) - 1 else _halted(setting)
        if found is None and place == len(conditions):
            found = _closed(setting, lacking.who, role, _STEPS[role], task.id, now)
        found = found or _unmanned(setting) or lacking
    told = _explanation(task.id, task.status, found, since(task))
    seen = task.rejection_output if task.status in _SENT_BACK else None
    return told._replace(said=seen.last_lines(SAID_LINES), run=seen.run) if seen else told


_SENT_BACK: Final = frozenset({Status.REJECTED, Status.BLOCKED})


def _halted(setting: Setting) -> Hindrance | None:
    """Return what stops everybody, apart from that no supervisor runs: that is told after all else."""
    found = hindered(setting)
    return found[1] if found and found[0] is not NOBODY else None


def _unmanned(setting: Setting) -> Hindrance | None:
    found = hindered(setting)
    return found[1] if found and found[0] is NOBODY else None


# What each role begins with when it takes a task; a merge costs nothing.
_STEPS: Final[dict[Role, tuple[Step, ...]]] = {
    Role.CODER: (Step.CHECKPOINT, Step.IMPLEMENT),
    Role.REVIEWER: (Step.REVIEW,),
}


def _closed(
    setting: Setting, worker: str, role: Role, steps: tuple[Step, ...], task: str | None, now: datetime
) -> Hindrance | None:
    """Return why money or a provider keeps *worker* from what it would begin: what admits runs decides."""
    state = setting.state
    if task is not None and state.task(task).status is Status.APPROVED:
        return None
    run = run_of(state, Asker(role, worker, now), steps[0], task, *steps[1:])
    shut = closed(state, run, now)
    if shut is None:
        return None
    if shut.cap is Cap.RUN:
        return Hindrance(shut.why, "you", budget.command(state))
    if shut.cap is Cap.TASK:
        return Hindrance(f"{shut.why}; {worker} takes it up only to ask you", "you", f"liza task show {task}")
    until = f" (until {shut.until:%H:%M:%SZ})" if shut.until else ""
    refused = any(one.id in run.providers for one in providers.refusing(state))
    who = "you" if refused else "the provider; work goes on by itself"
    return Hindrance(f"{shut.why}{until}", who, providers.RESUME if refused else "liza status")


def _settled(task: Task, state: State) -> Hindrance | None:
    """Return what keeps *task* where no worker takes tasks from."""
    if task.status in TERMINAL:
        return Hindrance(MEANING[task.status], "nobody; it is final", f"liza task show {task.id}")
    if task.status is Status.BLOCKED:
        return _blocked(task, state)
    if task.status is Status.AWAITING_APPROVAL:
        said = "".join(f"; {opinion}" for opinion in opinions(task))
        return Hindrance(f"it asks you: {task.approval_question}{said}", "you", f"liza task accept {task.id}")
    if task.status is Status.DRAFT:
        return Hindrance("it is planned, and not released to coders", "you", f"liza task ready {task.id}")
    return None


def _blocked(task: Task, state: State) -> Hindrance:
    questions = " ".join(task.questions)
    command = f'liza answer {task.id} "…"'
    woken = planner.wake(state)
    if task.asked is None or (woken is not None and woken.task == task.id):
        what = f"{task.blocked_reason}; it asks: {questions}; the planner looks at it next"
        return Hindrance(what, "the planner", command)
    return Hindrance(f"{task.blocked_reason}; it asks: {questions}{_tried(task)}", "you", command, task.asked)


def _tried(task: Task) -> str:
    times = f"{task.unblocks} time{'s' if task.unblocks > 1 else ''}"
    return f"; the planner has let it go on {times} already" if task.unblocks else ""


def _held(task: Task, now: datetime) -> Hindrance | None:
    lease = task.lease
    if lease is None:
        return None
    until = f"until {lease.expires:%H:%M:%SZ}, and longer while its agent lives"
    if lease.is_live(now):
        return Hindrance(f"{lease.holder} holds it {until}", lease.holder, f"liza task release {task.id}")
    gone = f"the lease of {lease.holder} ended at {lease.expires:%H:%M:%SZ} and is taken back next"
    return Hindrance(gone, "the supervisor", f"liza task release {task.id}")


Takers = tuple["tuple[Condition, ...]", Role, str]


def _for_coders(_: Task) -> Takers:
    return coder.CONDITIONS, Role.CODER, "take it"


def _for_reviewers(_: Task) -> Takers:
    return reviewer.TO_REVIEW, Role.REVIEWER, "review it"


def _for_mergers(_: Task) -> Takers:
    return reviewer.TO_MERGE, Role.REVIEWER, "merge it"


_TAKERS: Final[dict[Status, Callable[[Task], Takers]]] = {
    Status.IDLE: _for_coders,
    Status.REJECTED: _for_coders,
    Status.INTEGRATION_FAILED: _for_coders,
    Status.WORKING: _for_coders,
    Status.READY_FOR_REVIEW: _for_reviewers,
    Status.APPROVED: _for_mergers,
}


def _nearest(
    task: Task, state: State, conditions: tuple[Condition, ...], role: Role, verb: str, now: datetime
) -> tuple[int, Hindrance]:
    """Return what the worker that comes closest to taking *task* still lacks."""
    takers = _able(state, role)
    found = {name: first_hindrance(conditions, Look(state, task, name, now)) for name in takers}
    ready = [name for name, lacking in found.items() if lacking is None]
    if ready:
        command = f"liza task show {task.id}"
        return len(conditions), Hindrance(f"{' or '.join(ready)} will {verb} next", ready[0], command)
    if not takers:
        return 0, Hindrance(f"every {role} was stopped", "you", "liza stop; liza run")
    lacking = [hindrance for hindrance in found.values() if hindrance is not None]
    return max(lacking, key=lambda one: one[0])


def _able(state: State, role: Role) -> list[str]:
    if role is Role.CODER:
        return sorted(coder.present(state))
    return progress.able(state, role)


def _of_worker(name: str, role: Role, setting: Setting, now: datetime) -> Explanation:
    state = setting.state
    agent = state.agents.get(name)
    began = agent.since if agent else None
    if agent and agent.status is AgentStatus.STOPPED and agent.stopped_reason:
        stopped = Hindrance(f"it was stopped: {agent.stopped_reason}", "you", "liza stop; liza run")
        return _explanation(name, agent.status, stopped, began)
    if task := held_by(state, name):
        work = Hindrance(f"it works on {task.id}", name, f"liza task show {task.id}")
        return _explanation(name, "at work", work, since(task))
    found = _halted(setting) or _next_for(name, role, setting, now)
    return _explanation(name, "waiting", found, began)


def _next_for(name: str, role: Role, setting: Setting, now: datetime) -> Hindrance:
    work = _work_for(name, role, setting.state, now)
    if work is not None:
        shut = _closed(setting, name, role, work.steps, work.task, now)
        return shut or _unmanned(setting) or Hindrance(work.says, name, work.command)
    if unmanned := _unmanned(setting):
        return unmanned
    if role is Role.PLANNER:
        return Hindrance("nothing on the board is new to it", "you", 'liza note "…"')
    return Hindrance(
        "no task is for it now", "whoever works on the tasks that others wait for", "liza status"
    )


class _Work(NamedTuple):
    """What a worker would begin now."""

    steps: tuple[Step, ...]
    task: str | None
    says: str
    command: str


def _work_for(name: str, role: Role, state: State, now: datetime) -> _Work | None:
    if role is Role.PLANNER:
        wake = planner.wake(state)
        # What a task may cost does not keep anybody from thinking about it.
        return _Work((wake.step,), None, f"it plans next: {wake.why}", "liza status") if wake else None
    task = coder.pick(state, name) if role is Role.CODER else reviewer.pick(state, name, now)
    if task is None:
        return None
    return _Work(_STEPS[role], task.id, f"it takes {task.id} next", f"liza task show {task.id}")


def _asked(waits: tuple[progress.Wait, ...], *, is_running: bool) -> Hindrance:
    more = f", and {len(waits) - 1} more (`liza status`)" if len(waits) > 1 else ""
    then = waits[0].then if is_running or waits[0].then.endswith("liza run") else f"{waits[0].then}; liza run"
    return Hindrance(f"{waits[0].what}{more}", "you", then)


def _closed_to_all(setting: Setting, now: datetime) -> Hindrance | None:
    """Return the money or the provider that everybody with something to do waits for."""
    state, found = setting.state, list[Hindrance]()
    for name, role in names(state.config.workers).items():
        work = _work_for(name, role, state, now)
        if work is not None:
            shut = _closed(setting, name, role, work.steps, work.task, now)
            if shut is None:
                return None
            found.append(shut)
    return found[0] if found and not any(task.lease for task in state.tasks.values()) else None


def _of_run(setting: Setting, now: datetime) -> Explanation:
    state = setting.state
    if halted := _halted(setting):
        return _explanation(RUN, "not going on", halted)
    unmanned = _unmanned(setting)
    if waits := progress.only_people(state, now):
        return _explanation(RUN, "waiting for you", _asked(waits, is_running=unmanned is None))
    if halted := _closed_to_all(setting, now) or unmanned:
        return _explanation(RUN, "not going on", halted)
    held = [f"{task.lease.holder} on {task.id}" for task in state.tasks.values() if task.lease]
    what = f"{', '.join(held)}" if held else "somebody takes the next task at once"
    return _explanation(RUN, "going on", Hindrance(what, "the workers", "liza watch"))
