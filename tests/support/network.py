"""Machines in network namespaces of their own: a hub, and hosts that can be cut off from it.

A namespace lives as long as the process that holds it, so that nothing of it is left of the machine's own
network, nor after the tests, however they end. An ordinary user makes them in a user namespace of his own.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from tests.support.shell import ROOT

PREFIX: Final = "10.77.0."
HUB: Final = f"{PREFIX}1"
BOARD_PORT: Final = 5432
GIT_PORT: Final = 9418
PATIENCE: Final = 60.0  # seconds


def why_impossible() -> str | None:
    """Return why there can be no such network here."""
    if missing := [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]:
        return f"network namespaces need {' and '.join(missing)} (on Debian: apt install iproute2 util-linux)"
    make = [*_unshare(), "ip", "link", "add", "br0", "type", "bridge"]
    if subprocess.run(make, capture_output=True, check=False).returncode == 0:
        return None
    return "this machine allows no network namespace" + ("" if _is_root() else " to an ordinary user")


def _is_root() -> bool:
    return os.geteuid() == 0


def _unshare() -> list[str]:
    """Return the words that start a command in a network of its own, whose root it is."""
    return ["unshare", "--net"] if _is_root() else ["unshare", "--map-root-user", "--net"]


class Network:
    """A hub with a bridge, on which a board and a repository are reached, and hosts around it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[subprocess.Popen[bytes]] = []
        self.holders = {"hub": self._hold()}
        self._ip("hub", "link", "add", "br0", "type", "bridge")
        self._ip("hub", "addr", "add", f"{HUB}/24", "dev", "br0")
        for device in ("lo", "br0"):
            self._ip("hub", "link", "set", device, "up")

    def _hold(self) -> int:
        words = _unshare()
        if not _is_root() and self._started:  # whoever connects two of them has to own both
            words = [*_enter(self._started[0].pid, "-U"), "unshare", "--net"]
        # `cat` waits for the end of its input, which comes with the end of this process.
        holder = subprocess.Popen([*words, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._started.append(holder)
        deadline = time.monotonic() + PATIENCE
        while Path(f"/proc/{holder.pid}/comm").read_text() != "cat\n":  # all before it is done by then
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return holder.pid

    def inside(self, name: str) -> list[str]:
        """Return the words that start a command in the namespace *name*."""
        return _enter(self.holders[name], "-n", *([] if _is_root() else ["-U"]))

    def _ip(self, name: str, *words: str) -> None:
        subprocess.run([*self.inside(name), "ip", *words], check=True, capture_output=True)

    def add(self, name: str) -> None:
        """Connect a new host to the hub."""
        number = len(self.holders) + 1
        self.holders[name] = self._hold()
        self._ip("hub", "link", "add", f"to-{name}", "type", "veth", "peer", "name", "eth0",
                 "netns", str(self.holders[name]))  # fmt: skip
        self._ip(name, "addr", "add", f"{PREFIX}{number}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            self._ip(name, "link", "set", device, "up")
        self._ip("hub", "link", "set", f"to-{name}", "up")
        self.join(name)

    def cut(self, name: str) -> None:
        """Let nothing through any more between *name* and the others, without a word to either side."""
        self._ip("hub", "link", "set", f"to-{name}", "nomaster")

    def join(self, name: str) -> None:
        self._ip("hub", "link", "set", f"to-{name}", "master", "br0")

    def kill_machine(self, name: str) -> int:
        """Kill everything that runs on *name* at once, as a power cut does; return how many that were."""
        space, holder = Path(f"/proc/{self.holders[name]}/ns/net").readlink(), self.holders[name]
        count = 0
        while found := [pid for pid in _processes_in(space) if pid != holder]:
            for pid in found:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    count += 1
            time.sleep(0.01)
        return count

    def agents(self, name: str) -> list[int]:
        """Return the processes of agents on *name*."""
        space = Path(f"/proc/{self.holders[name]}/ns/net").readlink()
        return [pid for pid in _processes_in(space) if _is_agent(pid)]

    def serve_board(self, sockets: Path, port: int) -> None:
        """Let hosts reach the server that listens in *sockets*, also after it was started again."""
        relay = [sys.executable, str(ROOT / "tests/support/relay.py")]
        self._start("hub", *relay, HUB, str(BOARD_PORT), f"{sockets}/.s.PGSQL.{port}")

    def serve_git(self, base: Path) -> None:
        """Let hosts fetch from and push to every repository in *base*."""
        # Its real program: killing `git daemon` would leave a child.
        program = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True)
        words = ("--export-all", "--enable=receive-pack", f"--listen={HUB}", f"--port={GIT_PORT}")
        self._start(
            "hub",
            f"{program.stdout.strip()}/git-daemon",
            "--reuseaddr",
            *words,
            f"--base-path={base}",
            str(base),
        )

    def _start(self, name: str, *words: str) -> None:
        with (self._directory / "network.log").open("ab") as log:
            process = subprocess.Popen([*self.inside(name), *words], stdout=log, stderr=log)
        self._started.append(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.holders):
            self.kill_machine(name)
        for process in self._started:
            process.kill()
            process.communicate()


def _enter(pid: int, *spaces: str) -> list[str]:
    own_user = ["--preserve-credentials"] if "-U" in spaces else []
    return ["nsenter", "-t", str(pid), *spaces, *own_user, "--"]


def _is_agent(pid: int) -> bool:
    with suppress(OSError):
        return b"scripted_agent.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def _processes_in(space: Path) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/ns/net"):
        with suppress(OSError):
            if path.readlink() == space and "\nState:\tZ" not in (path.parents[1] / "status").read_text():
                found.append(int(path.parents[1].name))
    return found
