"""What every worker has at hand, and a turn of it: a task, an agent, an update with what came of it."""

from __future__ import annotations

import logging
import secrets
import signal
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from liza import prompting
from liza.agents.found import available
from liza.agents.protocol import MEANING, Brief, Ending, Limits, Reply, Stop
from liza.agents.recording import Recorder
from liza.anomalies import CheckoutDrift
from liza.board.rejected import alert
from liza.changes import Change, apply, with_anomaly
from liza.config import AgentChoice
from liza.errors import LizaError
from liza.events import Block
from liza.lifecycle import name_of
from liza.model import Actor, Lease, Role, State, Task
from liza.record import printable, utc_now
from liza.replies import Answer, Step, Value, answer
from liza.repo.content import Trees
from liza.repo.fingerprint import Fingerprint, drift, fingerprint
from liza.repo.pool import Worktrees
from liza.repo.repository import BRANCHES, TASKS, Repository
from liza.work.hiring import chosen, failed_to_start, hired
from liza.work.keeper import Held, Keeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from liza.agents.protocol import Agent
    from liza.board.protocol import Board
    from liza.events import Event
    from liza.work.orders import Orders

    More = Callable[[State], State]

RUNS: Final = "runs"
SLACK: Final = 30.0  # seconds beyond the silence limit, which ends the agent first, before a lease is let go
# How long to wait where the provider does not say: a minute's limit, a window that is used up, a bad key.
PARKED: Final = {
    Ending.RATE_LIMITED: timedelta(minutes=1),
    Ending.QUOTA: timedelta(minutes=15),
    Ending.AUTH: timedelta(minutes=15),
}
MOST_KILLED: Final = 3  # times in a row that an agent may be killed by others before it counts as its failure
MOST_MOVED: Final = 10  # things that moved which one anomaly names

log = logging.getLogger(__name__)


class Next(Enum):
    """What a worker does after a turn."""

    WORK = auto()  # look for more at once
    WAIT = auto()  # until the board changes
    RESTART = auto()  # end, and be started afresh


@dataclass
class Place:
    """A worker's place: who it is and all that it works with."""

    home: Path
    board: Board
    repository: Repository
    role: Role
    name: str
    orders: Orders
    clock: Callable[[], datetime] = utc_now
    parked: datetime | None = None  # until when its agent's provider wants to be left alone
    _runs: int = 0

    @property
    def worktrees(self) -> Worktrees:
        return Worktrees(self.repository)

    @cached_property
    def trees(self) -> Trees:
        return Trees(self.worktrees)

    def integration(self, state: State) -> str:
        """Return the full name of the integration branch."""
        return BRANCHES + state.config.integration_branch

    def actor(self, token: str | None = None) -> Actor:
        return Actor(role=self.role, id=self.name, token=token)

    def agent(self, state: State, step: Step, *, instead: AgentChoice | None = None) -> Agent:
        """Return the agent of *step*, or that of *instead*."""
        choice = instead or chosen(state.config.agents, self.role, step, available=available())
        return Recorder(hired(choice, self.repository.root, self.trees.apply), self.trees)

    def park(self, reply: Reply) -> None:
        """Leave the agent's provider alone for as long as it asks for, or as its ending advises."""
        pause = PARKED.get(reply.ending)
        if pause is not None:
            self.parked = reply.reset or self.clock() + pause
            said = f"{self.name} waits until {self.parked:%H:%M:%SZ}: {reply.why or MEANING[reply.ending]}"
            log.warning("%s", said)
            if reply.ending is not Ending.RATE_LIMITED:  # a limit a minute is no news; these need a person
                alert(self.home, self.clock(), said)

    def is_parked(self) -> bool:
        return self.parked is not None and self.clock() < self.parked

    def run_id(self, what: str) -> str:
        """Return an id for a run that tells who ran it, sorts by time and is used once."""
        self._runs += 1
        return f"{self.name}.{self.clock():%Y%m%dT%H%M%S}.{self._runs}-{secrets.token_hex(3)}.{what}"

    def lease(self, state: State, token: str) -> Lease:
        seconds = state.config.limits.lease_seconds
        return Lease(holder=self.name, token=token, expires=self.clock() + timedelta(seconds=seconds))


class Asked(NamedTuple):
    """What came of asking an agent: an answer, or why there is none."""

    reply: Reply
    run: str
    value: Value | None
    why: str = ""
    moved: tuple[str, ...] = ()  # what it did to the user's repository


@dataclass
class Turn:
    """One turn on one task, or on none; *actor* proves with its token that the task is held."""

    place: Place
    state: State
    actor: Actor
    stop: Stop
    keeper: Keeper
    task: str | None = None
    runs: list[str] = field(default_factory=list)
    _print: Fingerprint | None = None  # of the user's repository, after the last run

    @property
    def by(self) -> Actor:
        """The actor, with the run whose outcome it records."""
        return self.actor.but(run=self.runs[-1] if self.runs else None)

    def current(self) -> Task:
        return self.place.board.read().task(str(self.task))

    def record(self, *events: Event, more: More | None = None) -> State:
        """Let *events* happen to the task, and *more* to the board, in one update."""
        at, by, name = self.place.clock(), self.by, str(self.task)

        def make(state: State) -> State:
            for event in events:
                state = apply(event, to=name, by=by, at=at)(state)
            return more(state) if more else state

        done = " and ".join(name_of(type(event)) for event in events)
        what = f"{done} {name}" if events else "log"
        state = self.place.board.update(Change(self.place.name, what, make))
        for event in events:
            log.info("%s: %s", name, _told(event))
        return state

    def ask(
        self,
        step: Step,
        known: Mapping[str, str],
        cwd: Path,
        *,
        check: Callable[[Value], str | None] = lambda _: None,
        again: frozenset[Ending] = frozenset({Ending.DONE}),
    ) -> Asked:
        """Ask the agent, and where there is no answer that *check* takes, once more with the reason."""
        facts = {name: printable(text) for name, text in known.items()}
        prompt = prompting.prompt(step, facts, nonce=secrets.token_hex(8))
        self.place.trees.begin()
        asked = self._unkilled(step, prompt, cwd, check)
        if asked.value is not None or asked.moved or asked.reply.ending not in again:
            return asked
        log.info("%s: asked once more, because %s", self.task or step, asked.why)
        better = prompting.asked_again(prompt, asked.why, nonce=secrets.token_hex(8))
        return self._unkilled(step, better, cwd, check)

    def _unkilled(self, step: Step, prompt: str, cwd: Path, check: Callable[[Value], str | None]) -> Asked:
        """Ask, and ask again where somebody killed the agent: that says nothing about it or its task."""
        for _ in range(MOST_KILLED):
            asked = self._started(step, prompt, cwd, check)
            if asked.reply.code != -signal.SIGKILL or asked.reply.ending is not Ending.CRASHED:
                return asked
            log.warning("%s: the agent was killed, and is started again", self.task or step)
        return self._once(step, prompt, cwd, check)

    def _started(self, step: Step, prompt: str, cwd: Path, check: Callable[[Value], str | None]) -> Asked:
        """Ask, and where the agent cannot even be started, ask the one that is set up to stand in, once."""
        asked = self._once(step, prompt, cwd, check)
        instead = self.state.config.agents.fallback
        if instead is None or asked.moved or not failed_to_start(asked.reply):
            return asked
        log.warning("%s: another agent stands in, because %s", self.task or step, asked.why)
        return self._once(step, prompt, cwd, check, instead)

    def _once(
        self,
        step: Step,
        prompt: str,
        cwd: Path,
        check: Callable[[Value], str | None],
        instead: AgentChoice | None = None,
    ) -> Asked:
        brief = self._brief(step, prompt, cwd)
        self.runs.append(brief.run)
        repository = self.place.repository
        before = self._print or fingerprint(repository)
        with self.keeper.expecting_life((brief.limits.silence or brief.limits.total) + SLACK):
            reply = self._run(brief, instead)
        allowed = (f"{BRANCHES}{TASKS}/*", self.place.integration(self.state))
        self._print = after = fingerprint(repository, since=before)
        moved = drift(before, after, allowed)
        if moved:
            sentences = tuple(printable(str(one)) for one in moved)
            return Asked(reply, brief.run, None, "it changed your checkout", sentences)
        return _read(reply, brief, check)

    def _run(self, brief: Brief, instead: AgentChoice | None = None) -> Reply:
        """Run the agent; one that destroyed what it was to work in has crashed, whatever it says."""
        began = self.place.clock()
        try:
            return self.place.agent(self.state, brief.step, instead=instead).run(brief, self.stop)
        except LizaError as error:
            return Reply(ending=Ending.CRASHED, why=printable(str(error)), began=began)

    def _brief(self, step: Step, prompt: str, cwd: Path) -> Brief:
        task, limits = self.state.tasks.get(self.task or ""), self.state.config.limits
        run = self.place.run_id(step)
        return Brief(
            run=run,
            role=self.place.role,
            step=step,
            task=self.task,
            iteration=task.iteration if task else 0,
            prompt=prompt,
            cwd=cwd,
            folder=self.place.home / RUNS / run,
            limits=Limits(silence=limits.silence_minutes * 60, total=limits.agent_minutes * 60),
            facts={"goal": self.state.goal.plain(), **({"about": task.plain()} if task else {})},
        )

    def drifted(self, moved: tuple[str, ...]) -> None:
        """Record that a run reached outside of its worktree, and let everybody stop."""
        at, by, named = self.place.clock(), self.place.name, moved[:MOST_MOVED]
        sentence = f"{self.place.name}'s agent moved what is yours: {'; '.join(named)}"
        self.place.orders.pause(f"{sentence}; look at it, then `liza resume`")
        log.warning("%s", sentence)
        events = [
            Block(reason=sentence, questions=("Is what moved as you want it, and may the task go on?",))
        ]

        def more(state: State) -> State:
            details = CheckoutDrift(moved=named)
            return with_anomaly(state, details, about=self.task, by=by, at=at)

        self.record(*(events if self.task else ()), more=more)


def _read(reply: Reply, brief: Brief, check: Callable[[Value], str | None]) -> Asked:
    """Take the answer out of a reply; an agent that was cut short has given none, whatever it printed."""
    if reply.ending is not Ending.DONE:
        return Asked(reply, brief.run, None, reply.why or str(reply.ending))
    found = answer(reply.text, brief.step, prompt=brief.prompt)
    if not isinstance(found, Answer):
        return Asked(reply, brief.run, None, found.why)
    for remark in found.remarks:
        log.warning("%s: %s", brief.run, remark)
    why = check(found.value)
    return Asked(reply, brief.run, None if why else found.value, why or "")


@contextmanager
def begun(place: Place, state: State, task: Task | None = None, token: str | None = None) -> Iterator[Turn]:
    """Give a turn whose lease is kept and whose agent hears of switches and signals."""
    stop, actor = Stop(), place.actor(token)
    held = Held(task.id, actor, state.config.limits.lease_seconds) if task and token else None
    with ExitStack() as stack:
        stack.enter_context(place.orders.reaching(stop))
        keeper = stack.enter_context(Keeper(place.board, place.orders, stop, held, place.clock))
        yield Turn(place, state, actor, stop, keeper, task.id if task else None)


def held_by(state: State, token: str) -> Task | None:
    """Return the task whose lease has *token*: what a claim got, as the board has it."""
    return next((task for task in state.tasks.values() if task.lease and task.lease.token == token), None)


def _told(event: Event) -> str:
    facts = event.plain()
    said = facts.get("reason") or facts.get("summary") or facts.get("commit")
    return f"{name_of(type(event))}{f': {said}' if said else ''}"
