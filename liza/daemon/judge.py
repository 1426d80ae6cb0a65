"""Judge what was handed in: machines first, then the agents of the gates; and merge what passed."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final

from liza.daemon import prompting
from liza.daemon.ask_agent import ask
from liza.daemon.policy import pick
from liza.daemon.policy.retries import AFTER_A_KILL, RELEASE_ENDINGS, RETRY_ENDINGS
from liza.daemon.prompting import gate_report
from liza.daemon.turn import LEASE_SLACK, RUNS, AfterTurn
from liza.domain import lifecycle as e
from liza.domain.anomalies import MergeConflict
from liza.domain.answers import Review, Step
from liza.domain.changes import Change, with_anomaly, with_signals
from liza.domain.model import Outcome, Signal, SignalName, Status, Verdict
from liza.domain.record import printable, with_record
from liza.domain.review_rounds import HeldVerdict, hold_to_first
from liza.errors import BrokenGate, Refused, UnfitRepository
from liza.gates import registry
from liza.gates.causes import CommandSurroundings, likely_cause
from liza.gates.context import (
    FOLDER,
    SETUP,
    GateContext,
    ResultCache,
    Statements,
    command_result,
    installs,
    shell_job,
    with_instructions_of,
)
from liza.repo.merge import (
    Conflict,
    Landed,
    Merged,
    MergeDescription,
    Squashing,
    Trailer,
    commit_merge,
    ensure_key,
    land_merge,
    merge,
    merge_doubts,
    resolve_conflict,
    squash,
)
from liza.repo.pool import refill, scratch_tree
from liza.repo.repository import commits_between, diff_text
from liza.repo.snapshot import WorktreeState, altered_paths
from liza.repo.verify import ChainCommit, first_parent_chain
from liza.system import process
from liza.system.files import environment_mask, overwrite
from liza.system.run_control import RunEnding, RunLimits, StopLevel, sleep_unless_stopped
from liza.system.sandbox.bubblewrap import RunPurpose, Tenant
from liza.workflow import engine
from liza.workflow.document import SQUASH, GateKind, OnError, Predicate
from liza.workflow.engine import GateJob, GatesResult
from liza.workflow.transition import apply

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from liza.daemon.ask_agent import AgentAnswer
    from liza.daemon.project_sandbox import ProjectSandbox
    from liza.daemon.turn import TakenTask, Turn, Worker
    from liza.domain.anomalies import AgentAnomaly
    from liza.domain.answers import AnswerValue
    from liza.domain.config import Config
    from liza.domain.model import Position, State, Taint, Task
    from liza.domain.record import Record
    from liza.gates.context import CauseExplainer, CommandResult, CommandRunner
    from liza.repo.repository import Repository
    from liza.system.run_control import RunControl
    from liza.workflow.document import Gate, Workflow
    from liza.workflow.engine import Worked, WorkflowJob


# Run the gates that machines judge: the engine says which is next, and what follows from what it said.
#
# What a gate said about a tree holds for that tree alone. Whoever goes on with a task answers the engine
# with what was said before where it still holds, and asks the gates anew where it does not.

_PREDICATES: Final = frozenset(Predicate)


class Halted(Exception):
    """A gate was cut short because the turn was told to end; nothing may be concluded from it."""


class GateTampered(Exception):
    """A command of a gate changed something outside of its tree."""

    def __init__(self, moved: tuple[str, ...]) -> None:
        super().__init__("; ".join(moved))
        self.moved = moved


def agent_output(asked: AgentAnswer, handoff: Record | None = None) -> Statements:
    """Return what an agent said in the run that made the work, and what it hands on."""
    summary = getattr(asked.value, "summary", "")
    step = getattr(asked.value, "step", None)
    told = (summary, step.instructions, *step.success_criteria) if step else (summary,)
    return Statements(text=asked.reply.text, answers=tuple(filter(None, told)), step=step, handoff=handoff)


@contextmanager
def gate_context(
    turn: Turn,
    task: Task,
    base: str,
    head: str,
    said: Statements = Statements(),  # noqa: B008 - it is frozen
) -> Iterator[GateContext]:
    """Open the context for gates; their commands renew the lease and obey switches.

    Gates run code that agents wrote: whatever it changes outside of its tree raises `GateTampered`.
    """
    with _new_context(turn, task, base, head, said) as context:
        yield context
    if moved := turn.end_run():
        raise GateTampered(moved)


def _new_context(turn: Turn, task: Task, base: str, head: str, said: Statements) -> GateContext:
    return GateContext(
        task=task,
        repository=turn.worker.repository,
        base=base,
        head=head,
        config=turn.state.config,
        run=_turn_gate_runner(turn),
        clock=turn.worker.clock,
        said=said,
        results=results_of(turn.worker.home, turn.state.config),
        likely=cause_explainer(turn.worker.repository, turn.worker.project_sandbox(turn.state)),
        keep_file=lambda run, name, data: overwrite(turn.worker.home / RUNS / run / name, data),
    )


class GateTenants:
    """Gives each command of a gate its home: an empty one, or the one that the setup before it left."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._was_set_up = False

    def __call__(self, line: str, name: str) -> Tenant:
        if name != SETUP:
            return Tenant(self._name, doing=RunPurpose.COMMAND, inherits=self._was_set_up)
        self._was_set_up = True
        return Tenant(self._name, doing=RunPurpose.SETUP, borrows=not installs(line))


def setup_runner(turn: Turn) -> CommandRunner:
    """Return a runner for the project's setup in an agent's worktree, with the home of that agent."""

    def tenant_for(line: str, _name: str) -> Tenant:
        return Tenant(f"{turn.task}.{turn.worker.name}", doing=RunPurpose.READY, borrows=not installs(line))

    return _turn_runner(turn, tenant_for)


def _turn_gate_runner(turn: Turn) -> CommandRunner:
    return _turn_runner(turn, GateTenants(f"{turn.task}.gate-{turn.worker.name}"))


def _turn_runner(turn: Turn, tenant_for: Callable[[str, str], Tenant]) -> CommandRunner:
    limits = RunLimits(total=turn.state.config.limits.agent_minutes * 60)

    def folder(name: str) -> Path:
        return turn.worker.home / RUNS / turn.worker.run_id(name)

    def keep_alive() -> AbstractContextManager[None]:
        turn.begin_run()
        return turn.lease_renewer.require_liveness(limits.total + LEASE_SLACK)

    return gate_runner(
        turn.worker.project_sandbox(turn.state), tenant_for, folder, limits, turn.stop, keep_alive
    )


def gate_runner(
    sandbox: ProjectSandbox,
    tenant_for: Callable[[str, str], Tenant],
    folder_for: Callable[[str], Path],
    limits: RunLimits,
    stop: RunControl,
    keep_alive: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> CommandRunner:
    """Return a runner for gate commands, the same for work and for its base.

    *tenant_for* gives the home of a command; *keep_alive* is entered around each, to keep a lease alive.
    """

    def run(line: str, cwd: Path, name: str) -> CommandResult:
        folder = folder_for(name)
        job = shell_job(line, cwd, folder, limits)
        with keep_alive(), sandbox.wrap(job, tenant_for(line, name)) as wrapped:
            outcome = process.run_job(wrapped, stop)
        if stop.level is not StopLevel.GO:
            raise Halted
        return command_result(outcome, folder.name)

    def run_unkilled(line: str, cwd: Path, name: str) -> CommandResult:
        """Run a command, and run it again where it was killed: a kill says nothing about the work."""
        ran = run(line, cwd, name)
        for pause in AFTER_A_KILL:
            if ran.ending is not RunEnding.KILLED or not sleep_unless_stopped(stop, pause):
                break
            ran = run(line, cwd, name)
        return ran

    return run_unkilled


def results_of(home: Path, config: Config) -> ResultCache:
    """Return what is known of the trees that work is based on."""
    return ResultCache(home / FOLDER, config)


def cause_explainer(repository: Repository, sandbox: ProjectSandbox) -> CauseExplainer:
    """Return a function that explains why a command fails whatever the work is."""
    surroundings = CommandSurroundings(repository, sandbox.is_sandboxed)
    return lambda line, ran: likely_cause(surroundings, line, ran)


def run_own_checks(workflow: Workflow, context: GateContext) -> tuple[Verdict, ...]:
    """Run the task's own checks where nothing is said to be missing; return the verdicts up to the first
    failure, if any.

    The engine runs no gate where nothing was made; these checks are not about what was made.
    """
    said: list[Verdict] = []
    phase = context.task.position.phase if context.task.position else workflow.start
    for gate in workflow.phases[phase].gates:
        if gate.kind is GateKind.COMMAND and "from" in gate.options:
            said.append(registry.run_gate(gate.id, gate.kind, gate.own_options, context))
            if said[-1].outcome is Outcome.REVISE:
                return tuple(said)
    return ()


def run_gates(  # noqa: PLR0913 - what is known of the work before a machine looks at it
    turn: Turn,
    workflow: Workflow,
    position: Position | None,
    context: GateContext,
    *,
    work: Worked | None = None,
    before: Iterable[Verdict] = (),
    known: frozenset[str] = frozenset(),
) -> GatesResult:
    """Run every machine gate that is next, until a phase rejects the work or an agent or a person is next.

    Verdicts in *before* are used again where they are about this tree; *known* are predicates that only the
    answer of an agent tells.
    """
    if position is None:
        raise Refused("a task without a position in the workflow cannot be judged")
    names = (context.facts | known | set(position.known)) & _PREDICATES
    facts = frozenset(Predicate(name) for name in names)
    here, at, said = position.replace(tree=context.tree), turn.worker.clock(), list[Verdict]()
    moved = engine.report(workflow, here, at, work=work, verdicts=before, facts=facts)
    while moved.decision is None or moved.decision.outcome is Outcome.PASS:
        verdict = _verdict_of_machine(turn, engine.next_job(workflow, moved.position, facts), context)
        if verdict is None:
            break
        said.append(verdict)
        now = turn.worker.clock()
        moved = engine.report(workflow, moved.position, now, verdicts=[verdict], facts=facts)
    return GatesResult(moved, tuple(said), facts)


def _verdict_of_machine(turn: Turn, job: WorkflowJob | None, context: GateContext) -> Verdict | None:
    """Run the next machine gate or added effect and return its verdict; None where none is next."""
    match job:
        case GateJob(gate) if gate.is_mechanical and gate.kind is not GateKind.EFFECT:
            verdict = registry.run_gate(gate.id, gate.kind, gate.own_options, context)
            if turn.stop.level is not StopLevel.GO:
                raise Halted
            return verdict
        case GateJob(gate) if (effect := gate.added_effect) is not None:
            return registry.run_effect(gate.id, effect, gate.own_options, context)
    return None


LATE_BUT_CRITICAL: Final = (
    "{}: its reviewer found something critical after the first review, which decides nothing any more: {}; "
    "look at it before you apply the patch"
)

log = logging.getLogger(__name__)


def judge(turn: Turn, _taken: TakenTask) -> AfterTurn | None:
    """Bring the task through the gates of review; return what to do next where no verdict came of it."""
    task = turn.subject
    try:
        found = _rerun_gates(turn, task)
    except Halted:
        turn.record(e.Release(reason="the review was stopped before its gates were through"))
        return AfterTurn.WORK
    except BrokenGate as error:
        turn.record_broken_gate(error, e.Release(reason=printable(str(error))))
        return AfterTurn.WORK
    flow = turn.workflow
    said: tuple[AgentAnomaly, ...] = ()
    while (
        next_up := engine.next_job(flow, found.moved.position, found.facts)
    ) and found.outcome is Outcome.PASS:
        match next_up:
            case GateJob(gate) if gate.kind is GateKind.AGENT:
                turn.hat, turn.part = gate.role, gate.options.get("prompt")
                asked = _ask_reviewer(turn, task, found.verdicts)
                if turn.lease_renewer.lost:
                    log.warning("%s: the verdict is not used", turn.lease_renewer.lost)
                    return AfterTurn.WORK
                if not isinstance(asked.value, Review):
                    return _record_no_verdict(turn, asked, gate, pick.new_verdicts(task, found.verdicts))
                turn.comments.append((str(gate.role), _review_text(asked.value)))
                found, said = (
                    _with_verdict(turn, task, found, gate.id, asked, asked.value),
                    asked.value.anomalies,
                )
            case _:
                break
    event = pick.event_for_verdicts(task, found)
    if found.artifacts and isinstance(event, e.Report):
        event = event.replace(artifacts=found.artifacts)
    _conclude(turn, event, said)
    return None


def _review_text(review: Review) -> str:
    """Return what a reviewer's agent said, as people read it."""
    points = [f"- {f'{one.file}: ' if one.file else ''}{one.message}" for one in review.feedback]
    return "\n".join(
        [f"{review.verdict}{f' ({review.label})' if review.label else ''}: {review.reason}", *points]
    )


def _conclude(turn: Turn, event: e.Event, said: tuple[AgentAnomaly, ...]) -> None:
    """Record a verdict; a task that is approved while others are merged waits in the queue, unheld."""
    at, by = turn.worker.clock(), turn.by
    verdicts = event.verdicts if isinstance(event, e.Report) else ()
    signals = [signal for verdict in verdicts for signal in verdict.signals()]

    def more(state: State) -> State:
        state = turn.with_anomalies(state, said)
        state = with_signals(state, str(turn.task), *signals)
        task = state.task(str(turn.task))
        if task.status is not Status.APPROVED or pick.is_next_to_merge(state, task, at):
            return state
        return apply(e.Release(reason="others are merged first"), to=task.id, by=by, at=at)(state)

    turn.record(event, more=more)


def _with_verdict(
    turn: Turn, task: Task, so_far: GatesResult, gate: str, asked: AgentAnswer, review: Review
) -> GatesResult:
    """Return *so_far* with the verdict of a reviewer's agent, and the position after it."""
    tree = turn.worker.repository.tree_of(str(task.review_commit or task.base_commit))
    verdict = pick.verdict_of_review(gate, review, tree=tree, run=asked.run, at=turn.worker.clock())
    flow, position = turn.workflow, so_far.moved.position
    held = HeldVerdict(verdict)
    if turn.state.config.experiment.converge:
        held = hold_to_first(verdict, task.artifacts, position.iterations.get(position.phase, 1) - 1)
        turn.worker.tell(
            [LATE_BUT_CRITICAL.format(task.id, "; ".join(held.critical))] if held.critical else []
        )
    log.info("%s: reviewed: %s", task.id, held.verdict.outcome)
    moved = engine.after(flow, position, held.verdict, so_far.facts)
    said = (*so_far.verdicts, held.verdict)
    return so_far._replace(moved=moved, verdicts=said, artifacts={**so_far.artifacts, **held.artifacts})


def _rerun_gates(turn: Turn, task: Task) -> GatesResult:
    """Run the gates whose verdicts are not about the submitted tree."""
    flow, commit = turn.workflow, str(task.review_commit or task.base_commit)
    with gate_context(turn, task, str(task.base_commit), commit) as context:
        held = tuple(one for one in task.verdicts if one.tree == context.tree and one.outcome is Outcome.PASS)
        found = run_gates(turn, flow, task.position, context, before=held)
    return found._replace(verdicts=(*held, *found.verdicts))


def _ask_reviewer(turn: Turn, task: Task, found: tuple[Verdict, ...]) -> AgentAnswer:
    worker, repository = turn.worker, turn.worker.repository
    base, commit = str(task.base_commit), str(task.review_commit or task.base_commit)
    diff = diff_text(repository, base, commit)
    said = "\n\n".join(one.message for one in commits_between(repository, base, commit))

    def check(value: AnswerValue) -> str | None:
        before, after = worker.trees.before, worker.trees.after
        # What tests leave behind is no change of the work; it goes with the checkout.
        is_same = before and after and not altered_paths(repository, before.tree, after.tree)
        if not is_same or not after or after.head != shown:
            # Whoever is asked again judges the work, not what became of it.
            refill(worker.worktrees, path, shown)
            worker.trees.begin()
            return "the checkout was changed, and a reviewer changes nothing; the verdict does not count"
        first = len(turn.runs) == 1
        return pick.missing_feedback(task, value) if first and isinstance(value, Review) else None

    shown = with_instructions_of(repository, base, commit, at=worker.clock())
    seen = prompting.shown_to(turn.worn, task)
    facts = prompting.for_review(turn.state, seen, diff=diff, log=said, checks=gate_report(found))
    with scratch_tree(worker.worktrees, shown) as path:
        begins = WorktreeState(shown, repository.tree_of(shown))
        return ask(turn, Step.REVIEW, facts, path, check=check, again=RETRY_ENDINGS, begins=begins)


def _record_no_verdict(turn: Turn, asked: AgentAnswer, gate: Gate, said: tuple[Verdict, ...]) -> AfterTurn:
    ending, position = asked.reply.ending, turn.current().position
    phase = position.phase if position else None
    if asked.moved:
        turn.block_for_drift(asked.moved)
        return AfterTurn.WORK
    if ending in RELEASE_ENDINGS:
        turn.record(e.Release(reason=asked.why, killed=ending is RunEnding.KILLED))
    elif gate.on_error != OnError() and ending is not RunEnding.DONE:
        turn.record(e.Report(crashed=gate.id, reason=asked.why, verdicts=said))
        turn.release()
    else:
        silence = Signal(name=SignalName.SILENCE, at=turn.worker.clock(), phase=phase, role=gate.role)
        turn.record(
            pick.event_for_silence(
                asked.why, gate, said, position.tree if position else None, turn.worker.clock()
            ),
            more=lambda state: with_signals(state, str(turn.task), silence),
        )
        turn.release()
    return AfterTurn.RESTART if asked.is_context_full else AfterTurn.WORK


# From APPROVED to MERGED: merge as trees, test exactly that tree, say so, move the ref, prove it, say so.
#
# Every half of it converges after a crash: a merge that was started and is on the branch becomes MERGED, and
# one that is not is made again.

MOST_ROUNDS: Final = 20  # times that others may be faster before somebody else has a try
LONGEST_FAILURE: Final = 3000  # characters of what is wrong with a merged tree that the coder is shown


def integrate(turn: Turn, _taken: TakenTask) -> AfterTurn:
    """Bring the approved task of *turn* to the integration branch, or say what stands in the way."""
    for _ in range(MOST_ROUNDS):
        if _try_once(turn, turn.current()):
            return AfterTurn.WORK
    turn.record(e.Release(reason="the integration branch moved faster than the merge; it is tried again"))
    return AfterTurn.WORK


def retry_merge(worker: Worker) -> AfterTurn:
    """Try the merge again that a person says is possible now, if there is one."""

    def make(state: State) -> State:
        found = pick.resolved_conflict(state)
        if found is None:
            return state
        at, by = worker.clock(), worker.actor()
        again = e.Answer(guidance=found.note.message, merge=True)
        state = apply(again, to=found.task.id, by=by, at=at)(state)
        note = found.note.replace(processed=at, processed_by=worker.name)
        return state.replace(human_notes=with_record(state.human_notes, note))

    if pick.resolved_conflict(worker.board.read()) is None:
        return AfterTurn.WAIT
    worker.board.update(Change(worker.name, "retry_merge", make))
    return AfterTurn.WORK


def _try_once(turn: Turn, task: Task) -> bool:
    """Try once; return False where the branch moved meanwhile."""
    repository, ref = turn.worker.repository, turn.worker.integration(turn.state)
    turn.worker.fetch(turn.state)
    if task.merging and repository.contains(ref, task.merging.commit):
        turn.record(e.Land(commit=task.merging.commit))
        return True
    if found := _merge_by_another(turn, task):
        turn.record(e.Intend(onto=found.parents[0], commit=found.commit), e.Land(commit=found.commit))
        return True
    head = repository.commit_at(ref)
    if head is None:
        raise UnfitRepository(
            f"{task.id}: the integration branch {ref} is gone; put it back, then `liza resume`"
        )
    if not turn.worker.verify_head(head):
        turn.record(e.Release(reason=f"{ref} has commits that no merge of the board made"))
        return True
    commit = _commit_to_merge(turn, task)
    merged = merge(repository, head, commit)
    if isinstance(merged, Conflict):
        resolution = resolve_conflict(repository, merged)
        if resolution is None:
            _record_conflict(turn, task, merged)
            return True
        merged = resolution
    return _land_merge(turn, task, merged, head)


def _commit_to_merge(turn: Turn, task: Task) -> str:
    """Return what was judged; or one commit of the same tree, where the person who approved wants that."""
    judged, said = str(task.review_commit), task.position.approvals if task.position else ()
    wish = next((one for one in said if one.label == SQUASH), None)
    if wish is None or not turn.workflow.offers_squash:
        return judged
    # Made of what does not change, it is the same commit however often it is made.
    what = Squashing(str(task.base_commit), judged, task.description)
    return squash(turn.worker.repository, what, at=wish.at)


def _merge_by_another(turn: Turn, task: Task) -> ChainCommit | None:
    """Return the merge of *task* that is on the branch, though the board says another was started.

    A reviewer that was away for longer than its lease may have moved the ref after somebody took over.
    """
    repository, ref, commit = (
        turn.worker.repository,
        turn.worker.integration(turn.state),
        _commit_to_merge(turn, task),
    )
    if not repository.contains(ref, commit):
        return None
    key = ensure_key(turn.worker.home)
    for link in first_parent_chain(repository, ref, task.base_commit):
        is_merge = link.trailers.get(Trailer.TASK) == task.id and commit in link.parents
        if is_merge and link.is_signed_with(key):  # anybody can write a trailer
            return link
    return None


def _land_merge(turn: Turn, task: Task, merged: Merged, head: str) -> bool:
    repository, ref = turn.worker.repository, turn.worker.integration(turn.state)
    commit = _commit_to_merge(turn, task)
    subject, key = f"Merge {task.id}: {task.description.splitlines()[0]}", ensure_key(turn.worker.home)
    account = MergeDescription(subject, _trailers(task), key)
    sealed = commit_merge(repository, merged, account, onto=head, commit=commit, at=turn.worker.clock())
    if not _test_merged_tree(turn, task, sealed, head):
        return True
    turn.record(e.Intend(onto=head, commit=sealed))
    remote = turn.worker.remote(turn.state)
    landed = (
        remote.land_merge(sealed, onto=head)
        if remote
        else land_merge(repository, ref, sealed, onto=head, task=task.id)
    )
    if not isinstance(landed, Landed):
        return False
    if wrong := merge_doubts(repository, ref, sealed, commit=commit, tree=merged.tree):
        log.warning("%s: not merged yet: %s", task.id, "; ".join(wrong))
        return False
    turn.record(e.Land(commit=sealed))
    return True


def _test_merged_tree(turn: Turn, task: Task, sealed: str, head: str) -> bool:
    """Ask the machines about exactly the tree that would be merged; record what stands in the way."""
    flow = turn.workflow
    try:
        with gate_context(turn, task, head, sealed) as context:
            known = _verdicts_on_merged_tree(flow, task, context)
            found = run_gates(turn, flow, task.position, context, before=known)
    except Halted:
        turn.record(e.Release(reason="the merge was stopped before its tests were through"))
        return False
    except BrokenGate as error:
        turn.record_broken_gate(error, e.Release(reason=printable(str(error))))
        return False
    if found.outcome is Outcome.PASS:
        return True
    shown = "".join(f"\n{one.evidence.tail}" for one in found.verdicts[-1:] if one.evidence)
    reason = f"on the merged tree, {found.reason}:{shown}"[:LONGEST_FAILURE]
    no = e.Report(outcome=Outcome.REVISE, reason=reason, verdicts=found.verdicts, known=found.known)
    turn.record(no)
    return False


def _verdicts_on_merged_tree(flow: Workflow, task: Task, context: GateContext) -> tuple[Verdict, ...]:
    """Return what the board has of the same commands on exactly the tree that would be merged.

    Where nothing else was merged since, that is the tree of the work, whose tests were just run.
    """
    gates = [gate for phase in flow.phases.values() for gate in phase.gates if gate.kind is GateKind.COMMAND]
    merged = {gate.options.get("command"): gate.id for gate in gates if gate.options.get("tree") == "merged"}
    lines = {gate.id: gate.options.get("command") for gate in gates if gate.id not in merged.values()}
    return tuple(
        one.replace(gate=merged[name])
        for one in task.verdicts
        if one.tree == context.tree and one.outcome is Outcome.PASS and one.label is None and one.evidence
        if (name := lines.get(one.gate)) in merged
        if one.evidence.command == getattr(context.config.gates, str(name))
    )


def _trailers(task: Task) -> dict[Trailer, str]:
    passed = [one for one in task.verdicts if one.outcome is Outcome.PASS and one.label != "skipped"]
    commands = {one.gate: one.judging_worker or (one.evidence and one.evidence.command) for one in passed}
    gates = [f"{gate}: {line}" if line else gate for gate, line in commands.items()]
    return {
        Trailer.TASK: task.id,
        Trailer.VERDICT: "approve",
        Trailer.APPROVED_BY: str(task.approved_by),
        Trailer.GATES: "; ".join(gates) or "none",
        Trailer.AGENT: ", ".join(task.authors),
        **({Trailer.TAINTS: marks} if (marks := ", ".join(map(_taint_text, task.taints))) else {}),
    }


def _taint_text(taint: Taint) -> str:
    return f"{taint.mark} (accepted by {taint.accepted_by})"


def _record_conflict(turn: Turn, task: Task, conflict: Conflict) -> None:
    paths = tuple(environment_mask().text(printable(path)) for path in conflict.paths)
    reason = printable(
        f"it conflicts with what was merged meanwhile ({conflict}); the work is laid over the new base "
        "without a commit, with conflict marks: resolve them"
    )
    events = pick.events_for_conflict(task, reason, paths)
    at, by = turn.worker.clock(), turn.worker.name

    def more(state: State) -> State:
        if not any(isinstance(event, e.Block) for event in events):
            return state
        return with_anomaly(state, MergeConflict(paths=paths), about=task.id, by=by, at=at)

    turn.record(*events, more=more)
