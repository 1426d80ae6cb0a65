"""Finds agents where none is configured: coding programs on the PATH, API keys in the environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.agents.clis.table import CLIS, PROVIDER_BY_MODEL
from liza.domain.config import AgentChoice

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION_TIMEOUT: Final = 20.0  # seconds for a program to say its version; some start a whole runtime
# A key, and the model that it is used with where nobody named one.
DEFAULT_MODELS: Final[dict[str, str]] = {
    "ANTHROPIC_API_KEY": "anthropic/claude-sonnet-4-5",
    "OPENAI_API_KEY": "openai/gpt-5",
    "GEMINI_API_KEY": "gemini/gemini-2.5-pro",
    "OPENROUTER_API_KEY": "openrouter/anthropic/claude-sonnet-4.5",
    "DEEPSEEK_API_KEY": "deepseek/deepseek-chat",
    "MISTRAL_API_KEY": "mistral/mistral-large-latest",
    "GROQ_API_KEY": "groq/llama-3.3-70b-versatile",
    "XAI_API_KEY": "xai/grok-4",
}
MODEL_BACKEND: Final = "litellm"
_VERSION: Final = re.compile(r"\d+\.\d+(?:\.\d+)?(?:[-+.\w]*)?")


class AvailableAgent(NamedTuple):
    """One thing that could be chosen, and why it can."""

    choice: AgentChoice
    why: str


class InstalledProgram(NamedTuple):
    """A coding program on this machine."""

    name: str
    path: str
    login: str | None  # by which key or file, by name; None where there is none to be seen


def available_agents(environment: Mapping[str, str] | None = None) -> list[AvailableAgent]:
    """Return what could be chosen, best first: programs with a login, then others, then models."""
    user = os.environ if environment is None else environment
    programs = sorted(installed_programs(user), key=lambda program: program.login is None)
    found = [
        AvailableAgent(
            AgentChoice(backend=name), f"{path} is on the PATH" + (f", with {login}" if login else "")
        )
        for name, path, login in programs
    ]
    if find_spec(MODEL_BACKEND) is not None:
        found += [
            AvailableAgent(AgentChoice(backend=MODEL_BACKEND, model=model), f"{key} is set")
            for key, model in DEFAULT_MODELS.items()
            if user.get(key)
        ]
    return found


def installed_programs(user: Mapping[str, str]) -> list[InstalledProgram]:
    """Return the programs of the table that are on the PATH."""
    path = user.get("PATH", os.defpath)
    found = []
    for cli in CLIS.values():
        where = next((place for name in cli.programs if (place := shutil.which(name, path=path))), None)
        if where:
            found.append(InstalledProgram(cli.name, where, _login(cli.keys, cli.credentials, user)))
    return found


def _login(keys: tuple[str, ...], files: tuple[str, ...], user: Mapping[str, str]) -> str | None:
    home = Path(user.get("HOME", "/nonexistent"))
    named = (key for key in keys if user.get(key))
    return next(named, None) or next((f"~/{name}" for name in files if (home / name).is_file()), None)


def program_version(name: str, path: str) -> str:
    """Ask the program at *path* for its version; return it, or why it does not say."""
    try:
        done = subprocess.run(
            [path, *CLIS[name].version],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=VERSION_TIMEOUT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"unknown: {error}"
    found = _VERSION.search(done.stdout) or _VERSION.search(done.stderr)
    return found.group() if found else f"unknown: it ended with {done.returncode} and named none"


def known_provider(choice: AgentChoice) -> str | None:
    """Return who serves the model of *choice*; None where that cannot be told."""
    cli = CLIS.get(choice.backend or "")
    if cli and cli.provider:
        return cli.provider
    for pattern, name in PROVIDER_BY_MODEL:
        if found := re.match(pattern, choice.model or "", re.IGNORECASE):
            return found.expand(name)
    return None
