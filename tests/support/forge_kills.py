"""Kills what writes to a forge before each of its steps, runs it again, and prints what the forge has then.

A program of its own, since it forks: `python -m tests.support.forge_kills FORGE OPTIONS SCENE COMMIT STRIDE`.
The scene has a directory `home`, the checkout; each step begins with a copy of it all, at the same place.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Final, NamedTuple

from liza.forges.protocol import Forge, PullRequestDraft, Thread, ThreadKind, open_forge
from tests.support.scripted_gh import STATE

# What writes: with gh only programs do.
STEPS: Final = {
    "github": frozenset({"subprocess.Popen"}),
    "local": frozenset({"open", "os.link", "os.rename", "subprocess.Popen"}),
}


def deliver(forge: Forge, commit: str) -> None:
    """Do all that a run does for an issue: comment, publish, tell who must look, mark it, take it back."""
    forge.comment(Thread(ThreadKind.ISSUE, 7), "issue-7/PLAN/judge/1", "the plan is good")
    draft = PullRequestDraft(
        branch="bug/issue-7-fix-the-crash", commit=commit, base="main", title="Issue #7", body="Closes #7"
    )
    number = forge.ensure_draft(draft).number
    forge.mark_nomerge(number, "the rounds were used up")
    forge.mark_ready(number)
    forge.mark_draft(number)
    forge.mark_ready(number)


def die_before(step: int, counted: frozenset[str]) -> None:
    """Send SIGKILL to this process before number *step* of what is *counted*."""
    left = step

    def count(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal left
        reads = event == "open" and not (isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE)
        if event in counted and not reads:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


class Work(NamedTuple):
    name: str
    options: dict[str, str]
    scene: Path
    commit: str


def dies(work: Work, step: int | None) -> bool:
    """Work in a process of its own, until *step*; return whether it was killed."""
    child = os.fork()
    if child == 0:
        forge = open_forge(work.name, work.options, work.scene / "home")
        if step is not None:
            die_before(step, STEPS[work.name])
        deliver(forge, work.commit)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in {0, -signal.SIGKILL}, code
    return code != 0


def contents(scene: Path) -> list[str]:
    """Return what a reader of the forge finds there: each comment and each pull request, once a line."""
    if (scene / "bin" / STATE).exists():
        state = json.loads((scene / "bin" / STATE).read_text())
        threads = [*state["issues"].items(), *state["pulls"].items()]
        comments = [f"{number}: {one['body']}" for number, thread in threads for one in thread["comments"]]
        return sorted([*comments, *(f"{number}: {one['isDraft']}" for number, one in state["pulls"].items())])
    pages = sorted((scene / "forge").glob("*/*/*.md")) + sorted((scene / "forge" / "pulls").glob("*.md"))
    return [page.read_text() for page in pages]


def main() -> None:
    name, options, place, commit, stride = sys.argv[1:]
    work = Work(name, json.loads(options), Path(place), commit)
    model = work.scene.with_name(f"{work.scene.name}-model")
    work.scene.rename(model)
    step, is_killed = 0, True
    while is_killed:
        shutil.copytree(model, work.scene)
        is_killed = dies(work, step)
        assert not dies(work, None)
        sys.stdout.write(json.dumps(contents(work.scene)) + "\n")
        shutil.rmtree(work.scene)
        step += int(stride)


if __name__ == "__main__":
    main()
