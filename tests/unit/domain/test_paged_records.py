"""A mapping of many records: the same as a plain one, and told from the next by what changed."""

from __future__ import annotations

from random import Random
from types import MappingProxyType

from liza.domain.model import Note
from liza.domain.record import (
    MANY,
    PAGE,
    PagedRecords,
    changed_names,
    records_by_id,
    utc_now,
    with_records,
)

NAMES = [f"n{number}" for number in range(MANY + PAGE // 2)]


def _note(name: str) -> Note:
    return Note(id=name, message="hello", timestamp=utc_now())


def test_many_records_behave_as_a_plain_mapping_does() -> None:
    chance = Random(7)
    plain = {name: _note(name) for name in NAMES}
    paged = with_records(records_by_id(plain.values()), {})
    assert isinstance(paged, PagedRecords)
    for step in range(20):
        some = [*chance.sample(NAMES, 3), *([f"new{step}"] if step % 5 == 0 else [])]
        fresh = {name: _note(name) for name in some}
        before, paged = paged, with_records(paged, fresh)
        plain = {**plain, **fresh}

        assert [*paged.items()] == [*plain.items()]
        assert [*paged.values()] == [*plain.values()]
        assert [*paged] == [*plain]
        assert all(paged[name] is plain[name] for name in plain)
        assert (paged == MappingProxyType(plain), len(paged)) == (True, len(plain))
        assert {*changed_names(before, paged)} == {*some}
    assert paged.get("nobody") is None
    assert "nobody" not in paged


def test_what_an_earlier_mapping_holds_stays() -> None:
    first = with_records(records_by_id(map(_note, NAMES)), {})
    known = [*first.values()]

    with_records(first, {NAMES[3]: _note(NAMES[3]), NAMES[4]: _note(NAMES[4])})

    assert all(map(lambda one, other: one is other, first.values(), known))


def test_what_was_put_back_has_not_changed() -> None:
    first = with_records(records_by_id(map(_note, NAMES)), {})
    second = with_records(first, {NAMES[0]: _note(NAMES[0])})

    assert changed_names(first, second) == (NAMES[0],)
    assert changed_names(first, with_records(second, {NAMES[0]: first[NAMES[0]]})) == ()


def test_few_records_are_compared() -> None:
    first = records_by_id(map(_note, "abc"))
    other = with_records(first, {"b": _note("b"), "d": _note("d")})

    assert changed_names(first, other) == ("b", "d")
