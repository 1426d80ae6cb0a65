"""The cycle file: a page that people read along and answer in, rendered from the board.

Only its end grows. What a person adds there is an answer; a change further up is refused with its line.
"""

import re
from collections.abc import Sequence
from enum import StrEnum
from typing import Final, NamedTuple

from liza.domain.dialects import DialectReading, SignalBlock, read_dialect, render_signal_block
from liza.domain.model import Outcome
from liza.domain.record import Record

MOST_DOCS: Final = 2  # that the page names
_RULE: Final = "---"
_FORGED: Final = re.compile(
    r"^(?=[ \t]*(?:#{1,6}[ \t]*|\*\*)?SIGNAL BLOCK\b|#{1,3}[ \t]|-{3,}[ \t]*$)", re.MULTILINE
)
_GOAL: Final = re.compile(
    r"^##[ \t]+Goal[ \t]*\n(.*?)(?=^#{1,3}[ \t]|^-{3,}[ \t]*$|\Z)", re.MULTILINE | re.DOTALL
)
_APPROVAL: Final = re.compile(
    r"^[ \t>*-]*(?:\[x\][ \t]*)?Approved(?:,[ \t]*(commit(?: and push)?|squash(?: and merge)?))?"
    r"[.!*_]*[ \t]*$",
    re.IGNORECASE | re.MULTILINE,
)
_CHANGES: Final = re.compile(
    r"^[ \t>*-]*(?:Request(?:ing)? changes|Revision requested)\b", re.IGNORECASE | re.MULTILINE
)


class CycleHead(Record):
    """What stands at the top of the page."""

    id: str  # such as 2026-01-31-001
    goal: str
    state: tuple[str, ...] = ()
    docs: tuple[str, ...] = ()


class CycleEntry(NamedTuple):
    """What one agent or person said, in one loop."""

    loop: int
    role: str
    text: str
    block: SignalBlock


def render_entries(entries: Sequence[CycleEntry], loop_before: int = 0) -> str:
    """Return what *entries* add to a page whose last entry is of the loop *loop_before*."""
    loops = [loop_before, *(entry.loop for entry in entries)]
    return "".join(_render_entry(entry, before) for entry, before in zip(entries, loops, strict=False))


def render_head(head: CycleHead) -> str:
    sections = [
        f"# Cycle: {head.id}",
        f"## Goal\n\n{_plain(head.goal)}",
        f"## Current State\n\n{_bullets(head.state)}",
        f"## Context Docs\n\n{_bullets(head.docs[:MOST_DOCS])}",
        _RULE,
    ]
    return "\n\n".join(sections) + "\n"


def _render_entry(entry: CycleEntry, loop_before: int) -> str:
    heading = f"## Iteration {entry.loop}\n\n" if entry.loop != loop_before else ""
    parts = [
        f"### {entry.role.capitalize()} Output",
        _plain(entry.text),
        render_signal_block(entry.block),
        _RULE,
    ]
    return f"\n{heading}" + "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    """Return *text* without what editors change by themselves; what looks like the page's own is quoted."""
    lines = "\n".join(line.rstrip() for line in text.replace("\r", "").strip().splitlines())
    return _FORGED.sub("> ", lines) or "(nothing)"


def _bullets(items: Sequence[str]) -> str:
    return "\n".join(f"- {' '.join(item.split())}" for item in items) or "- (none)"


def points_of(page: str, signed: str) -> tuple[str, ...]:
    """Return the points that the page lists in what is *signed* so."""
    entries = (one for one in page.split(f"\n{_RULE}\n") if one.endswith(f"**Signature**: {signed}\n"))
    said = (one.partition("### SIGNAL BLOCK")[0] for one in entries)
    return tuple(point for words in said for point in re.findall(r"^- (.+)$", words, re.MULTILINE))


class Addition(NamedTuple):
    """What a person added at the end; or *problem*, the sentence for a page that cannot be taken."""

    text: str = ""
    problem: str | None = None


def read_addition(found: str, expected: str) -> Addition:
    """Return what was added to the page that was written; an earlier part that changed is refused."""
    page = found.removeprefix("\ufeff").replace("\r\n", "\n")
    if page.startswith(expected):
        return Addition(page[len(expected) :].strip())
    if page.rstrip() == expected.rstrip():
        return Addition()
    mine, theirs = expected.splitlines(), page.splitlines()
    line = next(
        (
            number
            for number, pair in enumerate(zip(mine, theirs, strict=False))
            if pair[0].rstrip() != pair[1].rstrip()
        ),
        min(len(mine), len(theirs)),
    )
    if line == len(mine):
        return Addition("\n".join(theirs[line:]).strip())
    was = mine[line].strip() or "(blank)"
    now = theirs[line].strip() or "(blank)" if line < len(theirs) else "gone"
    return Addition(
        problem=f"line {line + 1} was {was[:60]!r} and is {now[:60]!r}; put it back, only the end may grow"
    )


class HowToMerge(StrEnum):
    """What a person who approves wants done."""

    COMMIT = "commit"
    SQUASH = "squash"


class CycleAnswer(NamedTuple):
    """What a person says: an outcome with its words; or none, with the sentence that asks for more."""

    outcome: Outcome
    text: str = ""
    label: str | None = None
    how: HowToMerge | None = None
    problem: str | None = None


UNCLEAR: Final = (
    "this is neither yes nor no; add `Approved, commit and push`, `Request changes` with what to change, "
    "or a SIGNAL BLOCK"
)


def read_answer(added: str, *, is_question: bool) -> CycleAnswer | None:
    """Return what a person added, None for nothing; where a question was asked, any words answer it."""
    if not added.strip():
        return None
    block = read_dialect("signal_block", added, role="human")
    if block.outcome is not Outcome.NONE:
        return CycleAnswer(block.outcome, _words_beside(added, block), block.label, _how(added))
    if re.search(r"\bSIGNAL BLOCK\b", added):
        return CycleAnswer(Outcome.NONE, added, problem=block.problem)
    if is_question:
        return CycleAnswer(Outcome.PASS, added.strip())
    return _plain_answer(added)


def _plain_answer(added: str) -> CycleAnswer:
    approved, changes = _APPROVAL.search(added), _CHANGES.search(added)
    if changes and not approved:
        said = (added[: changes.start()] + added[changes.end() :]).strip(" \t\n:.,-")
        if not said:
            return CycleAnswer(Outcome.NONE, problem="what is to be changed is not said; add it below")
        return CycleAnswer(Outcome.REVISE, said)
    if approved and not changes:
        return CycleAnswer(Outcome.PASS, added.strip(), how=_how(added))
    return CycleAnswer(Outcome.NONE, added.strip(), problem=UNCLEAR)


def _how(added: str) -> HowToMerge | None:
    found = _APPROVAL.search(added)
    word = (found[1] or "").partition(" ")[0].casefold() if found else ""
    return HowToMerge(word) if word else None


def _words_beside(added: str, block: DialectReading) -> str:
    before = re.split(r"^.*\bSIGNAL BLOCK\b", added, maxsplit=1, flags=re.MULTILINE)[0].strip()
    return before or block.reason or ""


def goal_in(page: str) -> str | None:
    """Return the goal that a person wrote into the page; None where there is none."""
    found = _GOAL.search(page.removeprefix("\ufeff").replace("\r\n", "\n"))
    words = found[1].strip() if found else ""
    return words if words and words != "(nothing)" and not words.startswith("<") else None


STEPS: Final = {"human": 0, "planner": 1, "actor": 2, "judge": 3}


def signature(goal: int, loop: int, role: str) -> str:
    """Return the signature of *role* in a loop; a person's review of a loop is its fourth step."""
    return f"{goal}:{loop}:{4 if role == 'human' and loop else STEPS[role]}"
