"""What is said about a forge or issues that cannot be used: when a board is made, and when a run begins."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from liza.daemon.project import create_board
from liza.domain.model import Status
from liza.errors import LizaError
from tests.support import scripted_gh
from tests.support.local_forge import ForgeFolder
from tests.support.repos import Home
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path

LOCAL = "forge: {local: {path: ../forge}}"


@pytest.mark.parametrize(
    ("settings", "workflow", "issues", "sentence"),
    [
        (
            "budget: {run_usd: 1}",
            "phased",
            "1",
            "the issues 1 are named, and no forge; set one in liza.yaml: `forge: {github",
        ),
        (LOCAL, "phased", None, "a forge is set up, and no issues are named; say which: `--issues 1-5,8`"),
        (LOCAL, "liza", "1", "the workflow liza takes no issues; leave `forge` and `issues` out"),
        (
            "experiment: {keep_worktrees: true}",
            "liza",
            None,
            "the workflow liza tries no ideas; leave `experiment` out",
        ),
        (LOCAL, "phased", "1-x", "--issues: '1-x' is no issue number or range; write issues as `1-5,8` or"),
        (f"{LOCAL}\nissues: 1-y", "phased", None, "liza.yaml: line 2: issues: '1-y' is no issue number or"),
        (LOCAL, "phased", "label:", "names no label; write it as `label:agent`"),
        ("forge: {gitub: {}}", "phased", "1", "there is no forge 'gitub'; did you mean 'github'?"),
        ("forge: {local: {}}", "phased", "1", "forge.local.path"),
        ("forge: {local: {path: none}}", "phased", "1", "there is no directory `issues` in it; make one"),
        ("forge: {local: {path: x}, github: {}}", "phased", "1", "local and github are two forges; keep one"),
    ],
)
def test_a_forge_that_cannot_be_used_is_refused_and_no_board_is_made(
    tmp_path: Path, settings: str, workflow: str, issues: str | None, sentence: str
) -> None:
    ForgeFolder(tmp_path / "forge")
    home = Home(tmp_path / "home")
    (home.directory / "liza.yaml").write_text(settings)

    with pytest.raises(LizaError) as refused:
        create_board(home.directory, "goal", spec=None, workflow=workflow, issues=issues)

    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not (home.directory / ".liza").exists()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        (
            "agents:\n  default:\n    backend: claud",
            "liza.yaml: line 2: agents.default: there is no backend 'claud'; did you mean 'claude'?",
        ),
        (
            "agents:\n  default:\n    command: [sh, -c, x]\n    effort: high",
            "liza.yaml: line 4: agents.default: `effort` does nothing with the backend command",
        ),
        ("agents:\n  fallback: {backend: nope}", "liza.yaml: line 2: agents.fallback: there is no backend"),
        (
            "agents: {default: {command: [sh, nope.sh]}}",
            "liza.yaml: line 1: agents.default.command names 'nope.sh', and there is no such file",
        ),
        ("worktree:\n  copy: [../x]", "liza.yaml: line 2: worktree.copy: '../x' is not below the repository"),
        ("notify:\n  channels: {nope: {}}", "liza.yaml: line 2: notify.channels.nope: "),
        ("\nexperiment: {keep_worktrees: true}", "liza.yaml: line 2: experiment: the workflow liza tries no"),
        ("spec: nowhere.md", "the spec 'nowhere.md' of liza.yaml is not a file of this repository"),
    ],
)
def test_a_setting_that_does_nothing_here_is_refused_with_its_line(
    tmp_path: Path, settings: str, sentence: str
) -> None:
    home = Home(tmp_path / "home")
    (home.directory / "liza.yaml").write_text(settings)

    with pytest.raises(LizaError) as refused:
        create_board(home.directory, "goal", spec=None, workflow=None)

    assert str(refused.value).startswith(sentence)
    assert not (home.directory / ".liza").exists()


def test_the_issues_of_a_new_board_are_those_that_were_named(tmp_path: Path) -> None:
    ForgeFolder(tmp_path / "forge")
    home = Home(tmp_path / "home")
    (home.directory / "liza.yaml").write_text(f"{LOCAL}\nissues: 7\n")

    board, choices = create_board(home.directory, "goal", spec=None, workflow="phased", issues="label:x")

    assert board.read().config.issues == "label:x"
    assert ("issues", "label:x", "of local") in choices


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("HTTP 401: Bad credentials", "run `gh auth login`, or set GH_TOKEN"),
        ("HTTP 404: Not Found", "look at the name of the repository"),
    ],
)
def test_a_forge_that_tells_nothing_pauses_the_run_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, sentence: str
) -> None:
    state = scripted_gh.install(tmp_path / "bin", {})
    text = state.read_text().replace('"faults": []', f'"faults": [{{"code": 1, "said": "{said}"}}]')
    state.write_text(text)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    team = ScriptedTeam(
        tmp_path, workflow="phased", forge={"github": {"repository": "o/r"}}, issues="label:x"
    )

    team.turn("planner-1")

    assert sentence in str(team.board.switches.thrown())
    assert not team.state.tasks


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ("HTTP 403: Resource not accessible by integration", "issue #7 cannot be read: cannot read issue #7"),
        ("HTTP 422: Validation Failed", "issue #7 cannot be read: cannot read issue #7: GitHub refuses"),
    ],
)
def test_an_issue_that_the_forge_keeps_to_itself_is_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, sentence: str
) -> None:
    state = scripted_gh.install(tmp_path / "bin", {})
    text = state.read_text().replace('"faults": []', f'"faults": [{{"code": 1, "said": "{said}"}}]')
    state.write_text(text)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    team = ScriptedTeam(tmp_path, workflow="phased", forge={"github": {"repository": "o/r"}}, issues="7")
    team.user.git("init", "--quiet", "--bare", str(tmp_path / "remote.git"))
    team.user.git("remote", "add", "origin", str(tmp_path / "remote.git"))

    team.turn("planner-1")

    task = team.state.task("issue-7")
    assert task.status is Status.BLOCKED
    assert str(task.blocked_reason).startswith(sentence)
