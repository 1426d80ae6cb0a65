"""A worker with its resources, and one turn of it: take a task, run an agent, record the result."""

from __future__ import annotations

import logging
import random
import secrets
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.agents.pricing import PricingAgent
from liza.agents.protocol import Brief, Reply, Session, is_session_broken
from liza.agents.recording import RecordingAgent
from liza.agents.select import (
    COMMAND,
    REPLAY,
    RunRequester,
    agent_for,
    backend_of,
    choice_for,
    fallback_of,
    may_fall_back,
    planned_run,
)
from liza.daemon import integration_tip, prompting
from liza.daemon.bootstrap import Bootstrap, RunPaths
from liza.daemon.breaker import apply_rules
from liza.daemon.effects import EffectPlace, perform, take_back
from liza.daemon.forge_effects import comment
from liza.daemon.lease_renewer import HeldLease, LeaseRenewer
from liza.daemon.policy.admission import Denial, EndedRun, admit, denial_of, park, release_unused, settle_run
from liza.daemon.policy.planner import with_notes_read
from liza.daemon.policy.retries import AFTER_A_KILL, FailedRun, RetryKind, Tried, retry_after
from liza.daemon.project_sandbox import ProjectSandbox, is_sandboxed
from liza.daemon.tamper import DRIFTED, TamperMonitor, unknown_commits_sentence
from liza.daemon.travel import CodeExchange, shared_remote
from liza.daemon.vetting import why_unvetted, workflow_file
from liza.domain.anomalies import CheckoutDrift, GateBroken
from liza.domain.answer_parsing import ParsedAnswer
from liza.domain.answers import ROLE_OF_STEP, AnswerValue, Step
from liza.domain.budget import (
    AdmissionRequest,
    Cap,
    budget_question,
    budget_warning,
    cost_kind,
    extend_reservation,
    highest_cost,
    is_budget_question_open,
    is_within_reservation,
    raise_budget_command,
    with_warning_given,
)
from liza.domain.changes import Change, with_anomaly, with_effects_intended
from liza.domain.config import AgentChoice
from liza.domain.dialect_answers import OWN_DIALECT, read_answer
from liza.domain.events import Block, Land, Release, Report
from liza.domain.model import Actor, EffectIntent, HistoryEntry, Lease, Refusal, Role, State, Status, Task
from liza.domain.providers import RESUME, provider_news
from liza.domain.record import printable, utc_now, with_record
from liza.domain.switches import BREAKER_PREFIX
from liza.errors import DiskTrouble, ForgeFailed, LizaError, Refused
from liza.repo.pool import Worktrees
from liza.repo.repository import BRANCHES, Repository
from liza.repo.snapshot import WorktreeTracker
from liza.system.masking import environment_mask
from liza.system.run_control import RunControl, RunEnding, RunLimits, sleep_unless_stopped
from liza.workflow.load import workflow_on
from liza.workflow.transition import advance, apply, effects_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from liza.agents.protocol import Agent
    from liza.board.protocol import Board
    from liza.daemon.forge_effects import Delivery
    from liza.daemon.stop_requests import StopRequests
    from liza.daemon.tamper import DriftReport
    from liza.domain.anomalies import AgentAnomaly
    from liza.domain.events import Event
    from liza.domain.verdicts import Verdict
    from liza.errors import BrokenGate
    from liza.repo.shared_remote import SharedRemote
    from liza.repo.snapshot import WorktreeState
    from liza.repo.worktree import Worktree
    from liza.workflow.document import Effect, Workflow

    More = Callable[[State], State]
    Check = Callable[[AnswerValue], str | None]

RUNS: Final = "runs"
# Seconds beyond the silence limit, which ends the agent first, before a lease is let go.
LEASE_SLACK: Final = 30.0
# Seconds that a turn which was begun waits for its provider before it gives its task back.
PROVIDER_WAIT: Final = 10.0
SANDBOXED_REASON: Final = "no agent in a sandbox can reach the branch"
ANSWER_ONLY: Final = "answer"  # what a run is called that only gives the answer of another
LONGEST_REFUSAL: Final = 300  # characters of why an answer was refused
FORGE_QUESTION: Final = "Can you put that right, so that this can go on?"
MOST_MOVED: Final = 10  # things that moved which one anomaly names

log = logging.getLogger(__name__)


class AfterTurn(Enum):
    """What a worker does after a turn."""

    WORK = auto()  # look for more at once
    WAIT = auto()  # until the board changes
    RESTART = auto()  # end, and be started afresh


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
        """Return why nobody follows the workflow; asked anew only where its file is another."""
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
        """Bring here what other hosts merged, and what they handed in of *tasks*."""
        if state.config.remote:
            self.exchange.fetch(state.config, *tasks)

    def actor(self, token: str | None = None) -> Actor:
        return Actor(role=self.role, id=self.name, token=token)

    def choice(self, state: State, step: Step, task: str | None, hat: str | None) -> AgentChoice:
        """Return who runs *step* now: as the settings say, or who stands in while its provider is shut."""
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
        """Return who cages what this worker runs."""
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
        shut = denial_of(state, run, now)
        self.due = shut.until if shut else None
        if shut is None or shut.cap is Cap.TASK:  # a task that may not cost more is blocked by its claim
            return True
        if park(state, run, shut, now) is not state:
            self._park(run)
        return False

    def _park(self, run: AdmissionRequest) -> None:
        told: list[str] = []

        def make(state: State) -> State:
            shut = denial_of(state, run, self.clock())
            if shut is None or shut.cap is Cap.TASK:
                return state
            if shut.cap is Cap.RUN and not is_budget_question_open(state):
                told.append(f"everybody pauses: {budget_question(state)} (`{raise_budget_command(state)}`)")
            return park(state, run, shut, self.clock())

        self.board.update(Change(self.name, "wait", make))
        self.tell(told)

    def is_parked(self) -> bool:
        return self.parked is not None and self.clock() < self.parked

    @property
    def tamper_monitor(self) -> TamperMonitor:
        return TamperMonitor(self.home, self.board, self.repository, self.name, None, self.clock)

    def verify_head(self, head: str) -> bool:
        """Tell whether work may build on *head*; strangers below it are a person's, or people are asked."""
        state = integration_tip.note_base(self.board, head, by=self.name)
        if not (found := integration_tip.unknown_commits(self.repository, self.home, state, head)):
            return True
        if is_sandboxed(state.config.sandbox):
            self.tell(
                [
                    integration_tip.record_human_commits(
                        self.board, found, SANDBOXED_REASON, by=self.name, at=self.clock()
                    )
                ]
            )
            return True
        if stops := self.report_drift(self.tamper_monitor.look()):
            self.record_drift("somebody", stops)
        if not integration_tip.unknown_commits(self.repository, self.home, self.board.read(), head):
            return True
        sentence = unknown_commits_sentence(state, integration_tip.commit_list(found))
        self.stop_requests.pause(
            f"{sentence}; if it is yours, `{RESUME}` takes it, else put the branch back first"
        )
        return False

    def report_drift(self, seen: DriftReport) -> tuple[str, ...]:
        """Tell people what they may have done themselves; return what only this worker's run can have."""
        stops = tuple(environment_mask().text(printable(one)) for one in seen.stops)
        names = " or ".join(f"the agent of {name}" for name in sorted(seen.suspects))
        for one in map(environment_mask().text, map(printable, seen.told)):
            is_ours = one.startswith(integration_tip.TAKEN_AS_YOURS)
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


class GateTampered(Exception):
    """A command of a gate changed something outside of its tree."""

    def __init__(self, moved: tuple[str, ...]) -> None:
        super().__init__("; ".join(moved))
        self.moved = moved


class AgentAnswer(NamedTuple):
    """An agent's answer, or why there is none."""

    reply: Reply
    run: str
    value: AnswerValue | None
    why: str = ""
    moved: tuple[str, ...] = ()  # what it did to the user's repository
    is_unread: bool = False  # it ended by itself, and no answer can be read from what it said
    instead: AgentChoice | None = None  # who stood in for the agent that was chosen


class Question(NamedTuple):
    """What is asked of an agent in one run."""

    step: Step
    prompt: str
    cwd: Path
    check: Check
    shown: str  # the prompt of the step: what stands in it is nobody's answer
    session: Session | None = None  # to go on with
    is_again: bool = False
    only_answer: bool = False
    instead: AgentChoice | None = None
    dialect: str = OWN_DIALECT
    hat: str = ""
    form: prompting.AnswerForm | None = None  # where it is another than that of the step


@dataclass
class Turn:
    """One turn on one task, or on none; *actor* proves with its token that the task is held."""

    place: Worker
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
    # What work says whose answer cannot be read.
    proof: Callable[[AgentAnswer], AnswerValue | None] | None = None

    @cached_property
    def tamper_monitor(self) -> TamperMonitor | None:
        """Who looks at what runs of this turn move; in a sandbox they reach nothing to look at."""
        if is_sandboxed(self.state.config.sandbox):
            return None
        return replace(self.place.tamper_monitor, task=self.task)

    @property
    def by(self) -> Actor:
        """The actor, with the run whose outcome it records."""
        return self.actor.replace(run=self.runs[-1] if self.runs else None)

    def current(self) -> Task:
        return self.place.board.read().task(str(self.task))

    def update(self, what: str, make: More, about: Callable[[], str] | None = None) -> State:
        """Let *make* happen to the board, and what became of this turn's runs, in one update."""
        told: list[str] = []
        at, chance = self.place.clock(), random.random()  # noqa: S311 - it spreads retries, and guards nothing

        def both(state: State) -> State:
            heard = with_notes_read(state, tuple(sorted(self.delivered)), by=self.actor, at=at)
            return make(_settle_runs(heard, self.ended, told, at=at, chance=chance))

        state = self.place.board.update(Change(self.place.name, what, both, about))
        self.ended.clear()
        self.place.tell(told)
        return state

    def settle(self) -> None:
        """Release what is still reserved, and record every run that the board does not know yet."""
        if moved := self.look():
            self.place.record_drift(f"{self.place.name}'s agent", moved)
        state, name = self.place.board.read(), self.place.name
        if self.ended or release_unused(state, name) is not state:
            self.update("settle", lambda latest: release_unused(latest, name))

    def _admit(self, question: Question) -> AdmissionRequest | str:
        """Set the money of *question* aside, unless that was done; return the run, or why it cannot begin."""
        run, self.admitted = self.admitted, None
        if run is not None and question.instead is None and self._is_meant(run, question):
            return run
        run = self._wanted(question)
        while shut := self._reserve(run):
            left = (shut.until - self.place.clock()).total_seconds() if shut.until else None
            if shut.cap is Cap.BUSY:  # others will be through, and have set nothing aside for this worker
                left = PROVIDER_WAIT / 10
            # What was begun is worth a moment: given back, it would be paid for twice.
            if left is None or left > PROVIDER_WAIT or not sleep_unless_stopped(self.stop, left):
                return shut.why
        return run

    def _is_meant(self, run: AdmissionRequest, question: Question) -> bool:
        """Return whether *run* is by the agent of *question*: under another hat it may be another's."""
        return not self.state.config.agents.overrides or run.choice == self._wanted(question).choice

    def _now(self) -> State:
        """Return the board as this turn knows it, with what the providers say by now."""
        return self.state.replace(providers=self.place.board.read().providers)

    def _reserve(self, run: AdmissionRequest) -> Denial | None:
        """Set the money for *run* aside; return why it may not begin where that was not done."""
        shut: Denial | None = None

        def make(state: State) -> State:
            nonlocal shut
            now = self.place.clock()
            shut = denial_of(state, run, now)
            return state if shut else admit(state, run, now)

        self.update(f"begin {run.want.kind}", make)
        return shut

    def record(self, *events: Event, more: More | None = None, then: Step | None = None) -> State:
        """Let *events* happen to the task, and *more* to the board, in one update that also admits *then*."""
        at, by, name = self.place.clock(), self.by, str(self.task)
        events = tuple(self._with_effects(_mask_event(event)) for event in events)
        for event in events:
            if isinstance(event, Report) and event.commit:
                self._publish(event.commit)
        run = self.place.planned_run(self._now(), then, self.task, hat=self.hat) if then else None

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
            return apply_rules(self.place.workflow(state), state, name, at) if events else state

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

        self.place.exchange.publish_work(config, str(self.task), token, commit, wait=wait)

    def _with_effects(self, event: Event) -> Event:
        """Return *event* with what came of the effects that the workflow wants for it."""
        if not isinstance(event, Report | Land):
            return event
        task, flow = self.current(), self.place.workflow(self.state)
        try:
            wanted = effects_of(flow, task, event, by=self.by, at=self.place.clock())
            after = advance(flow, task, event, by=self.by, at=self.place.clock())
        except Refused:  # the update says why
            return event
        commit = event.commit or task.review_commit
        home, trees, now = self.place.home, self.place.worktrees, self.place.clock()
        place = EffectPlace(home, trees, now, self.state, after, commit, wanted.taints)
        try:
            undone = take_back(place, task, wanted.effects)
            if wanted.effects:
                self._intend(wanted.effects, commit)
            done = {**undone, **perform(place, task, wanted.effects)}
            self._comment(place.delivery(task))
        except ForgeFailed as error:
            return Block(reason=printable(str(error)), questions=(FORGE_QUESTION,), only_people=True)
        return event.replace(effects=done) if done else event

    def _intend(self, effects: tuple[Effect, ...], commit: str | None) -> None:
        """Write down what is about to be done, so that whoever comes after a crash knows that it began."""
        name, by, at = str(self.task), self.by, self.place.clock()
        intent = EffectIntent(effects=tuple(map(str, effects)), commit=commit, at=at, by=by.id)
        self.update(
            f"intend {' and '.join(intent.effects)} {name}",
            lambda state: with_effects_intended(state, name, intent, by),
        )

    def _comment(self, delivery: Delivery) -> None:
        """Tell the forge what was said in this round; that it does not listen holds up no work."""
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
        at = self.place.clock()
        for details in found:
            state = with_anomaly(state, details, about=about or self.task, by=self.place.name, at=at)
        return state

    def ask(  # noqa: PLR0913 - what a step of an agent may need, by its name
        self,
        step: Step,
        known: Mapping[str, str],
        cwd: Path,
        *,
        check: Check = lambda _: None,
        again: frozenset[RunEnding] = frozenset({RunEnding.DONE}),
        begins: WorktreeState | None = None,
        template: str | None = None,
        session: Session | None = None,
    ) -> AgentAnswer:
        """Ask the agent, and where there is no answer that *check* takes, once more with the reason.

        *begins* is what the directory is now, for whoever knows it already; *template* is the prompt, where
        it is another than that of the step; *session* is the conversation to go on with.
        """
        hat = self.place.workflow(self.state).hat(self.hat) if self.hat else None
        part = prompting.hat_text(self.part) if self.part else prompting.part_of(hat)
        begin = self._bootstrap(step, cwd)
        if missing := begin.missing():
            return self._refuse_start(missing)
        told = {**known, prompting.BOOTSTRAP: begin.text()}
        facts = {name: printable(text) for name, text in told.items()}
        prompt = prompting.render_prompt(template or step, facts, nonce=secrets.token_hex(8), hat=part)
        self.place.trees.begin(begins)
        first = Question(step, prompt, cwd, check, shown=prompt, session=session, hat=self.hat or "")
        if hat:
            form = prompting.AnswerForm(template or step, str(self.hat), part)
            first = first._replace(dialect=hat.dialect, form=form)
        return self._run_until_answered(first, again)

    def _run_until_answered(self, first: Question, again: frozenset[RunEnding]) -> AgentAnswer:
        """Run agents as the table of retries says, until there is an answer or none to be had."""
        question = start = first  # *start* is what a killed agent is started with again
        tried, failed = Tried(), None
        while True:
            asked = self._run(question)
            match self._retry_after(asked, question, tried, again):
                case RetryKind.NOTHING:
                    return self._settle_answer(first, asked)
                case RetryKind.SAME:
                    log.warning("%s: the agent is started again, because %s", self._about(first), asked.why)
                    tried, question = tried._replace(kills=tried.kills + 1, has_stand_in=False), start
                case RetryKind.ANEW:
                    log.warning("%s: its session is broken and given up: %s", self._about(first), asked.why)
                    first = start = question = first._replace(session=None)
                    tried = tried._replace(is_anew=True)
                case RetryKind.STAND_IN:
                    log.warning("%s: another agent stands in, because %s", self._about(first), asked.why)
                    tried, question = tried._replace(has_stand_in=True), self._for_stand_in(start)
                case second:
                    failed = failed or self._settle_answer(first, asked)
                    if failed.value is not None:
                        return failed
                    log.info("%s: asked once more, because %s", self._about(first), asked.why)
                    question = start = _second(first, failed, second)
                    is_unread = failed.reply.ending is RunEnding.DONE and failed.is_unread
                    tried = Tried(second=second, was_unread=is_unread)

    def _about(self, question: Question) -> str:
        return self.task or question.step

    def _retry_after(
        self, asked: AgentAnswer, question: Question, tried: Tried, again: frozenset[RunEnding]
    ) -> RetryKind:
        """Return what follows *asked*; where that is to start a killed agent again, after a pause."""
        if asked.value is not None or asked.moved:
            return RetryKind.NOTHING
        other = self._stand_in() if not question.session and may_fall_back(asked.reply) else None
        ended = FailedRun(
            asked.reply.ending,
            asked.is_unread,
            bool(asked.reply.session),
            is_session_broken=bool(question.session) and is_session_broken(asked.reply),
            may_stand_in=other is not None,
        )
        retry = retry_after(ended, tried, again)
        if retry is RetryKind.SAME:
            return retry if sleep_unless_stopped(self.stop, AFTER_A_KILL[tried.kills]) else RetryKind.NOTHING
        if ended.ending is RunEnding.KILLED:
            times = f"the agent was killed {tried.kills + 1} times in a row"
            self.place.tell([f"{self._about(question)}: {times}; {asked.why}"])
        return retry

    def _stand_in(self) -> AgentChoice | None:
        """Return who stands in for the agent that ran last, where that is another."""
        instead = fallback_of(self.state.config.agents, self.last) if self.last else None
        return None if instead == self.last else instead

    def _for_stand_in(self, question: Question) -> Question:
        is_work = question.step is Step.IMPLEMENT and not question.only_answer
        told = prompting.takeover_prompt(question.prompt) if is_work else question.prompt
        return question._replace(prompt=told, instead=self._stand_in())

    def _settle_answer(self, question: Question, asked: AgentAnswer) -> AgentAnswer:
        """Return *asked* with what its work proves, where no answer could be read; tell of a refusal."""
        if asked.value is not None or asked.moved:
            return asked
        if asked.reply.ending is RunEnding.DONE:
            self._record_refusal(question, asked)
        value = self.proof(asked) if self.proof and asked.is_unread else None
        return asked if value is None else asked._replace(value=value)

    def _record_refusal(self, question: Question, asked: AgentAnswer) -> None:
        """Write down that an answer was refused, so that people see what is paid for and comes to nothing."""
        name, at = self.place.name, self.place.clock()
        refusal = Refusal(at=at, step=str(question.step), task=self.task, why=_one_line(asked.why))

        def make(state: State) -> State:
            agent = state.agents.get(name)
            if agent is None:
                return state
            more = agent.replace(refusals=agent.refusals + 1, refusal=refusal)
            return state.replace(agents=with_record(state.agents, more))

        self.update(f"refuse_answer {self.task or question.step}", make)

    def _bootstrap(self, step: Step, cwd: Path) -> Bootstrap:
        task = self.state.tasks.get(self.task or self.about or "")
        seen = self.place.project_sandbox(self.state).path_inside(cwd)
        where = RunPaths(self.place.repository.root, cwd, seen)
        return Bootstrap.of(self.place.role, step, self.state, task, where, self.hat)

    def _refuse_start(self, missing: tuple[str, ...]) -> AgentAnswer:
        """Start no agent that would have to guess; say what it would lack."""
        why = f"the bootstrap is not complete: {'; '.join(missing)}"
        log.warning("%s: %s", self.task or self.place.role, why)
        return AgentAnswer(
            Reply(ending=RunEnding.NOT_STARTED, why=why, began=self.place.clock()), "", None, why
        )

    def _run(self, question: Question) -> AgentAnswer:
        """Run the agent once; one that destroyed what it was to work in has crashed, whatever it says."""
        brief = self._brief(question)
        self.last = None
        run = self._admit(question)
        if isinstance(run, str):
            return AgentAnswer(
                Reply(ending=RunEnding.STOPPED, why=run, began=self.place.clock()), brief.run, None, run
            )
        self.runs.append(brief.run)
        self.begin_run()
        began = self.place.clock()
        worktree = self.place.worktrees.worktree_at(question.cwd)  # before a run can spoil what says so
        try:
            with self.lease_renewer.require_liveness(
                (brief.limits.silence or brief.limits.total) + LEASE_SLACK
            ):
                self.last = run.choice or self.place.choice(self.state, brief.step, self.task, self.hat)
                reply = self.place.agent(self.state, self.last).run(brief, self.stop)
        except DiskTrouble:
            raise
        except LizaError as error:
            reply = Reply(ending=RunEnding.CRASHED, why=printable(str(error)), began=began)
        finally:
            self._secure(worktree)
        # Thinking about a task is not held back by what the task may cost, yet is what it cost.
        paid = run._replace(want=run.want._replace(task=self.task or self.about))
        self._record_cost(EndedRun(paid, reply), question.step)
        if reply.ending is RunEnding.DONE and self.task:
            self.delivered |= {note.id for note in self.state.human_notes.values() if note.about == self.task}
        if moved := self.look():
            return AgentAnswer(reply, brief.run, None, "it changed what is not its own", moved)
        return _parse_reply(reply, brief.run, question._replace(instead=self.last))

    def _wanted(self, question: Question) -> AdmissionRequest:
        """Return the run as it is admitted and paid for; a block alone costs far less than its step."""
        run = self.place.planned_run(
            self._now(), question.step, self.task, instead=question.instead, hat=self.hat
        )
        if not question.only_answer:
            return run
        kind = cost_kind(ANSWER_ONLY, run.want.kind.partition(" ")[2])
        return run._replace(want=run.want._replace(kind=kind))

    def begin_run(self) -> None:
        """Have whoever looks know that an agent, or what agents wrote, is about to run."""
        if self.tamper_monitor:
            self.place.report_drift(self.tamper_monitor.begin())

    def look(self) -> tuple[str, ...]:
        """Return what only the run of this turn that just ended can have done to what is not its own."""
        return self.place.report_drift(self.tamper_monitor.end()) if self.tamper_monitor else ()

    def _secure(self, worktree: Worktree | None) -> None:
        """Put back what ties the task's worktree to git; after a lost lease it is another worker's."""
        if worktree and self.task and worktree.task == self.task and not self.lease_renewer.lost:
            self.place.worktrees.secure(worktree, self.task, at=self.place.clock())

    def _record_cost(self, end: EndedRun, step: Step) -> None:
        """Note what a run cost; at once where others may wait for it, and its gates take a while."""
        self.ended.append(end)
        if (
            step is not Step.CHECKPOINT
            and not end.run.want.is_metered
            and highest_cost(self.state, end.run.want.kind) is None
        ):
            self.settle()

    def _brief(self, question: Question) -> Brief:
        name = self.task or self.about
        task, limits = self.state.tasks.get(name or ""), self.state.config.limits
        run = self.place.run_id(question.step)
        return Brief(
            run=run,
            role=self.place.role,
            step=question.step,
            hat=self.hat or "",
            task=name,
            iteration=task.iteration if task else 0,
            prompt=question.prompt,
            cwd=question.cwd,
            folder=self.place.home / RUNS / run,
            limits=RunLimits(silence=limits.silence_minutes * 60, total=limits.agent_minutes * 60),
            session=question.session,
            is_again=question.is_again,
            only_answer=question.only_answer,
            facts={"goal": self.state.goal.to_json(), **({"about": _without_lease(task)} if task else {})},
        )

    def broken(self, error: BrokenGate, *events: Event) -> None:
        """Record that a gate can judge nothing, let *events* happen to the task, and let everybody stop."""
        at, by = self.place.clock(), self.place.name
        details = GateBroken(gate=error.gate, command=error.line, cause=error.cause, likely=error.likely)

        def more(state: State) -> State:
            known = (one.details for one in state.anomalies.values() if one.processed is None)
            return state if details in known else with_anomaly(state, details, about=self.task, by=by, at=at)

        self.record(*events, more=more)
        # After the record: a switch of the breaker that no trip asks for is taken back.
        self.place.stop_requests.pause(f"{BREAKER_PREFIX}{error}; then `liza breaker`")

    def block_for_drift(self, moved: tuple[str, ...], who: str = "agent") -> None:
        """Record that a run reached outside of its worktree, and let everybody stop."""
        name, at = f"{self.place.name}'s {who}", self.place.clock()
        if self.task is None:
            self.place.record_drift(name, moved)
            return
        details = self.place.pause_for_drift(name, moved)
        question = "Is what moved as you want it, and may the task go on? `liza resume` says yes."
        reason, by = f"{name} {DRIFTED}{'; '.join(details.moved)}", self.place.name
        block = Block(reason=reason, questions=(question,), only_people=True)
        self.record(block, more=lambda state: with_anomaly(state, details, about=self.task, by=by, at=at))


def _second(first: Question, failed: AgentAnswer, retry: RetryKind) -> Question:
    """Return how a second answer is asked for: for no more than is missing, and by whoever ran last."""
    nonce, more = secrets.token_hex(8), first._replace(is_again=True, instead=failed.instead)
    match retry:
        case RetryKind.IN_SESSION:
            short = prompting.correction_prompt(failed.why, only_answer=failed.is_unread, nonce=nonce)
            return more._replace(prompt=short, session=failed.reply.session, only_answer=failed.is_unread)
        case RetryKind.ANSWER_ONLY:
            form = first.form or prompting.AnswerForm(first.step, ROLE_OF_STEP[first.step])
            short = prompting.answer_prompt(form, first.step, failed.reply.text, failed.why, nonce=nonce)
            return more._replace(prompt=short, only_answer=True)
    return more._replace(prompt=prompting.repeat_prompt(first.shown, failed.why, nonce=nonce))


def _parse_reply(reply: Reply, run: str, question: Question) -> AgentAnswer:
    """Take the answer out of a reply; an agent that was cut short has given none, whatever it printed."""
    instead = question.instead
    if reply.ending is not RunEnding.DONE:
        is_unread = reply.ending is RunEnding.EMPTY
        return AgentAnswer(
            reply, run, None, reply.why or str(reply.ending), is_unread=is_unread, instead=instead
        )
    found = read_answer(question.dialect, reply.text, question.step, role=question.hat, prompt=question.shown)
    if not isinstance(found, ParsedAnswer):
        return AgentAnswer(reply, run, None, found.why, is_unread=True, instead=instead)
    for remark in found.remarks:
        log.warning("%s: %s", run, remark)
    why = question.check(found.value)
    return AgentAnswer(reply, run, None if why else found.value, why or "", instead=instead)


def _one_line(text: str) -> str:
    """Return *text* as one line that a board can show."""
    return " ".join(text.split())[:LONGEST_REFUSAL] or "no reason was given"


def _settle_runs(
    state: State, runs: Sequence[EndedRun], told: list[str], *, at: datetime, chance: float
) -> State:
    """Return the board with *runs* paid for and their providers heeded; *told* gets what is news."""
    for run in runs:
        before, state = state, settle_run(state, run, at=at, chance=chance)
        if word := provider_news(before, state, run.run.provider):
            told.append(word)
    if runs and (word := budget_warning(state)):
        told.append(word)
        state = with_warning_given(state)
    return state


@contextmanager
def open_turn(
    place: Worker,
    state: State,
    task: Task | None = None,
    token: str | None = None,
    admitted: AdmissionRequest | None = None,
    about: str | None = None,
) -> Iterator[Turn]:
    """Open a turn: renew the lease in the background and pass switches and signals on to the agent."""
    stop, actor = RunControl(), place.actor(token)
    held = HeldLease(task.id, actor, state.config.limits.lease_seconds) if task and token else None
    with ExitStack() as stack:
        stack.enter_context(place.stop_requests.forward_signals_to(stop))
        keeper = stack.enter_context(
            LeaseRenewer(place.board, place.stop_requests, stop, held, place.clock, place.extend_reservation)
        )
        name = task.id if task else None
        turn = Turn(place, state, actor, stop, keeper, name, about=about, admitted=admitted)
        try:
            yield turn
        finally:
            turn.settle()


def task_with_token(state: State, token: str) -> Task | None:
    """Return the task whose lease has *token*."""
    return next((task for task in state.tasks.values() if task.lease and task.lease.token == token), None)


def _without_lease(task: Task) -> dict[str, Any]:
    """Return what an agent may know of *task*: not the token that proves who holds it."""
    return {key: value for key, value in task.to_json().items() if key != "lease"}


def _mask_event(event: Event) -> Event:
    """Return *event* without secrets: names that git tells, as of a file, are no part of any reply."""
    plain = event.model_dump()
    safe = environment_mask().values(plain)
    return event if safe == plain else type(event).model_validate(safe)


def _entry_text(entry: HistoryEntry) -> str:
    said = entry.facts.get("reason") or entry.facts.get("summary") or entry.facts.get("commit")
    return f"{entry.event}{f': {said}' if said else ''}"
