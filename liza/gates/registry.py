"""Every kind of gate by its name: its options, and the function that judges; and effects that packages add.

A package adds a kind of gate as an entry point of the group `liza.gates` that is a `GateType`, and an effect
as one of `liza.effects` that is an `EffectType`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, ValidationError

from liza.domain.model import Verdict
from liza.domain.problems import violations_from
from liza.domain.record import NonEmptyStr, Record
from liza.errors import UsageError
from liza.gates import artifact, command, proof, scan, score
from liza.gates.context import Finding, GateContext, escape_to_line
from liza.system.plugins import Registry

Judge = Callable[[Any, GateContext], Finding]


class GateType(NamedTuple):
    """A row: what the gate may be told, who judges, and what for."""

    options: type[Record]
    judge: Judge | None  # None where a person judges, whom the engine waits for
    meaning: str


class HumanOptions(Record):
    asks: Literal["approve", "answer", "risk"] = "approve"
    question: NonEmptyStr | None = None
    remind_minutes: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 60


GATE_TYPES: Final[dict[str, GateType]] = {
    "artifact": GateType(
        artifact.ArtifactOptions, artifact.judge_artifact, "what has to be there is: checkpoint, diff, tests"
    ),
    "command": GateType(
        command.CommandOptions, command.judge, "a command succeeds on exactly the committed tree"
    ),
    "human": GateType(HumanOptions, None, "a person says yes; silence is none"),
    "proof": GateType(
        proof.ProofOptions, proof.judge, "new tests fail on the base, pass on the head; old ones still pass"
    ),
    "refs": GateType(artifact.RefsOptions, artifact.judge_refs, "files and lines that are cited exist"),
    "scan": GateType(scan.ScanOptions, scan.judge, "no secrets, forbidden commands or sensitive files"),
    "scope": GateType(
        artifact.ScopeOptions,
        artifact.judge_scope,
        "only what is IN and announced is touched, and not too much of it",
    ),
    "score": GateType(score.ScoreOptions, score.judge, "a number is good enough beside a baseline"),
}


class EffectType(NamedTuple):
    """A row: what the effect may be told, who performs it, and what for.

    It may be performed again, where a worker died before that it was done was written down.
    """

    options: type[Record]
    perform: Judge  # the finding is a pass once it is done
    meaning: str


GATES: Final[Registry[GateType]] = Registry("liza.gates", "kind of gate called", GATE_TYPES, GateType)
EFFECTS: Final[Registry[EffectType]] = Registry("liza.effects", "effect", {}, EffectType)


def validate_options(kind: str, options: Mapping[str, Any]) -> Record:
    """Return *options* as the record of *kind*; raise one sentence where they are wrong."""
    return _validate(f"a gate of the kind {kind}", GATES[kind].options, options)


def validate_effect(name: str, options: Mapping[str, Any]) -> Record:
    """Return *options* as the record of the effect *name*; raise one sentence where they are wrong."""
    return _validate(f"the effect {name}", EFFECTS[name].options, options)


def _validate(what: str, record: type[Record], options: Mapping[str, Any]) -> Record:
    try:
        return record.model_validate(dict(options))
    except ValidationError as error:
        problem = violations_from(error, record, "", {})[0]
        where = f"{problem.path.removeprefix('.')}: " if problem.path else ""
        raise UsageError(f"{what}: {where}{problem.problem}; {problem.mend}") from error


def run_gate(gate: str, kind: str, options: Mapping[str, Any], context: GateContext) -> Verdict:
    """Return what the gate *gate* says about the head of *context*; a person is no gate that can be run."""
    judge = GATES[kind].judge
    if judge is None:
        raise UsageError(f"the gate {gate} is for a person to judge; no code speaks for them")
    return _verdict(gate, judge(validate_options(kind, options), context), context)


def run_effect(gate: str, name: str, options: Mapping[str, Any], context: GateContext) -> Verdict:
    """Perform the effect *name* on the head of *context*; return whether it is done as what *gate* says."""
    return _verdict(gate, EFFECTS[name].perform(validate_effect(name, options), context), context)


def _verdict(gate: str, found: Finding, context: GateContext) -> Verdict:
    return Verdict(
        gate=gate,
        outcome=found.outcome,
        at=context.clock(),
        tree=context.tree,
        reason=escape_to_line(found.reason),
        feedback=found.feedback,
        label=found.label,
        evidence=found.evidence,
    )
