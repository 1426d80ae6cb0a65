"""What there is to work with, and who would play what and why; for `liza agents`."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from liza.agents.found import MODEL_KEYS, available, passed_over, present, provider, version
from liza.replies import ROLES
from liza.routing import Who
from liza.work.hiring import hire

if TYPE_CHECKING:
    from collections.abc import Mapping

    from liza.config import Agents


def surveyed(agents: Agents, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Return the programs and keys that were found, and for each step who plays it and why."""
    user = os.environ if environment is None else environment
    found = present(user)
    with ThreadPoolExecutor() as pool:  # each takes its time to say its version
        versions = list(pool.map(lambda program: version(program.name, program.path), found))
    return {
        "found": [{**one._asdict(), "version": said} for one, said in zip(found, versions, strict=True)],
        "keys": [key for key in MODEL_KEYS if user.get(key)],
        "steps": surveyed_steps(agents, user),
    }


def surveyed_steps(agents: Agents, environment: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    user = os.environ if environment is None else environment
    return [_played(agents, step, role, user) for step, role in ROLES.items()]


def _played(agents: Agents, step: str, role: str, user: Mapping[str, str]) -> dict[str, Any]:
    hired = hire(agents, Who(role, step), available(user))
    return {
        "step": str(step),
        "role": str(role),
        "agent": hired.choice.plain(),
        "provider": provider(hired.choice),
        "why": hired.why,
        "warning": hired.warning,
    }


def told(survey: Mapping[str, Any]) -> str:
    """Return a survey for people to read."""
    lines = ["Found:"]
    lines += [
        f"  {one['name']:<9} {one['version']:<12} {one['path']}  "
        f"({one['obstacle'] or 'login: ' + str(one['login'])})"
        for one in survey["found"]
    ]
    lines += [] if survey["found"] else ["  no coding program of those that Liza knows is on the PATH"]
    lines += [f"Keys of models: {', '.join(survey['keys']) or 'none'}", "Who would work:"]
    for one in survey["steps"]:
        agent = one["agent"]
        backend = agent.get("backend") or ("command" if agent.get("command") else "nobody")
        more = " ".join(str(agent[name]) for name in ("model", "effort") if name in agent)
        lines.append(f"  {one['step']:<11} {one['role']:<9} {backend} {more}".rstrip() + f"  ({one['why']})")
    lines += [
        f"Mind: {warning}" for warning in dict.fromkeys(one["warning"] for one in survey["steps"]) if warning
    ]
    return "\n".join(lines)


def announced(agents: Agents) -> list[str]:
    """Return what should be said before a run begins: whom nobody chose, and what is not as it was wished."""
    steps = surveyed_steps(agents)
    chosen = {
        (str(one["agent"].get("backend")), one["why"]) for one in steps if "nothing is set up" in one["why"]
    }
    lines = [f"Agent: {backend}, because {why}." for backend, why in sorted(chosen) if backend != "None"]
    if any("nothing is set up" in one["why"] for one in steps):
        lines += [f"Mind: {sentence}." for sentence in passed_over()]
    return lines + [
        f"Mind: {warning}." for warning in dict.fromkeys(one["warning"] for one in steps) if warning
    ]
