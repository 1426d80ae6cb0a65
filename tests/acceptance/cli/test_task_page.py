"""`liza task show` as a page for people, and rejections with comments on lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from liza.cli.actions import parse_comment
from liza.domain.model import Feedback, Status
from liza.domain.record import utc_now
from liza.errors import UsageError
from liza.workflow.transition import apply
from tests.support.sample_tasks import ASK_HUMAN
from tests.support.scripted_team import ScriptedTeam, dear
from tests.support.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def team(tmp_path: Path) -> ScriptedTeam:
    """A task whose work was submitted, and asks a person."""
    team = ScriptedTeam(tmp_path, dear(0.25))
    team.task("t1")
    team.turn("coder-1")
    team.board.update(apply(ASK_HUMAN[0], to="t1", by=ASK_HUMAN[1], at=utc_now()))
    return team


def test_the_page_has_what_who_rounds_diff_and_history(team: ScriptedTeam) -> None:
    page = Shell(team.user.directory).ok("task", "show", "t1")

    assert page.startswith("t1  AWAITING_APPROVAL  ")
    assert "  rounds      1 of 10, sent back 0 times\n" in page
    assert "  cost        $0.50 in 2 runs\n" in page
    assert "diff:\n  t1.txt (added) +1 -0\n" in page
    assert "went wrong:\n  Ship it?\n" in page
    assert "announced:\n" in page
    assert "coder-1      announced its work\n" in page
    assert "checkpoint" not in page.partition("gates:")[0]
    assert page.splitlines()[-1].endswith("supervisor   left to a person -> AWAITING_APPROVAL")


def test_all_of_it_is_yaml(team: ScriptedTeam) -> None:
    shell = Shell(team.user.directory)

    assert shell.ok("task", "show", "t1", "--yaml").startswith("task:\n  id: t1\n")
    assert shell("task", "show", "t9").err == "liza: there is no task 't9'; `liza status` lists the tasks\n"


def test_comments_on_lines_go_back_with_the_reason(team: ScriptedTeam) -> None:
    shell = Shell(team.user.directory)
    shell.ok("task", "reject", "t1", "--reason", "not yet", "--comment", "t1.txt:1:too short", "a.py: why")
    task = team.board.read().task("t1")

    assert task.status is Status.REJECTED
    assert task.rejection_feedback == (
        Feedback(message="not yet"),
        Feedback(message="too short", file="t1.txt", line=1),
        Feedback(message="why", file="a.py"),
    )
    assert "  - t1.txt:1: too short\n" in shell.ok("task", "show", "t1")


@pytest.mark.parametrize("text", ["", "a.py", ":1:x", "a.py:1:", "a.py:1: ", ":::"])
def test_a_comment_without_a_file_or_words_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="FILE:LINE:TEXT"):
        parse_comment(text)


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("a.py:3:x: y", 3, "x: y"),
        ("a.py::x", None, "x"),
        ("a.py:0:x", None, "0:x"),
        ("a.py:words", None, "words"),
    ],
)
def test_a_line_may_be_left_out(text: str, line: int | None, message: str) -> None:
    assert parse_comment(text) == Feedback(file="a.py", line=line, message=message)


def test_the_name_of_a_file_may_have_a_colon() -> None:
    assert parse_comment("a:b.py:3:4: no") == Feedback(file="a:b.py", line=3, message="4: no")
