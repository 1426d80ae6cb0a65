"""Running `liza` as a process of its own, without paying for an interpreter and its imports each time."""

from __future__ import annotations

import gc
import json
import logging
import os
import pkgutil
import sys
import tempfile
import traceback
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import liza

# Imported here, so that no child has to.
import tests.support.prebuilt_models  # noqa: F401
from liza.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


class Done(NamedTuple):
    code: int
    out: str
    err: str


@cache
def _import_all() -> None:
    """Import all of Liza and what it imports: another user may not be able to read where Python lies."""
    for module in pkgutil.walk_packages(liza.__path__, "liza."):
        if not module.name.endswith("__main__"):
            import_module(module.name)


class Shell:
    """Runs commands in one directory, each in a forked child: a process with files and an exit code."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.home = directory / ".liza"
        self.state = self.home / "state.yaml"

    def __call__(self, *words: str, user: int | None = None, **environment: str) -> Done:
        if user is not None:
            _import_all()
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            child = os.fork()
            if child == 0:
                os._exit(self._child(words, user, environment, out.fileno(), err.fileno()))
            code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            out.seek(0)
            err.seek(0)
            return Done(code, out.read().decode(), err.read().decode())

    def _child(
        self, words: tuple[str, ...], user: int | None, environment: dict[str, str], out: int, err: int
    ) -> int:
        gc.freeze()  # what the tests before left behind is theirs to collect, and to complain about
        logging.getLogger().handlers.clear()  # of pytest, and perhaps of a stream that is closed
        try:
            os.chdir(self.directory)
            os.environ.update(environment, PYTHONPATH=str(ROOT))
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(out, 1)
            os.dup2(err, 2)
            sys.stdin, sys.stdout, sys.stderr = (os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w"))
            if user is not None:
                os.setgroups([])
                os.setgid(user)
                os.setuid(user)
            main(words)
        except SystemExit as end:
            return int(end.code or 0)
        except BaseException:  # noqa: BLE001 - the child must not go on as a second pytest
            traceback.print_exc()
            return 70
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
        return 70

    def ok(self, *words: str, **environment: str) -> str:
        done = self(*words, user=None, **environment)
        assert done.code == 0, done
        return done.out

    def board(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ok("status", "--json"))
        return found

    def edit(self, old: str, new: str) -> str:
        """Save state.yaml with one thing changed, as an editor does, and return the text."""
        text = self.state.read_text()
        assert old in text
        edited = text.replace(old, new, 1)
        self.state.write_text(edited)
        return edited

    def kept(self) -> list[str]:
        return [path.read_text() for path in sorted((self.home / "rejected").glob("*.yaml"))]
