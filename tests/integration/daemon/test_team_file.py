"""`liza.yaml` and the board's `config`: what the team changed is applied, what was edited live stays."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from liza.board.file import FileBoard
from liza.daemon.project import APPLIED
from liza.daemon.team_file import apply_team_file, changed_paths
from liza.errors import UsageError
from tests.support.shell import Shell

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.config import Config

TEAM = "limits: {agent_minutes: 20, max_rejections: 4}\nworkers: {coder: 3}\n"


class Team:
    """A repository whose `liza.yaml` changes after its board was made."""

    def __init__(self, root: Path) -> None:
        self.root = root
        subprocess.run(["git", "init", "-q", "."], cwd=root, check=True)
        self.write(TEAM)
        self.shell = Shell(root)
        self.shell.ok("init", "Build a greeter")

    def write(self, text: str) -> None:
        (self.root / "liza.yaml").write_text(text)

    def applied(self) -> list[str]:
        board = FileBoard(self.shell.home)
        board.absorb()
        try:
            return list(map(str, apply_team_file(board, self.root).done))
        finally:
            board.close()

    @property
    def config(self) -> Config:
        board = FileBoard(self.shell.home)
        try:
            return board.read().config
        finally:
            board.close()


@pytest.fixture
def team(tmp_path: Path) -> Team:
    return Team(tmp_path)


class TestWhatChanged:
    def test_a_file_as_it_was_applies_nothing(self, team: Team) -> None:
        before = team.shell.state.read_bytes()
        assert team.applied() == []
        assert team.shell.state.read_bytes() == before

    def test_a_live_edit_stays_while_another_key_of_the_file_changes(self, team: Team) -> None:
        """Design 2: `liza run` applies only what changed in `liza.yaml` since."""
        team.shell.edit("agent_minutes: 20.0", "agent_minutes: 7.0")
        team.write(TEAM.replace("coder: 3", "coder: 4"))
        assert team.applied() == ["workers.coder 3 -> 4"]
        assert (team.config.workers.coder, team.config.limits.agent_minutes) == (4, 7)
        assert team.applied() == []

    def test_the_file_wins_where_both_changed_the_same_key(self, team: Team) -> None:
        team.shell.edit("agent_minutes: 20.0", "agent_minutes: 7.0")
        team.write(TEAM.replace("agent_minutes: 20", "agent_minutes: 9"))
        assert team.applied() == ["limits.agent_minutes 7.0 -> 9.0"]

    def test_a_key_that_left_the_file_goes_back_to_its_default(self, team: Team) -> None:
        team.write("workers: {coder: 3}\n")
        assert team.applied() == ["limits.agent_minutes 20.0 -> 30.0", "limits.max_rejections 4 -> 3"]

    def test_an_override_comes_and_goes(self, team: Team) -> None:
        team.write(f"{TEAM}agents: {{overrides: {{reviewer: {{model: opus}}}}}}\n")
        assert team.applied() == ["agents.overrides.reviewer.model unset -> opus"]
        team.write(TEAM)
        assert team.applied() == ["agents.overrides.reviewer.model opus -> unset"]

    def test_the_journal_says_which_keys(self, team: Team) -> None:
        team.write(TEAM.replace("coder: 3", "coder: 4"))
        team.applied()
        assert "supervisor     apply liza.yaml: workers.coder" in team.shell.ok("log", "-n", "1")

    def test_a_goal_follows_the_spec_that_the_settings_gave_it(self, team: Team) -> None:
        (team.root / "vision.md").write_text("greet\n")
        team.write(f"{TEAM}spec: vision.md\n")
        assert team.applied() == ["spec unset -> vision.md"]
        assert team.shell.board()["goal"]["spec_ref"] == "vision.md"

    def test_where_nobody_knows_what_was_applied_no_live_edit_is_undone(self, team: Team) -> None:
        (team.shell.home / APPLIED).unlink()
        team.shell.edit("agent_minutes: 20.0", "agent_minutes: 7.0")
        assert team.applied() == []
        assert team.config.limits.agent_minutes == 7
        team.write(TEAM.replace("coder: 3", "coder: 4"))
        assert team.applied() == ["workers.coder 3 -> 4"]

    def test_two_readings_differ_by_leaf(self) -> None:
        one = {"a": {"b": 1, "c": 2}, "d": [1]}
        other = {"a": {"b": 1, "c": 3}, "d": [2], "e": {"f": 4}}
        assert sorted(changed_paths(one, other)) == [("a", "c"), ("d",), ("e", "f")]
        assert list(changed_paths(one, one)) == []


class TestWrong:
    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("limits: {agent_minuts: 3}\n", "did you mean 'agent_minutes'?"),
            ("workers: {coder: 0}\n", "workers.coder"),
            ("spec: nowhere.md\n", "the spec 'nowhere.md' of liza.yaml is not a file"),
            ("workflow: zen\n", "there is no workflow 'zen'; "),
            ("workflow: flows/zen.yaml\n", "flows/zen.yaml: No such file"),
            ("workers: [\n", "liza.yaml: "),
        ],
    )
    def test_it_is_one_sentence_and_nothing_is_changed(self, team: Team, text: str, said: str) -> None:
        team.write(text)
        before = team.shell.state.read_bytes(), (team.shell.home / APPLIED).read_bytes()
        with pytest.raises(UsageError) as error:
            team.applied()
        assert said in str(error.value)
        assert (team.shell.state.read_bytes(), (team.shell.home / APPLIED).read_bytes()) == before
