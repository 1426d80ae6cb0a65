"""What an update changed, as the journal keeps it, and the same change done again on replay."""

from __future__ import annotations

from itertools import compress
from operator import is_not
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from liza.errors import InvalidBoard, Violation
from liza.invariants import Step
from liza.model import KEYED_SECTIONS, PLAIN_SECTIONS, SHOWN_EVENTS, State, Status, Task
from liza.record import with_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from liza.board.protocol import Entry
    from liza.record import Record

Raw = dict[str, Any]
Plains = dict[str, dict[str, Raw]]  # section: id: the record; "" is the id of a section that is one record
DERIVED: Final = frozenset({"history", "history_earlier"})  # replay counts these by itself


def step_between(old: State, new: State) -> Step:
    """Return what differs; records are shared between states, so identity tells what was not touched."""
    put: dict[str, tuple[str, ...]] = {}
    gone: dict[str, tuple[str, ...]] = {}
    for section in KEYED_SECTIONS:
        before, after = getattr(old, section), getattr(new, section)
        if before is after:
            continue
        changed = _touched(before, after)
        if changed:
            put[section] = changed
        if len(after) - sum(name not in before for name in changed) < len(before):
            gone[section] = tuple(name for name in before if name not in after)
    for section in PLAIN_SECTIONS:
        if getattr(old, section) is not getattr(new, section):
            put[section] = ()
    return Step(old, new, put, gone)


def _touched(before: Mapping[str, Record], after: Mapping[str, Record]) -> tuple[str, ...]:
    names = list(after)
    if names == list(before):  # the usual case, at the speed of C
        return tuple(compress(names, map(is_not, after.values(), before.values())))
    return tuple(name for name, record in after.items() if before.get(name) is not record)


def is_empty(step: Step) -> bool:
    return not step.put and not step.gone


def plains_of(step: Step) -> Plains:
    """Return the records that *step* puts as JSON values, without their history.

    Raise unless each can be read back as the same value.
    """
    plains: Plains = {}
    for section, names in step.put.items():
        if section in KEYED_SECTIONS:
            records = getattr(step.new, section)
            plains[section] = {name: _survivor(records[name], f"{section}.{name}", name) for name in names}
        elif section != "archived":
            plains[section] = {"": _survivor(getattr(step.new, section), section, None)}
    return plains


def _survivor(record: Record, path: str, name: str | None) -> Raw:
    # The history of a task is made of records that were checked when they were made, and there are many.
    bare = record.but(history=()) if isinstance(record, Task) else record
    plain = bare.plain()
    try:
        reborn = type(record).model_validate(plain)
    except ValueError as error:
        raise InvalidBoard(
            "the change was refused", [Violation(path, str(error), "mend the value")]
        ) from error
    if reborn != bare or (name is not None and plain["id"] != name):
        wrong = Violation(path, "it would be read back as another value", "give values of the field's type")
        raise InvalidBoard("the change was refused", [wrong])
    return plain


def put_of(step: Step, plains: Plains) -> dict[str, Any]:
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


def _fields(old: Record | None, new: Record, plain: Raw) -> Raw:
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
        found["history"] = [entry.plain() for entry in added]
    return found


def first_state(entry: Entry) -> State:
    """Return the board that the first entry of a journal makes."""
    return _trimmed(State.model_validate({**entry.put, "revision": entry.revision}))


def replayed(state: State, entries: Iterable[Entry]) -> State:
    """Return *state* after *entries*; each record is built once, however often it changed."""
    keyed: dict[str, dict[str, Raw | None]] = {}
    plain: Raw = {"archived": {}}
    revision = state.revision
    for entry in entries:
        revision = entry.revision
        for section, value in entry.put.items():
            if section in KEYED_SECTIONS:
                _put_all(keyed.setdefault(section, {}), getattr(state, section), value)
            elif section == "archived":
                plain[section] |= value
            else:
                plain[section] = value
        for section, names in entry.gone.items():
            keyed.setdefault(section, {}).update(dict.fromkeys(names))
    changes: Raw = {section: _rebuilt(state, section, touched) for section, touched in keyed.items()}
    if added := plain.pop("archived"):
        known = {name: Status(status) for name, status in added.items()}
        changes["archived"] = MappingProxyType({**state.archived, **known})
    for section, value in plain.items():
        changes[section] = type(getattr(state, section)).model_validate(value)
    return state.but(revision=revision, **changes)


def _put_all(touched: dict[str, Raw | None], section: Mapping[str, Record], put: Raw) -> None:
    for name, fields in put.items():
        _put(touched, section, name, fields)


def _put(touched: dict[str, Raw | None], section: Mapping[str, Record], name: str, fields: Raw) -> None:
    known = touched.get(name)
    if known is None:
        known = section[name].plain() if name in section and name not in touched else {}
        touched[name] = known
    history = [*known.get("history", ()), *fields.get("history", ())]
    for key, value in fields.items():
        if value is None:
            known.pop(key, None)
        else:
            known[key] = value
    if history:
        spare = max(0, len(history) - SHOWN_EVENTS)
        known["history"] = history[spare:]
        known["history_earlier"] = known.get("history_earlier", 0) + spare


def _rebuilt(state: State, section: str, touched: dict[str, Raw | None]) -> Mapping[str, Record]:
    kind, before = KEYED_SECTIONS[section], getattr(state, section)
    kept = {name: kind.model_validate(fields) for name, fields in touched.items() if fields is not None}
    after = with_records(before, kept)
    gone = touched.keys() - kept.keys()
    return MappingProxyType({name: after[name] for name in after if name not in gone}) if gone else after


def _trimmed(state: State) -> State:
    return state.but(tasks=MappingProxyType({name: task.trimmed() for name, task in state.tasks.items()}))


def trimmed(step: Step) -> State:
    """Return the new state of *step* with only the latest history of the tasks that changed."""
    tasks = step.new.tasks
    cut = {name: tasks[name].trimmed() for name in step.put.get("tasks", ())}
    if all(task is tasks[name] for name, task in cut.items()):
        return step.new
    return step.new.but(tasks=with_records(tasks, cut))
