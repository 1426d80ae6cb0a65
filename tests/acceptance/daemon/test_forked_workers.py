"""Workers are forked from a copy of the supervisor, and behave as programs that were started."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from liza.domain.model import Status
from liza.system.fork_server import SERVER_NAME
from liza.system.process import process_table
from tests.support.daemon_run import Daemon

if TYPE_CHECKING:
    from liza.system.platform import Process

pytestmark = pytest.mark.linux("elsewhere each worker is a program of its own")


def fork_server_of(supervisor: int) -> Process | None:
    children = (found for found in process_table().values() if found.parent == supervisor)
    return next((child for child in children if SERVER_NAME.startswith(child.name)), None)


def commands_of(supervisor: int) -> dict[str, int]:
    """Return the children of *supervisor* by the words that lists of processes show for them."""
    children = [found.pid for found in process_table().values() if found.parent == supervisor]
    return {
        Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").replace(b"\0", b" ").decode(): pid
        for pid in children
        if Path(f"/proc/{pid}").exists()
    }


class Scene:
    """A run in which the coder's agent of `t1` waits until it is let go."""

    def __init__(self, root: Path) -> None:
        self.go, self.began = root / "go", root / "began"
        act = {"note": str(self.began), "until": str(self.go), "answer": {"intent": "do t1"}}
        self.daemon = Daemon(root, {"checkpoint": act})
        self.daemon.task()

    def pids(self) -> list[int]:
        return [int(line.split()[-1]) for line in self.began.read_text().splitlines()]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_they_are_children_of_the_supervisor_and_die_with_it(scene: Scene) -> None:
    """As if each was a program: its words, its log, its environment, and the kernel's promise."""
    with scene.daemon.running() as run:
        scene.daemon.eventually(scene.began.exists)
        workers = {
            words: pid for words, pid in commands_of(run.pid).items() if words.startswith("liza worker")
        }
        assert "liza worker coder coder-1" in workers
        run.kill()
        run.wait()
        left = [*workers.values(), *scene.pids()]
        scene.daemon.eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in left))

    log = (scene.daemon.home / "workers" / "coder-1.log").read_text()
    assert f"coder-1 works on {scene.daemon.user.directory}" in log


def test_a_run_goes_on_without_its_fork_server_and_starts_programs_instead(scene: Scene) -> None:
    with scene.daemon.running("--until-idle") as run:
        scene.daemon.eventually(scene.began.exists)
        server = fork_server_of(run.pid)
        assert server is not None
        os.kill(server.pid, signal.SIGKILL)
        os.kill(commands_of(run.pid)["liza worker coder coder-1"], signal.SIGKILL)
        scene.daemon.eventually(lambda: len(scene.pids()) > 1)
        assert any(words.endswith("worker coder coder-1") for words in commands_of(run.pid))
        assert "liza worker coder coder-1" not in commands_of(run.pid)
        scene.go.touch()
        run.wait(300)

    assert scene.daemon.status() is Status.MERGED, scene.daemon.told()


def test_a_killed_worker_is_forked_again(scene: Scene) -> None:
    with scene.daemon.running("--until-idle") as run:
        scene.daemon.eventually(scene.began.exists)
        os.kill(commands_of(run.pid)["liza worker coder coder-1"], signal.SIGKILL)
        scene.daemon.eventually(lambda: len(scene.pids()) > 1)
        assert "liza worker coder coder-1" in commands_of(run.pid)
        scene.go.touch()
        run.wait(300)

    assert scene.daemon.status() is Status.MERGED, scene.daemon.told()
