"""A tiny real task for an agent, in a repository that is thrown away: does it write, and does it answer?"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.agents.found import available, present
from liza.agents.protocol import MEANING, Brief, Ending, Limits, Stop
from liza.answers import Answer, answer
from liza.config import AgentChoice
from liza.errors import UsageError
from liza.model import Role
from liza.replies import Step
from liza.repo.git import git
from liza.work.hiring import hired

if TYPE_CHECKING:
    from liza.agents.recording import Patch
    from liza.config import Agents

PATIENCE: Final = 180.0  # seconds for one file and one sentence
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


class Audition(NamedTuple):
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


def invited(agents: Agents, name: str | None) -> dict[str, AgentChoice]:
    """Return whom to try: *name* alone, or all that are set up or were found."""
    # Also those that are not chosen unattended: whoever asks is there, and sees what they say.
    found = {one.name: AgentChoice(backend=one.name) for one in present(os.environ)}
    found |= {str(one.choice.backend): one.choice for one in reversed(available())}
    named = {"default": agents.default, **agents.overrides, "fallback": agents.fallback or AgentChoice()}
    set_up = {key: choice for key, choice in named.items() if choice.backend or choice.command}
    everybody = {**found, **{key: choice for key, choice in set_up.items() if choice not in found.values()}}
    if name is None:
        return everybody
    if name in everybody:
        return {name: everybody[name]}
    raise UsageError(f"there is no agent {name!r} here; known: {', '.join(everybody) or 'none'}")


def tried(name: str, choice: AgentChoice, root: Path, *, patience: float = PATIENCE) -> Audition:
    """Give the agent of *choice* the task, and judge it by the file and by its answer."""
    with tempfile.TemporaryDirectory(prefix="liza-audition-") as place:
        cwd = Path(place) / "repository"
        git("init", "--quiet", "--initial-branch=main", str(cwd), cwd=Path(place))
        agent = hired(choice, root, _nothing)
        brief = Brief(
            run=f"audition.{os.getpid()}",
            role=Role.CODER,
            step=Step.IMPLEMENT,
            prompt=PROMPT,
            cwd=cwd,
            folder=Path(place) / "run",
            limits=Limits(total=patience),
        )
        reply = agent.run(brief, Stop())
        why = _why(reply.ending, reply.why, reply.text, cwd / FILE)
    usage = reply.usage
    return Audition(name, not why, why, usage.tokens_in, usage.tokens_out, usage.usd, reply.seconds)


def _nothing(_cwd: Path, _patch: Patch) -> None:
    """Apply nothing: a recording is played for what it says."""


def _why(ending: Ending, why: str, text: str, file: Path) -> str:
    if ending is not Ending.DONE:
        return why or MEANING[ending]
    try:
        written = file.read_text(errors="replace").strip()
    except OSError:
        return f"it did not write {FILE}" + (f"; {why}" if why else "")
    if written != TEXT:
        return f"it wrote {written[:40]!r} into {FILE}, not {TEXT!r}"
    # Here the example is the answer.
    found = answer(text, Step.IMPLEMENT)
    return "" if isinstance(found, Answer) else f"its answer is unreadable: {found.why}"
