"""A home of its own for a program, so that neither the user's hooks nor what an agent planted get in.

It is emptied before every run that does not go on with a session. A login is a copy, and is removed after
the run: what the program does to it never reaches the user's file. The program may put a link wherever it
likes, so nothing here is read, written or removed through one.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Final

from liza.agents.clis.spec import PromptInput
from liza.system.files import make_directory, read_file, remove, remove_file, write_file

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from liza.agents.clis.spec import Cli, PermissionFlags, SetupVariant

SHORTEST_SECRET: Final = 16  # characters of a value in a login file that is worth masking
LONGEST_REPORT: Final = 64 << 20  # bytes of a program's own report that are read
# Where tools look for what they are made of, if not told otherwise: a new HOME must not hide it.
TOOLCHAINS: Final = {
    "CARGO_HOME": ".cargo",
    "RUSTUP_HOME": ".rustup",
    "PYENV_ROOT": ".pyenv",
    "RBENV_ROOT": ".rbenv",
    "NVM_DIR": ".nvm",
    "GOPATH": "go",
    "GIT_CONFIG_GLOBAL": ".gitconfig",  # who a commit is by
}
XDG_FOLDERS: Final = {
    "XDG_CACHE_HOME": ".cache",
    "XDG_CONFIG_HOME": ".config",
    "XDG_DATA_HOME": ".local/share",
    "XDG_STATE_HOME": ".local/state",
}


class PrivateHome:
    """One program's home for one run; *keep* leaves what is in it."""

    def __init__(self, path: Path, cli: Cli, user: Mapping[str, str], *, keep: bool) -> None:
        self.path = path
        self.secrets: list[str] = []
        self._cli = cli
        self._user = user
        if not keep:
            remove(path)
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)

    def populate(self, way: PermissionFlags) -> dict[str, str]:
        """Put into it what the program needs, and return the environment that leads there."""
        setting = setup_for(self._cli, self._user)
        for name, text in _merge_files(setting.files if setting else {}, way.files).items():
            self._write(name, text)
        if not any(self._user.get(key) for key in self._cli.keys):
            self._copy_logins()
        for value in self._cli.environment.values():
            if value.startswith("$home/"):
                make_directory(self.path, value.removeprefix("$home/"))
        return {"HOME": str(self.path), **_toolchain_variables(self._user), **_xdg_variables(self.path)}

    def _copy_logins(self) -> None:
        for name in self._cli.credentials:
            with suppress(OSError):
                text = (_user_home(self._user) / name).read_text(encoding="utf-8")
                self._write(name, text)
                self.secrets += _login_secrets(text)

    def remove_logins(self) -> None:
        """Remove what logs the program in."""
        for name in self._cli.credentials:
            remove_file(self.path, name)

    def prompt(self, text: str) -> None:
        if self._cli.feed is PromptInput.STDIN:
            return
        self._write(
            prompt_path(self.path, self._cli).name,
            json.dumps({"run": {"task": text}}) if self._cli.feed is PromptInput.YAML else text,
        )

    def report(self) -> str:
        """Return what the program wrote into the file that its row names."""
        if self._cli.report is None:
            return ""
        try:
            return read_file(self.path, self._cli.report, LONGEST_REPORT).decode(errors="replace")
        except OSError:
            return ""

    def _write(self, name: str, text: str) -> None:
        write_file(self.path, name, text.encode(errors="replace"), mode=0o600)


def prompt_path(home: Path, cli: Cli) -> Path:
    """Return the path of the prompt file; its suffix is the format."""
    return home / f"prompt.{cli.feed}"


def setup_for(cli: Cli, user: Mapping[str, str]) -> SetupVariant | None:
    """Return the first setting whose variable the user has, or that needs none."""
    return next((one for one in cli.settings if one.key is None or user.get(one.key)), None)


def substitute(words: Mapping[str, str], known: Mapping[str, str]) -> dict[str, str]:
    return {name: Template(value).safe_substitute(known) for name, value in words.items()}


def _merge_files(below: Mapping[str, str], above: Mapping[str, str]) -> dict[str, str]:
    files = dict(below)
    for name, text in above.items():
        files[name] = json.dumps(_merge_json(json.loads(files.get(name, "{}")), json.loads(text)))
    return files


def _merge_json(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    both = {
        name: _merge_json(below[name], above[name])
        for name in below.keys() & above.keys()
        if isinstance(above[name], dict)
    }
    return {**below, **above, **both}


def _user_home(user: Mapping[str, str]) -> Path:
    return Path(user.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 - of the same user, where HOME is not set


def _toolchain_variables(user: Mapping[str, str]) -> dict[str, str]:
    places = {name: _user_home(user) / place for name, place in TOOLCHAINS.items()}
    return {
        name: user.get(name) or str(place)
        for name, place in places.items()
        if user.get(name) or place.exists()
    }


def _xdg_variables(home: Path) -> dict[str, str]:
    return {name: str(home / place) for name, place in XDG_FOLDERS.items()}


def _login_secrets(text: str) -> list[str]:
    """Return the long strings in a login file, which are its tokens."""
    try:
        return [value for value in _leaves(json.loads(text)) if len(value) >= SHORTEST_SECRET]
    except ValueError:
        return [word.strip("\"'") for word in text.split() if len(word) >= SHORTEST_SECRET]


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _leaves(one)
    elif isinstance(value, list):
        for one in value:
            yield from _leaves(one)
