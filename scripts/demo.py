"""Show in a few seconds what the board promises, on a real repository with real processes and signals.

No key, no network, no agent: the daemon that drives agents is not built yet, and nothing here pretends it is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

LIZA = [sys.executable, "-m", "liza"]
SHELLS = 8
NOTES = 5

KILLED_WRITER = """
import os, signal
from pathlib import Path
from liza.board.disk import Disk
from liza.board.file import FileBoard
from liza.changes import HUMAN, add_note
from liza.record import utc_now

class Fatal(Disk):
    def append(self, descriptor, data):
        super().append(descriptor, data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)

FileBoard(Path(".liza"), disk=Fatal()).update(add_note("never finished", about=None, by=HUMAN, at=utc_now()))
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="liza-demo-") as directory:
        repository = Path(directory)
        subprocess.run(["git", "init", "--quiet", "."], cwd=repository, check=True)
        begin(repository)
        many_at_once(repository)
        stale_editor(repository)
        forbidden_edit(repository)
        killed_writer(repository)
        look_back(repository)
    say("That was the board: `make test` attacks it harder, `make bench` measures it.")
    say("The daemon that lets agents work on it (`liza run`) is the next thing to be built.")


def begin(repository: Path) -> None:
    say("A board in a fresh git repository, with two tasks:")
    show(repository, "init", "Build a greeter")
    show(
        repository,
        "task",
        "add",
        "--id",
        "hello",
        "--description",
        "Say hello",
        "--done-when",
        "it prints hello",
    )
    show(
        repository,
        *("task", "add", "--id", "bye", "--description", "Say goodbye"),
        *("--done-when", "it prints bye", "--depends-on", "hello"),
    )


def many_at_once(repository: Path) -> None:
    say(f"{SHELLS} processes write {SHELLS * NOTES} notes at once; none is lost:")

    def write(shell: int) -> None:
        for number in range(NOTES):
            liza(repository, "note", f"note {number} of shell {shell}")

    with ThreadPoolExecutor(SHELLS) as pool:
        list(pool.map(write, range(SHELLS)))
    show(repository, "validate")
    text = (repository / ".liza/state.yaml").read_text()
    say(f"  state.yaml has {text.count('- id: note-')} notes")


def stale_editor(repository: Path) -> None:
    say("Somebody saves an old copy of state.yaml while others write; both are kept:")
    state = repository / ".liza/state.yaml"
    old = state.read_text()
    liza(repository, "note", "written by an agent meanwhile")
    state.write_text(old.replace("description: Say hello", "description: Say hello politely"))
    show(repository, "status", most=5)
    show(repository, "log", "-n", "2")


def forbidden_edit(repository: Path) -> None:
    say("Somebody writes MERGED over IDLE; it does not reach the board:")
    state = repository / ".liza/state.yaml"
    state.write_text(state.read_text().replace("status: IDLE", "status: MERGED", 1))
    show(repository, "status", most=3)
    show(repository, "resume")


def killed_writer(repository: Path) -> None:
    say("A writer is killed (SIGKILL) half-way through its write; the board does not notice:")
    done = subprocess.run(
        [sys.executable, "-c", KILLED_WRITER], cwd=repository, env=environment(), check=False
    )
    say(f"  the writer ended by {signal.Signals(-done.returncode).name}")
    show(repository, "note", "and life goes on")
    show(repository, "validate")


def look_back(repository: Path) -> None:
    say("Every change is kept; what did the first task look like in the beginning?")
    show(repository, "board", "diff", "2", most=4)


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parent.parent)}


def liza(repository: Path, *words: str) -> str:
    done = subprocess.run(
        [*LIZA, *words], cwd=repository, env=environment(), capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


def show(repository: Path, *words: str, most: int = 12) -> None:
    say(f"  $ liza {' '.join(word if ' ' not in word else repr(word) for word in words)}")
    lines = liza(repository, *words).replace(f"{repository}/", "").splitlines()
    for line in lines[:most]:
        say(f"    {line}")
    if len(lines) > most:
        say(f"    … {len(lines) - most} more lines")


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
