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
BREAKER: Final = "circuit breaker: "  # what the file of a switch starts with that the breaker threw
FILES: Final = tuple(switch.name for switch in reversed(Switch) if switch is not Switch.NORMAL)


def thrown(files: Collection[str]) -> Switch:
    """Return the switch that counts, given the names of the files that are there."""
    return max((Switch[name] for name in FILES if name in files), default=Switch.NORMAL)


def way_on(said: str) -> str:
    """Return the command that lets the agents go on, given what the file of a switch says."""
    return "liza breaker" if said.startswith(BREAKER) else "liza resume"
