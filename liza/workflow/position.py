"""The words between the engine and who drives it: the job that is next, its result, the move."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, TypeAlias

from liza.domain.position import TAINT, End, Position
from liza.domain.verdicts import Decision, Outcome, Verdict
from liza.workflow.document import Effect, Gate, SessionMode


class WorkJob(NamedTuple):
    phase: str
    role: str
    iteration: int
    session: SessionMode


class GateJob(NamedTuple):
    gate: Gate


class WaitJob(NamedTuple):
    """A person is next: *on* is the gate, or `WORK` for a worker that asked, or `TAINT`."""

    on: str
    gate: Gate | None


class ProceedJob(NamedTuple):
    """Nothing is left to do in the phase: answer with `Proceeded`."""

    phase: str


WorkflowJob: TypeAlias = WorkJob | GateJob | WaitJob | ProceedJob


class Worked(NamedTuple):
    at: datetime
    outcome: Outcome = Outcome.PASS
    reason: str | None = None
    tree: str | None = None
    run: str | None = None
    nothing_to_do: bool = False


class Crashed(NamedTuple):
    """The worker, or what should have judged at *gate*, did not come to an end of its own."""

    at: datetime
    reason: str
    gate: str | None = None


class Answered(NamedTuple):
    """A person answered who asked; *again*: with that, do it again, else go on with what is there."""

    at: datetime
    again: bool = True


class Accepted(NamedTuple):
    """A person accepts what the work is tainted with."""

    at: datetime


class Proceeded(NamedTuple):
    at: datetime


JobResult: TypeAlias = Verdict | Worked | Crashed | Answered | Accepted | Proceeded


class Move(NamedTuple):
    position: Position
    decision: Decision | None = None
    taints: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    skipped: tuple[str, ...] = ()
    stale: bool = False  # the verdict was about another tree, and did not count
    exhausted: str | None = None  # why no further round was given
    decided: Position | None = None  # where it was when the phase was decided
    label: str | None = None

    @property
    def end(self) -> End | None:
        return self.position.end


def is_result_of(job: WorkflowJob | None, position: Position, result: JobResult) -> bool:
    """Return whether *result* is one of *job*; what made the work does not judge it."""
    match job, result:
        case ((GateJob(gate) | WaitJob(_, Gate() as gate)), Verdict()):
            made_it = result.evidence is not None and result.evidence.run in position.runs
            return (
                result.gate == gate.id and not made_it and not (isinstance(job, WaitJob) and job.on == TAINT)
            )
        case (WorkJob(), Worked() | Crashed(gate=None)) | (ProceedJob(), Proceeded()):
            return True
        case GateJob(gate), Crashed():
            return result.gate == gate.id
        case WaitJob(on), Answered():
            return position.waiting is not None and on != TAINT
        case _, Accepted():
            return job is not None and position.is_tainted
    return False


def result_name(result: JobResult) -> str:
    return f"a verdict of {result.gate}" if isinstance(result, Verdict) else type(result).__name__.lower()
