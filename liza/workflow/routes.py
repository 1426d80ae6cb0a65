"""Who is asked in a workflow: the keys by which settings may name an agent for a phase or a hat."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.domain.answers import Step
from liza.domain.model import Role
from liza.domain.routing import RouteKey
from liza.workflow.document import OWN_HATS, PLANNER_SPLITS, GateKind

if TYPE_CHECKING:
    from collections.abc import Iterator

    from liza.domain.position import Position
    from liza.workflow.document import Phase, Workflow


def route_at(
    flow: Workflow, position: Position | None, role: Role, step: Step, hat: str | None = None
) -> RouteKey:
    """Return who is asked for *step* of a task at *position*; without a *hat*, under the next one there."""
    place = position.phase if position else flow.start
    worn = hat or _first_hat(flow.phases[place], role)
    return _route(place, role, step, worn)


def maker_route(flow: Workflow, route: RouteKey) -> RouteKey:
    """Return who made what *route* is asked to judge: who works in its phase, or the first who writes."""
    made = flow.phases[route.phase].worker if route.phase in flow.phases else None
    return _route(route.phase, Role.CODER, Step.IMPLEMENT, made)


def _route(place: str | None, role: Role, step: Step, hat: str | None) -> RouteKey:
    # The kinds of worker are no hats: of them the step and the role count as well.
    return RouteKey(role, step, place, None if hat in OWN_HATS else hat)


def _first_hat(phase: Phase, role: Role) -> str | None:
    if role is not Role.REVIEWER:
        return phase.worker
    return next((gate.role for gate in phase.gates if gate.kind is GateKind.AGENT), None)


def routes_in(flow: Workflow) -> Iterator[RouteKey]:
    """Yield everybody who may be asked in *flow*."""
    if flow.tasks.source == PLANNER_SPLITS:
        yield RouteKey(Role.PLANNER, Step.PLAN)
        yield RouteKey(Role.PLANNER, Step.REPLAN)
    for place, phase in flow.phases.items():
        if phase.worker is not None:
            process = flow.hat(phase.worker).process
            if phase.asks_checkpoint:
                yield _route(place, process, Step.CHECKPOINT, phase.worker)
            yield _route(place, process, Step.IMPLEMENT, phase.worker)
        for gate in phase.gates:
            if gate.kind is GateKind.AGENT:
                yield _route(place, Role.REVIEWER, Step.REVIEW, gate.role)
