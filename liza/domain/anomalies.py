"""What should not have happened: one record a kind of anomaly, and the entry that says who saw it when."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from liza.domain.record import Id, NonEmptyStr, Record, Time


class RetryLoop(Record):
    type: Literal["retry_loop"] = "retry_loop"
    error_pattern: NonEmptyStr
    count: Annotated[int, Field(ge=1)]


class TradeOff(Record):
    type: Literal["trade_off"] = "trade_off"
    what: NonEmptyStr
    why: NonEmptyStr
    debt: bool = False


class DebtCreated(Record):
    type: Literal["debt_created"] = "debt_created"
    what: NonEmptyStr
    why: NonEmptyStr


class AssumptionViolated(Record):
    type: Literal["assumption_violated"] = "assumption_violated"
    assumption: NonEmptyStr
    reality: NonEmptyStr


class Workaround(Record):
    type: Literal["workaround"] = "workaround"
    what: NonEmptyStr
    root_cause: NonEmptyStr


class SpecAmbiguity(Record):
    type: Literal["spec_ambiguity"] = "spec_ambiguity"
    spec_ref: NonEmptyStr
    question: NonEmptyStr


class SpecGap(Record):
    type: Literal["spec_gap"] = "spec_gap"
    spec_ref: NonEmptyStr
    missing: NonEmptyStr


class SpecChanged(Record):
    type: Literal["spec_changed"] = "spec_changed"
    spec_ref: NonEmptyStr
    change: NonEmptyStr


class SystemAmbiguity(Record):
    """What the rules themselves leave open."""

    type: Literal["system_ambiguity"] = "system_ambiguity"
    question: NonEmptyStr
    protocol_section: NonEmptyStr | None = None


class ExternalBlocker(Record):
    type: Literal["external_blocker"] = "external_blocker"
    service: NonEmptyStr
    symptom: NonEmptyStr


class ScopeDeviation(Record):
    type: Literal["scope_deviation"] = "scope_deviation"
    paths: Annotated[tuple[NonEmptyStr, ...], Field(min_length=1)]
    why: NonEmptyStr


class HypothesisExhaustion(Record):
    type: Literal["hypothesis_exhaustion"] = "hypothesis_exhaustion"
    tried: Annotated[tuple[NonEmptyStr, ...], Field(min_length=1)]


class Other(Record):
    """What an agent saw that is of no known type, or lacks what its type needs; kept in the agent's words."""

    type: Literal["other"] = "other"
    what: NonEmptyStr
    called: NonEmptyStr | None = None  # the type that the agent gave


class MergeConflict(Record):
    type: Literal["merge_conflict"] = "merge_conflict"
    paths: Annotated[tuple[NonEmptyStr, ...], Field(min_length=1)]


class CheckoutDrift(Record):
    type: Literal["checkout_drift"] = "checkout_drift"
    moved: Annotated[tuple[NonEmptyStr, ...], Field(min_length=1)]


class CrashLoop(Record):
    type: Literal["crash_loop"] = "crash_loop"
    agent: Id
    crashes: Annotated[int, Field(ge=1)]


class RejectedEdit(Record):
    type: Literal["edit_rejected"] = "edit_rejected"
    file: NonEmptyStr
    problems: Annotated[tuple[NonEmptyStr, ...], Field(min_length=1)]


class GateBroken(Record):
    type: Literal["gate_broken"] = "gate_broken"
    gate: NonEmptyStr
    command: NonEmptyStr
    cause: NonEmptyStr
    likely: NonEmptyStr


class NoSandbox(Record):
    type: Literal["no_sandbox"] = "no_sandbox"
    why: NonEmptyStr


# What agents may report; the others are facts that only Liza states: conflicts, drift, crash loops.
AgentAnomaly = (
    RetryLoop
    | TradeOff
    | DebtCreated
    | AssumptionViolated
    | Workaround
    | SpecAmbiguity
    | SpecGap
    | SpecChanged
    | SystemAmbiguity
    | ExternalBlocker
    | ScopeDeviation
    | HypothesisExhaustion
    | Other
)

Details = Annotated[
    AgentAnomaly | MergeConflict | CheckoutDrift | CrashLoop | RejectedEdit | GateBroken | NoSandbox,
    Field(discriminator="type"),
]


class Anomaly(Record):
    """Something that should not have happened, with details of its own type."""

    id: Id
    type: NonEmptyStr
    task_id: Id | None = None
    logged_by: Id
    timestamp: Time
    details: Details
    processed: Time | None = None
    processed_by: Id | None = None

    @model_validator(mode="before")
    @classmethod
    def _type_is_said_once(cls, value: object) -> object:
        """Let the file say `type` beside `details`, as the contract does, and check that they agree."""
        if not isinstance(value, Mapping):
            return value
        details = value.get("details")
        if not isinstance(details, Mapping):
            return {"type": getattr(details, "type", None), **value}
        return {**value, "details": {"type": value.get("type"), **details}}

    @model_validator(mode="after")
    def _type_is_that_of_the_details(self) -> Self:
        if self.type != self.details.type:
            message = f"type is {self.type!r}, but the details are of {self.details.type!r}"
            raise ValueError(message)
        return self


def anomaly_sentence(anomaly: Anomaly, most: int = 300) -> str:
    """Return *anomaly* in a line; of its details at most so many characters."""
    about = f" of {anomaly.task_id}" if anomaly.task_id else ""
    return f"{anomaly.id}: {anomaly.type}{about} by {anomaly.logged_by}: {anomaly_facts(anomaly, most)}"


def anomaly_facts(anomaly: Anomaly, most: int = 300) -> str:
    facts = anomaly.details.to_json().items()
    return ", ".join(f"{key} {value}" for key, value in facts if key != "type")[:most]
