"""Lines that begin with AGENTIUM_: a verdict, a status, something to remember, a hand-off, a plan."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from liza.domain.dialects.reading import DialectReading, keyword, refuse_word
from liza.domain.memory import AGENT_TYPES, MemoryType
from liza.domain.verdicts import Outcome

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
