"""The rules at run time: those about a task act in its update, the others trip the circuit breaker.

It keeps no state that matters: after a crash the next pass writes what is missing, and a switch is thrown
exactly while an open trip asks for it.
"""

from __future__ import annotations

from operator import is_not
from typing import TYPE_CHECKING, Final

from liza.daemon import files
from liza.daemon.project_sandbox import is_sandboxed
from liza.daemon.reports.trips import trip_report
from liza.daemon.tamper import DRIFTED, TamperMonitor
from liza.daemon.vetting import vet
from liza.domain import events as e
from liza.domain.changes import HUMAN, SUPERVISOR, Change
from liza.domain.lifecycle import TERMINAL
from liza.domain.model import Remedy, Status
from liza.domain.rule_events import board_events, task_events
from liza.domain.rules import ALWAYS, RULE_BY_NAME, RuleAction, Subject, evaluate
from liza.domain.switches import BREAKER_PREFIX, Switch
from liza.domain.trips import (
    ALERT_RESOLUTION,
    due_trips,
    open_trips,
    report_name,
    resolve_command,
    resolve_trip,
    trip_sentence,
    with_due_trips,
)
from liza.errors import Refused, UsageError
from liza.repo.repository import Repository
from liza.workflow.load import workflow_on
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.domain.model import Actor, CircuitBreaker, State, Trip
    from liza.domain.rules import FiredRule, Rule
    from liza.workflow.document import Workflow

DRIFT: Final = "checkout_drift"
REPORTS: Final = "report"
SWITCHES: Final = {Remedy.CHECKPOINT: Switch.CHECKPOINT, Remedy.PAUSE: Switch.PAUSE}


def apply_rules(workflow: Workflow, state: State, name: str, at: datetime) -> State:
    """Return *state* with the rules about the task *name* applied, in the supervisor's name.

    A task that they, or whoever updates it, blocked may break a rule of those that wait for it.
    """
    state = _apply_to(workflow, state, name, at)
    blocked = state.tasks.get(name)
    if blocked is None or blocked.status is not Status.BLOCKED:
        return state
    for waiting in [task.id for task in state.tasks.values() if name in task.depends_on]:
        state = _apply_to(workflow, state, waiting, at)
    return state


def _apply_to(workflow: Workflow, state: State, name: str, at: datetime) -> State:
    """Return *state* with every alert about the task recorded, and the strongest other rule applied."""
    task = state.tasks.get(name)
    if task is None or task.status in TERMINAL | {Status.BLOCKED} or task.merging:
        return state
    rules = [rule for rule in workflow.watched_rules() if rule.subject is Subject.TASK]
    events = [event for event in task_events(state, task) if event.at <= at]
    found = evaluate(rules, events, state.config.limits, at)
    if any(fired.action is RuleAction.ALERT for fired in found):
        alerts = [rule for rule in rules if rule.action is RuleAction.ALERT]
        state = with_due_trips(state, at, alerts, events)
    for fired in reversed(found):
        act = _EVENTS.get(fired.action)
        if act is None:
            continue
        try:
            return apply(act(fired), to=name, by=SUPERVISOR, at=at)(state)
        except Refused:  # not from where the task is now; the next update looks again
            continue
    return state


def _block(fired: FiredRule) -> e.Event:
    reason = fired.row.reason.format(count=fired.needed) or f"{fired.rule}: {'; '.join(fired.evidence)}"
    is_for_people = fired.action in {RuleAction.ASK, RuleAction.PAUSE}
    return e.Block(reason=reason, questions=fired.row.then, rule=fired.rule, only_people=is_for_people)


def _force_pass(fired: FiredRule) -> e.Event:
    return e.Report(mark=f"forced:{fired.rule}")


_EVENTS: Final[dict[RuleAction, Callable[[FiredRule], e.Event]]] = {
    RuleAction.BLOCK: _block,
    RuleAction.PAUSE: _block,  # a task that is paused waits for people, as one that is blocked does
    RuleAction.STOP: _block,
    RuleAction.ASK: _block,
    RuleAction.FORCE_PASS: _force_pass,
}


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
                files.write_report(path, trip_report(trip, state))
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


def resume(board: Board, now: datetime, by: Actor = HUMAN) -> list[str]:
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
