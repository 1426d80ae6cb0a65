"""Answers in the dialects of other systems, one table; each gives the same kind of reading."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from liza.domain.memory import AGENT_TYPES, MemoryType
from liza.domain.model import Outcome, Risk
from liza.domain.problems import did_you_mean
from liza.domain.record import strip_colour
from liza.domain.yaml_parse import is_quoted
from liza.errors import UsageError

# What an answer in any dialect comes to.

NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_EMPTY_WORDS: Final = frozenset(
    {"", "-", "none", "n/a", "na", "no", "nothing", "null", "no blockers", "none."}
)


class DialectReading(NamedTuple):
    """What an agent said; where *outcome* is none, *problem* is the sentence that it is asked again with."""

    outcome: Outcome
    word: str | None = None  # the result as it was written
    problem: str | None = None
    reason: str | None = None
    label: str | None = None
    confidence: int | None = None
    next_role: str | None = None
    fields: Mapping[str, str] = NOTHING
    feedback: tuple[str, ...] = ()
    questions: tuple[str, ...] = ()
    memory: tuple[tuple[MemoryType, str], ...] = ()
    handoff: Mapping[str, object] | None = None
    oddities: tuple[str, ...] = ()  # what was wrong, and kept nothing from counting

    @property
    def risk(self) -> Risk | None:
        """The risk that was named; of several the highest."""
        said = " ".join(self.fields.get(key, "") for key in ("risk", "risk level")).casefold()
        return next((level for level in reversed(Risk) if re.search(rf"\b{level}\b", said)), None)


def refuse(problem: str, word: str | None = None) -> DialectReading:
    return DialectReading(Outcome.NONE, word, problem)


def refuse_word(word: str, role: str, known: Iterable[str]) -> DialectReading:
    return refuse(f"{word!r} is no result of the {role}; use one of {', '.join(known)}", word)


def keyword(value: str) -> str:
    found = re.match(r"\W*(\w+)", value)
    return found[1] if found else ""


def says_something(value: str | None) -> bool:
    return value is not None and value.strip(" .*_[]").casefold() not in _EMPTY_WORDS


def one_line(text: str) -> str:
    return " ".join(text.split())


def parts_below(heading: re.Pattern[str], text: str) -> list[tuple[re.Match[str], str]]:
    """Return each *heading* that is found in *text*, with what stands between it and the next."""
    found = list(heading.finditer(text))
    ends = [one.start() for one in found[1:]] + [len(text)] * bool(found)
    return [(one, text[one.end() : end]) for one, end in zip(found, ends, strict=True)]


# Lines that begin with AGENTIUM_: a verdict, a status, something to remember, a hand-off, a plan.

_EVAL_RESULTS: Final = {"ADVANCE": Outcome.PASS, "ITERATE": Outcome.REVISE, "BLOCKED": Outcome.BLOCK}
_PATHS: Final = {"SIMPLE": Outcome.PASS, "COMPLEX": Outcome.PASS}
AGENTIUM_RESULTS: Final[dict[str, dict[str, Outcome]]] = {
    "judge": _EVAL_RESULTS,
    "reviewer": _EVAL_RESULTS,  # as advice
    "complexity_assessor": _PATHS,
}
AGENTIUM_STATUSES: Final[dict[str, Outcome]] = {
    **dict.fromkeys(("COMPLETE", "TESTS_PASSED", "PUSHED", "PR_CREATED", "NOTHING_TO_DO"), Outcome.PASS),
    **dict.fromkeys(("ANALYZING", "TESTS_RUNNING"), Outcome.PASS),
    "TESTS_FAILED": Outcome.REVISE,
    **dict.fromkeys(("BLOCKED", "FAILED"), Outcome.BLOCK),
}
_SIGNAL_LINE: Final = re.compile(r"^[ \t`*]*AGENTIUM_(EVAL|STATUS|MEMORY):[ \t]*(.*?)[`* \t]*$", re.MULTILINE)
_PLAN_START: Final = re.compile(r"^[ \t]*AGENTIUM_PLAN_START[ \t]*$", re.MULTILINE)
_PLAN_END: Final = re.compile(r"^[ \t]*AGENTIUM_PLAN_END\b", re.MULTILINE)
_HANDOFF: Final = re.compile(r"^[ \t`*]*AGENTIUM_HANDOFF:\s*(?=\{)", re.MULTILINE)


def agentium_form(role: str) -> str:
    """Return the lines that an answer of *role* ends with; an echo of them says nothing."""
    if role in AGENTIUM_RESULTS:
        return f"""\
    AGENTIUM_EVAL: <word> <why, or what has to change, in the same line>

The word is one of {", ".join(AGENTIUM_RESULTS[role])}."""
    return f"""\
    AGENTIUM_STATUS: <word> <in a sentence what was done, or what keeps you from it>
    AGENTIUM_MEMORY: <type> <what whoever works on it later has to know; as many lines as you like, or none>
    AGENTIUM_HANDOFF: <what the next phase is told, as one JSON object, where your part asks for it>

The word is one of {", ".join(AGENTIUM_STATUSES)}; the type is one of {", ".join(AGENT_TYPES)}.
A plan stands between a line AGENTIUM_PLAN_START and a line AGENTIUM_PLAN_END."""


def read_agentium(text: str, role: str, _prompt: str) -> DialectReading:
    lines = _SIGNAL_LINE.findall(text)
    verdicts = [value for kind, value in lines if kind == "EVAL"]
    memory, oddities = _memory_in([value for kind, value in lines if kind == "MEMORY"])
    handoff, broken = _handoff_in(text)
    plan = _plan_in(text)
    rest = DialectReading(
        Outcome.NONE,
        fields=MappingProxyType({"plan": plan} if plan else {}),
        memory=memory,
        handoff=handoff,
        oddities=(*oddities, *broken),
    )
    if role not in AGENTIUM_RESULTS:
        if verdicts:
            return rest._replace(
                problem=f"the {role} gives no verdict, only a judge does; leave AGENTIUM_EVAL out"
            )
        return _read_status(rest, text, role, [value for kind, value in lines if kind == "STATUS"])
    known = AGENTIUM_RESULTS[role]
    if not verdicts:
        return rest._replace(
            problem=f"there is no line AGENTIUM_EVAL: {'|'.join(known)}; end your answer with one"
        )
    return _read_verdict(rest, verdicts[-1], role, known)


def _read_verdict(
    rest: DialectReading, value: str, role: str, known: Mapping[str, Outcome]
) -> DialectReading:
    word = keyword(value)
    if word not in known:
        return rest._replace(word=word, problem=refuse_word(word, role, known).problem)
    if re.match(r"\W*\w+[ \t]*[|/]", value):
        return rest._replace(
            word=word, problem=f"AGENTIUM_EVAL says several things at once ({value}); say one"
        )
    said = value[value.index(word) + len(word) :].strip(" \t-:—–")  # noqa: RUF001 - as people write it
    return rest._replace(
        outcome=known[word],
        word=word,
        reason=said or None,
        label=word if word in _PATHS else None,
        feedback=(said,) if said else (),
    )


def _read_status(rest: DialectReading, text: str, role: str, statuses: list[str]) -> DialectReading:
    if not text.strip():
        return rest._replace(problem=f"the {role} said nothing; say what was done")
    if not statuses:
        return rest._replace(outcome=Outcome.PASS)
    word = keyword(statuses[-1])
    if word not in AGENTIUM_STATUSES:
        return rest._replace(word=word, problem=refuse_word(word, role, AGENTIUM_STATUSES).problem)
    said = statuses[-1].strip()[len(word) :].strip()
    return rest._replace(
        outcome=AGENTIUM_STATUSES[word],
        word=word,
        reason=said or None,
        label=word if word == "NOTHING_TO_DO" else None,
    )


def _memory_in(values: list[str]) -> tuple[tuple[tuple[MemoryType, str], ...], tuple[str, ...]]:
    kept, oddities = [], []
    for value in values:
        word, _, text = value.partition(" ")
        if word not in AGENT_TYPES:
            oddities.append(
                f"{word!r} is nothing that an agent can remember; use one of {', '.join(AGENT_TYPES)}"
            )
        elif text.strip():
            kept.append((MemoryType(word), text.strip()))
    return tuple(kept), tuple(oddities)


def _plan_in(text: str) -> str:
    """Return what stands between the first two marks; empty where one is missing."""
    start = _PLAN_START.search(text)
    end = _PLAN_END.search(text, start.end()) if start else None
    return text[start.end() : end.start()].strip() if start and end else ""


def _handoff_in(text: str) -> tuple[Mapping[str, object] | None, tuple[str, ...]]:
    start = _HANDOFF.search(text)
    if start is None:
        return None, ()
    try:
        value, _ = json.JSONDecoder().raw_decode(text, start.end())
    except (ValueError, RecursionError):
        return None, ("what stands behind AGENTIUM_HANDOFF is no whole JSON object",)
    return value, ()


# SIGNAL BLOCKs: read in the forms that are met in the wild, written in one.

HIGHEST_CONFIDENCE: Final = 10
MOST_BLOCKS: Final = 20  # of one answer that are looked at, from its end; each is held against the prompt
SIGNAL_RESULTS: Final[dict[str, dict[str, Outcome]]] = {
    "human": {
        "INIT": Outcome.PASS,
        "APPROVED": Outcome.PASS,
        "REVISION_REQUESTED": Outcome.REVISE,
        "MERGE_APPROVED": Outcome.PASS,
        "DELETE_APPROVED": Outcome.PASS,
    },
    "planner": {
        "CLARIFICATION_NEEDED": Outcome.ASK,
        "PLAN_CREATED": Outcome.PASS,
        "PLAN_UPDATED": Outcome.PASS,
        "FINAL_PLAN_CREATED": Outcome.PASS,
    },
    "actor": {
        "SUCCESS": Outcome.PASS,
        "FAIL": Outcome.REVISE,
        "PR_MERGED": Outcome.PASS,
        "GOAL_CYCLE_COMPLETE": Outcome.PASS,
    },
    "judge": {"PASS": Outcome.PASS, "SUFFICIENT": Outcome.PASS, "INSUFFICIENT": Outcome.REVISE},
}
_ROUTING_KEYS: Final = ("agent", "result", "next")
_SUMMARY_KEYS: Final = ("step summary", "loop summary", "goal summary", "summary")
_HEADER: Final = re.compile(r"^[ \t]*(?:#{1,6}[ \t]*)?(?:\*\*)?SIGNAL BLOCK\b[^\n]*$", re.MULTILINE)
_BLOCK_END: Final = re.compile(
    r"^[ \t]*(?:-{3,}[ \t]*$|`{3,}|~{3,}|#{1,3}[ \t]+(?!Signature\b))", re.MULTILINE
)
_FIELD: Final = re.compile(
    r"^[ \t]*(?:[-*][ \t]+)?(?:\*\*)?([A-Za-z][A-Za-z /_-]{0,40}?)(?:\*\*)?:(?:\*\*)?[ \t]*(.*)$",
    re.MULTILINE,
)
_SIGNATURE: Final = re.compile(r"\b(\d+)[:.](\d+|FINAL)[:.](\d+)\b")
_OLD_SIGNATURE: Final = re.compile(r"\bAgent[ \t]*=[ \t]*(\w+)[ \t]*\|.*?\bStep[ \t]*=[ \t]*(\w+)")
_QUESTION: Final = re.compile(r"^[ \t]*(?:\d+[.)]|[-*])[ \t]+(\S.*\?)[ \t]*$", re.MULTILINE)
_AFTER_PASS: Final = {
    ("judge", "planner"): "progressing",
    ("judge", "human"): "sufficient",
    ("human", "planner"): "more_loops",
}


def read_signal_block(text: str, role: str, prompt: str) -> DialectReading:
    if role not in SIGNAL_RESULTS:
        return refuse(f"the {role} has no results in a SIGNAL BLOCK; let it answer in another dialect")
    latest = reversed(_signal_blocks(text)[-MOST_BLOCKS:])
    block = next((one for one in latest if not is_quoted(one, prompt)), None)
    if block is None:
        return refuse("there is no SIGNAL BLOCK of your own; end your answer with one")
    said, twice = _block_fields(block)
    if twice:
        return refuse(f"the SIGNAL BLOCK says {twice} twice, and not the same; say it once")
    speaker = keyword(said.get("agent", role)).casefold()
    old = _OLD_SIGNATURE.search(block)
    signed = old[1].casefold() if old else role
    if other := next((name for name in (speaker, signed) if name != role), None):
        return refuse(
            f"the SIGNAL BLOCK is in the name of {other!r}, and the {role} was asked; write your own"
        )
    return _judge_block(role, said, text)


def _judge_block(role: str, said: dict[str, str], text: str) -> DialectReading:
    words = SIGNAL_RESULTS[role]
    value = said.get("result", "")
    word = keyword(value)
    if not word:
        return refuse(f"the SIGNAL BLOCK has no Result; use one of {', '.join(words)}")
    if word not in words:
        return refuse_word(word, role, words)
    found = {words[one] for one in re.findall(r"\w+", value) if one in words}
    next_role = keyword(said.get("next", "")).casefold() or None
    if problem := _contradiction(word, found, said, next_role):
        return refuse(problem, word)
    confidence, oddities = _confidence(said.get("confidence"))
    signature = _SIGNATURE.search(said.get("signature", ""))
    fields = said | ({"signature": ":".join(signature.groups())} if signature else {})
    outcome = _outcome_of(role, words[word], said, next_role)
    summary = next((said[key] for key in _SUMMARY_KEYS if said.get(key)), None)
    questions = tuple(_QUESTION.findall(text)) or ((summary,) if summary else ())
    return DialectReading(
        outcome,
        word,
        reason=summary,
        label=_label(role, outcome, said, next_role),
        confidence=confidence,
        next_role=next_role,
        fields=MappingProxyType(fields),
        feedback=tuple(said[key] for key in ("issues found", "context") if says_something(said.get(key))),
        questions=questions if outcome is Outcome.ASK else (),
        oddities=(*oddities, *_hand_over_gap(role, next_role, said)),
    )


def _signal_blocks(text: str) -> list[str]:
    """Return what stands below each header, up to a rule, a fence, a heading or the next header."""
    return [_BLOCK_END.split(below, maxsplit=1)[0] for _, below in parts_below(_HEADER, text)]


def _block_fields(block: str) -> tuple[dict[str, str], str | None]:
    """Return the fields of *block* by key, and the key that routes and has two values."""
    said: dict[str, str] = {}
    for key, value in _FIELD.findall(block):
        name, text = " ".join(key.casefold().split()), value.strip()
        if name in _ROUTING_KEYS and name in said and keyword(said[name]) != keyword(text):
            return said, key.strip()
        said.setdefault(name, text)
    return said, None


def _contradiction(
    word: str, found: set[Outcome], said: Mapping[str, str], next_role: str | None
) -> str | None:
    if len(found) > 1:
        return f"the Result {said['result']!r} says two things; say one"
    outcome = next(iter(found))
    if outcome is Outcome.PASS and says_something(said.get("blockers")):
        return f"the Result is {word}, and Blockers are named; say which of both holds"
    if outcome is Outcome.ASK and next_role not in {None, "human"}:
        return (
            f"the Result is {word}, and Next is {next_role!r}; only a person can answer, so say Next: Human"
        )
    return None


def _outcome_of(role: str, outcome: Outcome, said: Mapping[str, str], next_role: str | None) -> Outcome:
    gives_up = role == "actor" or says_something(said.get("blockers"))
    return Outcome.BLOCK if outcome is Outcome.REVISE and next_role == "human" and gives_up else outcome


def _label(role: str, outcome: Outcome, said: Mapping[str, str], next_role: str | None) -> str | None:
    """Return how far the goal is, from what was said of it or else from who is next."""
    if outcome is not Outcome.PASS:
        return None
    status = said.get("goal status") or said.get("superordinate status") or ""
    if role == "judge" and status:
        return "sufficient" if re.search(r"\bSUFFICIENT\b", status.upper()) else "progressing"
    return _AFTER_PASS.get((role, next_role or ""))


def _confidence(value: str | None) -> tuple[int | None, tuple[str, ...]]:
    """Return a confidence from 0 to 10, and what was odd about it; the low end of a range counts."""
    if value is None:
        return None, ()
    found = re.search(r"-?\d+", value)
    if found is None:
        return None, (f"the confidence {value!r} is no number from 0 to {HIGHEST_CONFIDENCE}",)
    number = int(found[0])
    kept = min(max(number, 0), HIGHEST_CONFIDENCE)
    return kept, () if kept == number else (f"the confidence {number} is not from 0 to {HIGHEST_CONFIDENCE}",)


def signature_problem(reading: DialectReading, expected: str) -> str | None:
    """Return the sentence for a signature that is not the one that the board assigns."""
    found = reading.fields.get("signature")
    return None if found in {None, "", expected} else f"the signature is {found}, and {expected} was due"


class SignalBlock(NamedTuple):
    """What a SIGNAL BLOCK says, for people."""

    agent: str
    result: str
    summary: str
    next_role: str
    signature: str
    confidence: int | None = None
    fields: Mapping[str, str] = NOTHING


SIGNAL_DIALECT: Final = "signal_block"
# What is written matches this, for whoever watches the file from outside.
SIGNAL_PATTERN: Final = re.compile(
    r"^### SIGNAL BLOCK\n\n- Agent: (Human|Planner|Actor|Judge)\n- Result: ([A-Z_]+)\n- Loop Summary: (.+)\n"
    r"(?:- Confidence: (\d+)\n)?- Next: (Human|Planner|Actor|Judge)$",
    re.MULTILINE,
)


def render_signal_block(block: SignalBlock) -> str:
    lines = [
        f"- Agent: {block.agent.capitalize()}",
        f"- Result: {block.result}",
        f"- Loop Summary: {one_line(block.summary) or '(nothing was said)'}",
        *([f"- Confidence: {block.confidence}"] if block.confidence is not None else []),
        f"- Next: {block.next_role.capitalize()}",
        *(f"- {key}: {one_line(value)}" for key, value in block.fields.items()),
    ]
    return "\n".join(["### SIGNAL BLOCK", "", *lines, "", f"**Signature**: {block.signature}"])


# What the next agent needs, by who hands over to whom; each item is there under one of its keys.
HAND_OVER: Final[dict[tuple[str, str], tuple[tuple[str, ...], ...]]] = {
    ("planner", "actor"): (
        ("files in scope", "files"),
        ("what to change", "instructions"),
        ("what to avoid",),
        ("success criteria", "win-state"),
    ),
    ("actor", "judge"): (("files changed",), ("what changed",), ("why",), ("test summary", "testing notes")),
    ("judge", "planner"): (
        ("diagnosis", "discrepancy"),
        ("root cause", "main source"),
        ("recommended changes",),
    ),
    ("judge", "human"): (("goal status", "superordinate status"), ("step status",), ("next steps",)),
}


_STEP_KEYS: Final = ("Estimated LOC", "Risk")  # of a planner's step, beside what its actor needs


def signal_form(role: str) -> str:
    """Return what the block of *role* looks like; an echo of it says nothing."""
    following = sorted({after for who, after in HAND_OVER if who == role} | {"human"})
    told = [keys[0].title() for (who, _), items in HAND_OVER.items() if who == role for keys in items]
    keys = dict.fromkeys([*told, *(_STEP_KEYS if role == "planner" else ())])
    return "\n".join(
        [
            *("### SIGNAL BLOCK", "", f"- Agent: {role.capitalize()}", "- Result: <word>"),
            *("- Loop Summary: <in one line>", "- Confidence: <0 to 10>", "- Next: <who goes on>"),
            *(f"- {key}: <in one line>" for key in keys),
            *("", f"The word is one of {', '.join(SIGNAL_RESULTS.get(role, ()))}."),
            f"Who goes on is one of {', '.join(one.capitalize() for one in following)}.",
            "What you ask of people stands above the block, one question a line, with a dash before it.",
        ]
    )


def _hand_over_gap(role: str, next_role: str | None, said: Mapping[str, str]) -> tuple[str, ...]:
    """Return the sentence for what *role* should have told the next agent and did not."""
    wanted = HAND_OVER.get((role, next_role or ""), ())
    missing = [keys[0] for keys in wanted if not any(says_something(said.get(key)) for key in keys)]
    return (f"the block tells the {next_role} nothing of: {', '.join(missing)}",) if missing else ()


# Answers with a line `VERDICT:` and sections such as `PLAN:`, and patches as text.

PATCH_DIALECT: Final = "verdict"  # in which a coder answers with a patch
VERDICT_RESULTS: Final = {"APPROVE": Outcome.PASS, "REJECT": Outcome.REVISE}
SECTIONS: Final = {"coordinator": ("COORDINATOR_NOTES",), "planner": ("PLAN", "RISKS", "TESTS")}
_VERDICT: Final = re.compile(r"^[ \t*#`]*VERDICT[*`]*:[*` \t]*([^\n]*)$", re.MULTILINE | re.IGNORECASE)
_SECTION: Final = re.compile(
    r"^[ \t*#]*(COORDINATOR_NOTES|PLAN|RISKS|TESTS|ISSUES|NOTES)[*]*:[*]*[ \t]*", re.MULTILINE
)
_BULLET: Final = re.compile(r"^[ \t]*(?:[-*]|\d+[.)])[ \t]+", re.MULTILINE)
_FENCED_DIFF: Final = re.compile(
    r"^```(?:diff|patch)?[ \t]*\n(.*?)(?:^```[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_DIFF_START: Final = re.compile(r"^(?:diff --git |--- \S)", re.MULTILINE)


_FORMS: Final = {
    "coder": """\
A unified diff against what is checked out here, in one fenced block that starts with a line ` ```diff `. It
is applied and committed for you: commit nothing yourself. Where nothing is to change, there is no diff.""",
    "coordinator": """\
    COORDINATOR_NOTES:
    - <what the experiment is to find out, what may change for it, and what must not>""",
    "planner": """\
    PLAN:
    1. <what is to be done, in which file>
    RISKS:
    - <what could go wrong>
    TESTS:
    - <the command that shows it>""",
}
_VERDICT_FORM: Final = f"""\
    VERDICT: <word>
    ISSUES:
    - <what has to change before it can pass; none where it passes>
    NOTES:
    - <what else is worth to know>

The word is {" or ".join(VERDICT_RESULTS)}."""


def verdict_form(role: str) -> str:
    """Return what an answer of *role* looks like; an echo of it says nothing."""
    return _FORMS.get(role, _VERDICT_FORM)


def read_verdict_lines(text: str, role: str, _prompt: str) -> DialectReading:
    fields = MappingProxyType({key.casefold(): value for key, value in sections_in(text).items()})
    if role == "coder":
        return DialectReading(Outcome.PASS, fields=MappingProxyType({"patch": patch_in(text)}))
    if role in SECTIONS:
        missing = [name for name in SECTIONS[role] if not fields.get(name.casefold())]
        if missing:
            return refuse(f"there is no section {missing[0]}: in what the {role} said; add it")
        return DialectReading(Outcome.PASS, fields=fields)
    return _read_approval(text, role, fields)


def _read_approval(text: str, role: str, fields: Mapping[str, str]) -> DialectReading:
    lines = _VERDICT.findall(text)
    if not lines:
        return refuse(f"there is no line VERDICT: {'|'.join(VERDICT_RESULTS)}; begin your answer with one")
    value = lines[-1].strip()
    words = [word for word in re.findall(r"\w+", value.upper()) if word in VERDICT_RESULTS]
    word = keyword(value).upper()
    if word not in VERDICT_RESULTS:
        return refuse_word(value, role, VERDICT_RESULTS)
    if len(set(words)) > 1:
        return refuse(f"the VERDICT {value!r} says two things; say one", word)
    issues = bullets_in(fields.get("issues", ""))
    if VERDICT_RESULTS[word] is Outcome.PASS and issues:
        return refuse(
            "the VERDICT is APPROVE, and ISSUES that block are named; say which of both holds", word
        )
    notes = fields.get("notes") or None
    reason = issues[0] if issues else notes
    return DialectReading(VERDICT_RESULTS[word], word, reason=reason, fields=fields, feedback=issues)


def sections_in(text: str) -> dict[str, str]:
    """Return the text below each heading such as `PLAN:`; of a heading that comes twice, the last."""
    return {heading[1]: below.strip() for heading, below in parts_below(_SECTION, text)}


def bullets_in(text: str) -> tuple[str, ...]:
    """Return the items of a list, or the whole as one item; what says that there is nothing is none."""
    items = [one_line(item) for item in _BULLET.split(text)]
    return tuple(item for item in items if says_something(item))


def patch_in(text: str) -> str:
    """Return the unified diff in *text*, also from inside fences; empty where there is none."""
    fenced = [body for body in _FENCED_DIFF.findall(text) if _DIFF_START.search(body)]
    body = "".join(fenced) or text
    start = _DIFF_START.search(body)
    return body[start.start() :].rstrip("\n") + "\n" if start else ""


# Every dialect by its name.
#
# In each the last signal counts, a word counts only whole, and what a role may not say is refused with a
# sentence: an unknown word, a block in the name of another agent, two answers at once. A refusal is no
# verdict.


class Dialect(NamedTuple):
    """A row: what reads the text of a role, with the prompt that it answers; how it is asked; what for."""

    read: Callable[[str, str, str], DialectReading]
    form: Callable[[str], str]  # of the answer, by role
    meaning: str


def read_dialect(name: str, text: str, *, role: str, prompt: str = "") -> DialectReading:
    """Return what *role* said in *text*, which answers *prompt*; raise UsageError for an unknown dialect."""
    if name not in DIALECTS:
        raise UsageError(f"there is no dialect {name!r}; {did_you_mean(name, list(DIALECTS))}")
    plain = strip_colour(text.replace("\r\n", "\n").replace("\r", "\n"))
    return DIALECTS[name].read(plain, role.casefold(), prompt)


DIALECTS: Final[dict[str, Dialect]] = {
    SIGNAL_DIALECT: Dialect(
        read_signal_block, signal_form, "a SIGNAL BLOCK at the end, with Agent, Result and Next"
    ),
    "agentium": Dialect(
        read_agentium, agentium_form, "lines that begin with AGENTIUM_EVAL, _STATUS, _MEMORY or _HANDOFF"
    ),
    "verdict": Dialect(
        read_verdict_lines, verdict_form, "VERDICT: APPROVE or REJECT, and sections such as PLAN: and ISSUES:"
    ),
}
