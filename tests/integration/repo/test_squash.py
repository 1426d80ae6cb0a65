"""What a later commit took back is not merged with the history: Liza makes one commit, and says so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.domain.model import Status
from liza.repo.merge import Trailer, parse_trailers
from liza.repo.verify import verify_span
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

SECRET: Final = "AKIA" + "Q3EGRV2LTXZ7WN5B"
DONE: Final = {"status": "done", "summary": "Add t1\n\nAs asked."}
SAVE: Final = "git add --all; git commit -q -m"


def act(*lines: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - an act of the player's
    return {"run": "\n".join(["set -e", *lines]), "answer": DONE, **more}


@pytest.mark.parametrize(
    "lines",
    [
        (f"echo key={SECRET} > t1.txt", f"{SAVE} one", "echo t1 > t1.txt", f"{SAVE} two"),
        (f"echo {SECRET} > .env", f"{SAVE} one", "git rm -q .env; echo t1 > t1.txt", f"{SAVE} two"),
        ("mkdir .claude; echo > .claude/x.json", f"{SAVE} one", "git rm -rq .claude; echo t1 >t1.txt"),
        ("echo t1 > t1.txt", f"{SAVE} 'use {SECRET}'"),
        ("printf '\\0\\1' > x.bin", f"{SAVE} one", "git rm -q x.bin; echo t1 > t1.txt", f"{SAVE} two"),
    ],
    ids=["a line", "a file", "a forbidden file", "a message", "no text"],
)  # fmt: skip
def test_only_the_tree_is_merged_where_only_the_history_is_at_fault(
    tmp_path: Path, lines: tuple[str, ...]
) -> None:
    """No round for what an agent hardly knows how to mend, and nothing of it on the integration branch."""
    team = ScriptedTeam(tmp_path, {"implement t1": act(*lines)})
    team.task(scope={"in": ["t1.txt"]})

    team.turn("coder-1")

    task = team.state.task("t1")
    assert (task.status, task.iteration) == (Status.READY_FOR_REVIEW, 1), task.rejection_reason
    submitted = next(one for one in task.history if one.event == "submit")
    assert re.match(r"(secrets|commands|scope|diff): ", submitted.facts["squashed_for"])
    assert team.user.git("rev-list", "--count", f"{task.base_commit}..task/t1") == "1"
    said = team.user.git("log", "-1", "--format=%B", "task/t1")
    assert said.startswith("Add t1\n\nAs asked.\n")
    assert parse_trailers(said)[Trailer.SQUASHED] == submitted.facts["squashed"]
    team.turn("reviewer-1")
    assert team.status() is Status.MERGED
    assert team.merged("t1.txt") == "t1"
    past = team.user.git("log", "-p", "--binary", team.ref)
    for trace in (SECRET, ".claude", "x.bin"):
        assert trace not in past
    assert not verify_span(team.user.repository, team.ref).findings


def test_what_is_wrong_with_the_tree_goes_back_alone(tmp_path: Path) -> None:
    """The coder is not told of a history that is mended."""
    lines = ("mkdir .claude; echo {} > .claude/settings.json", f"{SAVE} one", "git rm -rq .claude")
    team = ScriptedTeam(tmp_path, {"implement t1": act(*lines, f"echo key={SECRET} > t1.txt")})
    team.task()

    team.turn("coder-1")

    task = team.state.task("t1")
    assert task.status is Status.REJECTED
    assert [one.file for one in task.rejection_feedback] == ["t1.txt"]
    assert "history" not in str(task.rejection_feedback)


def test_commits_without_fault_are_merged_as_they_are(tmp_path: Path) -> None:
    """They are the coder's account of the work."""
    lines = ("echo 1 > t1.txt", f"{SAVE} one", "echo 2 > t1.txt", f"{SAVE} two")
    team = ScriptedTeam(tmp_path, {"implement t1": act(*lines)})
    team.task()

    team.turns("coder-1", "reviewer-1")

    assert team.status() is Status.MERGED
    assert team.user.git("log", "--format=%s", f"{team.user.base}..task/t1") == "two\none"
