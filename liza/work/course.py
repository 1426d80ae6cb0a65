"""A task's way through its workflow: the engine says what is next, machines judge, it says what follows.

What a gate said about a tree holds for that tree alone. Whoever goes on with a task answers the engine with
what was said before where it still holds, and asks the gates anew where it does not.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.agents import process
from liza.agents.cage import Doing, Visit
from liza.agents.protocol import Ending, Level, Limits, rest
from liza.gates import running, table
from liza.gates.case import Case, Said
from liza.gates.causes import Setting, likely_cause
from liza.gates.checkout import SETUP, installs
from liza.gates.results import FOLDER, Results
from liza.record import utc_now
from liza.verdicts import Feedback, Outcome, Verdict
from liza.work.flows import merging_phase, own
from liza.work.turn import AFTER_A_KILL, RUNS, SLACK, Strayed
from liza.workflows import engine
from liza.workflows.document import GateKind, Predicate
from liza.workflows.position import Judge, Moved, Position, Proceed, Proceeded, Worked

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from liza.agents.protocol import Stop
    from liza.config import Config
    from liza.gates.case import Likely
    from liza.gates.running import Ran, Run
    from liza.model import Task
    from liza.repo.repository import Repository
    from liza.work.caging import Guard
    from liza.work.turn import Asked, Turn
    from liza.workflows.document import Workflow

_KNOWN: Final = frozenset(Predicate)


class Halted(Exception):
    """A gate was cut short because the turn was told to end; nothing may be concluded from it."""


class Judged(NamedTuple):
    """Where the machines' verdicts lead, and the verdicts."""

    moved: Moved
    verdicts: tuple[Verdict, ...]
    facts: frozenset[Predicate] = frozenset()  # what conditions of gates ask, as it is for this work

    @property
    def outcome(self) -> Outcome:
        """What it comes to: where no phase was decided yet, nothing is in the way so far."""
        if self.moved.position.waiting is not None:
            return Outcome.ASK
        return self.moved.decision.outcome if self.moved.decision else Outcome.PASS

    @property
    def phase(self) -> str | None:
        return self.moved.decision.phase if self.moved.decision else None

    @property
    def taints(self) -> tuple[str, ...]:
        """What a pass here is marked with, as that an adviser was overruled."""
        return self.moved.position.taints

    @property
    def reason(self) -> str:
        said = self._against() or next(reversed(self.verdicts), None)
        return (said.reason if said else None) or "a gate did not let it pass"

    @property
    def feedback(self) -> tuple[Feedback, ...]:
        said = self._against()
        return (said.feedback if said else ()) or (Feedback(message=self.reason),)

    @property
    def against(self) -> str:
        """Which gate said no."""
        said = self._against()
        return said.gate if said else "nobody"

    def _against(self) -> Verdict | None:
        return next((one for one in reversed(self.verdicts) if one.outcome is not Outcome.PASS), None)


def coding(workflow: Workflow, task: Task) -> Position:
    """Return where *task* is for its coder."""
    return engine.begin(workflow).but(iterations={workflow.start: max(1, task.iteration)})


def worked(workflow: Workflow, position: Position, work: Worked) -> Position:
    """Return *position* after the work; what comes before it was answered."""
    return position.but(
        worked=True,
        nothing=work.nothing_to_do,
        tree=work.tree,
        made_in=workflow.start,
        runs=(work.run,) if work.run else (),
    )


def submitted(workflow: Workflow, task: Task, tree: str) -> Position:
    """Return where a submitted task is before any gate is asked about what was submitted."""
    work = Worked(utc_now(), tree=tree, run=task.submitted_run, nothing_to_do=task.nothing_to_do is not None)
    return worked(workflow, coding(workflow, task), work)


def approved(workflow: Workflow, task: Task, tree: str) -> Position:
    """Return where an approved task is before it is merged."""
    phase = str(merging_phase(workflow))
    rounds = {workflow.start: max(1, task.iteration), phase: 1}
    return Position(phase=phase, iterations=rounds, tree=tree, made_in=workflow.start)


def said(asked: Asked) -> Said:
    """Return what an agent said in the run that made the work."""
    summary = getattr(asked.value, "summary", "")
    return Said(text=asked.reply.text, answers=(summary,) if summary else ())


@contextmanager
def case_of(turn: Turn, task: Task, base: str, head: str, said: Said = Said()) -> Iterator[Case]:  # noqa: B008
    """Give what gates look at; their commands keep the lease, obey switches, and are looked after.

    What agents wrote runs in gates, so whatever it moved counts as if an agent had: it raises `Strayed`.
    """
    with _case(turn, task, base, head, said) as case:
        yield case
    if moved := turn.look():
        raise Strayed(moved)


def _case(turn: Turn, task: Task, base: str, head: str, said: Said) -> Case:
    return Case(
        task=task,
        repository=turn.place.repository,
        base=base,
        head=head,
        config=turn.state.config,
        run=_runner(turn),
        clock=turn.place.clock,
        said=said,
        results=results_of(turn.place.home, turn.state.config),
        likely=likely_of(turn.place.repository, turn.place.warden(turn.state)),
    )


class GateVisits:
    """Whose home each command of a case has: new each time, or as the setup before it left it.

    Agents wrote what runs there, so that no command finds what another one wrote.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._was_set_up = False

    def __call__(self, line: str, name: str) -> Visit:
        if name != SETUP:
            return Visit(self._name, doing=Doing.COMMAND, inherits=self._was_set_up)
        self._was_set_up = True
        return Visit(self._name, doing=Doing.SETUP, borrows=not installs(line))


def ready_runner(turn: Turn) -> Run:
    """Return how the project's setup is run in the worktree of an agent: in the home of that agent."""

    def visit(line: str, _name: str) -> Visit:
        return Visit(f"{turn.task}.{turn.place.name}", doing=Doing.READY, borrows=not installs(line))

    return _running(turn, visit)


def _runner(turn: Turn) -> Run:
    return _running(turn, GateVisits(f"{turn.task}.gate-{turn.place.name}"))


def _running(turn: Turn, visit: Callable[[str, str], Visit]) -> Run:
    limits = Limits(total=turn.state.config.limits.agent_minutes * 60)

    def folder(name: str) -> Path:
        return turn.place.home / RUNS / turn.place.run_id(name)

    def living() -> AbstractContextManager[None]:
        turn.begin_run()
        return turn.keeper.expecting_life(limits.total + SLACK)

    return gate_runner(turn.place.warden(turn.state), visit, folder, limits, turn.stop, living)


def gate_runner(
    warden: Guard,
    visit: Callable[[str, str], Visit],
    folder_for: Callable[[str], Path],
    limits: Limits,
    stop: Stop,
    living: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Run:
    """Return what runs the commands of gates: the same way for work and for what it is based on.

    *visit* says whose home a command has; *living* is around each, for whoever has to be seen alive.
    """

    def run(line: str, cwd: Path, name: str) -> Ran:
        folder = folder_for(name)
        job = running.job(line, cwd, folder, limits)
        with living(), warden.caged(job, visit(line, name)) as caged:
            outcome = process.run(caged, stop)
        if stop.level is not Level.GO:
            raise Halted
        return running.ran(outcome, folder.name)

    def run_unkilled(line: str, cwd: Path, name: str) -> Ran:
        """Run, and run again what somebody killed: that says nothing about the work."""
        ran = run(line, cwd, name)
        for pause in AFTER_A_KILL:
            if ran.ending is not Ending.KILLED or not rest(stop, pause):
                break
            ran = run(line, cwd, name)
        return ran

    return run_unkilled


def results_of(home: Path, config: Config) -> Results:
    """Return what is known of the trees that work is based on."""
    return Results(home / FOLDER, config)


def likely_of(repository: Repository, warden: Guard) -> Likely:
    """Return who explains a command that fails whatever the work is."""
    setting = Setting(repository, warden.is_caging)
    return lambda line, ran: likely_cause(setting, line, ran)


def denied(workflow: Workflow, case: Case) -> tuple[Verdict, ...]:
    """Return what the task's own checks say of a tree to which nothing is said to be missing, up to a no.

    The engine asks no machine where nothing was made; these are not about what was made.
    """
    said: list[Verdict] = []
    for gate in workflow.phases[workflow.start].gates:
        if gate.kind is GateKind.COMMAND and "from" in gate.options:
            said.append(table.judge(gate.id, gate.kind, own(gate.options), case))
            if said[-1].outcome is Outcome.REVISE:
                return tuple(said)
    return ()


def judged(
    turn: Turn, workflow: Workflow, position: Position, case: Case, before: Iterable[Verdict] = ()
) -> Judged:
    """Ask every machine that is next, until a phase is decided against the work or somebody else is next.

    *before* is what was said already; it counts where it was said about this tree.
    """
    position = position.but(tree=case.tree)
    held = {one.gate: one for one in before if one.tree == case.tree and one.outcome is Outcome.PASS}
    facts = frozenset(Predicate(name) for name in case.facts & _KNOWN)
    moved, said = Moved(position), []
    while True:
        match engine.job(workflow, moved.position, facts):
            case Judge(gate) if gate.is_mechanical and gate.kind is not GateKind.EFFECT:
                verdict = held.get(gate.id) or table.judge(gate.id, gate.kind, own(gate.options), case)
                if turn.stop.level is not Level.GO:
                    raise Halted
                moved = engine.after(workflow, moved.position, verdict, facts)
                said.append(verdict)
            case Proceed():
                moved = engine.after(workflow, moved.position, Proceeded(turn.place.clock()), facts)
            case _:
                return Judged(moved, tuple(said), facts)
        if moved.decision and moved.decision.outcome is not Outcome.PASS:
            return Judged(moved, tuple(said), facts)
