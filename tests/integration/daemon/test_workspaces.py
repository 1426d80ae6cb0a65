"""What a worktree has beside its tree: what setup made, copied files, ports; and what ends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from liza.daemon.project import valid_config
from liza.daemon.project_sandbox import ports_of
from liza.domain.model import Status
from liza.errors import UsageError
from tests.support.repos import Hand
from tests.support.sandboxed_project import skip_without_sandbox
from tests.support.scripted_team import ScriptedTeam
from tests.support.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path

SETUP = "echo 1 > made.log; echo 2 > generated.py; echo changed >> a.txt"


@pytest.fixture(params=["require", "off"])
def mode(request: pytest.FixtureRequest) -> str:
    if request.param == "require":
        skip_without_sandbox()
    return str(request.param)


def runs(team: ScriptedTeam, name: str) -> list[str]:
    return sorted(path.name for path in (team.home / "runs").glob(f"coder-1.*.{name}"))


def test_an_agent_finds_what_setup_made_and_none_of_it_is_its_work(tmp_path: Path, mode: str) -> None:
    """Files that git ignores, others, and changes of tracked ones: only the agent's own are handed in."""
    look = "cat made.log generated.py && git status --porcelain && echo t1 > t1.txt"
    act = {"run": look, "answer": {"status": "done", "summary": "x"}}
    team = ScriptedTeam(
        tmp_path, {"implement": act}, sandbox={"mode": mode}, gates={"setup": SETUP, "test": "cat made.log"}
    )
    team.task()

    team.turn("coder-1")

    assert team.status() is Status.READY_FOR_REVIEW, team.state.task("t1").history[-1]
    assert team.user.git("diff", "--name-only", team.user.base, "task/t1") == "t1.txt"


def test_setup_runs_again_only_where_a_lock_file_changed(tmp_path: Path) -> None:
    """It may take minutes, and an agent comes back to its worktree again and again."""
    first = {"write": {"t1.txt": "x"}, "answer": {"status": "done", "summary": "x"}}
    second = {"write": {"requirements.txt": "y"}, "answer": {"status": "done", "summary": "x"}}
    gates = {"setup": "pwd", "test": "test ! -e t1.txt"}
    limits = {"max_same_reason": 9, "max_rejections": 9}
    team = ScriptedTeam(tmp_path, {"implement": [first, second, first]}, gates=gates, limits=limits)
    team.task()
    counts = []
    for _ in range(3):
        team.turn("coder-1")
        places = [(team.home / "runs" / name / "stdout").read_text() for name in runs(team, "setup")]
        counts.append(sum(place.endswith("/.worktrees/t1\n") for place in places))

    assert counts == [1, 1, 2]


def test_a_setup_that_fails_on_the_base_is_told_and_held_against_nobody(tmp_path: Path) -> None:
    """One alert with the end of its output; no agent is started, and no attempt is counted."""
    team = ScriptedTeam(tmp_path, gates={"setup": "seq 40; echo no such package >&2; exit 1"})
    team.task()

    team.turn("coder-1")

    task = team.state.task("t1")
    assert (task.status, task.failed_by) == (Status.IDLE, ())
    alerts = (team.home / "alerts.log").read_text()
    assert "setup (seq 40;" in alerts
    assert "40 / no such package" in alerts
    assert (team.home / "PAUSE").exists()
    assert not runs(team, "checkpoint")


def test_teardown_follows_every_use_of_a_tree(tmp_path: Path, mode: str) -> None:
    """For each setup one teardown in the same place, of agents and of gates."""
    gates = {"setup": "echo up", "test": "true", "teardown": "echo down; test -f a.txt"}
    team = ScriptedTeam(tmp_path, sandbox={"mode": mode}, gates=gates)
    team.task()

    team.turn("coder-1")

    assert team.status() is Status.READY_FOR_REVIEW
    ups, downs = runs(team, "setup"), runs(team, "teardown")
    assert len(ups) == len(downs) > 1


def test_files_that_a_project_needs_are_copied_and_never_committed(tmp_path: Path, mode: str) -> None:
    """The worktree and the tree under test have them, and a commit that has one is refused."""
    good = {"run": "cat .env.log && echo x > t1.txt", "answer": {"status": "done", "summary": "x"}}
    bad = {"run": "git add -f .env.log", "write": {"t1.txt": "x"}, "commit": "x"}
    bad["answer"] = {"status": "done", "summary": "x"}
    team = ScriptedTeam(
        tmp_path,
        {"implement t1": good, "implement t2": bad},
        sandbox={"mode": mode},
        worktree={"copy": [".env.log", "keys.log"]},
        gates={"test": 'test "$(cat .env.log keys.log/a)" = "onetwo"'},
    )
    team.user.write(".env.log", "one")
    team.user.write("keys.log/a", "two")
    team.task("t1")
    team.turn("coder-1")
    team.task("t2")
    team.turn("coder-1")

    assert team.status("t1") is Status.READY_FOR_REVIEW, team.state.task("t1").history[-1]
    assert team.user.git("diff", "--name-only", team.user.base, "task/t1") == "t1.txt"
    assert team.status("t2") is not Status.READY_FOR_REVIEW
    assert ".env.log is a copy of the user's own file" in str(team.state.task("t2").history[-1])


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("a.txt", "is tracked by git"),
        ("none.log", "does not exist in your checkout"),
        ("../x.log", "is not below the repository"),
        ("link.log", "leads out of the repository"),
        ("plain", "is not ignored by git"),
    ],
)
def test_what_cannot_be_copied_is_refused_in_a_sentence(tmp_path: Path, name: str, why: str) -> None:
    team = ScriptedTeam(tmp_path)
    team.user.write("plain", "x")
    (team.user.directory / "link.log").symlink_to(tmp_path)

    with pytest.raises(UsageError, match=f"worktree.copy: '{name}' {why}"):
        valid_config(team.user.directory, {"worktree": {"copy": [name]}})


def test_a_team_file_may_name_them(tmp_path: Path) -> None:
    """One sentence and exit code 2 where it is wrong; on the board where it is right."""
    shell = Shell(tmp_path)
    Hand(tmp_path).git("init", "-q")
    (shell.directory / "liza.yaml").write_text("worktree: {copy: [.env.test]}\n")

    assert shell("init", "a goal").code == 2
    (shell.directory / ".gitignore").write_text(".env.test\n")
    (shell.directory / ".env.test").write_text("x")
    assert shell("init", "a goal").code == 0


def test_worktrees_side_by_side_have_ports_of_their_own(tmp_path: Path) -> None:
    """Ten each, below those that the kernel gives out, and mostly not those of another project."""
    found = [ports_of(tmp_path, f"liza-{number}") for number in range(1, 30)]
    first = [int(one["LIZA_PORT"]) for one in found]

    assert len(set(first)) == len(first)
    assert all(1024 < port < 32768 - 10 and port % 10 == 0 for port in first)
    assert found[0]["LIZA_PORTS"] == f"{first[0]}-{first[0] + 9}"
    # Those of one other project may be the same by chance.
    others = [ports_of(tmp_path / f"other-{number}", "liza-1") for number in range(5)]
    assert any(one != found[0] for one in others)
