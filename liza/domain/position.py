"""Where a task is in its workflow: the record that the engine moves and the board keeps."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from pydantic import Field

from liza.domain.record import Commit, NonEmptyStr, Record
from liza.domain.verdicts import Verdict

# What a position waits on beside the gates of a workflow; no gate can have such an id.
RELEASE: Final = ":release"  # a draft: somebody has to release it first
WORK: Final = ":work"  # the worker asked
TAINT: Final = ":taint"  # a person has to accept what the work is tainted with


class End(StrEnum):
    """Where work can end; `FINAL` are those that nothing leads out of."""

    DONE = "DONE"
    NOTHING_TO_DO = "NOTHING_TO_DO"
    STOPPED = "STOPPED"
    SUPERSEDED = "SUPERSEDED"
    BLOCKED = "BLOCKED"
    PAUSED = "PAUSED"


FINAL: Final = frozenset({End.DONE, End.NOTHING_TO_DO, End.STOPPED, End.SUPERSEDED})


class Stage(StrEnum):
    """What a phase is for, whatever its document calls it."""

    WORK = "work"  # somebody works
    JUDGE = "judge"  # gates judge what was made
    EFFECT = "effect"  # the daemon does something with it, as merging it


class Position(Record):
    """Where a piece of work is; all that the engine has to know of its past."""

    phase: NonEmptyStr
    stage: Stage = Stage.WORK  # of the phase
    end: End | None = None
    worked: bool = False
    asked: bool = False
    nothing: bool = False  # the worker says that there is nothing to do
    forced: bool = False  # this visit passes, whatever its gates said
    back_from: Stage | None = None  # where the work was sent back to this phase
    verdicts: tuple[Verdict, ...] = ()  # of this visit, one a gate; what they saw is with the task
    approvals: tuple[Verdict, ...] = ()  # what agents and people let pass since the work
    iterations: Mapping[str, int] = Field(default_factory=dict)
    attempt: int = 0
    loop: int = 0
    path: NonEmptyStr | None = None
    taints: tuple[NonEmptyStr, ...] = ()
    accepted: tuple[NonEmptyStr, ...] = ()
    waiting: NonEmptyStr | None = None
    known: tuple[
        NonEmptyStr, ...
    ] = ()  # predicates that hold for the work, which conditions of gates ask for
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
