"""The duties of the one leading supervisor: rules, sprints, tasks of dead workers, notifications.

It remembers nothing that matters: the next leader begins with what is on the board.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from liza.board.protocol import PLANNING_NAME
from liza.daemon import breaker
from liza.daemon.breaker import REPORTS, Breaker, write_report
from liza.daemon.cycle_page import CyclePage
from liza.daemon.membership import LONGEST_SILENCE
from liza.daemon.notify import Alarm, Notifier, SentAlarms, alarms
from liza.daemon.policy import planner, recovery
from liza.daemon.policy.staffing import foreign_workers
from liza.daemon.reports.checkpoint import checkpoint_summary
from liza.daemon.reports.metrics import retrospective
from liza.domain import changes
from liza.domain.changes import SUPERVISOR, Change, begin_next_goal
from liza.domain.config import Switch
from liza.domain.model import GoalStatus, WorkerStatus
from liza.domain.report_words import run_outcome
from liza.errors import BoardUnreachable, DiskTrouble, LizaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.daemon.recover import Recovery
    from liza.daemon.view import View
    from liza.domain.model import State


# The end of a sprint: recorded, looked back on, and halted at; the next begins when people resume.


def advance_sprint(board: Board, state: State, switches: Mapping[str, str], now: datetime) -> State:
    """Advance the sprint by one step where that is due; every step can be repeated."""
    if state.goal.status is not GoalStatus.IN_PROGRESS or changes.why_over(state, now):
        state = board.update(
            Change(SUPERVISOR.id, "end the sprint", lambda latest: changes.end_sprint(latest, now))
        )
    sprint = state.sprint
    if sprint.ended is None:
        return state
    if sprint.retrospective is None:
        return _write_retrospective(board, state)
    if Switch.CHECKPOINT.name in switches or state.goal.status is not GoalStatus.IN_PROGRESS:
        return state
    return board.update(
        Change(SUPERVISOR.id, "begin a sprint", lambda latest: changes.begin_next_sprint(latest, now))
    )


def _write_retrospective(board: Board, state: State) -> State:
    """Write the retrospective and throw CHECKPOINT, then record it: what the board names is on disk."""
    sprint, why = state.sprint, changes.why_ended(state)
    path = board.home / REPORTS / f"sprint-{sprint.number}.md"
    breaker.write_report(path, retrospective(state, why, sprint.ended or state.goal.created))
    if state.goal.status is GoalStatus.IN_PROGRESS:
        said = f"sprint {sprint.number} is over, because {why}; see {REPORTS}/{path.name}"
        board.switches.throw(Switch.CHECKPOINT, f"{said}, then `liza resume` begins the next")
    name = f"{REPORTS}/{path.name}"
    change = Change(
        SUPERVISOR.id, "look back", lambda latest: changes.with_retrospective(latest, sprint.number, name)
    )
    return board.update(change)


CHECKPOINTS: Final = "checkpoints"
SUMMARY_TIME: Final = "%Y%m%dT%H%M%S.%fZ"  # a summary is named after the moment of the throw
SAME_THROW_WINDOW: Final = timedelta(seconds=2)  # within which a switch may change its time and is the same
HOSTS_INTERVAL: Final = 5.0  # seconds between two looks for hosts that are gone
_NEVER: Final = datetime.fromtimestamp(0, UTC)


class Announcer:
    """Shows sentences to people: on this terminal, and in the alerts what they may have to act on."""

    def __init__(self, board: Board, view: View) -> None:
        self._board = board
        self._view = view
        self._sent = SentAlarms(board.home)
        self.said: set[str] = set()  # keys of alarms that this very run has said

    def say(self, sentence: str) -> None:
        self._view.say(sentence)

    def alert(self, sentence: str) -> None:
        self._log_alert(sentence)
        self._view.say(sentence)

    def tell(self, found: Iterable[Alarm]) -> None:
        """Tell each alarm once, however many supervisors see it; what still waits is said in every run."""
        for alarm in found:
            is_news = self._sent.is_news(alarm)
            if is_news and self._log_alert(alarm.says):
                self._sent.remember(alarm)
            if (is_news or alarm.stands) and alarm.key not in self.said:
                self._view.say(alarm.says)
            self.said.add(alarm.key)

    def _log_alert(self, sentence: str) -> bool:
        try:
            self._board.alerts.append(sentence, at=self._board.now())
        except (DiskTrouble, BoardUnreachable):  # which may be what the alert is about
            return False
        return True


class Leader:
    """The duties of the one supervisor, or host, that leads."""

    def __init__(
        self, crash_recovery: Recovery, announcer: Announcer, report: Callable[[Board], None] = lambda _: None
    ) -> None:
        self._recovery = crash_recovery
        self._board = crash_recovery.board
        self._clock = crash_recovery.board.now
        self._announcer = announcer
        self._report = report
        self._breaker = Breaker(crash_recovery.board)
        self._page = CyclePage(crash_recovery.board, crash_recovery.repository, alert=announcer.alert)
        self._notifier = Notifier(crash_recovery.board)
        self._summarised: datetime | None = None  # when the CHECKPOINT was thrown that has its summary
        self._hosts_due = 0.0
        self.is_halting = False  # the workers that still have to end a turn at a CHECKPOINT were named

    def start(self) -> None:
        self._notifier.start()

    def close(self) -> None:
        self._notifier.close()

    def settle(self, living: frozenset[str], switches: dict[str, str]) -> State:
        """Sync the page that people edit, reclaim the tasks of dead workers, and evaluate the rules."""
        is_halted = Switch.CHECKPOINT.name in switches
        thrown_at = self._board.switches.thrown_at(Switch.CHECKPOINT) if is_halted else None
        self._page.sync()  # first: what a person added may be what everybody waits for
        state = self._stop_workers_of_gone_hosts(self._reclaim(self._board.read(), living))
        return self._breaker.look(state, self._clock(), thrown_at)

    def _reclaim(self, state: State, living: frozenset[str]) -> State:
        """Reclaim the tasks of dead workers; one started by hand is alive while it holds its lock."""
        now = self._clock()
        holders = {task.lease.holder for task in state.tasks.values() if task.lease}
        living |= foreign_workers(state, self._recovery.host)
        if holders - living:
            living |= self._board.presence.live_workers()
        if dead := [task.id for task in state.tasks.values() if recovery.why_dead(task, living, now)]:
            self._recovery.secure(dead, at=now)
            return self._board.update(recovery.reclaim_tasks(living, at=now, host=self._recovery.host))
        return state

    def _stop_workers_of_gone_hosts(self, state: State) -> State:
        """Mark the workers of silent hosts STOPPED once they hold no lease."""
        elsewhere = foreign_workers(state, self._recovery.host)
        there = [
            agent
            for agent in state.agents.values()
            if agent.id in elsewhere and agent.status is not WorkerStatus.STOPPED
        ]
        if not there or time.monotonic() < self._hosts_due:
            return state
        self._hosts_due = time.monotonic() + HOSTS_INTERVAL
        signs = self._board.presence.hosts()
        alive = {sign.name for sign in signs if sign.silent < LONGEST_SILENCE}
        busy = {task.lease.holder for task in state.tasks.values() if task.lease}
        # A worker that was started by hand has no host to speak for it.
        busy |= self._board.presence.live_workers() & {agent.id for agent in there if agent.host is None}
        gone = {agent.id: agent.host for agent in there if agent.host not in alive and agent.id not in busy}
        if not gone:
            return state
        for name in sorted({str(host) for host in gone.values() if host}):
            self._announcer.alert(f"the host {name} is gone; its workers do not count any more")
        return self._board.update(recovery.mark_stopped(gone.keys(), at=self._clock()))

    def guard(self, state: State, switches: dict[str, str]) -> dict[str, str]:
        """Throw or take back switches as the open trips ask, write their reports; return the switches."""
        if self._breaker.hold(state, switches):
            switches = self._board.switches.thrown()
        self._breaker.report(state)
        self._summarise(state, switches)
        self._notifier.nudge(state.config.notify)
        return switches

    def conclude(self, state: State) -> State:
        """Complete the goal where it is reached, begin the next one, and send the alarms."""
        now = self._clock()
        if planner.is_complete(state):
            done = Change(
                SUPERVISOR.id, "complete the goal", lambda latest: planner.with_goal_completed(latest, now)
            )
            state = self._board.update(done)
        if state.goal.is_over:
            return state
        if state.goal.status is not GoalStatus.IN_PROGRESS:
            state = self._begin_next_goal()
        self._announcer.tell(alarms(state, now))
        return state

    def advance_sprint(self, state: State, switches: dict[str, str]) -> State:
        return advance_sprint(self._board, state, switches, self._clock())

    def _begin_next_goal(self) -> State:
        """Announce that the goal is done, and begin the next."""
        self.announce_done()
        now = self._clock()
        begin = Change(SUPERVISOR.id, "begin the next goal", lambda latest: begin_next_goal(latest, now))
        state = self._board.update(begin)
        self._announcer.say(f"goal {state.goal.number} begins: {state.goal.description}")
        return state

    def announce_done(self) -> None:
        """Write the retrospective of the last sprint, and send the alarm that the goal is done."""
        state = self._board.read()
        try:
            advance_sprint(self._board, state, {}, self._clock())
        except DiskTrouble as error:  # the work is done all the same
            self._announcer.alert(f"there is no retrospective: {error}")
        key = f"goal {state.goal.status} {state.goal.completed}"
        self._announcer.tell([Alarm(key, f"the goal is {state.goal.status}: {run_outcome(state)}")])
        self._notifier.nudge(state.config.notify)

    def write_reports(self) -> None:
        """Write the page and the report; a failure is only reported."""
        self._page.sync()
        self._write_report()

    def _write_report(self) -> None:
        try:
            self._report(self._board)
        except (LizaError, OSError) as error:
            self._announcer.alert(f"there is no report: {error}")

    def _summarise(self, state: State, switches: dict[str, str]) -> None:
        """Write the summary of a CHECKPOINT, once for each throw, as soon as all turns have ended."""
        if Switch.CHECKPOINT.name not in switches:
            self._summarised = _NEVER
            return
        thrown_at = self._board.switches.thrown_at(Switch.CHECKPOINT)
        if thrown_at is None:
            return  # taken back, or written, at this moment
        said = self._board.switches.thrown().get(Switch.CHECKPOINT.name, "")
        if self._summarised is None:  # a run before this one may have written it
            self._summarised = _last_summary_time(self._board.home / CHECKPOINTS)
        # `touch` makes the file first and sets its time then: that is one throw.
        if abs(thrown_at - self._summarised) > SAME_THROW_WINDOW:
            self._write_summary(state, thrown_at, said)

    def _write_summary(self, state: State, thrown_at: datetime, said: str) -> None:
        """Write the summary, or name the workers whose turns have to end first."""
        busy = sorted(task.lease.holder for task in state.tasks.values() if task.lease)
        if self._board.presence.is_held(PLANNING_NAME):
            busy.append("the planner")
        if busy and not self.is_halting:
            self._announcer.say(
                f"CHECKPOINT: {', '.join(busy)} will end the turn that was begun, then all wait"
            )
        self.is_halting = bool(busy)
        if busy:
            return
        summary = self._board.home / CHECKPOINTS / f"{thrown_at:{SUMMARY_TIME}}.md"
        write_report(summary, checkpoint_summary(state, self._clock(), said))
        self._summarised = thrown_at
        self._announcer.say(f"the summary of this halt is in {summary}")
        self._write_report()


def _last_summary_time(folder: Path) -> datetime:
    """Return when the last CHECKPOINT was thrown that has a summary in *folder*."""
    latest = max((path.stem for path in folder.glob("*.md")), default=None) if folder.is_dir() else None
    return datetime.strptime(latest, SUMMARY_TIME).replace(tzinfo=UTC) if latest else _NEVER
