"""Hosts in network namespaces of their own, one PostgreSQL, one bare remote: killed, cut off, verified."""

from __future__ import annotations

import os
import subprocess
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

from liza.daemon.push_hook import install_hook
from liza.domain.model import Status
from tests.support.host_processes import HostPark
from tests.support.network import BOARD_PORT, GIT_PORT, HUB, Network, why_impossible
from tests.support.postgres_server import WHAT_IS_MISSING, PostgresServer, find_programs
from tests.support.repos import Hand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from liza.domain.model import State

pytestmark = [pytest.mark.hosts, pytest.mark.timeout(1800)]
TASKS: Final = int(os.environ.get("LIZA_HOSTS_TASKS") or 60)
LEASE: Final = 15  # seconds: as long as others wait for what a lost host held
INTEGRATION: Final = "refs/heads/liza/integration"


class Site(HostPark):
    """A park whose hosts reach board and remote over a network that can be cut."""

    def __init__(
        self,
        directory: Path,
        server: PostgresServer,
        script: dict[str, Any],
        **settings: Any,  # noqa: ANN401
    ) -> None:
        self.server = server
        self.network = Network(directory)
        super().__init__(
            directory,
            f"{server.address}#site",
            script,
            remote="origin",
            limits={"lease_seconds": LEASE, "max_plan_tasks": 200},
            **settings,
        )
        self.network.serve_board(server.directory, server.port)
        self.network.serve_git(directory)
        # Git asks the board by the way that it has: the hub is the server's own machine.
        socket = f"postgresql:///postgres?host={server.directory}&port={server.port}&user=owner#site"
        self.hook = install_hook(self.remote, socket)

    def machine(self, stack: ExitStack, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Connect the machine *name*, and let it work as long as *stack* is open."""
        self.network.add(name)
        clone = self.shell_of(name).directory
        url = f"git://{HUB}:{GIT_PORT}/{self.remote.name}"
        subprocess.run(["git", "-C", clone, "remote", "set-url", "origin", url], check=True)
        address = f"postgresql://owner:{self.server.password}@{HUB}:{BOARD_PORT}/postgres#site"
        inside = self.network.inside(name)
        return stack.enter_context(self.host(name, *words, address=address, inside=inside))

    def until(self, is_so: Callable[[State], bool]) -> State:
        self.eventually(lambda: is_so(self.board.read()))
        return self.board.read()

    def merged(self) -> int:
        return sum(task.status is Status.MERGED for task in self.state.tasks.values())

    def git(self, *words: str) -> str:
        return Hand(self.remote).git(*words)


def planned(count: int, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - acts of the script
    names = [f"t{number}" for number in range(1, count + 1)]
    tasks = [
        {
            "id": name,
            "description": f"do {name}",
            "done_when": [f"{name}.txt is there"],
            "scope": {"in": [f"{name}.txt"]},
        }
        for name in names
    ]
    return {"plan": {"answer": {"tasks": tasks}}, **more}


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    if why := why_impossible() or (None if find_programs() else WHAT_IS_MISSING):
        pytest.skip(why)
    with PostgresServer() as server:
        yield server


@pytest.fixture
def make_site(
    tmp_path: Path, server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Site]]:
    monkeypatch.setenv("LIZA_BOARD", f"{server.address}#site")
    with ExitStack() as stack:

        def make(script: dict[str, Any], **settings: Any) -> Site:  # noqa: ANN401
            site = Site(tmp_path, server, script, **settings)
            stack.enter_context(site.network)
            return site

        yield make


def judge(site: Site, count: int) -> None:
    """Check that everything was merged once, with its content, and that the history is what it says."""
    state = site.state
    assert {task.status for task in state.tasks.values()} == {Status.MERGED}, site.told()
    assert (state.goal.is_over, len(state.tasks)) == (True, count)
    files = dict.fromkeys(site.git("ls-tree", "--name-only", INTEGRATION).splitlines())
    assert set(files) == {"README", "liza.yaml", *(f"{name}.txt" for name in state.tasks)}
    for name in state.tasks:
        assert site.git("show", f"{INTEGRATION}:{name}.txt") == name
    merges = site.git("log", "--first-parent", "--merges", "--format=%s", INTEGRATION).splitlines()
    assert sorted(line.split()[1].strip(":") for line in merges) == sorted(state.tasks)
    site.git("fsck", "--no-dangling")
    assert site.shell.ok("verify") == f"VERIFIED: {count} merges\n"
    assert site.shell.ok("validate").startswith("VALID")


def test_three_hosts_bring_all_tasks_to_their_merge(
    make_site: Callable[..., Site], count: Callable[[str, int], None]
) -> None:
    """One host is killed, one is cut off and comes back, the server is killed twice: all is verified."""
    site = make_site(planned(TASKS))
    with ExitStack() as stack:
        hosts = {name: site.machine(stack, name, "--slots", "planner=1,coder=2,reviewer=1") for name in "abc"}
        parts = [TASKS * part // 6 for part in range(1, 6)]
        site.eventually(lambda: site.merged() >= parts[0])
        site.server.kill()
        site.server.start()
        site.eventually(lambda: site.merged() >= parts[1])
        killed = site.network.kill_machine("c")
        site.eventually(lambda: site.merged() >= parts[2])
        site.network.cut("b")
        there = {sign.name for sign in site.board.presence.hosts() if sign.is_live}
        site.eventually(lambda: site.merged() >= parts[3])
        site.server.kill()
        site.server.start()
        site.network.join("b")
        site.eventually(lambda: site.state.goal.is_over)
        assert [hosts[name].wait(120) for name in "ab"] == [0, 0], site.told()
    judge(site, TASKS)
    assert there >= {"a"}
    count("tasks merged by three hosts", TASKS)
    count("processes killed with their machine", killed)
    count("kills of the server, and machines cut off", 3)
