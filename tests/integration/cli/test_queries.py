"""Every command that only looks, on a board as large as real ones get, and on one that nobody may write."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from liza.board.file import FileBoard
from liza.board.journal import SNAPSHOT
from liza.domain.changes import Change
from liza.domain.model import GoalStatus
from tests.support.boards import noted
from tests.support.sample_tasks import NOW, board, new_task
from tests.support.sandboxed_project import skip_without_sandbox
from tests.support.shell import ROOT, Shell

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LOOKS: Final = (
    ("status",),
    ("status", "--json"),
    ("watch",),
    ("log",),
    ("log", "-n", "3", "--json"),
    ("metrics",),
    ("metrics", "--all"),
    ("cost",),
    ("explain",),
    ("explain", "t1"),
    ("task", "show", "t1"),
    ("validate",),
    ("board",),
    ("board", "diff", "1"),
    ("breaker",),
    ("run", "--plan-bound"),
)
# All in one process: an interpreter a command would take longer than the rest of the test.
ALL: Final = """
import json, sys
from liza.cli.main import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as end:
        print("ended:", end.code or 0, words, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A board whose journal has outgrown its first snapshot, and whose goal is over, so that `watch` ends."""
    root = tmp_path_factory.mktemp("project")
    subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
    ours = FileBoard.create(root / ".liza", board(new_task("t1"), new_task("t2")))
    over = Change(
        "human",
        "give up",
        lambda state: state.replace(goal=state.goal.replace(status=GoalStatus.ABANDONED, completed=NOW)),
    )
    ours.update(over)
    while not (ours.home / SNAPSHOT).exists():
        ours.update(noted("x" * 20_000))
    ours.update(noted("the last word"))
    ours.close()
    return root


@pytest.mark.parametrize("words", LOOKS, ids=" ".join)
def test_a_board_with_a_snapshot_can_be_looked_at(project: Path, words: tuple[str, ...]) -> None:
    """A long run is when people look most."""
    done = Shell(project)(*words)

    assert (done.code, done.err) == (0, "")
    assert done.out


def look_read_only(root: Path, looks: Sequence[Sequence[str]]) -> subprocess.CompletedProcess[str]:
    skip_without_sandbox()
    home = str(root / ".liza")
    wall = ["bwrap", "--dev-bind", "/", "/", "--ro-bind", home, home]
    return subprocess.run(
        [*wall, sys.executable, "-c", ALL, json.dumps(looks)],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_read_only_board_can_be_looked_at(project: Path) -> None:
    """A backup, another's home or a medium that is mounted read-only: nothing has to be written for a look.

    Copied, so that no print of a file fits, with an edit that cannot be taken in.
    """
    copy = project.parent / "copy"
    subprocess.run(["cp", "-r", str(project), str(copy)], check=True)
    state = copy / ".liza" / "state.yaml"
    state.write_text(state.read_text().replace("do t1", "do it well"))

    done = look_read_only(copy, LOOKS)

    ends = [line for line in done.stderr.splitlines() if line.startswith("ended:")]
    assert ends == [f"ended: 0 {list(words)}" for words in LOOKS], done.stderr


def test_the_doctor_tells_of_a_read_only_board(tmp_path: Path) -> None:
    """The gates are not tried: what they leave would have to be written there."""
    me = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q", "."), (*me, "commit", "-q", "--allow-empty", "-m", "begin")):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "liza.yaml").write_text("gates: {test: touch tried}\n")
    Shell(tmp_path).ok("init", "Greet people", "--no-baseline")

    done = look_read_only(tmp_path, [("doctor",)])

    assert done.stderr.splitlines() == ["ended: 1 ['doctor']"]
    assert "fail  board        .liza cannot be written to" in done.stdout
