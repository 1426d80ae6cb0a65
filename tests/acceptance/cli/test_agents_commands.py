"""Which agents there are: what `liza agents`, `init` and `run` say, and a tiny task for each."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import pytest

from liza.agents.protocol import Reply
from liza.domain.changes import Change
from liza.domain.config import AgentChoice, Agents
from liza.domain.model import Status
from liza.system.run_control import RunEnding
from tests.support.repos import Home
from tests.support.scripted_team import ScriptedTeam
from tests.support.shell import Shell

DONE: Final = (
    '{"type":"result","result":"fine\\\\n\\\\n```liza\\\\nstatus: done\\\\nsummary: wrote it\\\\n```"}'
)
VERSION: Final = 'if [ "$1" = --version ]; then echo "2.1.197 (Claude Code)"; exit; fi'
SYSTEM: Final = "/usr/bin:/bin"  # where git and the shell are; nobody installs coding programs there


class Machine:
    """Somebody's machine: a repository, a home, and whichever programs were put on the PATH."""

    def __init__(self, place: Path) -> None:
        self.user = Home(place / "project")
        self.shell = Shell(self.user.directory)
        self.programs = place / "bin"
        self.programs.mkdir()
        (place / "home").mkdir()
        self.environment = {"PATH": f"{self.programs}:{SYSTEM}", "HOME": str(place / "home")}
        for name in os.environ:
            if name.endswith("_API_KEY"):
                self.environment[name] = ""

    def install(self, name: str, script: str) -> Path:
        program = self.programs / name
        program.write_text(f"#!/bin/sh\n{VERSION}\n{script}\n")
        program.chmod(0o755)
        return program

    def said(self, *words: str, code: int = 0, **more: str) -> str:
        done = self.shell(*words, user=None, **self.environment, **more)
        assert done.code == code, done
        return done.out


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


class TestWhatWasFound:
    def test_programs_versions_logins_and_why_each_step_has_its_agent(self, machine: Machine) -> None:
        """Names of keys, never their values; it needs no board."""
        path = machine.install("claude", "exit 1")

        survey = json.loads(machine.said("agents", "--json", ANTHROPIC_API_KEY="sk-secret"))

        assert survey["found"] == [
            {
                "name": "claude",
                "version": "2.1.197",
                "path": str(path),
                "login": "ANTHROPIC_API_KEY",
                "obstacle": None,
            }
        ]
        assert survey["keys"] == ["ANTHROPIC_API_KEY"]
        assert {one["step"]: one["agent"]["backend"] for one in survey["steps"]} == dict.fromkeys(
            ("plan", "replan", "checkpoint", "implement", "review"), "claude"
        )
        assert "sk-secret" not in json.dumps(survey)

    def test_a_program_with_a_login_is_preferred(self, machine: Machine) -> None:
        """One that only asks for a key helps nobody at night."""
        machine.install("claude", "exit 1")
        machine.install("codex", "exit 1")

        out = machine.said("init", "make it", OPENAI_API_KEY="x")

        assert "agent     codex" in out
        assert "with OPENAI_API_KEY" in out
        assert "claude was passed over: no login is seen" in out

    @pytest.mark.parametrize("key", ["GEMINI_API_KEY", "GOOGLE_CLOUD_PROJECT", None])
    def test_a_login_that_is_served_no_more_is_none(self, machine: Machine, key: str | None) -> None:
        """A key, or a company's licence, runs at night; a personal login does not, and why is said."""
        machine.install("gemini", "exit 1")
        login = machine.programs.parent / "home/.gemini/oauth_creds.json"
        login.parent.mkdir()
        login.write_text("{}")

        machine.environment |= {key: "x"} if key else {}

        out = machine.said("init", "make it")

        assert ("agent     gemini" in out) == bool(key)
        assert ("~/.gemini/oauth_creds.json is a personal login" in out) != bool(key)
        assert ("GEMINI_API_KEY" in machine.said("agents")) or key

    def test_a_model_is_preferred_to_a_program_without_a_login(self, machine: Machine) -> None:
        """The key that it lacks may well do for another."""
        machine.install("codex", "exit 1")

        out = machine.said("init", "make it", ANTHROPIC_API_KEY="x")

        assert "agent     codex" not in out
        assert (
            "codex was passed over: no login is seen (~/.codex/auth.json); log in, or set CODEX_API_KEY"
            in out
        )

    def test_nothing_is_said_too(self, machine: Machine) -> None:
        assert "no coding program of those that Liza knows" in machine.said("agents")
        assert "agent     none  (no coding program is on the PATH" in machine.said("init", "make it")

    def test_the_teams_choice_is_not_mixed_with_what_was_found(self, machine: Machine) -> None:
        """Half of one agent and half of another would be neither."""
        machine.install("claude", "exit 1")
        machine.user.write("team", "#!/bin/sh\n")
        machine.user.write("liza.yaml", "agents: {default: {command: [./team]}}\n")

        assert "agent     command  (in liza.yaml)" in machine.said("init", "make it")
        agent = json.loads(machine.said("agents", "--json"))["steps"][0]["agent"]
        assert agent == {"command": ["./team"]}

    def test_a_wish_that_cannot_be_met_is_told(self, machine: Machine) -> None:
        machine.install("claude", "exit 1")
        settings = "agents: {default: {backend: claude}, prefer_different_reviewer: true}\n"
        machine.user.write("liza.yaml", settings)

        assert "Mind: the reviewer has the coder's provider (anthropic)" in machine.said("agents")


class TestATinyTask:
    def test_an_agent_that_writes_and_answers_is_ok(self, machine: Machine) -> None:
        machine.install("claude", f"cat > /dev/null; echo hello > hello.txt; echo '{DONE}'")

        done = json.loads(machine.said("agents", "test", "--json"))

        assert (done["name"], done["ok"], done["why"]) == ("claude", True, "")

    @pytest.mark.parametrize(
        ("script", "why"),
        [
            (f"echo '{DONE}'", "it did not write hello.txt"),
            (f"echo bye > hello.txt; echo '{DONE}'", "it wrote 'bye' into hello.txt"),
            ('echo hello > hello.txt; echo \'{"type":"result","result":"did it"}\'', "unreadable"),
            ('echo \'{"type":"result","is_error":true,"result":"Not logged in"}\'; exit 1', "Not logged in"),
        ],
    )
    def test_an_agent_that_does_not_is_told_with_the_reason(
        self, machine: Machine, script: str, why: str
    ) -> None:
        machine.install("claude", script)

        out = machine.said("agents", "test", "claude", code=1)

        assert "FAILED" in out
        assert why in out

    def test_an_unknown_agent_is_named(self, machine: Machine) -> None:
        machine.install("claude", "exit 1")

        done = machine.shell("agents", "test", "oracle", user=None, **machine.environment)

        assert done.code == 2
        assert "no agent 'oracle' here; known: claude" in done.err


class TestStandingIn:
    def test_an_agent_that_cannot_be_started_is_stood_in_for_once(self, tmp_path: Path) -> None:
        """As an attempt of its own, with its own record."""
        team = ScriptedTeam(tmp_path)
        team.task()
        works = team.state.config.agents.default
        agents = Agents(default=AgentChoice(backend="claude", command=("./nowhere",)), fallback=works)
        team.board.update(
            Change("human", "break", lambda state: state.replace(config=state.config.replace(agents=agents)))
        )

        team.turns("coder-1", "reviewer-1")

        assert team.status() is Status.MERGED
        replies = [
            Reply.model_validate_json(path.read_text()) for path in team.home.glob("runs/*/reply.json")
        ]
        endings = [reply.ending for reply in replies]
        assert endings.count(RunEnding.NOT_STARTED) == endings.count(RunEnding.DONE) == 3
