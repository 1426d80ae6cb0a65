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

from liza.daemon.judge import GateTenants, cause_explainer, gate_runner, results_of
from liza.daemon.project_sandbox import ProjectSandbox
from liza.daemon.turn import RUNS
from liza.domain.config import Config
from liza.domain.model import Status, Task
from liza.domain.record import utc_now
from liza.errors import RedBase
from liza.gates.command import CODE, CanaryOutcome, CanaryResult, run_code_canary
from liza.gates.context import (
    CachedResult,
    CommandResult,
    GateContext,
    finds_no_tests,
    summarize_tests,
)
from liza.repo.repository import BRANCHES, Repository
from liza.system.run_control import MEANING, RunControl, RunEnding, RunLimits

BASELINE_ID: Final = "baseline"
GATES: Final = ("setup", "lint", "test")
SHOWN_LINES: Final = 15
MANY_RED: Final = 20  # red tests from which on a majority judges nothing; a handful may be the very goal

Say = Callable[[str], None]


class GateBaseline(NamedTuple):
    """The result of one gate on the base commit, a likely cause where it is red, and whether it notices
    broken code.
    """

    gate: str
    result: CachedResult
    likely: str = ""
    canary: CanaryResult | None = None

    @property
    def is_blind(self) -> bool:
        """Whether broken code goes unnoticed by the tests; a linter may check something else."""
        return self.gate == "test" and self.canary is not None and self.canary.sight is CanaryOutcome.BLIND

    @property
    def is_red_alike(self) -> bool:
        """Whether the tests that run are red, and broken code makes none more so."""
        is_tested = not finds_no_tests(_as_command_result(self.result))
        return self.is_blind and not self.result.is_green and is_tested

    @property
    def is_mostly_red(self) -> bool:
        """Whether the tests that pass are too few to notice what work breaks."""
        red, passed = len(self.result.failed or ()), self.result.passed
        return red >= MANY_RED and passed is not None and red > passed

    @property
    def is_blocking(self) -> bool:
        return self.is_blind or self.is_mostly_red or not self.result.is_usable

    def sentence(self) -> str:
        """Return the result in one line."""
        result = self.result
        if self.is_blind and self.canary:
            return f"{self._unnoticed(self.canary.how)}, so nothing may be merged on its word"
        if result.is_empty:
            return f"{self.gate} finds no tests yet (`{result.line}`)"
        if result.is_green:
            return f"{self.gate} passes in {result.seconds:.1f} s{self._seen()}"
        if result.failed:
            return self._red_tests(len(result.failed), summarize_tests(result.failed))
        if result.ending is not RunEnding.DONE:
            return (
                f"{self.gate} was not through on the base: {MEANING[result.ending]} after "
                f"{result.seconds:.0f} s (`{result.line}`)"
            )
        return (
            f"{self.gate} is red on the base: {result.cause or f'exit code {result.code}'} (`{result.line}`)"
        )

    def _unnoticed(self, how: str) -> str:
        if self.is_red_alike:
            return f"{self.gate} is red on the base (`{self.result.line}`), and no redder where {how}"
        return f"{self.gate} does not see the code: {how}, and `{self.result.line}` still passes"

    def _red_tests(self, count: int, names: str) -> str:
        if self.is_mostly_red:
            return (
                f"{self.gate}: {count} of {count + (self.result.passed or 0)} tests are red on the base, too "
                f"many to judge work by the rest: {names}"
            )
        them = "1 test, which is known and does" if count == 1 else f"{count} tests, which are known and do"
        return f"{self.gate} is red on the base: {them} not count against work: {names}"

    def _seen(self) -> str:
        if self.canary is None or self.canary.sight is CanaryOutcome.SEES:
            return ""
        if self.canary.sight is CanaryOutcome.BLIND:
            return "; it passes with broken code as well, so it says nothing about code"
        return f"; whether it sees the code was not tried: {self.canary.how}"


@dataclass(frozen=True)
class Baseline:
    """The results of the gates on *commit*."""

    commit: str
    tried: tuple[GateBaseline, ...]

    @property
    def blocking_gates(self) -> tuple[GateBaseline, ...]:
        return tuple(one for one in self.tried if one.is_blocking)

    def lines(self) -> Iterator[str]:
        """Yield a line for each gate, with details for those that block a start."""
        for one in self.tried:
            yield one.sentence()
            if one.is_blocking:
                yield from _details(one)

    def require_usable(self) -> None:
        """Raise `RedBase` where the gates could not judge any work."""
        if not self.blocking_gates:
            return
        said = [line for one in self.blocking_gates for line in (one.sentence(), *_details(one))]
        first = (
            f"nothing was started: work on {self.commit[:12]} could not be judged; mend this, or "
            "`liza run --no-baseline` goes on all the same"
        )
        raise RedBase("\n  ".join([first, *said]))


def _details(one: GateBaseline) -> Iterator[str]:
    if not one.is_blind or one.is_red_alike:
        yield from (f"  | {line}" for line in one.result.tail.splitlines()[-SHOWN_LINES:])
    yield f"  likely: {one.likely}"
    if one.result.run:
        yield f"  whole output: .liza/{RUNS}/{one.result.run}"


LIKELY_BLIND: Final = (
    "it tests another copy, such as your checkout through an editable installation, or nothing; let it run "
    "what is in the current directory"
)


@dataclass(frozen=True)
class BaselineContext:
    """The project whose baseline is run."""

    home: Path
    repository: Repository
    config: Config

    def base(self) -> str | None:
        """Return the commit that work would be based on."""
        found = self.repository.commit_at(BRANCHES + self.config.integration_branch)
        return found or self.repository.commit_at("HEAD")

    def context(self, base: str, stop: RunControl) -> GateContext:
        sandbox = ProjectSandbox(self.home, self.repository, self.config.sandbox, self.config.worktree.copied)
        now = utc_now()
        task = Task(
            id=BASELINE_ID, description=BASELINE_ID, status=Status.IDLE, created=now, created_by="supervisor"
        )
        limits = RunLimits(total=self.config.limits.agent_minutes * 60)
        return GateContext(
            task=task,
            repository=self.repository,
            base=base,
            head=base,
            config=self.config,
            run=gate_runner(sandbox, GateTenants(f"{BASELINE_ID}.supervisor"), self._folder, limits, stop),
            results=results_of(self.home, self.config),
            likely=cause_explainer(self.repository, sandbox),
        )

    def _folder(self, name: str) -> Path:
        run = f"supervisor.{utc_now():%Y%m%dT%H%M%S}.{secrets.token_hex(3)}.{name}"
        return self.home / RUNS / run


def run_baseline(project: BaselineContext, stop: RunControl, say: Say = lambda _: None) -> Baseline | None:
    """Run every configured gate on the base; None where no gate is configured or there is no commit.

    Good results in the cache are used again; *say* is called before a step that may be slow.
    """
    base = project.base()
    lines = {name: line for name in GATES if (line := getattr(project.config.gates, name))}
    if base is None or not lines:
        return None
    with project.context(base, stop) as context:
        tried: list[GateBaseline] = []
        for gate, line in lines.items():
            tried.append(_run_gate(context, gate, line, say))
            if gate == "setup" and not tried[-1].result.is_green:
                break
    return Baseline(base, tuple(tried))


def cached_baseline(project: BaselineContext) -> Baseline | None:
    """Return the baseline from the cache alone; None where a gate has no result yet."""
    base = project.base()
    lines = {name: line for name in GATES if (line := getattr(project.config.gates, name))}
    if base is None or not lines:
        return None
    with project.context(base, RunControl()) as context:
        found = {gate: context.results.of(context.base_tree, line) for gate, line in lines.items()}
        tried = tuple(_cached_gate(context, gate, result) for gate, result in found.items() if result)
    return Baseline(base, tried) if len(tried) == len(lines) else None


def _cached_gate(context: GateContext, gate: str, result: CachedResult) -> GateBaseline:
    if not result.is_usable:
        return GateBaseline(gate, result, context.likely(result.line, _as_command_result(result)))
    code = context.results.of(context.base_tree, result.line, CODE)
    sight = CanaryOutcome.BLIND if code and code.is_green else CanaryOutcome.SEES
    found = GateBaseline(
        gate, result, LIKELY_BLIND, CanaryResult(sight, "its source files were turned into nonsense")
    )
    return _with_cause(context, found)


def _run_gate(context: GateContext, gate: str, line: str, say: Say) -> GateBaseline:
    known = context.results.of(context.base_tree, line)
    if known is None or not known.is_usable:
        say(f"trying {gate} on the base: `{line}`")
        result = context.base_result(gate, line, afresh=True)
    else:
        result = known
    if not result.is_usable:
        return GateBaseline(gate, result, context.likely(line, _as_command_result(result)))
    if gate == "setup" or result.is_empty:
        return GateBaseline(gate, result)
    if context.results.of(context.base_tree, line, CODE) is None:
        say(f"trying whether {gate} notices broken code")
    return _with_cause(context, GateBaseline(gate, result, LIKELY_BLIND, run_code_canary(context, line)))


def _with_cause(context: GateContext, found: GateBaseline) -> GateBaseline:
    ran = _as_command_result(found.result)
    is_plain = found.is_red_alike or finds_no_tests(ran) if found.is_blind else found.is_mostly_red
    return found._replace(likely=context.likely(found.result.line, ran)) if is_plain else found


def _as_command_result(result: CachedResult) -> CommandResult:
    return CommandResult(result.code, result.ending, out=result.tail)
