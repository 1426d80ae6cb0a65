"""Hosts in networks of their own around one server and one bare remote, which they can be cut off from."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Any, Final

from liza.daemon.push_hook import install_hook
from liza.domain.model import Status
from tests.support.host_processes import HostPark
from tests.support.network import BOARD_PORT, GIT_PORT, HUB, Network
from tests.support.repos import Hand

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from tests.support.postgres_server import PostgresServer

LEASE: Final = 15  # seconds: as long as others wait for what a lost host held


class Site(HostPark):
    """A park whose hosts reach board and remote over a network that can be cut."""

    def __init__(
        self,
        directory: Path,
        server: PostgresServer,
        script: dict[str, Any],
        *,
        lease: int = LEASE,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        self.server = server
        self.network = Network(directory)
        super().__init__(
            directory,
            f"{server.address}#site",
            script,
            remote="origin",
            limits={"lease_seconds": lease, "max_plan_tasks": 200},
            **settings,
        )
        self.network.serve_board(server.directory, server.port)
        self.network.serve_git(directory)
        # Git asks the board by the way that it has: the hub is the server's own machine.
        socket = f"postgresql:///postgres?host={server.directory}&port={server.port}&user=owner#site"
        self.hook = install_hook(self.remote, socket)

    def machine(
        self, stack: ExitStack, name: str, *words: str, clock: str | None = None
    ) -> subprocess.Popen[bytes]:
        """Connect the machine *name*, whose *clock* may be off, and let it work while *stack* is open."""
        self.network.add(name)
        clone = self.shell_of(name).directory
        url = f"git://{HUB}:{GIT_PORT}/{self.remote.name}"
        subprocess.run(["git", "-C", clone, "remote", "set-url", "origin", url], check=True)
        address = f"postgresql://owner:{self.server.password}@{HUB}:{BOARD_PORT}/postgres#site"
        inside = [*self.network.inside(name), *(["faketime", "-f", clock] if clock else [])]
        return stack.enter_context(self.host(name, *words, address=address, inside=inside))

    def alerts(self) -> str:
        return "\n".join(one.says for one in self.board.alerts.after(0))

    def merged(self) -> int:
        return sum(task.status is Status.MERGED for task in self.state.tasks.values())

    def git(self, *words: str) -> str:
        return Hand(self.remote).git(*words)
