"""Repositories and settings as strangers have them: one sentence, or it simply works."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

import liza.daemon.supervisor  # noqa: F401 - imported here, so that no child of the shell has to
from liza.board.file import FileBoard
from liza.cli.doctor import examine
from liza.cli.views.health import HealthMark
from liza.cli.views.screen import LineView
from liza.daemon.project import team_settings
from liza.daemon.supervisor import supervise
from liza.domain.config import Config
from liza.domain.model import GoalStatus
from liza.domain.record import utc_now
from liza.errors import SharedRepository
from liza.repo.repository import Repository
from liza.system import files
from tests.support.scripted_team import ScriptedTeam
from tests.support.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path


def git(directory: Path, *words: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    done = subprocess.run(["git", *who, *words], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout


def begun(directory: Path, *words: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    git(directory, "init", "-q", *words)
    git(directory, "commit", "-q", "--allow-empty", "-m", "begin")
    return directory


class TestOneSentence:
    @pytest.mark.parametrize(
        ("branch", "integration", "said"),
        [
            (
                "liza",
                "liza/integration",
                "the branch 'liza' stands where Liza puts liza/integration; rename it",
            ),
            ("a/b", "a/b/c", "the branch 'a/b' stands where Liza puts a/b/c; rename it"),
            ("onto/main", "onto", "the branch 'onto/main' leaves no room for the integration branch 'onto'"),
        ],
    )
    def test_a_branch_in_the_way_of_the_integration_branch(
        self, tmp_path: Path, branch: str, integration: str, said: str
    ) -> None:
        """Git keeps branches as files; `init` says so, and `run`, if it came to be later."""
        root = begun(tmp_path / "project")
        (root / "liza.yaml").write_text(f"integration_branch: {integration}\n")
        git(root, "branch", branch)
        shell = Shell(root)

        done = shell("init", "Build it")
        git(root, "branch", "-m", branch, "elsewhere")
        shell.ok("init", "Build it")
        git(root, "branch", "-m", "elsewhere", branch)
        later = shell("run")

        assert (done.code, later.code) == (1, 1)
        assert said in done.err
        assert said in later.err
        assert "Traceback" not in later.err

    @pytest.mark.parametrize("kind", ["smudge", "process"])
    def test_a_filter_that_is_not_installed(self, tmp_path: Path, kind: str) -> None:
        """As after cloning a repository with large files by somebody who has no git-lfs."""
        root = begun(tmp_path / "repo")
        (root / ".gitattributes").write_text("*.bin filter=ghost\n")
        (root / "a.bin").write_text("x\n")
        (root / "liza.yaml").write_text("gates: {test: 'true'}\n")
        git(root, "add", ".")
        git(root, "commit", "-q", "-m", "large files")
        git(root, "config", f"filter.ghost.{kind}", "ghost-of-a-filter now")
        git(root, "config", "filter.ghost.required", "true")
        shell = Shell(root)

        refused = shell("init", "Go")

        assert refused.code == 1
        assert "git needs ghost-of-a-filter to check out files of this repository" in refused.err
        assert refused.err.count("\n") == 1

    def test_a_line_break_in_the_path(self, tmp_path: Path) -> None:
        """What git prints about worktrees could not be told apart."""
        shell = Shell(begun(tmp_path / "pro\nject"))

        done = shell("init", "Build it")

        assert done.code == 2
        assert "has a line break in it" in done.err
        assert done.err.count("\n") == 1
        assert not shell.home.exists()

    def test_a_bare_repository(self, tmp_path: Path) -> None:
        """It is a repository: to `git init` there would help nobody. The doctor sees it, too."""
        begun(tmp_path / "project")
        git(tmp_path, "clone", "-q", "--bare", "project", "bare.git")
        shell = Shell(tmp_path / "bare.git")

        done = shell("init", "Build it")

        assert done.code == 2
        assert "is a bare repository, and agents need files" in done.err
        assert [one.what for one in examine(shell.directory) if one.mark is HealthMark.FAIL] == ["repository"]
        inside = Shell(tmp_path / "project" / ".git")("init", "Build it")
        assert "is inside of git's own directory; go to the checkout" in inside.err

    def test_a_second_checkout_of_the_same_repository(self, tmp_path: Path) -> None:
        """Both boards would move the same branches."""
        root = begun(tmp_path / "project")
        git(root, "worktree", "add", "-q", str(tmp_path / "second"))
        second = Shell(tmp_path / "second")
        second.ok("init", "Build it")
        common = Repository.around(root).common

        with files.hold_for_life(common / files.LOCK_IN_GIT, at=utc_now()):
            done = second("run")
            with (tmp_path / "out").open("w") as out, pytest.raises(SharedRepository):
                supervise(second.home, LineView(out))

        assert done.code == 1
        assert "another checkout of this repository has a run: process " in done.err
        assert "end that one first (`liza stop` there)" in done.err
        assert not (common / files.LOCK_IN_GIT).exists()


class TestItSimplyWorks:
    @pytest.mark.parametrize(
        "text",
        [
            "sandbox: {mode: off}\n",
            "sandbox: {mode: Off}\n",
            "sandbox: {mode: false}\n",
            'sandbox: {mode: "off"}\n',
            "\ufeffsandbox:\r\n  mode: off\r\n",
        ],
    )
    def test_off_is_off(self, tmp_path: Path, text: str) -> None:
        """As the README spells it, in the files of any editor."""
        (tmp_path / "liza.yaml").write_bytes(text.encode())

        assert Config.model_validate(team_settings(tmp_path)).sandbox.mode == "off"

    @pytest.mark.parametrize(("word", "is_so"), [("yes", True), ("on", True), ("no", False), ("off", False)])
    def test_yes_and_no_where_that_is_asked(self, tmp_path: Path, word: str, is_so: bool) -> None:
        """A field for a yes or no takes every word for it; one for a name takes the name."""
        text = f"agents: {{default: {{own_home: {word}, model: {word}}}}}\n"
        (tmp_path / "liza.yaml").write_text(text)

        default = Config.model_validate(team_settings(tmp_path)).agents.default

        assert (default.own_home, default.model) == (is_so, word)

    def test_what_cannot_be_cleared_up_is_told_and_the_goal_is_reached(self, tmp_path: Path) -> None:
        """Everything is merged: that somebody pruned worktrees, or left a lock, is no failure."""
        team = ScriptedTeam(tmp_path)
        team.task()
        team.turns("coder-1", "reviewer-1")
        (team.user.directory / ".git" / "packed-refs.lock").touch()
        shutil.rmtree(team.user.directory / ".git" / "worktrees")

        done = Shell(team.user.directory)("run")

        assert FileBoard(team.home).read().goal.status is GoalStatus.COMPLETE
        assert done.code == 0, done
        assert "Traceback" not in done.err
