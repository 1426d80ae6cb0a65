"""Any executable as an agent: the prompt on stdin, the reply on stdout, the rest in the environment."""

from __future__ import annotations

import os
import re
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.agents.metering import spent_in, usd_in
from liza.agents.protocol import AT_ONCE, Reply, Usage, visit_of
from liza.agents.recording import STDOUT, file_brief
from liza.domain.record import utc_now
from liza.system import process
from liza.system.masking import secrets_of
from liza.system.run_control import Ending
from liza.system.sandbox.bubblewrap import UNGUARDED
from liza.system.sandbox.environment import HEADLESS, allowed

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from liza.agents.protocol import Brief
    from liza.system.process import Outcome
    from liza.system.run_control import Stop
    from liza.system.sandbox.bubblewrap import Warden

CONTEXT_FULL: Final = 42  # exit code of a program whose context is full: another one goes on from its words
# What runs a file that is named behind it.
INTERPRETERS: Final = re.compile(r"(?:python|pypy|ruby|perl|php|lua)[\d.]*|node|deno|bun|(?:ba|da|z|k|fi)?sh")
MOST_QUOTED: Final = 200  # characters of what a failed agent said last


class Command:
    """Runs *argv* for every brief, caged by *warden*; *passing* is what it gets beside the allowlist."""

    def __init__(
        self,
        argv: Sequence[str],
        *,
        environment: Mapping[str, str] | None = None,
        passing: Collection[str] = (),
        warden: Warden = UNGUARDED,
    ) -> None:
        self._argv = tuple(argv)
        self._warden = warden
        self._environment = allowed(os.environ if environment is None else environment, passing)

    def run(self, brief: Brief, stop: Stop) -> Reply:
        began = utc_now()
        environment = (
            self._environment | HEADLESS | dict(brief.environment) | facts_of(brief, file_brief(brief))
        )
        if why := obstacle(self._argv, brief.cwd, environment.get("PATH", os.defpath)):
            return Reply(ending=Ending.NOT_STARTED, why=why, began=began)
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
        with self._warden.caged(job, visit_of(brief)) as caged:
            outcome = process.run(caged, stop)
        ending, why = _judged(self._argv[0], outcome)
        return Reply(
            ending=ending,
            why=why,
            text=outcome.out,
            usage=spent_in(outcome.out) or Usage(),
            code=outcome.code,
            began=began,
            seconds=outcome.seconds,
            transcript=brief.folder / STDOUT,
            survivors=outcome.survivors,
        )


def facts_of(brief: Brief, path: Path) -> dict[str, str]:
    """Return what every program that works for Liza finds in its environment."""
    return {
        "LIZA_ROLE": brief.role,
        "LIZA_STEP": brief.step,
        "LIZA_TASK": brief.task or "",
        "LIZA_ITERATION": str(brief.iteration),
        "LIZA_BRIEF": str(path),
        "LIZA_AGAIN": ("answer" if brief.only_answer else "step") if brief.is_again else "",
    }


def resolve(command: Sequence[str], root: Path) -> tuple[str, ...]:
    """Return *command* with its files where they are: a relative word means a file of the repository *root*.

    An agent runs in a worktree, where such a file is another one, or none.
    """
    return tuple(
        str(root / word)
        if _may_be_file(word) and _is_named(word, number) and (root / word).is_file()
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


def _is_named(word: str, number: int) -> bool:
    """Tell whether a word is looked for in the repository: a bare first one is a program on the PATH."""
    return number > 0 or "/" in word


def obstacle(argv: Sequence[str], cwd: Path, path: str) -> str | None:
    """Return why *argv* cannot be run, or None."""
    if not argv:
        return "the agent's command is empty; say in agents.default.command what to run"
    if not cwd.is_dir():
        return f"the working directory {cwd} does not exist"
    return _obstacle_in(cwd / argv[0]) if "/" in argv[0] else _obstacle_on(path, argv[0])


def _obstacle_on(path: str, name: str) -> str | None:
    if shutil.which(name, path=path):
        return None
    return f"there is no program {name!r} on the PATH; install it, or mend the agent's command"


def _obstacle_in(program: Path) -> str | None:
    if not program.exists():
        return f"the command {str(program)!r} does not exist; mend the agent's command"
    if program.is_dir() or not os.access(program, os.X_OK):
        return f"{str(program)!r} is not executable; `chmod +x` makes a script so"
    return None


def _judged(name: str, outcome: Outcome) -> tuple[Ending, str]:
    """Return how the agent ended, given how its process did, and the sentence that says it."""
    if outcome.ending is not Ending.DONE:
        return outcome.ending, outcome.why
    if outcome.code == CONTEXT_FULL:
        return Ending.CONTEXT_FULL, f"{name!r} says that its context is full (exit code {CONTEXT_FULL})"
    if outcome.code != 0:
        soon = f" at once ({outcome.seconds:.2f} seconds)" if outcome.seconds < AT_ONCE else ""
        return Ending.CRASHED, f"{name!r} ended{soon} {how(outcome.code)}{_last_words(outcome)}"
    if not outcome.out.strip():
        return Ending.EMPTY, f"{name!r} ended with exit code 0 and printed nothing{_last_words(outcome)}"
    return Ending.DONE, ""


def how(code: int | None) -> str:
    """Return the end of a process in words, to stand behind "ended"."""
    if code is None:
        return "in a way that nobody saw"
    if code >= 0:
        return f"with exit code {code}"
    try:
        return f"by {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


def _last_words(outcome: Outcome) -> str:
    lines = [line.strip() for line in (outcome.err or outcome.out).splitlines() if line.strip()]
    return f"; it said: {lines[-1][:MOST_QUOTED]}" if lines else " and said nothing else"
