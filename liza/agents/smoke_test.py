"""A tiny real task for an agent in a throwaway repository: does it write a file and answer readably?"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.agents.detect import available_agents, installed_programs
from liza.agents.protocol import Brief
from liza.agents.select import agent_for
from liza.domain.answer_parsing import ParsedAnswer, parse_answer
from liza.domain.answers import Step
from liza.domain.config import AgentChoice
from liza.domain.model import Role
from liza.errors import UsageError
from liza.repo.command import git
from liza.system.run_control import MEANING, RunControl, RunEnding, RunLimits

if TYPE_CHECKING:
    from liza.domain.config import Agents
    from liza.repo.snapshot import Patch

SMOKE_TIMEOUT: Final = 180.0  # seconds for one file and one sentence
FILE: Final = "hello.txt"
TEXT: Final = "hello"
PROMPT: Final = f"""\
Write a file `{FILE}` in this directory that holds the one word `{TEXT}`. Do nothing else, and do not commit.
Then end your answer with exactly this block:

```liza
status: done
summary: wrote {FILE}
```
"""


class SmokeResult(NamedTuple):
    """How an agent did."""

    name: str
    ok: bool
    why: str
    tokens_in: int | None
    tokens_out: int | None
    usd: float | None
    seconds: float

    def __str__(self) -> str:
        tokens = "-" if self.tokens_in is None else f"{self.tokens_in}/{self.tokens_out}"
        cost = "-" if self.usd is None else f"${self.usd:.4f}"
        ok = "ok" if self.ok else "FAILED"
        return f"{self.name:<10} {ok:<7} {tokens:>13} {cost:>9} {self.seconds:7.1f} s  {self.why}".rstrip()


HEADING: Final = f"{'agent':<10} {'':<7} {'tokens in/out':>13} {'cost':>9} {'time':>9}"


def smoke_candidates(agents: Agents, name: str | None) -> dict[str, AgentChoice]:
    """Return the agents to test: *name* alone, or all that are configured or detected."""
    # Also those that are not chosen unattended: whoever asks is there, and sees what they say.
    found = {one.name: AgentChoice(backend=one.name) for one in installed_programs(os.environ)}
    found |= {str(one.choice.backend): one.choice for one in reversed(available_agents())}
    named = {"default": agents.default, **agents.overrides, "fallback": agents.fallback or AgentChoice()}
    set_up = {key: choice for key, choice in named.items() if choice.backend or choice.command}
    everybody = {**found, **{key: choice for key, choice in set_up.items() if choice not in found.values()}}
    if name is None:
        return everybody
    if name in everybody:
        return {name: everybody[name]}
    raise UsageError(f"there is no agent {name!r} here; known: {', '.join(everybody) or 'none'}")


def run_smoke_test(name: str, choice: AgentChoice, root: Path) -> SmokeResult:
    """Give the agent of *choice* the task, and judge it by the file and by its answer."""
    with tempfile.TemporaryDirectory(prefix="liza-smoke-test-") as place:
        cwd = Path(place) / "repository"
        git("init", "--quiet", "--initial-branch=main", str(cwd), cwd=Path(place))
        agent = agent_for(choice, root, _apply_nothing)
        brief = Brief(
            run=f"smoke-test.{os.getpid()}",
            role=Role.CODER,
            step=Step.IMPLEMENT,
            prompt=PROMPT,
            cwd=cwd,
            folder=Path(place) / "run",
            limits=RunLimits(total=SMOKE_TIMEOUT),
        )
        reply = agent.run(brief, RunControl())
        why = _failure(reply.ending, reply.why, reply.text, cwd / FILE)
    usage = reply.usage
    return SmokeResult(name, not why, why, usage.tokens_in, usage.tokens_out, usage.usd, reply.seconds)


def _apply_nothing(_cwd: Path, _patch: Patch) -> None:
    """Apply nothing: a recording is played for what it says."""


def _failure(ending: RunEnding, why: str, text: str, file: Path) -> str:
    if ending is not RunEnding.DONE:
        return why or MEANING[ending]
    try:
        written = file.read_text(errors="replace").strip()
    except OSError:
        return f"it did not write {FILE}" + (f"; {why}" if why else "")
    if written != TEXT:
        return f"it wrote {written[:40]!r} into {FILE}, not {TEXT!r}"
    # Here the example is the answer.
    found = parse_answer(text, Step.IMPLEMENT)
    return "" if isinstance(found, ParsedAnswer) else f"its answer is unreadable: {found.why}"
