"""Results of the project's commands by tree, cached on disk.

A result holds until the settings change. A red one is not trusted for ever: it is tried again before a run is
refused because of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from liza.domain.config import Config
from liza.domain.record import NonEmptyStr, Record, Time
from liza.system.files import overwrite
from liza.system.run_control import RunEnding

FOLDER: Final = "baseline"  # in `.liza/`
MOST_KEPT: Final = 300  # files; the oldest go first


class CachedResult(Record):
    """What a command came to on a tree."""

    line: NonEmptyStr
    tree: str
    at: Time
    code: int | None = None
    ending: RunEnding = RunEnding.DONE
    is_green: bool = False
    is_empty: bool = False  # there is no test yet, for which most runners are red
    failed: tuple[str, ...] | None = None  # the tests that failed; None where some may be unseen
    is_reported: bool = False  # the runner wrote its report
    passed: int | None = None  # how many tests did, where the runner tells
    names: tuple[str, ...] = ()  # of those that did, where it wrote its report
    cause: str | None = None
    tail: str = ""
    run: str | None = None
    seconds: float = 0.0

    @property
    def known_red(self) -> frozenset[str]:
        """The tests that are red on this tree, so that work on it need not answer for them."""
        return frozenset(self.failed or ())

    @property
    def is_usable(self) -> bool:
        """Whether work can be judged by comparison: green, nothing to test yet, or known by name."""
        return self.is_green or self.is_empty or bool(self.failed)


class ResultCache:
    """A cache of results; without a folder it lives as long as the process."""

    def __init__(self, folder: Path | None = None, config: Config | None = None) -> None:
        self._folder = folder
        # What decides where a command runs is part of what it came to.
        around = (config.gates.setup, config.sandbox.to_json(), config.worktree.to_json()) if config else ()
        self._around = json.dumps(around, sort_keys=True, default=str)
        self._known: dict[str, CachedResult] = {}

    def of(self, tree: str, line: str, about: str = "") -> CachedResult | None:
        """Return what *line* came to on *tree*; *about* tells several questions to one command apart."""
        key = self._key(tree, line, about)
        if key not in self._known and self._folder is not None:
            with suppress(OSError, ValidationError, UnicodeDecodeError):
                text = (self._folder / f"{key}.json").read_text(encoding="utf-8")
                self._known[key] = CachedResult.model_validate_json(text)
        return self._known.get(key)

    def keep(self, result: CachedResult, about: str = "") -> None:
        key = self._key(result.tree, result.line, about)
        self._known[key] = result
        if self._folder is None:
            return
        with suppress(OSError):  # it is only asked again; a full disk is told by those who need it
            self._folder.mkdir(parents=True, exist_ok=True)
            overwrite(self._folder / f"{key}.json", result.model_dump_json(exclude_none=True))
            self._evict(self._folder.glob("*.json"))

    def _key(self, tree: str, line: str, about: str) -> str:
        return hashlib.sha256(json.dumps([tree, line, about, self._around]).encode()).hexdigest()[:32]

    def _evict(self, files: Iterable[Path]) -> None:
        paths = list(files)
        if len(paths) <= MOST_KEPT:
            return
        for path in sorted(paths, key=lambda one: one.stat().st_mtime)[: len(paths) - MOST_KEPT]:
            path.unlink(missing_ok=True)
