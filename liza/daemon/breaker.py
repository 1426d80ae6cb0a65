"""The circuit breaker at work: trips are recorded, then reported, and hold their switch while they are open.

Nothing is remembered between two looks but what saves work: a guard that died in the middle of one writes
what is missing at its next, and a switch is there exactly while an open trip asks for it.
"""

from __future__ import annotations

from operator import is_not
from typing import TYPE_CHECKING, Final

from liza.board.location import take_back, throw
from liza.board.quarantine import alert
from liza.daemon import files
from liza.daemon.flows import workflow_of
from liza.daemon.project import switches_of
from liza.daemon.project_sandbox import is_caged
from liza.daemon.reports.trips import report
from liza.daemon.tamper import DRIFTED, Lookout
from liza.daemon.vetting import vet
from liza.domain.changes import HUMAN, SUPERVISOR, Change
from liza.domain.events import Retry
from liza.domain.model import Remedy, Status
from liza.domain.rules import (
    BY_NAME,
    RULES,
    TOLD,
    file_name,
    open_trips,
    resolved,
    resolving,
    sentence,
    tripped,
    trips,
)
from liza.domain.switches import BREAKER, Switch
from liza.errors import Refused, UsageError
from liza.repo.repository import Repository
from liza.workflow.catalogue import CATALOGUE
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.domain.model import CircuitBreaker, State, Trip
    from liza.domain.rules import Rule
    from liza.workflow.document import Workflow

DRIFT: Final = "checkout_drift"
REPORTS: Final = "report"
SWITCHES: Final = {Remedy.CHECKPOINT: Switch.CHECKPOINT, Remedy.PAUSE: Switch.PAUSE}


def watching(workflow: Workflow) -> tuple[Rule, ...]:
    """Return the rules of the board: those that *workflow* names, and those that none can do without."""
    named = named_in(workflow)
    return tuple(rule for rule in RULES if rule.name in named or rule.name not in CATALOGUE)


def named_in(workflow: Workflow) -> frozenset[str]:
    return frozenset(rule.name for rule in workflow.watched())


class Guard:
    def __init__(self, board: Board, home: Path) -> None:
        self._board = board
        self._home = home
        self._seen: tuple[object, ...] = ()  # what the rules read, when they were last asked
        self._reported: CircuitBreaker | None = None

    def look(self, state: State, now: datetime) -> State:
        """Let every rule fire that is due."""
        # The breaker itself is read as well: more of what was open may be due once it is resolved.
        counted, limits = state.sprint.metrics, state.config.limits
        reads = (
            *(state.anomalies, state.tasks, state.circuit_breaker),
            *(counted.fruitless, counted.red_gates, limits),
        )
        if self._seen and not any(map(is_not, reads, self._seen)):
            return state
        rules = self._rules(state)
        if trips(state, now, rules):
            change = Change(SUPERVISOR.id, "trip the breaker", lambda latest: tripped(latest, now, rules))
            return self._board.update(change)
        self._seen = reads
        return state

    def _rules(self, state: State) -> tuple[Rule, ...]:
        try:
            return watching(workflow_of(state.config, self._home.parent))
        except UsageError:  # the workers say so, and pause; until it is mended, every rule counts
            return RULES

    def report(self, state: State) -> None:
        """Write what reports are missing; last, so that a full disk does not keep a switch from working."""
        if state.circuit_breaker is self._reported:
            return
        for trip in state.circuit_breaker.trips:
            path = self._home / REPORTS / file_name(trip)
            if (trip.resolved_at is None or trip.resolution == TOLD) and not path.exists():
                files.write(path, report(trip, state))
        self._reported = state.circuit_breaker

    def hold(self, state: State, switches: Mapping[str, str]) -> bool:
        """Have a switch thrown exactly while an open trip asks for it; tell whether that moved one."""
        wanted = held(state)
        for switch in SWITCHES.values():
            said = switches.get(switch.name)
            if said is None and switch in wanted:
                return throw(self._home, switch, said_of(wanted[switch]))
            if said is not None and said.startswith(BREAKER) and switch not in wanted:
                take_back(self._home, switch)
                return True
        return False


def forgiven(state: State, now: datetime) -> State:
    """Return the board after a person looked at what agents had moved: no such trip is open any more."""
    state = tripped(state, now, [BY_NAME[DRIFT]])
    for trip in [one for one in open_trips(state) if one.rule == DRIFT]:
        state = resolved(state, trip.id, "a person looked at it and resumed", now)
        for name in trip.tasks:
            task = state.tasks.get(name)
            if task and task.status is Status.BLOCKED and DRIFTED in str(task.blocked_reason):
                state = apply(Retry(), to=name, by=HUMAN, at=now)(state)
    return state


def held(state: State) -> dict[Switch, Trip]:
    """Return the switches that open trips hold, each with the first that does."""
    return {SWITCHES[trip.action]: trip for trip in reversed(open_trips(state)) if trip.action in SWITCHES}


def said_of(trip: Trip) -> str:
    return f"{BREAKER}{sentence(trip)}; `{resolving(trip)}`"


def resolution(board: Board, home: Path, name: str, reason: str, now: datetime) -> str:
    """Resolve a trip, take back the switches that only it held, and return what lets the agents go on."""
    change = Change(HUMAN.id, f"resolve {name}", lambda state: resolved(state, name, reason, now))
    state = board.update(change)
    for file, said in switches_of(home).items():
        if said.startswith(BREAKER) and Switch[file] not in held(state):
            take_back(home, Switch[file])
    if left := open_trips(state):
        return f"Resolved {name}; {', '.join(trip.id for trip in left)} is still open (`liza breaker`)."
    if others := list(switches_of(home)):
        return f"Resolved {name}; {' and '.join(others)} is thrown, and `liza resume` takes it back."
    return f"Resolved {name}; the breaker is OK and the agents go on."


def resumed(board: Board, home: Path, now: datetime) -> list[str]:
    """Take back the switches and return their names; raise if a trip is open, which keeps its own.

    What agents moved that is a person's is for people to look at, and whoever resumes has: such trips are
    resolved, the tasks that they blocked go on, and what is on the integration branch is taken as it is.
    """
    said = switches_of(home)
    mine = [name for name in said if not said[name].startswith(BREAKER)]
    for name in mine:  # first, because it must be possible whatever the board is like
        take_back(home, Switch[name])
    state = board.update(Change(HUMAN.id, "resume", lambda latest: forgiven(latest, now)))
    repository = Repository.around(home.parent)
    vet(home, repository, state)
    if not is_caged(state.config.sandbox):
        for sentence in Lookout(home, board, repository, HUMAN.id).accept():
            alert(home, now, sentence)
    if found := open_trips(state):
        first = f"{found[0].id} ({found[0].rule})"
        raise Refused(f"{first} is open and stops the agents; `{resolving(found[0])}` resolves it")
    for name in said.keys() - set(mine):
        take_back(home, Switch[name])
    return list(said)
