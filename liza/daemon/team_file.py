"""What `liza.yaml` says anew: only that is put on the board, so that a live edit there is not undone."""

from __future__ import annotations

import json
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.daemon.project import (
    HOME,
    TEAM_FILE,
    applied_settings,
    effective_config,
    record_applied,
    team_settings,
    valid_config,
)
from liza.domain.changes import SUPERVISOR, Change
from liza.domain.yaml_parse import BadYaml, parse_yaml
from liza.errors import DiskTrouble
from liza.repo.repository import BRANCHES, Repository, blob_contents
from liza.repo.verify import blobs_by_agents

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.daemon.project import Fit
    from liza.domain.config import Config
    from liza.domain.model import State

ACCEPT: Final = "--accept-settings"
KeyPath = tuple[str, ...]
_ABSENT: Final = object()


class SettingChange(NamedTuple):
    """One setting that came from the team's file."""

    key: str
    before: Any  # None: the default
    after: Any

    def __str__(self) -> str:
        return f"{self.key} {_value_text(self.before)} -> {_value_text(self.after)}"


class TeamFileResult(NamedTuple):
    """The changes of the team's file: those applied to the board, and those that wait for consent."""

    done: tuple[SettingChange, ...] = ()
    held: tuple[SettingChange, ...] = ()

    def sentences(self) -> Iterator[str]:
        """Yield what to tell people of settings that agents changed."""
        for one in self.held:
            yield (
                f"not applied from {TEAM_FILE}, because an agent changed it: {one}; "
                f"look at it, then `liza run {ACCEPT}` applies it"
            )


def apply_team_file(
    board: Board, root: Path, *, accept: bool = False, fit: Fit = lambda *_: None
) -> TeamFileResult:
    """Put on *board* what changed in `liza.yaml` of *root* since it was applied last.

    What came in by the merge of a task is code that an agent wrote: it waits until a person says *accept*.
    *fit* raises what keeps a run from following the workflow; then nothing is changed.
    """
    home, team = root / HOME, team_settings(root)
    base = applied_settings(home)
    if base == team:
        return TeamFileResult()
    done: list[SettingChange] = []
    held: list[KeyPath] = []
    now = team
    if base is not None:  # else nobody knows what was applied, and a live edit must not be undone
        changed = sorted(changed_paths(base, team))
        held = [] if accept else _changed_by_agents(board.read(), root, changed, team)
        changed = [path for path in changed if path not in held]
        team = with_values(team, held, base)
        effective = effective_config(root, {})[0].model_dump(
            mode="json"
        )  # only what is not held is taken from it

        def make(state: State) -> State:
            config = valid_config(root, with_paths(state.config, changed, effective))
            fit(config, root)
            done[:] = _differences(state.config, config, changed)
            return state if not done else _with_config(state, config)

        what = f"apply {TEAM_FILE}: {', '.join('.'.join(path) for path in changed)}"
        if changed:
            board.update(Change(SUPERVISOR.id, what, make))
    try:
        record_applied(home, team)
    except OSError as error:
        raise DiskTrouble(f"remember what {TEAM_FILE} said", error) from error
    waiting = [
        SettingChange(".".join(path), _value_or_none(base or {}, path), _value_or_none(now, path))
        for path in held
    ]
    return TeamFileResult(tuple(done), tuple(waiting))


def _value_or_none(settings: Mapping[str, Any], path: KeyPath) -> object:
    found = _value_at(settings, path)
    return None if found is _ABSENT else found


def _changed_by_agents(
    state: State, root: Path, changed: Sequence[KeyPath], team: Mapping[str, Any]
) -> list[KeyPath]:
    """Return those of *changed* whose new value came by the merge of a task."""
    base = state.integration.base
    if base is None or not changed:
        return []
    repository, ref = Repository.around(root), BRANCHES + state.config.integration_branch
    yours = [one.commit for one in state.integration.yours]
    blobs = blobs_by_agents(repository, TEAM_FILE, base=base, ref=ref, yours=yours)
    versions = [_parse_version(data) for data in blob_contents(repository, blobs).values()]
    return [
        path for path in changed if any(_value_at(one, path) == _value_at(team, path) for one in versions)
    ]


def _parse_version(data: bytes) -> dict[str, Any]:
    try:
        found = parse_yaml(data.decode(errors="replace")).data
    except BadYaml:
        return {}
    return dict(found)


def with_values(
    settings: Mapping[str, Any], paths: Sequence[KeyPath], source: Mapping[str, Any]
) -> dict[str, Any]:
    """Return *settings* with those at *paths* as *source* has them, or gone where they are not there."""
    copied: dict[str, Any] = deepcopy(dict(settings))
    for path in paths:
        below, value = copied, _value_at(source, path)
        for name in path[:-1]:
            below = below.setdefault(name, {})
        if value is _ABSENT:
            below.pop(path[-1], None)
        else:
            below[path[-1]] = value
    return copied


def changed_paths(base: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[KeyPath]:
    """Yield the path of every setting that differs between two readings of the file."""
    for key in {*base, *now}:
        before, after = base.get(key, _ABSENT), now.get(key, _ABSENT)
        if before == after:
            continue
        inner = [value if isinstance(value, dict) else {} for value in (before, after)]
        if any(inner) and all(isinstance(value, dict) or value is _ABSENT for value in (before, after)):
            yield from ((key, *rest) for rest in changed_paths(*inner))
        else:
            yield (key,)


def with_paths(config: Config, paths: Sequence[KeyPath], source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of *config* with those at *paths* as *source* has them, or gone with them there."""
    return with_values(config.model_dump(mode="json"), paths, source)


def _value_at(settings: Mapping[str, Any], path: KeyPath) -> Any:  # noqa: ANN401 - JSON
    found: Any = settings
    for name in path:
        found = found.get(name, _ABSENT) if isinstance(found, dict) else _ABSENT
    return found


def _differences(old: Config, new: Config, paths: Sequence[KeyPath]) -> list[SettingChange]:
    before, after = old.model_dump(mode="json"), new.model_dump(mode="json")
    pairs = ((path, _value_at(before, path), _value_at(after, path)) for path in paths)
    return [
        SettingChange(".".join(path), *(None if value is _ABSENT else value for value in (one, other)))
        for path, one, other in pairs
        if one != other
    ]


def _with_config(state: State, config: Config) -> State:
    """Return the board with *config*; a goal whose spec came from the settings has the new one, too."""
    follows = state.goal.spec_ref == state.config.spec != config.spec
    return state.replace(
        config=config, **({"goal": state.goal.replace(spec_ref=config.spec)} if follows else {})
    )


def _value_text(value: object) -> str:
    return "unset" if value is None else value if isinstance(value, str) else json.dumps(value)
