"""What changed between two mappings of records: noted where it is made, compared where nobody noted it."""

from __future__ import annotations

from types import MappingProxyType

from liza.domain.model import Note
from liza.domain.record import KEPT_STEPS, changed_names, noted_changes, records_by_id, utc_now, with_records


def _note(name: str) -> Note:
    return Note(id=name, message="hello", timestamp=utc_now())


def test_several_steps_are_told_as_one_with_new_names_in_their_order() -> None:
    """A replay adds what is new in the order in which the journal names it."""
    first = records_by_id(map(_note, "abc"))
    second = with_records(first, {"x": _note("x"), "b": _note("b")})
    third = with_records(second, {"y": _note("y"), "x": _note("x")})

    noted = noted_changes(first, third)

    assert noted is not None
    assert set(noted) == {"b", "x", "y"}
    assert [name for name in noted if name not in first] == ["x", "y"]
    assert changed_names(first, third) == noted


def test_what_was_put_back_has_not_changed() -> None:
    first = records_by_id(map(_note, "ab"))
    second = with_records(first, {"a": _note("a")})

    assert changed_names(first, with_records(second, {"a": first["a"]})) == ()


def test_what_nobody_noted_is_compared() -> None:
    first = records_by_id(map(_note, "abc"))
    other = MappingProxyType({**first, "b": _note("b"), "d": _note("d")})

    assert noted_changes(first, other) is None
    assert changed_names(first, other) == ("b", "d")


def test_steps_that_were_forgotten_are_compared() -> None:
    first = last = records_by_id(map(_note, "abc"))
    for _ in range(KEPT_STEPS + 1):
        last = with_records(last, {"b": _note("b")})

    assert noted_changes(first, last) is None
    assert changed_names(first, last) == ("b",)
