"""What `liza.yaml` says anew: only that is put on the board, so that a live edit there is not undone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.changes import SUPERVISOR, Change
from liza.errors import DiskTrouble
from liza.project import HOME, TEAM_FILE, checked, configured, remember, remembered, team_settings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.config import Config
    from liza.model import State
    from liza.project import Fit

Place = tuple[str, ...]
_ABSENT: Final = object()


class Applied(NamedTuple):
    """One setting that came from the team's file."""

    key: str
    before: Any  # None: the default
    after: Any

    def __str__(self) -> str:
        return f"{self.key} {_shown(self.before)} -> {_shown(self.after)}"


def apply_team_file(board: Board, root: Path, fit: Fit = lambda *_: None) -> tuple[Applied, ...]:
    """Put on *board* what changed in `liza.yaml` of *root* since it was applied last; return what differs.

    *fit* raises what keeps a run from following the workflow; then nothing is changed.
    """
    home, team = root / HOME, team_settings(root)
    base = remembered(home)
    if base == team:
        return ()
    done: list[Applied] = []
    if base is not None:  # else nobody knows what was applied, and a live edit must not be undone
        changed = sorted(changes(base, team))
        effective = configured(root, {})[0].model_dump(mode="json")

        def make(state: State) -> State:
            config = checked(root, with_paths(state.config, changed, effective))
            fit(config, root)
            done[:] = _differences(state.config, config, changed)
            return state if not done else _with(state, config)

        what = f"apply {TEAM_FILE}: {', '.join('.'.join(path) for path in changed)}"
        board.update(Change(SUPERVISOR.id, what, make))
    try:
        remember(home, team)
    except OSError as error:
        raise DiskTrouble(f"remember what {TEAM_FILE} said", error) from error
    return tuple(done)


def changes(base: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[Place]:
    """Yield the path of every setting that differs between two readings of the file."""
    for key in {*base, *now}:
        before, after = base.get(key, _ABSENT), now.get(key, _ABSENT)
        if before == after:
            continue
        inner = [value if isinstance(value, dict) else {} for value in (before, after)]
        if any(inner) and all(isinstance(value, dict) or value is _ABSENT for value in (before, after)):
            yield from ((key, *rest) for rest in changes(*inner))
        else:
            yield (key,)


def with_paths(config: Config, paths: Sequence[Place], source: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of *config* with those at *paths* as *source* has them, or gone with them there."""
    settings: dict[str, Any] = config.model_dump(mode="json")
    for path in paths:
        below, value = settings, _at(source, path)
        for name in path[:-1]:
            below = below.setdefault(name, {})
        if value is _ABSENT:
            below.pop(path[-1], None)
        else:
            below[path[-1]] = value
    return settings


def _at(settings: Mapping[str, Any], path: Place) -> Any:  # noqa: ANN401 - JSON
    found: Any = settings
    for name in path:
        found = found.get(name, _ABSENT) if isinstance(found, dict) else _ABSENT
    return found


def _differences(old: Config, new: Config, paths: Sequence[Place]) -> list[Applied]:
    before, after = old.model_dump(mode="json"), new.model_dump(mode="json")
    pairs = ((path, _at(before, path), _at(after, path)) for path in paths)
    return [
        Applied(".".join(path), *(None if value is _ABSENT else value for value in (one, other)))
        for path, one, other in pairs
        if one != other
    ]


def _with(state: State, config: Config) -> State:
    """Return the board with *config*; a goal whose spec came from the settings has the new one, too."""
    follows = state.goal.spec_ref == state.config.spec != config.spec
    return state.but(config=config, **({"goal": state.goal.but(spec_ref=config.spec)} if follows else {}))


def _shown(value: object) -> str:
    return "unset" if value is None else value if isinstance(value, str) else json.dumps(value)
