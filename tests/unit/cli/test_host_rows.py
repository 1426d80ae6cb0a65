"""The hosts of a board as people see them."""

from __future__ import annotations

from typing import Any

import pytest

from liza.board.protocol import HostSign
from liza.cli.views.hosts import host_views

FACTS: dict[str, Any] = {
    "slots": {"coder": 2},
    "labels": ["gpu"],
    "latency": 0.004,
    "skew": 0.1,
    "leads": True,
}


def row(*, silent: float = 1.0, is_live: bool = True, **facts: Any) -> str:  # noqa: ANN401 - whatever it says
    return str(host_views([HostSign("alpha", {**FACTS, **facts}, silent, is_live)])[0])


def test_a_host_that_is_well() -> None:
    assert row() == "alpha: leads, 2 coder [gpu] 4 ms"
    assert host_views([]) == ()


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ("has said nothing for 42 s", {"silent": 42.0}),
        ("has said nothing for 1 s", {"is_live": False}),
        ("its clock is 60 s ahead of the board's", {"skew": 60.0}),
        ("its clock is 3 s behind the board's", {"skew": -3.0}),
        ("the board takes 900 ms to answer it", {"latency": 0.9}),
    ],
)
def test_what_is_worth_a_look(said: str, facts: dict[str, Any]) -> None:
    assert row(**facts).endswith(f"; {said}")


def test_a_host_that_has_said_little() -> None:
    assert str(host_views([HostSign("new", {}, 0.0, is_live=True)])[0]) == "new: no slots"
