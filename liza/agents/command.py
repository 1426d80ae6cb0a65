"""Any executable as an agent: the prompt on stdin, the reply on stdout, the rest in the environment."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.agents.protocol import AT_ONCE, STDOUT, Reply, Usage, tenant_of, usage_in, usd_in, write_brief
from liza.domain.record import utc_now
from liza.system import process
from liza.system.files import secrets_of
from liza.system.run_control import RunEnding
from liza.system.sandbox.bubblewrap import HEADLESS, UNSANDBOXED, allowed_environment

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from liza.agents.protocol import Brief
    from liza.system.process import ProcessOutcome
    from liza.system.run_control import RunControl
    from liza.system.sandbox.bubblewrap import Sandbox

CONTEXT_FULL: Final = 42  # exit code of a program whose context is full: another one goes on from its words
# What runs a file that is named behind it.
INTERPRETERS: Final = re.compile(r"(?:python|pypy|ruby|perl|php|lua)[\d.]*|node|deno|bun|(?:ba|da|z|k|fi)?sh")
MOST_QUOTED: Final = 200  # characters of what a failed agent said last


class CommandAgent:
    """Runs *argv* for every brief, sandboxed by *sandbox*; *passing* is what it gets beside the allowlist."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        passing: Collection[str] = (),
        sandbox: Sandbox = UNSANDBOXED,
    ) -> None:
        self._argv = tuple(argv)
        self._sandbox = sandbox
        self._environment = allowed_environment(os.environ if environment is None else environment, passing)

    def run(self, brief: Brief, stop: RunControl) -> Reply:
        began = utc_now()
        environment = (
            self._environment | HEADLESS | dict(brief.environment) | liza_variables(brief, write_brief(brief))
        )
        if why := start_obstacle(self._argv, brief.cwd, environment.get("PATH", os.defpath)):
            return Reply(ending=RunEnding.NOT_STARTED, why=why, began=began)
        job = process.Job(
            argv=self._argv,
            cwd=brief.cwd,
            folder=brief.folder,
            environment=environment,
            feed=brief.prompt.encode(errors="replace"),
            limits=brief.limits,
            secrets=secrets_of(os.environ | environment),
            meter=lambda out: usd_in(out, None),
        )
        with self._sandbox.wrap(job, tenant_of(brief)) as wrapped:
            outcome = process.run_job(wrapped, stop)
        ending, why = _ending_of(self._argv[0], outcome)
        return Reply(
            ending=ending,
            why=why,
            text=outcome.out,
            usage=usage_in(outcome.out) or Usage(),
            code=outcome.code,
            began=began,
            seconds=outcome.seconds,
            transcript=brief.folder / STDOUT,
            survivors=outcome.survivors,
        )


def liza_variables(brief: Brief, path: Path) -> dict[str, str]:
    """Return the LIZA_* variables of a run."""
    return {
        "LIZA_ROLE": brief.role,
        "LIZA_STEP": brief.step,
        "LIZA_HAT": brief.hat or brief.role,
        "LIZA_PHASE": brief.phase,
        "LIZA_TASK": brief.task or "",
        "LIZA_ITERATION": str(brief.iteration),
        "LIZA_BRIEF": str(path),
        "LIZA_AGAIN": ("answer" if brief.only_answer else "step") if brief.is_again else "",
    }


def resolve_files(command: Sequence[str], root: Path) -> tuple[str, ...]:
    """Return *command* with its files where they are: a relative word means a file of the repository *root*.

    An agent runs in a worktree, where such a file is another one, or none.
    """
    return tuple(
        str(root / word)
        if _may_be_file(word) and _is_repository_word(word, number) and (root / word).is_file()
        else word
        for number, word in enumerate(command)
    )


def missing_file(command: Sequence[str], root: Path) -> str | None:
    """Return the word of *command* that names a file which is not in the repository *root*."""
    for number, word in enumerate(command[:2]):
        before = Path(command[0]).name
        is_script = number == 1 and INTERPRETERS.fullmatch(before) and ("/" in word or Path(word).suffix)
        if _may_be_file(word) and ("/" in word or is_script) and not (root / word).exists():
            return word if number == 0 or is_script else None
    return None


def _may_be_file(word: str) -> bool:
    return bool(word) and not word.startswith(("-", "/", "~")) and "\n" not in word


def _is_repository_word(word: str, number: int) -> bool:
    """Return whether the word is a path in the repository; a bare first word is a program on the PATH."""
    return number > 0 or "/" in word


def start_obstacle(argv: Sequence[str], cwd: Path, path: str) -> str | None:
    """Return why *argv* cannot be run, or None."""
    if not argv:
        return "the agent's command is empty; say in agents.default.command what to run"
    if not cwd.is_dir():
        return f"the working directory {cwd} does not exist"
    return _file_obstacle(cwd / argv[0]) if "/" in argv[0] else _path_obstacle(path, argv[0])


def _path_obstacle(path: str, name: str) -> str | None:
    if shutil.which(name, path=path):
        return None
    return f"there is no program {name!r} on the PATH; install it, or mend the agent's command"


def _file_obstacle(program: Path) -> str | None:
    if not program.exists():
        return f"the command {str(program)!r} does not exist; mend the agent's command"
    if program.is_dir() or not os.access(program, os.X_OK):
        return f"{str(program)!r} is not executable; `chmod +x` makes a script so"
    return None


def _ending_of(name: str, outcome: ProcessOutcome) -> tuple[RunEnding, str]:
    """Return how the agent ended, given how its process did, and the sentence that says it."""
    if outcome.ending is not RunEnding.DONE:
        return outcome.ending, outcome.why
    if outcome.code == CONTEXT_FULL:
        return RunEnding.CONTEXT_FULL, f"{name!r} says that its context is full (exit code {CONTEXT_FULL})"
    if outcome.code != 0:
        soon = f" at once ({outcome.seconds:.2f} seconds)" if outcome.seconds < AT_ONCE else ""
        return RunEnding.CRASHED, f"{name!r} ended{soon} {exit_words(outcome.code)}{_last_words(outcome)}"
    if not outcome.out.strip():
        return RunEnding.EMPTY, f"{name!r} ended with exit code 0 and printed nothing{_last_words(outcome)}"
    return RunEnding.DONE, ""


def exit_words(code: int | None) -> str:
    """Return how a process ended, as words that follow "ended"."""
    if code is None:
        return "in a way that nobody saw"
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def _last_words(outcome: ProcessOutcome) -> str:
    lines = [line.strip() for line in (outcome.err or outcome.out).splitlines() if line.strip()]
    return f"; it said: {lines[-1][:MOST_QUOTED]}" if lines else " and said nothing else"
