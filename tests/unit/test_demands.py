"""What each system demands, and its traces, row by row: a test that shows it, or the reason why not."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Final

import pytest
import yaml

ROOT: Final = Path(__file__).parents[2]
TABLES: Final = ROOT / "tests/acceptance/daemon/demands"
ROWS: Final = {
    "phased": {"A": 45},
    "cycle": {"M": 56},
    "experiment": {"R": 34},
    "traces": {"T": 51},
    "bad_input": {"B": 19},
}

Row = dict[str, str]


def rows_of(system: str) -> list[Row]:
    found: list[Row] = yaml.safe_load((TABLES / f"{system}.yaml").read_text(encoding="utf-8"))
    return found


def named_in(path: Path) -> set[str]:
    """Return the tests of a module, those of a class as `Class::test`."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{one.name}" for one in node.body if isinstance(one, ast.FunctionDef)}
    return {name for name in found if name.rpartition("::")[2].startswith("test_")}


@pytest.mark.parametrize("table", sorted(TABLES.glob("*.yaml")), ids=lambda path: path.stem)
class TestDemands:
    def test_no_row_is_missing(self, table: Path) -> None:
        ((letter, last),) = ROWS[table.stem].items()
        assert [row["row"] for row in rows_of(table.stem)] == [f"{letter}{n}" for n in range(1, last + 1)]

    def test_each_row_names_a_test_that_is_there_or_says_why_not(self, table: Path) -> None:
        wrong = [row["row"] for row in rows_of(table.stem) if not _is_shown(row)]
        assert wrong == []


def _is_shown(row: Row) -> bool:
    if row.keys() == {"row", "demand", "reason"}:
        return bool(row["demand"] and row["reason"])
    path, _, name = row["test"].partition("::")
    return row.keys() == {"row", "demand", "test"} and name in named_in(ROOT / path)
