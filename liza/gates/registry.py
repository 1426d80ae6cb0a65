"""Every kind of gate by its name: its options, and the function that judges."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from liza.domain.problems import violations_from
from liza.domain.record import Record
from liza.domain.verdicts import Verdict
from liza.errors import UsageError
from liza.gates import artifact, command, human, proof, refs, scan, scope, score
from liza.gates.context import GateContext
from liza.gates.finding import Finding, escape_to_line

Judge = Callable[[Any, GateContext], Finding]


class GateType(NamedTuple):
    """A row: what the gate may be told, who judges, and what for."""

    options: type[Record]
    judge: Judge
    meaning: str


GATE_TYPES: Final[dict[str, GateType]] = {
    "artifact": GateType(
        artifact.ArtifactOptions, artifact.judge, "what has to be there is: checkpoint, diff, tests"
    ),
    "command": GateType(
        command.CommandOptions, command.judge, "a command succeeds on exactly the committed tree"
    ),
    "human": GateType(human.HumanOptions, human.judge, "a person says yes; silence is none"),
    "proof": GateType(
        proof.ProofOptions, proof.judge, "new tests fail on the base, pass on the head; old ones still pass"
    ),
    "refs": GateType(refs.RefsOptions, refs.judge, "files and lines that are cited exist"),
    "scan": GateType(scan.ScanOptions, scan.judge, "no secrets, forbidden commands or sensitive files"),
    "scope": GateType(
        scope.ScopeOptions, scope.judge, "only what is IN and announced is touched, and not too much of it"
    ),
    "score": GateType(score.ScoreOptions, score.judge, "a number is good enough beside a baseline"),
}


def validate_options(kind: str, options: Mapping[str, Any]) -> Record:
    """Return *options* as the record of *kind*; raise one sentence where they are wrong."""
    row = GATE_TYPES.get(kind)
    if row is None:
        near = get_close_matches(kind, GATE_TYPES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"use one of {', '.join(GATE_TYPES)}"
        raise UsageError(f"there is no kind of gate called {kind!r}; {hint}")
    try:
        return row.options.model_validate(dict(options))
    except ValidationError as error:
        problem = violations_from(error, row.options, "", {})[0]
        where = f"{problem.path.removeprefix('.')}: " if problem.path else ""
        raise UsageError(f"a gate of the kind {kind}: {where}{problem.problem}; {problem.mend}") from error


def run_gate(gate: str, kind: str, options: Mapping[str, Any], case: GateContext) -> Verdict:
    """Return what the gate *gate* says about the head of *case*."""
    found = GATE_TYPES[kind].judge(validate_options(kind, options), case)
    return Verdict(
        gate=gate,
        outcome=found.outcome,
        at=case.clock(),
        tree=case.tree,
        reason=escape_to_line(found.reason),
        feedback=found.feedback,
        label=found.label,
        evidence=found.evidence,
    )
