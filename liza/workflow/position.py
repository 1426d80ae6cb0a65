"""The words between the engine and who drives it: a position, the job that is next, its result, the move."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from pydantic import Field

from liza.domain.record import Commit, NonEmptyStr, Record
from liza.domain.verdicts import Decision, Outcome, Verdict
from liza.workflow.document import Effect, Gate, SessionMode, WorkflowEnd

WORK: Final = ":work"  # what a position waits on when the worker asked; no gate can have that id
TAINT: Final = ":taint"  # … and when a person has to accept the taint first


class Position(Record):
    """Where a piece of work is; all that the engine has to know of its past."""

    phase: NonEmptyStr
    end: WorkflowEnd | None = None
    worked: bool = False
    asked: bool = False
    nothing: bool = False  # the worker says that there is nothing to do
    forced: bool = False  # this visit passes, whatever its gates said
    verdicts: tuple[Verdict, ...] = ()  # of this visit, one a gate
    approvals: tuple[Verdict, ...] = ()  # what agents and people let pass since the work
    iterations: Mapping[str, int] = Field(default_factory=dict)
    attempt: int = 0
    loop: int = 0
    path: NonEmptyStr | None = None
    taints: tuple[NonEmptyStr, ...] = ()
    accepted: tuple[NonEmptyStr, ...] = ()
    waiting: NonEmptyStr | None = None
    tree: Commit | None = None
    made_in: NonEmptyStr | None = None
    runs: tuple[NonEmptyStr, ...] = ()  # that made the work, none of which may judge it

    @property
    def is_tainted(self) -> bool:
        return not set(self.taints) <= set(self.accepted)

    def with_taints(self, *marks: str) -> Position:
        """Return it with *marks*; one that was accepted before has to be accepted again."""
        return self.replace(
            taints=tuple(dict.fromkeys((*self.taints, *marks))),
            accepted=tuple(mark for mark in self.accepted if mark not in marks),
        )


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
    def end(self) -> WorkflowEnd | None:
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
