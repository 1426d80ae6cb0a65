"""The main job in under a minute: a real repository, processes, worktrees, tests and merges; only the agents
are played from a recording, so it needs no key and no network.

A demo is a directory of `liza/cli/demos/`, named after the workflow that it shows.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Final

from liza.board.protocol import open_board
from liza.cli.views.questions import YOU, QuestionKind, open_questions
from liza.cli.views.status import status_text
from liza.domain.model import Status
from liza.domain.record import NonEmptyStr, Record
from liza.domain.switches import Switch
from liza.domain.yaml_parse import parse_yaml
from liza.errors import UsageError
from liza.repo.command import git

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.domain.model import State

PAUSE_SECONDS: Final = 2.0  # seconds that the demo stands still, so that it can be seen
TIMEOUT: Final = 120.0  # seconds after which the demo is taken for broken
LOOK_INTERVAL: Final = 0.5  # seconds between two looks where nothing changes
_AUTHOR: Final = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "You"), ("EMAIL", "you@example.org"))
}


class Demo(Record):
    """A `demo.yaml`."""

    goal: NonEmptyStr
    look: NonEmptyStr
    init: tuple[NonEmptyStr, ...] = ()  # more words of `liza init`
    pause: bool = False
    answers: Mapping[QuestionKind, tuple[NonEmptyStr, ...]] = {}


def demo_of(workflow: str) -> Demo:
    """Return the demo of *workflow*; raise a sentence with the known ones where there is none."""
    demos = files("liza.cli.demos")
    known = sorted(one.name for one in demos.iterdir() if one.joinpath("demo.yaml").is_file())
    if workflow not in known:
        raise UsageError(f"there is no demo of {workflow!r}; use one of {', '.join(known)}")
    return Demo.model_validate(parse_yaml(demos.joinpath(workflow, "demo.yaml").read_text("utf-8")).data)


def prepare_repository(directory: Path, workflow: str, *, pace: str = "1", settings: str = "") -> Board:
    """Make somebody's repository in *directory*, with a goal and agents from a recording.

    *settings* are further lines of its `liza.yaml`.
    """
    demo = demo_of(workflow)
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(f"{directory} is not empty; name a directory that is, or does not exist")
    with as_file(files("liza.cli.demos").joinpath(workflow, "files")) as source:
        shutil.copytree(source, directory, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    team = directory / "liza.yaml"
    team.write_text(team.read_text("utf-8").replace("PACE", pace) + settings, "utf-8")
    git("init", "--quiet", "--initial-branch=main", ".", cwd=directory)
    git("add", ".", cwd=directory)
    git("commit", "--quiet", "-m", "What we want", cwd=directory, environment=_AUTHOR)
    words = ["init", demo.goal, "--workflow", workflow, "--no-baseline", *demo.init]
    done = subprocess.run(_liza(directory, *words), capture_output=True, text=True, check=False)
    if done.returncode:
        raise UsageError(done.stderr.strip().removeprefix("liza: ") or "liza init failed")
    return open_board(directory / ".liza")


def _liza(directory: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "liza", "-C", str(directory), *words]


def run_demo(board: Board, workflow: str, say: Callable[[str], None]) -> int:
    """Let `liza run` work on the goal, and do what a person would do meanwhile; return its exit code."""
    demo = demo_of(workflow)
    # Where people are asked, the run waits for them.
    words = ["run"] if demo.answers else ["run", "--until-idle"]
    run = subprocess.Popen(_liza(board.home.parent, *words))
    people = threading.Thread(target=_be_people, args=(board, demo, run, say), daemon=True)
    people.start()
    try:
        return run.wait(TIMEOUT)
    except (subprocess.TimeoutExpired, KeyboardInterrupt):
        run.send_signal(signal.SIGTERM)
        return run.wait()


def _be_people(board: Board, demo: Demo, run: subprocess.Popen[bytes], say: Callable[[str], None]) -> None:
    """Pause once where the demo wants it, and answer what is asked."""
    paused, state = not demo.pause, board.read()
    while run.poll() is None:
        if not paused and _is_a_good_moment(state):
            paused = True
            _pause(board, say)
        for question in open_questions(state):
            words = demo.answers.get(question.kind)
            if words and question.who == YOU:
                typed = [word.replace("{subject}", question.subject) for word in words]
                say(f"A person types: liza {' '.join(typed)}")
                done = _liza(board.home.parent, *typed)
                subprocess.run(done, stdout=subprocess.DEVNULL, check=False)
        state = board.wait(state.revision, LOOK_INTERVAL)


def _pause(board: Board, say: Callable[[str], None]) -> None:
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


def demo_summary(board: Board, workflow: str) -> str:
    """Return what came of it: the merged history, and where to look."""
    root, branch = board.home.parent, board.read().config.integration_branch
    look = "\n".join(f"  {line}" for line in demo_of(workflow).look.splitlines())
    return f"""
{status_text(board.read(), {})}
{_merged(board, branch)}
Look around in {root}:
{look}

The same with your own agent: in your repository, put into liza.yaml
  agents: {{default: {{backend: command, command: [python3, your_agent.py]}}}}
  gates: {{test: your test command}}
then `liza init "what to build"` and `liza run`. The agent gets a prompt on stdin and answers on stdout.
"""


def _merged(board: Board, branch: str) -> str:
    merged = {task.status for task in board.read().tasks.values()} | set(board.read().archived.values())
    if Status.MERGED not in merged:
        return "Nothing was merged, as this workflow wants it; your own branch is as it was.\n"
    history = git("log", "--graph", "--format=%h %s", branch, cwd=board.home.parent)
    return f"""What was merged into {branch}:

{history}

Your own branch is as it was; `git merge {branch}` takes the work over, when you want it.
"""
