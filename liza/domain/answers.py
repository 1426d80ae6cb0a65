"""What an agent may answer: one kind of record for each step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Final, Self, get_args

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from liza.domain.anomalies import AgentAnomaly, Other
from liza.domain.memory import Remembered
from liza.domain.model import Checkpoint, Role, TaskKind, TaskScope, Urgency, Validation
from liza.domain.record import Id, NonEmptyStr, Record
from liza.domain.step_spec import StepSpec
from liza.domain.verdicts import Feedback, Risk

TAG: Final = "liza"
USAGE: Final = "usage"  # beside any answer: what the agent says that its run cost
MOST_PROBLEMS: Final = 3  # problems that one sentence names: an agent mends the first and then sees the rest
# Earlier answers that the last is compared with; thousands would take seconds to read.
MOST_EARLIER: Final = 20


UNSAID: Final = "nothing was said of it"
BLOCKED_NEEDS: Final = "a blocked task needs a blocked_reason and one to three blocked_questions"


class Step(StrEnum):
    """What an agent is asked to do in one run."""

    PLAN = "plan"
    REPLAN = "replan"
    CHECKPOINT = "checkpoint"
    IMPLEMENT = "implement"
    REVIEW = "review"


ROLE_OF_STEP: Final[dict[Step, Role]] = {
    Step.PLAN: Role.PLANNER,
    Step.REPLAN: Role.PLANNER,
    Step.CHECKPOINT: Role.CODER,
    Step.IMPLEMENT: Role.CODER,
    Step.REVIEW: Role.REVIEWER,
}

_TEST_PATH: Final = re.compile(
    r"(?:^|/)(?:tests?|spec)(?:/|$)|(?:^|/)test_[^/]*$|_test\.\w+$|\.(?:test|spec)\.\w+$"
)
_ADDS_TESTS: Final = re.compile(
    r"(?:add|write|create|extend)\s+"
    r"(?:(?:a|an|the|more|some|new|missing|unit|integration|acceptance|regression|end-to-end|e2e)\s+)*"
    # One test only where nothing is made of it: a test runner is code.
    r"(?:tests\b|test(?:\s+(?:cases?|coverage|suites?))?(?=\s+(?:for|of|to|that|on|around|covering)\b|[.,;]|\s*$))"
    # Tests and something that is none are a task like any other.
    r"(?!\s*(?:,|\+|&|and|plus|with|as\s+well\s+as)\s+(?:the\s+|its\s+)?(?!tests?\b|fixtures?\b|mocks?\b|docs?\b)\w)",
    re.IGNORECASE,
)


AGENT_ANOMALY_TYPES: Final[dict[str, type[Record]]] = {
    kind.model_fields["type"].default: kind for kind in get_args(AgentAnomaly)
}
# What the board says of every anomaly, so that whoever copies one from there says it as well.
_BOARD_FIELDS: Final = frozenset({"id", "task_id", "logged_by", "timestamp", "processed"})


def _parse_anomaly(value: object) -> object:
    """Read an anomaly as its type demands, or keep it as a plain one: it is no reason to lose an answer.

    The details stand beside the type or below `details`, as the contract shows them.
    """
    if isinstance(value, Record):
        return value
    if not isinstance(value, Mapping):
        return Other(what=_in_words(value))
    said = {str(key): inner for key, inner in value.items() if str(key) not in _BOARD_FIELDS}
    kind = re.sub(r"[\s-]+", "_", str(said.pop("type", None) or "").strip().casefold())
    details = said.pop("details", None)
    facts = {**said, **details} if isinstance(details, Mapping) else said
    try:
        return AGENT_ANOMALY_TYPES[kind].model_validate({"type": kind, **facts})
    except (KeyError, ValidationError):
        text = _in_words(details if details and not isinstance(details, Mapping) else facts)
        return Other(what=text, called=kind or None)


def _in_words(value: object) -> str:
    if isinstance(value, Mapping):
        return (
            "; ".join(f"{key}: {_in_words(inner)}" for key, inner in value.items())
            or "nothing was said of it"
        )
    if isinstance(value, list | tuple):
        return ", ".join(map(_in_words, value)) or "nothing was said of it"
    return str(value).strip() or "nothing was said of it"


def _as_list(value: object) -> object:
    return [value] if isinstance(value, Mapping | str) else value


AgentAnomalies = Annotated[
    tuple[Annotated[AgentAnomaly, BeforeValidator(_parse_anomaly)], ...], BeforeValidator(_as_list)
]


class PlannedTask(Record):
    """A task as a planner proposes it."""

    id: Id
    description: NonEmptyStr
    done_when: Annotated[tuple[NonEmptyStr, ...], Field(min_length=1)]
    scope: TaskScope = TaskScope()
    depends_on: tuple[Id, ...] = ()
    needs: tuple[Id, ...] = ()
    spec_ref: NonEmptyStr | None = None
    kind: TaskKind = TaskKind.CODE
    validation: Validation | None = None

    @model_validator(mode="after")
    def _is_more_than_tests(self) -> Self:
        paths = self.scope.include
        only_tests = bool(paths) and all(_TEST_PATH.search(path) for path in paths)
        if self.kind is TaskKind.CODE and (only_tests or _ADDS_TESTS.match(self.description)):
            message = (
                f"{self.id} only adds tests; a code task brings its own tests, so put them into that task"
            )
            raise ValueError(message)
        return self


def _check_order(tasks: tuple[PlannedTask, ...]) -> None:
    """Raise ValueError where *tasks* share an id or have a dependency cycle."""
    waits = {task.id: set(task.depends_on) for task in tasks}
    if len(waits) < len(tasks):
        names = [task.id for task in tasks]
        twice = sorted({name for name in names if names.count(name) > 1})
        message = f"the id {twice[0]} is used twice; give every task an id of its own"
        raise ValueError(message)
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        circle = " waits for ".join(reversed(error.args[1]))
        message = f"{circle}; no task can start, so remove one of these dependencies"
        raise ValueError(message) from error


def _check_exactly_one(record: Record, *names: str) -> None:
    given = [name for name in names if getattr(record, name)]
    if len(given) != 1:
        listed = ", ".join(names[:-1])
        found = " and ".join(given) if given else "none of them"
        message = f"give exactly one of {listed} or {names[-1]} (there is {found})"
        raise ValueError(message)


class Plan(Record):
    """The tasks that reach the goal, what has to be known first, or why there is nothing to add."""

    tasks: tuple[PlannedTask, ...] = ()
    questions: tuple[NonEmptyStr, ...] = ()
    nothing_to_add: NonEmptyStr | None = None
    anomalies: AgentAnomalies = ()

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        _check_exactly_one(self, "tasks", "questions", "nothing_to_add")
        _check_order(self.tasks)
        return self


class UnblockDecision(Record):
    guidance: NonEmptyStr


class AbandonDecision(Record):
    reason: NonEmptyStr


class Replan(Record):
    """What becomes of a BLOCKED task."""

    tasks: tuple[PlannedTask, ...] = ()
    rescope_reason: NonEmptyStr | None = None
    unblock: UnblockDecision | None = None
    abandon: AbandonDecision | None = None
    questions: tuple[NonEmptyStr, ...] = ()
    anomalies: AgentAnomalies = ()

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        _check_exactly_one(self, "tasks", "unblock", "abandon", "questions")
        if bool(self.tasks) != bool(self.rescope_reason):
            message = "tasks that replace another come with a rescope_reason, and nothing else does"
            raise ValueError(message)
        _check_order(self.tasks)
        return self


class Readiness(StrEnum):
    """Whether a coder can begin."""

    READY = "ready"
    BLOCKED = "blocked"


class CheckpointAnswer(Record):
    """What a coder says before it implements: what it will do, or what keeps it from beginning."""

    intent: NonEmptyStr | None = None
    assumptions: tuple[NonEmptyStr, ...] = ()
    risk_level: Risk | None = None
    risks: str = ""
    validation: Validation | None = None
    files_to_modify: tuple[NonEmptyStr, ...] = ()
    status: Readiness = Readiness.READY
    blocked_reason: NonEmptyStr | None = None
    blocked_questions: Annotated[tuple[NonEmptyStr, ...], Field(max_length=3)] = ()
    anomalies: AgentAnomalies = ()

    @model_validator(mode="after")
    def _begins_or_asks(self) -> Self:
        if self.is_blocked and not (self.blocked_reason and self.blocked_questions):
            raise ValueError(BLOCKED_NEEDS)
        if not self.is_blocked and self.intent is None:
            raise ValueError("the intent is missing; say in a sentence or two what you will do")
        return self

    @property
    def is_blocked(self) -> bool:
        return self.status is Readiness.BLOCKED or bool(self.blocked_questions)

    def checkpoint(self) -> Checkpoint:
        """Return it as the board keeps it."""
        return Checkpoint.model_validate(self.model_dump(include=set(Checkpoint.model_fields)))


class FoundWork(Record):
    """Work that an agent saw beside its task."""

    description: NonEmptyStr
    urgency: Urgency = Urgency.DEFERRED


class WorkStatus(StrEnum):
    DONE = "done"
    BLOCKED = "blocked"
    NOTHING_TO_DO = "nothing_to_do"


class TestsEnd(StrEnum):
    PASSED = "passed"
    FAILED = "failed"


def _summary_alone(value: object) -> object:
    return {"summary": value} if isinstance(value, str) else value


class Implement(Record):
    """What a coder says of its work; what it did is read from git."""

    status: WorkStatus
    summary: str = ""
    risk: Risk | None = None
    confidence: Annotated[int, Field(ge=0, le=10)] | None = None
    step: StepSpec | None = None  # what is to be done next, of who plans and changes nothing
    loops: tuple[NonEmptyStr, ...] = ()  # all of them, one line each, of who plans them up front
    # A few facts for who works in the next phase; what is wrong with one is told, and the rest is used.
    handoff: Annotated[dict[str, Any], BeforeValidator(_summary_alone)] | None = None
    tests_ended: TestsEnd | None = None  # as it saw them last; the gates look for themselves
    blocked_reason: NonEmptyStr | None = None
    blocked_questions: Annotated[tuple[NonEmptyStr, ...], Field(max_length=3)] = ()
    anomalies: AgentAnomalies = ()
    discovered: tuple[FoundWork, ...] = ()
    remember: tuple[Remembered, ...] = ()

    @model_validator(mode="after")
    def _says_what_its_status_needs(self) -> Self:
        blocked = self.status is WorkStatus.BLOCKED
        if blocked and not (self.blocked_reason and self.blocked_questions):
            raise ValueError(BLOCKED_NEEDS)
        if not blocked and (self.blocked_reason or self.blocked_questions):
            message = f"the status is {self.status}, yet something blocks; say blocked, or leave that out"
            raise ValueError(message)
        if not blocked and not self.summary.strip():
            raise ValueError("the summary is empty; say in a sentence what was done or why nothing was")
        return self


class Ruling(StrEnum):
    APPROVE = "approve"
    REJECT = "reject"
    BLOCK = "block"


class FeedbackStatus(StrEnum):
    ADDRESSED = "addressed"
    PARTIAL = "partial"
    OPEN = "open"


class PriorFeedback(Record):
    """What became of something that an earlier review asked for."""

    message: NonEmptyStr
    status: FeedbackStatus
    note: str | None = None


class Review(Record):
    verdict: Ruling
    reason: NonEmptyStr
    feedback: tuple[Feedback, ...] = ()
    label: NonEmptyStr | None = None  # which of several ways to go on, where the workflow has some
    confidence: Annotated[int, Field(ge=0, le=10)] | None = None
    prior_feedback: tuple[PriorFeedback, ...] = ()
    anomalies: AgentAnomalies = ()

    @model_validator(mode="after")
    def _a_rejection_can_be_acted_on(self) -> Self:
        if self.verdict is Ruling.REJECT and not self.feedback:
            raise ValueError("a rejection needs feedback: at least one message that the coder can act on")
        return self


AnswerValue = Plan | Replan | CheckpointAnswer | Implement | Review

ANSWER_TYPES: Final[dict[Step, type[AnswerValue]]] = {
    Step.PLAN: Plan,
    Step.REPLAN: Replan,
    Step.CHECKPOINT: CheckpointAnswer,
    Step.IMPLEMENT: Implement,
    Step.REVIEW: Review,
}


def lines_by_path(lines: Mapping[tuple[str | int, ...], int]) -> dict[str, int]:
    """Return *lines* keyed by path, such as `tasks[0].id`."""
    return {_path_text(place): line for place, line in lines.items()}


def _path_text(place: tuple[str | int, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")
