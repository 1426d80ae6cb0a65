"""What a step of the engine is to the rules: the events that it leaves behind."""

from __future__ import annotations

from liza.domain.position import Position
from liza.domain.verdicts import Verdict
from liza.workflow.catalogue import Event, EventKind
from liza.workflow.document import GateKind, Workflow
from liza.workflow.position import Crashed, Moved, Proceeded, Result, Worked


def happened(
    workflow: Workflow, position: Position, result: Result, moved: Moved, task: str
) -> tuple[Event, ...]:
    """Return what *result* at *position* adds to the history of *task*, the decision last."""
    if moved.stale:
        return ()
    heard = [] if isinstance(result, Proceeded) else [_heard(workflow, position, result, task)]
    if moved.decision is not None:
        facts = moved.decision.model_dump(include=set(Event.model_fields))
        over = {"exhausted": True} if moved.exhausted else {}
        heard.append(Event(kind=EventKind.DECISION, task=task, fields=over, **facts))
    return tuple(heard)


def _heard(workflow: Workflow, position: Position, result: Result, task: str) -> Event:
    phase = workflow.phases[position.phase]
    here = Event(kind=EventKind.HUMAN, at=result.at, task=task, phase=position.phase)
    match result:
        case Verdict():
            gate = phase.named(result.gate)
            person = gate.kind is GateKind.HUMAN or position.waiting == gate.id
            return here.but(
                kind=EventKind.HUMAN if person else EventKind.VERDICT,
                outcome=result.outcome,
                reason=result.reason,
                role=gate.role,
                fields={"gate": gate.id, "kind": gate.kind, "mode": gate.mode},
            )
        case Worked():
            return here.but(
                kind=EventKind.WORK, outcome=result.outcome, reason=result.reason, role=phase.worker
            )
        case Crashed():
            return here.but(kind=EventKind.CRASH, reason=result.reason)
    return here
