"""A look at the board that loads and locks nothing more than it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from liza.board.file import FileBoard
from liza.board.quick_read import read_quickly
from liza.domain.changes import HUMAN, Change, add_note
from liza.domain.spending import CostTotals
from tests.support.sample_tasks import NOW, board, new_task
from tests.support.shell import ROOT, Shell


@pytest.fixture
def ours(tmp_path: Path) -> FileBoard:
    return FileBoard.create(tmp_path / ".liza", board(new_task("t1"), new_task("t2")))


def test_it_is_the_board(ours: FileBoard) -> None:
    """Whoever looks sees what whoever writes has written."""
    ours.update(add_note("hello", about="t1", by=HUMAN, at=NOW))
    spent = CostTotals(runs=1, reported=0.5)
    ours.update(Change("x", "y", lambda state: state.replace(spend=state.spend.replace(total=spent))))

    assert read_quickly(ours.home) == ours.read()


def test_an_edit_is_for_the_whole_board_to_take(ours: FileBoard) -> None:
    """Nothing that a person saved is overlooked by a quick look."""
    path = ours.home / "state.yaml"
    path.write_text(path.read_text().replace("do t1", "do it well"))

    assert read_quickly(ours.home) is None


def test_what_the_file_does_not_show_yet_is_no_glance(ours: FileBoard) -> None:
    """A writer that died between journal and file is found, too."""
    (ours.home / "state.yaml").unlink()
    assert read_quickly(ours.home) is None


@pytest.mark.parametrize("damage", ["", "nonsense\n"])
def test_a_damaged_journal_is_for_the_whole_board_to_explain(ours: FileBoard, damage: str) -> None:
    """There is one place that says what is wrong."""
    (ours.home / "journal.jsonl").write_text(damage)

    assert read_quickly(ours.home) is None


def test_status_loads_neither_git_nor_a_backend(tmp_path: Path) -> None:
    """A person who looks waits for nothing that only workers need."""
    subprocess.run(["git", "init", "-q", "."], cwd=tmp_path, check=True)
    Shell(tmp_path).ok("init", "Build a greeter")
    code = (
        "import json, sys\nfrom liza.cli.main import main\n"
        "try:\n    main(['status'])\nexcept SystemExit as end:\n    assert not end.code\n"
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = json.loads(done.stdout.splitlines()[-1])

    heavy = {
        "asyncio",
        "git",
        "litellm",
        "watchdog",
        "yaml",
        "liza.domain.events",
        "liza.board.edits",
        "liza.daemon.project",
    }
    assert heavy & set(loaded) == set()
    assert {".".join(name.split(".")[:2]) for name in loaded} & {
        "liza.agents",
        "liza.repo",
        "liza.daemon",
    } == set()
