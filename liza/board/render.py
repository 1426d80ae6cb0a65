"""`state.yaml` as a text: which blocks it has, and which of them an update has to write anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.domain import yaml_emit
from liza.domain.model import KEYED_SECTIONS, VERSION, Task
from liza.domain.record import Record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from liza.board.replay import JsonBySection, JsonRecord
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
    """The text of one board; `follow` rewrites only the blocks of what changed."""

    def __init__(self, state: State) -> None:
        self._revision = state.revision
        self._pasts: dict[str, tuple[tuple[HistoryEntry, ...], list[str]]] = {}  # task: its history as text
        self._blocks: dict[str, dict[str, bytes]] = {}
        for section in SECTIONS:
            value = getattr(state, section)
            if section in KEYED_SECTIONS:
                self._blocks[section] = {name: self._item(record) for name, record in value.items()}
            else:
                self._blocks[section] = {"": _section_bytes(section, value)}

    def follow(self, step: StateDiff, plains: JsonBySection | None = None) -> None:
        """Bring the text from the old state of *step* to the new one."""
        self._revision = step.new.revision
        # First, because what went and came back stands last.
        for section, gone in step.gone.items():
            for name in gone:
                self._blocks[section].pop(name, None)
                self._pasts.pop(name, None)
        for section, names in step.put.items():
            value = getattr(step.new, section)
            if section in KEYED_SECTIONS:
                known = plains[section] if plains else {}
                self._blocks[section].update(
                    (name, self._item(value[name], known.get(name))) for name in names
                )
            else:
                self._blocks[section] = {"": _section_bytes(section, value)}

    def _item(self, record: Record, plain: JsonRecord | None = None) -> bytes:
        if not isinstance(record, Task):
            return yaml_emit.item_text(plain or record.to_json()).encode()
        plain = plain or record.replace(history=()).to_json()
        return (yaml_emit.item_text(plain) + self._past(record)).encode()

    def _past(self, task: Task) -> str:
        """Return the text of the history, most of which was written before."""
        if not task.history:
            return ""
        known, texts = self._pasts.get(task.id, ((), []))
        by_entry = {id(entry): shown for entry, shown in zip(known, texts, strict=True)}
        fresh = [
            by_entry.get(id(entry)) or yaml_emit.nested_item_text(entry.to_json()) for entry in task.history
        ]
        self._pasts[task.id] = (task.history, fresh)
        return "".join(["  history:\n", *fresh])

    def bytes(self, stamp: str) -> bytes:
        """Return the file; *stamp* is the journal's sum at this revision."""
        head = f"{HEADER}# stamp: {self._revision} {stamp}\nversion: {VERSION}\nrevision: {self._revision}\n"
        parts = [head.encode()]
        for section, blocks in self._blocks.items():
            if section in KEYED_SECTIONS:
                parts.append(f"{section}:\n".encode() if blocks else f"{section}: []\n".encode())
            parts += blocks.values()
        return b"".join(parts)

    def untouched(self, state: State) -> dict[str, Record]:
        """Return the records of *state* by their texts, to tell which of an edited file nobody touched."""
        return {
            block.decode(): getattr(state, section)[name]
            for section in KEYED_SECTIONS
            for name, block in self._blocks[section].items()
        }


def render_state(state: State, stamp: str) -> bytes:
    """Return the whole text of *state*."""
    return StateDocument(state).bytes(stamp)


def _section_bytes(section: str, value: Record | Mapping[str, str]) -> bytes:
    # Settings are shown with their defaults, so that people see what there is to change.
    raw: yaml_emit.Json = (
        value.model_dump(mode="json", exclude_none=True) if isinstance(value, Record) else dict(value)
    )
    if section in OPTIONAL_SECTIONS and isinstance(value, Record) and value == type(value)():
        return b""
    return yaml_emit.section_text(section, raw).encode()
