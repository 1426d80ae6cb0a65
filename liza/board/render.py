"""`state.yaml` as a text: which blocks it has, and which of them an update has to write anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from liza.board.replay import json_names
from liza.domain import yaml_emit
from liza.domain.model import KEYED_SECTIONS, VERSION
from liza.domain.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from liza.domain.invariants import StateDiff
    from liza.domain.model import HistoryEntry, State

HEADER: Final = (
    "# Liza's board. You may edit it here or with `liza edit`; what may be changed is in specs/board.md.\n"
)
# What stands in the file only where there is something to say.
OPTIONAL_SECTIONS: Final = frozenset({"integration", "workflow"})
SECTIONS: Final = (
    "goal",
    "tasks",
    "agents",
    "sprint",
    "human_notes",
    "anomalies",
    "discovered",
    "handoff",
    "circuit_breaker",
    "providers",
    "spend",
    "accounts",
    "integration",
    "workflow",
    "config",
    "archived",
)


class StateDocument:
    """The text of one board; of what changed, a block is made anew when somebody asks for the text."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._parts: dict[tuple[str, str], _Parts] = {}  # of what changed once, by section and id
        self._stale: set[tuple[str, str]] = set()  # blocks to be made anew, by section and id
        self._blocks: dict[str, dict[str, bytes]] = {}
        for section in SECTIONS:
            value = getattr(state, section)
            if section in KEYED_SECTIONS:
                self._blocks[section] = {name: _item_bytes(record) for name, record in value.items()}
            else:
                self._blocks[section] = {"": _section_bytes(section, value)}

    def follow(self, step: StateDiff) -> None:
        """Bring the text from the old state of *step* to the new one."""
        self._state = step.new
        # First, because what went and came back stands last.
        for section, gone in step.gone.items():
            for name in gone:
                self._blocks[section].pop(name, None)
                self._parts.pop((section, name), None)
                self._stale.discard((section, name))
        for section, names in step.put.items():
            for name in names if section in KEYED_SECTIONS else ("",):
                self._blocks[section].setdefault(name, b"")
                self._stale.add((section, name))

    def _freshen(self) -> None:
        """Make the blocks that are asked for: one that changed often since then is made once."""
        for section, name in self._stale:
            value = getattr(self._state, section)
            self._blocks[section][name] = (
                self._splice(section, value[name]) if name else _section_bytes(section, value)
            )
        self._stale.clear()

    def _splice(self, section: str, record: Record) -> bytes:
        """Return the text of *record*, made of that before it where nothing changed."""
        key = section, record.__dict__["id"]
        if (parts := self._parts.get(key)) is None:
            parts = self._parts[key] = _Parts(type(record))
        return parts.follow(record)

    def bytes(self, stamp: str) -> bytes:
        """Return the file; *stamp* is the journal's sum at this revision."""
        self._freshen()
        revision = self._state.revision
        head = f"{HEADER}# stamp: {revision} {stamp}\nversion: {VERSION}\nrevision: {revision}\n"
        parts = [head.encode()]
        for section, blocks in self._blocks.items():
            if section in KEYED_SECTIONS:
                parts.append(f"{section}:\n".encode() if blocks else f"{section}: []\n".encode())
            parts += blocks.values()
        return b"".join(parts)

    def untouched(self, state: State) -> dict[str, Record]:
        """Return the records of *state* by their texts, to tell which of an edited file nobody touched."""
        self._freshen()
        return {
            block.decode(): getattr(state, section)[name]
            for section in KEYED_SECTIONS
            for name, block in self._blocks[section].items()
        }


class _Parts:
    """The text of one record, field by field."""

    def __init__(self, kind: type[Record]) -> None:
        self._names = json_names(kind)
        self._texts = dict.fromkeys(self._names, "")
        # The values that the texts show, and the texts of a history's entries. One value, set at once.
        self._shown: tuple[dict[str, Any], list[str]] = ({}, [])

    def follow(self, record: Record) -> bytes:
        """Return the text of *record*."""
        (before, past), fields = self._shown, record.__dict__
        changed = {name for name, value in fields.items() if before.get(name, self) is not value}
        if "history" in changed:
            changed.remove("history")
            past = _entry_texts(fields["history"], before.get("history", ()), past)
            self._texts["history"] = "".join(["  history:\n", *past]) if past else ""
        plain = record.model_dump(mode="json", exclude_defaults=True, include=changed)
        for key, name in self._names.items():
            if name in changed:
                self._texts[key] = yaml_emit.field_text(key, plain[key]) if key in plain else ""
        self._shown = fields, past
        return f"- {''.join(self._texts.values()).removeprefix('  ')}".encode()


def _entry_texts(
    entries: Sequence[HistoryEntry], before: Sequence[HistoryEntry], texts: Sequence[str]
) -> list[str]:
    """Return the texts of *entries*, most of which are among those *before*."""
    known = {id(entry): text for entry, text in zip(before, texts, strict=True)}
    return [known.get(id(entry)) or yaml_emit.nested_item_text(entry.to_json()) for entry in entries]


def render_state(state: State, stamp: str) -> bytes:
    """Return the whole text of *state*."""
    return StateDocument(state).bytes(stamp)


def _item_bytes(record: Record) -> bytes:
    return yaml_emit.item_text(record.to_json()).encode()


def _section_bytes(section: str, value: Record | Mapping[str, str]) -> bytes:
    # Settings are shown with their defaults, so that people see what there is to change.
    raw: yaml_emit.Json = (
        value.model_dump(mode="json", exclude_none=True) if isinstance(value, Record) else dict(value)
    )
    if section in OPTIONAL_SECTIONS and isinstance(value, Record) and value == type(value)():
        return b""
    return yaml_emit.section_text(section, raw).encode()
