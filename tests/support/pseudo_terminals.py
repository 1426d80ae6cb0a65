"""The installed program in a real pseudo-terminal: under tmux, which draws what a person would see."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, Self

import psutil
import pytest

PATIENCE: Final = 60.0  # seconds that anything may take on a busy machine
CODE: Final = "it ended with "
LOOK: Final = 0.05  # seconds between two looks at the screen
PROGRAM: Final = Path(sys.executable).with_name("liza")

needs_tmux: Final = pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")


class TmuxScreen:
    """One window of a tmux server of its own, which ends with the block."""

    def __init__(self, folder: Path, size: tuple[int, int], **environment: str) -> None:
        self._socket = folder / "tmux.sock"
        self._size = size
        self._environment = environment

    def __enter__(self) -> Self:
        width, height = self._size
        self._tmux("new-session", "-d", "-x", str(width), "-y", str(height), "sh")
        return self

    def __exit__(self, *_: object) -> None:
        self._tmux("kill-server")

    def run(self, directory: Path, *words: str) -> None:
        """Start *words* there, as the program of the window."""
        told = [f"-e{name}={value}" for name, value in self._environment.items()]
        # The shell tells how it ended: tmux itself sometimes never learns it.
        line = f"{shlex.join(words)}; echo {CODE}$?; read answer"
        self._tmux("respawn-window", "-k", "-c", str(directory), *told, "sh", "-c", line)

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def write(self, text: str) -> None:
        self._tmux("send-keys", "-l", text)
        self.press("Enter")

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))

    @property
    def text(self) -> str:
        return self._tmux("capture-pane", "-p")

    @property
    def raw(self) -> str:
        """What is on the screen, with the sequences that colour it."""
        return self._tmux("capture-pane", "-p", "-e")

    def sees(self, *words: str) -> str:
        """Wait until all *words* are on the screen, and return it."""
        deadline = time.monotonic() + PATIENCE
        while not all(word in (shown := self.text) for word in words):
            assert time.monotonic() < deadline, f"{words} in\n{shown}"
            time.sleep(LOOK)  # a screen tells nobody that it changed
        return shown

    def end_program(self, number: signal.Signals) -> None:
        """Send a signal to the innermost of what runs in the window."""
        pid = int(self._tmux("display-message", "-p", "#{pane_pid}"))
        psutil.Process(pid).children(recursive=True)[-1].send_signal(number)

    def exit_code(self) -> int:
        """Wait until the program has ended, and return its exit code."""
        return int(self.sees(CODE).rpartition(CODE)[2].split()[0])

    def _tmux(self, *words: str) -> str:
        known = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        done = subprocess.run(
            ["tmux", "-f", os.devnull, "-S", str(self._socket), *words],
            env={**known, "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"},
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout
