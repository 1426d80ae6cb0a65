"""The one process that stays: it keeps workers alive, gives back what the dead held, and obeys switches.

It does I/O and decides nothing: who starts when is `staff`, what to put right is `recovery`, who can make
progress is `outlook`. It remembers nothing that matters, so it may die at any line and be started again.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime, timedelta
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Final

import liza
from liza.board.protocol import PLANNING_NAME, SUPERVISOR_NAME, open_board
from liza.daemon import integration_tip, sprint
from liza.daemon.baseline import BaselineContext, run_baseline
from liza.daemon.breaker import Breaker
from liza.daemon.course import Halted
from liza.daemon.cycle_page import CyclePage
from liza.daemon.files import write_report
from liza.daemon.flows import adopt_workflow, workflow_of
from liza.daemon.notify import Alarm, Notifier, SentAlarms, alarms
from liza.daemon.policy import planner, progress, recovery, staffing
from liza.daemon.project import TEAM_FILE
from liza.daemon.project_sandbox import (
    is_sandboxed,
    remove_stale_sandboxes,
    require_sandbox,
    sandbox_warning,
    with_no_sandbox_anomaly,
    with_required_mode,
)
from liza.daemon.recover import OWN_GIT, RUNS, Recovery, await_exit, is_run_of, orphaned_workers
from liza.daemon.reports.checkpoint import checkpoint_summary
from liza.daemon.reports.words import run_outcome
from liza.daemon.tamper import TamperMonitor
from liza.daemon.team_file import apply_team_file
from liza.daemon.travel import begin_integration
from liza.daemon.vetting import why_unvetted
from liza.daemon.worker_processes import WorkerProcesses
from liza.domain import providers
from liza.domain.changes import SUPERVISOR, Change, begin_next_goal
from liza.domain.config import SandboxMode
from liza.domain.lifecycle import SUCCEEDED
from liza.domain.model import GoalStatus, WorkerStatus
from liza.domain.record import utc_now
from liza.domain.switches import Switch, strongest_switch
from liza.errors import (
    AlreadyRunning,
    DiskTrouble,
    GitFailed,
    InvalidBoard,
    LizaError,
    RemoteTrouble,
    SharedRepository,
    UnfitRepository,
)
from liza.repo.command import mark_processes
from liza.repo.pool import Worktrees
from liza.repo.repository import BRANCHES, Repository
from liza.system import locks
from liza.system.disk_space import disk_shortage
from liza.system.fork_server import Entry, ForkServer
from liza.system.host import host
from liza.system.proc_table import RUN_MARK, sweep
from liza.system.run_control import RunControl
from liza.system.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from liza.board.protocol import Board
    from liza.daemon.policy.staffing import Slot
    from liza.daemon.view import View
    from liza.domain.model import State

POLL_INTERVAL: Final = 0.5  # seconds between two looks at switches and leases while nothing happens
DEBOUNCE: Final = 0.1  # seconds in which many changes of the board wake us once
GRACE: Final = 5.0  # seconds a worker gets to end by itself, and again between SIGTERM and SIGKILL
CHECKPOINTS: Final = "checkpoints"
SUMMARY_TIME: Final = "%Y%m%dT%H%M%S.%fZ"  # a summary is named after the moment of the throw
SAME_THROW_WINDOW: Final = timedelta(seconds=2)  # within which a switch may change its time and is the same
_NEVER: Final = datetime.fromtimestamp(0, UTC)
WHILE_STOPPED: Final = "it came while no run was going on"


class RunEnd(Enum):
    """Why a run ends."""

    COMPLETE = auto()
    ONLY_PEOPLE = auto()
    ABORT = auto()
    ASKED = auto()


EXIT_CODES: Final = {RunEnd.COMPLETE: 0, RunEnd.ONLY_PEOPLE: 3, RunEnd.ABORT: 4, RunEnd.ASKED: 4}
# Whoever ends a run by hand wants it to end; the next one clears up.
CLEAN_ENDS: Final = frozenset({RunEnd.COMPLETE, RunEnd.ONLY_PEOPLE})
# The part of the grace that workers get before a signal tells them: some see by themselves that it is over.
GRACE_BEFORE_SIGNAL: Final = {
    RunEnd.COMPLETE: 0.2,
    RunEnd.ONLY_PEOPLE: 0.0,
    RunEnd.ABORT: 1.0,
    RunEnd.ASKED: 0.0,
}


def supervise(  # noqa: PLR0913 - each is what one caller wants otherwise
    home: Path,
    view: View,
    *,
    until_idle: bool = False,
    worker: Sequence[str] = (),
    be_worker: Entry | None = None,
    grace: float = GRACE,
    ready: Callable[[], None] = lambda: None,
    baseline: bool = True,
    report: Callable[[Board], None] = lambda _: None,
) -> int:
    """Run until the goal is complete or somebody stops it; return the exit code.

    *report* is called at every checkpoint and at the end, and leaves people something to read.

    *ready* is called once this is the one supervisor and the project can be worked on; the project's own
    gates are tried first, unless *baseline* is False. Workers are forked and call *be_worker*, where the
    system lets us; else, and for want of it, they are programs started by *worker*.
    """
    with ExitStack() as stack:
        # First, as long as there is neither a thread nor a lock to be copied with the process.
        forks = (
            stack.enter_context(closing(ForkServer(be_worker)))
            if be_worker and host().ADOPTS_ORPHANS
            else None
        )
        # Heard from before the lock is: who sees that it is held may send one.
        bell = stack.enter_context(Wakeup().handle_signals())
        board = open_board(home)
        stack.enter_context(board.presence.hold(SUPERVISOR_NAME, at=utc_now()))
        mark_processes(RUN_MARK, str((home / RUNS).resolve() / OWN_GIT))
        repository = Repository.around(home.parent)
        _lock_repository(repository, stack)
        board.absorb()
        applied = apply_team_file(board, home.parent, fit=workflow_of)
        workflow_of(board.read().config, home.parent)
        if why_unvetted(home, repository, board.read()) is None:  # else the workers say so, and pause
            adopt_workflow(board, home.parent, by=SUPERVISOR.id)
        state = board.read()
        scene = Recovery(board, repository)
        mended = scene.repair_refs(state)
        begin_integration(repository, state.config)
        require_sandbox(state.config.sandbox)
        ground = BaselineContext(home, repository, state.config)
        # Under ABORT nothing is going to start.
        if baseline and not _is_aborted(board) and not _check_baseline(ground, board, view, bell):
            ending = RunEnd.ABORT if _is_aborted(board) else RunEnd.ASKED
            view.say(f"{_END_SENTENCES[ending]}: {run_outcome(state)}")
            return EXIT_CODES[ending]
        ready()
        alarming = (*mended, *applied.sentences())
        for sentence in alarming:
            board.alerts.append(sentence, at=utc_now())
        for one in (*alarming, *(f"applied from {TEAM_FILE}: {one}" for one in applied.done)):
            view.say(one)
        crew = WorkerProcesses(home, worker or worker_command(home), Path(liza.__file__).parents[1], forks)
        return Supervisor(scene, crew, view, bell, until_idle=until_idle, grace=grace, report=report).run()


def _lock_repository(repository: Repository, stack: ExitStack) -> None:
    """Be the one supervisor of all checkouts of *repository*: they share the branches that it moves."""
    path = repository.common / locks.LOCK_IN_GIT
    try:
        stack.enter_context(locks.hold_for_life(path, at=utc_now()))
    except AlreadyRunning as error:
        raise SharedRepository(str(locks.holder_of(path) or "another process")) from error


def _check_baseline(ground: BaselineContext, board: Board, view: View, bell: Wakeup) -> bool:
    """Try the project's own gates on what work is based on; return False where somebody stopped it.

    What is worth knowing is said; where work could not be judged, it raises RedBase.
    """
    stop, over = RunControl(), threading.Event()

    def listen() -> None:
        while not over.wait(DEBOUNCE):
            if bell.asked or _is_aborted(board):
                stop.ask()

    listener = threading.Thread(target=listen, name="baseline", daemon=True)
    listener.start()
    try:
        found = run_baseline(ground, stop, view.say)
    except Halted:
        return False
    finally:
        over.set()
        listener.join()
    if found is not None:
        found.require_usable()
        for line in found.lines():
            view.say(line)
    return True


def _is_aborted(board: Board) -> bool:
    return strongest_switch(board.switches.thrown()) is Switch.ABORT


def worker_command(home: Path) -> list[str]:
    """Return the words that start a worker, but for its role and name; run beside this very package."""
    return [sys.executable, "-m", "liza", "-C", str(home.parent), "worker"]


class Supervisor:
    def __init__(  # noqa: PLR0913 - as supervise
        self,
        scene: Recovery,
        crew: WorkerProcesses,
        view: View,
        bell: Wakeup,
        *,
        until_idle: bool,
        grace: float,
        report: Callable[[Board], None] = lambda _: None,
    ) -> None:
        self._recovery = scene
        self._report = report
        self._board = scene.board
        self._workers = crew
        self._view = view
        self._until_idle = until_idle
        self._grace = grace
        self._clock = self._board.now
        self._slots: dict[str, Slot] = {}
        self._gone: list[tuple[str, int]] = []  # workers that ended and are not buried yet
        self._trouble = ""
        self._breaker = Breaker(scene.board)
        self._page = CyclePage(scene.board, scene.repository)
        self._sent_alarms = SentAlarms(scene.home)
        self._said: set[str] = set()  # keys of alarms that this very run has said
        self._notifier = Notifier(scene.board)
        self._pruned_at = time.monotonic()
        self._stopping: frozenset[str] = frozenset()  # workers that are too many and were asked to end
        self._shortage: str | None = None  # why nothing new starts
        self._recycled: set[str] = set()  # tasks whose worktree went back to the pool
        self._summarised: datetime | None = None  # when the CHECKPOINT was thrown that has its summary
        self._is_halting = False  # whoever has to end a turn at a CHECKPOINT was named
        self._wakeup = bell

    def run(self) -> int:
        host().adopt_orphans()
        self._recover()
        self._warn_if_unsandboxed()
        threading.Thread(target=self._listen, name="board", daemon=True).start()
        self._notifier.start()
        is_over = threading.Event()
        threading.Thread(
            target=self._workers.kill_stopped, args=(is_over,), name="stopped", daemon=True
        ).start()
        try:
            ending = self._run_loop()
            if ending is RunEnd.ABORT:
                # A worker looks at the switches beside what it waits for, such as the board; a signal stops
                # its agent at once. What takes longer is saving the work.
                self._workers.send(signal.SIGTERM, self._workers.names)
            self._stop_workers(GRACE_BEFORE_SIGNAL[ending] * self._grace)
            self._leave(ending)
        except BaseException as error:
            if isinstance(error, InvalidBoard):
                self._alert(f"the run ended, because the board is not valid: {error}")
            self._stop_workers(0.0)
            raise
        finally:
            is_over.set()
            self._notifier.close()
        return EXIT_CODES[ending]

    def _warn_if_unsandboxed(self) -> None:
        """Say it where agents run free: now, in the alerts, and on the board where nobody chose it.

        Where they are caged, the board says that they always are: a trial that fails another time must not
        let them go free.
        """
        sandbox, at = self._board.read().config.sandbox, self._clock()
        if (always := with_required_mode(sandbox)) is not sandbox:
            self._board.update(
                Change(
                    SUPERVISOR.id, "keep the sandbox", lambda state: _with_sandbox_mode(state, always.mode)
                )
            )
        free = sandbox_warning(sandbox)
        if free is None:
            return
        self._alert(f"WARNING: {free}")
        if sandbox.mode is not SandboxMode.OFF:
            self._board.update(
                Change(
                    SUPERVISOR.id,
                    "warn",
                    lambda state: with_no_sandbox_anomaly(state, free, by=SUPERVISOR.id, at=at),
                )
            )

    def _run_loop(self) -> RunEnd:
        while (ending := self._try_turn()) is None:
            self._wakeup.rest(self._poll_delay())
        return ending

    def _try_turn(self) -> RunEnd | None:
        """Take a turn; a full disk, or a repository that somebody is at, may be better at the next."""
        try:
            ending = self._turn()
        except (DiskTrouble, GitFailed, RemoteTrouble, UnfitRepository) as error:
            if str(error) != self._trouble:
                self._alert(f"trouble, tried again until it is over: {error}")
            self._trouble = str(error)
            return None
        self._trouble = ""
        return ending

    def _turn(self) -> RunEnd | None:
        self._gone += self._workers.reap()
        switches = self._board.switches.thrown()
        switch = strongest_switch(switches)
        if switch is Switch.ABORT or self._wakeup.asked:
            return RunEnd.ABORT if switch is Switch.ABORT else RunEnd.ASKED
        while self._gone:
            self._after_exit(*self._gone[0])
            self._gone.pop(0)
        is_halted = Switch.CHECKPOINT.name in switches
        thrown_at = self._board.switches.thrown_at(Switch.CHECKPOINT) if is_halted else None
        self._page.sync()  # first: what a person added may be what everybody waits for
        state = self._breaker.look(self._reclaim(self._board.read()), self._clock(), thrown_at)
        self._check_disk_space(state)
        if self._breaker.hold(state, switches):
            switches = self._board.switches.thrown()
        self._breaker.report(state)
        self._summarise(state, switches)
        self._view.show(state, switches)
        self._notifier.nudge(state.config.notify)
        if ending := self._end_if_over(state):
            return ending
        state = self._board.read()  # another goal may have begun
        state = sprint.advance_sprint(self._board, state, switches, self._clock())
        halted = Switch.CHECKPOINT.name in switches and not self._is_halting
        if self._until_idle and state.sprint.ended and halted:
            return RunEnd.ONLY_PEOPLE
        if strongest_switch(switches) is Switch.NORMAL:
            # First, since what cannot be cleared up must not keep anybody from working.
            self._start_due(state)
            self._recycle(state)
            self._prune_worktrees()
        return None

    def _end_if_over(self, state: State) -> RunEnd | None:
        """Send the alarms, and return how the run ends if it is over."""
        now = self._clock()
        if planner.is_complete(state):
            done = Change(
                SUPERVISOR.id, "complete the goal", lambda latest: planner.with_goal_completed(latest, now)
            )
            state = self._board.update(done)
        if state.goal.is_over:
            return RunEnd.COMPLETE
        if state.goal.status is not GoalStatus.IN_PROGRESS:
            state = self._begin_next_goal()
        self._tell(alarms(state, now))
        idle = not any(task.lease for task in state.tasks.values())
        stuck = progress.only_people(state, now) or (self._shortage and idle)
        return RunEnd.ONLY_PEOPLE if self._until_idle and stuck else None

    def _begin_next_goal(self) -> State:
        """Look back on the goal that is over, and go on with the next."""
        self._announce_done()
        now = self._clock()
        begin = Change(SUPERVISOR.id, "begin the next goal", lambda latest: begin_next_goal(latest, now))
        state = self._board.update(begin)
        self._view.say(f"goal {state.goal.number} begins: {state.goal.description}")
        return state

    def _check_disk_space(self, state: State) -> None:
        """Tell people once that the disk has too little room; what only waits to be used again goes."""
        before = self._shortage
        self._shortage = disk_shortage(self._recovery.repository.root, state.config.limits.free_disk_mb)
        if self._shortage and not before:
            self._alert(self._shortage)
            facts = self._recovery.facts(self._clock(), living=self._workers.names)
            self._recovery.perform(recovery.worktrees_to_prune(facts, most=0), facts)
            Worktrees(self._recovery.repository).discard_parked()
        elif before and not self._shortage:
            self._view.say("there is room on the disk again, and work goes on")

    def _after_exit(self, name: str, code: int) -> None:
        """Clean up after a worker whose process ended, before its tasks can be claimed again."""
        self._sweep(lambda run: is_run_of(run, name))
        if name in self._workers.stopped:
            self._alert(f"{name} was stopped by somebody (SIGSTOP), so it was ended and is replaced")
            self._workers.stopped.discard(name)
        if code == InvalidBoard.exit_code:
            # Who has the board in memory does not see what was done to older lines; this raises if it is so.
            _require_valid_board(self._recovery.home)
        code = 0 if name in self._stopping else code
        post, ended_at, now = self._slots[name], time.monotonic(), self._clock()
        tasks = self._board.read().tasks.values()
        self._recovery.secure([task.id for task in tasks if task.lease and task.lease.holder == name], at=now)
        reclaim = recovery.reclaim_tasks(self._workers.names, at=now, killed=code == staffing.KILLED_CODE)
        is_crash = staffing.is_crash(code)
        if is_crash:
            crash = staffing.record_crash(post, staffing.exit_sentence(code), at=now)
            state = self._board.update(Change(crash.by, crash.what, lambda state: crash(reclaim(state))))
        else:
            state = self._board.update(reclaim)
        is_stopped = is_crash and state.agents[name].status is WorkerStatus.STOPPED
        post = staffing.with_exit(post, code, ended_at, is_stopped=is_stopped)
        if is_crash:
            self._tell_crash(post, code)
        # Last, because all of this is done again where the disk was full.
        self._slots[name] = post
        self._stopping -= {name}

    def _tell_crash(self, post: Slot, code: int) -> None:
        words = self._workers.last_words(post.name)
        told = f"{post.name} {staffing.exit_sentence(code)}{f': {words}' if words else ''}"
        if post.is_stopped:
            log = f"{locks.WORKERS_DIRECTORY}/{post.name}.log"
            self._alert(f"{told}; it is not started again in this run, see {log}")
        else:
            self._view.say(f"{told}; it is started again")

    def _sweep(self, whose: Callable[[str], bool]) -> None:
        found = sweep(self._recovery.home / RUNS, whose)
        if found.survivors:
            self._alert(f"these processes could not be ended: {', '.join(found.survivors)}")

    def _reclaim(self, state: State) -> State:
        """Take back what is held by nobody who lives; a worker started by hand shows its life by its lock."""
        now = self._clock()
        holders = {task.lease.holder for task in state.tasks.values() if task.lease}
        living = self._workers.names
        if holders - living:
            living |= self._board.presence.live_workers()
        if dead := [task.id for task in state.tasks.values() if recovery.why_dead(task, living, now)]:
            self._recovery.secure(dead, at=now)
            return self._board.update(recovery.reclaim_tasks(living, at=now))
        return state

    def _summarise(self, state: State, switches: dict[str, str]) -> None:
        """Write the summary of a CHECKPOINT once nobody works any more, once a throw."""
        if Switch.CHECKPOINT.name not in switches:
            self._summarised = _NEVER
            return
        thrown_at = self._board.switches.thrown_at(Switch.CHECKPOINT)
        if thrown_at is None:
            return  # taken back, or written, at this moment
        said = self._board.switches.thrown().get(Switch.CHECKPOINT.name, "")
        if self._summarised is None:  # a run before this one may have written it
            self._summarised = _last_summary_time(self._recovery.home / CHECKPOINTS)
        # `touch` makes the file first and sets its time then: that is one throw.
        if abs(thrown_at - self._summarised) > SAME_THROW_WINDOW:
            self._write_summary(state, thrown_at, said)

    def _write_summary(self, state: State, thrown_at: datetime, said: str) -> None:
        """Write the summary, or say who has to end their turn before it makes sense."""
        busy = sorted(task.lease.holder for task in state.tasks.values() if task.lease)
        if self._board.presence.is_held(PLANNING_NAME):
            busy.append("the planner")
        if busy and not self._is_halting:
            self._view.say(f"CHECKPOINT: {', '.join(busy)} will end the turn that was begun, then all wait")
        self._is_halting = bool(busy)
        if busy:
            return
        summary = self._recovery.home / CHECKPOINTS / f"{thrown_at:{SUMMARY_TIME}}.md"
        write_report(summary, checkpoint_summary(state, self._clock(), said))
        self._summarised = thrown_at
        self._view.say(f"the summary of this halt is in {summary}")
        self._write_report()

    def _write_report(self) -> None:
        """Leave people the report; without one the work is done all the same."""
        try:
            self._report(self._board)
        except (LizaError, OSError) as error:
            self._alert(f"there is no report: {error}")

    def _start_due(self, state: State) -> None:
        """Start a process in every slot that is due, and stop those that are no longer wanted."""
        now = time.monotonic()
        self._register_workers(state)
        self._stop_surplus(state)
        for post in [post for post in self._slots.values() if staffing.is_due(post, now)]:
            self._workers.start(post)
            self._slots[post.name] = staffing.with_process(post, now)

    def _register_workers(self, state: State) -> None:
        known = self._slots
        self._slots = staffing.with_slots_for(known, state.config.workers)
        if new := [post for name, post in self._slots.items() if name not in known]:
            self._board.update(staffing.register_workers(new, at=self._clock()))
        if gone := known.keys() - self._slots.keys():
            self._board.update(recovery.mark_stopped(gone, at=self._clock()))

    def _stop_surplus(self, state: State) -> None:
        """Ask workers that are too many to end, each once it holds nothing; asked twice, it ends unsaved."""
        busy = {task.lease.holder for task in state.tasks.values() if task.lease}
        spare = (
            self._workers.names - staffing.worker_roles(state.config.workers).keys() - busy - self._stopping
        )
        self._workers.send(signal.SIGTERM, spare)
        self._stopping |= spare

    def _prune_worktrees(self) -> None:
        """Clear up what finished tasks left."""
        if time.monotonic() - self._pruned_at < recovery.CLEANUP_GRACE.total_seconds():
            return
        self._pruned_at = time.monotonic()
        facts = self._recovery.facts(self._clock(), living=self._workers.names)
        self._check_integration_branch(facts.state.config.integration_branch)
        self._recovery.perform(recovery.worktrees_to_prune(facts), facts)

    def _recycle(self, state: State) -> None:
        """Give the oldest worktrees of tasks that succeeded, but those that are kept, to who needs one next.

        One a turn, so that nothing else waits for long; what was given up may have an agent in it still.
        """
        done = [task.id for task in recovery.finished_tasks(state) if task.status in SUCCEEDED]
        spare = done[: max(0, len(done) - state.config.limits.kept_worktrees)]
        name = next((name for name in spare if name not in self._recycled), None)
        if name is None:
            return
        self._recycled.add(name)
        Worktrees(self._recovery.repository).release(name, at=self._clock())
        self._wakeup.wake()

    def _check_integration_branch(self, name: str) -> None:
        """Tell people that the integration branch is gone, once until it is back."""
        key = f"gone {name}"
        if self._recovery.repository.commit_at(BRANCHES + name) is not None:
            self._said.discard(key)
        elif key not in self._said:
            self._said.add(key)
            back = f"`git branch {name} COMMIT` puts it back, and `liza log` has the commits"
            self._alert(f"the integration branch {name} is gone; {back}")

    def _recover(self) -> None:
        """Put right what the last run left. Its workers see that it is gone, save their work and end."""
        await_exit(orphaned_workers(self._recovery.home), self._grace)
        facts = self._recovery.crash_facts(self._clock())
        for action in recovery.plan(facts):
            self._view.say(str(action))
        if survivors := self._recovery.perform(recovery.settling_actions(facts), facts):
            self._alert(f"these processes could not be ended: {', '.join(survivors)}")
        self._clear_up()
        self._adopt_human_changes()
        self._board.update(Change(SUPERVISOR.id, "reopen the goal", progress.with_goal_reopened))
        # Whoever starts a run has mended what a provider did not accept, or wants to see it said again.
        state = self._board.update(providers.retry_providers(SUPERVISOR, self._clock(), refused_only=True))
        done = {task.id for task in state.tasks.values() if task.status in SUCCEEDED}
        self._recycled = done - set(Worktrees(self._recovery.repository).tasks())
        # Before anybody looks at the board: whoever was stopped in the last run has another chance in this.
        self._register_workers(state)

    def _adopt_human_changes(self) -> None:
        """Take what people did since the last run as theirs, before anybody else can be taken for them."""
        scene, state = self._recovery, self._board.read()
        head = scene.repository.commit_at(BRANCHES + state.config.integration_branch)
        if head is None:
            return
        if is_sandboxed(state.config.sandbox):
            state = integration_tip.note_base(self._board, head, by=SUPERVISOR.id)
            if found := integration_tip.unknown_commits(scene.repository, scene.home, state, head):
                at = self._clock()
                self._alert(
                    integration_tip.record_human_commits(
                        self._board, found, WHILE_STOPPED, by=SUPERVISOR.id, at=at
                    )
                )
            return
        seen = TamperMonitor(scene.home, self._board, scene.repository, SUPERVISOR.id).start()
        for sentence in (*seen.told, *seen.strange):
            self._alert(sentence)

    def _stop_workers(self, patience: float) -> None:
        """Stop every worker: on its own within *patience*, then by SIGTERM, then by SIGKILL."""
        steps = ((None, patience), (signal.SIGTERM, self._grace), (signal.SIGKILL, GRACE))
        for number, seconds in steps:
            if number is not None:
                self._workers.send(number, self._workers.names)
            deadline = time.monotonic() + seconds
            while self._workers.names and not self._is_urgent(number) and time.monotonic() < deadline:
                self._wakeup.rest(min(POLL_INTERVAL, deadline - time.monotonic()))
                for _ in self._workers.reap():
                    pass
        self._sweep(lambda _: True)

    def _is_urgent(self, number: signal.Signals | None) -> bool:
        """Tell whether the next step should come at once: a second signal means now."""
        return self._wakeup.asked > 1 and number is not signal.SIGKILL

    def _leave(self, ending: RunEnd) -> None:
        facts = self._recovery.facts(self._clock())
        self._recovery.perform(recovery.settling_actions(facts), facts)
        if ending in CLEAN_ENDS:
            self._clear_up(drain=ending is RunEnd.COMPLETE)
        if ending is RunEnd.COMPLETE:
            self._announce_done()
        self._board.presence.remove_stale()
        self._page.sync()
        self._write_report()
        state = self._board.read()
        self._view.show(state, self._board.switches.thrown())
        self._view.say(f"{_END_SENTENCES[ending]}: {run_outcome(state)}")

    def _clear_up(self, *, drain: bool = False) -> None:
        """Remove what nobody needs any more; where that fails, the work is done all the same."""
        try:
            facts = self._recovery.facts(self._clock())
            self._recovery.perform(recovery.clearing_actions(facts), facts)
            remove_stale_sandboxes(self._recovery.home, self._recovery.repository)
            if drain:
                Worktrees(self._recovery.repository).drain()
        except (DiskTrouble, GitFailed, UnfitRepository, OSError) as error:
            first = str(error).strip().splitlines()[0]
            self._alert(f"not everything could be cleared up, which `liza recover` tries again: {first}")

    def _announce_done(self) -> None:
        """Look back on the last sprint and tell people that there is nothing more to do."""
        state = self._board.read()
        try:
            sprint.advance_sprint(self._board, state, {}, self._clock())
        except DiskTrouble as error:  # the work is done all the same
            self._alert(f"there is no retrospective: {error}")
        key = f"goal {state.goal.status} {state.goal.completed}"
        self._tell([Alarm(key, f"the goal is {state.goal.status}: {run_outcome(state)}")])
        self._notifier.nudge(state.config.notify)

    def _tell(self, found: Iterable[Alarm]) -> None:
        """Tell each alarm once, however many supervisors see it; what still waits is said in every run."""
        for alarm in found:
            is_news = self._sent_alarms.is_news(alarm)
            if is_news and self._log_alert(alarm.says):
                self._sent_alarms.remember(alarm)
            if (is_news or alarm.stands) and alarm.key not in self._said:
                self._view.say(alarm.says)
            self._said.add(alarm.key)

    def _alert(self, sentence: str) -> None:
        self._log_alert(sentence)
        self._view.say(sentence)

    def _log_alert(self, sentence: str) -> bool:
        try:
            self._board.alerts.append(sentence, at=self._clock())
        except DiskTrouble:  # the disk may be what the alert is about
            return False
        return True

    def _poll_delay(self) -> float:
        now = time.monotonic()
        if self._trouble or strongest_switch(self._board.switches.thrown()) is not Switch.NORMAL:
            return POLL_INTERVAL  # nobody is started now, however due
        dues = (
            post.due - now for post in self._slots.values() if post.began is None and post.due is not None
        )
        return max(0.0, min([POLL_INTERVAL, *dues]))

    def _listen(self) -> None:
        """Ring when the board changes; a board that cannot be read is for the main thread to meet."""
        seen = self._board.read().revision
        with suppress(LizaError):
            while True:
                seen = self._board.wait(seen, timeout=60.0).revision
                self._wakeup.wake()
                time.sleep(DEBOUNCE)
        self._wakeup.wake()


_END_SENTENCES: Final = {
    RunEnd.COMPLETE: "Done",
    RunEnd.ONLY_PEOPLE: "Only people can make progress",
    RunEnd.ABORT: "Ended by ABORT (`liza resume` takes it back)",
    RunEnd.ASKED: "Ended as asked",
}


def _with_sandbox_mode(state: State, mode: SandboxMode) -> State:
    return state.replace(config=state.config.replace(sandbox=state.config.sandbox.replace(mode=mode)))


def _last_summary_time(folder: Path) -> datetime:
    """Return when the last CHECKPOINT was thrown that has a summary in *folder*."""
    latest = max((path.stem for path in folder.glob("*.md")), default=None) if folder.is_dir() else None
    return datetime.strptime(latest, SUMMARY_TIME).replace(tzinfo=UTC) if latest else _NEVER


def _require_valid_board(home: Path) -> None:
    """Raise what is wrong with the board to somebody who opens it."""
    board = open_board(home)
    try:
        board.read()
    finally:
        board.close()
