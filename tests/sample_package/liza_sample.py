"""A package that adds one of each: gate, effect, agent backend, channel, forge and board engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from liza.agents.command import CommandAgent
from liza.board import file_engine
from liza.daemon.notify import Channel
from liza.domain.record import NonEmptyStr, Record
from liza.forges.local import LocalOptions, open_local
from liza.forges.protocol import ForgeType
from liza.gates.context import blocker, let_pass, revise
from liza.gates.registry import EffectType, GateType
from liza.system.files import append_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from liza.agents.protocol import Agent, Brief, Reply
    from liza.agents.replay import Apply
    from liza.board.protocol import Board, Glance
    from liza.daemon.notify import Message
    from liza.domain.config import AgentChoice
    from liza.domain.model import State
    from liza.forges.protocol import Forge
    from liza.gates.context import Finding, GateContext
    from liza.system.run_control import RunControl
    from liza.system.sandbox.bubblewrap import Sandbox


class WordOptions(Record):
    forbidden: NonEmptyStr


def judge_words(options: WordOptions, case: GateContext) -> Finding:
    """Refuse work that has the forbidden word in it."""
    if options.forbidden in case.repository.git("diff", case.base, case.head):
        return revise("a forbidden word is in it", [blocker(f"remove the word {options.forbidden}")])
    return let_pass(f"nobody wrote {options.forbidden}")


class FileOptions(Record):
    file: Path


def publish(options: FileOptions, case: GateContext) -> Finding:
    """Write down which task is about to be merged."""
    append_line(options.file, f"published {case.task.id}")
    return let_pass("it is published")


def send(options: FileOptions, message: Message, _patience: float) -> str | None:
    append_line(options.file, f"{message.project}: {message.alert}")
    return None


class SampleAgent:
    """Runs a program, and counts the steps that it was asked for."""

    def __init__(self, choice: AgentChoice, sandbox: Sandbox) -> None:
        log, *command = choice.command or ()
        self._log = Path(log)
        self._agent = CommandAgent(tuple(command), sandbox=sandbox)

    def run(self, brief: Brief, stop: RunControl) -> Reply:
        append_line(self._log, f"asked for {brief.step}")
        return self._agent.run(brief, stop)


def make_agent(choice: AgentChoice, _root: Path, _apply: Apply, sandbox: Sandbox) -> Agent:
    return SampleAgent(choice, sandbox)


class Engine:
    """Boards in files, at an address."""

    def exists(self, location: str) -> bool:
        return file_engine.exists(_path(location))

    def open_location(self, location: str, *, home: Path | None = None) -> Board:
        return file_engine.open_location(_path(location), home=home)

    def create(self, location: str, state: State, *, by: str, home: Path | None = None) -> Board:
        return file_engine.create(_path(location), state, by=by, home=home)

    def glance(self, location: str, *, home: Path | None = None) -> Glance | None:
        return file_engine.glance(_path(location), home=home)

    def validate(self, location: str, *, home: Path | None = None) -> State:
        return file_engine.validate(_path(location), home=home)

    def lines(self, location: str) -> list[bytes]:
        return file_engine.lines(_path(location))

    def restore(self, location: str, journal: Sequence[bytes]) -> None:
        file_engine.restore(_path(location), journal)

    def grant(self, location: str, right: str, role: str) -> None:
        file_engine.grant(_path(location), right, role)


def _path(location: str) -> str:
    return location.removeprefix("sample://")


class FolderOptions(Record):
    folder: NonEmptyStr


def open_folder(options: FolderOptions, root: Path) -> Forge:
    return open_local(LocalOptions(path=options.folder), root)


words = GateType(WordOptions, judge_words, "no forbidden word is in the change")
publishing = EffectType(FileOptions, publish, "what is about to be merged is written down")
to_file = Channel(FileOptions, send)
engine = Engine()
folder_forge = ForgeType(FolderOptions, open_folder)
