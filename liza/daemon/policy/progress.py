"""Who can make progress on a board: the agents, nobody because all is done, or only people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.daemon.policy import pick, planner
from liza.daemon.policy.pick import LABELLED, Candidate
from liza.daemon.policy.staffing import team_of
from liza.domain import budget
from liza.domain.lifecycle import TERMINAL
from liza.domain.model import BreakerStatus, GoalStatus, Role, Status, WorkerStatus
from liza.domain.waits import HumanWait, awaits_plan_reviewer, human_waits, stop_reasons, trip_waits

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator
    from datetime import datetime

    from liza.domain.model import State


def with_goal_reopened(state: State) -> State:
    """Return the board with its goal IN_PROGRESS again where it says COMPLETE and people added something."""
    if state.goal.status is not GoalStatus.COMPLETE:
        return state
    opened = state.replace(goal=state.goal.replace(status=GoalStatus.IN_PROGRESS, completed=None))
    return state if planner.is_complete(opened) else opened


def only_people(state: State, now: datetime) -> tuple[HumanWait, ...]:
    """Return what waits for people where only people can make progress, else nothing.

    The very functions decide by which the workers pick. Switches are not looked at: a person who threw one
    is there.
    """
    if state.goal.status is not GoalStatus.IN_PROGRESS or planner.is_complete(state):
        return ()
    if state.circuit_breaker.status is BreakerStatus.TRIPPED:
        return tuple(trip_waits(state))
    if any(task.lease for task in state.tasks.values()) or _finds_work(state, now, _everybody(state)):
        return ()
    return human_waits(state) or tuple(_label_waits(state, now)) or (_NO_WAY_ON,)


_FOR_REVIEWERS: Final = frozenset({Status.READY_FOR_REVIEW, Status.APPROVED})
_NO_WAY_ON: Final = HumanWait("no task can go on, and none asks anything", 'liza note "…"')


def _label_waits(state: State, now: datetime) -> Iterator[HumanWait]:
    """Yield the tasks that no machine may take up, since none has the labels that they need."""
    for task in state.tasks.values():
        role = Role.REVIEWER if task.status in _FOR_REVIEWERS else Role.CODER
        candidate = Candidate(state, task, f"{role}-1", now)
        if task.status in TERMINAL or LABELLED.holds(candidate):
            continue
        blocker = LABELLED.blocker(candidate)
        if blocker.who == "you":
            yield HumanWait(f"{task.id}: {blocker.what}", blocker.command)


def has_work_for(state: State, now: datetime, names: Collection[str]) -> bool:
    """Return whether one of the workers *names* is at work, or would find something to do."""
    if state.goal.status is not GoalStatus.IN_PROGRESS:
        return False
    held = {task.lease.holder for task in state.tasks.values() if task.lease}
    return not held.isdisjoint(names) or _finds_work(state, now, frozenset(names))


def _everybody(state: State) -> frozenset[str]:
    return frozenset({*team_of(state), *state.agents})


def _finds_work(state: State, now: datetime, names: frozenset[str]) -> bool:
    """Return whether one of *names* that was not stopped would find something to do."""
    waiting = _paused_workers(state)
    planners = names.intersection(active_workers(state, Role.PLANNER))
    return (
        (bool(planners) and _planner_finds(state, waiting, planners))
        or any(pick.pick_work(state, name) for name in (pick.available_coders(state) & names) - waiting)
        or any(
            pick.resolved_conflict(state)
            or (name not in waiting and awaits_plan_reviewer(state))
            or pick.to_merge(state, name, now)
            or (name not in waiting and pick.to_review(state, name, now))
            for name in names.intersection(active_workers(state, Role.REVIEWER))
        )
    )


def _planner_finds(state: State, waiting: frozenset[str], planners: frozenset[str]) -> bool:
    thinks = planner.plan_request(state) and not waiting.issuperset(planners)
    works = any(pick.pick_work(state, name) for name in planners - waiting)
    return bool(thinks or works or planner.stuck_tasks(state) or planner.is_to_be_filled(state))


def _paused_workers(state: State) -> frozenset[str]:
    """Return the workers whose agents may not run before a person says so."""
    if budget.is_budget_question_open(state):
        return _everybody(state)
    # A limit that passes by itself is not for people, and somebody may be parked for that one.
    if not budget.refusing_providers(state) or len(budget.closed_providers(state)) > len(
        budget.refusing_providers(state)
    ):
        return frozenset()
    return frozenset(agent.id for agent in state.agents.values() if agent.status is WorkerStatus.PARKED)


def active_workers(state: State, role: Role) -> list[str]:
    """Return the workers of *role* on the board that were not stopped."""
    wanted = [name for name, its in team_of(state).items() if its is role]
    return [name for name in wanted if name not in stop_reasons(state)]
