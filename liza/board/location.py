"""Where the board of a project is found: in its `.liza`, or at the address that is noted there."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from liza.domain.version import VERSION
from liza.errors import DiskTrouble, InvalidBoard, UsageError
from liza.system.files import overwrite

if TYPE_CHECKING:
    from pathlib import Path

HOME: Final = ".liza"
JOURNAL: Final = "journal.jsonl"
TEAM_FILE: Final = "liza.yaml"
ADDRESS: Final = (
    "address"  # in the home: where its board is, if it is not in its files; never with a password
)
IGNORED: Final = ".gitignore"  # in the home, for all of it
VARIABLE: Final = "LIZA_BOARD"  # the address, which may hold a password
LONGEST_HEAD: Final = 64  # bytes of the journal that say which version it is of
_WANTED: Final = re.compile(r"""^board:[ \t]*(['"]?)(\S*?)\1[ \t]*(?:\s#.*)?$""", re.MULTILINE)
_PASSWORD: Final = re.compile(r"(?<=://)([^:/@?#]*):[^/?#]*@|(?<=[?&])(?:ssl)?password=[^&#]*&?")
_CREDENTIALS: Final = re.compile(r"[?&](?:passfile|sslkey|servicefile)=([^&#]*)")
_VERSION: Final = re.compile(rb'\{"revision":1,(?:"version":(\d+),)?"at":')


def home_from(start: Path) -> Path:
    """Return the `.liza` directory of the project that *start* is in."""
    for directory in (start, *start.parents):
        home = directory / HOME
        if home.is_symlink():
            raise InvalidBoard(f"{home} is a link to {home.readlink()}; put the directory itself there")
        if home.is_dir():
            require_version(home)
            note_address(home)
            return home
        if (directory / ".git").exists() and note_address(home):
            return home
    raise UsageError(f'there is no board in {start} or above it; `liza init "what to build"` makes one')


def without_password(address: str) -> str:
    """Return *address* as it may be shown and kept."""
    return _PASSWORD.sub(lambda found: f"{found[1]}@" if found[1] is not None else "", address)


def address_in(home: Path) -> str | None:
    """Return where the board of *home* is; None where its own files are the board."""
    try:
        noted = (home / ADDRESS).read_text().strip()
    except OSError:
        return None
    said = os.environ.get(VARIABLE, "")
    return said if without_password(said) == noted else noted


def credential_files(home: Path) -> tuple[str, ...]:
    """Return the files by which the address of the board of *home* lets its holder in."""
    named = _CREDENTIALS.findall(address_in(home) or "")
    if not named:
        return ()
    from urllib.parse import unquote  # noqa: PLC0415 - most addresses name none

    return tuple(map(unquote, named))


def note_address(home: Path) -> str | None:
    """Note in *home* where the environment, or the team's file beside it, wants the board to be.

    Return the address; raise where the home has a board already, and it is another.
    """
    wanted, source = _wanted_address(home.parent)
    if wanted is None:
        return None
    shown, noted = without_password(wanted), address_in(home)
    is_another = noted is not None and without_password(noted) != shown
    if (noted is None and not (home / JOURNAL).exists()) or (is_another and _is_unused(home)):
        _write_address(home, shown)
    elif noted is None:
        raise UsageError(
            f"{source} names the board {shown}, and there is one in {home}; `liza board copy {home} ADDRESS` "
            f"copies it there, then move {home / JOURNAL} away; or take the address out of {source}"
        )
    elif is_another:
        raise UsageError(
            f"{source} names the board {shown}, and this checkout works on {without_password(noted)}; "
            f"make them the same, or remove {home / ADDRESS}"
        )
    return wanted


def _wanted_address(root: Path) -> tuple[str | None, str]:
    if said := os.environ.get(VARIABLE):
        return _checked_address(said, VARIABLE), VARIABLE
    try:
        text = (root / TEAM_FILE).read_text()
    except (OSError, UnicodeDecodeError):
        return None, TEAM_FILE  # whoever reads the settings says what is wrong with it
    found = _WANTED.search(text)
    if found is None:
        return None, TEAM_FILE
    if without_password(found[2]) != found[2]:
        raise UsageError(
            f"the address of the board in {TEAM_FILE} holds a password, which agents could read; "
            f"take it out, and put it into ~/.pgpass, PGPASSWORD or {VARIABLE}"
        )
    return _checked_address(found[2], TEAM_FILE), TEAM_FILE


def _checked_address(said: str, source: str) -> str:
    if not re.match(r"[a-z][a-z0-9+.-]*://.", said):
        raise UsageError(
            f"the board {without_password(said)!r} of {source} is no address; "
            "give one as postgresql://host/database, or take it out for a board in .liza"
        )
    return said


def _is_unused(home: Path) -> bool:
    """Return whether nothing was done with the board that *home* names: it may have been mistyped."""
    return {entry.name for entry in home.iterdir()} <= {ADDRESS, IGNORED}


def _write_address(home: Path, address: str) -> None:
    try:
        home.mkdir(exist_ok=True)
        overwrite(home / IGNORED, "*\n")
        overwrite(home / ADDRESS, f"{address}\n")
    except OSError as error:
        raise DiskTrouble(f"write {home / ADDRESS}", error) from error


def require_version(home: Path) -> None:
    """Raise where another version of Liza wrote the board in *home*, which this one would misread."""
    try:
        with (home / JOURNAL).open("rb") as file:
            first = file.read(LONGEST_HEAD)
    except OSError:
        return  # whoever reads the board says what is wrong with it
    found = _VERSION.match(first)
    if found is None:
        return
    version = int(found[1] or 1)  # the first said nothing of it
    if version != VERSION:
        raise InvalidBoard(
            f"the board in {home} is of version {version}, and this Liza reads version {VERSION}; finish it "
            'with the Liza that wrote it, or move it away and begin anew (`liza init "what to build"`)'
        )
