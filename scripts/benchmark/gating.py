"""What the machine gates of the default workflow add to a task, beside the commands that they run.

One task is judged as a worker does: code and a test of it, on a project whose suite takes a known time. What
a command takes by itself is its own; all else of a gate is ours: git, checkouts, reading, starting processes.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.domain.config import Config, Gates
from liza.domain.model import Checkpoint, Outcome, Status, Task, TaskScope
from liza.domain.record import utc_now
from liza.gates.context import CommandResult, GateContext, ResultCache, run_shell
from liza.gates.registry import run_gate
from liza.repo.command import exclude
from liza.repo.repository import Repository
from liza.system.run_control import RunControl, RunLimits
from liza.workflow.document import Gate, GateKind, load_workflow
from scripts.benchmark.projects import git
from scripts.benchmark.speed import MS, progress
from scripts.benchmark.tables import Table

SUITE: Final = 1.0  # seconds that the project's tests take: a short suite, beside which little can hide
LIMITS: Final = RunLimits(total=60)
_CASE: Final = "import time, unittest\nimport calc\n\n\nclass T(unittest.TestCase):\n"
BASE: Final = {
    "calc.py": "def add(a, b):\n    return a + b\n",
    "tests/test_old.py": f"{_CASE}    def test_add(self):\n        time.sleep({SUITE})\n"
    "        self.assertEqual(calc.add(1, 2), 3)\n",
}
WORK: Final = {
    "calc.py": f"{BASE['calc.py']}\n\ndef double(a):\n    return 2 * a\n",
    "tests/test_new.py": f"{_CASE}    def test_double(self):\n        self.assertEqual(calc.double(2), 4)\n",
}
LINES: Final = Gates(test=f"{sys.executable} -S -m unittest discover -s tests", lint="true")
ALL: Final = "all gates"
MERGING: Final = "INTEGRATE"  # the phase whose gates look at the merge
DIFF: Final = "the diff"  # what differs decides which gates are asked


class Cost(NamedTuple):
    """Seconds of one gate: of its own, and of the commands that it ran."""

    own: float
    commands: float


class Costs(NamedTuple):
    """One for each time that a gate was asked about a task."""

    own: list[float]
    commands: list[float]


def run_gates(place: Path, sizes: tuple[int, ...], rounds: int) -> dict[int, dict[str, Costs]]:
    """Return what each gate costs, by the files of the repository."""
    found = {}
    for files in sizes:
        progress(f"gates on a repository of {files:,} files")
        with TemporaryDirectory(prefix="gates-", dir=place) as name:
            found[files] = _measured(Path(name), files, rounds)
    return found


def gates_table(found: dict[int, dict[str, Costs]], rounds: int) -> Table:
    table = Table(
        "Machine gates: a task with code and a test, milliseconds without the commands' own time",
        ("files", "gate", "own ms", "commands ms", "own : commands"),
    )
    for files, costs in found.items():
        _add(table, files, costs)
    table.notes += [
        f"medians of {rounds} tasks; the tests take {SUITE:g} s, and the proof runs them again on the head",
        "somebody else merged meanwhile: where nobody did, the tests of the work count for its merge",
        "own: git, checkouts, reading, the start of processes; without the sandbox, which has its own table",
    ]
    return table


def _add(table: Table, files: int, found: dict[str, Costs]) -> None:
    for name, costs in found.items():
        ours, theirs = median(costs.own), median(costs.commands)
        table.add(files, name, ours * MS, theirs * MS or None, ours / theirs if theirs else None)


class _Work(NamedTuple):
    """A task's work, and the merge of it into a branch that somebody else moved meanwhile."""

    base: str
    head: str
    onto: str
    merged: str

    def ends_of(self, phase: str) -> tuple[str, str]:
        """Return the two commits between which the gates of *phase* look."""
        return (self.onto, self.merged) if phase == MERGING else (self.base, self.head)


def _measured(root: Path, files: int, rounds: int) -> dict[str, Costs]:
    git(root, "init", "-q", "-b", "main")
    for number in range(files - len(BASE)):
        _write(root, f"d{number // 100}/f{number}.txt", f"file {number}\n")
    base = _committed(root, BASE)
    exclude(root, ("/.worktrees/",))
    onto = _committed(root, {"other.txt": "by another task\n"})
    # As the daemon has it: what is known of the tree that work is based on is asked once.
    results = ResultCache(root / ".git" / "bench" / "results", Config(gates=LINES))
    found: dict[str, Costs] = {}
    for number in range(rounds):
        work = _work(root, base, onto, number)
        took = dict(_task(Repository.around(root), work, results, f"t{number}"))
        whole = Cost(sum(cost.own for cost in took.values()), sum(cost.commands for cost in took.values()))
        for name, cost in {**took, ALL: whole}.items():
            costs = found.setdefault(name, Costs([], []))
            costs.own.append(cost.own)
            costs.commands.append(cost.commands)
    return found


def _work(root: Path, base: str, onto: str, number: int) -> _Work:
    git(root, "checkout", "-q", "--detach", base)
    head = _committed(root, {**WORK, "calc.py": f"{WORK['calc.py']}\n\nNUMBER = {number}\n"})
    git(root, "checkout", "-q", "--detach", onto)
    git(root, "merge", "-q", "--no-ff", "--no-edit", head)
    return _Work(base, head, onto, git(root, "rev-parse", "HEAD"))


def _task(repository: Repository, work: _Work, results: ResultCache, name: str) -> Iterator[tuple[str, Cost]]:
    """Yield what each gate costs, in order; the gates of a phase share what they ask git for."""
    workflow, commands = load_workflow("liza"), list[float]()

    def run(line: str, cwd: Path, word: str) -> CommandResult:
        folder = repository.root / ".git" / "bench" / f"{name}.{word}.{len(commands)}"
        ran = run_shell(line, cwd, folder, LIMITS, RunControl())
        commands.append(ran.seconds)
        return ran

    for phase_name, phase in workflow.phases.items():
        gates = [gate for gate in phase.gates if gate.is_mechanical and gate.kind is not GateKind.EFFECT]
        if not gates:
            continue
        base, head = work.ends_of(phase_name)
        asked, config = _asked(name), Config(gates=LINES)
        with GateContext(asked, repository, base, head, config, run, results=results) as context:
            begun = time.monotonic()
            facts = context.facts
            yield f"{phase_name}: {DIFF}", Cost(time.monotonic() - begun, 0.0)
            for gate in gates:
                if not set(gate.unless) & facts:
                    yield gate.id, _cost(gate, context, commands)


def _cost(gate: Gate, context: GateContext, commands: list[float]) -> Cost:
    before, begun = len(commands), time.monotonic()
    verdict = run_gate(gate.id, gate.kind, gate.own_options, context)
    took = time.monotonic() - begun
    if verdict.outcome is not Outcome.PASS:
        raise RuntimeError(f"{gate.id} did not let honest work pass: {verdict.reason}")
    inside = sum(commands[before:])
    return Cost(took - inside, inside)


def _asked(name: str) -> Task:
    # A scope that named the test would give it away, and spare the proof a run of the old ones.
    return Task(
        id=name,
        description="Double a number",
        status=Status.WORKING,
        done_when=("double(2) is 4",),
        scope=TaskScope(include=("calc.py", "tests/")),
        checkpoint=Checkpoint(intent="add double", files_to_modify=tuple(WORK)),
        created=utc_now(),
        created_by="human",
    )


def _committed(root: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        _write(root, path, text)
    git(root, "add", "--all")
    git(root, "commit", "-q", "-m", "Double a number")
    return git(root, "rev-parse", "HEAD")


def _write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)
