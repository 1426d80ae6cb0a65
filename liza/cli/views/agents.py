"""What there is to work with, and who would play what and why; for `liza agents`."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from liza.agents.detect import (
    DEFAULT_MODELS,
    available_agents,
    installed_programs,
    known_provider,
    passed_over,
    program_version,
)
from liza.agents.select import select_agent
from liza.domain.answers import ROLE_OF_STEP
from liza.domain.config import RouteKey
from liza.workflow.document import OWN_HATS, routes_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from liza.domain.config import Agents
    from liza.workflow.document import Workflow


def agent_survey(agents: Agents, flow: Workflow | None = None) -> dict[str, Any]:
    """Return the programs and keys that were found, and for everybody who is asked who plays it and why."""
    found = installed_programs(os.environ)
    with ThreadPoolExecutor() as pool:  # each takes its time to say its version
        versions = list(pool.map(lambda program: program_version(program.name, program.path), found))
    return {
        "found": [{**one._asdict(), "version": said} for one, said in zip(found, versions, strict=True)],
        "keys": [key for key in DEFAULT_MODELS if os.environ.get(key)],
        "steps": step_survey(agents, os.environ, flow),
    }


def step_survey(
    agents: Agents, environment: Mapping[str, str] | None = None, flow: Workflow | None = None
) -> list[dict[str, Any]]:
    user = os.environ if environment is None else environment
    routes = [RouteKey(role, step) for step, role in ROLE_OF_STEP.items()]
    if flow is not None and flow.roles.keys() - OWN_HATS.keys():
        routes = list(dict.fromkeys(routes_in(flow)))
    return [_step_row(agents, who, user) for who in routes]


def _step_row(agents: Agents, who: RouteKey, user: Mapping[str, str]) -> dict[str, Any]:
    hired = select_agent(agents, who, available_agents(user))
    return {
        "step": str(who.step),
        "role": str(who.role),
        **({"phase": who.phase, "hat": who.hat} if who.phase else {}),
        "agent": hired.choice.to_json(),
        "provider": known_provider(hired.choice),
        "why": hired.why,
        "warning": hired.warning,
    }


def survey_text(survey: Mapping[str, Any]) -> str:
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
        asked = f"{one['phase']} {one['hat'] or one['step']}" if "phase" in one else one["step"]
        lines.append(f"  {asked:<11} {one['role']:<9} {backend} {more}".rstrip() + f"  ({one['why']})")
    lines += [
        f"Mind: {warning}" for warning in dict.fromkeys(one["warning"] for one in survey["steps"]) if warning
    ]
    return "\n".join(lines)


def announcements(agents: Agents, flow: Workflow | None = None) -> list[str]:
    """Return what to print before a run: agents that nobody chose, and warnings."""
    steps = step_survey(agents, flow=flow)
    chosen = {
        (str(one["agent"].get("backend")), one["why"]) for one in steps if "nothing is set up" in one["why"]
    }
    lines = [f"Agent: {backend}, because {why}." for backend, why in sorted(chosen) if backend != "None"]
    if any("nothing is set up" in one["why"] for one in steps):
        lines += [f"Mind: {sentence}." for sentence in passed_over()]
    return lines + [
        f"Mind: {warning}." for warning in dict.fromkeys(one["warning"] for one in steps) if warning
    ]
