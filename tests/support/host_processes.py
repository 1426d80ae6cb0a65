"""Machines that share a board: `liza host` in clones of one repository, each with a name of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from liza.board.protocol import open_board
from tests.support import scripted_agent
from tests.support.repos import Hand
from tests.support.shell import ROOT, Shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.domain.model import State

PATIENCE: Final = 240.0  # seconds that anything may take on a busy machine


class HostPark:
    """One board on a server, one bare repository, and clones of it that hosts work in."""

    def __init__(self, directory: Path, address: str, script: dict[str, Any], **settings: Any) -> None:  # noqa: ANN401
        self.directory = directory
        self.address = address
        self.outside = directory / "outside"
        self.outside.mkdir()
        scripted_agent.save(script, self.outside / "script")
        self.remote = directory / "remote.git"
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", self.remote], check=True)
        first = Hand(self._clone("first"))
        command = [sys.executable, "-S", scripted_agent.__file__, str(self.outside / "script")]
        team = {
            "agents": {"default": {"command": command}},
            "workers": {"coder": 1},
            "sandbox": {"mode": "off"},
            "gates": {"test": "true"},
            "remote": str(self.remote),
            **settings,
        }
        first.write("liza.yaml", json.dumps(team, indent=1))
        first.commit({"README": "a thing\n"})
        first.git("push", "-q", "origin", "HEAD:main")
        self.shell = Shell(first.directory)
        self.shell.ok("init", "a thing", "--no-baseline")
        self.board: Board = open_board(self.shell.home)

    def _clone(self, name: str) -> Path:
        path = self.directory / name
        subprocess.run(["git", "clone", "-q", self.remote, path], check=True, capture_output=True)
        for key, value in {"user.name": "ada", "user.email": "ada@example.org"}.items():
            subprocess.run(["git", "-C", path, "config", key, value], check=True)
        return path

    @property
    def state(self) -> State:
        return self.board.read()

    def shell_of(self, name: str) -> Shell:
        path = self.directory / name
        return Shell(path if path.exists() else self._clone(name))

    def eventually(self, is_so: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.05)

    def told(self) -> str:
        logs = sorted(self.directory.glob("*.log"))
        return "\n".join(f"== {path.stem}\n{path.read_text()[-3000:]}" for path in logs)

    @contextmanager
    def host(
        self, name: str, *words: str, address: str | None = None, inside: Sequence[str] = ()
    ) -> Iterator[subprocess.Popen[bytes]]:
        """Let the machine *name* work for as long as the block lasts, and leave nothing of it.

        *inside* are the words that start a command where it is.
        """
        shell = self.shell_of(name)
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "LIZA_BOARD": address or self.address}
        command = [*inside, sys.executable, "-m", "liza", "host", "--name", name, "--no-baseline", *words]
        with (self.directory / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=shell.directory, env=environment, stdout=log, stderr=log)
        try:
            yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)

    def leader(self) -> str | None:
        """Return which host says that it leads."""
        signs = self.board.presence.hosts()
        return next((sign.name for sign in signs if sign.is_live and sign.facts.get("leads")), None)
