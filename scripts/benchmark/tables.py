"""Results as plain aligned text for people, and as JSON for programs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Cell = str | int | float | None


@dataclass
class Table:
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Cell, ...]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, *cells: Cell) -> None:
        self.rows.append(cells)

    def text(self) -> str:
        """Return the table with text to the left, numbers to the right, and its notes below."""
        shown = [self.columns, *(tuple(map(_shown, row)) for row in self.rows)]
        widths = [max(map(len, column)) for column in zip(*shown, strict=True)]
        left = [any(isinstance(row[i], str) for row in self.rows) for i in range(len(self.columns))]
        lines = [
            "  ".join(
                cell.ljust(width) if to_left else cell.rjust(width)
                for cell, width, to_left in zip(row, widths, left, strict=True)
            ).rstrip()
            for row in shown
        ]
        return "\n".join([self.title, *(f"  {line}" for line in (*lines, *self.notes))])

    def to_json(self) -> dict[str, Any]:
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"title": self.title, "rows": rows, "notes": self.notes}


def _shown(cell: Cell) -> str:
    """Return a number with three digits that mean something."""
    if cell is None:
        return "-"
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int) or abs(cell) >= 100:  # noqa: PLR2004
        return f"{cell:,.0f}"
    return f"{cell:.2f}" if abs(cell) >= 1 else f"{cell:.3f}"
