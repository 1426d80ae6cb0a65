"""The hook of the remote that hosts share: it asks the board whether a push may be, and else refuses it."""

from __future__ import annotations

import os
import shlex
import sys
from typing import TYPE_CHECKING, Final

from liza.board.location import VARIABLE, address_in, without_password
from liza.board.protocol import has_board, read_ref_facts
from liza.domain.shared_refs import RefUpdate, why_refused
from liza.errors import DiskTrouble, Refused, UsageError
from liza.system.files import overwrite

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

HOOK: Final = "pre-receive"
PROGRAM: Final = "liza.cli.pre_receive"  # as `liza hook pre-receive`, without loading all other commands
_WRITTEN: Final = "# Written by `liza hook install`: the board says who may push what."
_FIELDS: Final = 3  # of a line: what the ref was, what it shall be, its name


def install_hook(bare: Path, board: str) -> Path:
    """Write the hook of the repository *bare*, which asks *board*; return where. It may be repeated."""
    from liza.repo.command import ask_git  # noqa: PLC0415 - a push asks no git

    if ask_git("rev-parse", "--is-bare-repository", cwd=_require_directory(bare)).text != "true":
        raise UsageError(f"{bare} is no bare repository; name one, as `git init --bare DIRECTORY` makes it")
    if without_password(board) != board:
        raise UsageError(
            f"the address of the board holds a password; take it out, and let git's user have {VARIABLE} or "
            "~/.pgpass there"
        )
    # Of its own settings: in Liza's, no repository has hooks.
    own = ask_git("config", "--file", "config", "--get", "core.hooksPath", cwd=bare).text
    path = bare / (own or "hooks") / HOOK
    if path.exists() and _WRITTEN not in path.read_text(errors="replace"):
        raise UsageError(f"there is another hook in {path}; move it away, or call `liza hook {HOOK}` from it")
    command = shlex.join([sys.executable, "-m", PROGRAM, board])
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        overwrite(path, f"#!/bin/sh\n{_WRITTEN}\nexec {command}\n")
        path.chmod(0o755)
    except OSError as error:
        raise DiskTrouble(f"write {path}", error) from error
    return path


def _require_directory(path: Path) -> Path:
    if not path.is_dir():
        raise UsageError(f"{path} is no directory; name the bare repository that hosts share")
    return path


def board_address(home: Path) -> str:
    """Return where the board of *home* is, as a hook may be told it."""
    return without_password(address_in(home) or str(home))


def check_push(board: str, lines: Iterable[str]) -> None:
    """Raise why the push that git describes in *lines* may not be; a board that is away allows nothing."""
    said = os.environ.get(VARIABLE, "")
    location = said if without_password(said) == board else board
    if "://" not in location and not has_board(location):
        raise UsageError(f"there is no board at {location}; mend the hook (`liza hook install`)")
    facts, now = read_ref_facts(location)
    updates = [RefUpdate(*fields) for line in lines if len(fields := line.split()) == _FIELDS]
    for update in updates:
        if why := why_refused(facts, update, now):
            raise Refused(f"{update.ref}: {why}")
