"""Several hosts of one team: a clone each, one board, and one bare repository between them."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any

from liza.daemon.jobs import take_turn
from liza.daemon.travel import begin_integration
from liza.daemon.turn import AfterTurn, StopRequests, Worker
from liza.daemon.worker import with_worker_started
from liza.domain.changes import Change
from liza.domain.model import Role
from liza.repo.command import exclude
from liza.repo.merge import KEY_FILE, ensure_key
from tests.support.repos import Hand, Home
from tests.support.scripted_team import ScriptedTeam

if TYPE_CHECKING:
    from pathlib import Path


def bare_repository(path: Path) -> Hand:
    subprocess.run(["git", "init", "-q", "--bare", "--initial-branch=main", path], check=True)
    return Hand(path)


class TeamOfHosts(ScriptedTeam):
    """A scripted team whose workers sit on clones that share nothing but the board and a bare remote."""

    def __init__(self, directory: Path, script: dict[str, Any] | None = None, **settings: Any) -> None:  # noqa: ANN401
        self.remote = bare_repository(directory / "team.git")
        super().__init__(directory, script, remote=str(self.remote.directory), **settings)
        self.directory = directory
        self.hosts: dict[str, Home] = {"a": self.user}
        begin_integration(self.user.repository, self.state.config)

    def host(self, name: str) -> Home:
        """Return the clone of the host *name*."""
        if name not in self.hosts:
            path = self.directory / name
            subprocess.run(["git", "clone", "-q", self.user.directory, path], check=True)
            clone = Hand(path)
            clone.git("remote", "remove", "origin")
            clone.git("config", "user.name", "Ada")
            clone.git("config", "user.email", "ada@example.org")
            (path / ".liza").mkdir()
            exclude(path, ("/.liza/", "/.worktrees/"))
            (path / ".liza" / KEY_FILE).write_bytes(ensure_key(self.home) + b"\n")
            self.hosts[name] = Home(path)
            begin_integration(self.hosts[name].repository, self.state.config)
        return self.hosts[name]

    def worker_on(self, host: str, name: str) -> Worker:
        if name not in self.workers:
            clone = self.host(host)
            worker = Worker(
                clone.directory / ".liza",
                self.board,
                clone.repository,
                Role(name.partition("-")[0]),
                name,
                StopRequests(self.board),
            )
            self.board.update(Change(name, "start", lambda state: with_worker_started(worker, state)))
            self.workers[name] = worker
        return self.workers[name]

    def turn_on(self, host: str, name: str) -> AfterTurn:
        worker = self.worker_on(host, name)
        self.adopt()
        return take_turn(worker)

    def refs(self) -> dict[str, str]:
        """Return what the remote has, by the full name of each ref."""
        lines = self.remote.git("for-each-ref", "--format=%(refname) %(objectname)").splitlines()
        return dict(line.split(" ") for line in lines)
