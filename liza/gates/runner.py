"""A command of a gate: how it ended, and what that means for a verdict."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from liza.domain.verdicts import Evidence, Outcome
from liza.domain.visible_text import strip_colour
from liza.gates.finding import GREEN_LINES, TAIL_LINES, tail
from liza.system import process
from liza.system.masking import secrets_of
from liza.system.run_control import MEANING, RunControl, RunEnding, RunLimits
from liza.system.sandbox.environment import HEADLESS, allowed_environment


class CommandResult(NamedTuple):
    """How a command ended; *run* names the folder that has all of its output."""

    code: int | None
    ending: RunEnding
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    run: str | None = None
    why: str = ""

    @property
    def is_green(self) -> bool:
        return self.ending is RunEnding.DONE and self.code == 0

    @property
    def said(self) -> str:
        return f"{self.out}\n{self.err}"


# The line, the directory, and a word for the name of its run.
CommandRunner = Callable[[str, Path, str], CommandResult]

# What it means that a command did not end by itself: its own fault, or nobody's.
CUT_SHORT: Final[dict[RunEnding, Outcome]] = {
    RunEnding.TIMEOUT: Outcome.REVISE,
    RunEnding.SILENT: Outcome.REVISE,
    RunEnding.SLOW_START: Outcome.REVISE,
}


def outcome_of(ran: CommandResult) -> Outcome:
    if ran.ending is RunEnding.DONE:
        return Outcome.PASS if ran.code == 0 else Outcome.REVISE
    return CUT_SHORT.get(ran.ending, Outcome.NONE)


def describe_ending(ran: CommandResult) -> str:
    """Return how *ran* ended, in words that are the same each time."""
    if ran.ending is not RunEnding.DONE:
        return f"was not through: {MEANING[ran.ending]}"
    if ran.code is not None and ran.code < 0:
        return f"was ended by signal {-ran.code}"
    return f"ended with exit code {ran.code}"


def evidence_of(line: str, ran: CommandResult) -> Evidence:
    said = tail(ran.said, GREEN_LINES if ran.is_green else TAIL_LINES)
    return Evidence(command=line, code=ran.code, tail=said, run=ran.run, seconds=ran.seconds)


# Compiled modules are known there by path, size and second: the same for two trees that are seen at one path.
SHARED_CACHES: Final = ("PYTHONPYCACHEPREFIX",)


def shell_job(line: str, cwd: Path, folder: Path, limits: RunLimits) -> process.Job:
    """Return the job of running *line* in *cwd* with nothing of our environment that it does not need."""
    environment = {
        name: value for name, value in allowed_environment(os.environ).items() if name not in SHARED_CACHES
    }
    return process.Job(
        argv=("/bin/sh", "-c", line),
        cwd=cwd,
        folder=folder,
        environment={**environment, **HEADLESS},
        limits=limits,
        secrets=secrets_of(os.environ),
    )


def command_result(outcome: process.ProcessOutcome, run: str) -> CommandResult:
    return CommandResult(
        code=outcome.code,
        ending=outcome.ending,
        # Some projects ask for colours also where nobody sees them, and counts are read from this text.
        out=strip_colour(outcome.out),
        err=strip_colour(outcome.err),
        seconds=outcome.seconds,
        run=run,
        why=outcome.why,
    )


def run_shell(line: str, cwd: Path, folder: Path, limits: RunLimits, stop: RunControl) -> CommandResult:
    """Run *line* in *cwd*."""
    return command_result(process.run_job(shell_job(line, cwd, folder, limits), stop), folder.name)
