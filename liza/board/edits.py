"""A person saved `state.yaml`, without any lock and perhaps from an old copy: what did they mean?

The text is compared with the revision it was made from, and what the person changed is done to the board
as it is now: a moved status as an event of the lifecycle, a changed wish as an amendment, a new note as a
note. What is Liza's own, or against a rule, is refused whole, with every reason.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import ValidationError

from liza.board.statefile import OPTIONAL_SECTIONS, SECTIONS
from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN
from liza.domain.config import Config
from liza.domain.lifecycle import TERMINAL, TRANSITIONS
from liza.domain.model import (
    KEYED_SECTIONS,
    VERSION,
    Adopted,
    CircuitBreaker,
    Feedback,
    Goal,
    Integration,
    Note,
    Outcome,
    Role,
    Spend,
    Sprint,
    State,
    Status,
    Task,
)
from liza.domain.problems import line_of, violations_from
from liza.domain.record import next_id, with_record
from liza.domain.yaml_parse import BadYaml, ParsedYaml, parse_yaml
from liza.errors import InvalidBoard, Refused, Violation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from liza.domain.record import Record


# A board's text cut where its parts begin, so that only what was touched has to be parsed.


class YamlBlock(NamedTuple):
    section: str  # "" for what stands above the first section
    item: bool
    line: int
    text: str


# All but the tab are, or hide, a line break for YAML and none for us.
_FOREIGN: Final = ("\t", "\r", "\x85", "\u2028", "\u2029", "\ufeff")
# Below, only single characters are repeated possessively: Python before 3.11.5 gets groups wrong.
_END = r"(?=\n|\Z)"
_KEY = r"[A-Za-z_][A-Za-z0-9_.-]*+"
_DOUBLE = r'"[^"\\\n]*+(?:\\.[^"\\\n]*+)*"'
_SINGLE = r"'[^'\n]*+(?:''[^'\n]*+)*'"
_NAME = f"(?:{_KEY}|{_DOUBLE}):"
_ATOM = rf" *+(?:[\w./-]++|{_DOUBLE}|{_SINGLE}) *+"
_FLOW = rf"""\[(?:{_ATOM}(?:,{_ATOM})*)?\]|\{{[^\n\[\]{{}}"'#]*+\}}"""
_WORDS = r"(?:[\w/(.$+~^<=;\\]|-(?=\w))[^:\n]*+(?::[^ \n][^:\n]*+)*"
_VALUE = rf"(?:{_WORDS}|(?:{_DOUBLE}|{_SINGLE}|{_FLOW})? *+(?:(?<= )#.*+)?)"
# A line that closes each quote and bracket it opens. Nothing else can swallow a line at column 0: block
# scalars and unquoted ones end there.
_CLOSED = rf" *+(?:#.*+|(?:- ++)*(?:{_NAME}(?: ++|{_END}))?{_VALUE}){_END}"
_BLOCK_SCALAR = r"[|>][-+0-9]*+(?=\n)"
# The first two conditions are for speed: an ordinary line, or one without a mark that could matter, is
# left at once. Block scalars are passed over whole, for quotes in prose open nothing.
_UNCLOSED = re.compile(
    rf"\n(?! *+(?:- )?{_KEY}:(?: [\w/]|\n))"
    r"""(?=[^\n"'\[{|>]*+["'\[{|>])"""
    rf"(?:( *+)(?:-|{_NAME}) {_BLOCK_SCALAR}(?:\n(?:\1 .*+| *+{_END}))*"
    rf"|( *+)- {_NAME} {_BLOCK_SCALAR}(?:\n(?:\2   .*+| *+{_END}))*"
    rf"|(?P<unclosed>(?!{_CLOSED})))"
)
# A line at column 0 that opens neither gives its section a second block, and that is unsound.
_START = re.compile(rf"\n(?=[^ #\n])(?:(?P<section>{_KEY}):(?=[ \n]|\Z)|(?P<item>- )|)")
_BLANK = r"(?: *+(?:#.*+)?\n)* *+(?:#.*+)?"
_HEADER = re.compile(_BLANK)
_BARE = re.compile(rf"{_KEY}:(?: ++#.*+| *+)\n{_BLANK}")


def split_blocks(text: str) -> list[YamlBlock] | None:
    """Cut *text* into sections and the items of those that are lists; return None where that is not sure.

    Parsing block by block then means the same as parsing the whole. A list's section holds no value of its
    own, and its items are parsed below its name: `parse(f"{block.section}:\\n{block.text}")`.
    """
    if any(mark in text for mark in _FOREIGN) or next(unclosed_lines(text), None) is not None:
        return None
    blocks = _cut_blocks(text, list(_START.finditer("\n" + text)))
    return blocks if _is_sound(blocks) else None


def unclosed_lines(text: str) -> Iterator[int]:
    """Yield the lines that seem to open a quote or a bracket without closing it."""
    lines = "\n" + text
    for found in _UNCLOSED.finditer(lines):
        if found.lastgroup == "unclosed":
            yield lines.count("\n", 0, found.start()) + 1


def _cut_blocks(text: str, starts: list[re.Match[str]]) -> list[YamlBlock]:
    cuts = [*(start.start() for start in starts), len(text)]
    blocks = [YamlBlock("", item=False, line=1, text=text[: cuts[0]])] if cuts[0] else []
    name, line = "", 1 + text.count("\n", 0, cuts[0])
    for start, begin, end in zip(starts, cuts, cuts[1:], strict=False):
        name = start["section"] or name
        part = text[begin:end]
        blocks.append(YamlBlock(name, start.lastgroup == "item", line, part))
        line += part.count("\n")
    return blocks


def _is_sound(blocks: list[YamlBlock]) -> bool:
    sections = [block.section for block in blocks if not block.item]
    if len(set(sections)) < len(sections):
        return False
    if blocks and not blocks[0].section and not _HEADER.fullmatch(blocks[0].text):
        return False
    firsts = (before for before, block in pairwise(blocks) if block.item and not before.item)
    return all(_BARE.fullmatch(before.text) for before in firsts)


_DONE: Final = re.compile(r"^'(?:done|finished|completed?|closed|resolved|fixed)'", re.IGNORECASE)
_STAMP: Final = re.compile(r"^# stamp: (\d+) (\S*)", re.MULTILINE)
_PUT_BACK: Final = "it is Liza's own: put it back as it was"
PLAIN_KINDS: Final[dict[str, type[Record]]] = {
    "goal": Goal,
    "sprint": Sprint,
    "circuit_breaker": CircuitBreaker,
    "spend": Spend,
    "integration": Integration,
    "workflow": Adopted,
    "config": Config,
}
EDITABLE: Final[dict[str, frozenset[str]]] = {
    "goal": frozenset({"description", "spec_ref", "status", "queued", "sent_back"}),
    "sprint": frozenset({"goal", "tasks", "deadline"}),
    "config": frozenset(Config.model_fields),
    "tasks": e.AMENDABLE,
    "human_notes": frozenset({"message", "about"}),
}

# What a person has to say along with a new status, taken from the fields beside it.
_BY_HAND: Final[dict[tuple[type[e.Event], Status], Callable[[Task], e.Event]]] = {
    (e.Ready, Status.IDLE): lambda _: e.Ready(),
    (e.Answer, Status.IDLE): lambda task: e.Answer(guidance=task.guidance),
    (e.Release, Status.IDLE): lambda _: e.Release(reason="released by hand in state.yaml"),
    (e.Block, Status.BLOCKED): lambda task: e.Block(
        reason=task.blocked_reason or "", questions=task.blocked_questions
    ),
    (e.Abandon, Status.ABANDONED): lambda task: e.Abandon(
        reason=task.closing_reason or "abandoned by hand in state.yaml"
    ),
    (e.Report, Status.APPROVED): lambda task: e.Report(commit=task.review_commit),
    (e.Report, Status.NOTHING_TO_DO): lambda _: e.Report(reason="confirmed by hand in state.yaml"),
    (e.Report, Status.REJECTED): lambda task: e.Report(
        outcome=Outcome.REVISE,
        reason=task.rejection_reason or "",
        feedback=task.rejection_feedback or (Feedback(message=task.rejection_reason or ""),),
    ),
    (e.Answer, Status.APPROVED): lambda _: e.Answer(guidance="retried by hand in state.yaml", merge=True),
    (e.Supersede, Status.SUPERSEDED): lambda task: e.Supersede(
        superseded_by=task.superseded_by, rescope_reason=task.rescope_reason or ""
    ),
}
_NEW_TASK_FIELDS: Final = e.AMENDABLE | {"id", "status", "phase", "created", "created_by"}
_STATUS_FIELDS: Final = frozenset(
    {
        *("blocked_reason", "blocked_questions", "closing_reason", "rejection_reason", "rejection_feedback"),
        *("rejection_output", "superseded_by", "rescope_reason", "lease", "assigned_to", "approved_by"),
    }
)


@dataclass
class Draft:
    """An edited file: plain values by section, untouched entries as the records they were."""

    sections: dict[str, Any] = field(default_factory=dict)
    entries: dict[str, list[tuple[str, Any]]] = field(default_factory=dict)  # section: (path, value)
    paths: set[str] = field(default_factory=set)  # of all entries
    lines: dict[str, int] = field(default_factory=dict)  # path: line
    unnamed: set[str] = field(default_factory=set)  # ids that were given here to notes that had none
    is_stamped: bool = False  # whether the text says by Liza's own sum which revision it was made from
    wrong: list[Violation] = field(default_factory=list)

    def refuse(self, path: str, problem: str, mend: str) -> None:
        self.wrong.append(Violation(path, problem, mend, line_of(path, self.lines)))

    def check(self) -> None:
        """Raise everything that was refused so far."""
        if self.wrong:
            raise InvalidBoard("state.yaml is not valid", self.wrong)


def normalize_saved(data: bytes) -> bytes:
    """Return *data* without what editors add by themselves, such as a byte order mark."""
    return data.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")


def stated_revision(text: str) -> int | None:
    """Return the revision that *text* was made from, if it still says so anywhere."""
    found = re.search(r"^revision: *(\d+) *$", text, re.MULTILINE)
    return int(found[1]) if found else None


def read_draft(text: str, untouched: Mapping[str, Record]) -> Draft:
    """Return what *text* says; a block that is in *untouched* is taken for its record, unparsed."""
    draft = Draft()
    try:
        blocks = split_blocks(text)
        if blocks is None:
            _take(draft, parse_yaml(text), 0, {})
        else:
            _take_blocks(draft, blocks, untouched)
    except BadYaml as error:
        draft.wrong.append(_yaml_violation(error, text))
        draft.check()
    _check_sections(draft, text)
    draft.check()
    _name_notes(draft)
    return draft


def _yaml_violation(error: BadYaml, text: str) -> Violation:
    opened = [line for line in unclosed_lines(text) if line < error.line]
    if not opened:
        return Violation("state.yaml", error.problem, "mend the YAML there", error.line)
    # A quote that was forgotten makes sense until the next quote, which may be pages below.
    problem = f"what is opened here seems not to be closed (line {error.line}: {error.problem})"
    return Violation("state.yaml", problem, "mend the YAML there", opened[-1])


def _name_notes(draft: Draft) -> None:
    """Give the notes that have no id one that no other note has."""
    entries = draft.entries.get("human_notes", [])
    taken = {path.removeprefix("human_notes.") for path, value in entries if _has_id(value)}
    for number, (path, value) in enumerate(entries):
        if not _has_id(value):
            name = next_id(taken, "note")
            taken.add(name)
            draft.unnamed.add(name)
            entries[number] = (f"human_notes.{name}", {"id": name, **value})
            for known in [known for known in draft.lines if known.startswith(path)]:
                draft.lines[f"human_notes.{name}{known.removeprefix(path)}"] = draft.lines[known]


def _has_id(value: object) -> bool:
    return not isinstance(value, dict) or "id" in value


def _take_blocks(draft: Draft, blocks: list[YamlBlock], untouched: Mapping[str, Record]) -> None:
    seen: dict[str, int] = {}
    for block in blocks:
        if not block.section:
            continue
        if not block.item:
            if block.section in seen:
                problem = f"the section {block.section!r} is there twice"
                raise BadYaml(block.line, problem)
            seen[block.section] = block.line
            _take(draft, _parse_block(block.text, block.line - 1), block.line - 1, {})
        elif (known := untouched.get(block.text)) is not None and _section_of(known) == block.section:
            path = _add_entry(draft, block.section, known.id, known)  # type: ignore[attr-defined]
            draft.lines[path] = block.line
        else:
            whole = _parse_block(f"{block.section}:\n{block.text}", block.line - 2)
            _take(draft, whole, block.line - 2, {})


def _parse_block(text: str, above: int) -> ParsedYaml:
    """Parse *text*, which has *above* lines before it; they are counted only where something is wrong."""
    try:
        return parse_yaml(text)
    except BadYaml:
        return parse_yaml("\n" * above + text)


def _add_entry(draft: Draft, section: str, name: object, value: object) -> str:
    """Add an entry and return its path; one without an id, or with one that is taken, goes by its number."""
    entries = draft.entries.setdefault(section, [])
    path = f"{section}.{name}"
    if not name or path in draft.paths:
        path = f"{section}[{len(entries)}]"
    draft.paths.add(path)
    entries.append((path, value))
    return path


def _section_of(record: Record) -> str:
    return next(section for section, kind in KEYED_SECTIONS.items() if isinstance(record, kind))


def _take(draft: Draft, parsed: ParsedYaml, shift: int, names: dict[tuple[str | int, ...], str]) -> None:
    """Sort parsed values into the draft by section, and record the path and line of each."""
    for section, said in parsed.data.items():
        value = _as_notes(said) if section == "human_notes" else said
        if section in KEYED_SECTIONS and isinstance(value, list):
            for number, entry in enumerate(value):
                name = entry.get("id") if isinstance(entry, dict) else None
                names[section, number] = _add_entry(draft, section, name, entry)
        elif section not in KEYED_SECTIONS or value is not None:
            draft.sections[section] = value
    for place, line in parsed.lines.items():
        if place:
            draft.lines.setdefault(_path(place, names), line + shift)


def _as_notes(value: object) -> object:
    """Take a bare text for the note that it is."""
    entries = [value] if isinstance(value, str) else value
    if not isinstance(entries, list):
        return value
    return [{"message": entry} if isinstance(entry, str) else entry for entry in entries]


def _path(place: tuple[str | int, ...], names: Mapping[tuple[str | int, ...], str]) -> str:
    stem, rest = (names[place[:2]], place[2:]) if place[:2] in names else (str(place[0]), place[1:])
    for part in rest:
        stem += f"[{part}]" if isinstance(part, int) else f".{part}"
    return stem


def _check_sections(draft: Draft, text: str) -> None:
    if not text.strip():
        draft.wrong.append(Violation("state.yaml", "the file is empty", "put its text back, or remove it", 1))
        return
    there = {*draft.sections, *draft.entries}
    for section in sorted(there - {*SECTIONS, "version", "revision"}):
        draft.refuse(section, "it is not a section of the board", f"use one of {', '.join(SECTIONS)}")
    version = draft.sections.get("version")
    if version != VERSION and "version" in there:
        draft.refuse(
            "version",
            f"the file is of version {version}, and this Liza reads version {VERSION}",
            "use the Liza that wrote it",
        )
        return
    needed = ("version", "revision", *(name for name in SECTIONS if name not in OPTIONAL_SECTIONS))
    if missing := [name for name in needed if name not in {*there, *draft.lines}]:
        problem = f"it has no {', '.join(missing)}: the file looks cut off"
        draft.wrong.append(Violation("state.yaml", problem, "put it back", len(text.splitlines())))
    for section in KEYED_SECTIONS:
        if section in draft.sections and draft.sections[section] not in ([], None):
            draft.refuse(section, "it is not a list of entries", "write one entry a line, each with an id")


def parse_state(draft: Draft, at: datetime) -> State:
    """Return the edited file as a board of its own, or raise everything that is wrong with its values."""
    fields: dict[str, Any] = {}
    for section, kind in KEYED_SECTIONS.items():
        fields[section] = _records(draft, section, kind, at)
    for section, kind in PLAIN_KINDS.items():
        fields[section] = _record(draft, kind, section, _empty_if_none(draft.sections.get(section)))
    fields["archived"] = _empty_if_none(draft.sections.get("archived"))
    fields |= {key: draft.sections[key] for key in ("version", "revision")}
    draft.check()
    try:
        return State.model_validate(fields)
    except ValidationError as error:
        draft.wrong += violations_from(error, State, "", draft.lines)
    draft.check()
    raise AssertionError(fields)


def _empty_if_none(value: object) -> object:
    return {} if value is None else value


def _records(draft: Draft, section: str, kind: type[Record], at: datetime) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for path, value in draft.entries.get(section, ()):
        record = (
            value
            if isinstance(value, kind)
            else _record(draft, kind, path, _with_defaults(section, value, at))
        )
        if record is None:
            continue
        name: str = record.id  # type: ignore[attr-defined]
        if name in found:
            draft.refuse(path, f"the id {name!r} is used twice", "give one of the two another id")
        found[name] = record
    return found


def _with_defaults(section: str, value: Any, at: datetime) -> Any:  # noqa: ANN401
    """Add what a person need not write: the time of a note, the birth of a task."""
    if not isinstance(value, dict):
        return value
    now = at.isoformat()
    match section:
        case "human_notes":
            return {"timestamp": now, **value}
        case "tasks" if "history" not in value:
            return {"status": "IDLE", "created": now, "created_by": HUMAN.id, **value}
        case _:
            return value


def _record(draft: Draft, kind: type[Record], path: str, value: object) -> Record | None:
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        draft.wrong += map(_with_done_hint, violations_from(error, kind, path, draft.lines))
        return None


def _with_done_hint(wrong: Violation) -> Violation:
    """Add a hint for a person who wrote a status like `done`: tasks are finished by merging."""
    where, _, key = wrong.path.rpartition(".")
    if key != "status" or not where.startswith("tasks") or not _DONE.search(wrong.problem):
        return wrong
    mend = (
        "a task is done when Liza has merged it (MERGED); "
        "put its status back, or set it to ABANDONED if nobody is to work on it"
    )
    return wrong._replace(mend=mend)


def check_revision(draft: Draft, text: str, current: int) -> int:
    """Return the revision that the edit was made from, or raise that its number was changed."""
    revision = draft.sections["revision"]
    stamp = _STAMP.search(text)
    if not isinstance(revision, int) or isinstance(revision, bool) or revision < 1:
        draft.refuse("revision", f"{revision!r} is not a revision", f"put {current} back")
    elif stamp and int(stamp[1]) != revision:
        draft.refuse(
            "revision",
            f"the file was written as revision {stamp[1]}, and now says {revision}",
            f"put {stamp[1]} back: Liza counts revisions",
        )
    elif revision > current:
        draft.refuse("revision", f"it says {revision}, but the board is at {current}", f"put {current} back")
    draft.check()
    return int(revision)


def check_stamp(draft: Draft, text: str, revision: int, total: str) -> None:
    """Raise if *text* was made from another board than the one whose sum at *revision* is *total*."""
    stamp = _STAMP.search(text)
    draft.is_stamped = stamp is not None
    if stamp and stamp[2] != total:
        draft.refuse(
            "revision",
            f"the file was not written as revision {revision} of this board",
            "put the number and the line above it back, or edit a copy of this board",
        )
    draft.check()


def merge_edit(draft: Draft, edited: State, base: State, current: State, at: datetime) -> State:
    """Return *current* with a person's changes from *base* to *edited* (a three-way merge), or raise."""
    merge = _Merge(draft, edited, base, current, at)
    merge.tasks()
    merge.notes()
    for section in PLAIN_KINDS:
        merge.settings(section)
    for section in ("agents", "anomalies", "discovered", "handoff", "providers", "accounts", "archived"):
        merge.own(section)
    if merge.later_value and not draft.is_stamped and edited.revision < current.revision:
        draft.refuse(
            "revision",
            f"it says {edited.revision}, but the file shows {merge.later_value}, which came later",
            f"put {current.revision} back: Liza counts revisions",
        )
    draft.check()
    return merge.state


class _Merge:
    """One three-way merge; `state` is the board as it becomes."""

    def __init__(self, draft: Draft, edited: State, base: State, current: State, at: datetime) -> None:
        self.draft, self.edited, self.base, self.state, self.at = draft, edited, base, current, at
        self.later_value: str | None = None  # a path whose value only a later revision than *base* has

    def tasks(self) -> None:
        for name, wanted in self.edited.tasks.items():
            if (base := self.base.tasks.get(name)) is None:
                self._add(wanted)
            elif wanted is not base and wanted != base:
                self._move(base, wanted)
        for name in self.base.tasks.keys() - self.edited.tasks.keys():
            self._refuse_removal(self.base.tasks[name])

    def _add(self, wanted: Task) -> None:
        path = f"tasks.{wanted.id}"
        if (there := self.state.tasks.get(wanted.id)) is not None:
            if there == wanted:
                self.later_value = path
            elif not _has_same_request(wanted, there):
                self.draft.refuse(path, "a task of this id was added meanwhile", "choose another id")
            return
        for name in sorted(Task.model_fields.keys() - _NEW_TASK_FIELDS):
            if getattr(wanted, name) != Task.model_fields[name].get_default(call_default_factory=True):
                self.draft.refuse(f"{path}.{name}", "a new task has no past", "remove it")
        self._try(path, lambda: _with_new(self.state, wanted, self.at))

    def _move(self, base: Task, wanted: Task) -> None:
        changed = [name for name in Task.model_fields if getattr(base, name) != getattr(wanted, name)]
        amended = [name for name in changed if self._is_asked(base, wanted, name)]
        if amended:
            event = e.Amend(fields={name: getattr(wanted, name) for name in amended})
            self._try(f"tasks.{wanted.id}.{amended[0]}", lambda: self._apply_by_hand(event, wanted.id))
        if "status" in changed and not self._is_later_value(f"tasks.{wanted.id}", wanted, "status"):
            self._set_status(base, wanted)

    def _is_asked(self, base: Task, wanted: Task, name: str) -> bool:
        """Return whether the edit of this field is to be applied; refuse one that people may not make."""
        path = f"tasks.{wanted.id}"
        if name == "status" or self._is_later_value(path, wanted, name):
            return False
        if name in _STATUS_FIELDS and base.status is not wanted.status:
            return False
        if name not in EDITABLE["tasks"]:
            self.draft.refuse(f"{path}.{name}", _change_problem(name), _PUT_BACK)
            return False
        return self._is_unchanged_since(f"{path}.{name}", getattr(base, name), self._now(wanted.id, name))

    def _now(self, name: str, attribute: str) -> object:
        there = self.state.tasks.get(name)
        return None if there is None else getattr(there, attribute)

    def _is_later_value(self, path: str, wanted: Task, name: str) -> bool:
        if self._now(wanted.id, name) != getattr(wanted, name):
            return False
        self.later_value = f"{path}.{name}"
        return True

    def _is_unchanged_since(self, path: str, before: object, now: object) -> bool:
        if now == before:
            return True
        self.draft.refuse(path, "it was changed after your copy was made", "look again and edit anew")
        return False

    def _set_status(self, base: Task, wanted: Task) -> None:
        path = f"tasks.{wanted.id}.status"
        there = self.state.tasks.get(wanted.id)
        if there is None:
            self.draft.refuse(path, "the task is finished and archived", "make a new task")
            return
        if _was_moved_by_hand(base, there, wanted.status):
            return  # saved twice from one copy: it is done, and what agents made of it since stays
        if not self._is_unchanged_since(path, base.status, there.status):
            return
        make = _event_by_hand(there.status, wanted.status)
        if make is None:
            can = ", ".join(sorted(_reachable_statuses(there.status))) or "nowhere: it is final"
            self.draft.refuse(
                path,
                f"a person may not move a task from {there.status} to {wanted.status}",
                f"put {there.status} back; from there you may go to {can}",
            )
            return
        self._try(path, lambda: self._apply_by_hand(make(wanted), wanted.id))

    def _apply_by_hand(self, event: e.Event, to: str) -> State:
        from liza.workflow.transition import apply  # noqa: PLC0415 - who only reads a board needs no engine

        return apply(event, to=to, by=HUMAN, at=self.at)(self.state)

    def _try(self, path: str, make: Callable[[], State]) -> None:
        try:
            self.state = make()
        except Refused as error:
            self.draft.refuse(path, str(error), "undo this part of the edit")
        except ValidationError as error:
            what = ", ".join(str(details["loc"][0]) for details in error.errors() if details["loc"])
            self.draft.refuse(path, f"this status needs {what}", "write it beside the status")

    def _refuse_removal(self, gone: Task) -> None:
        if gone.status in TERMINAL:
            mend = "put it back: what is finished leaves the board by itself (limits.finished_on_board)"
        else:
            mend = "put it back, or set it to ABANDONED"
        self.draft.refuse(f"tasks.{gone.id}", "the task was removed", mend)

    def notes(self) -> None:
        for name, wanted in self.edited.human_notes.items():
            base = self.base.human_notes.get(name)
            if base is None:
                self._note(wanted)
            elif wanted != base:
                self._change_note(base, wanted)
        for name in self.base.human_notes.keys() - self.edited.human_notes.keys():
            self.draft.refuse(f"human_notes.{name}", "the note was removed", "put it back: notes are kept")

    def _note(self, wanted: Note) -> None:
        there = self.state.human_notes.get(wanted.id)
        if there == wanted:
            self.later_value = f"human_notes.{wanted.id}"
            return
        if wanted.id in self.draft.unnamed and self._was_noted(wanted):
            return  # saved twice from one copy
        if wanted.processed or wanted.processed_by:
            self.draft.refuse(
                f"human_notes.{wanted.id}.processed", "a new note is not processed", "remove it"
            )
            return
        if there is not None:
            wanted = wanted.replace(id=next_id(self.state.human_notes, "note"))
        self.state = self.state.replace(human_notes=with_record(self.state.human_notes, wanted))

    def _was_noted(self, wanted: Note) -> bool:
        since = (note for name, note in self.state.human_notes.items() if name not in self.base.human_notes)
        return any((note.message, note.about) == (wanted.message, wanted.about) for note in since)

    def _change_note(self, base: Note, wanted: Note) -> None:
        path = f"human_notes.{wanted.id}"
        there = self.state.human_notes[wanted.id]
        changed = {name for name in Note.model_fields if getattr(base, name) != getattr(wanted, name)}
        if there == wanted:
            self.later_value = path
        elif there.processed or not changed <= EDITABLE["human_notes"]:
            self.draft.refuse(
                path, "the note was read already, or is Liza's to mark", "add another note instead"
            )
        elif self._is_unchanged_since(path, base, there):
            self.state = self.state.replace(human_notes=with_record(self.state.human_notes, wanted))

    def settings(self, section: str) -> None:
        base, wanted, now = (getattr(state, section) for state in (self.base, self.edited, self.state))
        for name in type(wanted).model_fields:
            value, path = getattr(wanted, name), f"{section}.{name}"
            if value == getattr(base, name):
                continue
            if value == getattr(now, name):
                self.later_value = path
            elif name not in EDITABLE.get(section, ()):
                self.draft.refuse(path, "it was changed", _PUT_BACK)
            elif self._is_unchanged_since(path, getattr(base, name), getattr(now, name)):
                now = now.replace(**{name: value})
        self.state = (
            self.state.replace(**{section: now}) if now is not getattr(self.state, section) else self.state
        )

    def own(self, section: str) -> None:
        base, wanted, now = (getattr(state, section) for state in (self.base, self.edited, self.state))
        for name in {**base, **wanted}:
            if wanted.get(name) == base.get(name):
                continue
            if wanted.get(name) == now.get(name):
                self.later_value = f"{section}.{name}"
            else:
                self.draft.refuse(f"{section}.{name}", "it was changed", _PUT_BACK)


def _with_new(state: State, wanted: Task, at: datetime) -> State:
    from liza.workflow.document import workflow_on  # noqa: PLC0415 - who only reads a board needs no workflow
    from liza.workflow.transition import new_task_at_start  # noqa: PLC0415 - as above

    return state.with_task(new_task_at_start(workflow_on(state), wanted, by=HUMAN, at=at))


def _has_same_request(one: Task, other: Task) -> bool:
    return not one.history and all(getattr(one, name) == getattr(other, name) for name in e.AMENDABLE)


def _was_moved_by_hand(base: Task, there: Task, target: Status) -> bool:
    """Return whether a person moved the task to *target* after *base*, as far as the shown history tells."""
    since = there.history[max(0, base.event_count - there.history_earlier) :]
    return any(entry.role is Role.HUMAN and entry.target is target for entry in since)


def _change_problem(name: str) -> str:
    return "history is append-only, and it was changed" if name.startswith("history") else "it was changed"


def _event_by_hand(source: Status, target: Status) -> Callable[[Task], e.Event] | None:
    rows = (row for row in TRANSITIONS if source in row.sources and Role.HUMAN in row.who)
    keys = ((row.event, target) for row in rows if target in row.targets)
    return next((_BY_HAND[key] for key in keys if key in _BY_HAND), None)


def _reachable_statuses(source: Status) -> set[Status]:
    return {status for status in Status if _event_by_hand(source, status) is not None}
