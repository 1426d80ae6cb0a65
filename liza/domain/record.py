"""What every value on the board is made of: frozen records, safe names, aware times; and its text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, ItemsView, Iterable, Iterator, Mapping, ValuesView
from datetime import UTC, datetime
from functools import lru_cache
from itertools import chain, compress, islice
from operator import is_not
from types import MappingProxyType, NoneType
from typing import (
    Annotated,
    Any,
    Final,
    Self,
    TypeAlias,
    TypeVar,
)

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    StringConstraints,
    ValidatorFunctionWrapHandler,
    WrapValidator,
)

LONGEST_ID: Final = 64  # characters; an id becomes a directory, a branch and an environment variable

# Ids and commits that are known to be right: a process that follows a board meets the same ones all the time.
CHECKED_WORDS: Final = 4096

_ID: Final = re.compile(rf"[A-Za-z0-9](?:[A-Za-z0-9._-]{{0,{LONGEST_ID - 1}}})")
# How long a time is that Liza wrote, by its characters 4, 7, 10, 13, 16 and 19, which are no digits.
_WRITTEN_LENGTHS: Final = {"--T::Z": 20, "--T::.": 27}
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")

_set: Final = object.__setattr__  # the records are frozen


class Record(BaseModel):
    """A frozen value that refuses keys it does not know."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        defer_build=True,  # there are a hundred kinds of record, and a command like `liza status` meets few
    )

    def replace(self, **changes: Any) -> Self:  # noqa: ANN401 - values are checked when the board takes them
        """Return a copy with *changes*; the board validates it before it is written."""
        if self.__pydantic_private__ is not None:
            return self.model_copy(update=changes)
        # As `model_copy` does, in a third of its time: whoever follows a board makes two for each line of it.
        made = type(self).__new__(type(self))
        _set(made, "__dict__", {**self.__dict__, **changes})
        _set(made, "__pydantic_fields_set__", self.__pydantic_fields_set__ | changes.keys())
        _set(made, "__pydantic_extra__", None)
        _set(made, "__pydantic_private__", None)
        return made

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON values, without what is at its default."""
        return self.model_dump(mode="json", exclude_defaults=True)


def build_validators() -> None:
    """Build the deferred validators of every record type.

    Call it before threads start: a process forked while a thread builds one would deadlock.
    """
    for kind in _kinds(Record):
        kind.model_rebuild()


def _kinds(kind: type[Record]) -> Iterator[type[Record]]:
    """Yield every kind of record below *kind*, parts before what is made of them.

    That is the order in which they were defined. The other way round, each part would be built once more
    for each kind that has it, which takes a worker twice as long when it starts.
    """
    for one in kind.__subclasses__():
        yield one
        yield from _kinds(one)


@lru_cache(CHECKED_WORDS)
def safe_id(text: str) -> str:
    """Return *text* if it can name a directory, a branch and a shell word at once; else raise ValueError."""
    if not _ID.fullmatch(text) or ".." in text or text.endswith((".", ".lock")):
        message = (
            f"{text!r} is not an id: use up to {LONGEST_ID} letters, digits, '-', '_' and single dots, "
            "starting with a letter or digit"
        )
        raise ValueError(message)
    return text


@lru_cache(CHECKED_WORDS)
def _check_commit_hash(text: str) -> str:
    if not _COMMIT.fullmatch(text):
        message = f"{text!r} is not a full commit hash (40 or 64 lower-case hex digits)"
        raise ValueError(message)
    return text


def _check_time_text(value: object) -> object:
    """Refuse bare numbers: pydantic would take `deadline: 2026` for a moment in 1970."""
    if isinstance(value, datetime) or (isinstance(value, str) and _DATE.match(value)):
        return value
    message = f"{value!r} is not a time: write it like 2026-01-31T12:00:00Z"
    raise ValueError(message)


def _read_time(value: object, check: ValidatorFunctionWrapHandler) -> datetime:
    """Return the time that *value* is; *check* is for what Liza does not write itself."""
    if type(value) is str and _WRITTEN_LENGTHS.get(value[4:20:3]) == len(value):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            found = None
        if found is not None and found.tzinfo is UTC:
            return found
    return _to_utc(check(_check_time_text(value)))


def _to_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError as error:
        message = f"{time} is out of range"
        raise ValueError(message) from error


def _by_id(value: object) -> object:
    """Turn the list that the file shows into the mapping that code uses; refuse a repeated id."""
    if not isinstance(value, list | tuple):
        return value
    found: dict[str, object] = {}
    for entry in value:
        name = entry.get("id") if isinstance(entry, Mapping) else getattr(entry, "id", None)
        if not isinstance(name, str):
            message = "every entry needs an id"
            raise ValueError(message)  # noqa: TRY004 - pydantic turns ValueError into a located error
        if name in found:
            message = f"the id {name!r} is used twice"
            raise ValueError(message)
        found[name] = entry
    return found


def _freeze(mapping: Mapping[str, Record]) -> Mapping[str, Record]:
    for name, record in mapping.items():
        if record.id != name:  # type: ignore[attr-defined]
            message = f"the entry under {name!r} says that its id is {record.id!r}"  # type: ignore[attr-defined]
            raise ValueError(message)
    return MappingProxyType(mapping)


def _as_list(mapping: Mapping[str, Record]) -> list[dict[str, Any]]:
    return [record.to_json() for record in mapping.values()]


Id = Annotated[str, AfterValidator(safe_id)]
Commit = Annotated[str, AfterValidator(_check_commit_hash)]
Time = Annotated[AwareDatetime, WrapValidator(_read_time)]
NonEmptyStr = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]

_R = TypeVar("_R", bound=Record)

Keyed = Annotated[
    Mapping[str, _R],
    BeforeValidator(_by_id),
    AfterValidator(_freeze),
    PlainSerializer(_as_list, return_type=list[dict[str, Any]]),
]


def records_by_id(records: Iterable[_R]) -> Mapping[str, _R]:
    """Return *records* as a read-only mapping by their ids, in order."""
    return MappingProxyType({record.id: record for record in records})  # type: ignore[attr-defined]


def with_record(mapping: Mapping[str, _R], record: _R) -> Mapping[str, _R]:
    return with_records(mapping, {record.id: record})  # type: ignore[attr-defined]


def with_records(mapping: Mapping[str, _R], changed: Mapping[str, _R]) -> Mapping[str, _R]:
    """Return *mapping* with *changed* put over it; what is new comes last."""
    if len(mapping) >= MANY:
        known = mapping if isinstance(mapping, PagedRecords) else PagedRecords(mapping)
        return known.replace(changed)
    # A proxy copies its dict at the speed of C; unpacking it would go through Python's mapping protocol.
    records = mapping.copy() if isinstance(mapping, MappingProxyType) else dict(mapping)
    records.update(changed)
    return MappingProxyType(records)


MANY: Final = 512  # records whose mapping is no longer copied for each change
PAGE: Final = 64  # records that are copied instead, with one reference to each other page


class PagedRecords(Mapping[str, _R]):
    """Many records by their ids, read-only; with one of them changed it shares all other pages.

    To copy ten thousand references, and to compare them for what changed, would take longer than all else
    that an update does.
    """

    __slots__ = ("_names", "_pages", "_places")

    def __init__(self, records: Mapping[str, _R]) -> None:
        all_records = [*records.values()]
        self._names = [*records]
        self._places = {name: place for place, name in enumerate(self._names)}
        self._pages = [all_records[begin : begin + PAGE] for begin in range(0, len(all_records), PAGE)]

    def __getitem__(self, name: str) -> _R:
        page, place = divmod(self._places[name], PAGE)
        return self._pages[page][place]

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def values(self) -> ValuesView[_R]:
        return _PagedValues(self)

    def items(self) -> ItemsView[str, _R]:
        return _PagedItems(self)

    def records(self) -> Iterator[_R]:
        """Yield all records in order, at the speed of C."""
        return chain.from_iterable(self._pages)

    def replace(self, changed: Mapping[str, _R]) -> PagedRecords[_R]:
        """Return a mapping with *changed* put over this one; what is new comes last."""
        if not all(name in self._places for name in changed):
            return PagedRecords({**dict(self.items()), **changed})
        pages = self._pages.copy()
        for name, record in changed.items():
            page, place = divmod(self._places[name], PAGE)
            if pages[page] is self._pages[page]:
                pages[page] = pages[page].copy()
            pages[page][place] = record
        return self._with_pages(pages)

    def _with_pages(self, pages: list[list[_R]]) -> PagedRecords[_R]:
        made: PagedRecords[_R] = PagedRecords.__new__(PagedRecords)
        made._names, made._places, made._pages = self._names, self._places, pages
        return made

    def has_names_of(self, other: Mapping[str, object]) -> bool:
        """Return whether *other* was made by changes of the same records as this, and none came in."""
        return isinstance(other, PagedRecords) and self._is_with(other)

    def _is_with(self, other: PagedRecords[Any]) -> bool:
        return self._names is other._names

    def changed_since(self, before: PagedRecords[_R]) -> Iterator[str]:
        """Yield the names under which *before*, which has the same names, has other records."""
        for number, (old, new) in enumerate(zip(before._pages, self._pages, strict=True)):
            if old is not new:
                names = self._names[number * PAGE : (number + 1) * PAGE]
                yield from compress(names, map(is_not, new, old))


class _PagedValues(ValuesView[_R]):
    _mapping: PagedRecords[_R]

    def __iter__(self) -> Iterator[_R]:
        return self._mapping.records()


class _PagedItems(ItemsView[str, _R]):
    _mapping: PagedRecords[_R]

    def __iter__(self) -> Iterator[tuple[str, _R]]:
        return zip(self._mapping, self._mapping.records(), strict=True)


def changed_names(before: Mapping[str, object], after: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names in *after* of what was added or changed, and perhaps of some that only moved.

    Values are compared by position and identity, at the speed of C; by name it would take ten times as long.
    """
    if before is after:
        return ()
    if isinstance(after, PagedRecords) and isinstance(before, PagedRecords) and after.has_names_of(before):
        return tuple(after.changed_since(before))
    changed = compress(after, map(is_not, after.values(), before.values()))
    return (*changed, *islice(after, len(before), None))


def default_record(kind: type[_R]) -> _R:
    """Return a record of nothing but defaults, without the cost of building what checks its kind.

    For defaults in other records, which are made whenever those are imported.
    """
    return kind.model_construct()  # type: ignore[return-value]  # the plugin forgets which kind


def printable(text: str) -> str:
    """Return *text* with bytes that are no UTF-8, as in the name of a file, shown as what they are."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def utc_now() -> datetime:
    """Return the time; the one clock that production code is given."""
    return datetime.now(UTC)


def next_id(taken: Mapping[str, object] | Collection[str], stem: str) -> str:
    """Return the first of stem-1, stem-2 … that is not *taken*, counting on from how many there are."""
    number = len(taken) + 1
    while f"{stem}-{number}" in taken:
        number += 1
    return f"{stem}-{number}"


_COLOUR: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def strip_colour(text: str) -> str:
    """Return *text* without the sequences by which a program colours what it prints."""
    return _COLOUR.sub("", text)


# The text of the board, because people read and edit it and Liza rewrites it thousands of times.
#
# What it emits reads back the same in any YAML 1.1 loader, but for moments (2026-11-16T04:19:29Z): they stand
# unquoted and are strings to us.

Json: TypeAlias = str | int | float | bool | list["Json"] | dict[str, "Json"] | None

DEEPEST: Final = 50  # levels of nesting: far above any board, far below any stack
LONGEST_KEY: Final = 1000  # characters: beyond 1024 YAML finds a key only behind a question mark

# Controls, the line breaks of YAML 1.1 but \n, and what its readers refuse: never raw in a text.
FORBIDDEN_CHARACTERS = r"\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff"
_RESERVED = r"(?!(?:[Yy](?i:es)?|[Nn](?i:o|ull)?|[Oo](?i:n|ff)|[Tt](?i:rue)|[Ff](?i:alse))\Z)"
_INSIDE = rf"[^\n:#\xa0{FORBIDDEN_CHARACTERS}]*+"  # a no-break space is quoted: unquoted, nobody would see it

# Starts like no number and no indicator of YAML, and has no ": ", no " #" and no end that would be lost.
_PLAIN = re.compile(rf"{_RESERVED}[^\W\d]{_INSIDE}(?:(?<! )[:#](?! ){_INSIDE})*(?<![ :])")
_PLAIN_KEY = re.compile(rf"{_RESERVED}[A-Za-z_][A-Za-z0-9_.-]*")
# 0b01 and 12e34 are numbers to some, whatever their length.
_PLAIN_COMMIT = re.compile(r"(?!0b[01]*\Z)(?=[0-9e]*+[a-df])[0-9a-f]{40}(?:[0-9a-f]{24})?")
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?!24)[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6})?Z")
# Its first line shows something: blank lines at the start of a block are easily lost in an editor.
_LITERAL = re.compile(rf" *+[^ \n{FORBIDDEN_CHARACTERS}][^{FORBIDDEN_CHARACTERS}]*+")
_LINE_WITH_TEXT = re.compile(r"\n(?=[^\n])")
_ESCAPED = re.compile(rf'["\\\n{FORBIDDEN_CHARACTERS}]')
_SHORT_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"}
SURROGATE = re.compile(r"[\ud800-\udfff]")


def section_text(name: str, value: Json) -> str:
    """Return the text of the top-level key *name*."""
    return _mapping({name: value}, "", 1)


def item_text(record: dict[str, Json]) -> str:
    """Return the text of one entry of a section that is a list."""
    return _sequence([record], "", 2)


def field_text(key: str, value: Json) -> str:
    """Return the text of one field of such an entry, as it stands below the first."""
    return _mapping({key: value}, "  ", 3)


def nested_item_text(record: dict[str, Json]) -> str:
    """Return the text of one entry of a list that is itself a field of such an entry."""
    return _sequence([record], "  ", 3)


def _mapping(record: dict[str, Json], pad: str, depth: int) -> str:
    _check_depth(depth)
    return "".join(
        [
            f"{pad}{_key(key, pad)}: {_string(value, pad)}\n"
            if isinstance(value, str)
            else f"{pad}{_key(key, pad)}:{_below(value, pad, depth)}"
            for key, value in record.items()
        ]
    )


def _sequence(values: list[Json], pad: str, depth: int) -> str:
    _check_depth(depth)
    return "".join([f"{pad}- {_beside(value, pad, depth)}" for value in values])


def _check_depth(depth: int) -> None:
    if depth > DEEPEST:
        raise ValueError(f"nested deeper than {DEEPEST} levels")


def _below(value: Json, pad: str, depth: int) -> str:
    if isinstance(value, dict) and value:
        return "\n" + _mapping(value, pad + "  ", depth + 1)
    if isinstance(value, list) and value:
        return "\n" + _sequence(value, pad, depth + 1)
    return f" {_atom(value)}\n"


def _beside(value: Json, pad: str, depth: int) -> str:
    if isinstance(value, str):
        return _string(value, pad) + "\n"
    inner = pad + "  "
    if isinstance(value, dict) and value:
        return _mapping(value, inner, depth + 1).removeprefix(inner)
    if isinstance(value, list) and value:
        return _sequence(value, inner, depth + 1).removeprefix(inner)
    return _atom(value) + "\n"


@lru_cache(maxsize=1024)
def _key(key: str, pad: str) -> str:
    shown = key if _PLAIN_KEY.fullmatch(key) else _quote(key)
    return shown if len(shown) <= LONGEST_KEY else f"? {shown}\n{pad}"


def _atom(value: Json) -> str:
    form = _FORMS.get(type(value))
    if form is None:
        raise TypeError(f"{value!r} has no form on the board")
    return form(value)


def _float(value: float) -> str:
    if not math.isfinite(value):
        raise ValueError(f"{value} has no form on the board")
    shown = repr(value)
    # 1e+16 is a string to YAML 1.1, where a float has a dot.
    return shown if "." in shown else shown.replace("e", ".0e")


_FORMS: Final[dict[type, Callable[[Any], str]]] = {
    NoneType: lambda _: "null",
    bool: lambda value: "true" if value else "false",
    int: repr,
    float: _float,
    list: lambda _: "[]",
    dict: lambda _: "{}",
}


def _string(text: str, pad: str) -> str:
    if _PLAIN.fullmatch(text) or (text[:1].isdigit() and (_PLAIN_COMMIT.fullmatch(text) or _is_moment(text))):
        return text
    if "\n" in text and _LITERAL.fullmatch(text):
        return _literal(text, pad)
    return _quote(text)


def _is_moment(text: str) -> bool:
    if not _MOMENT.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:  # 30 February: a loader that makes datetimes would refuse the whole board
        return False
    return True


def _literal(text: str, pad: str) -> str:
    body = text.removesuffix("\n")
    chomping = "-" if body == text else "+" if body.endswith("\n") else ""
    indicator = "2" if text.startswith(" ") else ""
    start = f"\n{pad}  "
    return f"|{indicator}{chomping}{start}{_LINE_WITH_TEXT.sub(start, body)}"


def _quote(text: str) -> str:
    return f'"{_ESCAPED.sub(_escape, text)}"'


def _escape(match: re.Match[str]) -> str:
    code = f"{ord(match[0]):04X}"
    if SURROGATE.match(match[0]):
        raise ValueError(f"the lone surrogate U+{code} has no form on the board")
    return _SHORT_ESCAPES.get(match[0]) or f"\\u{code}"
