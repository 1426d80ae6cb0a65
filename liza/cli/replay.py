"""A past run under another policy: what its agents did plays again, in a clone, under the real supervisor.

Only the agents come from the recording. Who works when, what is sent back, what merges and when to give up is
decided anew, by the settings of that time or by changed ones. What people said in the middle of that run is
not in the recording, so a rehearsal ends where it would have to ask them.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from contextlib import closing, contextmanager
from math import inf
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TextIO

from pydantic import ValidationError

import liza
from liza.agents.protocol import REPLY, load_recording
from liza.board.protocol import create_board_at, has_board, open_board
from liza.daemon.project import HOME, IGNORED, effective_config
from liza.daemon.supervisor import EXIT_CODES
from liza.daemon.turn import RUNS
from liza.daemon.workflow_in_use import workflow_to_adopt
from liza.domain.changes import HUMAN
from liza.domain.config import AgentChoice, Agents, Config, Notify
from liza.domain.model import Goal, GoalStatus, State, Status, Task
from liza.domain.problems import violations_from
from liza.domain.record import utc_now
from liza.domain.waits import human_waits
from liza.errors import LizaError, UsageError
from liza.repo.command import exclude
from liza.repo.remote import clone_repository
from liza.repo.repository import BRANCHES, Repository
from liza.system.run_control import RunEnding
from liza.workflow.transition import add_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from liza.agents.protocol import RecordedRun, Recording
    from liza.board.protocol import JournalEntry

PATIENCE: Final = 120.0  # seconds of Liza's own that any rehearsal gets, beside what the run itself took
# Times longer than the recorded run that a rehearsal may take, for a machine that is busier.
SLOWDOWN: Final = 2
LONGEST_LINE: Final = 160  # characters of a text of which one line is shown
FIXED_SETTINGS: Final = {"agents": "the recorded agents play", "notify": "a rehearsal tells nobody"}
NOT_PLAYED: Final = frozenset({RunEnding.CRASHED, RunEnding.KILLED, RunEnding.NOT_STARTED})
TASK_FIELDS: Final = (  # what a task is, as opposed to what became of it
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


class RunMeasures(NamedTuple):
    """What a run took and brought; None where nobody recorded it."""

    wall_seconds: float | None
    agent_seconds: float
    usd: float | None
    runs: int
    merges: int | None
    rejections: int | None


class Comparison(NamedTuple):
    """A rehearsal beside the run that it repeats."""

    code: int  # as `liza run --until-idle` would have ended
    recorded: RunMeasures
    rehearsed: RunMeasures
    remarks: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "recorded": self.recorded._asdict(),
            "rehearsed": self.rehearsed._asdict(),
            "remarks": list(self.remarks),
        }

    def __str__(self) -> str:
        return "\n".join([*_table(self.recorded, self.rehearsed), *self.remarks])


class ReplaySource(NamedTuple):
    """What a recorded run began with, and what the board remembers of it, where there is one."""

    state: State
    base: str
    entries: tuple[JournalEntry, ...] | None
    remarks: tuple[str, ...] = ()


def measures_of(runs: Sequence[RecordedRun], entries: Iterable[JournalEntry] | None) -> RunMeasures:
    """Return what *runs* took, and what *entries* of the journal say came of them."""
    costs = [run.usage.usd for run in runs if run.usage.usd is not None]
    seconds, count = sum(run.seconds for run in runs), len(runs)
    usd = sum(costs) if costs else None
    if entries is None:
        return RunMeasures(None, seconds, usd, count, None, None)
    moves = [(entry, event) for entry in entries for event in _events(entry)]
    happened = Counter(event for _, event in moves)
    begins = [run.began for run in runs if run.began]
    wall = (moves[-1][0].at - min(begins)).total_seconds() if moves and begins else None
    return RunMeasures(wall, seconds, usd, count, happened["merge"], happened["reject"])


def unplayed_remarks(recorded: Sequence[RecordedRun], rehearsed: Sequence[RecordedRun]) -> list[str]:
    """Return a remark where the rehearsal asked for what the recording cannot give: there it is a guess."""
    known = {run.why for run in recorded}
    missing = [run for run in rehearsed if run.ending in NOT_PLAYED and run.why not in known]
    if not missing:
        return []
    one = missing[0]
    what = f"{one.step} {one.task or ''}".strip()
    return [f"the recording does not fit {len(missing)} of the runs, the first {what}: {_clip(one.why)}"]


def _clip(text: str) -> str:
    line = text.split("\n", 1)[0]
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"


def _tasks_in(entry: JournalEntry) -> Iterator[Mapping[str, Any]]:
    tasks = entry.put.get("tasks", {})
    yield from (
        tasks if isinstance(tasks, list) else tasks.values()
    )  # the first entry is a board as people write it


def _events(entry: JournalEntry) -> Iterator[str]:
    for fields in _tasks_in(entry):
        yield from (move["event"] for move in fields.get("history", ()))


def base_of(entries: Iterable[JournalEntry]) -> str | None:
    """Return the commit that the first task was begun at: the integration branch before the first merge."""
    bases = (fields.get("base_commit") for entry in entries for fields in _tasks_in(entry))
    return next((base for base in bases if base), None)


def initial_board(state: State, config: Config) -> tuple[State, list[Task]]:
    """Return an empty board with the goal and the notes of *state*, and its tasks with nothing done yet."""
    goal = state.goal.replace(status=GoalStatus.IN_PROGRESS, completed=None, questions=())
    notes = {note.id: note.replace(processed=None, processed_by=None) for note in state.human_notes.values()}
    return State(revision=1, goal=goal, config=config, human_notes=notes), [
        _fresh_task(task) for task in state.tasks.values()
    ]


def _fresh_task(task: Task) -> Task:
    status = Status.DRAFT if task.status is Status.DRAFT else Status.IDLE
    return Task(status=status, **{name: getattr(task, name) for name in TASK_FIELDS})


def with_changes(config: Config, changes: Iterable[str]) -> Config:
    """Return *config* after *changes*, each as `limits.max_rejections=2`; raise what is wrong with one."""
    settings = config.model_dump(mode="json")
    for change in changes:
        key, equals, value = change.partition("=")
        if not (key and equals):
            raise UsageError(f"--with {change!r} changes nothing; write KEY=VALUE, such as workers.coder=4")
        *above, last = key.split(".")
        if why := FIXED_SETTINGS.get([*above, last][0]):
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
        raise UsageError(f"--with {'; '.join(map(str, violations_from(error, Config, '', {})))}") from error


def _value(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text  # a word or a command, which nobody wants to quote twice


def _table(recorded: RunMeasures, rehearsed: RunMeasures) -> Iterator[str]:
    yield f"{'':<14}{'recorded':>12}{'rehearsed':>12}{'difference':>12}"
    for name, (label, unit) in _ROWS.items():
        one, other = getattr(recorded, name), getattr(rehearsed, name)
        apart = "-" if one is None or other is None else format(other - one, f"+{unit}")
        values = ("-" if value is None else format(value, unit) for value in (one, other))
        yield f"{label:<14}{''.join(f'{value:>12}' for value in (*values, apart))}"


_ROWS: Final = {
    "wall_seconds": ("wall time, s", "z.1f"),
    "agent_seconds": ("agent time, s", "z.1f"),
    "usd": ("cost, USD", "z.2f"),
    "runs": ("runs", "d"),
    "merges": ("merges", "d"),
    "rejections": ("rejections", "d"),
}


def replay_run(
    path: Path, start: Path, changes: Iterable[str], *, pace: float, screen: TextIO | None = None
) -> Comparison:
    """Play the recording at *path* in a clone of the repository around *start*; return what differs.

    *screen* is where to show it as it goes.
    """
    if not 0 <= pace < inf:
        raise UsageError(f"--pace {pace} is no pace; 0 is at once, 1 as long as it took, 0.5 half as long")
    path = path.resolve()
    recording, repository = load_recording(path), Repository.around(start)
    source = _source(path, recording, repository)
    config = with_changes(source.state.config, changes)
    played = AgentChoice(backend="replay", command=(str(path), format(pace, "f")))
    config = config.replace(agents=Agents(default=played), notify=Notify())
    recorded = measures_of(recording.runs, source.entries)
    limit = PATIENCE + SLOWDOWN * (recorded.wall_seconds or 0.0) + pace * recorded.agent_seconds
    # A gate may leave what cannot be removed, as a read-only cache: no reason to lose the result.
    with TemporaryDirectory(prefix="liza-rehearsal-", ignore_cleanup_errors=True) as folder:
        root = Path(folder).resolve() / repository.root.name
        home = _create_board(clone_repository(repository, root, at=source.base), source.state, config)
        run = _run_clone(root, limit, screen)
        runs, entries, left = _results(home)
    if run.is_late:
        left.append(f"it was ended: it took longer than {limit:.0f} s")
    remarks = (*source.remarks, *_remarks(pace), *unplayed_remarks(recording.runs, runs), *left)
    return Comparison(run.code, recorded, measures_of(runs, entries), remarks)


def _source(path: Path, recording: Recording, repository: Repository) -> ReplaySource:
    """Return the board beside a folder of runs as it was at the first of them, or what stands in for it."""
    if path.is_dir() and has_board(path.parent):
        with closing(open_board(path.parent)) as board:
            entries = tuple(board.entries())
            first = min(run.began for run in recording.runs if run.began)
            return _with_base(repository, board.at(max(first, entries[0].at))[0], entries)
    home = repository.root / HOME
    if home.is_dir():
        with closing(open_board(home)) as board:
            state = _without_plan(board.read())
        return _with_base(repository, state, None, f"goal and settings are those of {home}")
    said = recording.about.strip() or f"Rehearse {path.name}"
    config = effective_config(repository.root, {})[0]
    state = State(revision=1, goal=Goal(description=said, created=utc_now()), config=config)
    return _with_base(repository, state, None, "there is no board, so the settings are those of `liza init`")


def _without_plan(state: State) -> State:
    """Return the board without what a planner added: it does so again."""
    return state.replace(
        tasks={task.id: task for task in state.tasks.values() if task.created_by == HUMAN.id}
    )


def _with_base(
    repository: Repository, state: State, entries: tuple[JournalEntry, ...] | None, *remarks: str
) -> ReplaySource:
    base = base_of(entries or ())
    if base and repository.commit_at(base):
        return ReplaySource(state, base, entries, remarks)
    integration = BRANCHES + state.config.integration_branch
    head = repository.head()
    if head is None:
        raise UsageError(f"{repository.root} has no commit to rehearse at; make one")
    answer = repository.ask("merge-base", integration, head)
    base, what = (
        (answer.text, "where the integration branch left HEAD") if answer.code == 0 else (head, "HEAD")
    )
    return ReplaySource(
        state, base, entries, (*remarks, f"no base commit is known; it began at {base[:12]}, {what}")
    )


def _create_board(clone: Repository, before: State, config: Config) -> Path:
    exclude(clone.root, IGNORED)
    state, tasks = initial_board(before, config)
    state = state.replace(workflow=workflow_to_adopt(config, clone.root))
    with closing(create_board_at(clone.root / HOME, state)) as board:
        for task in tasks:
            board.update(add_task(task, by=HUMAN, at=utc_now()))
        return board.home


class _ProcessEnd(NamedTuple):
    """How the supervisor of a rehearsal ended."""

    code: int
    is_late: bool


def _run_clone(root: Path, seconds: float, screen: TextIO | None) -> _ProcessEnd:
    """Run to the end, or for *seconds*; in another process, because a supervisor lets go when it ends."""
    words = [sys.executable, "-m", "liza", "-C", str(root), "run", "--until-idle"]
    beside = Path(liza.__file__).parents[1]
    with (root.parent / "log").open("w+b") as log:
        # A group of its own, so that Ctrl-C reaches it once, through us: a second one would mean now.
        run = subprocess.Popen(words, cwd=beside, stdout=screen or log, stderr=log, process_group=0)
        with _forward_signals(run):
            done = _wait(run, seconds)
        if done.code not in EXIT_CODES.values():
            log.seek(0)
            raise LizaError(f"the rehearsal did not run: {log.read().decode(errors='replace').strip()}")
    return done


def _wait(run: subprocess.Popen[bytes], seconds: float) -> _ProcessEnd:
    try:
        return _ProcessEnd(run.wait(seconds), is_late=False)
    except subprocess.TimeoutExpired:
        run.terminate()
        return _ProcessEnd(run.wait(), is_late=True)


@contextmanager
def _forward_signals(run: subprocess.Popen[bytes]) -> Iterator[None]:
    """Let *run* hear of signals that ask us to end, and clear up after it."""
    before = {
        number: signal.signal(number, lambda *_: run.terminate())
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _results(home: Path) -> tuple[tuple[RecordedRun, ...], tuple[JournalEntry, ...], list[str]]:
    """Return what ran in *home*, what the journal says of it, and what was left to people."""
    with closing(open_board(home)) as board:
        entries, state = tuple(board.entries()), board.read()
    runs = load_recording(home / RUNS).runs if any((home / RUNS).glob(f"*/{REPLY}")) else ()
    left = [f"it ended early: {_clip(wait.what)}" for wait in human_waits(state)]
    return runs, entries, left


def _remarks(pace: float) -> Iterator[str]:
    if pace == 0:
        yield "agents answered at once, so the wall time is Liza's own; `--pace 1` takes as long as they took"
