"""Who works and when a worker is started again: what follows from how its process ended.

All of it is functions over `Post`, a small frozen record; times are seconds of the supervisor's own clock.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

from liza.domain.anomalies import Anomaly, CrashLoop
from liza.domain.changes import SUPERVISOR, Change
from liza.domain.model import Role, WorkerRecord, WorkerStatus
from liza.domain.record import next_id, with_record, with_records
from liza.domain.rule_events import crash_events
from liza.domain.rules import RULE_BY_NAME, evaluate

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


def with_slots_for(posts: Mapping[str, Slot], wanted: Mapping[str, WorkerRole]) -> dict[str, Slot]:
    """Return *posts* as *wanted*; one that is too many stays while a process fills it."""
    kept = {name: post for name, post in posts.items() if name in wanted or post.began is not None}
    return kept | {name: Slot(role, name) for name, role in wanted.items() if name not in kept}


def is_due(post: Slot, now: float) -> bool:
    return post.began is None and post.due is not None and post.due <= now


def with_process(post: Slot, now: float) -> Slot:
    return replace(post, began=now)


def with_exit(post: Slot, code: int, now: float, *, is_stopped: bool = False) -> Slot:
    """Return *post* after its process ended with *code*, which is negative for a signal.

    *is_stopped* is whether a rule keeps it from being started again.
    """
    lived = now - (now if post.began is None else post.began)
    if not is_crash(code):
        # The first time at once; one that never lives long has to wait longer each time.
        delay = post.delay if lived < MIN_LIFETIME else 0.0
        return replace(post, began=None, due=now + delay, delay=_next_delay(delay))
    if is_stopped:
        return replace(post, began=None, due=None)
    delay = FIRST_DELAY if lived >= STABLE_AFTER else max(post.delay, FIRST_DELAY)
    return replace(post, began=None, due=now + delay, delay=_next_delay(delay))


def is_crash(code: int) -> bool:
    """Tell whether a worker that ended with *code* failed by itself.

    Nobody dies of SIGKILL by a mistake of their own: a person, or a machine short of memory, sent it.
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


def register_workers(posts: Collection[Slot], *, at: datetime, of: HostOffer = ONE_MACHINE) -> Change:
    """Return the change that puts the workers of *posts* on the board, as if nothing had happened before."""

    def make(state: State) -> State:
        agents = {
            post.name: WorkerRecord(id=post.name, role=post.role, since=at, host=of.name, labels=of.labels)
            for post in posts
        }
        return state.replace(agents=with_records(state.agents, agents))

    return Change(SUPERVISOR.id, f"start {', '.join(post.name for post in posts)}", make)


def record_crash(post: Slot, why: str, *, at: datetime) -> Change:
    """Return the change that records a crash of *post*, and stops the worker where a rule says so."""

    def make(state: State) -> State:
        known = state.agents.get(post.name) or WorkerRecord(id=post.name, role=post.role, since=at)
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
            details=CrashLoop(agent=post.name, crashes=count),
        )
        return state.replace(
            agents=with_record(state.agents, agent), anomalies=with_record(state.anomalies, anomaly)
        )

    return Change(SUPERVISOR.id, f"crash of {post.name}", make)
