"""What a step of the engine is to the rules: the events that it leaves behind."""

from __future__ import annotations

from liza.domain.position import Position
from liza.domain.verdicts import Verdict
from liza.workflow.catalogue import EventKind, RuleEvent
from liza.workflow.document import GateKind, Workflow
from liza.workflow.position import Crashed, JobResult, Move, Proceeded, Worked


def rule_events(
    workflow: Workflow, position: Position, result: JobResult, moved: Move, task: str
) -> tuple[RuleEvent, ...]:
    """Return what *result* at *position* adds to the history of *task*, the decision last."""
    if moved.stale:
        return ()
    heard = [] if isinstance(result, Proceeded) else [_result_event(workflow, position, result, task)]
    if moved.decision is not None:
        facts = moved.decision.model_dump(include=set(RuleEvent.model_fields))
        over = {"exhausted": True} if moved.exhausted else {}
        heard.append(RuleEvent(kind=EventKind.DECISION, task=task, fields=over, **facts))
    return tuple(heard)


def _result_event(workflow: Workflow, position: Position, result: JobResult, task: str) -> RuleEvent:
    phase = workflow.phases[position.phase]
    here = RuleEvent(kind=EventKind.HUMAN, at=result.at, task=task, phase=position.phase)
    match result:
        case Verdict():
            gate = phase.named(result.gate)
            person = gate.kind is GateKind.HUMAN or position.waiting == gate.id
            return here.replace(
                kind=EventKind.HUMAN if person else EventKind.VERDICT,
                outcome=result.outcome,
                reason=result.reason,
                role=gate.role,
                fields={"gate": gate.id, "kind": gate.kind, "mode": gate.mode},
            )
        case Worked():
            return here.replace(
                kind=EventKind.WORK, outcome=result.outcome, reason=result.reason, role=phase.worker
            )
        case Crashed():
            return here.replace(kind=EventKind.CRASH, reason=result.reason)
    return here
