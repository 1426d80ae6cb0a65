"""Where a board lives, and how a new one comes to be in somebody's repository."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import ValidationError

from liza.board.location import HOME as HOME  # noqa: PLC0414 - it is part of a project
from liza.board.location import TEAM_FILE as TEAM_FILE  # noqa: PLC0414 - as above
from liza.board.location import home_from as home_from  # noqa: PLC0414 - as above
from liza.board.location import note_address, without_password
from liza.board.protocol import create_board_at, open_board
from liza.domain.config import Config, PlanConfig
from liza.domain.experiment_config import ExperimentConfig
from liza.domain.model import Adopted, Goal, State, Status
from liza.domain.problems import violations_from
from liza.domain.record import utc_now
from liza.errors import UsageError
from liza.repo.command import exclude, top_level
from liza.repo.repository import BRANCHES, Repository
from liza.system.files import overwrite

if TYPE_CHECKING:
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.repo.verify import TrustedFacts

IGNORED: Final = ("/.liza/", "/.worktrees/")
APPLIED: Final = "applied.json"  # in `.liza/`: what the team's file said when it was applied last


Fit = Callable[[Config, "Path"], object]


class Choice(NamedTuple):
    """One thing that `liza init` settled, and why."""

    what: str
    value: str
    why: str


def integration_ref_from(start: Path) -> str:
    """Return the integration branch: the board's, or where there is none, the team's.

    By its full name; where hosts share a remote, it is the commit that the branch is at there.
    """
    root = top_level(start)
    there = (root / HOME).is_dir()
    config = open_board(home_from(root)).read().config if there else effective_config(root, {})[0]
    if config.remote is None:
        return BRANCHES + config.integration_branch
    from liza.daemon.travel import shared_remote  # noqa: PLC0415 - who begins a project fetches nothing

    remote = shared_remote(Repository.around(root), config)
    tip = remote.fetch() if remote else None
    return tip or BRANCHES + config.integration_branch


def known_merges(start: Path, key_file: Path | None = None) -> TrustedFacts:
    """Return what the board around *start*, if there is one, and its key tell of merges."""
    from liza.repo.merge import KEY_FILE, read_key  # noqa: PLC0415 - who begins a project verifies nothing
    from liza.repo.verify import TrustedFacts  # noqa: PLC0415 - as above

    root = top_level(start)
    key = read_key(start / key_file if key_file else root / HOME / KEY_FILE)
    if key_file and key is None:
        raise UsageError(f"{key_file} is no key; give the file `.liza/key` of the board that merged")
    if not (root / HOME).is_dir():
        return TrustedFacts(key)
    state = open_board(home_from(root)).read()
    return TrustedFacts(
        key,
        has_board=True,
        base=state.integration.base,
        merges={task.merge_commit: task.id for task in state.tasks.values() if task.merge_commit},
        archived=frozenset(name for name, status in state.archived.items() if status is Status.MERGED),
        yours=frozenset(one.commit for one in state.integration.yours),
    )


def settings_around(start: Path) -> Config:
    """Return the settings of the board around *start*, or where there is none, the team's."""
    try:
        return open_board(home_from(start)).read().config
    except UsageError:
        return Config.model_validate(team_settings(top_level(start)))


def create_board(
    start: Path,
    goal: str,
    *,
    spec: str | None,
    workflow: str | None,
    issues: str | None = None,
    fit: Fit = lambda *_: None,
) -> tuple[Board, list[Choice]]:
    """Make the board of the repository around *start*; return it with what was chosen.

    *fit* raises what keeps a run from following the workflow.
    """
    root = top_level(start)
    if not goal.strip():
        raise UsageError("the goal is empty; say in a sentence what to build")
    if spec is not None:
        spec = _relative_path(root, start / spec)
    config, choices = effective_config(root, {"spec": spec, "workflow": workflow, "issues": issues})
    _require_runnable(root, config)
    Repository.around(root).require_room(config.integration_branch)
    fit(config, root)
    now = utc_now()
    first = Goal(description=goal, spec_ref=config.spec, created=now)
    state = State(revision=1, goal=first, config=config, workflow=_workflow_text(config, root))
    if address := note_address(root / HOME):
        choices.append(Choice("board", without_password(address), ""))
    board = create_board_at(root / HOME, state)
    record_applied(root / HOME, team_settings(root))
    exclude(root, IGNORED)
    return board, [Choice("goal", goal.strip(), ""), *choices]


NO_GOAL: Final = "there is no goal; say in a sentence what to build, or name issues with --issues"


def goal_on_page(start: Path, workflow: str | None) -> str:
    """Return the goal that a person wrote into the page of the workflow; raise where there is none."""
    from liza.daemon.cycle_page import read_page  # noqa: PLC0415 - who says the goal need not wait
    from liza.daemon.workflow_in_use import workflow_of  # noqa: PLC0415 - as above
    from liza.domain.cycle_file import goal_in  # noqa: PLC0415 - as above

    root = top_level(start)
    page = workflow_of(effective_config(root, {"workflow": workflow})[0], root).page
    if page is None:
        raise UsageError(NO_GOAL)
    written = read_page(root / page.path)
    goal = goal_in(written) if written is not None else None
    if goal is None:
        where = "is not there" if written is None else "says none"
        raise UsageError(
            f"there is no goal: {page.path} {where}; write it below `## Goal` in one to three sentences, "
            "or give it to `liza init`"
        )
    return goal


def _workflow_text(config: Config, root: Path) -> Adopted:
    if "/" not in config.workflow and not config.workflow.endswith(".yaml"):
        return Adopted()
    from liza.daemon.workflow_in_use import workflow_to_adopt  # noqa: PLC0415 - who names no file of their own need not wait

    return workflow_to_adopt(config, root)


def _require_source(root: Path, config: Config) -> None:
    """Refuse ideas, issues and a forge that cannot be used, or that the workflow does not use."""
    is_default = config.workflow == Config.model_fields["workflow"].default
    is_bare = config.experiment == ExperimentConfig() and config.plan == PlanConfig()
    if is_default and is_bare and not (config.forge or config.issues or config.agents.overrides):
        return
    from liza.daemon.issue_tasks import require_forge  # noqa: PLC0415 - as above
    from liza.daemon.sources import configured_ideas  # noqa: PLC0415 - as above
    from liza.daemon.workflow_in_use import workflow_of  # noqa: PLC0415 - who names no workflow need not wait
    from liza.workflow.document import IDEA_SOURCE  # noqa: PLC0415 - as above

    flow = workflow_of(config, root)
    tasks = flow.tasks
    if tasks.source == IDEA_SOURCE:
        configured_ideas(config, root, tasks)
        if config.experiment.converge and flow.publishes:
            # It lets work pass against the word of its reviewer.
            raise UsageError(
                f"experiment.converge: the workflow {config.workflow} merges; leave `experiment.converge` out"
            )
    elif config.experiment != ExperimentConfig():
        raise UsageError(f"experiment: the workflow {config.workflow} tries no ideas; leave `experiment` out")
    require_forge(config, root, tasks.source)


def _require_runnable(root: Path, config: Config) -> None:
    try:
        _require_settings_that_act(root, config)
    except UsageError as error:
        from liza.daemon.workflow_in_use import locate_setting  # noqa: PLC0415 - only for what is refused

        raise UsageError(locate_setting(root, str(error))) from error


def _require_settings_that_act(root: Path, config: Config) -> None:
    _require_source(root, config)
    if config.worktree.copied:
        from liza.repo.pool import require_copies  # noqa: PLC0415 - few projects have such files

        require_copies(Repository.around(root), config.worktree.copied)
    _require_agents(root, config)
    if config.notify.channels:
        from liza.daemon.notify import require_channels  # noqa: PLC0415 - few projects have one

        require_channels(config.notify)
    if config.spec is not None and not (root / config.spec).is_file():
        raise UsageError(
            f"the spec {config.spec!r} of {TEAM_FILE} is not a file of this repository; write it, or leave "
            "`spec` out"
        )


def _require_agents(root: Path, config: Config) -> None:
    """Refuse a backend that nobody has, a field that it does not use, and a command whose file is missing."""
    from liza.agents.command import missing_file  # noqa: PLC0415 - only where settings are applied
    from liza.agents.select import BACKENDS, settings_problem  # noqa: PLC0415 - as above

    agents = config.agents
    named = {"agents.default": agents.default, "agents.fallback": agents.fallback}
    named |= {f"agents.overrides.{key}": choice for key, choice in agents.overrides.items()}
    for key, choice in named.items():
        if choice and choice.backend and choice.backend not in BACKENDS:
            raise UsageError(f"{key}: {BACKENDS.unknown(choice.backend)}")
        if choice and choice.backend != "replay" and (word := missing_file(choice.command or (), root)):
            raise UsageError(
                f"{key}.command names {word!r}, and there is no such file in {root}; "
                "a relative path is one in the repository: put it there, or give the whole path"
            )
    if problem := settings_problem(agents):
        raise UsageError(problem)


def valid_config(root: Path, settings: dict[str, Any]) -> Config:
    """Return *settings* as those of a run in *root*; raise what is wrong with them."""
    config = _parse_config(root, settings)
    _require_runnable(root, config)
    return config


def record_applied(home: Path, team: dict[str, Any]) -> None:
    """Note in one step that all of *team* is on the board."""
    overwrite(home / APPLIED, json.dumps(team))


def applied_settings(home: Path) -> dict[str, Any] | None:
    """Return the settings of the team's file as last applied; None where that is not known."""
    try:
        found = json.loads((home / APPLIED).read_text())
    except (FileNotFoundError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def spec_path(start: Path, spec: str) -> str:
    """Return the path of a spec as the repository around *start* has it; raise where it is no file there.

    A part of the file may be named, as in `docs/x.md#part`.
    """
    file = re.split(r"#|:\d|\s", spec.strip(), maxsplit=1)[0]
    return _relative_path(top_level(start), start / file) + spec.strip()[len(file) :]


def _relative_path(root: Path, path: Path) -> str:
    if not path.is_file():
        raise UsageError(f"the spec {str(path)!r} is not a file; give a path that exists")
    try:
        return str(path.resolve().relative_to(root.resolve()))
    except ValueError:
        raise UsageError(f"the spec {str(path)!r} is outside the repository {root}; move it inside") from None


def effective_config(root: Path, flags: dict[str, str | None]) -> tuple[Config, list[Choice]]:
    """Return the effective settings: what was found, under the team's file, under the flags."""
    found = [detect(root) for detect in _DETECTORS]
    settings: dict[str, Any] = {}
    for section, key, value, _ in filter(None, found):
        settings.setdefault(section, {})[key] = value
    team = team_settings(root)
    if "default" in team.get("agents", {}):  # half of one agent and half of another would be neither
        settings.pop("agents", None)
    _merge_settings(settings, team)
    given = {key: value for key, value in flags.items() if value is not None}
    _require_flags(given)
    _merge_settings(settings, given)
    config = _parse_config(root, settings)
    return config, _choices(config, team, [detection for detection in found if detection])


def team_settings(root: Path) -> dict[str, Any]:
    """Return what the committed `liza.yaml` says, checked; empty where there is none."""
    from liza.domain.yaml_parse import BadYaml, parse_yaml  # noqa: PLC0415 - YAML is needed only where there is such a file

    path = root / TEAM_FILE
    if not path.exists():
        return {}
    try:
        parsed = parse_yaml(path.read_text())
    except (BadYaml, UnicodeDecodeError) as error:
        raise UsageError(f"{TEAM_FILE}: {error}; mend it") from error
    settings: dict[str, Any] = parsed.data
    if isinstance(settings, dict):
        settings.pop("board", None)  # where the board is cannot be one of its settings
    lines = {".".join(map(str, place)): line for place, line in parsed.lines.items()}
    try:
        Config.model_validate(settings)
    except ValidationError as error:
        problems = "; ".join(map(str, violations_from(error, Config, "", lines)))
        raise UsageError(f"{TEAM_FILE}: {problems}") from error
    return settings


def _require_flags(flags: dict[str, str]) -> None:
    """Refuse options that are no settings by themselves, each by the name that it has on the command line."""
    try:
        Config.model_validate(flags)
    except ValidationError as error:
        raise UsageError("; ".join(f"--{one}" for one in violations_from(error, Config, "", {}))) from error


def _parse_config(root: Path, settings: dict[str, Any]) -> Config:
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        problems = "; ".join(map(str, violations_from(error, Config, "", {})))
        raise UsageError(f"the settings of {root}: {problems}") from error


def _merge_settings(below: dict[str, Any], above: dict[str, Any]) -> None:
    for key, value in above.items():
        if isinstance(value, dict) and isinstance(below.get(key), dict):
            _merge_settings(below[key], value)
        else:
            below[key] = value


Detection = tuple[str, str, Any, str]  # section, key, value, why


def _detect_test_command(root: Path) -> Detection | None:
    for name, holds, command in _TESTS:
        path = root / name
        if path.exists() and holds(path):
            return "gates", "test", command, f"{name} is there"
    return None


def _has_test_target(makefile: Path) -> bool:
    return any(line.startswith("test:") for line in makefile.read_text(errors="replace").splitlines())


def _has_test_script(package: Path) -> bool:
    try:
        return "test" in json.loads(package.read_text()).get("scripts", {})
    except (ValueError, AttributeError):
        return False


def _mentions_pytest(path: Path) -> bool:
    return "pytest" in path.read_text(errors="replace")


def _always(_: Path) -> bool:
    return True


_TESTS: Final[tuple[tuple[str, Callable[[Path], bool], str], ...]] = (
    ("Makefile", _has_test_target, "make test"),
    ("pytest.ini", _always, "python3 -m pytest -q"),
    ("pyproject.toml", _mentions_pytest, "python3 -m pytest -q"),
    ("conftest.py", _always, "python3 -m pytest -q"),
    ("package.json", _has_test_script, "npm test"),
    ("Cargo.toml", _always, "cargo test"),
    ("go.mod", _always, "go test ./..."),
)


def _detect_agent(_: Path) -> Detection | None:
    from liza.agents.detect import available_agents, passed_over  # noqa: PLC0415 - only a new board needs to know

    best = next(iter(available_agents()), None)
    others = passed_over()
    if best is None:
        return ("agents", "default", {}, "; ".join(others)) if others else None
    return "agents", "default", best.choice.to_json(), "; ".join([best.why, *others])


_DETECTORS: Final = (_detect_test_command, _detect_agent)
_NO_AGENT: Final = (
    "no coding program is on the PATH and no model's key in the environment; "
    f"install one, or put a program of yours into agents.default.command of {TEAM_FILE}"
)


def _choices(config: Config, team: dict[str, Any], found: list[Detection]) -> list[Choice]:
    why = {(section, key): reason for section, key, _, reason in found if key not in team.get(section, {})}
    said = f"in {TEAM_FILE}" if team else "none was found"
    agent = config.agents.default
    backend = agent.backend or ("command" if agent.command else None)
    return [
        Choice("spec", config.spec or "none", "" if config.spec else "give one with --spec"),
        Choice("workflow", config.workflow, ""),
        *([Choice("issues", config.issues, f"of {' '.join(config.forge)}")] if config.issues else []),
        Choice("tests", config.gates.test or "none", why.get(("gates", "test"), said)),
        Choice("agent", backend or "none", why.get(("agents", "default"), said if backend else _NO_AGENT)),
    ]
