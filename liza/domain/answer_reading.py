"""What an agent answered, found in what it said and read as a value of its step.

An agent's words are untrusted and often sloppy. What has one meaning is taken as it is meant
(`manners`), with a remark. What is cut, belongs to another step, was copied from the prompt or contradicts
itself is unreadable, with a sentence that can be sent back; and nothing but a plain `approve` approves.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import ValidationError

from liza.domain.answer_manners import HARMLESS, MANNERS, scope_in
from liza.domain.answer_shape import Contradiction, Shaping, keys_of, unwrap
from liza.domain.answer_yaml import readings
from liza.domain.answers import KINDS, ROLES, Outcome, Plan, Replan, Review, Ruling, Step, Value, located
from liza.domain.fences import TAG, Block, blocks, is_quoted, last_unfenced, last_untagged, untagged
from liza.domain.problems import explained
from liza.domain.spending import Reported
from liza.domain.yaml_parse import BadYaml

if TYPE_CHECKING:
    from collections.abc import Iterator

USAGE: Final = "usage"  # beside any answer: what the agent says that its run cost
MOST_PROBLEMS: Final = 3  # problems that one sentence names: an agent mends the first and then sees the rest
MOST_EARLIER: Final = (
    20  # earlier answers that the last is compared with; thousands would take seconds to read
)
MOST_REMARKS: Final = 5
FEWEST_WORDS: Final = 3  # of a reason that a coder can act on without further feedback

# <what you will do>, and the single words that our examples have between such marks; but not <html>.
_BLANK: Final = re.compile(
    r"<(?:[a-z0-9]+(?:,? [a-z0-9]+)+|assumption|command|id|number|path|question|where|why)>"
)
# How what was kept of a long output says what was not; whatever spans it is not what the agent said.
CUT: Final = re.compile(r"\n\[liza: (?P<count>[\d,]+ bytes) cut here\]\n")
_SAYS_BLOCKED: Final = re.compile(
    r"(?:status\W{1,4}(?:is )?block|blocked_(?:reason|questions))", re.IGNORECASE
)


class Answer(NamedTuple):
    """What was answered, and what a person reading along should know about how."""

    value: Value
    remarks: tuple[str, ...] = ()


class Unreadable(NamedTuple):
    """There is no answer; *why* is a sentence that can be sent back to the agent."""

    why: str


def answer(text: str, step: Step, *, prompt: str = "") -> Answer | Unreadable:
    """Return the answer to *step* in the reply *text*; what *prompt* shows, an example or a file, is none."""
    count, is_cut, end = _since_cut(text)
    found = _own(blocks(end), prompt)
    if is_cut and (not found or not found[-1].is_closed):
        cut = f"the output was too long to keep ({count} are cut), so no answer stands whole at its end"
        return Unreadable(f"{cut}; answer in fewer words, as by a plan of fewer tasks")
    if not found:
        return _without_tag(text, step, prompt)
    read = _read(found[-1], step)
    if isinstance(read, Unreadable):
        return read
    others = [_read(block, step) for block in found[:-1][-MOST_EARLIER:] if block.is_closed]
    values = [other.value for other in others if isinstance(other, Answer)]
    if why := _taken_back(read.value, values):
        return Unreadable(why)
    return Answer(read.value, (*_differing(values, read.value, step), *read.remarks))


def _since_cut(text: str) -> tuple[str, bool, str]:
    """Return what was cut out of *text*, whether anything was, and what is whole behind it."""
    cuts = list(CUT.finditer(text))
    return (cuts[-1]["count"], True, text[cuts[-1].end() :]) if cuts else ("", False, text)


def says_blocked(text: str) -> bool:
    """Tell whether *text*, of which no answer could be read, speaks of being blocked in an answer's words."""
    return bool(_SAYS_BLOCKED.search(text))


def reported(text: str, *, prompt: str = "") -> Reported | None:
    """Return the `usage` that an agent gives beside its last answer, if it is there and makes sense."""
    found = [block for block in _own(blocks(text), prompt) if block.is_closed]
    last = found[-1] if found else last_untagged(text)
    for read in readings(last.body, {USAGE}) if last else ():
        if isinstance(read, BadYaml) or not isinstance(read.data, dict):
            continue
        try:
            return Reported.model_validate(read.data[USAGE])
        except (KeyError, ValidationError):
            return None  # money is then estimated, which is no reason to lose an answer
    return None


def _own(found: list[Block], prompt: str) -> list[Block]:
    """Return the blocks that are the agent's own words."""
    echoes = {block.body for block in blocks(prompt)}
    return [block for block in found if block.body not in echoes and not is_quoted(block.body, prompt)]


def _without_tag(text: str, step: Step, prompt: str) -> Answer | Unreadable:
    """Return the answer at the very end of a reply without a tagged block, where it fits and stands alone."""
    missing = Unreadable(
        f"the reply has no answer to the {step} step: end it with a line ```{TAG}, the answer as YAML, "
        "and a line ```"
    )
    last = last_untagged(text) or last_unfenced(text, _keys(step))
    if last is None or is_quoted(last.body, prompt):
        return missing
    read = _read(last, step)
    if isinstance(read, Unreadable):
        return missing
    others = [_read(block, step) for block in untagged(text)[-MOST_EARLIER:] if block.body != last.body]
    if any(isinstance(other, Answer) and other.value != read.value for other in others):
        return Unreadable(f"{missing.why}; it has several that could be meant")
    return Answer(read.value, (f"the answer was not in a block tagged {TAG}", *read.remarks))


def _taken_back(value: Value, earlier: list[Value]) -> str | None:
    """Return why an approval behind a verdict that was none does not count."""
    if not isinstance(value, Review) or value.verdict is not Ruling.APPROVE:
        return None
    against = [one for one in earlier if isinstance(one, Review) and one.verdict is not Ruling.APPROVE]
    if not against:
        return None
    return f"the reply says {against[-1].verdict} in one block and approve in another: give one verdict"


def _differing(earlier: list[Value], value: Value, step: Step) -> tuple[str, ...]:
    differing = sum(1 for other in earlier if other != value)
    if not differing:
        return ()
    count = "an earlier answer" if differing == 1 else f"{differing} earlier answers"
    return (f"{count} to the {step} step in the same reply said something else; the last one counts",)


def _read(block: Block, step: Step) -> Answer | Unreadable:
    read = _first_fitting(block.body, step)
    if block.is_closed:
        return read
    cut = Unreadable(f"the answer to the {step} step is not closed and may be cut: end it with a line ```")
    return read if isinstance(read, Answer) and _is_safe_to_cut(read.value) else cut


def _is_safe_to_cut(value: Value) -> bool:
    """Tell whether nothing that may be missing behind *value* could turn it round."""
    if isinstance(value, Review):
        return value.verdict is not Ruling.APPROVE
    is_work = not isinstance(value, Plan | Replan) and hasattr(value, "summary")
    return is_work and getattr(value, "status", None) is Outcome.DONE


def _first_fitting(body: str, step: Step) -> Answer | Unreadable:
    """Return the first reading of *body* that is an answer; else what is wrong with the rest."""
    problem: Unreadable | None = None
    unread: BadYaml | None = None
    for read in readings(body, {*keys_of(KINDS[step]), USAGE}):
        if isinstance(read, BadYaml):
            unread = unread or read
            continue
        found = _shaped(read.data, located(read.lines), step)
        if isinstance(found, Answer):
            return found
        problem = problem or found
    if problem:
        return problem
    return Unreadable(f"the answer to the {step} step is not readable as YAML: {unread}")


def _shaped(data: object, places: Mapping[str, int], step: Step) -> Answer | Unreadable:
    if isinstance(data, list) and "tasks" in _keys(step) and all(isinstance(one, dict) for one in data):
        data = {"tasks": data}
    data = unwrap(data, _keys(step))
    if not isinstance(data, Mapping):
        return Unreadable(f"the answer to the {step} step has no keys: use {', '.join(sorted(_keys(step)))}")
    data = {key: value for key, value in data.items() if key != USAGE}
    if blank := next(_blanks(data), None):
        return Unreadable(f"the answer to the {step} step still has {blank} from the example: fill it in")
    shaping = Shaping(MANNERS)
    try:
        shaped = shaping.record(KINDS[step], _prepared(data, step))
        value = KINDS[step].model_validate(_completed(shaped, step))
    except Contradiction as error:
        return Unreadable(f"the answer to the {step} step contradicts itself: {error}")
    except ValidationError as error:
        return _refused(error, step, data, places)
    if why := _not_plain(value, shaping):
        return Unreadable(why)
    return Answer(value, tuple(shaping.remarks[:MOST_REMARKS]))


def _prepared(data: Mapping[str, Any], step: Step) -> Mapping[str, Any]:
    """Keep the words of a scope that names no path: they bound the task, if not for a machine."""
    tasks = data.get("tasks")
    if "tasks" not in _keys(step) or not isinstance(tasks, list):
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


def _completed(shaped: object, step: Step) -> object:
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
    if review.get("verdict") != Ruling.REJECT or review.get("feedback") or not isinstance(reason, str):
        return review
    return {**review, "feedback": [{"message": reason}]} if len(reason.split()) >= FEWEST_WORDS else review


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


def _not_plain(value: Value, shaping: Shaping) -> str | None:
    """Return why an approval is not taken: it says more than it was asked, or a weight that nobody knows."""
    if not isinstance(value, Review) or value.verdict is not Ruling.APPROVE:
        return None
    more = sorted(key for key in shaping.dropped if key.casefold() not in HARMLESS)
    if more:
        return (
            f"the approval also says {', '.join(more)}, which was not asked for and might take it back: "
            "say it in feedback, or leave it out"
        )
    unweighed = [at for at in shaping.unread if at.endswith("severity")]
    if unweighed:
        return f"{unweighed[0]} is neither blocker nor concern, and an approval has to say which"
    return None


def _blanks(value: object) -> Iterator[str]:
    """Yield what was copied from an example in a prompt and not filled in."""
    if isinstance(value, str) and _BLANK.fullmatch(value):
        yield value
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in inner:
        yield from _blanks(part)


def _refused(
    error: ValidationError, step: Step, data: Mapping[str, Any], places: Mapping[str, int]
) -> Unreadable:
    keys = {str(key).casefold() for key in data}
    other = max(Step, key=lambda other: len(keys & _keys(other)))
    if keys & _keys(other) and not keys & _keys(step):
        return Unreadable(
            f"this is an answer to the {other} step of a {ROLES[other]}, and the {step} step of a "
            f"{ROLES[step]} was asked for: use {', '.join(sorted(_keys(step)))}"
        )
    problems = [
        str(problem).replace(": : ", ": ").removeprefix(": ")
        for problem in explained(error, KINDS[step], "", places)
    ]
    more = f"; and {len(problems) - MOST_PROBLEMS} more" if len(problems) > MOST_PROBLEMS else ""
    return Unreadable(f"the answer to the {step} step is wrong: {'; '.join(problems[:MOST_PROBLEMS])}{more}")


def _keys(step: Step) -> set[str]:
    return set(KINDS[step].model_fields)
