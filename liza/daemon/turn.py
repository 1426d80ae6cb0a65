"""One turn of a worker, on a task that it holds or on none: what it works with, and what becomes of it."""

from __future__ import annotations

import logging
import random
import secrets
import threading
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

from liza.agents.protocol import PricingAgent, RecordingAgent
from liza.agents.select import COMMAND, REPLAY, RunRequester, agent_for, backend_of, choice_for, planned_run
from liza.daemon.effects import EffectContext, comment, perform_effects, take_back
from liza.daemon.policy.pick import (
    EndedRun,
    admit,
    denial_of,
    park,
    phase_of,
    release_unused,
    settle_ended_run,
)
from liza.daemon.project_sandbox import (
    DRIFTED,
    TAKEN_AS_YOURS,
    ProjectSandbox,
    TamperMonitor,
    commit_list,
    is_sandboxed,
    note_base,
    record_human_commits,
    unknown_commits,
    unknown_commits_sentence,
)
from liza.daemon.travel import CodeExchange, shared_remote
from liza.daemon.workflow_in_use import why_unvetted, workflow_file
from liza.domain.anomalies import CheckoutDrift, GateBroken
from liza.domain.budget import (
    RESUME,
    AdmissionRequest,
    Cap,
    budget_question,
    budget_warning,
    extend_reservation,
    is_budget_question_open,
    is_within_reservation,
    provider_news,
    raise_budget_command,
    with_warning_given,
)
from liza.domain.changes import Change, with_anomaly, with_effects_intended, with_notes_read
from liza.domain.config import BREAKER_PREFIX, WORKER_PREFIX, Switch, strongest_switch
from liza.domain.lifecycle import Block, Land, Release, Renew, Report
from liza.domain.model import Actor, EffectIntent, HistoryEntry, Lease, Role, State, Status, Task
from liza.domain.record import printable, utc_now
from liza.errors import ForgeFailed, LizaError, Refused
from liza.repo.pool import Worktrees
from liza.repo.repository import BRANCHES, Repository
from liza.repo.snapshot import WorktreeTracker
from liza.system.files import environment_mask
from liza.system.run_control import RunControl, sleep_unless_stopped
from liza.workflow.document import workflow_on
from liza.workflow.transition import advance, apply, apply_rules, effects_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from liza.agents.protocol import Agent
    from liza.board.protocol import Board
    from liza.daemon.effects import Delivery
    from liza.daemon.project_sandbox import DriftReport
    from liza.domain.anomalies import AgentAnomaly
    from liza.domain.answers import Step
    from liza.domain.config import AgentChoice
    from liza.domain.lifecycle import Event
    from liza.domain.model import Verdict
    from liza.errors import BrokenGate
    from liza.repo.shared_remote import SharedRemote
    from liza.workflow.document import Effect, Hat, Phase, Workflow

    More = Callable[[State], State]


# Beside a turn: the lease is renewed while the run shows life, switches and signals are heard.
#
# The second never waits for the board. It goes by the steady clock of this machine, so that a worker that is
# cut off has stopped before its lease ends for everybody else.

# Requests from outside to a worker at work: switches in `.liza/`, and signals.


class StopRequests:
    """The switch that applies to one worker. A signal acts like ABORT for this worker only."""

    def __init__(self, board: Board, clock: Callable[[], datetime] = utc_now) -> None:
        self._board = board
        self._clock = clock
        self._signals = 0
        self._stop: RunControl | None = None

    def switch(self) -> Switch:
        return strongest_switch(self.thrown())

    def thrown(self) -> dict[str, str]:
        """Return the switches that are thrown, for this worker."""
        if self._signals:
            return {Switch.ABORT.name: ""}
        return self._board.switches.thrown()

    def add_signal(self) -> None:
        """Count a signal: the first asks the run to end, the second kills it; safe in a handler."""
        self._signals += 1
        if self._stop is not None:
            self._forward_signals(self._stop)

    @contextmanager
    def forward_signals_to(self, stop: RunControl) -> Iterator[None]:
        """Pass signals to *stop* at once, without waiting for the next poll."""
        self._stop = stop
        if self._signals:
            self._forward_signals(stop)
        try:
            yield
        finally:
            self._stop = None

    def _forward_signals(self, stop: RunControl) -> None:
        if self._signals > 1:
            stop.now()
        else:
            stop.ask()

    def pause(self, why: str) -> None:
        """Throw the PAUSE switch for everybody, and tell people why; one that is there already stays."""
        said = why if why.startswith(BREAKER_PREFIX) else f"{WORKER_PREFIX}{why}"
        if self._board.switches.throw(Switch.PAUSE, environment_mask().text(said)):
            self._board.alerts.append(f"everybody pauses: {why}", at=self._clock())


def forward_switch(switch: Switch, stop: RunControl) -> None:
    """Ask, pause or resume the run that *stop* controls, as *switch* says."""
    if switch is Switch.ABORT:
        stop.ask()
    elif switch is Switch.PAUSE and not stop.paused:
        stop.pause()
    elif switch in (Switch.NORMAL, Switch.CHECKPOINT) and stop.paused:
        stop.resume()  # at a CHECKPOINT a worker first ends its turn


COST_INTERVAL: Final = 0.5  # seconds between two looks at the money while an agent runs
SWITCH_INTERVAL: Final = 0.1  # seconds between two looks at the switches; all agents are to end within one
FENCE_SHARE: Final = 0.1  # of a lease, before its end, at which whoever could not renew it stops
LONGEST_FENCE: Final = 2.0  # seconds; ending an agent takes less
RENEWALS_PER_LEASE: Final = 3  # a lease is renewed after this part of it, so that two renewals may go wrong

log = logging.getLogger(__name__)


class HeldLease(NamedTuple):
    """A task that a worker holds, and the token that proves it."""

    task: str
    by: Actor
    seconds: float


class LeaseRenewer:
    """Renews the lease of one turn; a lost lease stops its run at once.

    *why_too_costly* gets the cost of the run so far and returns why it has to end, or None.
    """

    def __init__(
        self,
        board: Board,
        stop_requests: StopRequests,
        stop: RunControl,
        held: HeldLease | None,
        clock: Callable[[], datetime],
        why_too_costly: Callable[[float], str | None] = lambda _: None,
    ) -> None:
        self.lost: str | None = None
        self._why_too_costly = why_too_costly
        self._count = time.monotonic() + COST_INTERVAL
        self._board = board
        self._stop_requests = stop_requests
        self._stop = stop
        self._held = held
        self._clock = clock
        self._patience: float | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, name="lease", daemon=True)
        self._due = time.monotonic() + (held.seconds / RENEWALS_PER_LEASE if held else 0)
        self._ends = steady_seconds() + (held.seconds if held else 0)  # for everybody else
        self._fence = threading.Thread(target=self._stop_in_time, name="fence", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        if self._held:
            self._fence.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        if self._held:
            self._fence.join()

    @contextmanager
    def require_liveness(self, patience: float) -> Iterator[None]:
        """Renew only while a run shows signs of life at least every *patience* seconds."""
        self._stop.note_life()
        self._patience = patience
        try:
            yield
        finally:
            self._patience = None

    def _run_loop(self) -> None:
        while not self._over.wait(SWITCH_INTERVAL):
            forward_switch(self._stop_requests.switch(), self._stop)
            if self._held and self.lost is None and time.monotonic() >= self._due and self._is_alive():
                self._renew(self._held)
            if self._patience is not None and self._stop.capped is None and time.monotonic() >= self._count:
                self._check_cost()

    def _check_cost(self) -> None:
        self._count = time.monotonic() + COST_INTERVAL
        try:
            why = self._why_too_costly(self._stop.usd)
        except LizaError as error:  # as with the lease; the run's own end tells what it cost
            log.warning("what the run costs could not be compared with its cap: %s", error)
            return
        if why:
            self._stop.cap(why)

    def _is_alive(self) -> bool:
        if self._patience is None or self._stop.paused:
            return True
        return time.monotonic() - self._stop.seen <= self._patience

    def _renew(self, held: HeldLease) -> None:
        self._due = time.monotonic() + held.seconds / RENEWALS_PER_LEASE
        began, now = steady_seconds(), self._clock()
        renewal = Renew(expires=now + timedelta(seconds=held.seconds))
        try:
            self._board.update(apply(renewal, to=held.task, by=held.by, at=now))
        except Refused as error:
            self.lost = str(error)
            self._stop.now()
        except LizaError as error:  # a full disk may be better in a while; if not, the lease ends by itself
            log.warning("%s: the lease could not be renewed: %s", held.task, error)
        else:
            self._ends = began + held.seconds

    def _stop_in_time(self) -> None:
        """End the run shortly before the lease ends that could not be renewed."""
        seconds = self._held.seconds if self._held else 0.0
        margin = min(LONGEST_FENCE, FENCE_SHARE * seconds)
        while (left := self._ends - margin - steady_seconds()) > 0:
            if self._over.wait(min(left, 1.0)):  # the machine may sleep meanwhile
                return
        if self.lost is None:
            self.lost = f"{self._held.task if self._held else ''}: its lease could not be renewed in time"
            log.warning("%s; the run is ended", self.lost)
            self._stop.now()


def steady_seconds() -> float:
    """Return seconds that only go forward, also while the machine sleeps where it can tell."""
    clock = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime(clock)


# One worker: who it is, and what it has to work with.

RUNS: Final = "runs"  # below .liza
SANDBOXED_REASON: Final = "no agent in a sandbox can reach the branch"
MOST_MOVED: Final = 10  # things that moved which one anomaly names


@dataclass
class Worker:
    """One worker: its identity and its resources."""

    home: Path
    board: Board
    repository: Repository
    role: Role
    name: str
    stop_requests: StopRequests
    clock: Callable[[], datetime] = utc_now
    due: datetime | None = None  # when a run that may not begin now may be tried again
    parked: datetime | None = None  # until when a full disk, or a remote that fails, is left alone
    _runs: int = 0
    _seen_workflow: tuple[int, ...] | None = None  # the file of the workflow, once it was found to be right

    @property
    def worktrees(self) -> Worktrees:
        return Worktrees(self.repository)

    @cached_property
    def trees(self) -> WorktreeTracker:
        return WorktreeTracker(self.worktrees)

    def workflow(self, state: State) -> Workflow:
        return workflow_on(state)

    def why_unvetted(self, state: State) -> str | None:
        """Return why the workflow file is not followed; computed again only where the file changed."""
        path = workflow_file(state, self.repository.root)
        facts = path.stat() if path else None
        stamp = (facts.st_ino, facts.st_mtime_ns, facts.st_ctime_ns) if facts else None
        if stamp is None or stamp == self._seen_workflow:
            return None
        why = why_unvetted(self.home, self.repository, state)
        self._seen_workflow = None if why else stamp
        return why

    @cached_property
    def exchange(self) -> CodeExchange:
        """What is fetched from the remote that hosts share, and published there."""
        return CodeExchange(self.repository, self.board)

    def remote(self, state: State) -> SharedRemote | None:
        return shared_remote(self.repository, state.config) if state.config.remote else None

    def integration(self, state: State) -> str:
        """Return the full name of the ref that says where the integration branch is."""
        remote = self.remote(state)
        return remote.tracked if remote else BRANCHES + state.config.integration_branch

    def fetch(self, state: State, *tasks: str) -> None:
        """Fetch what other hosts merged, and their submissions of *tasks*."""
        if state.config.remote:
            self.exchange.fetch(state.config, *tasks)

    def actor(self, token: str | None = None) -> Actor:
        return Actor(role=self.role, id=self.name, token=token)

    def choice(self, state: State, step: Step, task: str | None, hat: str | None) -> AgentChoice:
        """Return the agent of *step* now: as configured, or the fallback while its provider is limited."""
        return choice_for(state, RunRequester(self.role, self.name, self.clock(), hat), step, task)

    def agent(self, state: State, choice: AgentChoice) -> Agent:
        """Return the agent that *choice* names."""
        agent = agent_for(choice, self.repository.root, self.trees.apply, self.project_sandbox(state))
        # A recording costs what it says and nothing else.
        backend = backend_of(choice)
        # Nobody but its author knows what a program of one's own does, so that its cost is not guessed.
        paid = PricingAgent(agent, choice.model, guesses=backend != COMMAND)
        return RecordingAgent(agent, self.trees, None if backend == REPLAY else paid.price)

    def project_sandbox(self, state: State) -> ProjectSandbox:
        """Return the sandbox for what this worker runs."""
        return ProjectSandbox(self.home, self.repository, state.config.sandbox, state.config.worktree.copied)

    def planned_run(
        self,
        state: State,
        step: Step,
        task: str | None,
        *later: Step,
        instead: AgentChoice | None = None,
        hat: str | None = None,
    ) -> AdmissionRequest:
        """Return the run of *step*, as it has to be admitted; *later* are steps that follow in this turn."""
        who = RunRequester(self.role, self.name, self.clock(), hat)
        return planned_run(state, who, step, task, *later, instead=instead)

    def extend_reservation(self, usd: float) -> str | None:
        """Reserve more for this worker's run, which cost *usd* so far; return why it has to end, or None."""
        if is_within_reservation(self.board.read(), self.name, usd):
            return None
        found: list[str | None] = []

        def make(state: State) -> State:
            state, why = extend_reservation(state, self.name, usd)
            found.append(why)
            return state

        self.board.update(Change(self.name, "set more money aside", make))
        return found[-1]

    def check_admission(self, state: State, run: AdmissionRequest) -> bool:
        """Return whether *run* is admitted; if not, park the worker and set `due` to when to look again."""
        now = self.clock()
        denial = denial_of(state, run, now)
        self.due = denial.until if denial else None
        if denial is None or denial.cap is Cap.TASK:  # a task that may not cost more is blocked by its claim
            return True
        if park(state, run, denial, now) is not state:
            self._park(run)
        return False

    def _park(self, run: AdmissionRequest) -> None:
        told: list[str] = []

        def make(state: State) -> State:
            denial = denial_of(state, run, self.clock())
            if denial is None or denial.cap is Cap.TASK:
                return state
            if denial.cap is Cap.RUN and not is_budget_question_open(state):
                told.append(f"everybody pauses: {budget_question(state)} (`{raise_budget_command(state)}`)")
            return park(state, run, denial, self.clock())

        self.board.update(Change(self.name, "wait", make))
        self.tell(told)

    def is_parked(self) -> bool:
        return self.parked is not None and self.clock() < self.parked

    @property
    def tamper_monitor(self) -> TamperMonitor:
        return TamperMonitor(self.home, self.board, self.repository, self.name, None, self.clock)

    def verify_head(self, head: str) -> bool:
        """Return whether work may build on *head*: unknown commits below it need a person's word."""
        state = note_base(self.board, head, by=self.name)
        if not (found := unknown_commits(self.repository, self.home, state, head)):
            return True
        if is_sandboxed(state.config.sandbox):
            self.tell(
                [record_human_commits(self.board, found, SANDBOXED_REASON, by=self.name, at=self.clock())]
            )
            return True
        if stops := self.report_drift(self.tamper_monitor.look()):
            self.record_drift("somebody", stops)
        if not unknown_commits(self.repository, self.home, self.board.read(), head):
            return True
        sentence = unknown_commits_sentence(state, commit_list(found))
        self.stop_requests.pause(
            f"{sentence}; if it is yours, `{RESUME}` takes it, else put the branch back first"
        )
        return False

    def report_drift(self, seen: DriftReport) -> tuple[str, ...]:
        """Report changes that people may have made; return those that only this worker's run can make."""
        stops = tuple(environment_mask().text(printable(one)) for one in seen.stops)
        names = " or ".join(f"the agent of {name}" for name in sorted(seen.suspects))
        for one in map(environment_mask().text, map(printable, seen.told)):
            is_ours = one.startswith(TAKEN_AS_YOURS)
            self.tell(
                [one if is_ours else f"{one} while {names} ran without a sandbox: look, unless it was you"]
            )
        if not stops or seen.suspects == {self.name}:
            return stops
        # Whose it was nobody can tell: everybody stops, and nobody's work is thrown away for it.
        self.record_drift(names or "somebody", stops)
        return ()

    def record_drift(self, who: str, moved: tuple[str, ...]) -> None:
        """Pause the run and record that *who* changed what agents must not change."""
        details, at = self.pause_for_drift(who, moved), self.clock()
        change = Change(
            self.name, "log", lambda state: with_anomaly(state, details, about=None, by=self.name, at=at)
        )
        self.board.update(change)

    def pause_for_drift(self, who: str, moved: tuple[str, ...]) -> CheckoutDrift:
        """Throw PAUSE, tell people why, and return what the board should say."""
        named = moved[:MOST_MOVED]
        sentence = f"{who} {DRIFTED}{'; '.join(named)}"
        self.stop_requests.pause(f"{sentence}; look at it, put back what is wrong, then `{RESUME}`")
        self.tell([sentence])
        return CheckoutDrift(moved=named)

    def tell(self, sentences: Iterable[str]) -> None:
        """Tell people something that they may have to act on."""
        for sentence in sentences:
            log.warning("%s", sentence)
            self.board.alerts.append(sentence, at=self.clock())

    def run_id(self, what: str) -> str:
        """Return an id for a run that tells who ran it, sorts by time and is used once."""
        self._runs += 1
        return f"{self.name}.{self.clock():%Y%m%dT%H%M%S}.{self._runs}-{secrets.token_hex(3)}.{what}"

    def lease(self, state: State, token: str) -> Lease:
        seconds = state.config.limits.lease_seconds
        return Lease(holder=self.name, token=token, expires=self.clock() + timedelta(seconds=seconds))


# One turn of a worker on a task that it holds, or on none: what becomes of it is written to the board.

# Seconds beyond the silence limit, which ends the agent first, before a lease is let go.
LEASE_SLACK: Final = 30.0
FORGE_QUESTION: Final = "Can you put that right, so that this can go on?"


class AfterTurn(Enum):
    """What a worker does after a turn."""

    WORK = auto()  # look for more at once
    WAIT = auto()  # until the board changes
    RESTART = auto()  # end, and be started afresh


class TakenTask(NamedTuple):
    """A task whose job was taken: as it is now, and as it was before."""

    state: State
    task: Task
    before: Task
    token: str


@dataclass
class Turn:
    """One turn on one task, or on none; *actor* proves with its token that the task is held."""

    worker: Worker
    state: State
    actor: Actor
    stop: RunControl
    lease_renewer: LeaseRenewer
    task: str | None = None
    about: str | None = None  # the task that is thought about, for who holds none
    runs: list[str] = field(default_factory=list)
    admitted: AdmissionRequest | None = None  # what was admitted and has not begun
    last: AgentChoice | None = None  # who ran last
    ended: list[EndedRun] = field(default_factory=list)  # what the board does not know yet
    verdicts: tuple[Verdict, ...] = ()  # of gates that were asked before the work
    delivered: set[str] = field(default_factory=set)  # notes about the task that an agent has read
    hat: str | None = None  # the role of the workflow whose job this is
    part: str | None = None  # the file that says what it is there for, where it is another than the hat's
    comments: list[tuple[str, str]] = field(default_factory=list)  # for the forge: who said what

    @cached_property
    def tamper_monitor(self) -> TamperMonitor | None:
        """The tamper monitor of this turn; None in a sandbox, where a run can change nothing outside."""
        if is_sandboxed(self.state.config.sandbox):
            return None
        return replace(self.worker.tamper_monitor, task=self.task)

    @property
    def by(self) -> Actor:
        """The actor, with the run whose outcome it records."""
        return self.actor.replace(run=self.runs[-1] if self.runs else None)

    @property
    def subject(self) -> Task:
        """The task as this turn knows it."""
        return self.state.task(str(self.task))

    @property
    def workflow(self) -> Workflow:
        return self.worker.workflow(self.state)

    @property
    def worn(self) -> Hat | None:
        """The hat of this turn."""
        return self.workflow.hat(self.hat) if self.hat else None

    @property
    def phase(self) -> Phase:
        """The phase that the task is in, as this turn knows it."""
        return phase_of(self.state, self.subject)

    def current(self) -> Task:
        """Return the task as the board has it now."""
        return self.worker.board.read().task(str(self.task))

    def update(self, what: str, make: More, about: Callable[[], str] | None = None) -> State:
        """Apply *make* to the board, and record the finished runs of this turn, in one update."""
        told: list[str] = []
        at, chance = self.worker.clock(), random.random()  # noqa: S311 - it spreads retries, and guards nothing

        def settle_and_make(state: State) -> State:
            heard = with_notes_read(state, tuple(sorted(self.delivered)), by=self.actor, at=at)
            return make(_settle_runs(heard, self.ended, told, at=at, chance=chance))

        state = self.worker.board.update(Change(self.worker.name, what, settle_and_make, about))
        self.ended.clear()
        self.worker.tell(told)
        return state

    def settle(self) -> None:
        """Release what is still reserved, and record every run that the board does not know yet."""
        if moved := self.end_run():
            self.worker.record_drift(f"{self.worker.name}'s agent", moved)
        state, name = self.worker.board.read(), self.worker.name
        if self.ended or release_unused(state, name) is not state:
            self.update("settle", lambda latest: release_unused(latest, name))

    def known_state(self) -> State:
        """Return the board as this turn knows it, with what the providers say by now."""
        return self.state.replace(providers=self.worker.board.read().providers)

    def record(self, *events: Event, more: More | None = None, then: Step | None = None) -> State:
        """Apply *events* to the task and *more* to the board, in one update that also admits *then*."""
        at, by, name = self.worker.clock(), self.by, str(self.task)
        events = tuple(self._with_effects(_mask_event(event)) for event in events)
        for event in events:
            if isinstance(event, Report) and event.commit:
                self._publish(event.commit)
        run = self.worker.planned_run(self.known_state(), then, self.task, hat=self.hat) if then else None

        told: list[str] = []

        def make(state: State) -> State:
            known = state.task(name).event_count
            for event in events:
                # The rounds may be used up by the event before it, which blocks the task as well.
                if not (isinstance(event, Block) and state.task(name).status is Status.BLOCKED):
                    state = apply(event, to=name, by=by, at=at)(state)
            self.admitted = run if run and not denial_of(state, run, at) else None
            state = admit(state, run, at) if run and self.admitted else state
            task = state.task(name)
            new = task.history[max(0, known - task.history_earlier) :]
            told[:] = [_entry_text(entry) for entry in new]
            words[:] = [entry.event for entry in new]
            state = more(state) if more else state
            return apply_rules(self.worker.workflow(state), state, name, at) if events else state

        words: list[str] = []
        state = self.update("", make, lambda: f"{' and '.join(words)} {name}" if words else "log")
        for line in told:
            log.info("%s: %s", name, line)
        return state

    def _publish(self, commit: str) -> None:
        """Let every host have *commit* before the board names it."""
        config, token = self.state.config, self.actor.token
        if config.remote is None or token is None or commit == self.current().review_commit:
            return

        def wait(seconds: float) -> bool:
            return self.lease_renewer.lost is None and sleep_unless_stopped(self.stop, seconds)

        self.worker.exchange.publish_work(config, str(self.task), token, commit, wait=wait)

    def _with_effects(self, event: Event) -> Event:
        """Perform the effects that the workflow has for *event*; return it with their results."""
        if not isinstance(event, Report | Land):
            return event
        task, flow = self.current(), self.workflow
        try:
            wanted = effects_of(flow, task, event, by=self.by, at=self.worker.clock())
            after = advance(flow, task, event, by=self.by, at=self.worker.clock())
        except Refused:  # the update says why
            return event
        if not (wanted.effects or task.intended or task.issue):
            return event
        commit = event.commit or task.review_commit
        home, trees, now = self.worker.home, self.worker.worktrees, self.worker.clock()
        context = EffectContext(home, trees, now, self.state, after, commit, wanted.taints)
        try:
            undone = take_back(context, task, wanted.effects)
            if wanted.effects:
                self._intend(wanted.effects, commit)
            done = {**undone, **perform_effects(context, task, wanted.effects)}
            self._comment(context.delivery(task))
        except ForgeFailed as error:
            return Block(reason=printable(str(error)), questions=(FORGE_QUESTION,), only_people=True)
        return event.replace(effects=done) if done else event

    def _intend(self, effects: tuple[Effect, ...], commit: str | None) -> None:
        """Record the effects that are about to begin, so that a crash in between can be noticed."""
        name, by, at = str(self.task), self.by, self.worker.clock()
        intent = EffectIntent(effects=tuple(map(str, effects)), commit=commit, at=at, by=by.id)
        self.update(
            f"intend {' and '.join(intent.effects)} {name}",
            lambda state: with_effects_intended(state, name, intent, by),
        )

    def _comment(self, delivery: Delivery) -> None:
        """Comment this round on the forge; a forge that fails holds up no work."""
        said, self.comments = tuple(self.comments), []
        for role, text in said if delivery.task.issue else ():
            try:
                comment(delivery, role, text)
            except ForgeFailed as error:
                log.warning("%s: %s", self.task, error)

    def release(self) -> None:
        """Give the task back, where this turn still holds it."""
        lease = self.current().lease
        if lease is not None and lease.token == self.actor.token:
            self.record(Release(reason="its next job is for another turn"))

    def with_anomalies(self, state: State, found: Iterable[AgentAnomaly], about: str | None = None) -> State:
        """Return *state* with what the agent says should not have happened."""
        at = self.worker.clock()
        for details in found:
            state = with_anomaly(state, details, about=about or self.task, by=self.worker.name, at=at)
        return state

    def begin_run(self) -> None:
        """Tell the tamper monitor that an agent, or code of agents, is about to run."""
        if self.tamper_monitor:
            self.worker.report_drift(self.tamper_monitor.begin())

    def end_run(self) -> tuple[str, ...]:
        """End the run for the tamper monitor; return the changes that only this run can have made outside."""
        return self.worker.report_drift(self.tamper_monitor.end()) if self.tamper_monitor else ()

    def record_broken_gate(self, error: BrokenGate, *events: Event) -> None:
        """Record that a gate cannot judge any work, apply *events* to the task, and pause everybody."""
        at, by = self.worker.clock(), self.worker.name
        details = GateBroken(gate=error.gate, command=error.line, cause=error.cause, likely=error.likely)

        def more(state: State) -> State:
            known = (one.details for one in state.anomalies.values() if one.processed is None)
            return state if details in known else with_anomaly(state, details, about=self.task, by=by, at=at)

        self.record(*events, more=more)
        # After the record: a switch of the breaker that no trip asks for is taken back.
        self.worker.stop_requests.pause(f"{BREAKER_PREFIX}{error}; then `liza breaker`")

    def block_for_drift(self, moved: tuple[str, ...], who: str = "agent") -> None:
        """Record that a run changed something outside of its worktree, and pause everybody."""
        name, at = f"{self.worker.name}'s {who}", self.worker.clock()
        if self.task is None:
            self.worker.record_drift(name, moved)
            return
        details = self.worker.pause_for_drift(name, moved)
        question = "Is what moved as you want it, and may the task go on? `liza resume` says yes."
        reason, by = f"{name} {DRIFTED}{'; '.join(details.moved)}", self.worker.name
        block = Block(reason=reason, questions=(question,), only_people=True)
        self.record(block, more=lambda state: with_anomaly(state, details, about=self.task, by=by, at=at))


def _settle_runs(
    state: State, runs: Sequence[EndedRun], told: list[str], *, at: datetime, chance: float
) -> State:
    """Return the board with *runs* paid for and their providers heeded; *told* gets what is news."""
    for run in runs:
        before, state = state, settle_ended_run(state, run, at=at, chance=chance)
        if word := provider_news(before, state, run.run.provider):
            told.append(word)
    if runs and (word := budget_warning(state)):
        told.append(word)
        state = with_warning_given(state)
    return state


@contextmanager
def open_turn(
    worker: Worker,
    state: State,
    task: Task | None = None,
    token: str | None = None,
    admitted: AdmissionRequest | None = None,
    about: str | None = None,
) -> Iterator[Turn]:
    """Open a turn: renew the lease in the background and pass switches and signals on to the agent."""
    stop, actor = RunControl(), worker.actor(token)
    held = HeldLease(task.id, actor, state.config.limits.lease_seconds) if task and token else None
    with ExitStack() as stack:
        stack.enter_context(worker.stop_requests.forward_signals_to(stop))
        renewer = stack.enter_context(
            LeaseRenewer(
                worker.board, worker.stop_requests, stop, held, worker.clock, worker.extend_reservation
            )
        )
        name = task.id if task else None
        turn = Turn(worker, state, actor, stop, renewer, name, about=about, admitted=admitted)
        try:
            yield turn
        finally:
            turn.settle()


def _mask_event(event: Event) -> Event:
    """Return *event* with secrets masked; file names come from git, not from a masked reply."""
    plain = event.model_dump()
    safe = environment_mask().values(plain)
    return event if safe == plain else type(event).model_validate(safe)


def _entry_text(entry: HistoryEntry) -> str:
    said = entry.facts.get("reason") or entry.facts.get("summary") or entry.facts.get("commit")
    return f"{entry.event}{f': {said}' if said else ''}"
