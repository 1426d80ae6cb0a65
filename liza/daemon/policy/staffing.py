"""Who works and when a worker is started again: what follows from how its process ended.

All of it is functions over `Slot`, a small frozen record; times are seconds of the supervisor's own clock.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from liza.domain.anomalies import Anomaly, CrashLoop
from liza.domain.changes import SUPERVISOR, Change
from liza.domain.model import Role, WorkerRecord, WorkerStatus
from liza.domain.record import next_id, with_record, with_records
from liza.domain.rules import RULE_BY_NAME, crash_events, evaluate

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import datetime

    from liza.domain.config import Config, Workers
    from liza.domain.model import State

WorkerRole = Literal[Role.PLANNER, Role.CODER, Role.REVIEWER]

# The variable that tells a worker the pid of who must live for it to live.
PARENT_VARIABLE: Final = "LIZA_SUPERVISOR"
RESTART_CODE: Final = 42  # exit code of a worker that asks to be started again
KILLED_CODE: Final = -signal.SIGKILL

FIRST_DELAY: Final = 0.1  # seconds before the first restart, doubled each time
LONGEST_DELAY: Final = 30.0  # seconds
STABLE_AFTER: Final = 60.0  # seconds of life after which a crash is the first again
MIN_LIFETIME: Final = 1.0  # seconds: what asks to be started again sooner than this would spin
CUT_OFF_CODE: Final = 43  # exit code of a worker that cannot reach the board
CRASH_LOOP: Final = RULE_BY_NAME["crash_loop"]
MOST_CRASHES: Final = CRASH_LOOP.count.number


@dataclass(frozen=True)
class Slot:
    """The slot of one worker: whether it has a process, and when one may be started."""

    role: WorkerRole
    name: str
    due: float | None = 0.0  # None: not again in this run
    began: float | None = None  # None: no process
    delay: float = 0.0

    @property
    def is_stopped(self) -> bool:
        return self.due is None


@dataclass(frozen=True)
class HostOffer:
    """What one machine offers to a board."""

    name: str | None = None  # None: it is the only one, and its workers are called by their role alone
    slots: Mapping[WorkerRole, int] | None = None  # None: as the settings of the board say
    labels: tuple[str, ...] = ()

    def roles(self, config: Config) -> dict[str, WorkerRole]:
        """Return the workers that this machine is to have: those whose role needs no label that it lacks."""
        counts = _counts(config.workers) if self.slots is None else self.slots
        middle = f"{self.name}-" if self.name else ""
        return {
            f"{role}-{middle}{number}": role
            for role, count in counts.items()
            if set(getattr(config.needs, role)) <= set(self.labels)
            for number in range(1, count + 1)
        }


ONE_MACHINE: Final = HostOffer()


def _counts(workers: Workers) -> dict[WorkerRole, int]:
    return {Role.PLANNER: workers.planner, Role.CODER: workers.coder, Role.REVIEWER: workers.reviewer}


def worker_roles(workers: Workers) -> dict[str, WorkerRole]:
    """Return the workers that a run has by its settings: coder-1, coder-2 …"""
    return {
        f"{role}-{number}": role for role, count in _counts(workers).items() for number in range(1, count + 1)
    }


def team_of(state: State) -> dict[str, WorkerRole]:
    """Return the workers of the board: those of its hosts, and where it has none, those of its settings."""
    if not state.has_hosts:
        return worker_roles(state.config.workers)
    agents = state.agents.values()
    return {agent.id: agent.role for agent in agents if agent.status is not WorkerStatus.STOPPED}


def foreign_workers(state: State, host: str | None) -> frozenset[str]:
    """Return the workers of other machines than *host*: only the end of a lease tells that one is dead."""
    return frozenset(agent.id for agent in state.agents.values() if agent.host != host)


def with_slots_for(slots: Mapping[str, Slot], wanted: Mapping[str, WorkerRole]) -> dict[str, Slot]:
    """Return *slots* with those of *wanted* added; a surplus slot stays while it has a process."""
    kept = {name: slot for name, slot in slots.items() if name in wanted or slot.began is not None}
    return kept | {name: Slot(role, name) for name, role in wanted.items() if name not in kept}


def is_due(slot: Slot, now: float) -> bool:
    return slot.began is None and slot.due is not None and slot.due <= now


def with_process(slot: Slot, now: float) -> Slot:
    return replace(slot, began=now)


def with_exit(slot: Slot, code: int, now: float, *, is_stopped: bool = False) -> Slot:
    """Return *slot* after its process ended with *code*, which is negative for a signal.

    *is_stopped* is whether a rule keeps it from being started again.
    """
    lived = now - (now if slot.began is None else slot.began)
    if not is_crash(code):
        # The first time at once; one that never lives long has to wait longer each time.
        delay = slot.delay if lived < MIN_LIFETIME else 0.0
        return replace(slot, began=None, due=now + delay, delay=_next_delay(delay))
    if is_stopped:
        return replace(slot, began=None, due=None)
    delay = FIRST_DELAY if lived >= STABLE_AFTER else max(slot.delay, FIRST_DELAY)
    return replace(slot, began=None, due=now + delay, delay=_next_delay(delay))


def is_crash(code: int) -> bool:
    """Return whether a worker that ended with *code* failed by itself.

    SIGKILL is no crash: a person, or a machine short of memory, sent it.
    """
    return code not in (0, RESTART_CODE, KILLED_CODE, CUT_OFF_CODE)


def exit_sentence(code: int) -> str:
    """Return in words how a process ended."""
    if code == RESTART_CODE:
        return "asked to be started again"
    if code == 0:
        return "had nothing more to do"
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _next_delay(delay: float) -> float:
    return min(LONGEST_DELAY, max(FIRST_DELAY, 2 * delay))


def register_workers(slots: Collection[Slot], *, at: datetime, of: HostOffer = ONE_MACHINE) -> Change:
    """Return the change that puts the workers of *slots* on the board, with an empty history."""

    def make(state: State) -> State:
        agents = {
            slot.name: WorkerRecord(id=slot.name, role=slot.role, since=at, host=of.name, labels=of.labels)
            for slot in slots
        }
        return state.replace(agents=with_records(state.agents, agents))

    return Change(SUPERVISOR.id, f"start {', '.join(slot.name for slot in slots)}", make)


def record_crash(slot: Slot, why: str, *, at: datetime) -> Change:
    """Return the change that records a crash of *slot*, and stops the worker where a rule says so."""

    def make(state: State) -> State:
        known = state.agents.get(slot.name) or WorkerRecord(id=slot.name, role=slot.role, since=at)
        agent = known.replace(crashes=(*known.crashes, at)[-MOST_CRASHES:])
        fired = evaluate([CRASH_LOOP], tuple(crash_events(agent)), state.config.limits, at)
        if not fired:
            return state.replace(agents=with_record(state.agents, agent))
        count = len(fired[0].events)
        told = f"{count} crashes in {CRASH_LOOP.minutes} minutes; the last one {why}"
        agent = agent.replace(status=WorkerStatus.STOPPED, since=at, stopped_reason=told)
        anomaly = Anomaly(
            id=next_id(state.anomalies, "anomaly"),
            type="crash_loop",
            logged_by=SUPERVISOR.id,
            timestamp=at,
            details=CrashLoop(agent=slot.name, crashes=count),
        )
        return state.replace(
            agents=with_record(state.agents, agent), anomalies=with_record(state.anomalies, anomaly)
        )

    return Change(SUPERVISOR.id, f"crash of {slot.name}", make)
