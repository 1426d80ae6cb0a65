"""The files by which people stop a run: ABORT beats PAUSE beats CHECKPOINT."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection


class Switch(IntEnum):
    """A stop, by rank; the name of each but NORMAL is the name of its file in `.liza/`."""

    NORMAL = 0
    CHECKPOINT = 1
    PAUSE = 2
    ABORT = 3


MEANING: Final[dict[Switch, str]] = {
    Switch.NORMAL: "no file is there; everybody works",
    Switch.CHECKPOINT: "everybody ends their turn, then a summary is in `checkpoints/`, and all wait",
    Switch.PAUSE: "nothing new starts; work goes on where it was when the file is removed",
    Switch.ABORT: "every agent ends, work in progress is saved, workers exit",
}
BREAKER_PREFIX: Final = "circuit breaker: "  # what the file of a switch starts with that the breaker threw
SWITCH_FILES: Final = tuple(switch.name for switch in reversed(Switch) if switch is not Switch.NORMAL)


def strongest_switch(files: Collection[str]) -> Switch:
    """Return the strongest switch among *files*."""
    return max((Switch[name] for name in SWITCH_FILES if name in files), default=Switch.NORMAL)


def resume_command(said: str) -> str:
    """Return the command that resumes the agents, given the text of a switch file."""
    if not said.startswith(BREAKER_PREFIX):
        return "liza resume"
    _, _, command = said.rstrip("`").rpartition("`")
    return command if command.startswith("liza ") else "liza breaker"


def switch_cause(said: str) -> str:
    """Return why a switch was thrown, without the command that the breaker names behind it."""
    cause, _, command = said.rpartition("; ")
    return cause if cause and said.startswith(BREAKER_PREFIX) and command.endswith("`") else said
