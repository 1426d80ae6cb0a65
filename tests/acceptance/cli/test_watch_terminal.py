"""`liza watch` as people run it: the installed program in a real terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from liza.board.file import FileBoard
from liza.domain.config import Switch
from liza.domain.model import Goal, GoalStatus, Status
from liza.system.run_control import wait_readable
from tests.support.boards import noted
from tests.support.pseudo_terminals import PATIENCE, PROGRAM, TmuxScreen, needs_tmux
from tests.support.repos import Home
from tests.support.sample_tasks import NOW, board, new_task, task_in

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def ours(tmp_path: Path) -> FileBoard:
    home = Home(tmp_path / "home")
    return FileBoard.create(
        home.directory / ".liza", board(task_in(Status.BLOCKED, name="asks"), new_task("idle"))
    )


@needs_tmux
@pytest.mark.parametrize("size", [(80, 24), (200, 60)], ids=["80x24", "200x60"])
def test_a_person_looks_answers_and_leaves(ours: FileBoard, tmp_path: Path, size: tuple[int, int]) -> None:
    with TmuxScreen(tmp_path, size) as screen:
        screen.run(ours.home.parent, str(PROGRAM), "watch")
        screen.sees("Which colour?", "idle", "? help")
        assert "\x1b[" in screen.raw
        screen.press("a")
        screen.sees("asks asks")
        screen.write("blue, as the sky")
        screen.sees("Answered; asks is IDLE again")
        screen.resize(60, 20)
        screen.sees("idle", "0 of 2 tasks done")
        screen.press("q")
        assert screen.exit_code() == 0

    assert ours.read().task("asks").guidance == "blue, as the sky"


@needs_tmux
def test_without_colours_nothing_is_lost(ours: FileBoard, tmp_path: Path) -> None:
    with TmuxScreen(tmp_path, (80, 24), NO_COLOR="1") as screen:
        screen.run(ours.home.parent, str(PROGRAM), "watch")
        screen.sees("BLOCKED", "IDLE", "? help")
        colours = [
            code for code in ("[31m", "[32m", "[33m", "[36m", "[38;5;1m", "[38;5;2m") if code in screen.raw
        ]
        assert colours == []
        screen.press("q")
        assert screen.exit_code() == 0


@needs_tmux
def test_whoever_ends_it_gets_the_terminal_back(ours: FileBoard, tmp_path: Path) -> None:
    with TmuxScreen(tmp_path, (80, 24)) as screen:
        screen.run(ours.home.parent, "sh", "-c", f"{PROGRAM} watch && stty -a")
        screen.sees("? help")
        screen.end_program(signal.SIGTERM)
        assert screen.exit_code() == 0
        shown = screen.sees("speed")
        assert " echo " in shown
        assert "-icanon" not in shown


def test_a_terminal_that_goes_away_ends_it(ours: FileBoard) -> None:
    """Nobody is left who could see it, and nothing of it is left that spins, also as `nohup` starts it."""
    child, master = pty.fork()
    if child == 0:  # pragma: no cover - another program from here on
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.chdir(ours.home.parent)
        os.environ["TERM"] = "xterm-256color"
        os.execv(sys.executable, [sys.executable, "-m", "liza", "watch"])  # noqa: S606 - no shell is wanted
    seen = b""
    while b"colour" not in seen:
        seen += os.read(master, 1 << 16)
    os.close(master)
    ended = wait_readable(descriptor := os.pidfd_open(child), PATIENCE)
    os.close(descriptor)
    if not ended:
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert ended


def test_a_terminal_that_cannot_draw_gets_lines(tmp_path: Path) -> None:
    goal = Goal(description="x", created=NOW, status=GoalStatus.COMPLETE, completed=NOW)
    FileBoard.create(tmp_path / ".liza", board(task_in(Status.MERGED), goal=goal))
    master, slave = pty.openpty()
    words = [sys.executable, "-m", "liza", "watch"]
    environment = {**os.environ, "TERM": "dumb"}
    done = subprocess.run(
        words,
        cwd=tmp_path,
        env=environment,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        check=True,
        timeout=PATIENCE,
    )
    shown = os.read(master, 1 << 16)
    os.close(master)
    os.close(slave)

    assert done.returncode == 0
    assert shown.endswith(b"1 of 1 tasks done\r\n")
    assert b"\x1b" not in shown


def test_lines_tell_how_it_stands_and_then_what_happens(ours: FileBoard) -> None:
    """As people see it who have a terminal that cannot draw: a line an event, cut at its width."""
    child, master = pty.fork()
    if child == 0:  # pragma: no cover - another program from here on
        os.chdir(ours.home.parent)
        os.environ.update(TERM="dumb", COLUMNS="60")
        os.execv(sys.executable, [sys.executable, "-m", "liza", "watch"])  # noqa: S606 - no shell is wanted
    shown = b""

    def sees(words: bytes) -> None:
        nonlocal shown
        while words not in shown:
            assert wait_readable(master, PATIENCE), shown
            shown += os.read(master, 1 << 16)

    sees(b"0 of 2 tasks done\r\n")
    ours.update(noted("look at this " * 9))
    sees(b"note: look at this")
    ours.switches.throw(Switch.PAUSE, "lunch")
    sees(b"PAUSE is thrown: lunch; `liza resume` goes on")
    os.write(master, b"\x03")
    assert os.waitpid(child, 0)[1] == 0
    os.close(master)
    lines = shown.decode().splitlines()
    assert max(map(len, lines)) <= 60
    assert "\x1b" not in shown.decode()


def test_json_is_the_whole_view_and_ends_with_the_goal(tmp_path: Path) -> None:
    goal = Goal(description="x", created=NOW, status=GoalStatus.COMPLETE, completed=NOW)
    FileBoard.create(tmp_path / ".liza", board(task_in(Status.MERGED), goal=goal))
    done = subprocess.run(
        [PROGRAM, "watch", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE,
    )
    (shown,) = map(json.loads, done.stdout.splitlines())

    assert shown["headline"]["sentence"].startswith("The goal is complete: 1 of 1 tasks done.")
    assert [task["id"] for task in shown["tasks"]] == ["t1"]
