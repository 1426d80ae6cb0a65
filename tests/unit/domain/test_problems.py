"""What is wrong with a record, in words that name the nearest right ones."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import Field, ValidationError

from liza.domain.anomalies import Anomaly
from liza.domain.problems import violations_from
from liza.domain.record import Record
from tests.support.sample_tasks import NOW


class Inner(Record):
    height: int = 0


class Outer(Record):
    inner: Inner | None = None
    many: tuple[Inner, ...] = ()


def said(kind: type[Record], values: dict[str, Any]) -> str:
    with pytest.raises(ValidationError) as error:
        kind.model_validate(values)
    return "; ".join(map(str, violations_from(error.value, kind, "", {})))


class Bounded(Record):
    least: int = Field(default=1, ge=1)
    most: int = Field(default=1, lt=9)


def test_a_number_out_of_bounds_is_told_its_bound() -> None:
    assert "least: it has to be at least 1 (it is 0)" in said(Bounded, {"least": 0})
    assert "most: it has to be less than 9 (it is 9)" in said(Bounded, {"most": 9})


@pytest.mark.parametrize("values", [{"inner": {"heigth": 1}}, {"many": [{"heigth": 1}]}])
def test_a_key_inside_a_record_is_compared_with_the_keys_that_are_known_there(values: dict[str, Any]) -> None:
    assert "did you mean 'height'?" in said(Outer, values)


@pytest.mark.parametrize(
    ("details", "nearest"),
    [
        ({"type": "retry_loop", "error_pattern": "x", "cuont": 1}, "did you mean 'count'?"),
        ({"type": "trade_off", "what": "a", "why": "b", "dept": "c"}, "did you mean 'debt'?"),
        ({"type": "merge_conflict", "path": ["a"]}, "did you mean 'paths'?"),
    ],
)
def test_a_key_inside_a_union_is_compared_with_those_of_its_own_member(
    details: dict[str, Any], nearest: str
) -> None:
    values = {
        "id": "anomaly-1",
        "type": details["type"],
        "logged_by": "x",
        "timestamp": NOW,
        "details": details,
    }
    assert nearest in said(Anomaly, values)


def test_no_key_of_another_member_is_suggested() -> None:
    values = {"id": "anomaly-1", "type": "merge_conflict", "logged_by": "x", "timestamp": NOW}
    told = said(Anomaly, {**values, "details": {"type": "merge_conflict", "paths": ["a"], "cuont": 1}})
    assert "use one of type, paths" in told
