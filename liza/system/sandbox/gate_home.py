"""The home that a gate's command has: a new one each time, with what the project's setup put into it.

Programs look into a home before they begin: `usercustomize.py`, `.npmrc`, `.cargo/config.toml`. What the
tests of one attempt leave there would decide about the next, so nothing is left. Without a sandbox the home
has your tools and their downloads as links, and your settings as copies that are gone after the run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.errors import DiskTrouble
from liza.system.no_follow import remove
from liza.system.sandbox.bubblewrap import TOOLCHAINS

if TYPE_CHECKING:
    from collections.abc import Mapping

_USER_SITE: Final = ".local/lib"  # its entries are links one by one, so that none can be added to yours
# What programs downloaded: without it, each command would download it again.
DOWNLOADS: Final = (
    *(
        ".cache",
        ".npm/_cacache",
        ".cargo/registry",
        ".cargo/git",
        "go/pkg",
        ".m2/repository",
        ".gradle/caches",
    ),
    *(".gradle/wrapper", ".nuget/packages", ".ivy2/cache", ".pub-cache", ".gem", ".rbenv", ".composer/cache"),
)
# What tells programs where packages come from, and who you are.
SETTINGS: Final = (
    *(".gitconfig", ".config/git/config", ".npmrc", ".yarnrc", ".yarnrc.yml", ".cargo/config", ".netrc"),
    *(".cargo/config.toml", ".m2/settings.xml", ".gradle/gradle.properties", ".config/pip/pip.conf"),
    *(".pip/pip.conf", ".config/uv/uv.toml", ".bundle/config", ".gemrc", ".condarc"),
)
# Variables that would lead out of the home again.
HOME_VARIABLES: Final = ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "CARGO_HOME")


class GateHome:
    """The home of the commands of one worker's gates, in *folder*."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "home"
        self._kept = folder / "kept"

    def begin(self, *, inherits: bool) -> None:
        """Make it new: as the project's setup left it if it *inherits*, else empty."""
        remove(self.path)
        if inherits and self._kept.is_dir():
            _copy(self._kept, self.path)
        else:
            remove(self._kept)
            self.path.mkdir(parents=True)

    def keep(self) -> None:
        """Remember it as what the project's setup left."""
        remove(self._kept)
        self.path.rename(self._kept)

    def end(self) -> None:
        remove(self.path)

    def populate(self, user: Path) -> None:
        """Give it what a program needs of the home of the *user*, who runs it without a sandbox."""
        for name in (*TOOLCHAINS, *DOWNLOADS):
            if name != _USER_SITE and (user / name).is_dir():
                _link(self.path / name, user / name)
        for site in user.glob(f"{_USER_SITE}/python*/site-packages"):
            for entry in site.iterdir():
                _link(self.path / entry.relative_to(user), entry)
        for name in SETTINGS:
            if (user / name).is_file() and not os.path.lexists(self.path / name):
                (self.path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(user / name, self.path / name)

    def clear_settings(self) -> None:
        """Remove the copies of the user's settings, which may hold keys."""
        for name in SETTINGS:
            if not (self.path / name).is_dir():
                (self.path / name).unlink(missing_ok=True)


def environment_with_home(home: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return *environment* with *home* as the home."""
    return {name: value for name, value in environment.items() if name not in HOME_VARIABLES} | {
        "HOME": str(home)
    }


def _link(link: Path, target: Path) -> None:
    if not os.path.lexists(link):
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)


def _copy(source: Path, target: Path) -> None:
    """Copy a directory with all that it holds, sharing blocks where the file system can."""
    words = ("cp", "-a", "--reflink=auto", "--", str(source), str(target))
    done = subprocess.run(words, capture_output=True, check=False)
    if done.returncode != 0:
        error = OSError(done.stderr.decode(errors="replace").strip()[-200:])
        raise DiskTrouble(f"copy {source}", error)
