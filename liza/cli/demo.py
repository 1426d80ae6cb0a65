"""The main job in under a minute: a real repository, processes, worktrees, tests and merges; only the agents
are played from a recording, so it needs no key and no network."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.cli.views.status import status_text
from liza.daemon.project import create_board
from liza.domain.model import Status
from liza.domain.switches import Switch
from liza.errors import UsageError
from liza.repo.command import git

if TYPE_CHECKING:
    from collections.abc import Callable

    from liza.board.protocol import Board
    from liza.domain.model import State

GOAL: Final = "A greeter: greet people, say goodbye, from the command line"
RECORDING: Final = "team.yaml"
PAUSE_SECONDS: Final = 2.0  # seconds that the demo stands still, so that it can be seen
TIMEOUT: Final = 120.0  # seconds after which the demo is taken for broken
VISION: Final = """\
# A greeter

* `greet("Ada")` says `Hello, Ada!`, `bye("Ada")` says `Goodbye, Ada.`, `shout("Ada")` greets in capitals.
* `python3 -m greeter Ada` greets Ada; without a name it greets the world.
"""
SETTINGS: Final = f"""\
spec: specs/vision.md
agents: {{default: {{backend: replay, command: [{RECORDING}, "PACE"]}}}}
gates: {{test: python3 -m unittest -q}}
workers: {{planner: 1, coder: 2, reviewer: 1}}
"""


def prepare_repository(directory: Path, *, pace: str = "1") -> Board:
    """Make somebody's repository in *directory*, with a goal and agents from a recording."""
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is not empty; name a directory that is, or does not exist")
    (directory / "specs").mkdir(parents=True)
    (directory / "specs/vision.md").write_text(VISION)
    (directory / "liza.yaml").write_text(SETTINGS.replace("PACE", pace))
    with files("liza.cli.recordings").joinpath("demo.yaml").open("rb") as source:
        (directory / RECORDING).write_bytes(source.read())
    git("init", "--quiet", "--initial-branch=main", ".", cwd=directory)
    git("add", ".", cwd=directory)
    git("commit", "--quiet", "-m", "What we want", cwd=directory, environment=_AUTHOR)
    return create_board(directory, GOAL, spec=None, workflow=None)[0]


_AUTHOR: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "You"), ("EMAIL", "you@example.org"))
}


def run_demo(board: Board, say: Callable[[str], None]) -> int:
    """Let `liza run` work on the goal, with one PAUSE on the way; return its exit code."""
    words = [sys.executable, "-m", "liza", "-C", str(board.home.parent), "run", "--until-idle"]
    run = subprocess.Popen(words)
    pausing = threading.Thread(target=_pause_once, args=(board, run, say), daemon=True)
    pausing.start()
    try:
        return run.wait(TIMEOUT)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        run.send_signal(signal.SIGTERM)
        return run.wait()


def _pause_once(board: Board, run: subprocess.Popen[bytes], say: Callable[[str], None]) -> None:
    """Throw PAUSE once something was merged and coders are at work, as a person would."""
    state = board.read()
    while run.poll() is None and not _is_a_good_moment(state):
        state = board.wait(state.revision, 0.5)
    if run.poll() is not None:
        return
    if not board.switches.throw(Switch.PAUSE, "so that you can see one"):
        return  # somebody else's
    say(
        f"PAUSE is thrown for {PAUSE_SECONDS:.0f} seconds: "
        "agents are frozen where they are, nothing new starts."
    )
    time.sleep(PAUSE_SECONDS)
    board.switches.clear(Switch.PAUSE)
    say("PAUSE is taken back: they go on where they were.")


def _is_a_good_moment(state: State) -> bool:
    statuses = [task.status for task in state.tasks.values()]
    return Status.MERGED in statuses and statuses.count(Status.WORKING) > 1


def demo_summary(board: Board) -> str:
    """Return what came of it: the merged history, and where to look."""
    root, branch = board.home.parent, board.read().config.integration_branch
    history = git("log", "--graph", "--format=%h %s", branch, cwd=root)
    return f"""
{status_text(board.read(), {})}
What was merged into {branch}:

{history}

Your own branch is as it was; `git merge {branch}` takes the work over, when you want it.

Look around in {root}:
  liza status              the board
  liza log                 every change of it
  liza task show command   the task that was rejected once, with its whole history
  liza verify              each merge checked again, with git alone
  .liza/runs/              what each agent was asked, and what it did

The same with your own agent: in your repository, put into liza.yaml
  agents: {{default: {{backend: command, command: [python3, your_agent.py]}}}}
  gates: {{test: your test command}}
then `liza init "what to build"` and `liza run`. The agent gets a prompt on stdin and answers on stdout.
"""
