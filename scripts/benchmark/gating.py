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

from liza.daemon.flows import gate_options
from liza.domain.config import Config, Gates
from liza.domain.model import Checkpoint, Status, Task, TaskScope
from liza.domain.record import utc_now
from liza.domain.verdicts import Outcome
from liza.gates.context import GateContext
from liza.gates.registry import run_gate
from liza.gates.runner import CommandResult, run_shell
from liza.repo.command import exclude
from liza.repo.repository import Repository
from liza.system.run_control import RunControl, RunLimits
from liza.workflow.document import Gate, GateKind
from liza.workflow.load import load_workflow
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
DIFF: Final = "the diff"  # what differs decides which gates are asked


class Cost(NamedTuple):
    """Seconds of one gate: of its own, and of the commands that it ran."""

    own: float
    commands: float


class Costs(NamedTuple):
    """One for each time that a gate was asked about a task."""

    own: list[float]
    commands: list[float]


def gates_table(place: Path, sizes: tuple[int, ...], rounds: int) -> Table:
    table = Table(
        "13. Machine gates: a task with code and a test, milliseconds without the commands' own time",
        ("files", "gate", "own ms", "commands ms", "own : commands"),
    )
    for files in sizes:
        progress(f"gates on a repository of {files:,} files")
        with TemporaryDirectory(prefix="gates-", dir=place) as name:
            _add(table, files, _measured(Path(name), files, rounds))
    table.notes += [
        f"medians of {rounds} tasks; the tests take {SUITE:g} s, and the proof runs them again on the head",
        "own: git, checkouts, reading and the start of processes; without the cage, which table 12 has",
    ]
    return table


def _add(table: Table, files: int, found: dict[str, Costs]) -> None:
    for name, costs in found.items():
        ours, theirs = median(costs.own), median(costs.commands)
        table.add(files, name, ours * MS, theirs * MS or None, ours / theirs if theirs else None)


def _measured(root: Path, files: int, rounds: int) -> dict[str, Costs]:
    git(root, "init", "-q", "-b", "main")
    for number in range(files - len(BASE)):
        _write(root, f"d{number // 100}/f{number}.txt", f"file {number}\n")
    base = _committed(root, BASE)
    exclude(root, ("/.worktrees/",))
    head = _committed(root, WORK)
    found: dict[str, Costs] = {}
    for number in range(rounds):
        took = dict(_task(Repository.around(root), base, head, f"t{number}"))
        whole = Cost(sum(cost.own for cost in took.values()), sum(cost.commands for cost in took.values()))
        for name, cost in {**took, ALL: whole}.items():
            costs = found.setdefault(name, Costs([], []))
            costs.own.append(cost.own)
            costs.commands.append(cost.commands)
    return found


def _task(repository: Repository, base: str, head: str, name: str) -> Iterator[tuple[str, Cost]]:
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
        with GateContext(_asked(name), repository, base, head, Config(gates=LINES), run) as case:
            begun = time.monotonic()
            facts = case.facts
            yield f"{phase_name}: {DIFF}", Cost(time.monotonic() - begun, 0.0)
            for gate in gates:
                if not set(gate.unless) & facts:
                    yield gate.id, _cost(gate, case, commands)


def _cost(gate: Gate, case: GateContext, commands: list[float]) -> Cost:
    before, begun = len(commands), time.monotonic()
    verdict = run_gate(gate.id, gate.kind, gate_options(gate.options), case)
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
