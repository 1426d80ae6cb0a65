"""The one process that stays: it keeps workers alive, gives back what the dead held, and obeys switches.

It does I/O and decides nothing: who starts when is `staff`, what to put right is `recovery`, who can make
progress is `outlook`. It remembers nothing that matters, so it may die at any line and be started again.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import ExitStack, suppress
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Final

import liza
from liza import life, limits
from liza.agents.kernel import adopt_orphans
from liza.agents.protocol import Stop
from liza.agents.sweep import MARK, swept
from liza.bell import Bell
from liza.board.disk import has_no_writer
from liza.board.file import FileBoard
from liza.board.rejected import alert
from liza.changes import SUPERVISOR, Change, begin_next_goal
from liza.config import SandboxMode
from liza.errors import (
    AlreadyRunning,
    DiskTrouble,
    GitFailed,
    InvalidBoard,
    LizaError,
    SharedRepository,
    UnfitRepository,
)
from liza.lifecycle import SUCCEEDED
from liza.model import GoalStatus
from liza.project import TEAM_FILE, switches_of
from liza.record import utc_now
from liza.repo.git import mark_processes
from liza.repo.pool import Worktrees
from liza.repo.repository import BRANCHES, Repository
from liza.report.progress import outcome
from liza.report.summary import checkpoint
from liza.roles import outlook, planner, recovery, staff
from liza.settings import apply_team_file
from liza.space import shortage
from liza.supervision import sprinting
from liza.supervision.alarms import Alarm, alarms, stale
from liza.supervision.crew import Crew
from liza.supervision.guard import Guard, named_in
from liza.supervision.papers import write
from liza.supervision.rescue import RUNS, Scene, await_end, is_of, orphaned
from liza.supervision.telling import Courier, Told
from liza.switches import Switch, thrown
from liza.work import trunk
from liza.work.baseline import Ground, try_base
from liza.work.caging import is_caged, kept, required, tidied, uncaged, warning
from liza.work.course import Halted
from liza.work.flows import workflow_of
from liza.work.lookout import Lookout
from liza.work.planning import LOCK as PLANNING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from liza.model import State
    from liza.report.screen import View
    from liza.roles.staff import Post

LOOK: Final = 0.5  # seconds between two looks at switches and leases while nothing happens
LULL: Final = 0.1  # seconds in which many changes of the board wake us once
GRACE: Final = 5.0  # seconds a worker gets to end by itself, and again between SIGTERM and SIGKILL
CHECKPOINTS: Final = "checkpoints"
SUMMARY_TIME: Final = "%Y%m%dT%H%M%S.%fZ"  # a summary is named after the moment of the throw
ONE_THROW: Final = timedelta(seconds=2)  # within which a switch may change its time and is the same
_NEVER: Final = datetime.fromtimestamp(0, UTC)
SINCE: Final = "it came while no run was going on"


class Ending(Enum):
    """Why a run ends."""

    COMPLETE = auto()
    ONLY_PEOPLE = auto()
    ABORT = auto()
    ASKED = auto()


EXIT_CODES: Final = {Ending.COMPLETE: 0, Ending.ONLY_PEOPLE: 3, Ending.ABORT: 4, Ending.ASKED: 4}
# Whoever ends a run by hand wants it to end; the next one clears up.
UNHURRIED: Final = frozenset({Ending.COMPLETE, Ending.ONLY_PEOPLE})
# The part of the grace that workers get before a signal tells them: some see by themselves that it is over.
PATIENCE: Final = {Ending.COMPLETE: 0.2, Ending.ONLY_PEOPLE: 0.0, Ending.ABORT: 1.0, Ending.ASKED: 0.0}


def supervise(  # noqa: PLR0913 - each is what one caller wants otherwise
    home: Path,
    view: View,
    *,
    until_idle: bool = False,
    worker: Sequence[str] = (),
    grace: float = GRACE,
    ready: Callable[[], None] = lambda: None,
    baseline: bool = True,
) -> int:
    """Run until the goal is complete or somebody stops it; return the exit code.

    *ready* is called once this is the one supervisor and the project can be worked on; the project's own
    gates are tried first, unless *baseline* is False.
    """
    # Heard from before the lock is: who sees that it is held may send one.
    with ExitStack() as stack:
        bell = stack.enter_context(Bell().hearing_signals())
        stack.enter_context(life.held(home / life.SUPERVISOR, at=utc_now()))
        board = FileBoard(home)
        mark_processes(MARK, str((home / RUNS).resolve() / "supervisor.git"))
        repository = Repository.around(home.parent)
        _be_alone(repository, stack)
        board.absorb()
        applied = apply_team_file(board, home.parent, fit=workflow_of)
        state = board.read()
        workflow_of(state.config, home.parent)
        scene = Scene(board, repository)
        mended = scene.mend_refs(state)
        repository.ensure_branch(state.config.integration_branch)
        required(state.config.sandbox)
        if baseline and not _tries_base(Ground(home, repository, state.config), view, bell):
            return EXIT_CODES[Ending.ASKED]
        ready()
        alarming = (*mended, *applied.sentences())
        for sentence in alarming:
            alert(home, utc_now(), sentence)
        for one in (*alarming, *(f"applied from {TEAM_FILE}: {one}" for one in applied.done)):
            view.say(one)
        crew = Crew(home, worker or worker_command(home), Path(liza.__file__).parents[1])
        return Supervisor(scene, crew, view, bell, until_idle=until_idle, grace=grace).run()


def _be_alone(repository: Repository, stack: ExitStack) -> None:
    """Be the one supervisor of all checkouts of *repository*: they share the branches that it moves."""
    path = repository.common / life.IN_GIT
    try:
        stack.enter_context(life.held(path, at=utc_now()))
    except AlreadyRunning as error:
        raise SharedRepository(str(life.holder(path) or "another process")) from error


def _tries_base(ground: Ground, view: View, bell: Bell) -> bool:
    """Try the project's own gates on what work is based on; return False where somebody stopped it.

    What is worth knowing is said; where work could not be judged, it raises RedBase.
    """
    stop, over = Stop(), threading.Event()

    def listen() -> None:
        while not over.wait(LULL):
            if bell.asked or thrown(switches_of(ground.home)) is Switch.ABORT:
                stop.ask()

    listener = threading.Thread(target=listen, name="baseline", daemon=True)
    listener.start()
    try:
        found = try_base(ground, stop, view.say)
    except Halted:
        return False
    finally:
        over.set()
        listener.join()
    if found is not None:
        found.require_fit()
        for line in found.lines():
            view.say(line)
    return True


def worker_command(home: Path) -> list[str]:
    """Return the words that start a worker, but for its role and name; run beside this very package."""
    return [sys.executable, "-m", "liza", "-C", str(home.parent), "worker"]


class Supervisor:
    def __init__(
        self, scene: Scene, crew: Crew, view: View, bell: Bell, *, until_idle: bool, grace: float
    ) -> None:
        self._scene = scene
        self._board = scene.board
        self._crew = crew
        self._view = view
        self._until_idle = until_idle
        self._grace = grace
        self._clock = utc_now
        self._posts: dict[str, Post] = {}
        self._gone: list[tuple[str, int]] = []  # workers that ended and are not buried yet
        self._trouble = ""
        self._guard = Guard(scene.board, scene.home)
        self._told = Told(scene.home)
        self._said: set[str] = set()  # keys of alarms that this very run has said
        self._courier = Courier(scene.home)
        self._collected = time.monotonic()
        self._spared: frozenset[str] = frozenset()  # workers that are too many and were asked to end
        self._shortage: str | None = None  # why nothing new starts
        self._recycled: set[str] = set()  # tasks whose worktree went back to the pool
        self._summarised: datetime | None = None  # when the CHECKPOINT was thrown that has its summary
        self._is_halting = False  # whoever has to end a turn at a CHECKPOINT was named
        self._bell = bell

    def run(self) -> int:
        adopt_orphans()
        self._recover()
        self._warn()
        threading.Thread(target=self._listen, name="board", daemon=True).start()
        self._courier.start()
        is_over = threading.Event()
        threading.Thread(target=self._crew.end_stopped, args=(is_over,), name="stopped", daemon=True).start()
        try:
            ending = self._watched()
            if ending is Ending.ABORT:
                # A worker looks at the switches beside what it waits for, such as the board; a signal stops
                # its agent at once. What takes longer is saving the work.
                self._crew.send(signal.SIGTERM, self._crew.names)
            self._dismiss(PATIENCE[ending] * self._grace)
            self._leave(ending)
        except BaseException as error:
            if isinstance(error, InvalidBoard):
                self._alert(f"the run ended, because the board is not valid: {error}")
            self._dismiss(0.0)
            raise
        finally:
            is_over.set()
            self._courier.close()
        return EXIT_CODES[ending]

    def _warn(self) -> None:
        """Say it where agents run free: now, in the alerts, and on the board where nobody chose it.

        Where they are caged, the board says that they always are: a trial that fails another time must not
        let them go free.
        """
        sandbox, at = self._board.read().config.sandbox, self._clock()
        if (always := kept(sandbox)) is not sandbox:
            self._board.update(
                Change(SUPERVISOR.id, "keep the sandbox", lambda state: _with_sandbox(state, always.mode))
            )
        free = warning(sandbox)
        if free is None:
            return
        self._alert(f"WARNING: {free}")
        if sandbox.mode is not SandboxMode.OFF:
            self._board.update(
                Change(SUPERVISOR.id, "warn", lambda state: uncaged(state, free, by=SUPERVISOR.id, at=at))
            )

    def _watched(self) -> Ending:
        while (ending := self._tried()) is None:
            self._bell.rest(self._pause())
        return ending

    def _tried(self) -> Ending | None:
        """Take a turn; a full disk, or a repository that somebody is at, may be better at the next."""
        try:
            ending = self._turn()
        except (DiskTrouble, GitFailed, UnfitRepository) as error:
            if str(error) != self._trouble:
                self._alert(f"trouble, tried again until it is over: {error}")
            self._trouble = str(error)
            return None
        self._trouble = ""
        return ending

    def _turn(self) -> Ending | None:
        self._gone += self._crew.reap()
        switches = switches_of(self._scene.home)
        switch = thrown(switches)
        if switch is Switch.ABORT or self._bell.asked:
            return Ending.ABORT if switch is Switch.ABORT else Ending.ASKED
        while self._gone:
            self._bury(*self._gone[0])
            self._gone.pop(0)
        state = self._guard.look(self._reclaim(self._board.read()), self._clock())
        self._look_at_space(state)
        if self._guard.hold(state, switches):
            switches = switches_of(self._scene.home)
        self._guard.report(state)
        self._summarise(state, switches)
        self._view.show(state, switches)
        self._courier.nudge(state.config.notify)
        if ending := self._outlook(state):
            return ending
        state = self._board.read()  # another goal may have begun
        state = sprinting.kept(self._board, self._scene.home, state, switches, self._clock())
        halted = Switch.CHECKPOINT.name in switches and not self._is_halting
        if self._until_idle and state.sprint.ended and halted:
            return Ending.ONLY_PEOPLE
        if thrown(switches) is Switch.NORMAL:
            # First, since what cannot be cleared up must not keep anybody from working.
            self._man(state)
            self._recycle(state)
            self._collect()
        return None

    def _outlook(self, state: State) -> Ending | None:
        """Tell people what waits for them, and return whether that, or nothing more to do, ends the run."""
        now = self._clock()
        if planner.is_complete(state):
            done = Change(SUPERVISOR.id, "complete the goal", lambda latest: planner.completed(latest, now))
            state = self._board.update(done)
        if state.goal.is_over:
            return Ending.COMPLETE
        if state.goal.status is not GoalStatus.IN_PROGRESS:
            state = self._begin_next_goal()
        named = named_in(workflow_of(state.config, self._scene.home.parent))
        self._tell(alarms(state, now, named))
        idle = not any(task.lease for task in state.tasks.values())
        stuck = outlook.only_people(state, now) or (self._shortage and idle)
        return Ending.ONLY_PEOPLE if self._until_idle and stuck else None

    def _begin_next_goal(self) -> State:
        """Look back on the goal that is over, and go on with the next."""
        self._celebrate()
        now = self._clock()
        begin = Change(SUPERVISOR.id, "begin the next goal", lambda latest: begin_next_goal(latest, now))
        state = self._board.update(begin)
        self._view.say(f"goal {state.goal.number} begins: {state.goal.description}")
        return state

    def _look_at_space(self, state: State) -> None:
        """Tell people once that the disk has too little room; what only waits to be used again goes."""
        before = self._shortage
        self._shortage = shortage(self._scene.repository.root, state.config.limits.free_disk_mb)
        if self._shortage and not before:
            self._alert(self._shortage)
            facts = self._scene.facts(self._clock(), living=self._crew.names)
            self._scene.perform(recovery.pruned(facts, most=0), facts)
            Worktrees(self._scene.repository).thin()
        elif before and not self._shortage:
            self._view.say("there is room on the disk again, and work goes on")

    def _bury(self, name: str, code: int) -> None:
        """Clear up after a worker whose process ended, before anybody else may take what it held."""
        self._sweep(lambda run: is_of(run, name))
        if name in self._crew.stopped:
            self._alert(f"{name} was stopped by somebody (SIGSTOP), so it was ended and is replaced")
            self._crew.stopped.discard(name)
        if code == InvalidBoard.exit_code:
            # Who has the board in memory does not see what was done to older lines; this raises if it is so.
            _check(self._scene.home)
        code = 0 if name in self._spared else code
        post = staff.vacated(self._posts[name], code, time.monotonic())
        now = self._clock()
        tasks = self._board.read().tasks.values()
        self._scene.secure([task.id for task in tasks if task.lease and task.lease.holder == name], at=now)
        reclaim = recovery.reclaimed(self._crew.names, at=now, killed=code == staff.KILLED)
        if staff.is_crash(code):
            why = f"{len(post.crashes)} crashes in five minutes; the last one {staff.told(code)}"
            crash = staff.crashed(post, why, at=now)
            self._board.update(Change(crash.by, crash.what, lambda state: crash(reclaim(state))))
            self._tell_crash(post, code)
        else:
            self._board.update(reclaim)
        # Last, because all of this is done again where the disk was full.
        self._posts[name] = post
        self._spared -= {name}

    def _tell_crash(self, post: Post, code: int) -> None:
        words = self._crew.last_words(post.name)
        told = f"{post.name} {staff.told(code)}{f': {words}' if words else ''}"
        if post.is_stopped:
            log = f"{life.WORKERS}/{post.name}.log"
            self._alert(f"{told}; it is not started again in this run, see {log}")
        else:
            self._view.say(f"{told}; it is started again")

    def _sweep(self, whose: Callable[[str], bool]) -> None:
        found = swept(self._scene.home / RUNS, whose)
        if found.survivors:
            self._alert(f"these processes could not be ended: {', '.join(found.survivors)}")

    def _reclaim(self, state: State) -> State:
        """Take back what is held by nobody who lives; a worker started by hand shows its life by its lock."""
        now = self._clock()
        holders = {task.lease.holder for task in state.tasks.values() if task.lease}
        living = self._crew.names
        if holders - living:
            living |= life.living(self._scene.home)
        if dead := [task.id for task in state.tasks.values() if recovery.why_dead(task, living, now)]:
            self._scene.secure(dead, at=now)
            return self._board.update(recovery.reclaimed(living, at=now))
        return state

    def _summarise(self, state: State, switches: dict[str, str]) -> None:
        """Write the summary of a CHECKPOINT once nobody works any more, once a throw."""
        path = self._scene.home / Switch.CHECKPOINT.name
        if path.name not in switches:
            self._summarised = _NEVER
            return
        if not _is_written(path):
            return
        try:
            thrown_at = datetime.fromtimestamp(path.stat().st_mtime, UTC)
        except FileNotFoundError:
            return  # taken back at this moment
        said = switches_of(self._scene.home).get(path.name, "")
        if self._summarised is None:  # a run before this one may have written it
            self._summarised = _latest_summary(self._scene.home / CHECKPOINTS)
        # `touch` makes the file first and sets its time then: that is one throw.
        if abs(thrown_at - self._summarised) > ONE_THROW:
            self._halt(state, thrown_at, said)
        hours = state.config.limits.checkpoint_hours
        self._tell(filter(None, [stale(thrown_at, self._clock(), hours, said)]))

    def _halt(self, state: State, thrown_at: datetime, said: str) -> None:
        """Write the summary, or say who has to end their turn before it makes sense."""
        busy = sorted(task.lease.holder for task in state.tasks.values() if task.lease)
        if life.is_held(self._scene.home / PLANNING):
            busy.append("the planner")
        if busy and not self._is_halting:
            self._view.say(f"CHECKPOINT: {', '.join(busy)} will end the turn that was begun, then all wait")
        self._is_halting = bool(busy)
        if busy:
            return
        summary = self._scene.home / CHECKPOINTS / f"{thrown_at:{SUMMARY_TIME}}.md"
        write(summary, checkpoint(state, self._clock(), said))
        self._summarised = thrown_at
        self._view.say(f"the summary of this checkpoint is in {summary}")

    def _man(self, state: State) -> None:
        """Have a process at every post that is due, and none at those that are no longer wanted."""
        now = time.monotonic()
        self._enlist(state)
        self._spare(state)
        for post in [post for post in self._posts.values() if staff.is_due(post, now)]:
            self._crew.start(post)
            self._posts[post.name] = staff.filled(post, now)

    def _enlist(self, state: State) -> None:
        known = self._posts
        self._posts = staff.staffed(known, state.config.workers)
        if new := [post for name, post in self._posts.items() if name not in known]:
            self._board.update(staff.enlisted(new, at=self._clock()))
        if gone := known.keys() - self._posts.keys():
            self._board.update(recovery.stopped(gone, at=self._clock()))

    def _spare(self, state: State) -> None:
        """Ask workers that are too many to end, each once it holds nothing; asked twice, it ends unsaved."""
        busy = {task.lease.holder for task in state.tasks.values() if task.lease}
        spare = self._crew.names - staff.names(state.config.workers).keys() - busy - self._spared
        self._crew.send(signal.SIGTERM, spare)
        self._spared |= spare

    def _collect(self) -> None:
        """Clear up what finished tasks left."""
        if time.monotonic() - self._collected < recovery.SOON.total_seconds():
            return
        self._collected = time.monotonic()
        facts = self._scene.facts(self._clock(), living=self._crew.names)
        self._miss_branch(facts.state.config.integration_branch)
        self._scene.perform(recovery.pruned(facts), facts)

    def _recycle(self, state: State) -> None:
        """Give the oldest worktrees of tasks that succeeded, but those that are kept, to who needs one next.

        One a turn, so that nothing else waits for long; what was given up may have an agent in it still.
        """
        done = [task.id for task in recovery.finished_first(state) if task.status in SUCCEEDED]
        spare = done[: max(0, len(done) - state.config.limits.kept_worktrees)]
        name = next((name for name in spare if name not in self._recycled), None)
        if name is None:
            return
        self._recycled.add(name)
        Worktrees(self._scene.repository).release(name, at=self._clock())
        self._bell.ring()

    def _miss_branch(self, name: str) -> None:
        """Tell people that the integration branch is gone, once until it is back."""
        key = f"gone {name}"
        if self._scene.repository.commit_at(BRANCHES + name) is not None:
            self._said.discard(key)
        elif key not in self._said:
            self._said.add(key)
            back = f"`git branch {name} COMMIT` puts it back, and `liza log` has the commits"
            self._alert(f"the integration branch {name} is gone; {back}")

    def _recover(self) -> None:
        """Put right what the last run left. Its workers see that it is gone, save their work and end."""
        await_end(orphaned(self._scene.home), self._grace)
        facts = self._scene.named_facts(self._clock())
        for action in recovery.plan(facts):
            self._view.say(str(action))
        if survivors := self._scene.perform(recovery.settling(facts), facts):
            self._alert(f"these processes could not be ended: {', '.join(survivors)}")
        self._clear_up()
        self._look_around()
        self._board.update(Change(SUPERVISOR.id, "reopen the goal", outlook.reopened))
        # Whoever starts a run has mended what a provider did not accept, or wants to see it said again.
        state = self._board.update(limits.retried(SUPERVISOR, self._clock(), refused_only=True))
        done = {task.id for task in state.tasks.values() if task.status in SUCCEEDED}
        self._recycled = done - set(Worktrees(self._scene.repository).tasks())
        # Before anybody looks at the board: whoever was stopped in the last run has another chance in this.
        self._enlist(state)

    def _look_around(self) -> None:
        """Take what people did since the last run as theirs, before anybody else can be taken for them."""
        scene, state = self._scene, self._board.read()
        head = scene.repository.commit_at(BRANCHES + state.config.integration_branch)
        if head is None:
            return
        if is_caged(state.config.sandbox):
            state = trunk.note_base(self._board, head, by=SUPERVISOR.id)
            if found := trunk.strangers(scene.repository, scene.home, state, head):
                at = self._clock()
                self._alert(trunk.take_as_yours(self._board, found, SINCE, by=SUPERVISOR.id, at=at))
            return
        seen = Lookout(scene.home, self._board, scene.repository, SUPERVISOR.id).start()
        for sentence in (*seen.told, *seen.strange):
            self._alert(sentence)

    def _dismiss(self, patience: float) -> None:
        """End every worker: by itself within *patience*, then by SIGTERM, then by SIGKILL."""
        steps = ((None, patience), (signal.SIGTERM, self._grace), (signal.SIGKILL, GRACE))
        for number, seconds in steps:
            if number is not None:
                self._crew.send(number, self._crew.names)
            deadline = time.monotonic() + seconds
            while self._crew.names and not self._is_urgent(number) and time.monotonic() < deadline:
                self._bell.rest(min(LOOK, deadline - time.monotonic()))
                for _ in self._crew.reap():
                    pass
        self._sweep(lambda _: True)

    def _is_urgent(self, number: signal.Signals | None) -> bool:
        """Tell whether the next step should come at once: a second signal means now."""
        return self._bell.asked > 1 and number is not signal.SIGKILL

    def _leave(self, ending: Ending) -> None:
        facts = self._scene.facts(self._clock())
        self._scene.perform(recovery.settling(facts), facts)
        if ending in UNHURRIED:
            self._clear_up(drain=ending is Ending.COMPLETE)
        if ending is Ending.COMPLETE:
            self._celebrate()
        life.bury(self._scene.home)
        state = self._board.read()
        self._view.show(state, switches_of(self._scene.home))
        self._view.say(f"{_FAREWELLS[ending]}: {outcome(state)}")

    def _clear_up(self, *, drain: bool = False) -> None:
        """Remove what nobody needs any more; where that fails, the work is done all the same."""
        try:
            facts = self._scene.facts(self._clock())
            self._scene.perform(recovery.clearing(facts), facts)
            tidied(self._scene.home, self._scene.repository)
            if drain:
                Worktrees(self._scene.repository).drain()
        except (DiskTrouble, GitFailed, UnfitRepository, OSError) as error:
            first = str(error).strip().splitlines()[0]
            self._alert(f"not everything could be cleared up, which `liza recover` tries again: {first}")

    def _celebrate(self) -> None:
        """Look back on the last sprint and tell people that there is nothing more to do."""
        state = self._board.read()
        try:
            sprinting.kept(self._board, self._scene.home, state, {}, self._clock())
        except DiskTrouble as error:  # the work is done all the same
            self._alert(f"there is no retrospective: {error}")
        key = f"goal {state.goal.status} {state.goal.completed}"
        self._tell([Alarm(key, f"the goal is {state.goal.status}: {outcome(state)}")])
        self._courier.nudge(state.config.notify)

    def _tell(self, found: Iterable[Alarm]) -> None:
        """Tell each alarm once, however many supervisors see it; what still waits is said in every run."""
        for alarm in found:
            is_news = self._told.is_news(alarm)
            if is_news and self._logged(alarm.says):
                self._told.remember(alarm)
            if (is_news or alarm.stands) and alarm.key not in self._said:
                self._view.say(alarm.says)
            self._said.add(alarm.key)

    def _alert(self, sentence: str) -> None:
        self._logged(sentence)
        self._view.say(sentence)

    def _logged(self, sentence: str) -> bool:
        try:
            alert(self._scene.home, self._clock(), sentence)
        except OSError:  # the disk may be what the alert is about
            return False
        return True

    def _pause(self) -> float:
        now = time.monotonic()
        if self._trouble or thrown(switches_of(self._scene.home)) is not Switch.NORMAL:
            return LOOK  # nobody is started now, however due
        dues = (
            post.due - now for post in self._posts.values() if post.began is None and post.due is not None
        )
        return max(0.0, min([LOOK, *dues]))

    def _listen(self) -> None:
        """Ring when the board changes; a board that cannot be read is for the main thread to meet."""
        seen = self._board.read().revision
        with suppress(LizaError):
            while True:
                seen = self._board.wait(seen, timeout=60.0).revision
                self._bell.ring()
                time.sleep(LULL)
        self._bell.ring()


_FAREWELLS: Final = {
    Ending.COMPLETE: "Done",
    Ending.ONLY_PEOPLE: "Only people can make progress",
    Ending.ABORT: "Ended by ABORT (`liza resume` takes it back)",
    Ending.ASKED: "Ended as asked",
}


def _with_sandbox(state: State, mode: SandboxMode) -> State:
    return state.but(config=state.config.but(sandbox=state.config.sandbox.but(mode=mode)))


def _latest_summary(folder: Path) -> datetime:
    """Return when the last CHECKPOINT was thrown that has a summary in *folder*."""
    latest = max((path.stem for path in folder.glob("*.md")), default=None) if folder.is_dir() else None
    return datetime.strptime(latest, SUMMARY_TIME).replace(tzinfo=UTC) if latest else _NEVER


def _is_written(switch: Path) -> bool:
    """Return whether nobody is just writing the file: a shell makes it first, and then writes its words."""
    try:
        return has_no_writer(switch)
    except OSError:  # a link, or taken back at this moment
        return True


def _check(home: Path) -> None:
    """Raise what is wrong with the board to somebody who opens it."""
    board = FileBoard(home)
    try:
        board.read()
    finally:
        board.close()
