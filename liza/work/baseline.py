"""The baseline: the project's own commands on what work is based on, before any agent is paid.

They run exactly as they will for work: same sandbox, scratch checkout, setup and environment. A command that
is red or cannot be started there would be every coder's failure. What came of it is kept by tree and command.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from liza.agents.protocol import MEANING, Ending, Limits, Stop
from liza.config import Config
from liza.errors import RedBase
from liza.gates.canary import CODE, Shown, Sight, sees_code
from liza.gates.case import Case
from liza.gates.failures import named
from liza.gates.results import Result
from liza.gates.running import Ran
from liza.model import Status, Task
from liza.record import utc_now
from liza.repo.repository import BRANCHES, Repository
from liza.work.caging import Guard
from liza.work.course import GateVisits, gate_runner, likely_of, results_of
from liza.work.turn import RUNS

WHO: Final = "baseline"
GATES: Final = ("setup", "lint", "test")
SHOWN_LINES: Final = 15

Say = Callable[[str], None]


class Tried(NamedTuple):
    """What one gate came to on the base, what a person should try where it is red, and what it sees."""

    gate: str
    result: Result
    likely: str = ""
    canary: Shown | None = None

    @property
    def is_blind(self) -> bool:
        """Whether the tests stay green with the code broken; a linter may well look at something else."""
        return self.gate == "test" and self.canary is not None and self.canary.sight is Sight.BLIND

    @property
    def is_in_the_way(self) -> bool:
        return self.is_blind or not self.result.is_usable

    def sentence(self) -> str:
        """Return how it stands, in one line."""
        result = self.result
        if self.is_blind and self.canary:
            return (
                f"{self.gate} does not see the code: {self.canary.how}, and `{result.line}` still passes, so "
                "nothing may be merged on its word"
            )
        if result.is_green:
            return f"{self.gate} passes in {result.seconds:.1f} s{self._seen()}"
        if result.is_empty:
            return f"{self.gate} finds no tests yet (`{result.line}`)"
        if result.failed:
            count = len(result.failed)
            return (
                f"{self.gate} is red on the base: {count} tests, which are known and do not count against "
                f"work: {named(result.failed)}"
            )
        if result.ending is not Ending.DONE:
            return (
                f"{self.gate} was not through on the base: {MEANING[result.ending]} after "
                f"{result.seconds:.0f} s (`{result.line}`)"
            )
        return (
            f"{self.gate} is red on the base: {result.cause or f'exit code {result.code}'} (`{result.line}`)"
        )

    def _seen(self) -> str:
        if self.canary is None or self.canary.sight is Sight.SEES:
            return ""
        if self.canary.sight is Sight.BLIND:
            return "; it passes with broken code as well, so it says nothing about code"
        return f"; whether it sees the code was not tried: {self.canary.how}"


@dataclass(frozen=True)
class Baseline:
    """What the gates came to on *commit*."""

    commit: str
    tried: tuple[Tried, ...]

    @property
    def in_the_way(self) -> tuple[Tried, ...]:
        return tuple(one for one in self.tried if one.is_in_the_way)

    def lines(self) -> Iterator[str]:
        """Yield what people should know: a line a gate, and more about those that are in the way."""
        for one in self.tried:
            yield one.sentence()
            if one.is_in_the_way:
                yield from _details(one)

    def require_fit(self) -> None:
        """Refuse to start where work could not be judged."""
        if not self.in_the_way:
            return
        said = [line for one in self.in_the_way for line in (one.sentence(), *_details(one))]
        first = (
            f"nothing was started: work on {self.commit[:12]} could not be judged; mend this, or "
            "`liza run --no-baseline` goes on all the same"
        )
        raise RedBase("\n  ".join([first, *said]))


def _details(one: Tried) -> Iterator[str]:
    if not one.is_blind:
        yield from (f"  | {line}" for line in one.result.tail.splitlines()[-SHOWN_LINES:])
    yield f"  likely: {one.likely}"
    if one.result.run:
        yield f"  whole output: .liza/{RUNS}/{one.result.run}"


BLIND: Final = (
    "it tests another copy, such as your checkout through an editable installation, or nothing; let it run "
    "what is in the current directory"
)


@dataclass(frozen=True)
class Ground:
    """Where a baseline is tried."""

    home: Path
    repository: Repository
    config: Config

    def base(self) -> str | None:
        """Return the commit that work would be based on."""
        found = self.repository.commit_at(BRANCHES + self.config.integration_branch)
        return found or self.repository.commit_at("HEAD")

    def case(self, base: str, stop: Stop) -> Case:
        warden = Guard(self.home, self.repository, self.config.sandbox, self.config.worktree.copied)
        now = utc_now()
        task = Task(id=WHO, description=WHO, status=Status.IDLE, created=now, created_by="supervisor")
        limits = Limits(total=self.config.limits.agent_minutes * 60)
        return Case(
            task=task,
            repository=self.repository,
            base=base,
            head=base,
            config=self.config,
            run=gate_runner(warden, GateVisits(f"{WHO}.supervisor"), self._folder, limits, stop),
            results=results_of(self.home, self.config),
            likely=likely_of(self.repository, warden),
        )

    def _folder(self, name: str) -> Path:
        run = f"supervisor.{utc_now():%Y%m%dT%H%M%S}.{secrets.token_hex(3)}.{name}"
        return self.home / RUNS / run


def try_base(ground: Ground, stop: Stop, say: Say = lambda _: None) -> Baseline | None:
    """Run every gate that is set up on the base; None where there is nothing to run, or no commit yet.

    What is kept and good is not run again; *say* is told before anything that may take its time.
    """
    base = ground.base()
    lines = {name: line for name in GATES if (line := getattr(ground.config.gates, name))}
    if base is None or not lines:
        return None
    with ground.case(base, stop) as case:
        tried: list[Tried] = []
        for gate, line in lines.items():
            tried.append(_tried(case, gate, line, say))
            if gate == "setup" and not tried[-1].result.is_green:
                break
    return Baseline(base, tuple(tried))


def kept_base(ground: Ground) -> Baseline | None:
    """Return what is known of the base without running anything; None where a gate was not tried on it."""
    base = ground.base()
    lines = {name: line for name in GATES if (line := getattr(ground.config.gates, name))}
    if base is None or not lines:
        return None
    with ground.case(base, Stop()) as case:
        found = {gate: case.results.of(case.base_tree, line) for gate, line in lines.items()}
        tried = tuple(_known(case, gate, result) for gate, result in found.items() if result)
    return Baseline(base, tried) if len(tried) == len(lines) else None


def _known(case: Case, gate: str, result: Result) -> Tried:
    if not result.is_usable:
        return Tried(gate, result, case.likely(result.line, _as_ran(result)))
    code = case.results.of(case.base_tree, result.line, CODE)
    sight = Sight.BLIND if code and code.is_green else Sight.SEES
    return Tried(gate, result, BLIND, Shown(sight, "its source files were turned into nonsense"))


def _tried(case: Case, gate: str, line: str, say: Say) -> Tried:
    known = case.results.of(case.base_tree, line)
    if known is None or not known.is_usable:
        say(f"trying {gate} on the base: `{line}`")
        result = case.on_base(gate, line, afresh=True)
    else:
        result = known
    if not result.is_usable:
        return Tried(gate, result, case.likely(line, _as_ran(result)))
    if gate == "setup" or result.is_empty:
        return Tried(gate, result)
    if case.results.of(case.base_tree, line, CODE) is None:
        say(f"trying whether {gate} notices broken code")
    return Tried(gate, result, BLIND, sees_code(case, line))


def _as_ran(result: Result) -> Ran:
    return Ran(result.code, result.ending, out=result.tail)
