"""The program behind every agent of the gauntlet, as a command: `-m liza.gauntlet.main NAME ROOT`."""

from __future__ import annotations

import json
import os
import re
import sys
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

from liza.gauntlet import agents
from liza.gauntlet.agents.behaviour import (
    HONEST,
    HONEST_HATS,
    MISBEHAVIOURS,
    TRIED,
    Answer,
    Run,
    block,
    say_line,
)

_FAILED: Final = re.compile(r"^fail by (\S+): ", re.MULTILINE)  # as the guidance in a prompt puts it


def load_agents() -> None:
    """Load every module of agents: each puts its misbehaviours into the table."""
    for module in iter_modules(agents.__path__):
        import_module(f"{agents.__name__}.{module.name}")


def answer_of(name: str, act: Run) -> Answer | str | None:
    """Return what the agent *name* answers; where it has nothing of its own to do, it is honest."""
    deed = MISBEHAVIOURS.get((name, act.step))
    if deed is None or act.iteration > deed.until:
        return HONEST_HATS.get((act.hat, act.step), HONEST[act.step])(act)
    if not deed.is_quiet:
        say_line(f"{TRIED}{name}")
    return deed.do(act)


def attempt_number(prompt: str) -> int:
    """Return which attempt at the task this is, by whomever; an iteration counts those of one coder."""
    try:
        brief = json.loads(Path(os.environ["LIZA_BRIEF"]).read_text())
    except (OSError, ValueError, KeyError):
        brief = {}
    about = brief.get("facts", {}).get("about", {})
    # Under a hat of a workflow, who claimed it before may have worn another: only its own rounds count.
    hat, role = os.environ["LIZA_HAT"], os.environ["LIZA_ROLE"]
    claims = [
        entry
        for entry in about.get("history", ())
        if entry["event"] == "claim" and entry["role"] == role == hat
    ]
    # Where a sandbox hides the brief, the prompt still says what became of earlier attempts.
    failed = max(len(about.get("failed_by", ())), len(set(_FAILED.findall(prompt))))
    return max(int(os.environ["LIZA_ITERATION"]) + failed, len(claims))


def main() -> None:
    name, root = sys.argv[1:3]
    load_agents()
    prompt = sys.stdin.read()
    act = Run(
        root=Path(root),
        step=os.environ["LIZA_STEP"],
        task=os.environ["LIZA_TASK"],
        iteration=attempt_number(prompt),
        prompt=prompt,
        hat=os.environ["LIZA_HAT"],
    )
    answer = answer_of(name, act)
    if answer is not None:
        sys.stdout.write(answer if isinstance(answer, str) else f"Here you are.\n\n{block(answer)}")


if __name__ == "__main__":
    main()
