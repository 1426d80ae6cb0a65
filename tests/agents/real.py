"""Somebody's repository on which Liza runs a real program, sandboxed, with nothing but loopback around it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
import yaml

from liza.board.file import FileBoard
from liza.domain.model import State
from tests.agents import netless
from tests.agents.endpoint import ADDRESS, Fault, Seen
from tests.agents.netless import SCRIPTED, TOO_LONG
from tests.agents.programs import ROOT, installed
from tests.agents.script import FILES, GATE
from tests.support.sandboxed_project import skip_without_sandbox

if TYPE_CHECKING:
    from collections.abc import Sequence

PATIENCE: Final = 240.0  # seconds for a whole run of a slow program on a busy machine
INTEGRATION: Final = "liza/integration"
SECRET: Final = "planted-a0b1c2d3e4f5-in-the-users-home"  # noqa: S105 - the test is that it does not get out
KEY: Final = "sk-dummy-000011112222333344445555"


class Setup(NamedTuple):
    """What a user of one program sets: in liza.yaml, in the environment, and beside the repository."""

    agent: dict[str, Any]
    environment: dict[str, str]


OPENAI: Final = {
    "OPENAI_API_KEY": KEY,
    "OPENAI_BASE_URL": f"{ADDRESS}/v1",
    "OPENAI_API_BASE": f"{ADDRESS}/v1",
    "OPENAI_HOST": ADDRESS,
    "OPENAI_MODEL": "scripted",
}
_CODEX_PROVIDER: Final = (
    f'{{name="scripted",base_url="{ADDRESS}/v1",env_key="OPENAI_API_KEY",wire_api="responses",'
    "request_max_retries=1,stream_max_retries=1}"
)
_OPENCODE: Final = {
    "provider": {
        "scripted": {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{ADDRESS}/v1", "apiKey": KEY},
            "models": {
                "scripted": {"cost": {"input": 3, "output": 15}, "limit": {"context": 99999, "output": 999}}
            },
        }
    }
}


_COPILOT: Final = {
    "COPILOT_OFFLINE": "true",
    "COPILOT_PROVIDER_BASE_URL": f"{ADDRESS}/v1",
    "COPILOT_PROVIDER_API_KEY": KEY,
    "COPILOT_MODEL": "scripted",
}
BEHIND: Final = {"acp": "goose"}  # who speaks the protocol here


def setups(place: Path) -> dict[str, Setup]:
    """Return how each program is set up; what needs a file gets it in *place*."""
    (place / "opencode.json").write_text(json.dumps(_OPENCODE))
    codex = ["-c", 'model_provider="scripted"', "-c", f"model_providers.scripted={_CODEX_PROVIDER}"]
    opencode = {"OPENCODE_CONFIG": str(place / "opencode.json"), "OPENAI_API_KEY": KEY}
    gemini = {"GEMINI_API_KEY": KEY, "GOOGLE_GEMINI_BASE_URL": ADDRESS}
    return {
        "claude": Setup({"model": "sonnet"}, {"ANTHROPIC_BASE_URL": ADDRESS, "ANTHROPIC_API_KEY": KEY}),
        "codex": Setup({"model": "gpt-5", "arguments": codex}, OPENAI),
        "opencode": Setup({"model": "scripted/scripted"}, opencode),
        "gemini": Setup({"model": "gemini-2.5-pro"}, gemini),
        "qwen": Setup({"model": "scripted"}, OPENAI),
        "goose": Setup({"model": "scripted"}, OPENAI),
        "aider": Setup({"model": "openai/scripted"}, OPENAI),
        "mini": Setup({"model": "openai/scripted"}, OPENAI),
        "litellm": Setup({"model": "openai/gpt-4o"}, OPENAI),
        "copilot": Setup({"backend": "acp", "command": ["copilot", "--acp"]}, _COPILOT),
        "acp": Setup({"command": ["goose", "acp"]}, {**OPENAI, "GOOSE_MODEL": "scripted"}),
    }


class Run(NamedTuple):
    """What came of one `liza run`."""

    code: int
    said: str
    state: State
    calls: list[Seen]
    seconds: float

    def shown(self) -> str:
        """Return what somebody needs who wonders why it failed."""
        calls = "\n".join(
            f"{call.step} {call.status} {call.played or 'text'} {call.tools}" for call in self.calls
        )
        return f"exit code {self.code}\n{self.said}\n{calls}"


class Project:
    """A repository with a user around it, who has secrets; *program* plays every step."""

    def __init__(
        self,
        place: Path,
        program: str,
        *,
        files: dict[str, str] | None = None,
        **settings: Any,  # noqa: ANN401 - of liza.yaml
    ) -> None:
        if not netless.words():
            pytest.skip("a network of its own cannot be had here: it needs root, or user namespaces")
        skip_without_sandbox()
        self.place, self.root, self.person = place, place / "project", place / "person"
        self.log = place / "calls.jsonl"
        setup = setups(place)[program]
        self.environment = self._environment(program) | setup.environment
        for path in (self.person / ".ssh" / "id_rsa", self.root / "untracked.txt"):
            path.parent.mkdir(parents=True)
            path.write_text(f"{SECRET}\n")
        told: dict[str, Any] = {
            "agents": {"default": {"backend": program, **setup.agent}},
            "workers": {"planner": 1, "coder": 1, "reviewer": 1},
            "gates": {"test": GATE},
            "sandbox": {"mode": "require"},
            "limits": {"agent_minutes": 2},
            **settings,
        }
        written = {"README.md": "# Greeter\n", "liza.yaml": yaml.safe_dump(told), **(files or {})}
        for name, text in written.items():
            (self.root / name).write_text(text)
            (self.root / name).chmod(0o755 if text.startswith("#!") else 0o644)
        self.git("init", "-q", "-b", "main")
        self.git("add", *written)
        self.git("commit", "-q", "-m", "begin")
        self.liza("init", "Greet people by name")
        self.before = self.fingerprint()

    def _environment(self, program: str) -> dict[str, str]:
        found = Path(sys.executable) if program == "litellm" else installed(BEHIND.get(program, program))
        if found is None:
            pytest.skip(f"{program} is not installed: `make test-agents` installs what can be installed")
        path = os.pathsep.join(
            (str(found.parent), str(Path(sys.executable).parent), os.defpath, "/usr/local/bin")
        )
        return {"PATH": path, "HOME": str(self.person), "LANG": "C.UTF-8", "MY_PASSWORD": SECRET}

    def git(self, *words: str) -> str:
        identity = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(
            ["git", *identity, *words], cwd=self.root, check=True, capture_output=True, text=True
        )
        return done.stdout

    def liza(self, *words: str) -> str:
        command = [sys.executable, "-m", "liza", *words]
        done = subprocess.run(
            command, cwd=self.root, env=self.environment, check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def run(self, *faults: Fault, model: str = SCRIPTED, seconds: float = PATIENCE) -> Run:
        """Let Liza run until only people can make progress, in a network of its own."""
        began = time.monotonic()
        words = (sys.executable, "-m", "liza", "run", "--until-idle")
        done = self.alone(*words, faults=faults, model=model, seconds=seconds)
        said = done.stdout + done.stderr
        assert done.returncode != TOO_LONG, said
        return Run(done.returncode, said, self.state, self.calls(), time.monotonic() - began)

    def alone(
        self, *command: str, faults: Sequence[Fault] = (), model: str = SCRIPTED, seconds: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        """Run *command* in the project, in a network of its own that has nothing but a model."""
        told = json.dumps([fault.model_dump(mode="json") for fault in faults])
        words = ["-m", "tests.agents.netless", model, str(self.log), told, str(seconds), "--"]
        there = ["sh", "-c", f'cd "{self.root}" && exec "$@"', "sh"]
        return subprocess.run(
            [*netless.words(), sys.executable, *words, *there, *command],
            cwd=ROOT,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            check=False,
            capture_output=True,
            text=True,
            timeout=seconds + 2 * netless.GRACE,
        )

    @property
    def state(self) -> State:
        return FileBoard(self.root / ".liza").read()

    def calls(self) -> list[Seen]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [Seen.model_validate_json(line) for line in lines]

    def alerts(self) -> list[str]:
        path = self.root / ".liza" / "alerts.log"
        return path.read_text().splitlines() if path.exists() else []

    def merged(self) -> dict[str, str]:
        """Return what is on the integration branch of what the script writes."""
        return {name: text for name, text in self.at(INTEGRATION).items() if name in FILES}

    def at(self, ref: str) -> dict[str, str]:
        """Return what *ref* changed of what the user committed."""
        changed = self.git("diff", "--name-only", "main", ref).split()
        return {name: self.git("show", f"{ref}:{name}") for name in changed}

    def fingerprint(self) -> dict[str, object]:
        """Return what is the user's own, and must not change whatever an agent does."""
        own = [self.root, self.person, self.place]
        names = sorted(str(path) for folder in own for path in folder.iterdir() if path != self.log)
        kept = {".worktrees", ".cache"}
        return {
            "names": [name for name in names if Path(name).name not in kept],
            "main": self.git("rev-parse", "main"),
            "config": (self.root / ".git" / "config").read_text(),
            "status": self.git("status", "--porcelain"),
        }
