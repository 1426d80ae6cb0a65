"""Ask an agent for one step: admit the run, run it, read the answer, and try again as the table says."""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.agents.protocol import Brief, Reply, Session, is_session_broken
from liza.agents.select import fallback_of, may_fall_back
from liza.daemon import prompting
from liza.daemon.policy.pick import Denial, EndedRun, admit, denial_of
from liza.daemon.policy.retries import AFTER_A_KILL, FailedRun, RetryKind, Tried, retry_after
from liza.daemon.prompting import Bootstrap, RunPaths
from liza.daemon.turn import LEASE_SLACK, RUNS
from liza.domain.answer_parsing import OWN_DIALECT, ParsedAnswer, read_answer
from liza.domain.answers import ROLE_OF_STEP, AnswerValue, Step
from liza.domain.budget import AdmissionRequest, Cap, cost_kind, highest_cost
from liza.domain.cycle_file import STEPS, signature
from liza.domain.dialects import SIGNAL_DIALECT
from liza.domain.model import Refusal
from liza.domain.record import printable, with_record
from liza.errors import DiskTrouble, LizaError
from liza.system.run_control import RunEnding, RunLimits, sleep_unless_stopped

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from liza.daemon.turn import Turn
    from liza.domain.config import AgentChoice
    from liza.domain.model import State, Task
    from liza.repo.snapshot import WorktreeState
    from liza.repo.worktree import Worktree

    Check = Callable[[AnswerValue], str | None]

# Seconds that a turn which was begun waits for its provider before it gives its task back.
PROVIDER_WAIT: Final = 10.0
ANSWER_ONLY: Final = "answer"  # what a run is called that only gives the answer of another
LONGEST_REFUSAL: Final = 300  # characters of why an answer was refused

log = logging.getLogger(__name__)


class AgentAnswer(NamedTuple):
    """An agent's answer, or why there is none."""

    reply: Reply
    run: str
    value: AnswerValue | None
    why: str = ""
    moved: tuple[str, ...] = ()  # what it did to the user's repository
    is_unread: bool = False  # it ended by itself, and no answer can be read from what it said
    instead: AgentChoice | None = None  # who stood in for the agent that was chosen

    @property
    def is_context_full(self) -> bool:
        return self.reply.ending is RunEnding.CONTEXT_FULL


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
    signature: str = ""  # that is due, where answers are signed


def ask(  # noqa: PLR0913 - what a step of an agent may need, by its name
    turn: Turn,
    step: Step,
    known: Mapping[str, str],
    cwd: Path,
    *,
    check: Check = lambda _: None,
    again: frozenset[RunEnding] = frozenset({RunEnding.DONE}),
    begins: WorktreeState | None = None,
    template: str | None = None,
    session: Session | None = None,
    proof: Callable[[AgentAnswer], AnswerValue | None] = lambda _: None,
) -> AgentAnswer:
    """Ask the agent, and where there is no answer that *check* takes, once more with the reason.

    *begins* is what the directory is now, for whoever knows it already; *template* is the prompt, where
    it is another than that of the step; *session* is the conversation to go on with; *proof* returns what
    the work says whose answer cannot be read.
    """
    begin = _bootstrap(turn, step, cwd)
    if missing := begin.missing():
        return _refuse_start(turn, missing)
    told = {**known, prompting.BOOTSTRAP: begin.text()}
    first = _first_question(turn, Question(step, "", cwd, check, shown="", session=session), told, template)
    turn.worker.trees.begin(begins)
    asking = _Asking(turn, first, again, proof)
    while True:
        asked = _run(turn, asking.question)
        if (answer := asking.answer_after(asked)) is not None:
            return answer


def _first_question(
    turn: Turn, question: Question, known: Mapping[str, str], template: str | None
) -> Question:
    """Return *question* with its prompt, under the hat of *turn*."""
    hat = turn.worn
    part = prompting.hat_text(turn.part) if turn.part else prompting.part_of(hat)
    facts, name = {key: printable(text) for key, text in known.items()}, template or question.step
    form = prompting.form_of(hat, turn.hat, question.step)
    prompt = prompting.render_prompt(name, facts, nonce=secrets.token_hex(8), hat=part, form=form)
    question = question._replace(prompt=prompt, shown=prompt, hat=turn.hat or "")
    if hat is None:
        return question
    asked = prompting.AnswerForm(name, str(turn.hat), part)
    return question._replace(dialect=hat.dialect, form=asked, signature=_due_signature(turn, hat.dialect))


def _due_signature(turn: Turn, dialect: str) -> str:
    """Return how the answer of the hat of *turn* is signed; empty where answers are not."""
    task = turn.state.tasks.get(turn.task or "")
    if dialect != SIGNAL_DIALECT or task is None or task.position is None or turn.hat not in STEPS:
        return ""
    return signature(turn.state.goal.number, task.position.loop, turn.hat)


@dataclass
class _Asking:
    """The runs so far for one answer, and the next run, chosen by the table of retries."""

    turn: Turn
    first: Question
    again: frozenset[RunEnding]  # the endings after which a second answer may be asked for
    proof: Callable[[AgentAnswer], AnswerValue | None]
    tried: Tried = field(default_factory=Tried)
    failed: AgentAnswer | None = None  # the first answer that was of no use
    question: Question = field(init=False)
    start: Question = field(init=False)  # what a killed agent is started with again

    def __post_init__(self) -> None:
        self.question = self.start = self.first

    def answer_after(self, asked: AgentAnswer) -> AgentAnswer | None:
        """Return the answer, or that there is none to be had; None where another run is to be tried."""
        turn, tried = self.turn, self.tried
        match self._retry_after(asked):
            case RetryKind.NOTHING:
                return self._settle(asked)
            case RetryKind.SAME:
                log.warning("%s: the agent is started again, because %s", self._about, asked.why)
                self.tried = tried._replace(kills=tried.kills + 1, has_stand_in=False)
                self.question = self.start
            case RetryKind.ANEW:
                log.warning("%s: its session is broken and given up: %s", self._about, asked.why)
                self.first = self.start = self.question = self.first._replace(session=None)
                self.tried = tried._replace(is_anew=True)
            case RetryKind.STAND_IN:
                log.warning("%s: another agent stands in, because %s", self._about, asked.why)
                self.tried = tried._replace(has_stand_in=True)
                self.question = _for_stand_in(turn, self.start)
            case second:
                return self._ask_second(asked, second)
        return None

    def _ask_second(self, asked: AgentAnswer, second: RetryKind) -> AgentAnswer | None:
        failed = self.failed = self.failed or self._settle(asked)
        if failed.value is not None:
            return failed
        log.info("%s: asked once more, because %s", self._about, asked.why)
        self.question = self.start = _second(self.first, failed, second)
        is_unread = failed.reply.ending is RunEnding.DONE and failed.is_unread
        self.tried = Tried(second=second, was_unread=is_unread)
        return None

    @property
    def _about(self) -> str:
        return self.turn.task or self.first.step

    def _retry_after(self, asked: AgentAnswer) -> RetryKind:
        """Return what follows *asked*; where that is to start a killed agent again, after a pause."""
        if asked.value is not None or asked.moved:
            return RetryKind.NOTHING
        turn, session = self.turn, self.question.session
        other = _stand_in(turn) if not session and may_fall_back(asked.reply) else None
        ended = FailedRun(
            asked.reply.ending,
            asked.is_unread,
            bool(asked.reply.session),
            is_session_broken=bool(session) and is_session_broken(asked.reply),
            may_stand_in=other is not None,
        )
        retry, kills = retry_after(ended, self.tried, self.again), self.tried.kills
        if retry is RetryKind.SAME:
            return retry if sleep_unless_stopped(turn.stop, AFTER_A_KILL[kills]) else RetryKind.NOTHING
        if ended.ending is RunEnding.KILLED:
            times = f"the agent was killed {kills + 1} times in a row"
            turn.worker.tell([f"{self._about}: {times}; {asked.why}"])
        return retry

    def _settle(self, asked: AgentAnswer) -> AgentAnswer:
        """Record a refused answer; return *asked* with what its commits prove, where it was unreadable."""
        if asked.value is not None or asked.moved:
            return asked
        if asked.reply.ending is RunEnding.DONE:
            _record_refusal(self.turn, self.first, asked)
        value = self.proof(asked) if asked.is_unread else None
        return asked if value is None else asked._replace(value=value)


def _stand_in(turn: Turn) -> AgentChoice | None:
    """Return the fallback of the agent that ran last; None where it is the same agent."""
    instead = fallback_of(turn.state.config.agents, turn.last) if turn.last else None
    return None if instead == turn.last else instead


def _for_stand_in(turn: Turn, question: Question) -> Question:
    is_work = question.step is Step.IMPLEMENT and not question.only_answer
    told = prompting.takeover_prompt(question.prompt) if is_work else question.prompt
    return question._replace(prompt=told, instead=_stand_in(turn))


def _second(first: Question, failed: AgentAnswer, retry: RetryKind) -> Question:
    """Return the question for a second answer: only for what is missing, to the agent that ran last."""
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


def _record_refusal(turn: Turn, question: Question, asked: AgentAnswer) -> None:
    """Write down that an answer was refused, so that people see what is paid for and comes to nothing."""
    name, at = turn.worker.name, turn.worker.clock()
    refusal = Refusal(at=at, step=str(question.step), task=turn.task, why=_one_line(asked.why))

    def make(state: State) -> State:
        agent = state.agents.get(name)
        if agent is None:
            return state
        more = agent.replace(refusals=agent.refusals + 1, refusal=refusal)
        return state.replace(agents=with_record(state.agents, more))

    turn.update(f"refuse_answer {turn.task or question.step}", make)


def _one_line(text: str) -> str:
    """Return *text* as one line that a board can show."""
    return " ".join(text.split())[:LONGEST_REFUSAL] or "no reason was given"


def _bootstrap(turn: Turn, step: Step, cwd: Path) -> Bootstrap:
    task = turn.state.tasks.get(turn.task or turn.about or "")
    seen = turn.worker.project_sandbox(turn.state).path_inside(cwd)
    where = RunPaths(turn.worker.repository.root, cwd, seen)
    return Bootstrap.of(turn.worker.role, step, turn.state, task, where, turn.hat)


def _refuse_start(turn: Turn, missing: tuple[str, ...]) -> AgentAnswer:
    """Return the answer of a run that is not started, because its bootstrap is *missing* something."""
    why = f"the bootstrap is not complete: {'; '.join(missing)}"
    log.warning("%s: %s", turn.task or turn.worker.role, why)
    return AgentAnswer(Reply(ending=RunEnding.NOT_STARTED, why=why, began=turn.worker.clock()), "", None, why)


def _run(turn: Turn, question: Question) -> AgentAnswer:
    """Run the agent once; a run that destroyed its own worktree counts as crashed, whatever it answers."""
    worker, brief = turn.worker, _brief(turn, question)
    turn.last = None
    run = _admit(turn, question)
    if isinstance(run, str):
        return AgentAnswer(
            Reply(ending=RunEnding.STOPPED, why=run, began=worker.clock()), brief.run, None, run
        )
    turn.runs.append(brief.run)
    turn.begin_run()
    began = worker.clock()
    worktree = worker.worktrees.worktree_at(question.cwd)  # before a run can spoil what says so
    try:
        with turn.lease_renewer.require_liveness((brief.limits.silence or brief.limits.total) + LEASE_SLACK):
            turn.last = run.choice or worker.choice(turn.state, brief.step, turn.task, turn.hat)
            reply = worker.agent(turn.state, turn.last).run(brief, turn.stop)
    except DiskTrouble:
        raise
    except LizaError as error:
        reply = Reply(ending=RunEnding.CRASHED, why=printable(str(error)), began=began)
    finally:
        _secure(turn, worktree)
    # Thinking about a task is not held back by what the task may cost, yet is what it cost.
    paid = run._replace(want=run.want._replace(task=turn.task or turn.about))
    _record_cost(turn, EndedRun(paid, reply), question.step)
    if reply.ending is RunEnding.DONE and turn.task:
        turn.delivered |= {note.id for note in turn.state.human_notes.values() if note.about == turn.task}
    if moved := turn.end_run():
        return AgentAnswer(reply, brief.run, None, "it changed what is not its own", moved)
    return _parse_reply(reply, brief.run, question._replace(instead=turn.last))


def _admit(turn: Turn, question: Question) -> AdmissionRequest | str:
    """Reserve the money for *question*, unless that was done; return the run, or why it cannot begin."""
    run, turn.admitted = turn.admitted, None
    if run is not None and question.instead is None and _is_meant(turn, run, question):
        return run
    run = _admission_request(turn, question)
    while denial := _reserve(turn, run):
        left = (denial.until - turn.worker.clock()).total_seconds() if denial.until else None
        if denial.cap is Cap.BUSY:  # others will be through, and have set nothing aside for this worker
            left = PROVIDER_WAIT / 10
        # What was begun is worth a moment: given back, it would be paid for twice.
        if left is None or left > PROVIDER_WAIT or not sleep_unless_stopped(turn.stop, left):
            return denial.why
    return run


def _is_meant(turn: Turn, run: AdmissionRequest, question: Question) -> bool:
    """Return whether the agent of *question* made *run*; another hat may have another agent."""
    return not turn.state.config.agents.overrides or run.choice == _admission_request(turn, question).choice


def _reserve(turn: Turn, run: AdmissionRequest) -> Denial | None:
    """Reserve the money for *run*; return why it may not begin where that failed."""
    denial: Denial | None = None

    def make(state: State) -> State:
        nonlocal denial
        now = turn.worker.clock()
        denial = denial_of(state, run, now)
        return state if denial else admit(state, run, now)

    turn.update(f"begin {run.want.kind}", make)
    return denial


def _admission_request(turn: Turn, question: Question) -> AdmissionRequest:
    """Return the run as it is admitted and paid for; a block alone costs far less than its step."""
    run = turn.worker.planned_run(
        turn.known_state(), question.step, turn.task, instead=question.instead, hat=turn.hat
    )
    if not question.only_answer:
        return run
    kind = cost_kind(ANSWER_ONLY, run.want.kind.partition(" ")[2])
    return run._replace(want=run.want._replace(kind=kind))


def _secure(turn: Turn, worktree: Worktree | None) -> None:
    """Restore the `.git` of the task's worktree, unless the lease was lost: then it is another worker's."""
    if worktree and turn.task and worktree.task == turn.task and not turn.lease_renewer.lost:
        turn.worker.worktrees.secure(worktree, turn.task, at=turn.worker.clock())


def _record_cost(turn: Turn, end: EndedRun, step: Step) -> None:
    """Note what a run cost; at once where others may wait for it, and its gates take a while."""
    turn.ended.append(end)
    if (
        step is not Step.CHECKPOINT
        and not end.run.want.is_metered
        and highest_cost(turn.state, end.run.want.kind) is None
    ):
        turn.settle()


def _brief(turn: Turn, question: Question) -> Brief:
    name = turn.task or turn.about
    task, limits = turn.state.tasks.get(name or ""), turn.state.config.limits
    run = turn.worker.run_id(question.step)
    return Brief(
        run=run,
        role=turn.worker.role,
        step=question.step,
        hat=turn.hat or "",
        phase=task.position.phase if task and task.position else "",
        task=name,
        iteration=task.iteration if task else 0,
        prompt=question.prompt,
        cwd=question.cwd,
        folder=turn.worker.home / RUNS / run,
        limits=RunLimits(silence=limits.silence_minutes * 60, total=limits.agent_minutes * 60),
        session=question.session,
        is_again=question.is_again,
        only_answer=question.only_answer,
        facts={"goal": turn.state.goal.to_json(), **({"about": _without_lease(task)} if task else {})},
    )


def _without_lease(task: Task) -> dict[str, Any]:
    """Return *task* as agents may see it, without the fencing token of its lease."""
    return {key: value for key, value in task.to_json().items() if key != "lease"}


def _parse_reply(reply: Reply, run: str, question: Question) -> AgentAnswer:
    """Parse the answer in a reply; an agent that was cut short has no answer, whatever it printed."""
    instead = question.instead
    if reply.ending is not RunEnding.DONE:
        is_unread = reply.ending is RunEnding.EMPTY
        return AgentAnswer(
            reply, run, None, reply.why or str(reply.ending), is_unread=is_unread, instead=instead
        )
    found = read_answer(
        question.dialect,
        reply.text,
        question.step,
        role=question.hat,
        prompt=question.shown,
        signature=question.signature,
    )
    if not isinstance(found, ParsedAnswer):
        return AgentAnswer(reply, run, None, found.why, is_unread=True, instead=instead)
    for remark in found.remarks:
        log.warning("%s: %s", run, remark)
    why = question.check(found.value)
    return AgentAnswer(reply, run, None if why else found.value, why or "", instead=instead)
