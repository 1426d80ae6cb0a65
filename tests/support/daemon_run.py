"""The real daemon, `liza run`, over the scripted team of a team: what people meet, in processes."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from tests.support.liza_process import LizaProcess
from tests.support.scripted_team import ScriptedTeam
from tests.support.shell import Shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE: Final = 240.0  # seconds a run may take on a busy machine; at 300 the test is ended without a word


class Daemon(ScriptedTeam):
    """A team whose workers are processes under a supervisor, and the shell of the person beside it."""

    def __init__(self, directory: Path, script: dict[str, Any] | None = None, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(directory, script, **settings)
        self.shell = Shell(self.user.directory)
        self.log = directory / "run.log"

    @contextmanager
    def running(self, *words: str) -> Iterator[LizaProcess]:
        """Run `liza run` with *words* for as long as the block lasts, and leave nothing of it."""
        run = LizaProcess("run", *words, cwd=self.user.directory, log=self.log)
        try:
            yield run
        finally:
            if run.poll() is None:
                run.terminate()
            run.wait(PATIENCE)

    def run(self) -> int:
        """Run until nobody but people can make progress; return the exit code."""
        with self.running("--until-idle") as run:
            return run.wait(PATIENCE)

    def eventually(self, is_so: Callable[[], object]) -> None:
        """Wait for something outside of the board."""
        deadline = time.monotonic() + PATIENCE
        while not is_so():
            assert time.monotonic() < deadline, self.told()
            time.sleep(0.02)

    def told(self) -> str:
        return self.log.read_text()

    def prompts(self, step: str) -> list[str]:
        """Return what the agents of *step* were given, oldest first."""
        folders = sorted((self.home / "runs").glob(f"*.{step}"), key=lambda path: path.stat().st_mtime)
        return [(folder / "prompt.md").read_text() for folder in folders]

    def runs(self, step: str) -> int:
        return len(self.prompts(step))
