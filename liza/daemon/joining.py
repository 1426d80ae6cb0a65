"""What has to be right before a machine joins others on a board; each that is wrong is one sentence."""

from __future__ import annotations

import re
import socket
from typing import TYPE_CHECKING, Any, Final

import liza
from liza.board.location import address_in, without_password
from liza.board.protocol import HOST_PREFIX, has_board, open_board
from liza.daemon.project import IGNORED
from liza.daemon.travel import shared_remote
from liza.domain.model import Role
from liza.domain.record import safe_id, utc_now
from liza.errors import LizaError, UnfitRepository, UsageError
from liza.repo.command import exclude, git_version
from liza.repo.repository import Repository
from liza.repo.worktree import present

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.daemon.policy.staffing import WorkerRole

OLDEST_GIT: Final = (2, 38)  # the first that merges without a checkout
LARGEST_SKEW: Final = 2.0  # seconds that a clock may be off before people are told
MOST_SLOTS: Final = 256  # of one role on one machine
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,30}[a-z0-9])?")
_ROLES: Final[dict[str, WorkerRole]] = {
    "planner": Role.PLANNER,
    "coder": Role.CODER,
    "reviewer": Role.REVIEWER,
}


def own_name() -> str:
    """Return the default name of this machine."""
    plain = re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().partition(".")[0].lower()).strip("-")
    return plain[-32:].strip("-") or "host"  # the end of it tells pods of one kind apart


def parse_name(text: str) -> str:
    if not _NAME.fullmatch(text):
        raise UsageError(
            f"{text!r} is no name of a host; give small letters, digits and '-', at most 32, as in `build-2`"
        )
    return text


def parse_labels(said: Iterable[str]) -> tuple[str, ...]:
    """Return the labels of a machine, each once; they are what `needs` of a task may name."""
    try:
        return tuple(dict.fromkeys(safe_id(one) for one in said))
    except ValueError as error:
        raise UsageError(f"--label: {error}") from None


def parse_slots(text: str) -> dict[WorkerRole, int]:
    """Return how many workers of each role *text* says, as in `coder=4,reviewer=2`."""
    found: dict[WorkerRole, int] = {}
    for part in text.split(","):
        role, _, count = part.strip().partition("=")
        if role not in _ROLES or not count.isdecimal() or int(count) > MOST_SLOTS or _ROLES[role] in found:
            raise UsageError(
                f"--slots {text}: {part.strip()!r} is no number of workers; "
                f"give {', '.join(f'{name}=N' for name in _ROLES)}, each at most once, up to {MOST_SLOTS}"
            )
        found[_ROLES[role]] = int(count)
    if not any(found.values()):
        raise UsageError(f"--slots {text} offers nobody; give at least one worker")
    return found


def check_host(home: Path, name: str) -> list[str]:
    """Raise what keeps this machine from working on the board of *home*; return what people should know."""
    if address_in(home) is None:
        raise UsageError(
            f"`liza host` joins a board on a server, and this one is in {home}; `liza run` works on it, "
            "and `liza board copy` moves it to a server"
        )
    if (version := git_version()) < OLDEST_GIT:
        raise LizaError(
            f"git {'.'.join(map(str, version))} cannot merge without a checkout; "
            f"install {'.'.join(map(str, OLDEST_GIT))} or newer on this machine"
        )
    if not has_board(home):
        raise LizaError(
            f"there is no board at {without_password(str(address_in(home)))}; `liza init` makes one"
        )
    board = open_board(home)
    try:
        _require_place(board, name)
        _require_remote(board, name)
        _require_repository(board, home.parent)
        exclude(home.parent, IGNORED)
        return list(_clock_warning(board))
    finally:
        board.close()


def host_facts() -> dict[str, Any]:
    """Return what a host says of itself beside what it offers."""
    return {"version": liza.__version__, "git": ".".join(map(str, git_version())), "machine": own_name()}


def _require_place(board: Board, name: str) -> None:
    """Raise where another process holds the name, or other hosts run another version of Liza."""
    if other := board.presence.holder_of(HOST_PREFIX + name):
        raise LizaError(f"a host called {name} works on this board already: {other}; give another `--name`")
    for sign in board.presence.hosts():
        theirs = sign.facts.get("version")
        if sign.is_live and sign.name != name and theirs != liza.__version__:
            raise LizaError(
                f"the host {sign.name} runs Liza {theirs}, and this one is {liza.__version__}; "
                "install the same on all hosts of a board"
            )


def _require_remote(board: Board, name: str) -> None:
    others = [sign.name for sign in board.presence.hosts() if sign.is_live and sign.name != name]
    if others and board.read().config.remote is None:
        raise UsageError(
            f"{' and '.join(others)} works on this board, and it names no `remote` by which code travels "
            "between hosts; set one in liza.yaml, and apply it (`liza run` or `liza edit`)"
        )


def _require_repository(board: Board, root: Path) -> None:
    config, base, repository = board.read().config, board.read().integration.base, Repository.around(root)
    if base and not present(repository, [base]) and (remote := shared_remote(repository, config)):
        remote.fetch()
    if base and not present(repository, [base]):
        raise UnfitRepository(
            f"{root} does not have the commit {base[:12]} that the board began at; clone the repository "
            "of the board, or fetch what is missing"
        )


def _clock_warning(board: Board) -> list[str]:
    off = (utc_now() - board.now()).total_seconds()
    if abs(off) <= LARGEST_SKEW:
        return []
    how = "ahead of" if off > 0 else "behind"
    sentence = (
        f"the clock of this machine is {abs(off):.0f} s {how} the board's; leases go by the board's, "
        "but set it, as by NTP: logs and files bear its time"
    )
    return [sentence]
