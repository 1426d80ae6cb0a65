"""What an agent answered: the last fenced block tagged `liza` in its reply, as a value of its step.

An agent's words are untrusted and often sloppy. The text around the block is cleaned (line ends, tabs,
colours); what the block says is not mended: an answer that is cut, belongs to another step or contradicts
itself is unreadable, with a sentence that can be sent back. The last block counts even where an earlier one
would read better, since a verdict that was taken back must not come true.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from graphlib import CycleError, TopologicalSorter
from typing import Annotated, Any, Final, NamedTuple, Self

from pydantic import BeforeValidator, Field, ValidationError, model_validator

from liza.anomalies import (
    AssumptionViolated,
    DebtCreated,
    ExternalBlocker,
    HypothesisExhaustion,
    RetryLoop,
    ScopeDeviation,
    SpecAmbiguity,
    SpecChanged,
    SpecGap,
    TradeOff,
    Workaround,
)
from liza.model import Checkpoint, Kind, Role, Scope, Urgency, Validation
from liza.problems import explained
from liza.record import Id, Line, Record
from liza.spending import Reported
from liza.text.emit import UNFIT
from liza.text.parse import BadYaml, parse
from liza.verdicts import Feedback

TAG: Final = "liza"
USAGE: Final = "usage"  # beside any answer: what the agent says that its run cost
MOST_PROBLEMS: Final = 3  # problems that one sentence names: an agent mends the first and then sees the rest
MOST_EARLIER: Final = (
    20  # earlier answers that the last is compared with; thousands would take seconds to read
)


class Step(StrEnum):
    """What an agent is asked to do in one run."""

    PLAN = "plan"
    REPLAN = "replan"
    CHECKPOINT = "checkpoint"
    IMPLEMENT = "implement"
    REVIEW = "review"


ROLES: Final[dict[Step, Role]] = {
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
    r"(?:add|write|create|extend)\s+(?:(?:more|missing|unit|integration|acceptance|regression|the)\s+)*tests?\b",
    re.IGNORECASE,
)


class Planned(Record):
    """A task as a planner proposes it."""

    id: Id
    description: Line
    done_when: Annotated[tuple[Line, ...], Field(min_length=1)]
    scope: Scope = Scope()
    depends_on: tuple[Id, ...] = ()
    spec_ref: Line | None = None
    kind: Kind = Kind.CODE
    validation: Validation | None = None

    @model_validator(mode="after")
    def _is_more_than_tests(self) -> Self:
        paths = self.scope.include
        only_tests = bool(paths) and all(_TEST_PATH.search(path) for path in paths)
        if self.kind is Kind.CODE and (only_tests or _ADDS_TESTS.match(self.description)):
            message = (
                f"{self.id} only adds tests; a code task brings its own tests, so put them into that task"
            )
            raise ValueError(message)
        return self


def _in_order(tasks: tuple[Planned, ...]) -> None:
    """Raise ValueError where *tasks* share an id or wait for each other."""
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


def _exactly_one(record: Record, *names: str) -> None:
    given = [name for name in names if getattr(record, name)]
    if len(given) != 1:
        listed = ", ".join(names[:-1])
        found = " and ".join(given) if given else "none of them"
        message = f"give exactly one of {listed} or {names[-1]} (there is {found})"
        raise ValueError(message)


class Plan(Record):
    """The tasks that reach the goal, or what has to be known first."""

    tasks: tuple[Planned, ...] = ()
    questions: tuple[Line, ...] = ()

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        _exactly_one(self, "tasks", "questions")
        _in_order(self.tasks)
        return self


class Unblocked(Record):
    guidance: Line


class Abandoned(Record):
    reason: Line


class Replan(Record):
    """What becomes of a BLOCKED task."""

    tasks: tuple[Planned, ...] = ()
    rescope_reason: Line | None = None
    unblock: Unblocked | None = None
    abandon: Abandoned | None = None
    questions: tuple[Line, ...] = ()

    @model_validator(mode="after")
    def _is_one_thing(self) -> Self:
        _exactly_one(self, "tasks", "unblock", "abandon", "questions")
        if bool(self.tasks) != bool(self.rescope_reason):
            message = "tasks that replace another come with a rescope_reason, and nothing else does"
            raise ValueError(message)
        _in_order(self.tasks)
        return self


def _joined(value: object) -> object:
    """Take a list of risks for the text that it makes; agents write either."""
    return "; ".join(map(str, value)) if isinstance(value, list | tuple) else value


class CheckpointAnswer(Checkpoint):
    """What a coder says before it implements."""

    risks: Annotated[str, BeforeValidator(_joined)] = ""

    def checkpoint(self) -> Checkpoint:
        """Return it as the board keeps it."""
        return Checkpoint.model_validate(self.model_dump())


AgentAnomaly = (
    RetryLoop
    | TradeOff
    | DebtCreated
    | AssumptionViolated
    | Workaround
    | SpecAmbiguity
    | SpecGap
    | SpecChanged
    | ExternalBlocker
    | ScopeDeviation
    | HypothesisExhaustion
)
# The other types of anomaly are facts that only Liza states: conflicts, drift, crash loops.
ANOMALIES: Final[dict[str, type[Record]]] = {
    kind.model_fields["type"].default: kind
    for kind in (
        RetryLoop,
        TradeOff,
        DebtCreated,
        AssumptionViolated,
        Workaround,
        SpecAmbiguity,
        SpecGap,
        SpecChanged,
        ExternalBlocker,
        ScopeDeviation,
        HypothesisExhaustion,
    )
}


def _anomaly(value: object) -> object:
    """Read an anomaly with its details beside its type or below `details`, as the contract shows them."""
    if not isinstance(value, Mapping):
        return value
    kind = ANOMALIES.get(str(value.get("type")))
    if kind is None:
        message = f"{value.get('type')!r} is no type of anomaly; use one of {', '.join(ANOMALIES)}"
        raise ValueError(message)
    details = value.get("details")
    flat = {**details, "type": value["type"]} if isinstance(details, Mapping) and len(value) <= 2 else value  # noqa: PLR2004
    try:
        return kind.model_validate(flat)
    except ValidationError as error:
        message = "; ".join(map(str, explained(error, kind, str(value["type"]), {})))
        raise ValueError(message) from error


class Found(Record):
    """Work that an agent saw beside its task."""

    description: Line
    urgency: Urgency = Urgency.DEFERRED


class Outcome(StrEnum):
    DONE = "done"
    BLOCKED = "blocked"
    NOTHING_TO_DO = "nothing_to_do"


class Implement(Record):
    """What a coder says of its work; what it did is read from git."""

    status: Outcome
    summary: str = ""
    blocked_reason: Line | None = None
    blocked_questions: Annotated[tuple[Line, ...], Field(max_length=3)] = ()
    anomalies: tuple[Annotated[AgentAnomaly, BeforeValidator(_anomaly)], ...] = ()
    discovered: tuple[Found, ...] = ()

    @model_validator(mode="after")
    def _says_what_its_status_needs(self) -> Self:
        blocked = self.status is Outcome.BLOCKED
        if blocked and not (self.blocked_reason and self.blocked_questions):
            raise ValueError("a blocked task needs a blocked_reason and one to three blocked_questions")
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


class Progress(StrEnum):
    ADDRESSED = "addressed"
    PARTIAL = "partial"
    OPEN = "open"


class PriorFeedback(Record):
    """What became of something that an earlier review asked for."""

    message: Line
    status: Progress
    note: str | None = None


class Review(Record):
    verdict: Ruling
    reason: Line
    feedback: tuple[Feedback, ...] = ()
    confidence: Annotated[int, Field(ge=0, le=10)] | None = None
    prior_feedback: tuple[PriorFeedback, ...] = ()

    @model_validator(mode="after")
    def _a_rejection_can_be_acted_on(self) -> Self:
        if self.verdict is Ruling.REJECT and not self.feedback:
            raise ValueError("a rejection needs feedback: at least one message that the coder can act on")
        return self


Value = Plan | Replan | CheckpointAnswer | Implement | Review

KINDS: Final[dict[Step, type[Value]]] = {
    Step.PLAN: Plan,
    Step.REPLAN: Replan,
    Step.CHECKPOINT: CheckpointAnswer,
    Step.IMPLEMENT: Implement,
    Step.REVIEW: Review,
}


class Answer(NamedTuple):
    """What was answered, and what a person reading along should know about how."""

    value: Value
    remarks: tuple[str, ...] = ()


class Unreadable(NamedTuple):
    """There is no answer; *why* is a sentence that can be sent back to the agent."""

    why: str


def answer(text: str, step: Step, *, prompt: str = "") -> Answer | Unreadable:
    """Return the answer to *step* in the reply *text*; an example that *prompt* shows is no answer."""
    echoes = {block.body for block in blocks(prompt)}
    found = [block for block in blocks(text) if block.body not in echoes]
    if not found:
        return Unreadable(
            f"the reply has no answer to the {step} step: end it with a line ```{TAG}, the answer as YAML, "
            "and a line ```"
        )
    value = _read(found[-1], step)
    if isinstance(value, Unreadable):
        return value
    return Answer(value, _remarks(found[:-1], value, step))


def reported(text: str, *, prompt: str = "") -> Reported | None:
    """Return the `usage` that an agent gives beside its last answer, if it is there and makes sense."""
    echoes = {block.body for block in blocks(prompt)}
    found = [block for block in blocks(text) if block.body not in echoes and block.is_closed]
    try:
        return Reported.model_validate(parse(found[-1].body).data[USAGE]) if found else None
    except (BadYaml, KeyError, ValidationError):
        return None  # money is then estimated, which is no reason to lose an answer


def _remarks(earlier: list[Block], value: Value, step: Step) -> tuple[str, ...]:
    others = (_read(block, step) for block in earlier[-MOST_EARLIER:] if block.is_closed)
    differing = sum(1 for other in others if not isinstance(other, Unreadable) and other != value)
    if not differing:
        return ()
    count = "an earlier answer" if differing == 1 else f"{differing} earlier answers"
    return (f"{count} to the {step} step in the same reply said something else; the last one counts",)


def _read(block: Block, step: Step) -> Value | Unreadable:
    if not block.is_closed:
        return Unreadable(
            f"the answer to the {step} step is not closed and may be cut: end it with a line ```"
        )
    try:
        data, lines = parse(block.body)
    except BadYaml as error:
        return Unreadable(f"the answer to the {step} step is not readable as YAML: {error}")
    data.pop(USAGE, None)  # what the run cost is no part of the answer
    if blank := next(_blanks(data), None):
        return Unreadable(f"the answer to the {step} step still has {blank} from the example: fill it in")
    try:
        return KINDS[step].model_validate(data)
    except ValidationError as error:
        return _refused(error, step, data, located(lines))


def _blanks(value: object) -> Iterator[str]:
    """Yield what was copied from an example in a prompt and not filled in."""
    if isinstance(value, str) and _BLANK.fullmatch(value):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in inner:
        yield from _blanks(part)


def located(lines: Mapping[tuple[str | int, ...], int]) -> dict[str, int]:
    """Return *lines* by the paths that problems have: tasks[0].id."""
    return {_path(place): line for place, line in lines.items()}


def _path(place: tuple[str | int, ...]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def _refused(
    error: ValidationError, step: Step, data: Mapping[str, Any], places: Mapping[str, int]
) -> Unreadable:
    keys = data.keys()
    other = next((other for other in Step if keys & _keys(other)), None)
    if other is not None and not keys & _keys(step):
        return Unreadable(
            f"this is an answer to the {other} step of a {ROLES[other]}, and the {step} step of a "
            f"{ROLES[step]} was asked for: use {', '.join(sorted(_keys(step)))}"
        )
    problems = [str(problem).removeprefix(": ") for problem in explained(error, KINDS[step], "", places)]
    more = f"; and {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
    return Unreadable(f"the answer to the {step} step is wrong: {'; '.join(problems[:MOST_PROBLEMS])}{more}")


def _keys(step: Step) -> set[str]:
    return set(KINDS[step].model_fields)


class Block(NamedTuple):
    """A fenced block tagged `liza`, without its fences."""

    body: str
    is_closed: bool


class _Fence(NamedTuple):
    line: int
    indent: int
    mark: str  # ``` or ~~~, perhaps longer
    tag: str  # the first word behind the mark

    def closes(self, other: _Fence) -> bool:
        return not self.tag and self.mark.startswith(other.mark)


_FENCE: Final = re.compile(r"( {0,3})(`{3,}|~{3,}) *([^`\s]*)[^`]*")
_BLANK: Final = re.compile(r"<[a-z]+(?:,? [a-z]+)+>")  # <what you will do>, but not <html>
_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_UNFIT: Final = re.compile(f"[{UNFIT}]")


def blocks(text: str) -> list[Block]:
    """Return the blocks tagged `liza` in *text*, in order; one inside a longer or other fence is a quotation.

    A block inside a fence of its own length is taken: that fence cannot quote it, so somebody forgot to
    close it. Inside a block, a fence closes it only at its own indentation or left of it: what stands
    deeper is text in the YAML.
    """
    lines = _cleaned(text).split("\n")
    fences = [fence for number, line in enumerate(lines) if (fence := _fence(number, line))]
    reach = _reach(fences)
    found, position = [], 0
    while position < len(fences):
        fence = fences[position]
        if fence.tag.casefold() == TAG:
            end, position = _end_of_block(fences, position)
            body = "\n".join(lines[fence.line + 1 : end.line if end else len(lines)])
            found.append(Block(body, end is not None and end.closes(fence)))
        else:
            position = _behind(fences, position) if reach[position] >= len(fence.mark) else position + 1
    return found


def _cleaned(text: str) -> str:
    text = _COLOUR.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    return _UNFIT.sub("\N{REPLACEMENT CHARACTER}", text.replace("\t", "    "))


def _fence(number: int, line: str) -> _Fence | None:
    match = _FENCE.fullmatch(line)
    return _Fence(number, len(match[1]), match[2], match[3]) if match else None


def _reach(fences: list[_Fence]) -> list[int]:
    """Return for each fence the longest mark of its kind that could close it further down.

    With it, a fence that nothing closes costs no search: a hundred thousand of them would take minutes.
    """
    longest = {"`": 0, "~": 0}
    reach = []
    for fence in reversed(fences):
        reach.append(longest[fence.mark[0]])
        if not fence.tag:
            longest[fence.mark[0]] = max(longest[fence.mark[0]], len(fence.mark))
    return reach[::-1]


def _end_of_block(fences: list[_Fence], position: int) -> tuple[_Fence | None, int]:
    """Return the fence at which the block at *position* ends, and where to read on."""
    start = fences[position]
    for number in range(position + 1, len(fences)):
        fence = fences[number]
        if fence.indent <= start.indent:
            if fence.closes(start):
                return fence, number + 1
            if fence.tag.casefold() == TAG:
                return fence, number
    return None, len(fences)


def _behind(fences: list[_Fence], position: int) -> int:
    """Return where to read on behind the ordinary fence at *position*."""
    start = fences[position]
    for number in range(position + 1, len(fences)):
        fence = fences[number]
        if fence.closes(start):
            return number + 1
        if fence.tag.casefold() == TAG and fence.mark.startswith(start.mark):
            return number
    return position + 1
