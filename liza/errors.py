"""Every failure that Liza expects, as one tree; each knows the exit code that tells it to a script.

    LizaError                      exit 1, something outside Liza stands in the way
    ├── UsageError                 exit 2, the command line or a value on it is wrong
    ├── Refused                    exit 1, a rule of the contract says no to this change
    │   ├── Forbidden              no row of the lifecycle allows it
    │   ├── LeaseLost              the writer no longer holds the task
    │   └── NotThere               the task, note or revision named does not exist
    ├── InvalidBoard               exit 5, the board would break, or is broken
    │   ├── EditRejected           a hand edit was set aside
    │   ├── JournalDamaged         the journal does not replay
    │   └── BoardRewound           the server lost changes that were acknowledged
    ├── DiskTrouble                exit 1, the file system refused
    ├── BoardUnreachable           exit 1, the server that has the board does not answer
    ├── ConcurrentChange           exit 1, somebody changed the board meanwhile
    ├── AlreadyRunning             exit 1, another process has the name
    │   └── SharedRepository       another checkout of the repository has a run
    ├── GitFailed                  exit 1, git refused, in its own words
    ├── RemoteTrouble              exit 1, the repository that hosts share refused, or did not answer
    ├── ForgeFailed                exit 1, the forge refused or did not answer; its problem says which
    ├── RedBase                    exit 6, the project's own gates do not pass before any work is done
    ├── BrokenGate                 exit 1, a gate fails for a reason that no coder can mend
    ├── SandboxUnavailable         exit 1, the settings ask for a sandbox that this machine cannot give
    └── UnfitRepository            exit 1, the repository as it stands cannot be worked on

Constructors take facts and make the sentence. The command line is the one place that turns them into
a line on stderr and an exit code.
"""

from __future__ import annotations

import errno
import re
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

EXIT_CODES: Final[dict[int, str]] = {
    0: "done; the board is valid, the goal is complete, or the command did what it says",
    1: "the environment or a rule stood in the way; the sentence says which",
    2: "the command line, or `liza.yaml`, is wrong",
    3: "only people can make progress (`liza run --until-idle`)",
    4: "ended by ABORT, or by SIGTERM or Ctrl-C in the same way",
    5: "the board, or an edit of it, is invalid",
    6: "the base does not pass the project's own gates, or they do not see its code; nothing was started",
}


FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})  # what is over by itself once somebody makes room
READ_ONLY: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})  # what can be looked at all the same


class LizaError(Exception):
    """Something a person can act on; its text is one sentence that says what to do."""

    exit_code: ClassVar[int] = 1


class UsageError(LizaError):
    exit_code = 2


class Refused(LizaError):
    """A rule says no; nothing was changed."""


class Forbidden(Refused):
    def __init__(self, task: str, actor: str, event: str, status: str) -> None:
        super().__init__(f"{task}: {actor} may not {event} a task that is {status}")


class LeaseLost(Refused):
    def __init__(self, task: str, actor: str, event: str, why: str) -> None:
        super().__init__(f"{task}: {actor} may not {event} it, because {why}; stop working on it")


class NotThere(Refused):
    def __init__(self, what: str, name: str, hint: str) -> None:
        super().__init__(f"there is no {what} {name!r}; {hint}")


class Violation(NamedTuple):
    """One broken rule: where in the file, what is wrong, and how to mend it."""

    path: str
    problem: str
    mend: str
    line: int | None = None

    def __str__(self) -> str:
        where = f"line {self.line}: {self.path}" if self.line else self.path
        return f"{where}: {self.problem}; {self.mend}"


class InvalidBoard(LizaError):
    exit_code = 5

    def __init__(self, sentence: str, violations: Sequence[Violation] = ()) -> None:
        super().__init__("\n".join([sentence, *(f"  {violation}" for violation in violations)]))
        self.violations = tuple(violations)


class EditRejected(InvalidBoard):
    def __init__(self, kept: Path, violations: Sequence[Violation]) -> None:
        self.kept = kept
        sentence = (
            f"the edit of state.yaml was not taken; your text is kept in {kept}, "
            "agents are paused, `liza resume` goes on with the good board"
        )
        super().__init__(sentence, violations)


class JournalDamaged(InvalidBoard):
    pass


class BoardRewound(InvalidBoard):
    def __init__(self, address: str, known: int, note: Path) -> None:
        super().__init__(
            f"the board at {address} went backwards: it had revision {known} and has lost it or has another, "
            "as after a failover or a restore; everybody stops. Bring the server back that has it; or, "
            f"to go on with what is left, remove {note} on every machine and run `liza resume`"
        )


class BoardUnreachable(LizaError):
    def __init__(self, address: str, said: str) -> None:
        super().__init__(f"the board at {address} cannot be reached: {said}; see whether the server runs")


class ConcurrentChange(LizaError):
    """Somebody changed the board between a look and a write; nothing was written."""


class DiskTrouble(LizaError):
    def __init__(self, doing: str, error: OSError) -> None:
        super().__init__(f"cannot {doing}: {error.strerror or error}; nothing was changed")
        self.errno = error.errno


class AlreadyRunning(LizaError):
    def __init__(self, name: str, holder: str) -> None:
        how = "" if name == "mirror" else " (`liza stop`)"  # that ends a run, and leaves mirrors alone
        super().__init__(f"{name} is already running: {holder}; end that one first{how}")


class SharedRepository(AlreadyRunning):
    def __init__(self, holder: str) -> None:
        LizaError.__init__(
            self,
            f"another checkout of this repository has a run: {holder}; both would move the same branches, so "
            "end that one first (`liza stop` there)",
        )


def _filter_trouble(said: str) -> str | None:
    """Return the sentence for a filter that git cannot run, of which it says only what the shell said."""
    absent = re.search(r"(?m)^\}: (?:line )?\d+: (?P<program>[^\s:]+): (?:command )?not found$", said)
    if absent is None:
        return None
    program = absent["program"]
    return (
        f"git needs {program} to check out files of this repository (`filter` in .gitattributes), and it is "
        "not on the PATH; install it"
    )


class GitFailed(LizaError):
    def __init__(self, command: str, said: str) -> None:
        super().__init__(_filter_trouble(said) or f"git {command} failed: {said or 'it did not say why'}")


class RemoteTrouble(LizaError):
    """Nothing is lost by it: the work stays where it is, and goes on once the remote is back."""

    def __init__(self, remote: str, why: str) -> None:
        super().__init__(f"the remote {remote} {why}")


class ForgeFailed(LizaError):
    def __init__(self, doing: str, why: str, problem: str) -> None:
        super().__init__(f"cannot {doing}: {why}")
        self.problem = problem


class RedBase(LizaError):
    exit_code = 6


class BrokenGate(LizaError):
    def __init__(self, gate: str, line: str, cause: str, likely: str, run: str | None = None) -> None:
        whole = f"; .liza/runs/{run} has its output" if run else ""
        super().__init__(f"{gate} cannot judge any work: {cause} (`{line}`); {likely}{whole}")
        self.gate, self.line, self.cause, self.likely = gate, line, cause, likely


class SandboxUnavailable(LizaError):
    def __init__(self, asked: str, why: str) -> None:
        super().__init__(
            f"{asked}, and agents cannot run in a sandbox here: {why}; if they may run without a sandbox, "
            "with all the rights that you have, set `sandbox: {mode: off}`"
        )


class UnfitRepository(LizaError):
    """Only a person can change it; the sentence says how."""
