"""Coding programs and models in a real sandbox: what they need is there, and what is the user's is not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from liza.agents.clis.agent import CliAgent
from liza.agents.clis.table import CLIS
from liza.agents.llm.backend import PACKAGE, LlmAgent
from liza.daemon.project_sandbox import hosts_in
from liza.domain.config import AgentChoice
from liza.system.run_control import RunControl, RunEnding
from liza.system.sandbox.bubblewrap import inspect_host
from tests.support.sandboxed_project import SECRET, SandboxedProject

if TYPE_CHECKING:
    from pathlib import Path

    from liza.agents.protocol import Reply

PRYING = "cat ~/.ssh/id_rsa {person}/.ssh/id_rsa {person}/../project/.liza/state.yaml .liza/state.yaml; env"


class Staff:
    """Scripts that stand in for programs, beside a project."""

    def __init__(self, place: Path) -> None:
        self.project = SandboxedProject(place)
        self.programs = place / "programs"
        self.programs.mkdir()
        self.homes = place / "homes"
        path = f"{self.programs}:{os.environ['PATH']}"
        self.environment = {"PATH": path, "HOME": str(self.project.person), "MY_PASSWORD": SECRET}

    def script(self, name: str, text: str) -> str:
        program = self.programs / name
        program.write_text(f"#!/bin/sh\n{text.format(person=self.project.person)}\n")
        program.chmod(0o755)
        return str(program)

    def run(self, name: str, text: str, *, sandboxed: bool = True, **environment: str) -> Reply:
        self.script(name, text)
        user = self.environment | environment
        sandbox = {"sandbox": self.project.guard} if sandboxed else {}
        return CliAgent(CLIS[name], AgentChoice(), self.homes, environment=user, **sandbox).run(
            self.project.brief(), RunControl()
        )


@pytest.fixture
def staff(tmp_path: Path) -> Staff:
    return Staff(tmp_path)


class TestAProgram:
    def test_it_works_in_its_home_and_sees_nothing_of_the_users(self, staff: Staff) -> None:
        """Its own home can be written, and neither secrets nor the board are there."""
        reply = staff.run("claude", f"{PRYING}; echo x > ~/kept && echo it-has-a-home")

        assert reply.code == 0
        assert "it-has-a-home" in staff.project.said()
        assert SECRET not in staff.project.said()
        assert (staff.homes / "coder-1" / "kept").read_text() == "x\n"

    def test_a_file_that_its_variable_names_is_there(self, staff: Staff) -> None:
        """A setting somewhere in the user's home, to read."""
        settings = staff.project.person / "settings.json"
        settings.write_text("so it is set")
        staff.run(
            "opencode", 'cat "$OPENCODE_CONFIG"; echo x > "$OPENCODE_CONFIG"', OPENCODE_CONFIG=str(settings)
        )

        assert "so it is set" in staff.project.said()
        assert settings.read_text() == "so it is set"

    @pytest.mark.parametrize(("inside", "mode"), [(True, "danger-full-access"), (False, "workspace-write")])
    def test_a_sandbox_of_its_own_is_for_where_there_is_none(
        self, staff: Staff, inside: bool, mode: str
    ) -> None:
        """In its own it cannot commit, and ours holds back what matters without leaving namespaces open."""
        staff.run("codex", 'echo "$@"; unshare --user true && echo it-nests', sandboxed=inside)

        assert f'sandbox_mode="{mode}"' in staff.project.said()
        assert ("it-nests" in staff.project.said()) is not inside


class TestAModel:
    def test_the_process_of_a_conversation_is_sandboxed(self, staff: Staff) -> None:
        """It finds its own code and its key, and nothing of the user's."""
        done = '{{"finished": {{"ending": "done", "text": "fine"}}}}'
        python = staff.script("python", f"{PRYING}; ls {PACKAGE}/errors.py; echo '{done}'")
        environment = staff.environment | {"OPENAI_API_KEY": "sk-0123456789abcdef"}
        model = LlmAgent("openai/x", environment=environment, python=python, sandbox=staff.project.guard)
        reply = model.run(staff.project.brief(), RunControl())

        assert (reply.ending, reply.text) == (RunEnding.DONE, "fine"), staff.project.said()
        assert f"{PACKAGE}/errors.py" in staff.project.said()
        assert "OPENAI_API_KEY=[masked]" in staff.project.said()
        assert SECRET not in staff.project.said()

    def test_hosts_that_the_user_named_are_reached(self) -> None:
        """Under `model-only` a model is where the user's variables say that it is."""
        named = {
            "OPENAI_API_BASE": "http://127.0.0.1:8765/v1",
            "ANTHROPIC_BASE_URL": "https://models.example.org/a",
            "OPENAI_HOST": "http://models.example.org",
            "SOME_WORD": "https://elsewhere.example.org",
        }

        assert list(hosts_in(named)) == [
            "127.0.0.1:8765",
            "models.example.org:443",
            "models.example.org:80",
        ]


def test_of_the_users_home_a_program_with_another_sees_only_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever that home is: what was installed there is shown, and neither the rest nor its secrets."""
    user, own = tmp_path / "user", tmp_path / "own"
    for place in (user / ".local/bin", user / "bin", user / ".local/share/keyrings", own):
        place.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(user))
    path = f"{user}/.local/bin:{user}/bin"
    around = inspect_host(["true"], {"HOME": str(own), "PATH": path}, checkout=tmp_path / "checkout")

    assert around.home == own
    assert user in around.hidden
    shown = {one for one in around.shown if one.is_relative_to(user)}
    assert shown == {user / ".local/bin", user / "bin"}


@pytest.mark.parametrize(
    "words", [["{0}"], ["timeout", "60", "{0}"], ["python3", "bridge.py", "--", "{0}", "--acp"]]
)
@pytest.mark.parametrize("name", ["tool", "{bin}/tool"])
def test_a_program_that_is_a_link_is_shown_with_what_it_leads_to(
    tmp_path: Path, words: list[str], name: str
) -> None:
    """As npm installs programs, and whoever of the command starts it."""
    modules = tmp_path / "user" / "node_modules"
    (modules / ".bin").mkdir(parents=True)
    (modules / "@maker" / "tool").mkdir(parents=True)
    loader = modules / "@maker" / "tool" / "loader.js"
    loader.write_text("#!/usr/bin/env node\n")
    loader.chmod(0o755)
    (modules / ".bin" / "tool").symlink_to("../@maker/tool/loader.js")
    program = name.format(bin=modules / ".bin")
    environment = {"HOME": str(tmp_path / "home"), "PATH": f"{modules}/.bin:{os.environ['PATH']}"}

    argv = [word.format(program) for word in words]
    around = inspect_host(argv, environment, checkout=tmp_path / "checkout")

    assert any(loader.is_relative_to(path) for path in around.shown), around.shown
