"""A task's way through its workflow: the engine says what is next, machines judge, it says what follows.

What a gate said about a tree holds for that tree alone. Whoever goes on with a task answers the engine with
what was said before where it still holds, and asks the gates anew where it does not.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.daemon.flows import added_effect, gate_options
from liza.daemon.policy.retries import AFTER_A_KILL
from liza.daemon.turn import LEASE_SLACK, RUNS, GateTampered
from liza.domain.position import Position
from liza.domain.verdicts import Feedback, Outcome, Verdict
from liza.errors import Refused
from liza.gates import registry, runner
from liza.gates.causes import CommandSurroundings, likely_cause
from liza.gates.checkout import SETUP, installs
from liza.gates.context import GateContext, Statements
from liza.gates.results import FOLDER, ResultCache
from liza.system import process
from liza.system.files import overwrite
from liza.system.run_control import RunEnding, RunLimits, StopLevel, sleep_unless_stopped
from liza.system.sandbox.bubblewrap import RunPurpose, Tenant
from liza.workflow import engine
from liza.workflow.document import GateKind, Predicate
from liza.workflow.position import GateJob, Move, Worked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from pathlib import Path

    from liza.daemon.project_sandbox import ProjectSandbox
    from liza.daemon.turn import AgentAnswer, Turn
    from liza.domain.config import Config
    from liza.domain.model import Task
    from liza.domain.record import Record
    from liza.gates.context import CauseExplainer
    from liza.gates.runner import CommandResult, CommandRunner
    from liza.repo.repository import Repository
    from liza.system.run_control import RunControl
    from liza.workflow.document import Workflow

_PREDICATES: Final = frozenset(Predicate)


class Halted(Exception):
    """A gate was cut short because the turn was told to end; nothing may be concluded from it."""


class GatesResult(NamedTuple):
    """The verdicts of the machine gates, and the position that they lead to."""

    moved: Move
    verdicts: tuple[Verdict, ...]
    facts: frozenset[Predicate] = frozenset()  # what conditions of gates ask, as it is for this work
    artifacts: Mapping[str, str] = {}  # what the task keeps of a review

    @property
    def outcome(self) -> Outcome:
        """The outcome so far: PASS while no phase was decided."""
        if self.moved.position.waiting is not None:
            return Outcome.ASK
        return self.moved.decision.outcome if self.moved.decision else Outcome.PASS

    @property
    def phase(self) -> str | None:
        return self.moved.decision.phase if self.moved.decision else None

    @property
    def known(self) -> tuple[str, ...]:
        return tuple(sorted(self.facts))

    @property
    def tree(self) -> str | None:
        return self.moved.position.tree

    @property
    def taints(self) -> tuple[str, ...]:
        """What a pass here is marked with, as that an adviser was overruled."""
        return self.moved.position.taints

    @property
    def reason(self) -> str:
        said, decision = self._last_refusal(), self.moved.decision
        if said is None and decision is not None and decision.reason:
            return decision.reason  # of a gate that said no before, when the work was handed in
        said = said or next(reversed(self.verdicts), None)
        return (said.reason if said else None) or "a gate did not let it pass"

    @property
    def feedback(self) -> tuple[Feedback, ...]:
        said = self._last_refusal()
        return (said.feedback if said else ()) or (Feedback(message=self.reason),)

    @property
    def against(self) -> str:
        """Which gate said no."""
        said = self._last_refusal()
        return said.gate if said else "nobody"

    def _last_refusal(self) -> Verdict | None:
        return next((one for one in reversed(self.verdicts) if one.outcome is not Outcome.PASS), None)


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
    with _new_context(turn, task, base, head, said) as case:
        yield case
    if moved := turn.look():
        raise GateTampered(moved)


def _new_context(turn: Turn, task: Task, base: str, head: str, said: Statements) -> GateContext:
    return GateContext(
        task=task,
        repository=turn.place.repository,
        base=base,
        head=head,
        config=turn.state.config,
        run=_turn_gate_runner(turn),
        clock=turn.place.clock,
        said=said,
        results=results_of(turn.place.home, turn.state.config),
        likely=cause_explainer(turn.place.repository, turn.place.project_sandbox(turn.state)),
        keep_file=lambda run, name, data: overwrite(turn.place.home / RUNS / run / name, data),
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

    def visit(line: str, _name: str) -> Tenant:
        return Tenant(f"{turn.task}.{turn.place.name}", doing=RunPurpose.READY, borrows=not installs(line))

    return _turn_runner(turn, visit)


def _turn_gate_runner(turn: Turn) -> CommandRunner:
    return _turn_runner(turn, GateTenants(f"{turn.task}.gate-{turn.place.name}"))


def _turn_runner(turn: Turn, visit: Callable[[str, str], Tenant]) -> CommandRunner:
    limits = RunLimits(total=turn.state.config.limits.agent_minutes * 60)

    def folder(name: str) -> Path:
        return turn.place.home / RUNS / turn.place.run_id(name)

    def living() -> AbstractContextManager[None]:
        turn.begin_run()
        return turn.lease_renewer.require_liveness(limits.total + LEASE_SLACK)

    return gate_runner(turn.place.project_sandbox(turn.state), visit, folder, limits, turn.stop, living)


def gate_runner(
    warden: ProjectSandbox,
    visit: Callable[[str, str], Tenant],
    folder_for: Callable[[str], Path],
    limits: RunLimits,
    stop: RunControl,
    living: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> CommandRunner:
    """Return a runner for gate commands, the same for work and for its base.

    *visit* gives the home of a command; *living* is entered around each, to keep a lease alive.
    """

    def run(line: str, cwd: Path, name: str) -> CommandResult:
        folder = folder_for(name)
        job = runner.shell_job(line, cwd, folder, limits)
        with living(), warden.caged(job, visit(line, name)) as caged:
            outcome = process.run_job(caged, stop)
        if stop.level is not StopLevel.GO:
            raise Halted
        return runner.command_result(outcome, folder.name)

    def run_unkilled(line: str, cwd: Path, name: str) -> CommandResult:
        """Run, and run again what somebody killed: that says nothing about the work."""
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


def cause_explainer(repository: Repository, warden: ProjectSandbox) -> CauseExplainer:
    """Return a function that explains why a command fails whatever the work is."""
    setting = CommandSurroundings(repository, warden.is_sandboxed)
    return lambda line, ran: likely_cause(setting, line, ran)


def run_own_checks(workflow: Workflow, case: GateContext) -> tuple[Verdict, ...]:
    """Run the task's own checks where nothing is said to be missing; return the verdicts up to the first
    failure, if any.

    The engine runs no gate where nothing was made; these checks are not about what was made.
    """
    said: list[Verdict] = []
    phase = case.task.position.phase if case.task.position else workflow.start
    for gate in workflow.phases[phase].gates:
        if gate.kind is GateKind.COMMAND and "from" in gate.options:
            said.append(registry.run_gate(gate.id, gate.kind, gate_options(gate.options), case))
            if said[-1].outcome is Outcome.REVISE:
                return tuple(said)
    return ()


def run_gates(  # noqa: PLR0913 - what is known of the work before a machine looks at it
    turn: Turn,
    workflow: Workflow,
    position: Position | None,
    case: GateContext,
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
    names = (case.facts | known | set(position.known)) & _PREDICATES
    facts = frozenset(Predicate(name) for name in names)
    here, at, said = position.replace(tree=case.tree), turn.place.clock(), list[Verdict]()
    moved = engine.report(workflow, here, at, work=work, verdicts=before, facts=facts)
    while moved.decision is None or moved.decision.outcome is Outcome.PASS:
        match engine.next_job(workflow, moved.position, facts):
            case GateJob(gate) if gate.is_mechanical and gate.kind is not GateKind.EFFECT:
                verdict = registry.run_gate(gate.id, gate.kind, gate_options(gate.options), case)
                if turn.stop.level is not StopLevel.GO:
                    raise Halted
                said.append(verdict)
                moved = engine.report(
                    workflow, moved.position, turn.place.clock(), verdicts=[verdict], facts=facts
                )
            case GateJob(gate) if (effect := added_effect(gate)) is not None:
                verdict = registry.run_effect(gate.id, effect, gate_options(gate.options), case)
                said.append(verdict)
                moved = engine.report(
                    workflow, moved.position, turn.place.clock(), verdicts=[verdict], facts=facts
                )
            case _:
                break
    return GatesResult(moved, tuple(said), facts)
