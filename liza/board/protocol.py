"""What an engine of the board promises, and the one door to it; nothing above it knows files.

`open_board` takes the location of a board. A path is a board in files, unless an address is noted there;
`postgresql://…` is one on a server, and any other `scheme://…` belongs to the engine that an installed
package registers for the scheme, as an entry point of the group `liza.boards`.
"""

from __future__ import annotations

import re
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from liza.board.location import address_in, without_password
from liza.errors import UsageError
from liza.system.plugins import Registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager
    from datetime import datetime

    from liza.domain.changes import Change
    from liza.domain.config import Switch
    from liza.domain.model import State
    from liza.domain.shared_refs import RefFacts
    from liza.system.files import Holder

SUPERVISOR_NAME: Final = "supervisor"  # held by the one supervisor of a board
PLANNING_NAME: Final = "planning"  # held by the planner that plans
HOST_PREFIX: Final = "host-"  # before the name of a host, as it is held
_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*)://")


class JournalEntry(NamedTuple):
    """One change as the journal keeps it: who did what when, and the fields that it set."""

    revision: int
    at: datetime
    by: str
    what: str
    put: dict[str, Any]  # section: its new value, or for sections with ids the changed fields by id
    gone: dict[str, list[str]]  # section: the ids that left it


class BoardText(NamedTuple):
    """A board as people read and edit it."""

    revision: int
    stamp: str  # by which an edit is known to be one of this board
    data: bytes


class Switches(Protocol):
    """What stops everybody, wherever they run: thrown and taken back by people and by Liza."""

    def thrown(self) -> dict[str, str]:
        """Return the switches that are thrown, by name, each with its reason."""

    def throw(self, switch: Switch, said: str) -> bool:
        """Throw *switch* and say why; return False where it is thrown already, which then stays."""

    def replace(self, switch: Switch, said: str) -> None:
        """Throw *switch* and say why, whatever was said before."""

    def clear(self, switch: Switch) -> None:
        """Take *switch* back, if it is thrown."""

    def thrown_at(self, switch: Switch) -> datetime | None:
        """Return when *switch* was thrown; None where it is not, or is being written at this moment."""

    def place_of(self, switch: Switch) -> str:
        """Return where people see *switch*, in their words."""


class Alert(NamedTuple):
    """One sentence that people were told."""

    position: int  # to read on after it
    at: str
    says: str


class Alerts(Protocol):
    """What people have to know, oldest first, and how far it was sent to them."""

    def append(self, sentence: str, *, at: datetime) -> None:
        """Tell people something, on one line, secrets masked; whole or not at all."""

    def after(self, position: int) -> list[Alert]:
        """Return the alerts behind *position*; all, where the file was emptied meanwhile."""

    def end(self) -> int:
        """Return the position behind the last alert."""

    def sent(self) -> int:
        """Return the position behind the last alert that was sent."""

    def mark_sent(self, position: int) -> None:
        """Record that all up to *position* was sent."""


class HostSign(NamedTuple):
    """The last advertisement of a host, and its age."""

    name: str
    facts: dict[str, Any]
    silent: float  # seconds since then, by the board's clock
    is_live: bool  # whether its process holds its name


class Presence(Protocol):
    """Who is alive: a name is held by one process, and free as soon as that ends, however it ends."""

    def hold(
        self, name: str, *, at: datetime, on_lost: Callable[[], None] | None = None
    ) -> AbstractContextManager[None]:
        """Hold *name*; raise AlreadyRunning where another process does.

        Where another took it while the board could not be reached, *on_lost* is called; without one the
        process is asked to end.
        """

    def holder_of(self, name: str) -> Holder | None:
        """Return who holds *name*, or None where it is free."""

    def is_held(self, name: str) -> bool:
        """Return whether a process holds *name*."""

    def live_workers(self) -> frozenset[str]:
        """Return the names of the workers that are alive."""

    def remove_stale(self) -> None:
        """Remove what dead workers left of their names; nothing depends on it."""

    def advertise(self, host: str, facts: dict[str, Any]) -> None:
        """Publish what *host*, whose name this process holds, offers; wake no waiter."""

    def depose(self, silence: float) -> None:
        """Take the supervisor's name from a host that leads and has said nothing for *silence* seconds."""

    def share_secret(self, secret: str) -> str:
        """Return the one secret that all machines of the board share: *secret*, unless another was first."""

    def hosts(self) -> tuple[HostSign, ...]:
        """Return the hosts that said something within a day; none where the board is one machine's."""


class Board(Protocol):
    """The one way processes talk to each other; threads of a process may share one."""

    @property
    def home(self) -> Path:
        """The directory in which this machine keeps runs, logs and sandboxes of the project."""

    @property
    def switches(self) -> Switches: ...

    @property
    def alerts(self) -> Alerts: ...

    @property
    def presence(self) -> Presence: ...

    def now(self) -> datetime:
        """Return the time by the board's clock, by which leases end: the same for all who share it."""

    def read(self) -> State:
        """Return the latest state; takes no lock and never sees half a change."""

    def update(self, change: Change) -> State:
        """Apply *change* to the state under the lock; it is durable when this returns.

        A change that returns the state it was given changes nothing. One that breaks a rule raises, and
        nothing was written.
        """

    def wait(self, since: int, timeout: float) -> State:
        """Return the state once its revision is past *since*, or after *timeout* seconds as it is then.

        It may return sooner where somebody threw a switch, so whoever needs a change looks at the revision.
        """

    def lock_holder(self) -> str:
        """Return who last took the lock, for a message to those who wait for it."""

    def absorb(self) -> State:
        """Take in what people saved, now, and return the state; raise EditRejected if it was not taken."""

    def judge(self, data: bytes) -> None:
        """Raise the problems of *data* as an edit of the board's text; nothing is written."""

    def take(self, data: bytes) -> State:
        """Apply the edit *data* to the board, or raise its problems with nothing written."""

    def quarantine(self, data: bytes, *, at: datetime) -> Path:
        """Keep a text that was refused, and return where."""

    def entries(self, after: int = 0) -> Iterator[JournalEntry]:
        """Yield every change past revision *after*, oldest first."""

    def at(self, moment: int | datetime) -> tuple[State, str]:
        """Return the state as it was at a revision or time, and the stamp of its text."""

    def text(self) -> BoardText:
        """Return the board's text, as people edit it, at the latest revision."""

    def text_at(self, moment: int | datetime) -> bytes:
        """Return the board's text, as people edit it, at a revision or time."""

    def close(self) -> None:
        """Let go of descriptors and threads; a closed board is not used again."""


class Glance(NamedTuple):
    """A read-only view of a board."""

    state: State
    switches: dict[str, str]
    is_running: bool  # whether a supervisor is there
    hosts: tuple[HostSign, ...] = ()


class Engine(Protocol):
    """What a scheme of `liza.boards` names: a module, or an object, with these functions.

    *home* is the directory of the checkout in which the location is noted, if it is.
    """

    def exists(self, location: str) -> bool:
        """Return whether there is a board at *location*."""

    def open_location(self, location: str, *, home: Path | None = None) -> Board:
        """Return the board at *location*; it may look whether it is there later, when it is used."""

    def create(self, location: str, state: State, *, by: str, home: Path | None = None) -> Board:
        """Make a board at *location* with *state* as its first revision."""

    def glance(self, location: str, *, home: Path | None = None) -> Glance | None:
        """Return the board without locks and at little cost; None where only an open board can tell."""

    def validate(self, location: str, *, home: Path | None = None) -> State:
        """Return the board at *location*, or raise everything that is wrong with it; nothing is changed."""

    def lines(self, location: str) -> list[bytes]:
        """Return the whole journal of the board at *location*, a line each."""

    def restore(self, location: str, journal: Sequence[bytes]) -> None:
        """Make a board at *location* that has *journal*; raise where there is one."""

    def grant(self, location: str, right: str, role: str) -> None:
        """Give *role* the right of a worker or a reader on the boards of the server at *location*."""


_ON_POSTGRES: Final = frozenset({"postgresql", "postgres"})
_ENGINES: Final[Registry[Engine]] = Registry(
    "liza.boards",
    "board engine",
    {"file": "liza.board.file_engine", **dict.fromkeys(_ON_POSTGRES, "liza.board.postgres.engine")},
)


class _Found(NamedTuple):
    engine: Engine
    location: str
    home: Path | None = None


def has_board(location: Path | str) -> bool:
    """Return whether there is a board at *location*."""
    found = _find(location)
    return found.engine.exists(found.location)


def open_board(location: Path | str) -> Board:
    """Return the board at *location*: a directory, or an address of another engine."""
    found = _find(location)
    return found.engine.open_location(found.location, home=found.home)


def read_ref_facts(location: Path | str) -> tuple[RefFacts, datetime]:
    """Return what the rules of pushes ask of the board at *location*, and its time, at little cost."""
    home = None
    if not _SCHEME.match(str(location)) and (address := address_in(Path(location))):
        location, home = address, Path(location)
    scheme = _SCHEME.match(str(location))
    if scheme and scheme[1] in _ON_POSTGRES:
        from liza.board.postgres.ref_reader import ask_once, read_facts  # noqa: PLC0415 - few need it

        if found := ask_once(str(location), home):
            return found
        _require_psycopg()
        if found := read_facts(str(location), home):
            return found
    from liza.board.ref_facts import facts_of  # noqa: PLC0415 - only needed here

    with closing(open_board(home or location)) as board:
        return facts_of(board.read()), board.now()


def create_board_at(location: Path | str, state: State) -> Board:
    """Make a board at *location* with *state* as its first revision, in the name of a person."""
    found = _find(location)
    return found.engine.create(found.location, state, by="human", home=found.home)


def glance_at(location: Path | str) -> Glance | None:
    """Return the board at *location* at little cost; None where it has to be opened."""
    found = _find(location)
    return found.engine.glance(found.location, home=found.home)


def validate_board(location: Path | str) -> State:
    """Return the board at *location*, or a board's text in a file; raise everything that is wrong with it."""
    found = _find(location)
    return found.engine.validate(found.location, home=found.home)


def copy_board(source: Path | str, target: Path | str) -> int:
    """Make the board of *source* at *target*, with all its history; return how many changes it has."""
    there, here = _find(source), _find(target)
    if not there.engine.exists(there.location):
        raise UsageError(f"there is no board at {without_password(there.location)}")
    journal = there.engine.lines(there.location)
    here.engine.restore(here.location, journal)
    return len(journal)


def grant_right(location: Path | str, right: str, role: str) -> str:
    """Give *role* of the server the right of a worker or a reader, and return which server that is."""
    found = _find(location)
    found.engine.grant(found.location, right, role)
    return without_password(found.location)


def _find(location: Path | str) -> _Found:
    scheme = _SCHEME.match(str(location))
    if scheme is None and (address := address_in(Path(location))):
        found = _find(address)
        return found._replace(home=Path(location))
    name = scheme[1] if scheme else "file"
    if name in _ON_POSTGRES:
        _require_psycopg()
    return _Found(_ENGINES[name], str(location))


def _require_psycopg() -> None:
    try:
        import_module("psycopg")
    except ImportError as error:  # also where it is there, and no libpq is
        why = str(error).partition("\n")[0].rstrip(".")
        raise UsageError(
            f"a board on PostgreSQL needs psycopg ({why}); "
            "install Liza with it (`pip install 'liza[postgres]'`)"
        ) from error
