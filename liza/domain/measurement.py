"""Numbers out of what a command wrote or printed: a column of a CSV, a value of a JSON, a figure."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

_FIGURE: Final = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


class Measurement(NamedTuple):
    """A number, or why there is none."""

    value: float | None
    why: str = ""


def score_in_file(path: str, data: bytes, column: str, first: int | None = None) -> Measurement:
    """Return the mean of a column of a CSV, or of what a dotted path finds in a JSON.

    Of a CSV only the *first* configurations count, if that is given: by `config_id`, else by row.
    """
    text = data.decode("utf-8", "replace")
    if path.endswith(".json"):
        try:
            values = list(_values_at(json.loads(text), column.split(".")))
        except (ValueError, RecursionError):
            return Measurement(None, f"{path} is no JSON")
        return _mean(values, f"{path} has nothing at {column}")
    rows, columns = _rows_of(text)
    if column not in columns:
        return Measurement(
            None, f"{path} has no column {column}; it has {', '.join(columns) or 'no columns'}"
        )
    return _mean((row[column] for row in _first_rows(rows, first)), f"{path} has no number in {column}")


def _rows_of(text: str) -> tuple[list[dict[str, str]], list[str]]:
    try:
        reader = csv.DictReader(io.StringIO(text))
        return list(reader), [name for name in reader.fieldnames or () if name]
    except csv.Error:  # a field of megabytes, or a byte that no CSV has
        return [], []


def columns_of(data: bytes) -> tuple[str, ...]:
    """Return the columns of a CSV."""
    return tuple(_rows_of(data.decode("utf-8", "replace"))[1])


def count_rows(path: str, data: bytes) -> int:
    """Return how many rows a CSV has; of a JSON that is not asked."""
    return 0 if path.endswith(".json") else len(_rows_of(data.decode("utf-8", "replace"))[0])


def _first_rows(rows: list[dict[str, str]], first: int | None) -> list[dict[str, str]]:
    if first is None:
        return rows
    numbers = [_number(row.get("config_id")) for row in rows]
    if any(number is None for number in numbers):
        return rows[:first]
    return [row for row, number in zip(rows, numbers, strict=True) if number is not None and number < first]


def _values_at(value: Any, path: list[str]) -> Iterable[object]:  # noqa: ANN401 - whatever the JSON says
    if isinstance(value, list) and not (path and path[0].isdigit()):
        return [found for one in value for found in _values_at(one, path)]
    if not path:
        return [value]
    if isinstance(value, list):
        return _values_at(value[int(path[0])], path[1:]) if int(path[0]) < len(value) else []
    return _values_at(value[path[0]], path[1:]) if isinstance(value, dict) and path[0] in value else []


def score_in_text(printed: str, word: str | None) -> Measurement:
    """Return the last number that is printed, or the last behind *word*."""
    if word is not None:
        found = re.findall(re.escape(word) + r"\W{0,3}?\s*(" + _FIGURE.pattern + ")", printed)
        return _mean(found[-1:], f"no number is printed behind {word}")
    return _mean(_FIGURE.findall(printed)[-1:], "no number is printed")


def _mean(values: Iterable[object], why: str) -> Measurement:
    numbers = [number for value in values if (number := _number(value)) is not None]
    return Measurement(math.fsum(numbers) / len(numbers)) if numbers else Measurement(None, why)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None
