"""What every value on the board is made of: frozen records, safe names, aware times."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Annotated, Any, Final, Self, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    StringConstraints,
)

LONGEST_ID: Final = 64  # characters; an id becomes a directory, a branch and an environment variable

_ID: Final = re.compile(rf"[A-Za-z0-9](?:[A-Za-z0-9._-]{{0,{LONGEST_ID - 1}}})")
_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d")
_COMMIT: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


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
        return self.model_copy(update=changes)

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


def safe_id(text: str) -> str:
    """Return *text* if it can name a directory, a branch and a shell word at once; else raise ValueError."""
    if not _ID.fullmatch(text) or ".." in text or text.endswith((".", ".lock")):
        message = (
            f"{text!r} is not an id: use up to {LONGEST_ID} letters, digits, '-', '_' and single dots, "
            "starting with a letter or digit"
        )
        raise ValueError(message)
    return text


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
Time = Annotated[AwareDatetime, BeforeValidator(_check_time_text), AfterValidator(_to_utc)]
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
    # A proxy copies its dict at the speed of C; unpacking it would go through Python's mapping protocol.
    known = mapping.copy() if isinstance(mapping, MappingProxyType) else dict(mapping)
    known.update(changed)
    return MappingProxyType(known)


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
