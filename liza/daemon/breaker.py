"""The rules at run time: those about a task act in its update, the others trip the circuit breaker.

It keeps no state that matters: after a crash the next pass writes what is missing, and a switch is thrown
exactly while an open trip asks for it.
"""

from __future__ import annotations

from operator import is_not
from typing import TYPE_CHECKING, Final

from liza.daemon.project_sandbox import DRIFTED, TamperMonitor, is_sandboxed
from liza.daemon.reports.trips import trip_report
from liza.daemon.workflow_in_use import vet
from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN, SUPERVISOR, Change
from liza.domain.config import BREAKER_PREFIX, Switch
from liza.domain.model import Remedy, Status
from liza.domain.rules import (
    ALERT_RESOLUTION,
    ALWAYS,
    RULE_BY_NAME,
    Subject,
    board_events,
    due_trips,
    open_trips,
    report_name,
    resolve_command,
    resolve_trip,
    trip_sentence,
    with_due_trips,
)
from liza.errors import DiskTrouble, Refused, UsageError
from liza.repo.repository import Repository
from liza.system.files import overwrite
from liza.workflow.document import workflow_on
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.domain.model import Actor, CircuitBreaker, State, Trip
    from liza.domain.rules import Rule


# Files that a supervisor leaves for people: whole or not there, and written again without harm.


def write_report(path: Path, text: str) -> None:
    """Write a file that is whole or not there."""
    try:
        path.parent.mkdir(exist_ok=True)
        overwrite(path, text)
    except OSError as error:
        raise DiskTrouble(f"write {path}", error) from error


DRIFT: Final = "checkout_drift"
REPORTS: Final = "report"
SWITCHES: Final = {Remedy.CHECKPOINT: Switch.CHECKPOINT, Remedy.PAUSE: Switch.PAUSE}


def board_rules(state: State) -> tuple[Rule, ...]:
    """Return the rules about the board and its workers: the workflow's, and those that always apply."""
    try:
        rules = workflow_on(state).watched_rules()
    except UsageError:  # it was not read yet
        rules = ALWAYS
    return tuple(rule for rule in rules if rule.subject is not Subject.TASK)


class Breaker:
    def __init__(self, board: Board) -> None:
        self._board = board
        self._seen: tuple[object, ...] = ()  # what the rules read, when they were last asked
        self._reported: CircuitBreaker | None = None

    def look(self, state: State, now: datetime, checkpoint: datetime | None = None) -> State:
        """Trip every rule that is due, and return the board; *checkpoint* is when one was thrown."""
        # The breaker itself is read as well: more of what was open may be due once it is resolved.
        counted, limits = state.sprint.metrics, state.config.limits
        reads = (
            *(state.anomalies, state.tasks, state.circuit_breaker),
            *(state.agents, state.human_notes, state.workflow, limits),
            *(counted.fruitless, counted.killed, counted.red_gates, counted.reviews),
        )
        rules = board_rules(state)
        if self._seen and not any(map(is_not, reads, self._seen)):
            rules = tuple(rule for rule in rules if rule.is_clock)  # nothing changed but the time
        if due_trips(state, now, rules, board_events(state, now, checkpoint)):

            def make(latest: State) -> State:
                return with_due_trips(latest, now, rules, board_events(latest, now, checkpoint))

            return self._board.update(Change(SUPERVISOR.id, "trip the breaker", make))
        self._seen = reads
        return state

    def report(self, state: State) -> None:
        """Write the reports that are missing; called last, so that a full disk does not keep a switch from
        being thrown.
        """
        if state.circuit_breaker is self._reported:
            return
        for trip in state.circuit_breaker.trips:
            path = self._board.home / REPORTS / report_name(trip)
            if (trip.resolved_at is None or trip.resolution == ALERT_RESOLUTION) and not path.exists():
                write_report(path, trip_report(trip, state))
        self._reported = state.circuit_breaker

    def hold(self, state: State, switches: Mapping[str, str]) -> bool:
        """Throw or take back one switch so that it matches the open trips; return whether one changed."""
        wanted = held_switches(state)
        for switch in SWITCHES.values():
            said = switches.get(switch.name)
            if said is None and switch in wanted:
                return self._board.switches.throw(switch, switch_text(wanted[switch]))
            if said is not None and said.startswith(BREAKER_PREFIX) and switch not in wanted:
                self._board.switches.clear(switch)
                return True
        return False


def with_drift_resolved(state: State, now: datetime) -> State:
    """Return the board with every drift trip resolved and the tasks that it blocked retried: a person has
    looked at them.
    """
    state = with_due_trips(state, now, [RULE_BY_NAME[DRIFT]])
    for trip in [one for one in open_trips(state) if one.rule == DRIFT]:
        state = resolve_trip(state, trip.id, "a person looked at it and resumed", now)
        for name in trip.tasks:
            task = state.tasks.get(name)
            if task and task.status is Status.BLOCKED and DRIFTED in str(task.blocked_reason):
                state = apply(e.Answer(), to=name, by=HUMAN, at=now)(state)
    return state


def held_switches(state: State) -> dict[Switch, Trip]:
    """Return the switches that open trips hold, each with its first trip."""
    return {SWITCHES[trip.action]: trip for trip in reversed(open_trips(state)) if trip.action in SWITCHES}


def switch_text(trip: Trip) -> str:
    return f"{BREAKER_PREFIX}{trip_sentence(trip)}; `{resolve_command(trip)}`"


def resolve_and_resume(board: Board, name: str, reason: str, now: datetime, by: Actor = HUMAN) -> str:
    """Resolve a trip, take back the switches that only it held, and return what still keeps agents from going
    on.
    """
    change = Change(by.id, f"resolve {name}", lambda state: resolve_trip(state, name, reason, now))
    state = board.update(change)
    for file, said in board.switches.thrown().items():
        if said.startswith(BREAKER_PREFIX) and Switch[file] not in held_switches(state):
            board.switches.clear(Switch[file])
    if left := open_trips(state):
        return f"Resolved {name}; {', '.join(trip.id for trip in left)} is still open (`liza breaker`)."
    if others := list(board.switches.thrown()):
        return f"Resolved {name}; {' and '.join(others)} is thrown, and `liza resume` takes it back."
    return f"Resolved {name}; the breaker is OK and the agents go on."


def take_back_switches(board: Board, now: datetime, by: Actor = HUMAN) -> list[str]:
    """Take back the switches and return their names; raise if a trip is open, which keeps its own.

    What agents moved that is a person's is for people to look at, and whoever resumes has: such trips are
    resolved, the tasks that they blocked go on, and what is on the integration branch is taken as it is.
    """
    said = board.switches.thrown()
    mine = [name for name in said if not said[name].startswith(BREAKER_PREFIX)]
    for name in mine:  # first, because it must be possible whatever the board is like
        board.switches.clear(Switch[name])
    state = board.update(Change(by.id, "resume", lambda latest: with_drift_resolved(latest, now)))
    home, repository = board.home, Repository.around(board.home.parent)
    vet(home, repository, state)
    if not is_sandboxed(state.config.sandbox):
        for sentence in TamperMonitor(home, board, repository, HUMAN.id).accept():
            board.alerts.append(sentence, at=now)
    if found := open_trips(state):
        first = f"{found[0].id} ({found[0].rule})"
        raise Refused(f"{first} is open and stops the agents; `{resolve_command(found[0])}` resolves it")
    for name in said.keys() - set(mine):
        board.switches.clear(Switch[name])
    return list(said)
