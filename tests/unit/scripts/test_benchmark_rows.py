"""The table of the daemon's benchmark: each row by itself, with its aim as a verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.benchmark import against, bare, daemon
from scripts.benchmark.aims import MISSED, WHY_ALONE, WHY_RATES, Aim, aims_table
from scripts.benchmark.boards import board_of
from scripts.benchmark.plan import FULL, QUICK_DAEMON
from scripts.benchmark.race import Finish, Lap
from scripts.benchmark.rivals import LIZA, SQLITE
from scripts.benchmark.speed import Alone


@pytest.mark.parametrize("events", FULL.histories)
def test_a_history_is_as_long_as_it_is_asked_for(events: int) -> None:
    """However long: no task is sent back so often that its workflow blocks it."""
    (one,) = board_of(1, events=max(1, events)).tasks.values()
    assert len(one.history) == max(1, events)


def test_every_reason_for_a_miss_is_about_a_row() -> None:
    assert set(daemon.WHY) <= set(daemon.ROWS)


@pytest.mark.parametrize(("slower", "verdict"), [(1.0, MISSED), (3.0, daemon.UNSURE)])
def test_a_missed_aim_stands_with_its_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, slower: float, verdict: str
) -> None:
    """Where others are at work a time that is too long proves nothing, and says so."""
    row = "hand-over"
    monkeypatch.setitem(daemon.ROWS, row, lambda _: iter([Aim("ms", 20.0, most=15, limit="a sync 1 ms")]))
    monkeypatch.setitem(daemon.WHY, row, "something waits")
    monkeypatch.setattr(bare, "stretch", lambda: slower)
    (aims,) = daemon.tables(QUICK_DAEMON, tmp_path, [row])
    assert aims.rows == [(row, "ms", None, 15, 20.0, verdict, "a sync 1 ms")]
    assert f"{row}: something waits" in aims.notes


@pytest.mark.parametrize(("times", "reasons"), [(2.0, []), (9.0, [WHY_ALONE])])
def test_a_board_that_misses_an_aim_says_why_and_what_the_disk_takes(
    times: float, reasons: list[str]
) -> None:
    """A reason stands there only where something is missed; the bare sync stands there always."""
    alone: Alone = {(LIZA.name, 100): _finish(times), (SQLITE.name, 100): _finish(1.0)}
    table = aims_table(alone, {}, {})
    rows = {row[0]: row[1:] for row in table.rows}
    says = "100 tasks: at most 5 times sqlite's median"
    assert rows[says] == (times, MISSED if reasons else "met", "a sync 0.10 ms")
    assert [note for note in table.notes if note in (WHY_ALONE, WHY_RATES)] == reasons


def _finish(took: float) -> Finish:
    return Finish(((Lap(took, took),),), took, took, 0, (0.0001,))


def test_two_versions_are_measured_by_the_same_scripts(tmp_path: Path) -> None:
    """The package of a checkout beside our scripts; one that is neither checkout nor commit is named."""
    root = Path(__file__).parents[3]
    other = tmp_path / "other"
    (other / "liza").mkdir(parents=True)
    (other / "liza" / "__init__.py").write_text("OLD = True\n")
    against.lay_out(tmp_path / "stage", root, str(other))
    assert (tmp_path / "stage" / "liza" / "__init__.py").read_text() == "OLD = True\n"
    assert (tmp_path / "stage" / "scripts" / "bench.py").is_file()
    with pytest.raises(SystemExit, match="no-such-commit is neither a checkout nor a commit"):
        against.lay_out(tmp_path / "third", root, "no-such-commit")
