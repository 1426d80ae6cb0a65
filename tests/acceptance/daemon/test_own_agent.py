"""A program of somebody's own as the agent: the contract that specs/agents.md promises."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from typing import TYPE_CHECKING

import pytest

from liza.board.file import FileBoard
from liza.domain.answers import Step
from liza.domain.model import Status
from tests.support.local_forge import ForgeFolder
from tests.support.scripted_team import ScriptedTeam
from tests.support.shell import ROOT, Shell

if TYPE_CHECKING:
    from pathlib import Path

TEAM = """
agents: {default: {command: [python3, agent.py]}}
workers: {coder: 1}
gates: {test: python3 -m unittest -q}
"""


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    root = tmp_path / "project"
    root.mkdir()
    (root / "README.md").touch()
    me = ("-c", "user.name=a", "-c", "user.email=a@b")
    for words in (("init", "-q", "-b", "main"), ("add", "README.md"), (*me, "commit", "-qm", "begin")):
        subprocess.run(["git", *words], cwd=root, check=True)
    (root / "liza.yaml").write_text(TEAM)
    return Shell(root)


def merged(shell: Shell, name: str) -> str:
    shown = ["git", "-C", str(shell.directory), "show", f"liza/integration:{name}"]
    return subprocess.check_output(shown, text=True)


def test_the_agent_that_is_there_to_be_copied_goes_from_a_goal_to_merged_work(shell: Shell) -> None:
    """Beside liza.yaml, by a relative path, not committed, in the sandbox or free."""
    (shell.directory / "agent.py").write_text((ROOT / ".liza.example/agent.py").read_text())
    shell.ok("init", "Greet people")

    shell.ok("run", "--until-idle")

    state = FileBoard(shell.directory / ".liza").read()
    assert state.task("greet").status is Status.MERGED
    assert merged(shell, "greet.py").startswith("def greet(name):")


def workflow_settings(shell: Shell, name: str, **instead: str) -> None:
    """Write a liza.yaml with what the guide has for workflow *name*, and what is said *instead*."""
    guide = (ROOT / "docs/guide.md").read_text(encoding="utf-8")
    (text,) = re.findall(rf"^### [^\n]*`{name}`\)\n\n```yaml\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)
    lines = [line for line in text.splitlines() if line.partition(":")[0] not in instead]
    said = [f"{key}: {value}" for key, value in instead.items()]
    agent = "agents: {default: {command: [python3, agent.py]}}"
    (shell.directory / "liza.yaml").write_text("\n".join([*lines, *said, agent, ""]))
    (shell.directory / "agent.py").write_text((ROOT / ".liza.example/agent.py").read_text())


TESTS = "{test: python3 -m unittest -q}"


class TestWorkflows:
    """The agent that is there to be copied plays every role of the workflows that the guide shows."""

    def test_an_issue_becomes_a_pull_request(self, shell: Shell) -> None:
        forge = ForgeFolder(shell.directory.parent / "tracker")
        forge.issue(7, "Add greet().")
        workflow_settings(shell, "phased", forge="{local: {path: ../tracker}}", gates=TESTS)
        shell.ok("init", "--issues", "7")
        shell.ok("run", "--until-idle")
        assert forge.pulls() == {"agent/issue-7-write-file-7": False}

    def test_a_step_is_merged_after_a_yes(self, shell: Shell) -> None:
        workflow_settings(shell, "cycle", gates=TESTS)
        shell.ok("init", "Greet people")
        assert shell("run", "--until-idle").code == 3
        shell.ok("task", "accept", "goal-1")
        shell.ok("run", "--until-idle")
        assert merged(shell, "greet.py").startswith("def greet(name):")

    def test_an_idea_is_scored(self, shell: Shell) -> None:
        workflow_settings(shell, "experiment", gates=TESTS)
        (shell.directory / "ideas.md").write_text("Greet people by name\n")
        (shell.directory / "sweep.sh").write_text(
            "printf 'error\\n%s\\n' $((9 - $(ls | wc -l))) > results.csv\n"
        )
        subprocess.run(["git", "add", "sweep.sh"], cwd=shell.directory, check=True)
        me = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *me, "commit", "-qm", "sweep"], cwd=shell.directory, check=True)
        (shell.directory / "results.csv").write_text("error\n9\n")
        shell.ok("baseline", "refresh")
        shell.ok("init", "Greet people")
        shell.ok("run", "--until-idle")
        assert "The best one: git apply .liza/experiments/" in shell.ok("experiment")


def test_the_readme_can_be_copied_from_top_to_bottom(shell: Shell) -> None:
    """Its settings, its agent of ten lines and its commands, as they stand there, in a terminal's order."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (settings,) = re.findall(r"^```yaml\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    (agent,) = re.findall(r"^```sh\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    commands = re.findall(r"^liza (.*?) +# ", readme, re.MULTILINE)
    (shell.directory / "liza.yaml").write_text(settings)
    (shell.directory / "agent.sh").write_text(agent)

    said = [shell.ok(*shlex.split(command)) for command in commands]

    assert len(agent.splitlines()) == 10
    assert [command.split()[0] for command in commands] == ["init", "run", "status"]
    assert "refused" not in said[1]
    assert "git merge liza/integration" in said[2]
    assert merged(shell, "greet.py").startswith("def greet(name):")


def test_a_file_that_is_not_there_is_refused_before_anything_runs(shell: Shell) -> None:
    done = shell("init", "Greet people")

    assert done.code == 2
    assert "agents.default.command names 'agent.py', and there is no such file" in done.err


@pytest.mark.parametrize("step", Step)
def test_a_prompt_can_be_looked_at(shell: Shell, step: Step) -> None:
    """Filled in with the goal and a task of the board, or an example of one."""
    (shell.directory / "agent.py").touch()
    shell.ok("init", "Greet people")

    said = shell.ok("prompt", step)

    assert f"step: {step}" in said
    assert "$" not in said.replace("$TMPDIR", "")
    assert ("Greet people" in said) is (step is Step.PLAN)


def test_a_step_that_does_not_exist_is_named_with_those_that_do(shell: Shell) -> None:
    (shell.directory / "agent.py").touch()
    shell.ok("init", "Greet people")

    done = shell("prompt", "think")

    assert done.code == 2
    assert "use one of plan, replan, checkpoint, implement, review" in done.err


def test_a_program_can_say_that_its_context_is_full_and_its_work_is_handed_over(tmp_path: Path) -> None:
    """By exit code 42: nothing is thrown away, and the next run is told what the last one said."""
    full = {"write": {"t1.txt": "half\n"}, "print": "Half of it is there; the rest is easy.", "exit": 42}
    rest = {
        "run": "grep half t1.txt && echo t1 > t1.txt",
        "answer": {"status": "done", "summary": "Add t1"},
    }
    team = ScriptedTeam(tmp_path, {"implement": [full, rest]})
    team.task()

    team.turn("coder-1")

    assert team.state.task("t1").failed_by == ()
    assert team.state.handoff["t1"].summary == "Half of it is there; the rest is easy."

    team.turns("coder-1", "reviewer-1")

    assert team.status() is Status.MERGED
    assert team.merged("t1.txt") == "t1"


def test_what_a_program_finds_in_its_environment(tmp_path: Path) -> None:
    noted = tmp_path / "noted"
    run = f"env | grep ^LIZA_ | sort >> {noted}; cat $LIZA_BRIEF > {noted}.json"
    team = ScriptedTeam(tmp_path, {"checkpoint": {"run": run, "answer": {"intent": "write t1.txt"}}})
    team.task()

    team.turn("coder-1")

    found = dict(line.split("=", 1) for line in noted.read_text().splitlines())
    wanted = {"LIZA_STEP": "checkpoint", "LIZA_ROLE": "coder", "LIZA_TASK": "t1", "LIZA_ITERATION": "1"}
    assert {**found, **wanted, "LIZA_AGAIN": ""} == found
    brief = json.loads((tmp_path / "noted.json").read_text())
    assert (brief["step"], brief["task"], brief["facts"]["about"]["id"]) == ("checkpoint", "t1", "t1")
