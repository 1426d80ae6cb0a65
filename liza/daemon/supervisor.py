"""The one process of a machine that stays: it keeps workers alive, gives back what the dead held, and obeys
switches.

It does I/O and decides nothing: who starts when is `staffing`, what to put right is `recovery`, who can make
progress is `progress`. It remembers nothing that matters, so it may die at any line and be started again.
What only one of all machines does is `leading`; on one machine that is always this one.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack, closing, suppress
from enum import Enum, auto
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import liza
from liza.board.protocol import HOST_PREFIX, PLANNING_NAME, SUPERVISOR_NAME, open_board
from liza.daemon import project_sandbox
from liza.daemon.baseline import BaselineContext, run_baseline
from liza.daemon.judge import Halted
from liza.daemon.leading import Announcer, Leader
from liza.daemon.membership import Membership
from liza.daemon.policy import progress, recovery, staffing
from liza.daemon.policy.staffing import ONE_MACHINE, HostOffer
from liza.daemon.project import TEAM_FILE
from liza.daemon.project_sandbox import (
    TamperMonitor,
    is_sandboxed,
    remove_stale_sandboxes,
    require_sandbox,
    sandbox_warning,
    with_no_sandbox_anomaly,
    with_required_mode,
)
from liza.daemon.recover import OWN_GIT, RUNS, Recovery, await_exit, is_run_of, orphaned_workers
from liza.daemon.run_sharing import share_runs
from liza.daemon.team_file import TeamFileResult, apply_team_file
from liza.daemon.trace_export import send_traces
from liza.daemon.travel import begin_integration
from liza.daemon.worker_processes import WorkerProcesses
from liza.daemon.workflow_in_use import adopt_workflow, why_unvetted, workflow_of
from liza.domain import budget
from liza.domain.changes import SUPERVISOR, Change
from liza.domain.config import SandboxMode, Switch, strongest_switch, worker_pause
from liza.domain.lifecycle import SUCCEEDED
from liza.domain.model import Status, WorkerStatus
from liza.domain.record import utc_now
from liza.domain.report_words import run_outcome, tally_of
from liza.errors import (
    AlreadyRunning,
    BoardUnreachable,
    DiskTrouble,
    GitFailed,
    InvalidBoard,
    LeaseLost,
    LizaError,
    RemoteTrouble,
    SharedRepository,
    UnfitRepository,
)
from liza.repo.command import mark_processes
from liza.repo.merge import adopt_key, ensure_key
from liza.repo.pool import Worktrees
from liza.repo.repository import BRANCHES, Repository
from liza.system import files
from liza.system.disk_space import disk_shortage
from liza.system.fork_server import Entry, ForkServer
from liza.system.host import host
from liza.system.process import RUN_MARK, sweep
from liza.system.run_control import RunControl, Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.daemon.policy.staffing import Slot
    from liza.daemon.view import View
    from liza.domain.model import State

POLL_INTERVAL: Final = 0.5  # seconds between two looks at switches and leases while nothing happens
DEBOUNCE: Final = 0.1  # seconds in which many changes of the board wake us once
GRACE: Final = 5.0  # seconds a worker gets to end by itself, and again between SIGTERM and SIGKILL
WHILE_STOPPED: Final = "it came while no run was going on"


class RunEnd(Enum):
    """Why a run ends."""

    COMPLETE = auto()
    ONLY_PEOPLE = auto()
    ABORT = auto()
    ASKED = auto()
    NOTHING_HERE = auto()


EXIT_CODES: Final = {
    RunEnd.COMPLETE: 0,
    RunEnd.ONLY_PEOPLE: 3,
    RunEnd.ABORT: 4,
    RunEnd.ASKED: 4,
    RunEnd.NOTHING_HERE: 0,
}
# Whoever ends a run by hand wants it to end; the next one clears up.
CLEAN_ENDS: Final = frozenset({RunEnd.COMPLETE, RunEnd.ONLY_PEOPLE, RunEnd.NOTHING_HERE})
# The part of the grace that workers get before a signal tells them: some see by themselves that it is over.
GRACE_BEFORE_SIGNAL: Final = {
    RunEnd.COMPLETE: 0.2,
    RunEnd.ONLY_PEOPLE: 0.0,
    RunEnd.ABORT: 1.0,
    RunEnd.ASKED: 0.0,
    RunEnd.NOTHING_HERE: 0.0,
}


class Until(Enum):
    """When a supervisor ends by itself: never before the goal is complete, or once it cannot go on."""

    COMPLETE = auto()
    IDLE = auto()  # only people can make progress
    NOTHING_HERE = auto()  # nothing on the board is for a worker of this machine now
    STOPPED = auto()  # not even when the goal is complete: another may come


def supervise(  # noqa: PLR0913 - each is what one caller wants otherwise
    home: Path,
    view: View,
    *,
    until: Until = Until.COMPLETE,
    offer: HostOffer = ONE_MACHINE,
    facts: Mapping[str, Any] | None = None,
    worker: Sequence[str] = (),
    be_worker: Entry | None = None,
    grace: float = GRACE,
    ready: Callable[[], None] = lambda: None,
    baseline: bool = True,
    report: Callable[[Board], None] = lambda _: None,
) -> int:
    """Run until the goal is complete or a person stops the run; return the exit code.

    With the name of a host in *offer* it is one of several that share the board, and one of them leads;
    *facts* are published beside the offer.

    *report* is called at every checkpoint and at the end, and writes reports for people.

    *ready* is called once this process holds the supervisor's lock and the project can be worked on; the
    baseline runs first, unless *baseline* is False. Workers are forks that call *be_worker*, where that is
    given and the system can fork; else they are programs started by the command *worker*.
    """
    with ExitStack() as stack:
        # First, as long as there is neither a thread nor a lock to be copied with the process.
        forks = _fork_server(be_worker, stack)
        # Before the lock: a process that sees it held may send a signal at once.
        wakeup = stack.enter_context(Wakeup().handle_signals())
        board = open_board(home)
        own_name = HOST_PREFIX + offer.name if offer.name else SUPERVISOR_NAME
        stack.enter_context(board.presence.hold(own_name, at=utc_now()))
        mark_processes(RUN_MARK, str((home / RUNS).resolve() / OWN_GIT))
        repository = _own_repository(board, stack)
        board.absorb()
        # The settings of a board that others share are the board's, whatever this checkout has.
        applied = TeamFileResult() if offer.name else apply_team_file(board, home.parent, fit=workflow_of)
        _take_up_workflow(board, home, repository)
        state = board.read()
        crash_recovery = Recovery(board, repository, offer.name)
        repairs = crash_recovery.repair_refs(state)
        begin_integration(repository, state.config)
        require_sandbox(state.config.sandbox)
        baseline_context = BaselineContext(home, repository, state.config)
        # Under ABORT nothing is going to start.
        if baseline and not _is_aborted(board) and not _check_baseline(baseline_context, board, view, wakeup):
            ending = RunEnd.ABORT if _is_aborted(board) else RunEnd.ASKED
            view.say(f"{_END_SENTENCES[ending]}: {run_outcome(state)}")
            return EXIT_CODES[ending]
        ready()
        _tell_changes(board, view, (*repairs, *applied.sentences()), applied)
        workers = WorkerProcesses(home, worker or worker_command(home), Path(liza.__file__).parents[1], forks)
        member = Membership(board, offer, wakeup.wake, facts)
        return Supervisor(
            crash_recovery, workers, view, wakeup, until=until, grace=grace, report=report, member=member
        ).run()


def _fork_server(be_worker: Entry | None, stack: ExitStack) -> ForkServer | None:
    if be_worker is None or not host().ADOPTS_ORPHANS:
        return None
    return stack.enter_context(closing(ForkServer(be_worker)))


def _take_up_workflow(board: Board, home: Path, repository: Repository) -> None:
    """Raise where the workflow of the settings cannot be used; adopt its file if a person has seen it."""
    workflow_of(board.read().config, home.parent)
    if why_unvetted(home, repository, board.read()) is None:  # else the workers say so, and pause
        adopt_workflow(board, home.parent, by=SUPERVISOR.id)


def _tell_changes(board: Board, view: View, alerts: tuple[str, ...], applied: TeamFileResult) -> None:
    """Write *alerts* to the board, and say them and the settings that were *applied*."""
    for sentence in alerts:
        board.alerts.append(sentence, at=utc_now())
    for one in (*alerts, *(f"applied from {TEAM_FILE}: {one}" for one in applied.done)):
        view.say(one)


def _own_repository(board: Board, stack: ExitStack) -> Repository:
    """Return the repository, locked for this supervisor: its checkouts share the branches that move.

    All machines of the board sign with the same key.
    """
    home = board.home
    repository = Repository.around(home.parent)
    path = repository.common / files.LOCK_IN_GIT
    try:
        stack.enter_context(files.hold_for_life(path, at=utc_now()))
    except AlreadyRunning as error:
        raise SharedRepository(str(files.holder_of(path) or "another process")) from error
    adopt_key(home, board.presence.share_secret(ensure_key(home).decode()).encode())
    return repository


def _check_baseline(baseline_context: BaselineContext, board: Board, view: View, wakeup: Wakeup) -> bool:
    """Run the baseline and show its result; return False where a person stopped it.

    Raise RedBase where the gates could not judge any work.
    """
    stop, over = RunControl(), threading.Event()

    def listen() -> None:
        while not over.wait(DEBOUNCE):
            if wakeup.asked or _is_aborted(board):
                stop.ask()

    listener = threading.Thread(target=listen, name="baseline", daemon=True)
    listener.start()
    try:
        found = run_baseline(baseline_context, stop, view.say)
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
    """Return the command that starts a worker; its role and name follow."""
    return [sys.executable, "-m", "liza", "-C", str(home.parent), "worker"]


class Supervisor:
    def __init__(  # noqa: PLR0913 - as supervise
        self,
        crash_recovery: Recovery,
        workers: WorkerProcesses,
        view: View,
        wakeup: Wakeup,
        *,
        until: Until,
        grace: float,
        report: Callable[[Board], None] = lambda _: None,
        member: Membership | None = None,
    ) -> None:
        self._recovery = crash_recovery
        self._report = report
        self._board = crash_recovery.board
        self._workers = workers
        self._view = view
        self._until = until
        self._member = member or Membership(crash_recovery.board, ONE_MACHINE, wakeup.wake)
        self._offer = self._member.offer
        self._announcer = Announcer(crash_recovery.board, view)
        self._leader: Leader | None = None  # while this is who leads
        self._announced: datetime | None = None  # when the goal was complete of which people were told
        self._grace = grace
        self._clock = self._board.now
        self._slots: dict[str, Slot] = {}
        self._exited: list[tuple[str, int]] = []  # workers that exited and are not cleaned up after yet
        self._trouble = ""
        self._pruned_at = time.monotonic()
        self._stopping: frozenset[str] = frozenset()  # workers that are too many and were asked to end
        self._shortage: str | None = None  # why nothing new starts
        self._recycled: set[str] = set()  # tasks whose worktree went back to the pool
        self._wakeup = wakeup

    def run(self) -> int:
        host().adopt_orphans()
        self._member.start()  # first: of a host that says nothing the others take its workers for dead
        self._recover()
        self._follow_lead()
        self._warn_if_unsandboxed()
        threading.Thread(target=self._listen, name="board", daemon=True).start()
        is_over, background = threading.Event(), ExitStack()
        threading.Thread(
            target=self._workers.kill_stopped, args=(is_over,), name="stopped", daemon=True
        ).start()
        try:
            background.enter_context(share_runs(self._board.home, self._view.say))
            background.enter_context(
                send_traces(self._board.home, lambda: self._member.leads, self._view.say)
            )
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
            background.close()  # before it steps down: the leader exports the last traces
            self._step_down()
            self._member.close()
        return EXIT_CODES[ending]

    def _warn_if_unsandboxed(self) -> None:
        """Warn where agents run unsandboxed; record an anomaly where the settings do not say `off`.

        Where they are sandboxed, set the mode to `require`: a later probe that fails must not let them run
        unsandboxed.
        """
        sandbox, at = self._board.read().config.sandbox, self._clock()
        if self._leader and (always := with_required_mode(sandbox)) is not sandbox:
            self._board.update(
                Change(
                    SUPERVISOR.id, "keep the sandbox", lambda state: _with_sandbox_mode(state, always.mode)
                )
            )
        warning = sandbox_warning(sandbox)
        if warning is None:
            return
        self._alert(f"WARNING: {warning}")
        if sandbox.mode is not SandboxMode.OFF:
            self._board.update(
                Change(
                    SUPERVISOR.id,
                    "warn",
                    lambda state: with_no_sandbox_anomaly(state, warning, by=SUPERVISOR.id, at=at),
                )
            )

    def _follow_lead(self) -> None:
        """Become or cease to be the leader, as the membership says."""
        if self._member.leads and self._leader is None:
            self._leader = Leader(self._recovery, self._announcer, self._report)
            self._leader.start()
            self._board.update(Change(SUPERVISOR.id, "reopen the goal", progress.with_goal_reopened))
            if self._offer.name:
                self._view.say(f"{self._offer.name} leads")
        elif not self._member.leads:
            self._step_down()

    def _step_down(self) -> None:
        leader, self._leader = self._leader, None
        if leader:
            leader.close()

    def _run_loop(self) -> RunEnd:
        while (ending := self._try_turn()) is None:
            self._wakeup.rest(self._poll_delay())
        return ending

    def _try_turn(self) -> RunEnd | None:
        """Take a turn; after trouble with board, disk or repository, the next turn tries again."""
        try:
            ending = self._turn()
        except BoardUnreachable as error:
            # Its workers stop by themselves before their leases end. Where it was asked to end, nobody waits.
            if self._wakeup.asked:
                return RunEnd.ASKED
            if str(error) != self._trouble:
                self._view.say(f"{error}; work goes on when it is back")
            self._trouble = str(error)
            return None
        except (DiskTrouble, GitFailed, RemoteTrouble, UnfitRepository) as error:
            if str(error) != self._trouble:
                self._alert(f"trouble, tried again until it is over: {error}")
            self._trouble = str(error)
            return None
        self._trouble = ""
        return ending

    def _turn(self) -> RunEnd | None:
        self._exited += self._workers.reap()
        switches = self._board.switches.thrown()
        switch = strongest_switch(switches)
        if switch is Switch.ABORT or self._wakeup.asked:
            return RunEnd.ABORT if switch is Switch.ABORT else RunEnd.ASKED
        while self._exited:
            self._after_exit(*self._exited[0])
            self._exited.pop(0)
        self._follow_lead()
        state = self._leader.settle(self._workers.names, switches) if self._leader else self._board.read()
        self._check_disk_space(state)
        if self._leader:
            switches = self._leader.guard(state, switches)
        self._view.show(state, switches)
        if ending := self._end_if_over(state, switches):
            return ending
        if strongest_switch(switches) is Switch.NORMAL:
            # First, since what cannot be cleared up must not keep anybody from working.
            self._start_due(state)
            self._recycle(state)
            self._prune_worktrees()
        return None

    def _end_if_over(self, state: State, switches: dict[str, str]) -> RunEnd | None:
        """Complete the goal where that is due; return how the run ends, or None where it goes on."""
        if self._leader:
            state = self._leader.conclude(state)
        if state.goal.is_over:
            return self._end_unless_staying(state)
        if self._until is Until.NOTHING_HERE and self._has_nothing(state):
            return RunEnd.NOTHING_HERE
        if self._until is Until.IDLE and self._is_stuck(state, switches):
            return RunEnd.ONLY_PEOPLE
        if self._leader is None:
            return None
        state = self._leader.advance_sprint(self._board.read(), switches)  # another goal may have begun
        halted = Switch.CHECKPOINT.name in switches and not self._leader.is_halting
        is_over = self._until is Until.IDLE and state.sprint.ended and halted
        return RunEnd.ONLY_PEOPLE if is_over else None

    def _end_unless_staying(self, state: State) -> RunEnd | None:
        """End, or tell people that the goal is over, and wait for the next."""
        if self._until is not Until.STOPPED:
            return RunEnd.COMPLETE
        if self._leader and self._announced != state.goal.completed:
            self._leader.announce_done()
            self._announced = state.goal.completed
        return None

    def _is_stuck(self, state: State, switches: Mapping[str, str]) -> bool:
        if progress.only_people(state, self._clock()):
            return True
        is_idle = not any(task.lease for task in state.tasks.values())
        is_paused = worker_pause(switches) is not None and not self._board.presence.is_held(PLANNING_NAME)
        return is_idle and bool(self._shortage or is_paused)

    def _has_nothing(self, state: State) -> bool:
        """Return whether the workers of this machine are registered and have nothing to do."""
        return bool(self._slots) and not progress.has_work_for(state, self._clock(), self._slots.keys())

    def _check_disk_space(self, state: State) -> None:
        """Alert people once that the disk is nearly full, and delete worktrees kept for reuse."""
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
        slot, ended_at, now = self._slots[name], time.monotonic(), self._clock()
        tasks = self._board.read().tasks.values()
        self._recovery.secure([task.id for task in tasks if task.lease and task.lease.holder == name], at=now)
        killed = code == staffing.KILLED_CODE
        reclaim = recovery.reclaim_tasks(self._workers.names, at=now, killed=killed, host=self._offer.name)
        is_crash = staffing.is_crash(code)
        change = reclaim
        if is_crash:
            crash = staffing.record_crash(slot, staffing.exit_sentence(code), at=now)
            change = Change(crash.by, crash.what, lambda state: crash(reclaim(state)))
        try:
            state = self._board.update(change)
        except LeaseLost:  # only the owner of the board takes a lease back that is not over
            state = self._board.read()
        is_stopped = is_crash and name in state.agents and state.agents[name].status is WorkerStatus.STOPPED
        slot = staffing.with_exit(slot, code, ended_at, is_stopped=is_stopped)
        if is_crash:
            self._tell_crash(slot, code)
        # Last, because all of this is done again where the disk was full.
        self._slots[name] = slot
        self._stopping -= {name}

    def _tell_crash(self, slot: Slot, code: int) -> None:
        words = self._workers.last_words(slot.name)
        told = f"{slot.name} {staffing.exit_sentence(code)}{f': {words}' if words else ''}"
        if slot.is_stopped:
            log = f"{files.WORKERS_DIRECTORY}/{slot.name}.log"
            self._alert(f"{told}; it is not started again in this run, see {log}")
        else:
            self._view.say(f"{told}; it is started again")

    def _sweep(self, whose: Callable[[str], bool]) -> None:
        found = sweep(self._recovery.home / RUNS, whose)
        if found.survivors:
            self._alert(f"these processes could not be ended: {', '.join(found.survivors)}")

    def _start_due(self, state: State) -> None:
        """Start a process in every slot that is due, and stop those that are no longer wanted."""
        now = time.monotonic()
        if state.goal.is_over:
            return
        self._register_workers(state)
        self._stop_surplus(state)
        for slot in [slot for slot in self._slots.values() if staffing.is_due(slot, now)]:
            self._workers.start(slot)
            self._slots[slot.name] = staffing.with_process(slot, now)

    def _register_workers(self, state: State) -> None:
        known = self._slots
        wanted = self._offer.roles(state.config)
        self._member.facts["slots"] = dict(Counter(map(str, wanted.values())))
        self._slots = staffing.with_slots_for(known, wanted)
        mistaken = self._mistaken_for_stopped(state) if self._offer.name else frozenset()
        if new := [slot for name, slot in self._slots.items() if name not in known or name in mistaken]:
            self._board.update(staffing.register_workers(new, at=self._clock(), of=self._offer))
        if gone := known.keys() - self._slots.keys():
            self._board.update(recovery.mark_stopped(gone, at=self._clock()))

    def _mistaken_for_stopped(self, state: State) -> frozenset[str]:
        """Return live workers that another machine marked STOPPED while this one was cut off."""
        records = (state.agents.get(name) for name in self._workers.names)
        return frozenset(
            one.id for one in records if one and one.status is WorkerStatus.STOPPED and not one.crashes
        )

    def _stop_surplus(self, state: State) -> None:
        """Stop idle workers beyond the settings, by one signal each: a second would end it unsaved."""
        busy = {task.lease.holder for task in state.tasks.values() if task.lease}
        surplus = self._workers.names - self._offer.roles(state.config).keys() - busy - self._stopping
        self._workers.send(signal.SIGTERM, surplus)
        self._stopping |= surplus

    def _prune_worktrees(self) -> None:
        """Remove the worktrees of finished tasks, every now and then."""
        if time.monotonic() - self._pruned_at < recovery.CLEANUP_GRACE.total_seconds():
            return
        self._pruned_at = time.monotonic()
        facts = self._recovery.facts(self._clock(), living=self._workers.names)
        self._check_integration_branch(facts.state.config.integration_branch)
        self._recovery.perform(recovery.worktrees_to_prune(facts), facts)
        if self._leader:
            self._recovery.retire_work(facts.state)

    def _recycle(self, state: State) -> None:
        """Return the oldest worktree of a successful task to the pool, but for those the settings keep.

        One a turn, so that nothing else waits for long. An agent may still be in that of an abandoned task.
        """
        done = [task.id for task in recovery.finished_tasks(state) if task.status in SUCCEEDED]
        surplus = done[: max(0, len(done) - recovery.kept_worktrees(state))]
        name = next((name for name in surplus if name not in self._recycled), None)
        if name is None:
            return
        self._recycled.add(name)
        Worktrees(self._recovery.repository).release(name, at=self._clock())
        self._wakeup.wake()

    def _check_integration_branch(self, name: str) -> None:
        """Alert people once that the integration branch is gone, and again if that repeats."""
        key = f"gone {name}"
        if self._recovery.repository.commit_at(BRANCHES + name) is not None:
            self._announcer.said.discard(key)
        elif key not in self._announcer.said:
            self._announcer.said.add(key)
            back = f"`git branch {name} COMMIT` puts it back, and `liza log` has the commits"
            self._alert(f"the integration branch {name} is gone; {back}")

    def _recover(self) -> None:
        """Recover from the last run, after its orphaned workers saved their work and ended."""
        await_exit(orphaned_workers(self._recovery.home), self._grace)
        # What this clone does not have may be on another host: it is not lost.
        look = self._recovery.facts if self._offer.name else self._recovery.crash_facts
        facts = look(self._clock())
        for action in recovery.plan(facts):
            self._view.say(str(action))
        if survivors := self._recovery.perform(recovery.settling_actions(facts), facts):
            self._alert(f"these processes could not be ended: {', '.join(survivors)}")
        self._clear_up()
        self._adopt_human_changes()
        # A person who starts a run has mended what a provider refused, or wants to see the refusal again.
        state = self._board.update(budget.retry_providers(SUPERVISOR, self._clock(), refused_only=True))
        done = {task.id for task in state.tasks.values() if task.status in SUCCEEDED}
        self._recycled = done - set(Worktrees(self._recovery.repository).tasks())
        # Before anybody reads the board: workers that were stopped in the last run get another chance.
        self._register_workers(state)

    def _adopt_human_changes(self) -> None:
        """Attribute changes since the last run to people, before any agent runs."""
        repository, home, state = self._recovery.repository, self._recovery.home, self._board.read()
        head = repository.commit_at(BRANCHES + state.config.integration_branch)
        if head is None:
            return
        if is_sandboxed(state.config.sandbox):
            state = project_sandbox.note_base(self._board, head, by=SUPERVISOR.id)
            if found := project_sandbox.unknown_commits(repository, home, state, head):
                at = self._clock()
                self._alert(
                    project_sandbox.record_human_commits(
                        self._board, found, WHILE_STOPPED, by=SUPERVISOR.id, at=at
                    )
                )
            return
        seen = TamperMonitor(home, self._board, repository, SUPERVISOR.id).start()
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
        """Return whether the next step should come at once: a second signal means now."""
        return self._wakeup.asked > 1 and number is not signal.SIGKILL

    def _leave(self, ending: RunEnd) -> None:
        facts = self._recovery.facts(self._clock())
        self._recovery.perform(recovery.settling_actions(facts), facts)
        if ending in CLEAN_ENDS:
            self._clear_up(drain=ending is RunEnd.COMPLETE)
        if self._leader and ending is RunEnd.COMPLETE:
            self._leader.announce_done()
        self._board.presence.remove_stale()
        state = self._board.read()
        if self._leader:
            self._leader.write_reports()
            self._recovery.retire_work(state)
        with suppress(RemoteTrouble):  # people find here what the others merged last
            self._recovery.fetch(state)
        switches = self._board.switches.thrown()
        self._view.show(state, switches)
        paused = _pause_sentence(switches) if ending is RunEnd.ONLY_PEOPLE else ""
        taken = _takeover_sentence(state) if ending is RunEnd.COMPLETE else ""
        self._view.say(f"{_END_SENTENCES[ending]}: {run_outcome(state)}{paused}{taken}")

    def _clear_up(self, *, drain: bool = False) -> None:
        """Remove worktrees and branches that are not needed any more; a failure is only reported."""
        try:
            facts = self._recovery.facts(self._clock())
            self._recovery.perform(recovery.clearing_actions(facts), facts)
            remove_stale_sandboxes(self._recovery.home, self._recovery.repository)
            if drain:
                Worktrees(self._recovery.repository).drain()
        except (DiskTrouble, GitFailed, UnfitRepository, OSError) as error:
            first = str(error).strip().splitlines()[0]
            self._alert(f"not everything could be cleared up, which `liza recover` tries again: {first}")

    def _alert(self, sentence: str) -> None:
        self._announcer.alert(sentence)

    def _poll_delay(self) -> float:
        now = time.monotonic()
        if self._trouble or strongest_switch(self._board.switches.thrown()) is not Switch.NORMAL:
            return POLL_INTERVAL  # nobody is started now, however due
        dues = (
            slot.due - now for slot in self._slots.values() if slot.began is None and slot.due is not None
        )
        return max(0.0, min([POLL_INTERVAL, *dues]))

    def _listen(self) -> None:
        """Wake the loop when the board changes; it is the main thread that reports an unreadable board."""
        seen = 0
        with suppress(LizaError):
            while True:
                with suppress(BoardUnreachable):  # it may come back
                    seen = self._board.wait(seen, timeout=60.0).revision
                self._wakeup.wake()
                time.sleep(DEBOUNCE)
        self._wakeup.wake()


_END_SENTENCES: Final = {
    RunEnd.COMPLETE: "Done",
    RunEnd.ONLY_PEOPLE: "Only people can make progress",
    RunEnd.ABORT: "Ended by ABORT (`liza resume` takes it back)",
    RunEnd.ASKED: "Ended as asked",
    RunEnd.NOTHING_HERE: "Nothing is to be done here now",
}


def _takeover_sentence(state: State) -> str:
    """Return how to take over what was merged; empty where nothing was."""
    merged = tally_of(state).by_status.get(Status.MERGED)
    return f"; `git merge {state.config.integration_branch}` takes it over" if merged else ""


def _pause_sentence(switches: Mapping[str, str]) -> str:
    """Return why a worker threw PAUSE, and the command that resumes."""
    why = worker_pause(switches)
    if why is None:
        return ""
    return f"; everybody pauses: {why}" + f"; then `{budget.RESUME}`" * (budget.RESUME not in why)


def _with_sandbox_mode(state: State, mode: SandboxMode) -> State:
    return state.replace(config=state.config.replace(sandbox=state.config.sandbox.replace(mode=mode)))


def _require_valid_board(home: Path) -> None:
    """Raise `InvalidBoard` where the board on disk is not valid."""
    board = open_board(home)
    try:
        board.read()
    finally:
        board.close()
