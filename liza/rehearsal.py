"""A past run under another policy: what its agents did plays again, in a clone, under the real supervisor.

Only the agents come from the recording. Who works when, what is sent back, what merges and when to give up is
decided anew, by the settings of that time or by changed ones. What people said in the middle of that run is
not in the recording, so a rehearsal ends where it would have to ask them.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pydantic import ValidationError

from liza.agents.recording import loaded
from liza.board.file import FileBoard
from liza.changes import HUMAN, add_task
from liza.config import AgentChoice, Agents, Config, Notify
from liza.errors import UsageError
from liza.model import Goal, GoalStatus, State, Status, Task
from liza.outlook import asks
from liza.problems import explained
from liza.project import HOME, IGNORED, configured
from liza.record import utc_now
from liza.repo.clone import cloned
from liza.repo.git import exclude
from liza.repo.repository import BRANCHES, Repository
from liza.supervisor import supervise
from liza.switches import Switch
from liza.turn import RUNS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from liza.agents.recording import Recording
    from liza.board.protocol import Entry
    from liza.report.screen import View

PATIENCE: Final = 120.0  # seconds of Liza's own that any rehearsal gets, beside what the run itself took
SLOWER: Final = 2  # times longer than the recorded run that a rehearsal may take, for a machine that is busier
SETTLED: Final = {"agents": "the recorded agents play", "notify": "a rehearsal tells nobody"}
DEFINING: Final = (  # what a task is, as opposed to what became of it
    "id",
    "description",
    "kind",
    "phase",
    "priority",
    "done_when",
    "scope",
    "spec_ref",
    "depends_on",
    "validation",
    "created",
    "created_by",
)


class Measures(NamedTuple):
    """What a run took and brought; None where nobody recorded it."""

    wall_seconds: float | None
    agent_seconds: float
    usd: float | None
    runs: int
    merges: int | None
    rejections: int | None


class Rehearsed(NamedTuple):
    """A rehearsal beside the run that it repeats."""

    code: int  # as `liza run --until-idle` would have ended
    recorded: Measures
    rehearsed: Measures
    remarks: tuple[str, ...]

    def plain(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "recorded": self.recorded._asdict(),
            "rehearsed": self.rehearsed._asdict(),
            "remarks": list(self.remarks),
        }

    def __str__(self) -> str:
        return "\n".join([*_table(self.recorded, self.rehearsed), *self.remarks])


class Source(NamedTuple):
    """What a recorded run began with, and what the board remembers of it, where there is one."""

    state: State
    base: str
    entries: tuple[Entry, ...] | None
    remarks: tuple[str, ...] = ()


def measured(recording: Recording, entries: Iterable[Entry] | None) -> Measures:
    """Return what the runs of *recording* took, and what *entries* of the journal say came of them."""
    costs = [run.usage.usd for run in recording.runs if run.usage.usd is not None]
    seconds, count = sum(run.seconds for run in recording.runs), len(recording.runs)
    usd = sum(costs) if costs else None
    if entries is None:
        return Measures(None, seconds, usd, count, None, None)
    moves = [(entry, event) for entry in entries for event in _events(entry)]
    happened = Counter(event for _, event in moves)
    begins = [run.began for run in recording.runs if run.began]
    wall = (moves[-1][0].at - min(begins)).total_seconds() if moves and begins else None
    return Measures(wall, seconds, usd, count, happened["merge"], happened["reject"])


def _tasks_in(entry: Entry) -> Iterator[Mapping[str, Any]]:
    tasks = entry.put.get("tasks", {})
    yield from tasks if isinstance(tasks, list) else tasks.values()  # the first entry is a board as people write it


def _events(entry: Entry) -> Iterator[str]:
    for fields in _tasks_in(entry):
        yield from (move["event"] for move in fields.get("history", ()))


def base_of(entries: Iterable[Entry]) -> str | None:
    """Return the commit that the first task was begun at: the integration branch before the first merge."""
    bases = (fields.get("base_commit") for entry in entries for fields in _tasks_in(entry))
    return next((base for base in bases if base), None)


def beginning(state: State, config: Config) -> tuple[State, list[Task]]:
    """Return an empty board with the goal and the notes of *state*, and its tasks with nothing done yet."""
    goal = state.goal.but(status=GoalStatus.IN_PROGRESS, completed=None, questions=())
    notes = {note.id: note.but(processed=None, processed_by=None) for note in state.human_notes.values()}
    return State(revision=1, goal=goal, config=config, human_notes=notes), [
        _undone(task) for task in state.tasks.values()
    ]


def _undone(task: Task) -> Task:
    status = Status.DRAFT if task.status is Status.DRAFT else Status.IDLE
    return Task(status=status, **{name: getattr(task, name) for name in DEFINING})


def changed(config: Config, changes: Iterable[str]) -> Config:
    """Return *config* after *changes*, each as `limits.max_rejections=2`; raise what is wrong with one."""
    settings = config.model_dump(mode="json")
    for change in changes:
        key, equals, value = change.partition("=")
        if not (key and equals):
            raise UsageError(f"--with {change!r} changes nothing; write KEY=VALUE, such as workers.coder=4")
        *above, last = key.split(".")
        if why := SETTLED.get([*above, last][0]):
            raise UsageError(f"--with {key}: it cannot be changed here, because {why}; leave it out")
        section = settings
        for name in above:
            inner = section.get(name)
            section[name] = inner if isinstance(inner, dict) else {}
            section = section[name]
        section[last] = _value(value)
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        raise UsageError(f"--with {'; '.join(map(str, explained(error, Config, '', {})))}") from error


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a word or a command, which nobody wants to quote twice


def _table(recorded: Measures, rehearsed: Measures) -> Iterator[str]:
    yield f"{'':<14}{'recorded':>12}{'rehearsed':>12}{'difference':>12}"
    for name, (label, unit) in _ROWS.items():
        one, other = getattr(recorded, name), getattr(rehearsed, name)
        apart = "-" if one is None or other is None else format(other - one, f"+{unit}")
        values = ("-" if value is None else format(value, unit) for value in (one, other))
        yield f"{label:<14}{''.join(f'{value:>12}' for value in (*values, apart))}"


_ROWS: Final = {
    "wall_seconds": ("wall time, s", ".1f"),
    "agent_seconds": ("agent time, s", ".1f"),
    "usd": ("cost, USD", ".2f"),
    "runs": ("runs", "d"),
    "merges": ("merges", "d"),
    "rejections": ("rejections", "d"),
}


def rehearse(path: Path, start: Path, changes: Iterable[str], *, pace: float, view: View) -> Rehearsed:
    """Play the recording at *path* in a clone of the repository around *start*; return what differs."""
    path = path.resolve()
    recording, repository = loaded(path), Repository.around(start)
    source = _source(path, recording, repository)
    config = changed(source.state.config, changes)
    played = AgentChoice(backend="replay", command=(str(path), format(pace, "f")))
    config = config.but(agents=Agents(default=played), notify=Notify())
    recorded = measured(recording, source.entries)
    limit = PATIENCE + SLOWER * (recorded.wall_seconds or 0.0) + pace * recorded.agent_seconds
    with TemporaryDirectory(prefix="liza-rehearsal-") as folder:
        root = Path(folder).resolve() / repository.root.name
        home = _staged(cloned(repository, root, at=source.base), source.state, config)
        with _bounded(home, limit):
            code = supervise(home, view, until_idle=True)
        rehearsed, left = _outcome(home)
    return Rehearsed(code, recorded, rehearsed, (*source.remarks, *_remarks(pace), *left))


def _source(path: Path, recording: Recording, repository: Repository) -> Source:
    """Return the board beside a folder of runs as it was at the first of them, or what stands in for it."""
    if path.is_dir() and (path.parent / "journal.jsonl").exists():
        board = FileBoard(path.parent)
        entries = tuple(board.entries())
        first = min(run.began for run in recording.runs if run.began)
        state = board.at(max(first, entries[0].at))[0]
        board.close()
        return _based(repository, state, entries)
    home = repository.root / HOME
    if home.is_dir():
        state = FileBoard(home).read()
        state = state.but(tasks={}, human_notes={})
        return _based(repository, state, None, f"goal and settings are those of {home}")
    said = recording.about.strip() or f"Rehearse {path.name}"
    config = configured(repository.root, {})[0]
    state = State(revision=1, goal=Goal(description=said, created=utc_now()), config=config)
    return _based(repository, state, None, "there is no board, so the settings are those of `liza init`")


def _based(repository: Repository, state: State, entries: tuple[Entry, ...] | None, *remarks: str) -> Source:
    base = base_of(entries or ())
    if base and repository.commit_at(base):
        return Source(state, base, entries, remarks)
    integration = BRANCHES + state.config.integration_branch
    head = repository.head()
    if head is None:
        raise UsageError(f"{repository.root} has no commit to rehearse at; make one")
    answer = repository.ask("merge-base", integration, head)
    base, what = (answer.text, "where the integration branch left HEAD") if answer.code == 0 else (head, "HEAD")
    return Source(state, base, entries, (*remarks, f"no base commit is recorded; it began at {base[:12]}, {what}"))


def _staged(clone: Repository, before: State, config: Config) -> Path:
    exclude(clone.root, IGNORED)
    state, tasks = beginning(before, config)
    board = FileBoard.create(clone.root / HOME, state)
    for task in tasks:
        board.update(add_task(task, by=HUMAN, at=utc_now()))
    board.close()
    return board.home


@contextmanager
def _bounded(home: Path, seconds: float) -> Iterator[None]:
    """End the run in *home* as ABORT does, should it take longer than *seconds*."""
    abort = home / Switch.ABORT.name
    timer = threading.Timer(seconds, abort.write_text, [f"the rehearsal took longer than {seconds:.0f} s\n"])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _outcome(home: Path) -> tuple[Measures, list[str]]:
    board = FileBoard(home)
    entries = tuple(board.entries())
    state = board.read()
    board.close()
    left = [f"it ended early: {wait.what}" for wait in asks(state)]
    if (home / Switch.ABORT.name).exists():
        left.append(f"it was ended: {(home / Switch.ABORT.name).read_text().strip()}")
    return measured(loaded(home / RUNS), entries), left


def _remarks(pace: float) -> Iterator[str]:
    if pace == 0:
        yield "agents answered at once, so the wall time is Liza's own; `--pace 1` takes as long as they took"
