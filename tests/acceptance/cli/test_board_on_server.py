"""A project whose board is on a server, as people meet it: commands, a clone, a mirror, a whole run."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from tests.support.boards import PATIENCE
from tests.support.repos import Home
from tests.support.shell import ROOT, Shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.support.postgres_server import PostgresServer

pytestmark = pytest.mark.hosts


@pytest.fixture
def liza(tmp_path: Path, address: str, monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("LIZA_BOARD", address)
    shell = Shell(Home(tmp_path / "project").directory)
    done = shell("init", "a thing", "--no-baseline")
    assert done.code == 0, done.err
    return shell


def test_every_command_works_on_it(liza: Shell, postgres: PostgresServer, tmp_path: Path) -> None:
    assert sorted(path.name for path in liza.home.iterdir() if path.is_file()) == [
        *(".gitignore", "address", "applied.json")
    ]
    assert postgres.password not in (liza.home / "address").read_text()
    assert "Revision 2" in liza("note", "hello there").out
    assert (
        "Revision 3" in liza("task", "add", "--id", "t1", "--description", "do it", "--done-when", "done").out
    )
    assert json.loads(liza("status", "--json").out)["revision"] == 3
    assert "hello there" in liza("board").out
    assert "hello there" not in liza("board", "--at", "1").out
    assert "human_notes" in liza("board", "diff", "1").out
    assert [line.split()[0] for line in liza("log").out.splitlines()] == ["1", "2", "3"]
    assert liza("validate").out.startswith("VALID: revision 3")
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nsed -i 's/do it/do it well/' \"$1\"\n")
    editor.chmod(0o755)
    assert "Saved as revision 4" in liza("edit", EDITOR=str(editor)).out
    assert "do it well" in liza("board").out
    assert liza("pause", "lunch").code == 0
    assert "lunch" in liza("status").out
    assert liza("resume").code == 0
    assert "already" in liza("init", "again").err
    copied = liza("board", "copy", ".liza", "copied")
    assert copied.out.startswith("Copied 4 changes")
    assert "do it well" in (liza.directory / "copied/state.yaml").read_text()
    granted = liza("board", "grant", "worker", "nobody-known")
    assert (granted.code, "the server has no role 'nobody-known'" in granted.err) == (2, True)


def test_a_second_clone_joins_by_the_team_s_file(
    liza: Shell, address: str, postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    liza("note", "from the first")
    monkeypatch.delenv("LIZA_BOARD")
    monkeypatch.setenv("PGPASSWORD", postgres.password)
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", liza.directory, clone], check=True)
    team = f"board: {address.replace(f':{postgres.password}', '')}\n"
    (clone / "liza.yaml").write_text(team)
    there = Shell(clone)
    assert "a thing" in there("status").out
    assert "from the first" in there("board").out
    assert "Revision 3" in there("note", "from the second").out
    assert "from the second" in liza("board").out
    monkeypatch.setenv("PGPASSWORD", "wrong")
    done = there("status")
    assert (done.code, done.err.count("\n"), "the password is wrong" in done.err) == (1, 1, True)


@contextmanager
def mirroring(liza: Shell) -> Iterator[None]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "liza", "-C", str(liza.directory), "mirror"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as mirror:
        try:
            assert mirror.stdout is not None
            assert mirror.stdout.readline().startswith("Mirroring postgresql://")
            yield
        finally:
            mirror.send_signal(signal.SIGTERM)
        assert mirror.wait(PATIENCE) == 0


def eventually(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def saved(liza: Shell, before: str, after: str) -> None:
    """Save the file as an editor does, with *after* in place of *before*."""
    text = liza.state.read_text()
    assert before in text
    draft = liza.home / "draft"
    draft.write_text(text.replace(before, after, 1))
    draft.replace(liza.state)


def test_a_mirror_keeps_file_and_board_in_step(liza: Shell) -> None:
    liza("task", "add", "--id", "t1", "--description", "do it", "--done-when", "done")
    with mirroring(liza):
        eventually(liza.state.exists)
        assert "do it" in liza.state.read_text()
        saved(liza, "do it", "do it well")
        eventually(lambda: "do it well" in liza("board").out)
        liza("note", "from elsewhere")
        eventually(lambda: "from elsewhere" in liza.state.read_text())
        saved(liza, "status: IDLE", "status: MERGED")
        eventually(lambda: "PAUSE" in liza("status").out)
        eventually(lambda: "status: IDLE" in liza.state.read_text())
        assert "status: MERGED" in next((liza.home / "rejected").iterdir()).read_text()
        eventually((liza.home / "PAUSE").exists)
        second = liza("mirror")
        assert (second.code, "mirror is already running" in second.err) == (1, True)
        assert "liza stop" not in second.err
    assert "edit_rejected" in liza("board").out


def test_a_switch_is_a_file_here_and_a_row_there(
    liza: Shell, address: str, postgres: PostgresServer, count: Callable[[str, int], None]
) -> None:
    def rows() -> str:
        board = address.partition("#")[2]
        return postgres.sql(f"SELECT name, said FROM liza.switch WHERE board = '{board}'")  # noqa: S608

    with mirroring(liza):
        eventually(liza.state.exists)
        for name in ("PAUSE", "CHECKPOINT", "ABORT"):
            (liza.home / name).write_text("by hand\n")
            eventually(rows)
            assert rows() == f"{name}|by hand"
            (liza.home / name).unlink()
            eventually(lambda: not rows())
        liza("pause", "from elsewhere")
        eventually((liza.home / "PAUSE").exists)
        assert (liza.home / "PAUSE").read_text() == "from elsewhere\n"
        liza("resume")
        eventually(lambda: not (liza.home / "PAUSE").exists())
    count("switches moved on one side and seen on the other", 8)


@pytest.mark.parametrize("why", ["No module named 'psycopg'", "no pq wrapper available.\\nAttempts: none"])
def test_without_psycopg_it_is_one_sentence(tmp_path: Path, why: str) -> None:
    (tmp_path / "psycopg").mkdir()
    (tmp_path / "psycopg/__init__.py").write_text(f'raise ImportError("{why}")\n')
    (tmp_path / "project/.git").mkdir(parents=True)
    environment = {
        **os.environ,
        "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}",
        "LIZA_BOARD": "postgresql://h/db",
    }
    command = [sys.executable, "-m", "liza", "-C", str(tmp_path / "project"), "status"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.endswith("install Liza with it (`pip install 'liza[postgres]'`)\n")


def test_a_mirror_of_files_is_refused(tmp_path: Path) -> None:
    shell = Shell(Home(tmp_path / "project").directory)
    shell("init", "a thing", "--no-baseline")
    done = shell("mirror")
    assert (done.code, "the board is in" in done.err) == (2, True)


def test_a_whole_run_works_on_it(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, postgres: PostgresServer
) -> None:
    monkeypatch.setenv("LIZA_BOARD", address)
    shell = Shell(tmp_path)
    done = shell("demo", "project")
    assert done.code == 0, done.out + done.err
    project = Shell(tmp_path / "project")
    assert project("verify").out.startswith("VERIFIED: 5 merges")
    assert project("validate").out.startswith("VALID")
    assert not (project.home / "journal.jsonl").exists()
    for path in project.home.rglob("*"):
        assert not path.is_file() or postgres.password not in path.read_text(errors="replace"), path
