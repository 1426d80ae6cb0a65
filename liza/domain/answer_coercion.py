"""Coercion of an agent's answer into the schema of its step, where it does not quite fit.

Only what has one meaning is coerced: another case or inflection of an enum word, one text for a list, a text
for a record with one main field. A key given twice with different values is a contradiction and is refused.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Final, Union, get_args, get_origin

from pydantic import BaseModel

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

BLANK_WORDS: Final = frozenset({"", "-", "[]", "{}", "n/a", "na", "nil", "no", "none", "nothing", "null"})
KEY_SIMILARITY: Final = 0.84  # from which likeness on an unknown key is a known one with a slip of the pen

_ITEM: Final = re.compile(r"\s*(?:[-*•]|\d{1,3}[.)])\s+(\S.*)")
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_PUNCTUATION: Final = " \t`'\"*.!,;"  # what stands around a word without changing it


class Contradiction(ValueError):
    """An answer says one thing in two ways that do not agree."""


@dataclass(frozen=True)
class CoercionTables:
    """Coercion tables, by record type."""

    words: Mapping[type[StrEnum], Mapping[str, str]]  # other words for the closed ones
    keys: Mapping[type[BaseModel], Mapping[str, str]]  # other names of keys
    texts: Mapping[type[BaseModel], Callable[[str], object]]  # what a bare text stands for
    lists: Mapping[type[BaseModel], Callable[[list[str]], object]]  # what a list of texts stands for
    cleaned: Mapping[tuple[type[BaseModel], str], Callable[[str], str]]  # what is made of a field's text
    ornaments: Collection[tuple[type[BaseModel], str]]  # fields that are dropped where they cannot be read
    names: Collection[str]  # fields whose text may list several names or paths


@dataclass
class Coercer:
    """Coerces one answer, and collects remarks for the transcript."""

    manners: CoercionTables
    remarks: list[str] = field(default_factory=list)
    dropped: dict[str, object] = field(default_factory=dict)  # what nobody asked for, by key
    unread: dict[str, object] = field(default_factory=dict)  # ornaments that say nothing, by place

    def record(self, kind: type[BaseModel], value: object, at: str = "") -> object:
        """Return *value* with the keys and values of *kind*, as far as it is plain what they are."""
        value = self._expand_shorthand(kind, _only_item(value))
        if not isinstance(value, Mapping):
            return value
        found: dict[str, object] = {}
        for key, inner in value.items():
            name = self._field_named(kind, str(key), value)
            if name is None:
                self._drop(at, str(key), inner)
                continue
            shaped = self._field_value(kind, name, inner, f"{at}.{key}" if at else str(key))
            if name in found and found[name] != shaped:
                raise Contradiction(f"{key} is given twice and does not say the same; say it once")
            found[name] = shaped
        return {name: inner for name, inner in found.items() if inner is not _ABSENT}

    def _expand_shorthand(self, kind: type[BaseModel], value: object) -> object:
        """Return the record that a text, a list of texts or a lone `a: b` stands for."""
        texts, lists = self.manners.texts, self.manners.lists
        if (
            isinstance(value, Mapping)
            and len(value) == 1
            and not set(map(_normal_form, value)) & self._known(kind)
        ):
            value = _as_text(value)
        if isinstance(value, str) and kind in texts and not _is_blank(value):
            return texts[kind](value)
        if isinstance(value, list) and kind in lists and all(isinstance(one, str) for one in value):
            return lists[kind](value)
        return value

    def _known(self, kind: type[BaseModel]) -> set[str]:
        return {*_field_names(kind), *self.manners.keys.get(kind, {})}

    def _field_named(self, kind: type[BaseModel], key: str, beside: Mapping[str, object]) -> str | None:
        """Return the field that *key* means: by its letters, by another name, or by a slip of the pen."""
        known = _field_names(kind)
        others = self.manners.keys.get(kind, {})
        for word in (_normal_form(key), _normal_form(_CAMEL.sub("_", key))):
            if word in known:
                return known[word]
            if word in others and others[word] not in {_normal_form(name) for name in beside}:
                return known[others[word]]
        near = difflib.get_close_matches(_normal_form(key), known, n=1, cutoff=KEY_SIMILARITY)
        if near and near[0] not in {_normal_form(name) for name in beside}:
            self.remarks.append(f"{key!r} was read as {near[0]!r}")
            return known[near[0]]
        return None

    def _drop(self, at: str, key: str, value: object) -> None:
        name = f"{at}.{key}" if at else key
        self.remarks.append(f"{name!r} was not asked for, and was left out")
        if not _is_blank(value):
            self.dropped[name] = value

    def _field_value(self, kind: type[BaseModel], name: str, value: object, at: str) -> object:
        info = kind.model_fields[name]
        # `risks: none` is a text; `spec_ref: none` is none.
        is_text = _kind_of(info.annotation) is str and not _is_optional(info.annotation)
        if _is_blank(value) and not info.is_required() and not (is_text and isinstance(value, str)):
            return _ABSENT
        shaped = self._value(info.annotation, self._clean(kind, name, value), at)
        if (kind, name) in self.manners.ornaments and not _is_valid_for(info, shaped):
            self.remarks.append(f"{at} is {_abbreviate(value)!r}, which says nothing here, and was left out")
            self.unread[at] = value
            return _ABSENT
        if name in self.manners.names and isinstance(shaped, list):
            return [part for item in shaped for part in _split_names(item)]
        return shaped

    def _clean(self, kind: type[BaseModel], name: str, value: object) -> object:
        clean = self.manners.cleaned.get((kind, name))
        if clean is None:
            return value
        if isinstance(value, list):
            return [clean(item) if isinstance(item, str) else item for item in value]
        if isinstance(value, str) and name in self.manners.names:
            return [clean(str(part)) for part in _split_names(value)]
        return clean(value) if isinstance(value, str) else value

    def _value(self, annotation: object, value: object, at: str) -> object:
        annotation = _bare_annotation(annotation)
        if get_origin(annotation) is tuple:
            return self._list(get_args(annotation)[0], value, at)
        kind = _kind_of(annotation)
        if kind is None:
            return value
        if issubclass(kind, StrEnum):
            return self._word(kind, _only_item(value))
        if issubclass(kind, BaseModel):
            return self.record(kind, value, at)
        return _as_text(value) if kind is str else _only_item(value)

    def _list(self, inner: object, value: object, at: str) -> object:
        kind = _kind_of(inner)
        if _is_blank(value):
            return []
        if isinstance(value, str):
            value = _list_items(value)
        elif isinstance(value, Mapping):
            value = self._list_from_mapping(kind, value)
        if not isinstance(value, list):
            return value
        found = (self._value(inner, item, f"{at}[{number}]") for number, item in enumerate(value))
        return [item for item in found if not _is_blank(item)]

    def _list_from_mapping(self, kind: type | None, value: Mapping[str, object]) -> object:
        """Return the list that a mapping stands for: one record, or one for each name."""
        if kind is str:
            return [{key: inner} for key, inner in value.items()]
        if kind is None or not issubclass(kind, BaseModel):
            return [value]
        is_named = "id" in kind.model_fields and all(isinstance(one, Mapping) for one in value.values())
        return [{"id": key, **_mapping(one)} for key, one in value.items()] if is_named else [value]

    def _word(self, kind: type[StrEnum], value: object) -> object:
        if not isinstance(value, str):
            return value
        word = _normal_form(value.strip(_PUNCTUATION))
        known = {_normal_form(member.value): member.value for member in kind}
        return known.get(word) or self.manners.words.get(kind, {}).get(word) or value


_ABSENT: Final = object()


def unwrap(value: object, known: Collection[str]) -> object:
    """Return the mapping inside *value* that has one of the *known* keys, where exactly one has."""
    outer = value = _only_item(value)
    for _ in range(4):  # levels: a list of history, an entry of it, its checkpoint
        if not isinstance(value, Mapping):
            return outer
        if {_normal_form(str(key)) for key in value} & set(known):
            return value
        fitting = [one for one in map(_only_item, value.values()) if isinstance(one, Mapping)]
        if len(fitting) != 1:
            return outer
        value = fitting[0]
    return outer


def keys_of(kind: type[BaseModel]) -> set[str]:
    """Return every key that may stand in a record of *kind*, at any depth."""
    found: set[str] = set()
    waiting, seen = [kind], set()
    while waiting:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        found |= set(_field_names(one))
        for info in one.model_fields.values():
            waiting += _records_in(info.annotation)
    return found


def _records_in(annotation: object) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for inner in get_args(annotation) for kind in _records_in(inner)]


def _field_names(kind: type[BaseModel]) -> dict[str, str]:
    """Return the fields of *kind* by what a key may be: their names, and what they are called in a file."""
    both = ((alias or name, name) for name, info in kind.model_fields.items() for alias in (info.alias, None))
    return {_normal_form(word): name for word, name in both}


def _normal_form(word: str) -> str:
    return re.sub(r"[\s-]+", "_", word.strip(_PUNCTUATION).casefold())


def _bare_annotation(annotation: object) -> object:
    """Return *annotation* without what is optional or annotated about it."""
    while True:
        if get_origin(annotation) is Annotated:
            annotation = get_args(annotation)[0]
        elif get_origin(annotation) in {UnionType, Union}:
            inner = [one for one in get_args(annotation) if one is not type(None)]
            if len(inner) != 1:
                return annotation
            annotation = inner[0]
        else:
            return annotation


def _is_optional(annotation: object) -> bool:
    return get_origin(annotation) in {UnionType, Union} and type(None) in get_args(annotation)


def _kind_of(annotation: object) -> type | None:
    bare = _bare_annotation(annotation)
    return bare if isinstance(bare, type) else None


def _only_item(value: object) -> object:
    """Return the one thing in a list of one."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, Mapping) else {}


def _is_blank(value: object) -> bool:
    if isinstance(value, str):
        return value.strip(" .").casefold() in BLANK_WORDS
    return value is None or value is _ABSENT or value in ([], {})


def _list_items(text: str) -> list[object]:
    """Return the items of a text that lists some, one a line; any other text is one item."""
    lines = [line for line in text.split("\n") if line.strip()]
    items = [_ITEM.fullmatch(line) for line in lines]
    if len(lines) > 1 and all(items):
        return [item[1] for item in items if item]
    return [text]


def _split_names(item: object) -> list[object]:
    """Return the names in *item*: several only where commas part words without blanks."""
    if not isinstance(item, str):
        return [item]
    parts = [part.strip(" `'\"") for part in re.split(r",|\n", item)]
    return [part for part in parts if part] if not any(" " in part for part in parts) else [item]


def _as_text(value: object) -> object:
    """Return a text that was written as something else: a list of sentences, or `a: b` without quotes."""
    value = _only_item(value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return "; ".join(value)
    if isinstance(value, Mapping) and len(value) == 1:
        ((key, inner),) = value.items()
        return f"{key}: {inner}" if isinstance(inner, str) else f"{key}:" if inner is None else value
    return value


def _is_valid_for(info: Any, value: object) -> bool:  # noqa: ANN401 - a field of pydantic's
    from pydantic import TypeAdapter, ValidationError  # noqa: PLC0415 - only where an ornament is given

    try:
        kind: Any = Annotated[info.annotation, *info.metadata] if info.metadata else info.annotation
        TypeAdapter(kind).validate_python(value)
    except ValidationError:
        return False
    return True


def _abbreviate(value: object, most: int = 40) -> str:
    text = str(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"
