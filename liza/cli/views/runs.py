"""Runs of agents as they lie on disk: who was asked for what, when, and what came of it."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.agents.protocol import BRIEF, REPLY, STDOUT, Reply, did_nothing
from liza.domain.model import Provenance
from liza.system.run_control import RunEnding

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

RUNS: Final = "runs"  # the folder in `.liza/`
GATE: Final = "gate"  # the role of a run that is a command of a gate
_STAMP: Final = "%Y%m%dT%H%M%S"  # of the second at which a run began, in its name


class RunRecord(NamedTuple):
    """One run. *ending* is None while it goes on, and where its worker died before it could say."""

    run: str
    worker: str
    role: str
    step: str
    task: str | None
    began: datetime
    is_again: bool = False  # its first answer could not be used
    ending: RunEnding | None = None
    why: str = ""
    seconds: float = 0.0
    model: str | None = None
    usd: float = 0.0
    tokens: int = 0
    provenance: Provenance = Provenance.UNKNOWN
    has_worked: bool = True


class RunFolder:
    """The folder of all runs; what has ended is read once."""

    def __init__(self, home: Path, shared: str | None = None) -> None:
        self.path = home / RUNS
        self._shared = home.parent / shared if shared else None  # what other machines copied
        self._ended: dict[str, RunRecord] = {}
        self._without_agent: set[str] = set()  # runs of gates, which have no brief

    def records(self) -> tuple[RunRecord, ...]:
        """Return the runs of agents in the order in which they began."""
        return tuple(sorted(filter(None, map(self.record, self._names())), key=_order))

    def latest(self, workers: Collection[str]) -> list[RunRecord]:
        """Return the run that each of *workers* began last, of an agent or of a gate."""
        newest: dict[str, str] = {}
        for name in self.names():
            newest[worker_of(name)] = name
        names = [newest[worker] for worker in workers if worker in newest]
        return [found for name in names if (found := self.record(name) or self._gate_record(name))]

    def _gate_record(self, name: str) -> RunRecord | None:
        """Return the run of a gate's command; nobody writes down that it ended."""
        if name not in self._without_agent:
            return None
        step = name.rpartition(".")[2]
        with suppress(OSError):  # it is gone
            return RunRecord(name, worker_of(name), GATE, step, None, _began(self.folder(name)))
        return None

    def names(self) -> list[str]:
        """Return the name of every run, of agents and of gates, in the order in which they began."""
        return sorted(self._names(), key=run_start)

    def folder(self, name: str) -> Path:
        """Return where the run *name* is, or would be."""
        here = self.path / name
        return here if self._shared is None or here.is_dir() else self._shared / name

    def _names(self) -> list[str]:
        there = _folders(self._shared) if self._shared else []
        return list(dict.fromkeys([*_folders(self.path), *there]))

    def record(self, name: str) -> RunRecord | None:
        """Return the run *name* of an agent; None where it is a gate's, or nothing can be read of it."""
        if name in self._ended or name in self._without_agent:
            return self._ended.get(name)
        found = None
        with suppress(OSError, ValueError, KeyError):  # half written by a worker that died
            found = read_run(self.folder(name))
        if found and found.ending is not None:
            self._ended[name] = found
        elif (self.folder(name) / STDOUT).exists() and not (self.folder(name) / BRIEF).exists():
            self._without_agent.add(name)  # the brief of an agent is there before it can print
        return found


def _folders(path: Path) -> list[str]:
    """Return the names of the runs in *path*; one that begins with a dot is still being copied."""
    try:
        found = [entry.name for entry in os.scandir(path) if entry.is_dir(follow_symlinks=False)]
    except OSError:  # nothing has run yet, or somebody tidied up
        return []
    return [name for name in found if not name.startswith(".")]


def worker_of(run: str) -> str:
    return run.partition(".")[0]


def run_start(run: str) -> tuple[str, int]:
    """Return the start of *run* by its name: the second, and its number within that second."""
    _, second, number, *_ = (*run.split("."), "", "")
    count = number.partition("-")[0]
    return second, int(count) if count.isdecimal() else 0


def _order(record: RunRecord) -> tuple[datetime, str]:
    return record.began, record.run


def read_run(folder: Path) -> RunRecord:
    """Return the run that is recorded in *folder*."""
    brief = json.loads((folder / BRIEF).read_bytes())
    record = RunRecord(
        run=folder.name,
        worker=worker_of(folder.name),
        role=brief["role"],
        step=brief["step"],
        task=brief.get("task"),
        began=_began(folder),
        is_again=bool(brief.get("is_again")),
    )
    path = folder / REPLY
    return _with_reply(record, json.loads(path.read_bytes())) if path.exists() else record


def _began(folder: Path) -> datetime:
    try:
        return datetime.strptime(run_start(folder.name)[0], _STAMP).replace(tzinfo=UTC)
    except ValueError:  # a name that Liza did not give
        return datetime.fromtimestamp(folder.stat().st_mtime, UTC)


def _with_reply(record: RunRecord, reply: dict[str, Any]) -> RunRecord:
    usage = reply.get("usage") or {}
    return record._replace(
        began=datetime.fromisoformat(reply["began"]),
        ending=RunEnding(reply["ending"]),
        why=reply.get("why") or "",
        seconds=reply.get("seconds") or 0.0,
        model=usage.get("model"),
        usd=usage.get("usd") or 0.0,
        tokens=(usage.get("tokens_in") or 0) + (usage.get("tokens_out") or 0),
        provenance=Provenance(usage.get("provenance", Provenance.UNKNOWN)),
        has_worked=not did_nothing(Reply.model_validate(reply)),
    )
