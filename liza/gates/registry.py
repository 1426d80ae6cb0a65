"""Every kind of gate by its name: its options, and the function that judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from liza.domain.problems import explained
from liza.domain.record import Record
from liza.domain.verdicts import Verdict
from liza.errors import UsageError
from liza.gates import artifact, command, human, proof, refs, scan, scope, score
from liza.gates.context import Case
from liza.gates.finding import Finding, one_line

Judge = Callable[[Any, Case], Finding]


class Kind(NamedTuple):
    """A row: what the gate may be told, who judges, and what for."""

    options: type[Record]
    judge: Judge
    meaning: str


KINDS: Final[dict[str, Kind]] = {
    "artifact": Kind(artifact.Options, artifact.judge, "what has to be there is: checkpoint, diff, tests"),
    "command": Kind(command.Options, command.judge, "a command succeeds on exactly the committed tree"),
    "human": Kind(human.Options, human.judge, "a person says yes; silence is none"),
    "proof": Kind(
        proof.Options, proof.judge, "new tests fail on the base, pass on the head; old ones still pass"
    ),
    "refs": Kind(refs.Options, refs.judge, "files and lines that are cited exist"),
    "scan": Kind(scan.Options, scan.judge, "no secrets, forbidden commands or sensitive files"),
    "scope": Kind(
        scope.Options, scope.judge, "only what is IN and announced is touched, and not too much of it"
    ),
    "score": Kind(score.Options, score.judge, "a number is good enough beside a baseline"),
}


def checked(kind: str, options: Mapping[str, Any]) -> Record:
    """Return *options* as the record of *kind*; raise one sentence where they are wrong."""
    row = KINDS.get(kind)
    if row is None:
        near = get_close_matches(kind, KINDS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(KINDS)}"
        raise UsageError(f"there is no kind of gate called {kind!r}; {hint}")
    try:
        return row.options.model_validate(dict(options))
    except ValidationError as error:
        problem = explained(error, row.options, "", {})[0]
        where = f"{problem.path.removeprefix('.')}: " if problem.path else ""
        raise UsageError(f"a gate of the kind {kind}: {where}{problem.problem}; {problem.mend}") from error


def judge(gate: str, kind: str, options: Mapping[str, Any], case: Case) -> Verdict:
    """Return what the gate *gate* says about the head of *case*."""
    found = KINDS[kind].judge(checked(kind, options), case)
    return Verdict(
        gate=gate,
        outcome=found.outcome,
        at=case.clock(),
        tree=case.tree,
        reason=one_line(found.reason),
        feedback=found.feedback,
        label=found.label,
        evidence=found.evidence,
    )
