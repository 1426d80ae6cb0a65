"""`liza diff`: what a task changed, before and after it is merged."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from liza.cli.views.diffs import TaskDiff, diff_lines
from liza.repo.repository import FilePatch, PatchLine
from tests.support.scripted_team import ScriptedTeam, dear
from tests.support.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def team(tmp_path: Path) -> ScriptedTeam:
    team = ScriptedTeam(tmp_path, dear(0.1))
    team.task("t1")
    team.task("t2")
    team.turn("coder-1")
    return team


def test_it_is_shown_before_it_is_approved_and_after_it_is_merged(team: ScriptedTeam) -> None:
    shell = Shell(team.user.directory)
    before = shell.ok("diff", "t1")
    team.turn("reviewer-1")

    assert "t1.txt (added) +1 -0\n" in before
    assert shell.ok("diff", "t1") == before
    told = json.loads(shell.ok("diff", "t1", "--json"))
    assert told["files"][0]["path"] == "t1.txt"
    assert told["base"] == team.user.git("rev-parse", f"{told['head']}^1")
    assert shell.ok("diff", "t1", "--stat").splitlines()[0] == "t1.txt (added) +1 -0"


@pytest.mark.parametrize(
    ("name", "says"),
    [("t2", "there is no diff of 't2'; nothing was committed for it"), ("t9", "there is no task 't9'")],
)
def test_where_there_is_none_it_says_so(team: ScriptedTeam, name: str, says: str) -> None:
    done = Shell(team.user.directory)("diff", name)

    assert done.code == 1
    assert done.err.startswith(f"liza: {says}")


def test_what_files_hold_does_not_act_on_a_terminal() -> None:
    lines = (PatchLine("+", "\x1b]0;owned\x07\u202e", new=1),)
    diff = TaskDiff("t1", "a", "b", (FilePatch("\x1b[31mx", None, "A", is_binary=False, lines=lines),))

    assert list(diff_lines(diff, colour=True)) == [
        "\x1b[1m\\x1b[31mx (added) +1 -0\x1b[m",
        "\x1b[32m+\\x1b]0;owned\\x07\\u202e\x1b[m",
    ]
