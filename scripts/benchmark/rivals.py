"""The engines that are measured, ours among its rivals, as rows of one table.

One update is the same everywhere: one field and one history event of one task, durable on return. Rivals
keep every history inline, as they were given it; for each new event they drop the oldest and count it, so
that their cost stays that of the board they were given. That favours them: ours keeps every event.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, Final, NamedTuple, Protocol

import yaml

from liza.board.file import FileBoard
from liza.domain.changes import HUMAN, Change
from liza.domain.lifecycle import Amend
from liza.domain.model import State
from liza.domain.record import utc_now
from liza.workflow.transition import apply

STRIDE: Final = 7919  # a prime: update after update meets another task, and every task in its turn
SIZE: Final = "size"  # a file beside the YAML, for the editor that cannot count tasks in passing
PATIENCE: Final = 120.0  # seconds that SQLite waits for a busy board before it gives up

EARLIER: Final = re.compile(r"^ *history_earlier: (\d+)$", re.MULTILINE)
EVENT: Final = re.compile(r"^ *event: ", re.MULTILINE)

Plain = dict[str, Any]


class Engine(Protocol):
    """An open board, in one process."""

    def update(self, number: int) -> None:
        """Set one field of a task that *number* chooses, and add an event to its history."""

    def count(self) -> int:
        """Return how many events all histories have, shown or not."""

    def close(self) -> None: ...


class Row(NamedTuple):
    name: str
    says: str
    prepare: Callable[[Path, State], None]  # puts a board into an empty directory
    open: Callable[[Path], Engine]
    missing: Callable[[], str | None] = lambda: None  # why it cannot run here
    warm_ups: int = 0  # updates after which a process has all that it keeps for the next ones


class Ours:
    """The file engine of Liza, through its one door."""

    def __init__(self, directory: Path) -> None:
        self.board = FileBoard(directory / ".liza")
        self.names = tuple(self.board.read().tasks)

    def update(self, number: int) -> None:
        self.board.update(amendment(self.names[number * STRIDE % len(self.names)], number))

    def count(self) -> int:
        return sum(task.event_count for task in self.board.read().tasks.values())

    def close(self) -> None:
        self.board.close()


def amendment(task: str, priority: int) -> Change:
    def make(state: State) -> State:
        # The time is taken under the lock, or two writers of one task would record theirs out of order.
        return apply(Amend(fields={"priority": priority}), to=task, by=HUMAN, at=utc_now())(state)

    return Change(by=HUMAN.id, what=f"amend {task}", make=make)


def _prepare_ours(directory: Path, state: State) -> None:
    FileBoard.create(directory / ".liza", state).close()


def plain(state: State) -> Plain:
    """Return the board as JSON values without anything shared, whole histories inline."""
    board: Plain = json.loads(json.dumps(state.to_json()))
    for task in board["tasks"]:
        task.setdefault("history_earlier", 0)
    return board


def amend(task: Plain, number: int) -> None:
    task["priority"] = number
    task["history"] = [*task["history"][1:], event()]
    task["history_earlier"] += 1


def event() -> Plain:
    return {
        "at": f"{utc_now():%Y-%m-%dT%H:%M:%S.%fZ}",
        "event": "amend",
        "by": "human",
        "role": "human",
        "from": "IDLE",
        "to": "IDLE",
        "facts": {"fields": ["priority"]},
    }


class YamlFile:
    """One YAML file under an exclusive flock, replaced whole by what *edit* makes of it."""

    def __init__(self, directory: Path, edit: Callable[[Path, int, IO[str]], None]) -> None:
        self.path = directory / "state.yaml"
        self.edit = edit
        self.directory = os.open(directory, os.O_RDONLY)
        self.lock = os.open(directory / "state.yaml.lock", os.O_RDWR | os.O_CREAT, 0o644)

    def update(self, number: int) -> None:
        with self._locked(), self._replacing() as file:
            self.edit(self.path, number, file)

    def count(self) -> int:
        # Loading ten thousand tasks only to count their events would take half a minute.
        text = self.path.read_text()
        return sum(map(int, EARLIER.findall(text))) + len(EVENT.findall(text))

    def close(self) -> None:
        os.close(self.lock)
        os.close(self.directory)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self.lock, fcntl.LOCK_UN)

    @contextmanager
    def _replacing(self) -> Iterator[IO[str]]:
        fresh = self.path.with_suffix(".new")
        with fresh.open("w") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(self.path)
        os.fsync(self.directory)  # or the rename may not survive, and the update was not durable


def _in_python(path: Path, number: int, file: IO[str]) -> None:
    board = yaml.load(path.read_text(), yaml.SafeLoader)
    amend(board["tasks"][number * STRIDE % len(board["tasks"])], number)
    yaml.dump(board, file, yaml.SafeDumper, sort_keys=False)


def _in_c(path: Path, number: int, file: IO[str]) -> None:
    board = yaml.load(path.read_text(), yaml.CSafeLoader)
    amend(board["tasks"][number * STRIDE % len(board["tasks"])], number)
    yaml.dump(board, file, yaml.CSafeDumper, sort_keys=False)


def _by_yq(path: Path, number: int, file: IO[str]) -> None:
    """Do what a shell script does; both families of programs that are named yq understand this."""
    size = int(path.with_name(SIZE).read_text())
    task = f".tasks[{number * STRIDE % size}]"
    program = (
        f"{task}.priority = {number} | {task}.history_earlier += 1 | "
        f"{task}.history = ({task}.history[1:] + [{json.dumps(event())}])"
    )
    subprocess.run([*_yq(), program, path], stdout=file, check=True)


@cache
def _yq() -> tuple[str, ...]:
    said = subprocess.run(["yq", "--version"], capture_output=True, text=True, check=True).stdout
    return ("yq",) if "mikefarah" in said else ("yq", "-y")  # the one in Python answers in JSON unless told


def _without_yq() -> str | None:
    return None if shutil.which("yq") else "yq is not installed"


def _prepare_yaml(directory: Path, state: State) -> None:
    with (directory / "state.yaml").open("w") as file:
        yaml.dump(plain(state), file, yaml.CSafeDumper, sort_keys=False)
    (directory / SIZE).write_text(str(len(state.tasks)))


class Sqlite:
    """One row a task, as JSON; the write-ahead log is synced at every commit."""

    def __init__(self, directory: Path) -> None:
        self.db = sqlite3.connect(directory / "state.db", timeout=PATIENCE, isolation_level=None)
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        (self.size,) = self.db.execute("SELECT count(*) FROM tasks").fetchone()

    def update(self, number: int) -> None:
        position = number * STRIDE % self.size
        self.db.execute("BEGIN IMMEDIATE")
        (body,) = self.db.execute("SELECT body FROM tasks WHERE position = ?", (position,)).fetchone()
        task = json.loads(body)
        amend(task, number)
        self.db.execute("UPDATE tasks SET body = ? WHERE position = ?", (json.dumps(task), position))
        self.db.execute("COMMIT")

    def count(self) -> int:
        tasks = (json.loads(body) for (body,) in self.db.execute("SELECT body FROM tasks"))
        return sum(task["history_earlier"] + len(task["history"]) for task in tasks)

    def close(self) -> None:
        self.db.close()


def _prepare_sqlite(directory: Path, state: State) -> None:
    rows = enumerate(json.dumps(task) for task in plain(state)["tasks"])
    db = sqlite3.connect(directory / "state.db")
    with db:
        db.execute("CREATE TABLE tasks (position INTEGER PRIMARY KEY, body TEXT NOT NULL)")
        db.executemany("INSERT INTO tasks VALUES (?, ?)", rows)
    db.close()


LIZA: Final = Row("liza", "our file engine", _prepare_ours, Ours, warm_ups=1)
SQLITE: Final = Row(
    "sqlite", "WAL, synchronous=FULL, one row of JSON a task", _prepare_sqlite, Sqlite, warm_ups=1
)
C_YAML: Final = Row(
    "yaml-c", "flock, full PyYAML load and dump in C", _prepare_yaml, partial(YamlFile, edit=_in_c)
)
PY_YAML: Final = Row("yaml-py", "the same in pure Python", _prepare_yaml, partial(YamlFile, edit=_in_python))
YQ: Final = Row(
    "yq", "flock and the command-line editor yq", _prepare_yaml, partial(YamlFile, edit=_by_yq), _without_yq
)

ENGINES: Final = {row.name: row for row in (LIZA, SQLITE, C_YAML, PY_YAML, YQ)}
