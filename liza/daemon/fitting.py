"""Settings that do nothing in the workflow that they stand beside; whoever set them believes that they do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.board.location import TEAM_FILE
from liza.domain.config import PlanApproval
from liza.domain.problems import line_of
from liza.domain.routing import override_keys, suggest_key
from liza.errors import UsageError, Violation
from liza.workflow.document import PLANNER_SPLITS
from liza.workflow.routes import routes_in

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.config import Config
    from liza.workflow.document import Workflow


def require_fitting(config: Config, flow: Workflow, root: Path) -> None:
    """Refuse agents for who is never asked, and approval of plans that nobody makes."""
    if config.plan.approval is not PlanApproval.NONE and (source := flow.tasks.source) != PLANNER_SPLITS:
        problem = f"no planner makes tasks in the workflow {config.workflow}, they come from {source!r}"
        raise _refused_setting(root, "plan.approval", problem, "leave it out")
    if config.agents.overrides:
        _require_used_keys(config, flow, root)


def _require_used_keys(config: Config, flow: Workflow, root: Path) -> None:
    usable = tuple(dict.fromkeys(key for route in routes_in(flow) for key in override_keys(route)))
    for key in config.agents.overrides:
        if key.upper() not in usable:
            problem = f"nobody is asked by this key in the workflow {config.workflow}"
            raise _refused_setting(root, f"agents.overrides.{key}", problem, suggest_key(key, usable))


def _refused_setting(root: Path, path: str, problem: str, mend: str) -> UsageError:
    """Return what is wrong with a setting, with its line where the team's file has it."""
    lines = _setting_lines(root)
    found = Violation(path, problem, mend, line_of(path, lines))
    return UsageError(f"{TEAM_FILE}: {found}" if path in lines else str(found))


def _setting_lines(root: Path) -> dict[str, int]:
    from liza.domain.yaml_parse import BadYaml, parse_yaml  # noqa: PLC0415 - only for what is refused

    try:
        lines = parse_yaml((root / TEAM_FILE).read_text()).lines
    except (OSError, BadYaml, UnicodeDecodeError):
        return {}  # it is on the board, and need not be in the file
    return {".".join(map(str, place)): line for place, line in lines.items()}
