"""The demo is the first thing a stranger runs: it has to show what it says it shows."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from liza.demo import played, prepared, told
from liza.errors import UsageError
from liza.invariants import violations
from liza.model import GoalStatus, Status
from liza.repo.git import git
from liza.repo.repository import Repository
from liza.repo.verify import verify


def events_of(home: Path) -> list[str]:
    return [line for line in (home / "journal.jsonl").read_text().splitlines() if '"event":' in line]


def test_the_demo_rejects_once_resolves_a_conflict_pauses_and_merges_all(tmp_path: Path) -> None:
    said: list[str] = []
    board = prepared(tmp_path / "demo", pace="0.2")
    root = tmp_path / "demo"
    before = git("status", "--porcelain", cwd=root), git("rev-parse", "HEAD", cwd=root)
    assert played(board, said.append) == 0
    state = board.read()
    assert violations(state) == []
    assert state.goal.status is GoalStatus.COMPLETE
    assert {task.status for task in state.tasks.values()} == {Status.MERGED}
    assert len(state.tasks) == 5
    events = "\n".join(events_of(board.home))
    assert events.count('"event":"reject"') == 1
    assert '"event":"fail_integration"' in events
    assert [line.split()[0] for line in said] == ["PAUSE", "PAUSE"]
    assert verify(Repository.around(root), "liza/integration") == []
    assert (git("status", "--porcelain", cwd=root), git("rev-parse", "HEAD", cwd=root)) == before
    assert "Merge command: Greet from the command line" in told(board)
    board.close()


def test_every_commit_of_the_demo_is_green_and_the_program_works(tmp_path: Path) -> None:
    """The merged tree is what was tested, so no commit of integration can be red."""
    board = prepared(tmp_path / "demo", pace="0")
    root = tmp_path / "demo"
    assert played(board, lambda _: None) == 0
    board.close()
    for commit in git("rev-list", "--first-parent", "--merges", "liza/integration", cwd=root).split():
        out = tmp_path / commit
        git("worktree", "add", "--detach", "--quiet", str(out), commit, cwd=root)
        tests = subprocess.run(["python3", "-m", "unittest", "-q"], cwd=out, capture_output=True, check=False)
        assert tests.returncode == 0, tests.stderr
    newest = git("rev-parse", "liza/integration", cwd=root)
    words = ["python3", "-m", "greeter", "Ada"]
    done = subprocess.run(words, cwd=tmp_path / newest, capture_output=True, text=True, check=True)
    assert done.stdout == "Hello, Ada!\n"


def test_a_directory_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("x")
    with pytest.raises(UsageError, match="is not empty"):
        prepared(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
