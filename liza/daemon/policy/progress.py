"""Who can make progress on a board: the agents, nobody because all is done, or only people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from liza.daemon.policy import coder, planner, reviewer
from liza.daemon.policy.staffing import worker_roles
from liza.domain import budget, providers
from liza.domain.model import ANSWER_PLAN, BreakerStatus, GoalStatus, Role, Status, WorkerStatus

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from liza.domain.model import State, Task


class HumanWait(NamedTuple):
    """Something that waits for a person: what, and the command that lets it go on."""

    what: str
    then: str
    since: str = ""  # which of several times it is: what was answered may be asked again
    is_told: bool = False  # whoever met it has told people already

    def __str__(self) -> str:
        return f"{self.what} (`{self.then}`)"


def with_goal_reopened(state: State) -> State:
    """Return the board with its goal IN_PROGRESS again where it says COMPLETE and people added something."""
    if state.goal.status is not GoalStatus.COMPLETE:
        return state
    opened = state.replace(goal=state.goal.replace(status=GoalStatus.IN_PROGRESS, completed=None))
    return state if planner.is_complete(opened) else opened


def only_people(state: State, now: datetime) -> tuple[HumanWait, ...]:
    """Return what waits for people where nobody else can make progress, else nothing.

    The very functions decide by which the workers pick. Switches are not looked at: a person who threw one
    is there.
    """
    if state.goal.status is not GoalStatus.IN_PROGRESS or planner.is_complete(state):
        return ()
    if state.circuit_breaker.status is BreakerStatus.TRIPPED:
        return tuple(_trip_waits(state))
    if any(task.lease for task in state.tasks.values()) or _finds_work(state, now):
        return ()
    return human_waits(state) or (_NO_WAY_ON,)


def human_waits(state: State) -> tuple[HumanWait, ...]:
    """Return all that waits for people, whether or not others can make progress meanwhile."""
    return (
        *_trip_waits(state),
        *_question_waits(state),
        *_stopped_waits(state),
        *_budget_waits(state),
        *_provider_waits(state),
    )


_NO_WAY_ON: Final = HumanWait("no task can go on, and none asks anything", 'liza note "…"')


def _finds_work(state: State, now: datetime) -> bool:
    """Tell whether a worker that was not stopped would find something to do."""
    waiting = _paused_workers(state)
    return (
        (bool(active_workers(state, Role.PLANNER)) and _planner_finds(state, waiting))
        or any(coder.pick(state, name) for name in coder.available_coders(state) - waiting)
        or any(
            reviewer.resolved_conflict(state)
            or reviewer.to_merge(state, name, now)
            or (name not in waiting and reviewer.to_review(state, name, now))
            for name in active_workers(state, Role.REVIEWER)
        )
    )


def _planner_finds(state: State, waiting: frozenset[str]) -> bool:
    thinks = planner.plan_request(state) and not waiting.issuperset(active_workers(state, Role.PLANNER))
    works = any(coder.pick(state, name) for name in {*active_workers(state, Role.PLANNER)} - waiting)
    return bool(thinks or works or planner.stuck_tasks(state) or planner.is_to_be_filled(state))


def _paused_workers(state: State) -> frozenset[str]:
    """Return the workers whose agents may not run before a person says so."""
    if budget.is_budget_question_open(state):
        return frozenset({*worker_roles(state.config.workers), *state.agents})
    # A limit that passes by itself is not for people, and somebody may be parked for that one.
    if not providers.refusing_providers(state) or len(providers.closed_providers(state)) > len(
        providers.refusing_providers(state)
    ):
        return frozenset()
    return frozenset(agent.id for agent in state.agents.values() if agent.status is WorkerStatus.PARKED)


def active_workers(state: State, role: Role) -> list[str]:
    """Return the workers of *role* that the settings want and nobody stopped."""
    wanted = [name for name, its in worker_roles(state.config.workers).items() if its is role]
    return [name for name in wanted if name not in _stop_reasons(state)]


def _stop_reasons(state: State) -> dict[str, str]:
    """Return the workers that were stopped because they crashed again and again, with the reason."""
    agents = (agent for agent in state.agents.values() if agent.status is WorkerStatus.STOPPED)
    return {agent.id: agent.stopped_reason for agent in agents if agent.stopped_reason}


def _question_waits(state: State) -> Iterator[HumanWait]:
    if state.goal.questions:
        yield HumanWait(f"the plan needs to know: {'; '.join(state.goal.questions)}", ANSWER_PLAN)
    for task in state.tasks.values():
        if task.status is Status.BLOCKED:
            asked = "; ".join(task.questions)
            yield HumanWait(f"{task.id} is BLOCKED: {asked}", f'liza answer {task.id} "…"', _since(task))
        elif task.status is Status.AWAITING_APPROVAL:
            asked = f"{task.id} awaits approval: {task.approval_question}"
            yield HumanWait(asked, f"liza task accept {task.id}", _since(task))
        elif task.status is Status.APPROVED and task.is_tainted:
            yield HumanWait(
                f"{task.id} passed by force and needs your consent", f"liza task accept {task.id}"
            )
        elif task.status is Status.DRAFT:
            yield HumanWait(f"{task.id} is a DRAFT that nobody released", f"liza task ready {task.id}")


def _since(task: Task) -> str:
    """Return when the task came to be as it is; a long time ago where its history no longer shows it."""
    moved = (entry.at for entry in reversed(task.history) if entry.source is not entry.target)
    return (task.asked or next(moved, task.created)).isoformat()


def _stopped_waits(state: State) -> Iterator[HumanWait]:
    for name, reason in _stop_reasons(state).items():
        yield HumanWait(f"{name} was stopped: {reason}", "liza stop; liza run")


def _budget_waits(state: State) -> Iterator[HumanWait]:
    if budget.is_budget_question_open(state):
        yield HumanWait(budget.budget_question(state), budget.raise_budget_command(state), is_told=True)


def _provider_waits(state: State) -> Iterator[HumanWait]:
    for provider in providers.refusing_providers(state):
        yield HumanWait(f"{provider.id} refuses: {provider.why}", providers.RESUME, is_told=True)


def _trip_waits(state: State) -> Iterator[HumanWait]:
    for trip in state.circuit_breaker.trips:
        if trip.resolved_at is None:
            seen = "; ".join(trip.says or trip.evidence)
            then = f'liza breaker resolve {trip.id} --reason "…"'
            yield HumanWait(f"the rule {trip.rule} tripped: {seen}", then, trip.id)
