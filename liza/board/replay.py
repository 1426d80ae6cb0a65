"""What an update changed, as the journal keeps it, and the same change done again on replay."""

from __future__ import annotations

from functools import cache
from itertools import compress
from operator import is_not
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from liza.domain.model import KEYED_SECTIONS, PLAIN_SECTIONS, SHOWN_EVENTS, State, Status, Task
from liza.domain.record import Record, with_records
from liza.errors import InvalidBoard, Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from liza.board.journal import JournalLine
    from liza.board.protocol import JournalEntry
    from liza.domain.invariants import StateDiff

JsonRecord = dict[str, Any]
JsonBySection = dict[
    str, dict[str, JsonRecord]
]  # section: id: the record; "" is the id of a section that is one record
DERIVED: Final = frozenset({"history", "history_earlier"})  # replay counts these by itself


def diff_states(old: State, new: State) -> StateDiff:
    """Return the difference of two states; unchanged records are shared, so they are compared by identity."""
    from liza.domain.invariants import StateDiff  # noqa: PLC0415 - who only reads a board makes no step

    put: dict[str, tuple[str, ...]] = {}
    gone: dict[str, tuple[str, ...]] = {}
    moved: dict[str, Any] = {}
    for section in KEYED_SECTIONS:
        before, after = getattr(old, section), getattr(new, section)
        if before is after:
            continue
        ordered, changed = _compare(before, after)
        if ordered is not after:
            moved[section] = ordered
        if changed:
            put[section] = changed
        if len(after) - sum(name not in before for name in changed) < len(before):
            gone[section] = tuple(name for name in before if name not in after)
    for section in PLAIN_SECTIONS:
        if getattr(old, section) is not getattr(new, section):
            put[section] = ()
    return StateDiff(old, new.replace(**moved) if moved else new, put, gone)


def _compare(
    before: Mapping[str, Record], after: Mapping[str, Record]
) -> tuple[Mapping[str, Record], tuple[str, ...]]:
    """Return *after* as a replay orders it (first what was there), and the names of what changed in it."""
    names = list(after)
    if names == list(before):  # the usual case, at the speed of C
        return after, tuple(compress(names, map(is_not, after.values(), before.values())))
    ordered = list(dict.fromkeys([*(name for name in before if name in after), *names]))
    changed = tuple(name for name in ordered if before.get(name) is not after[name])
    return (after if names == ordered else MappingProxyType({name: after[name] for name in ordered})), changed


def is_empty_diff(step: StateDiff) -> bool:
    return not step.put and not step.gone


def json_of_changes(step: StateDiff) -> JsonBySection:
    """Return the records that *step* puts as JSON values, without their history.

    Raise unless each can be read back as the same value.
    """
    plains: JsonBySection = {}
    for section, names in step.put.items():
        if section in KEYED_SECTIONS:
            records = getattr(step.new, section)
            plains[section] = {name: _round_trip(records[name], f"{section}.{name}", name) for name in names}
        elif section != "archived":
            plains[section] = {"": _round_trip(getattr(step.new, section), section, None)}
    return plains


def _round_trip(record: Record, path: str, name: str | None) -> JsonRecord:
    # The history of a task is made of records that were checked when they were made, and there are many.
    bare = record.replace(history=()) if isinstance(record, Task) else record
    try:
        plain = bare.model_dump(mode="json", exclude_defaults=True, warnings="error")
        reborn = type(record).model_validate(plain)
    except ValidationError as error:
        from liza.domain.problems import violations_from  # noqa: PLC0415 - only needed here

        raise InvalidBoard(
            "the change was refused", violations_from(error, type(record), path, {})
        ) from error
    except ValueError as error:  # what the record holds has no form in JSON
        raise _round_trip_error(path) from error
    if reborn != bare or (name is not None and plain["id"] != name):
        raise _round_trip_error(path)
    return plain


def _round_trip_error(path: str) -> InvalidBoard:
    wrong = Violation(path, "it would be read back as another value", "give values of the field's type")
    return InvalidBoard("the change was refused", [wrong])


def journal_fields(step: StateDiff, plains: JsonBySection) -> dict[str, Any]:
    """Return the changed fields by section and id, ready for JSON; None puts a field back to its default."""
    found: dict[str, Any] = {}
    for section, names in step.put.items():
        if section in KEYED_SECTIONS:
            before, after = getattr(step.old, section), getattr(step.new, section)
            found[section] = {
                name: _fields(before.get(name), after[name], plains[section][name]) for name in names
            }
        elif section == "archived":
            old, new = step.old.archived, step.new.archived
            found[section] = {name: status for name, status in new.items() if old.get(name) is not status}
        else:
            found[section] = plains[section][""]
    return found


def _fields(old: Record | None, new: Record, plain: JsonRecord) -> JsonRecord:
    if old is None:
        found = dict(plain)
        known = 0
    else:
        before, after = old.__dict__, new.__dict__
        changed = [name for name in after if before[name] is not after[name]]
        fields = type(new).model_fields
        keys = [fields[name].alias or name for name in changed if name not in DERIVED]
        found = {key: plain.get(key) for key in keys}
        known = len(before.get("history", ()))
    if added := new.__dict__.get("history", ())[known:]:
        found["history"] = [entry.to_json() for entry in added]
    return found


def first_state(entry: JournalEntry) -> State:
    """Return the board that the first entry of a journal makes."""
    return _with_trimmed_tasks(_build_state({**entry.put, "revision": entry.revision}))


def _build_state(plain: JsonRecord) -> State:
    """Return the board that *plain* is, checked section by section.

    Building what checks a kind of record takes milliseconds, and most boards begin with few kinds. Whatever
    is not plainly right is left to the check of the whole, which says what is wrong.
    """
    kept = {
        section: value for section, value in plain.items() if section in {*KEYED_SECTIONS, *PLAIN_SECTIONS}
    }
    others = plain.keys() - kept.keys()
    if others != {"revision"} or "archived" in kept or "goal" not in kept:
        return State.model_validate(plain)
    fields: JsonRecord = {}
    for section, value in kept.items():
        if (kind := KEYED_SECTIONS.get(section)) is None:
            fields[section] = section_type(section).model_validate(value)
            continue
        records = {record["id"]: kind.model_validate(record) for record in value}
        if len(records) < len(value):
            return State.model_validate(plain)
        fields[section] = MappingProxyType(records)
    return State.model_construct(revision=plain["revision"], **fields)


def section_type(section: str) -> type[Record]:
    """Return the kind of record that a plain section is."""
    kind = State.model_fields[section].annotation
    if not isinstance(kind, type) or not issubclass(kind, Record):
        raise TypeError(section)
    return kind


def replay_entries(state: State, entries: Iterable[JournalEntry]) -> State:
    """Return *state* after *entries*; each record is built once, however often it changed."""
    keyed: dict[str, _Section] = {}
    plain: JsonRecord = {"archived": {}}
    revision = state.revision
    for entry in entries:
        revision = entry.revision
        for section, value in entry.put.items():
            if section in KEYED_SECTIONS:
                _section(keyed, state, section).put(value)
            elif section == "archived":
                plain[section] |= value
            else:
                plain[section] = value
        for section, names in entry.gone.items():
            _section(keyed, state, section).remove(names)
    changes: JsonRecord = {section: working.rebuild() for section, working in keyed.items()}
    if added := plain.pop("archived"):
        known = {name: Status(status) for name, status in added.items()}
        changes["archived"] = MappingProxyType({**state.archived, **known})
    for section, value in plain.items():
        changes[section] = type(getattr(state, section)).model_validate(value)
    return state.replace(revision=revision, **changes)


def replay_journal(lines: Sequence[JournalLine]) -> State:
    """Return the board after all lines of a journal, from its first."""
    return replay_entries(first_state(lines[0].entry), (line.entry for line in lines[1:]))


class _Section:
    """A section while entries are replayed on it; what went and came back stands last, as it did then."""

    def __init__(self, kind: type[Record], records: Mapping[str, Record]) -> None:
        self._kind = kind
        # A proxy copies its dict at the speed of C.
        self._records: dict[str, Any] = (
            records.copy() if isinstance(records, MappingProxyType) else {**records}
        )
        self._changes: dict[str, JsonRecord] = {}  # of each record that is to be rebuilt, by its keys

    def put(self, changed: JsonRecord) -> None:
        for name, fields in changed.items():
            self._records.setdefault(name, None)  # what is new keeps its place
            known = self._changes.setdefault(name, {})
            history = [*known.get("history", ()), *fields.get("history", ())]
            known.update(fields)
            if history:
                known["history"] = history

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self._records.pop(name, None)
            self._changes.pop(name, None)

    def rebuild(self) -> Mapping[str, Record]:
        for name, changes in self._changes.items():
            self._records[name] = _with_fields(self._kind, self._records[name], changes)
        return MappingProxyType(self._records)


def _section(keyed: dict[str, _Section], state: State, section: str) -> _Section:
    if section not in keyed:
        keyed[section] = _Section(KEYED_SECTIONS[section], getattr(state, section))
    return keyed[section]


def removed_ids(entries: Iterable[JournalEntry]) -> dict[str, tuple[str, ...]]:
    """Return the ids that *entries* removed, even those added again later."""
    gone: dict[str, tuple[str, ...]] = {}
    for entry in entries:
        for section, names in entry.gone.items():
            gone[section] = (*gone.get(section, ()), *names)
    return gone


def _with_fields(kind: type[Record], known: Record | None, changes: JsonRecord) -> Record:
    """Return *known* with *changes* of its keys, where None is the default; what did not change is shared."""
    keys = json_names(kind)
    kept = known.__dict__ if known else {}
    fields = {key: kept[name] for key, name in keys.items() if name in kept}
    for key, value in changes.items():
        if value is None:
            fields.pop(key, None)
        elif key != "history":
            fields[key] = value
    if added := changes.get("history"):
        history = [*fields.get("history", ()), *added]
        spare = max(0, len(history) - SHOWN_EVENTS)
        fields["history"] = history[spare:]
        fields["history_earlier"] = fields.get("history_earlier", 0) + spare
    fresh = kind.model_validate(fields)
    if known is None:
        return fresh
    touched = {keys[key] for key in changes} | (DERIVED if added else frozenset())
    return known.replace(**{name: fresh.__dict__[name] for name in touched})


@cache
def json_names(kind: type[Record]) -> dict[str, str]:
    """Return the names of the fields of *kind* by their keys in JSON."""
    return {field.alias or name: name for name, field in kind.model_fields.items()}


def _with_trimmed_tasks(state: State) -> State:
    return state.replace(
        tasks=MappingProxyType({name: task.with_recent_history() for name, task in state.tasks.items()})
    )


def with_trimmed_history(step: StateDiff) -> State:
    """Return the new state of *step* with only the latest history of the tasks that changed."""
    tasks = step.new.tasks
    cut = {name: tasks[name].with_recent_history() for name in step.put.get("tasks", ())}
    if all(task is tasks[name] for name, task in cut.items()):
        return step.new
    return step.new.replace(tasks=with_records(tasks, cut))
