"""What an agent may answer: one kind of record for each step, and how loose words become one.

In this order: size limits and the step of a loop, the records of the answers, the coercion of an answer into
its record, and the tables of other words for the same.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    Self,
    Union,
    get_args,
    get_origin,
)

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator

from liza.domain.anomalies import AgentAnomaly, Other
from liza.domain.config import Count
from liza.domain.memory import Remembered
from liza.domain.model import (
    Checkpoint,
    Feedback,
    Risk,
    Role,
    Severity,
    TaskKind,
    TaskScope,
    Urgency,
    Validation,
)
from liza.domain.record import Commit, Id, NonEmptyStr, Record

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from liza.domain.model import Artifact


# How large a change may be: lines and files, what may be tolerated, and what a person waived.

WAIVER: Final = "scope_limit"  # what a person waives by name for one goal


class ChangeSize(NamedTuple):
    loc: int
    files: int
    is_docs_only: bool = False
    risk: Risk | None = None  # as the step names it; None where nobody was asked


class SizeLimit(NamedTuple):
    max_loc: int | None = None
    max_files: int | None = None
    # `any`: it is enough to keep one of the two. A long change of one file is as easy to read as a short one.
    mode: Literal["any", "all"] = "any"
    tolerance: float = 0.0  # of the lines, for text alone at a low risk; never of the files


def oversize(size: ChangeSize, limit: SizeLimit, *, is_waived: bool = False) -> tuple[str, ...]:
    """Return what is too large about a change; nothing where a person waived the limits."""
    if is_waived:
        return ()
    over = {
        f"{size.loc} lines are changed, and {limit.max_loc} may be": _has_too_many_lines(size, limit),
        f"{size.files} files are changed, and {limit.max_files} may be": (
            limit.max_files is not None and size.files > limit.max_files
        ),
    }
    broken = tuple(message for message, is_over in over.items() if is_over)
    limits = [one for one in (limit.max_loc, limit.max_files) if one is not None]
    return broken if limit.mode == "all" or len(broken) == len(limits) else ()


def _has_too_many_lines(size: ChangeSize, limit: SizeLimit) -> bool:
    if limit.max_loc is None or size.loc <= limit.max_loc:
        return False
    is_tolerated = size.is_docs_only and size.risk in {None, Risk.LOW}
    return not (is_tolerated and size.loc < limit.max_loc * (1 + limit.tolerance))


# The step of one loop as a planner writes it: small, with a risk, and with what to avoid.

STEP: Final = "step"  # the name of the artifact
LOOPS: Final = "loops"  # and of the one with the plan of all loops up front
MOST_LINES: Final = 50  # of instructions
STEP_LIMIT: Final = SizeLimit(max_loc=150, max_files=2)


class RiskRow(NamedTuple):
    operations: tuple[str, ...]
    needs_person: bool
    meaning: str


RISKS: Final[dict[Risk, RiskRow]] = {
    Risk.LOW: RiskRow(
        ("refactor", "documentation", "tests", "comments"),
        needs_person=False,
        meaning="the judge may pass it alone",
    ),
    Risk.MEDIUM: RiskRow(
        ("api_changes", "schema_migrations", "dependencies", "configuration"),
        needs_person=True,
        meaning="a person agrees before it is done",
    ),
    Risk.HIGH: RiskRow(
        ("authentication", "authorization", "data_deletion", "secrets_management", "deployment"),
        needs_person=True,
        meaning="a person agrees before it is done, and everybody is told",
    ),
}


class StepSpec(Record):
    objective: NonEmptyStr
    instructions: NonEmptyStr
    files: Annotated[tuple[NonEmptyStr, ...], Field(min_length=1)]
    loc_estimate: Count
    risk: Risk
    success_criteria: Annotated[tuple[NonEmptyStr, ...], Field(min_length=1)]
    avoid: Annotated[tuple[NonEmptyStr, ...], Field(min_length=1)]
    operations: tuple[NonEmptyStr, ...] = ()  # words of `RISKS`, where they fit


class IssuedStep(StepSpec):
    """A step as it was given out, with the commit that it begins at."""

    base: Commit


def issued_step(artifacts: Mapping[str, Artifact]) -> IssuedStep | None:
    """Return the step that a task is at; None where nobody plans in steps."""
    if STEP not in artifacts:
        return None
    try:
        return IssuedStep.model_validate_json(artifacts[STEP].text)
    except ValidationError:  # another workflow calls something else so
        return None


def step_risk(step: StepSpec) -> Risk:
    """Return the risk of a step: what the planner says, or more where what it names is riskier."""
    named = [level for level, row in RISKS.items() if set(row.operations) & set(step.operations)]
    return max([step.risk, *named], key=list(RISKS).index)


def step_problems(step: StepSpec, *, is_waived: bool = False) -> tuple[str, ...]:
    """Return why a step cannot be given to anybody; nothing where it can."""
    size = oversize(ChangeSize(step.loc_estimate, len(step.files)), STEP_LIMIT, is_waived=is_waived)
    lines = len(step.instructions.splitlines())
    long = [f"the instructions have {lines} lines, and {MOST_LINES} may be"] if lines > MOST_LINES else []
    return tuple(f"{problem}; split the step over several loops" for problem in [*size, *long])


LONGEST_QUOTE: Final = 40  # characters of a value in a remark
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


# Coercion of an answer into the schema of its step, and the tables of other words for the same.
#
# Only what has one meaning is coerced: another case or inflection of an enum word, one text for a list, a
# text for a record with one main field. A key given twice with different values is a contradiction and is
# refused.

BLANK_WORDS: Final = frozenset(
    {"", "-", "[]", "{}", "false", "n/a", "na", "nil", "no", "none", "nothing", "null"}
)
KEY_SIMILARITY: Final = 0.84  # from which likeness on an unknown key is a known one with a slip of the pen

_ITEM: Final = re.compile(r"\s*(?:[-*•]|\d{1,3}[.)])\s+(\S.*)")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# What stands around a word without changing it; a cross does not, nor does a question mark.
_INVISIBLE: Final = "\N{NO-BREAK SPACE}\N{VARIATION SELECTOR-16}\N{ZERO WIDTH SPACE}\N{WORD JOINER}"
_PUNCTUATION: Final = f" \t`'\"*.!,;“”\u2018\u2019✅✔✓☑{_INVISIBLE}"


class Contradiction(ValueError):
    """An answer says one thing in two ways that do not agree."""


@dataclass(frozen=True)
class CoercionTables:
    """Coercion tables, by record type."""

    words: Mapping[type[StrEnum], Mapping[str, str]]  # other words for the closed ones
    keys: Mapping[type[BaseModel], Mapping[str, str]]  # other names of keys
    texts: Mapping[type[BaseModel], Callable[[str], object]]  # what a bare text stands for
    lists: Mapping[type[BaseModel], Callable[[list[str]], object]]  # what a list of texts stands for
    records: Mapping[type[BaseModel], Callable[[list[Mapping[str, object]]], object]]  # of records
    groups: Mapping[type[BaseModel], Callable[[Mapping[str, object]], object]]  # a list that names its parts
    cleaned: Mapping[tuple[type[BaseModel], str], Callable[[str], str]]  # what is made of a field's text
    ornaments: Collection[tuple[type[BaseModel], str]]  # fields that are dropped where they cannot be read
    commands: Collection[tuple[type[BaseModel], str]]  # fields that are run by a shell
    names: Collection[str]  # fields whose text may list several names or paths


@dataclass
class Coercer:
    """Coerces one answer, and collects remarks for the transcript."""

    manners: CoercionTables
    remarks: list[str] = field(default_factory=list)
    dropped: dict[str, object] = field(default_factory=dict)  # what nobody asked for, by key
    unread: dict[str, object] = field(default_factory=dict)  # ornaments that say nothing, by place

    def record(self, kind: type[BaseModel], value: object, at: str = "") -> object:
        """Return *value* with the keys and values of *kind*, as far as it is plain what they are."""
        value = self._expand_shorthand(kind, _only_item(value))
        if not isinstance(value, Mapping):
            return value
        found: dict[str, object] = {}
        for key, inner in value.items():
            name = self._field_named(kind, str(key), value)
            if name is None:
                self._drop(at, str(key), inner)
                continue
            shaped = self._field_value(kind, name, inner, f"{at}.{key}" if at else str(key))
            if name in found and found[name] != shaped:
                raise Contradiction(f"{key} is given twice and does not say the same; say it once")
            found[name] = shaped
        return {name: inner for name, inner in found.items() if inner is not _ABSENT}

    def _expand_shorthand(self, kind: type[BaseModel], value: object) -> object:
        """Return the record that a text, a list, a lone `a: b` or a record under one more key stands for."""
        texts, lists, records = self.manners.texts, self.manners.lists, self.manners.records
        value = merge_single_keys(value)
        if isinstance(value, Mapping) and len(value) == 1 and not self._has_known_key(kind, value):
            (inner,) = value.values()
            value = inner if self._has_known_key(kind, inner) else _as_text(value)
        if isinstance(value, str) and kind in texts and not _is_blank(value):
            return texts[kind](value)
        if isinstance(value, list) and kind in lists and all(isinstance(one, str) for one in value):
            return lists[kind](value)
        if isinstance(value, list) and kind in records and all(isinstance(one, Mapping) for one in value):
            return records[kind](value)
        return value

    def _has_known_key(self, kind: type[BaseModel], value: object) -> bool:
        return isinstance(value, Mapping) and bool(
            {_normal_form(str(key)) for key in value} & self._known(kind)
        )

    def _known(self, kind: type[BaseModel]) -> set[str]:
        return {*_field_names(kind), *self.manners.keys.get(kind, {})}

    def _field_named(self, kind: type[BaseModel], key: str, beside: Mapping[str, object]) -> str | None:
        """Return the field that *key* means: by its letters, by another name, or by a slip of the pen."""
        known = _field_names(kind)
        others = self.manners.keys.get(kind, {})
        for word in (_normal_form(key), _normal_form(_CAMEL.sub("_", key))):
            if word in known:
                return known[word]
            if word in others and others[word] not in {_normal_form(name) for name in beside}:
                return known[others[word]]
        near = difflib.get_close_matches(_normal_form(key), known, n=1, cutoff=KEY_SIMILARITY)
        if near and near[0] not in {_normal_form(name) for name in beside}:
            self.remarks.append(f"{key!r} was read as {near[0]!r}")
            return known[near[0]]
        return None

    def _drop(self, at: str, key: str, value: object) -> None:
        name = f"{at}.{key}" if at else key
        self.remarks.append(f"{name!r} was not asked for, and was left out")
        if not _is_blank(value):
            self.dropped[name] = value

    def _field_value(self, kind: type[BaseModel], name: str, value: object, at: str) -> object:
        info = kind.model_fields[name]
        # `risks: none` is a text; `spec_ref: none` is none.
        is_text = _kind_of(info.annotation) is str and not _is_optional(info.annotation)
        value = self._clean(kind, name, value)
        if _is_blank(value) and not info.is_required() and not (is_text and isinstance(value, str)):
            return _ABSENT
        shaped = self._value(info.annotation, value, at)
        if (kind, name) in self.manners.ornaments and not _is_valid_for(info, shaped):
            self.remarks.append(f"{at} is {_abbreviate(value)!r}, which says nothing here, and was left out")
            self.unread[at] = value
            return _ABSENT
        if name in self.manners.names and isinstance(shaped, list):
            return [part for item in shaped for part in _split_names(item)]
        return shaped

    def _clean(self, kind: type[BaseModel], name: str, value: object) -> object:
        clean = self.manners.cleaned.get((kind, name))
        if isinstance(value, list) and (kind, name) in self.manners.commands:
            return shell_command_of(value) if all(isinstance(item, str) for item in value) else value
        if isinstance(value, list) and name in self.manners.names:
            value = [_path_of(item) for item in value]
        if clean is None:
            return value
        if isinstance(value, list):
            return [clean(item) if isinstance(item, str) else item for item in value]
        if isinstance(value, str) and name in self.manners.names:
            return [clean(str(part)) for part in _split_names(value)]
        return clean(value) if isinstance(value, str) else value

    def _value(self, annotation: object, value: object, at: str) -> object:
        annotation = _bare_annotation(annotation)
        if get_origin(annotation) is tuple:
            return self._list(get_args(annotation)[0], value, at)
        kind = _kind_of(annotation)
        if kind is None:
            return value
        if issubclass(kind, StrEnum):
            return self._word(kind, _only_item(value))
        if issubclass(kind, BaseModel):
            return self.record(kind, value, at)
        return _as_text(value) if kind is str else _only_item(value)

    def _list(self, inner: object, value: object, at: str) -> object:
        kind = _kind_of(inner)
        if _is_blank(value):
            return []
        if isinstance(value, str):
            value = _list_items(value)
        elif isinstance(value, Mapping):
            value = self._list_from_mapping(kind, value)
        value = self._with_groups(kind, value)
        if not isinstance(value, list):
            return value
        found = (self._value(inner, item, f"{at}[{number}]") for number, item in enumerate(value))
        return [item for item in found if not _is_blank(item)]

    def _with_groups(self, kind: type | None, value: object) -> object:
        """Return a list in which each item stands for itself: `blockers: [a, b]` are two of them."""
        if kind is None or not issubclass(kind, BaseModel) or not isinstance(value, list):
            return value
        split = self.manners.groups.get(kind)
        if split is None:
            return value
        found: list[object] = []
        for item in value:
            is_group = isinstance(item, Mapping) and not self._has_known_key(kind, item)
            parts = split(item) if is_group else item
            found += parts if isinstance(parts, list) else [item]
        return found

    def _list_from_mapping(self, kind: type | None, value: Mapping[str, object]) -> object:
        """Return the list that a mapping stands for: one record, or one for each name."""
        if kind is str:
            return [{key: inner} for key, inner in value.items()]
        if kind is None or not issubclass(kind, BaseModel):
            return [value]
        is_named = "id" in kind.model_fields and all(isinstance(one, Mapping) for one in value.values())
        return [{"id": key, **_mapping(one)} for key, one in value.items()] if is_named else [value]

    def _word(self, kind: type[StrEnum], value: object) -> object:
        if not isinstance(value, str):
            return value
        word = _normal_form(value.strip(_PUNCTUATION))
        known = {_normal_form(member.value): member.value for member in kind}
        return known.get(word) or self.manners.words.get(kind, {}).get(word) or value


_ABSENT: Final = object()


def merge_single_keys(value: object) -> object:
    """Return the record that a list of single keys stands for: `- status: done` and `- summary: x`."""
    if not isinstance(value, list) or len(value) < 2:  # noqa: PLR2004 - one is no list of keys
        return value
    if not all(isinstance(one, Mapping) and len(one) == 1 for one in value):
        return value
    merged = {key: inner for one in value for key, inner in one.items()}
    return merged if len(merged) == len(value) else value


def unwrap(value: object, known: Collection[str]) -> object:
    """Return the mapping inside *value* that has one of the *known* keys, where exactly one has."""
    merged = merge_single_keys(value)
    if isinstance(merged, Mapping) and {_normal_form(str(key)) for key in merged} <= set(known):
        value = merged
    outer = value = _only_item(value)
    for _ in range(4):  # levels: a list of history, an entry of it, its checkpoint
        if not isinstance(value, Mapping):
            return outer
        if {_normal_form(str(key)) for key in value} & set(known):
            return value
        fitting = [one for one in map(_only_item, value.values()) if isinstance(one, Mapping)]
        if len(fitting) != 1:
            return outer
        value = fitting[0]
    return outer


def keys_of(kind: type[BaseModel]) -> set[str]:
    """Return every key that may stand in a record of *kind*, at any depth."""
    found: set[str] = set()
    waiting, seen = [kind], set()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        found |= set(_field_names(one))
        for info in one.model_fields.values():
            waiting += _records_in(info.annotation)
    return found


def _records_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for inner in get_args(annotation) for kind in _records_in(inner)]


def _field_names(kind: type[BaseModel]) -> dict[str, str]:
    """Return the fields of *kind* by what a key may be: their names, and what they are called in a file."""
    both = ((alias or name, name) for name, info in kind.model_fields.items() for alias in (info.alias, None))
    return {_normal_form(word): name for word, name in both}


def _normal_form(word: str) -> str:
    return re.sub(r"[\s-]+", "_", word.strip(_PUNCTUATION).casefold())


def _bare_annotation(annotation: object) -> object:
    """Return *annotation* without what is optional or annotated about it."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in {UnionType, Union}:
            inner = [one for one in get_args(annotation) if one is not type(None)]
            if len(inner) != 1:
                return annotation
            annotation = inner[0]
        else:
            return annotation


def _is_optional(annotation: object) -> bool:
    return get_origin(annotation) in {UnionType, Union} and type(None) in get_args(annotation)


def _kind_of(annotation: object) -> type | None:
    bare = _bare_annotation(annotation)
    return bare if isinstance(bare, type) else None


def _only_item(value: object) -> object:
    """Return the one thing in a list of one."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _is_blank(value: object) -> bool:
    if isinstance(value, str):
        return value.strip(" .").casefold() in BLANK_WORDS
    return value is None or value is _ABSENT or value in ([], {})


def _list_items(text: str) -> list[object]:
    """Return the items of a text that lists some, one a line; any other text is one item."""
    lines = [line for line in text.split("\n") if line.strip()]
    items = [_ITEM.fullmatch(line) for line in lines]
    if len(lines) > 1 and all(items):
        return [item[1] for item in items if item]
    return [text]


def _split_names(item: object) -> list[object]:
    """Return the names in *item*: several only where commas part words without blanks."""
    if not isinstance(item, str):
        return [item]
    parts = [part.strip(" `'\"") for part in re.split(r",|\n", item)]
    return [part for part in parts if part] if not any(" " in part for part in parts) else [item]


def _path_of(item: object) -> object:
    """Return the path of a record about a file, such as `{path: a.py, change: add greet}`."""
    if isinstance(item, Mapping):
        return next((item[key] for key in ("path", "file", "filename", "name") if key in item), item)
    return item


def _as_text(value: object) -> object:
    """Return a text that was written as something else: a list of sentences, or `a: b` without quotes."""
    value = _only_item(value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "; ".join(value)
    if isinstance(value, Mapping) and value and all(_is_plain(inner) for inner in value.values()):
        return "; ".join(
            f"{key}: {inner}" if inner is not None else f"{key}:" for key, inner in value.items()
        )
    return value


def _is_plain(value: object) -> bool:
    return value is None or isinstance(value, str)


def _is_valid_for(info: Any, value: object) -> bool:  # noqa: ANN401 - a field of pydantic's
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - only where an ornament is given

    try:
        kind: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


def _abbreviate(value: object) -> str:
    text = str(value)
    return text if len(text) <= LONGEST_QUOTE else f"{text[: LONGEST_QUOTE - 1]}…"


# Tables for lenient parsing of answers: synonyms of enum words, aliases of keys, texts for records.
#
# A word stands here only if it has one meaning. Only `approve` approves, in any case or inflection: a
# verdict is never guessed.


def _synonyms(**words: str) -> dict[str, str]:
    """Return a mapping from each listed word to its meaning."""
    return {word: meaning for meaning, listed in words.items() for word in listed.split()}


ENUM_SYNONYMS: Final[Mapping[type[StrEnum], Mapping[str, str]]] = {
    WorkStatus: _synonyms(
        done="complete completed finished implemented success succeeded task_completed task_complete "
        "completed_successfully successfully_completed all_done",
        blocked="block stuck",
        nothing_to_do="nothing nothing_to_be_done no_op noop no_change no_changes no_changes_needed "
        "already_done",
    ),
    Readiness: _synonyms(blocked="block stuck", ready="ok go proceed begin"),
    Ruling: _synonyms(
        approve="approved approves",
        reject="rejected rejects rejection request_changes requested_changes changes_requested needs_work "
        "revise needs_changes changes_needed changes_required needs_revision needs_fixes decline declined "
        "denied fail failed ❌_reject ❌_rejected",
        block="blocked blocks",
    ),
    FeedbackStatus: _synonyms(
        addressed="fixed resolved done mended closed solved",
        partial="partially partly partially_addressed partially_fixed incomplete",
        open="unaddressed not_addressed unresolved not_resolved not_fixed still_open unfixed",
    ),
    TaskKind: _synonyms(
        code="coding feature bug bugfix bug_fix fix refactor refactoring implementation",
        docs="doc documentation document",
        config="configuration conf settings",
    ),
    Severity: _synonyms(
        blocker="block blocking blocks critical severe major high error must must_fix fatal showstopper",
        concern="concerns minor medium moderate low nit nitpick info note remark suggestion warning "
        "trivial style optional nice_to_have praise positive",
    ),
    Risk: _synonyms(
        low="none minimal negligible trivial minor very_low",
        medium="moderate mid low_to_medium",
        high="severe critical major very_high medium_to_high",
    ),
    TestsEnd: _synonyms(
        passed="pass passing green all_green all_passed ok success", failed="fail failing red"
    ),
    Urgency: _synonyms(
        immediate="urgent now high critical asap", deferred="later defer low medium minor normal"
    ),
}
KEY_ALIASES: Final[Mapping[type[BaseModel], Mapping[str, str]]] = {
    PlannedTask: _synonyms(
        id="name key",
        description="title summary what",
        done_when="acceptance_criteria criteria acceptance",
        depends_on="dependencies depends deps",
        needs="labels requires",
        spec_ref="spec",
        scope="files paths",
    ),
    TaskScope: _synonyms(**{"in": "includes included files paths", "out": "excludes excluded"}),
    Validation: _synonyms(command="cmd run commands", expect="expected expected_output expects output"),
    CheckpointAnswer: _synonyms(
        files_to_modify="files files_to_change files_to_create", blocked_questions="questions question"
    ),
    Implement: _synonyms(
        status="result outcome",
        summary="message description",
        blocked_questions="questions question",
        discovered="discoveries",
    ),
    Feedback: _synonyms(
        message="comment text issue problem description", file="path filename", line="line_number lines",
        suggestion="fix recommendation suggested_fix",
    ),
    Review: _synonyms(reason="rationale reasoning explanation justification summary", feedback="comments"),
    PriorFeedback: _synonyms(message="point feedback item"),
    FoundWork: _synonyms(description="what message text"),
    UnblockDecision: _synonyms(guidance="reason message"),
    AbandonDecision: _synonyms(reason="why"),
}  # fmt: skip
# What may stand beside an approval without being asked for. All else could take it back.
HARMLESS_KEYS: Final = frozenset(
    {
        *("checked", "checks", "comment", "date", "done_when", "files_changed", "files_reviewed"),
        *("iteration", "model", "note", "notes", "praise", "priority", "reviewer", "role", "score", "step"),
        *("strengths", "summary", "tests", "tests_run", "timestamp", "usage"),
    }
)

_ARROW: Final = re.compile(r"\s*(?:->|→|=>|⇒)\s*")
_IN_BACKTICKS: Final = re.compile(r"[^`]*`([^`]+)`[\s,;.:]*(.*)", re.DOTALL)
_SUCCEEDS: Final = re.compile(
    r"\s+(?:should\s+|must\s+|will\s+|all\s+)?(?:pass(?:es)?|succeeds?|is\s+green|exits\s+(?:with\s+)?0)\.?$",
    re.IGNORECASE,
)
_RUN: Final = re.compile(r"^(?:run|execute|running)\s+(?=\S)", re.IGNORECASE)
_EXPECTED: Final = re.compile(
    r"\s*[,;:]?\s*\b(?:expect(?:ed|s|ing)?(?:\s+output)?|prints?|outputs?|shows?)\b[:\s]+(.*)", re.IGNORECASE
)
_SCOPE_SIDE: Final = re.compile(r"\b(in|out)(?:\s+of\s+scope)?\s*:", re.IGNORECASE)
_PATH: Final = re.compile(r"[\w.@*-]+(?:/[\w.@*-]*)+|[\w*-]+\.\w{1,8}\b|\*\.\w+")
_PROGRESS: Final = re.compile(r"(.*\S)\s*(?::|->|→|-|\()\s*([\w -]+?)\)?\s*", re.DOTALL)
_SEVERITY_PREFIX: Final = re.compile(
    r"[\s*_`]*(?:[\[(][*_`]*(?P<marked>[A-Za-z][A-Za-z -]*)[*_`]*[\])][*_`]*\s*:?"
    r"|(?P<plain>[A-Za-z][A-Za-z-]*(?: [A-Za-z]+)?)[*_`]*(?:\s*:[*_`]*|\s+[-\u2013\u2014]))"
    r"\s+(?P<rest>.*\S)\s*",
    re.DOTALL,
)
_STOP_SIGNS: Final = tuple("🛑⛔❌🚫")  # a remark that begins with one says that it blocks
_LOCATION_PREFIX: Final = re.compile(r"([\w./-]+\.\w+):(\d+)(?:[:,-]\d+)*:?\s+(.*\S)", re.DOTALL)


def validation_in(text: str) -> object:
    """Return the command, and what it prints, in a text such as "`pytest -q` -> 3 passed"."""
    command, expect = text.strip(), ""
    if ticked := _IN_BACKTICKS.fullmatch(command):
        command, rest = ticked[1], ticked[2]
        said = _EXPECTED.match(rest) or re.match(r"\s*(?:->|→|=>)\s*(.*)", rest)
        expect = said[1] if said else ""
    elif len(parts := _ARROW.split(command, maxsplit=1)) == 2:  # noqa: PLR2004 - what is before and behind it
        command, expect = parts
    elif said := _EXPECTED.search(command):
        command, expect = command[: said.start()], said[1]
    return {"command": _SUCCEEDS.sub("", _RUN.sub("", command)).strip(" `"), "expect": expect.strip()}


def shell_line_in(text: str) -> str:
    """Return a command without the backticks around it, or the prompt before it."""
    bare = text.strip(" `") if text.count("`") == 2 else text  # noqa: PLR2004 - one before and one behind
    return bare.removeprefix("$ ")


def shell_command_of(parts: list[str]) -> str:
    """Return a list as one command: the words of one where no part has a blank, else commands in turn."""
    return (" && " if any(" " in part.strip() for part in parts) else " ").join(
        part.strip() for part in parts
    )


def validation_of_several(records: list[Mapping[str, object]]) -> object:
    """Return several validations as one: all commands, and what one of them says that is printed."""
    named = [{_normal_form(str(key)): inner for key, inner in one.items()} for one in records]
    commands = [str(one["command"]) for one in named if isinstance(one.get("command"), str)]
    expected = {str(one["expect"]) for one in named if not _is_blank(one.get("expect"))}
    if len(commands) < len(records) or len(expected) > 1:
        return list(records)
    return {"command": " && ".join(commands), "expect": next(iter(expected), "")}


def feedback_by_weight(group: Mapping[str, object]) -> object:
    """Return the feedback that stands below its weight, `blockers: [a, b]`, or below its file."""
    found: list[object] = []
    for key, inner in group.items():
        word = _normal_form(key)
        weight = next((one for one in (word, word.removesuffix("s")) if _is_weight(one)), None)
        for item in inner if isinstance(inner, list) else [inner]:
            about = feedback_in(item) if isinstance(item, str) and weight else item
            if isinstance(about, Mapping):
                found.append({"severity": weight, **about} if weight else {"file": key, **about})
            elif isinstance(item, str):
                found.append(feedback_in(f"{key}: {item}"))
            elif item is not None:
                return group
    return found


def _is_weight(word: str) -> bool:
    return word in set(Severity) or word in ENUM_SYNONYMS[Severity]


def scope_in(text: str) -> object:
    """Return the paths in a text such as "IN: src/a.py, OUT: docs"; words that are no paths bound nothing."""
    sides = _SCOPE_SIDE.split(text)
    if len(sides) == 1:
        return {"in": paths_named_in(text)}
    found: dict[str, list[str]] = {"in": paths_named_in(sides[0]), "out": []}
    for side, listed in zip(sides[1::2], sides[2::2], strict=True):
        found[side.casefold()] += paths_named_in(listed)
    return found


def paths_named_in(text: str) -> list[str]:
    text = text.strip(" \n`'\",;.") if " " not in text.strip() else text
    if text and not re.search(r"[\s,;]", text):
        return [text]
    return [path.rstrip(".") for path in _PATH.findall(text)]


def prior_feedback_in(text: str) -> object:
    """Return an earlier point and its status; None where the text gives no status."""
    match = _PROGRESS.fullmatch(text)
    word = re.sub(r"[\s-]+", "_", match[2].strip().casefold()) if match else ""
    if match and (word in set(FeedbackStatus) or word in ENUM_SYNONYMS[FeedbackStatus]):
        return {"message": match[1].strip(), "status": word}
    return None


def feedback_in(text: str) -> object:
    """Return a feedback record, with the severity and the file and line that the text begins with."""
    found: dict[str, str] = {"message": text}
    bare = text.strip().lstrip("".join(_STOP_SIGNS)).lstrip("\N{VARIATION SELECTOR-16} ")
    weighed = _SEVERITY_PREFIX.fullmatch(bare)
    word = _normal_form(weighed["marked"] or weighed["plain"]) if weighed else ""
    if weighed and _is_weight(word):
        found = {"message": weighed["rest"], "severity": word}
    elif text.strip().startswith(_STOP_SIGNS) and bare:
        found = {"message": bare, "severity": Severity.BLOCKER.value}
    if place := _LOCATION_PREFIX.fullmatch(found["message"]):
        found |= {"file": place[1], "line": place[2], "message": place[3]}
    return found


def first_number(text: str) -> str:
    """Return the first line of `10-12`, `L10` or `lines 10 to 12`."""
    match = re.match(r"\s*(?:lines?|l)?\s*(\d+)", text, re.IGNORECASE)
    return match[1] if match else text


def score_of_ten(text: str) -> str:
    """Return the score in `8/10` or `80 %`; what names no scale is none."""
    if match := re.fullmatch(r"\s*(\d+)\s*/\s*10\s*", text):
        return match[1]
    percent = re.fullmatch(r"\s*(\d+)\s*%\s*", text)
    return str(int(percent[1]) // 10) if percent else text


def id_in(text: str) -> str:
    """Return an id for a name with blanks in it; what would be a path stays one, and is refused."""
    return re.sub(r"[\s:,#()\[\]'\"`]+", "-", text.strip()).strip("-")


COERCION_TABLES: Final = CoercionTables(
    words=ENUM_SYNONYMS,
    keys=KEY_ALIASES,
    texts={
        Validation: validation_in,
        TaskScope: scope_in,
        Feedback: feedback_in,
        PriorFeedback: prior_feedback_in,
        FoundWork: lambda text: {"description": text},
        UnblockDecision: lambda text: {"guidance": text},
        AbandonDecision: lambda text: {"reason": text},
        Remembered: lambda text: {"type": "KEY_FACT", "text": text},
    },
    lists={
        Validation: lambda parts: {"command": shell_command_of(parts)},
        TaskScope: lambda parts: {"in": parts},
    },
    records={Validation: validation_of_several},
    groups={Feedback: feedback_by_weight},
    cleaned={
        (Validation, "command"): shell_line_in,
        (Feedback, "line"): first_number,
        (Review, "confidence"): score_of_ten,
        (Implement, "confidence"): score_of_ten,
        (Implement, "step"): lambda text: "" if text.strip().casefold() in set(Step) else text,
        (PlannedTask, "id"): id_in,
        (PlannedTask, "depends_on"): id_in,
    },
    ornaments=frozenset(
        {
            (Review, "confidence"),
            (Implement, "confidence"),
            (Implement, "tests_ended"),
            (Feedback, "line"),
            (Feedback, "severity"),
            (FoundWork, "urgency"),
            (CheckpointAnswer, "status"),
        }
    ),
    commands=frozenset({(Validation, "command")}),
    names=frozenset({"depends_on", "files_to_modify", "include", "exclude"}),
)
