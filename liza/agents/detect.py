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

    from liza.agents.clis.spec import Cli

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
_LEADING: Final = ("_BASE_URL", "_API_BASE", "_HOST", "_PROVIDER", "_CONFIG")
_SHOWN_KEYS: Final = 2  # of a program in a sentence; some take the key of any provider
_VERSION: Final = re.compile(r"\d+\.\d+(?:\.\d+)?(?:[-+.\w]*)?")


class AvailableAgent(NamedTuple):
    """One thing that could be chosen, and why it can."""

    choice: AgentChoice
    why: str


class InstalledProgram(NamedTuple):
    """A coding program on this machine."""

    name: str
    path: str
    login: str | None  # by which variable or file, by name; None where there is none to be seen
    obstacle: str | None = None  # why it cannot run unattended, and what would help


def available_agents(environment: Mapping[str, str] | None = None) -> list[AvailableAgent]:
    """Return what could be chosen, best first: programs that can run unattended, then models."""
    user = os.environ if environment is None else environment
    found = [
        AvailableAgent(AgentChoice(backend=one.name), f"{one.path} is on the PATH, with {one.login}")
        for one in installed_programs(user)
        if one.obstacle is None
    ]
    if find_spec(MODEL_BACKEND) is not None:
        found += [
            AvailableAgent(AgentChoice(backend=MODEL_BACKEND, model=model), f"{key} is set")
            for key, model in DEFAULT_MODELS.items()
            if user.get(key)
        ]
    return found


def passed_over() -> list[str]:
    """Return why programs that are there are not chosen, a sentence each."""
    found = installed_programs(os.environ)
    return [f"{one.name} was passed over: {one.obstacle}" for one in found if one.obstacle]


def installed_programs(user: Mapping[str, str]) -> list[InstalledProgram]:
    """Return the programs of the table that are on the PATH."""
    path = user.get("PATH", os.defpath)
    found = []
    for cli in CLIS.values():
        where = next((place for name in cli.programs if (place := shutil.which(name, path=path))), None)
        if where:
            login = _login(cli, user)
            found.append(InstalledProgram(cli.name, where, login, _obstacle(cli, login, user)))
    return found


def _login(cli: Cli, user: Mapping[str, str]) -> str | None:
    home = Path(user.get("HOME", "/nonexistent"))
    named = (name for name in (*cli.keys, *filter(_leads_to_models, cli.env_passthrough)) if user.get(name))
    files = (f"~/{name}" for name in cli.credentials if (home / name).is_file())
    return next(named, None) or next(files, None)


def _leads_to_models(variable: str) -> bool:
    """Return whether *variable* names who serves the models, such as a server that asks for no key."""
    return variable.endswith(_LEADING) or "_USE_" in variable


def _obstacle(cli: Cli, login: str | None, user: Mapping[str, str]) -> str | None:
    keys = " or ".join(cli.keys[:_SHOWN_KEYS])
    if login is None:
        files = " or ".join(f"~/{name}" for name in cli.credentials[:1])
        return f"no login is seen ({files}); log in, or set {keys}"
    if login.startswith("~/") and cli.licences and not any(user.get(name) for name in cli.licences):
        licences = " or ".join(cli.licences)
        return (
            f"{login} is a personal login, which {cli.provider} serves no more; set {keys}, or {licences} "
            "where a company has a licence"
        )
    return None


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
