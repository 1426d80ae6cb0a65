"""Rows of a table that are tried by each `make test`, while `make torture` tries the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from _pytest.mark import ParameterSet


def few(rows: Mapping[str, object], *names: str) -> list[ParameterSet]:
    """Return *rows* as parameters, of which all but *names* are for `make torture`."""
    assert rows.keys() >= set(names), set(names) - rows.keys()
    return [
        pytest.param(
            *(row if isinstance(row, tuple) else (row,)),
            id=name,
            marks=() if name in names else pytest.mark.torture,
        )
        for name, row in rows.items()
    ]
