"""Finds the answer in an agent's output, in whatever dialect, and parses it as the record of its step.

Agents' output is untrusted and often sloppy. What has one meaning is coerced, with a remark. What is
truncated, belongs to another step, was copied from the prompt or contradicts itself is unreadable, with a
sentence to send back. Only a plain `approve` approves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import ValidationError

from liza.domain.answers import (
    ANSWER_TYPES,
    COERCION_TABLES,
    HARMLESS_KEYS,
    ROLE_OF_STEP,
    AnswerValue,
    Coercer,
    Contradiction,
    Implement,
    Plan,
    Replan,
    Review,
    Ruling,
    Step,
    StepSpec,
    TestsEnd,
    WorkStatus,
    keys_of,
    lines_by_path,
    scope_in,
    unwrap,
)
from liza.domain.dialects import DIALECTS, DialectReading, read_dialect, signature_problem
from liza.domain.memory import Remembered
from liza.domain.model import Feedback, Outcome, ReportedUsage, Risk
from liza.domain.problems import violations_from
from liza.domain.yaml_parse import (
    TAG,
    BadYaml,
    FencedBlock,
    indented_blocks,
    is_quoted,
    last_unfenced_block,
    last_untagged_block,
    lenient_parses,
    tagged_blocks,
    untagged_blocks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


USAGE: Final = "usage"  # beside any answer: what the agent says that its run cost
MAX_PROBLEMS: Final = 3  # problems that one sentence names: an agent mends the first and then sees the rest
# Earlier answers that the last is compared with; thousands would take seconds to read.
MAX_EARLIER_ANSWERS: Final = 20
MAX_REMARKS: Final = 5
MIN_REASON_WORDS: Final = 3  # of a reason that a coder can act on without further feedback

# <what you will do>, and the single words that our examples have between such marks; but not <html>.
_PLACEHOLDER: Final = re.compile(
    r"<(?:[a-z0-9]+(?:,? [a-z0-9]+)+|assumption|command|id|number|path|question|where|why)>"
)
# How what was kept of a long output says what was not; whatever spans it is not what the agent said.
CUT_MARK: Final = re.compile(r"\n\[liza: (?P<count>[\d,]+ bytes) cut here\]\n")
_THOUGHT_BEGIN: Final = re.compile(r"(?im)^[ \t]*<(?:think|thinking|reasoning)>")
_THOUGHT_END: Final = re.compile(r"(?im)</(?:think|thinking|reasoning)>[ \t]*$")
_FENCE_IN_LINE: Final = re.compile(rf"(?m)^.*[^\s`~>].*(?:```|~~~){TAG}\s*$")
_SAYS_BLOCKED: Final = re.compile(
    r"(?:status\W{1,4}(?:is )?block|blocked_(?:reason|questions))", re.IGNORECASE
)

_COMMENT_ON_APPROVAL: Final = re.compile(
    r""":\s*(?:approve[ds]?(?=[\s,}])|(["'])approve[ds]?\1)[ \t,}]*#""", re.IGNORECASE
)


class ParsedAnswer(NamedTuple):
    """A parsed answer, and remarks on how it was read."""

    value: AnswerValue
    remarks: tuple[str, ...] = ()


class UnreadableAnswer(NamedTuple):
    """No answer could be parsed; *why* is a sentence to send back to the agent."""

    why: str


def parse_answer(text: str, step: Step, *, prompt: str = "") -> ParsedAnswer | UnreadableAnswer:
    """Return the answer to *step* in the reply *text*; what *prompt* shows, an example or a file, is none."""
    text = _without_thoughts(text)
    count, is_cut, end = _after_last_cut(text)
    found = _own_blocks(tagged_blocks(end), prompt)
    if is_cut and (not found or not found[-1].is_closed):
        cut = f"the output was too long to keep ({count} are cut), so no answer stands whole at its end"
        return UnreadableAnswer(f"{cut}; answer in fewer words, as by a plan of fewer tasks")
    if not found:
        return _indented_answer(end, step, prompt) or _untagged_answer(text, step, prompt)
    read = _parse_block(found[-1], step)
    if isinstance(read, UnreadableAnswer):
        return read
    others = [_parse_block(block, step) for block in found[:-1][-MAX_EARLIER_ANSWERS:] if block.is_closed]
    values = [other.value for other in others if isinstance(other, ParsedAnswer)]
    if why := _why_contradicted(read.value, values):
        return UnreadableAnswer(why)
    return ParsedAnswer(read.value, (*_difference_remarks(values, read.value, step), *read.remarks))


def _after_last_cut(text: str) -> tuple[str, bool, str]:
    """Return how much was cut from *text*, whether anything was, and the text after the last cut."""
    cuts = list(CUT_MARK.finditer(text))
    return (cuts[-1]["count"], True, text[cuts[-1].end() :]) if cuts else ("", False, text)


def _without_thoughts(text: str) -> str:
    """Return *text* without what a model thought before it answered: a draft there is not its answer.

    Some templates put the first tag into the prompt, so that a reply only has the last.
    """
    ends = [found.end() for found in _THOUGHT_END.finditer(text)]
    if not ends:
        return text
    begin = _THOUGHT_BEGIN.search(text, 0, ends[-1])
    return (text[: begin.start()] if begin else "") + text[ends[-1] :]


def says_blocked(text: str) -> bool:
    """Return whether *text*, which could not be parsed, uses the keys of a blocked answer."""
    return bool(_SAYS_BLOCKED.search(text))


def reported_usage(text: str, *, prompt: str = "") -> ReportedUsage | None:
    """Return the `usage` that an agent gives beside its last answer, if it is there and makes sense."""
    found = [block for block in _own_blocks(tagged_blocks(text), prompt) if block.is_closed]
    last = found[-1] if found else last_untagged_block(text)
    for read in lenient_parses(last.body, {USAGE}) if last else ():
        if isinstance(read, BadYaml) or not isinstance(read.data, dict):
            continue
        try:
            return ReportedUsage.model_validate(read.data[USAGE])
        except (KeyError, ValidationError):
            return None  # money is then estimated, which is no reason to lose an answer
    return None


def _own_blocks(found: list[FencedBlock], prompt: str) -> list[FencedBlock]:
    """Return the blocks that are not copied from the prompt."""
    echoes = {block.body for block in tagged_blocks(prompt)}
    return [block for block in found if block.body not in echoes and not is_quoted(block.body, prompt)]


def _indented_answer(text: str, step: Step, prompt: str) -> ParsedAnswer | None:
    """Return the answer in a block that is indented as the items of a list are; never an approval, which may
    be quoted so.
    """
    found = _own_blocks(indented_blocks(text), prompt)
    read = _parse_block(found[-1], step) if found else None
    if not isinstance(read, ParsedAnswer):
        return None
    is_approval = isinstance(read.value, Review) and read.value.verdict is Ruling.APPROVE
    return None if is_approval else read


def _untagged_answer(text: str, step: Step, prompt: str) -> ParsedAnswer | UnreadableAnswer:
    """Return the answer at the very end of a reply without a tagged block, where it fits and stands alone."""
    missing = UnreadableAnswer(
        f"the reply has no answer to the {step} step: end it with a line ```{TAG}, the answer as YAML, "
        "and a line ```"
    )
    if _FENCE_IN_LINE.search(text):
        return UnreadableAnswer(
            f"{missing.why}; a ```{TAG} behind other text is none, so break the line before it"
        )
    last = last_untagged_block(text) or last_unfenced_block(text, _keys_of_step(step))
    if last is None or is_quoted(last.body, prompt):
        return missing
    read = _parse_block(last, step)
    if isinstance(read, UnreadableAnswer):
        return missing
    others = [
        _parse_block(block, step)
        for block in untagged_blocks(text)[-MAX_EARLIER_ANSWERS:]
        if block.body != last.body
    ]
    if any(isinstance(other, ParsedAnswer) and other.value != read.value for other in others):
        return UnreadableAnswer(f"{missing.why}; it has several that could be meant")
    return ParsedAnswer(read.value, (f"the answer was not in a block tagged {TAG}", *read.remarks))


def _why_contradicted(value: AnswerValue, earlier: list[AnswerValue]) -> str | None:
    """Return why an approval does not count: an earlier block of the reply has another verdict."""
    if not isinstance(value, Review) or value.verdict is not Ruling.APPROVE:
        return None
    against = [one for one in earlier if isinstance(one, Review) and one.verdict is not Ruling.APPROVE]
    if not against:
        return None
    return f"the reply says {against[-1].verdict} in one block and approve in another: give one verdict"


def _difference_remarks(earlier: list[AnswerValue], value: AnswerValue, step: Step) -> tuple[str, ...]:
    differing = sum(1 for other in earlier if other != value)
    if not differing:
        return ()
    count = "an earlier answer" if differing == 1 else f"{differing} earlier answers"
    return (f"{count} to the {step} step in the same reply said something else; the last one counts",)


def _parse_block(block: FencedBlock, step: Step) -> ParsedAnswer | UnreadableAnswer:
    read = _first_valid(block.body, step)
    if block.is_closed:
        return read
    cut = UnreadableAnswer(
        f"the answer to the {step} step is not closed and may be cut: end it with a line ```"
    )
    return read if isinstance(read, ParsedAnswer) and _is_safe_if_truncated(read.value) else cut


def _is_safe_if_truncated(value: AnswerValue) -> bool:
    """Return whether text missing after *value* could not reverse it."""
    if isinstance(value, Review):
        return value.verdict is not Ruling.APPROVE
    is_work = not isinstance(value, Plan | Replan) and hasattr(value, "summary")
    return is_work and getattr(value, "status", None) is WorkStatus.DONE


def _first_valid(body: str, step: Step) -> ParsedAnswer | UnreadableAnswer:
    """Return the first reading of *body* that is an answer; else what is wrong with the rest."""
    problem: UnreadableAnswer | None = None
    unread: BadYaml | None = None
    for read in lenient_parses(body, {*keys_of(ANSWER_TYPES[step]), USAGE}):
        if isinstance(read, BadYaml):
            unread = unread or read
            continue
        found = _coerce(read.data, lines_by_path(read.lines), step)
        if isinstance(found, ParsedAnswer):
            return _without_comment_on_approval(found, body)
        problem = problem or found
    if problem:
        return problem
    return UnreadableAnswer(f"the answer to the {step} step is not readable as YAML: {unread}")


def _without_comment_on_approval(found: ParsedAnswer, body: str) -> ParsedAnswer | UnreadableAnswer:
    """Return *found*, unless it approves and a comment that YAML skips says more about that."""
    is_approval = isinstance(found.value, Review) and found.value.verdict is Ruling.APPROVE
    if not is_approval or not _COMMENT_ON_APPROVAL.search(body):
        return found
    return UnreadableAnswer(
        "the approval has a comment behind its verdict, which might take it back: say it in feedback, or "
        "leave it out"
    )


def _coerce(data: object, places: Mapping[str, int], step: Step) -> ParsedAnswer | UnreadableAnswer:
    if (
        isinstance(data, list)
        and "tasks" in _keys_of_step(step)
        and all(isinstance(one, dict) for one in data)
    ):
        data = {"tasks": data}
    if "tasks" in _keys_of_step(step) and isinstance(data, Mapping) and {"id", "done_when"} <= set(data):
        data = {"tasks": [data]}
    data = unwrap(data, _keys_of_step(step))
    if not isinstance(data, Mapping):
        return UnreadableAnswer(
            f"the answer to the {step} step has no keys: use {', '.join(sorted(_keys_of_step(step)))}"
        )
    data = _PREPARED.get(step, dict)({key: value for key, value in data.items() if key != USAGE})
    if blank := next(_placeholders(data), None):
        return UnreadableAnswer(
            f"the answer to the {step} step still has {blank} from the example: fill it in"
        )
    shaping = Coercer(COERCION_TABLES)
    try:
        shaped = shaping.record(ANSWER_TYPES[step], _with_task_scopes(data, step))
        value = ANSWER_TYPES[step].model_validate(_with_derived_fields(shaped, step))
    except Contradiction as error:
        return UnreadableAnswer(f"the answer to the {step} step contradicts itself: {error}")
    except ValidationError as error:
        return _schema_problem(error, step, data, places)
    if why := _approval_doubt(value, shaping):
        return UnreadableAnswer(why)
    return ParsedAnswer(value, tuple(shaping.remarks[:MAX_REMARKS]))


def _with_named_decision(data: dict[str, Any]) -> dict[str, Any]:
    """Let `action: unblock` beside `guidance`, or `unblock: true`, say what `unblock: {guidance: …}` says."""
    if isinstance(inner := data.get("rescope"), Mapping):
        data = {**{key: value for key, value in data.items() if key != "rescope"}, **inner}
    why = next((key for key in ("guidance", "reason", "message") if isinstance(data.get(key), str)), None)
    if why is None:
        return data
    said = str(data.get("action") or data.get("decision")).casefold()
    named = [word for word in _DECISIONS if said == word or str(data.get(word)).casefold() == "true"]
    if not named and data.get("tasks") and not data.get("rescope_reason"):
        named = ["rescope_reason"]
    if len(named) != 1:
        return data
    rest = {key: value for key, value in data.items() if key not in {why, "action", "decision"}}
    return {**rest, named[0]: data[why]}


def _with_named_reason(data: dict[str, Any]) -> dict[str, Any]:
    """Let a coder's `reason` be why it is blocked, or what it did; and a reason that asks be its question."""
    if "status" not in data:
        return data
    is_blocked = str(data["status"]).strip().casefold().startswith(("block", "stuck"))
    wanted = "blocked_reason" if is_blocked else "summary"
    said = next((key for key in ("reason", "summary") if data.get(key) and key != wanted), None)
    if said and not data.get(wanted):
        data = {wanted if key == said else key: value for key, value in data.items() if key != wanted}
    return _with_question(data) if is_blocked else data


def _with_question(data: dict[str, Any]) -> dict[str, Any]:
    reason = str(data.get("blocked_reason")).strip()
    if not reason.endswith("?") or any("question" in key for key in data):
        return data
    return {**data, "blocked_questions": [reason]}


def _with_new_files(data: dict[str, Any]) -> dict[str, Any]:
    """Count the files that a coder will create among those that it announces."""
    new, known = data.get("files_to_create"), data.get("files_to_modify")
    if not isinstance(new, list) or not isinstance(known, list):
        return data
    rest = {key: value for key, value in data.items() if key != "files_to_create"}
    return {**rest, "files_to_modify": [*known, *new]}


_DECISIONS: Final = ("unblock", "abandon")
# What is made of an answer before its keys are looked up: where two of them say one thing together.
_PREPARED: Final[dict[Step, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    Step.REPLAN: _with_named_decision,
    Step.CHECKPOINT: _with_new_files,
    Step.IMPLEMENT: _with_named_reason,
}


def _with_task_scopes(data: Mapping[str, Any], step: Step) -> Mapping[str, Any]:
    """Keep the words of a scope that names no path: they bound the task, if not for a machine."""
    tasks = data.get("tasks")
    if "tasks" not in _keys_of_step(step) or not isinstance(tasks, list):
        return data
    return {**data, "tasks": [_with_scope_in_words(task) for task in tasks]}


def _with_scope_in_words(task: object) -> object:
    if not isinstance(task, Mapping) or not isinstance(scope := task.get("scope"), str):
        return task
    found = scope_in(scope)
    paths = [path for side in found.values() for path in side] if isinstance(found, dict) else []
    words = re.sub(r"\b(?:in|out)\s*:|[\s,;.`-]+", " ", scope, flags=re.IGNORECASE)
    if set(words.split()) <= {word for path in paths for word in re.sub(r"[\s,;.`-]+", " ", path).split()}:
        return task
    return {**task, "description": f"{task.get('description')} (scope: {' '.join(scope.split())})"}


def _with_derived_fields(shaped: object, step: Step) -> object:
    """Return *shaped* with what follows from the rest of it."""
    if not isinstance(shaped, dict):
        return shaped
    if step is Step.REVIEW:
        return _with_feedback(shaped)
    tasks = shaped.get("tasks")
    return {**shaped, "tasks": _with_references(tasks)} if isinstance(tasks, list) else shaped


def _with_feedback(review: dict[str, Any]) -> dict[str, Any]:
    """Take the reason of a rejection for its feedback where it gives no other and says something."""
    reason = review.get("reason")
    first = next((one for one in review.get("feedback") or () if isinstance(one, dict)), None)
    if review.get("verdict") == Ruling.REJECT and reason is None and first and first.get("message"):
        return {**review, "reason": first["message"]}
    if review.get("verdict") != Ruling.REJECT or review.get("feedback") or not isinstance(reason, str):
        return review
    return (
        {**review, "feedback": [{"message": reason}]} if len(reason.split()) >= MIN_REASON_WORDS else review
    )


def _with_references(tasks: list[Any]) -> list[Any]:
    """Let `depends_on` name a task of the same plan by its id, whatever the case."""
    ids = [str(task.get("id")) for task in tasks if isinstance(task, dict)]
    by_case = {name.casefold(): name for name in ids}
    if len(by_case) < len(ids):
        return tasks
    return [
        {**task, "depends_on": [by_case.get(str(name).casefold(), name) for name in task["depends_on"]]}
        if isinstance(task, dict) and isinstance(task.get("depends_on"), list)
        else task
        for task in tasks
    ]


def _approval_doubt(value: AnswerValue, shaping: Coercer) -> str | None:
    """Return why an approval is not accepted: unknown extra keys, or an unknown severity."""
    if not isinstance(value, Review) or value.verdict is not Ruling.APPROVE:
        return None
    more = sorted(key for key in shaping.dropped if key.casefold() not in HARMLESS_KEYS)
    if more:
        return (
            f"the approval also says {', '.join(more)}, which was not asked for and might take it back: "
            "say it in feedback, or leave it out"
        )
    unweighed = [at for at in shaping.unread if at.endswith("severity")]
    if unweighed:
        return f"{unweighed[0]} is neither blocker nor concern, and an approval has to say which"
    return None


def _placeholders(value: object) -> Iterator[str]:
    """Yield the placeholders that were copied from a prompt's example and not filled in."""
    if isinstance(value, str) and _PLACEHOLDER.fullmatch(value):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in inner:
        yield from _placeholders(part)


def _schema_problem(
    error: ValidationError, step: Step, data: Mapping[str, Any], places: Mapping[str, int]
) -> UnreadableAnswer:
    keys = {str(key).casefold() for key in data}
    other = max(Step, key=lambda other: len(keys & _keys_of_step(other)))
    if keys & _keys_of_step(other) and not keys & _keys_of_step(step):
        return UnreadableAnswer(
            f"this is an answer to the {other} step of a {ROLE_OF_STEP[other]}, and the {step} step of a "
            f"{ROLE_OF_STEP[step]} was asked for: use {', '.join(sorted(_keys_of_step(step)))}"
        )
    problems = [
        str(problem).replace(": : ", ": ").removeprefix(": ")
        for problem in violations_from(error, ANSWER_TYPES[step], "", places)
    ]
    more = f"; and {len(problems) - MAX_PROBLEMS} more" if len(problems) > MAX_PROBLEMS else ""
    return UnreadableAnswer(
        f"the answer to the {step} step is wrong: {'; '.join(problems[:MAX_PROBLEMS])}{more}"
    )


def _keys_of_step(step: Step) -> set[str]:
    return set(ANSWER_TYPES[step].model_fields)


# Answers in the dialect that a role speaks: whatever it is, the same few results come out of a reply.

OWN_BLOCK: Final = "```liza"
OWN_DIALECT: Final = "yaml"  # a tagged block of YAML at the end of the reply
KNOWN_DIALECTS: Final = (OWN_DIALECT, *DIALECTS)
DIALECT_STEPS: Final = frozenset({Step.IMPLEMENT, Step.REVIEW})  # all others are answered in our own block
MOST_QUESTIONS: Final = 3
NOTHING_TO_DO: Final = "NOTHING_TO_DO"  # the label of a worker that found nothing to do
_TESTS: Final = {"TESTS_PASSED": TestsEnd.PASSED, "TESTS_FAILED": TestsEnd.FAILED}
# The fields of a step, by the keys that a block may have for each.
_STEP_FIELDS: Final = {
    "objective": ("objective", "loop summary", "step summary", "summary"),
    "instructions": ("what to change", "instructions", "context"),
    "files": ("files in scope", "files"),
    "loc_estimate": ("estimated loc", "loc estimate"),
    "risk": ("risk", "risk level"),
    "success_criteria": ("success criteria", "win-state"),
    "avoid": ("what to avoid", "avoid"),
}
_LISTS: Final = frozenset({"files", "success_criteria", "avoid"})
_RULINGS: Final = {Outcome.PASS: Ruling.APPROVE, Outcome.REVISE: Ruling.REJECT}


def read_answer(
    dialect: str, text: str, step: Step, *, role: str, prompt: str, signature: str = ""
) -> ParsedAnswer | UnreadableAnswer:
    """Return what *role* answers to *step* in *text*, or why that cannot be read.

    Where the answer is signed, it is compared with the *signature* that was due.
    """
    if dialect == OWN_DIALECT or step not in DIALECT_STEPS:
        return parse_answer(text, step, prompt=prompt)
    reading = read_dialect(dialect, text, role=role, prompt=prompt)
    if reading.outcome is Outcome.NONE:
        # Who is asked for the answer alone is asked for our own block, whatever they speak, and nothing else.
        own = parse_answer(text, step, prompt=prompt) if text.strip().startswith(OWN_BLOCK) else None
        if isinstance(own, ParsedAnswer):
            return own
        return UnreadableAnswer(reading.problem or "there is no result in the answer")
    value = _review(reading) if step is Step.REVIEW else _work(reading, text)
    forged = signature_problem(reading, signature) if signature else None
    return ParsedAnswer(value, (*reading.oddities, *filter(None, [forged])))


def _review(reading: DialectReading) -> Review:
    reason = reading.reason or reading.word or str(reading.outcome)
    said = (*reading.feedback, *reading.questions) or (reason,)
    return Review(
        verdict=_RULINGS.get(reading.outcome, Ruling.BLOCK),
        reason=reason,
        feedback=() if reading.outcome is Outcome.PASS else tuple(Feedback(message=one) for one in said),
        label=reading.label,
        confidence=reading.confidence,
    )


def _work(reading: DialectReading, text: str) -> Implement:
    reason = reading.reason or reading.word or str(reading.outcome)
    if reading.outcome is Outcome.PASS:
        risk = Risk(reading.risk) if reading.risk else None
        # A plan between marks is the whole of it; one in sections has its risks and tests below.
        plan = None if "risks" in reading.fields else reading.fields.get("plan")
        told = plan or text.strip() or reason
        kept = tuple(Remembered(type=kind, text=said) for kind, said in reading.memory)
        return Implement(
            status=WorkStatus.NOTHING_TO_DO if reading.label == NOTHING_TO_DO else WorkStatus.DONE,
            summary=told,
            risk=risk,
            confidence=reading.confidence,
            step=_step(reading),
            handoff=dict(reading.handoff) if isinstance(reading.handoff, Mapping) else None,
            tests_ended=_tests(reading),
            remember=kept,
        )
    asked = reading.questions[:MOST_QUESTIONS] or (f"How should this be settled: {reason}",)
    return Implement(status=WorkStatus.BLOCKED, blocked_reason=reason, blocked_questions=asked)


def _step(reading: DialectReading) -> StepSpec | None:
    """Return the step that a block describes; None where it does not say all of it."""
    said = {
        name: next((reading.fields[key] for key in keys if reading.fields.get(key)), "")
        for name, keys in _STEP_FIELDS.items()
    }
    number = re.search(r"\d+", said["loc_estimate"])
    values = {name: _items(text) if name in _LISTS else text for name, text in said.items()}
    try:
        return StepSpec.model_validate(
            {**values, "loc_estimate": number and int(number[0]), "risk": reading.risk}
        )
    except ValidationError:
        return None


def _items(text: str) -> list[str]:
    return [item for part in re.split(r"[,;]", text) if (item := part.strip(" `"))]


def _tests(reading: DialectReading) -> TestsEnd | None:
    return _TESTS.get(reading.word or "")
