"""How it stands in one sentence, and what to do next: the first thing that every view says.

It loads little, so that `liza status` can say it as well.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain.model import SUCCEEDED, GoalStatus, Status
from liza.domain.switches import Switch, resume_command, strongest_switch, switch_cause
from liza.domain.waits import human_waits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from liza.domain.model import State
    from liza.domain.waits import HumanWait

GIVEN_UP: Final = frozenset({Status.ABANDONED, Status.SUPERSEDED})


class RunStanding(StrEnum):
    """How a run stands, in one word."""

    OVER = "over"
    HALTED = "halted"  # by a switch, or by a full disk
    WAITING = "waiting"  # only people can make progress
    STOPPED = "stopped"  # no supervisor runs
    GOING = "going"


class Headline(NamedTuple):
    """One sentence on how it stands, and the command to type next; empty where there is nothing to do."""

    standing: RunStanding
    says: str
    command: str

    def __str__(self) -> str:
        return self.told(None)

    def told(self, width: int | None) -> str:
        """Return both in a line; in two where they do not fit into one of *width*."""
        if not self.command:
            return f"{self.says}."
        line = f"{self.says}. Next: `{self.command}`."
        is_long = width is not None and len(line) > width
        return f"{self.says}.\nNext: {self.command}" if is_long else line


class Tally(NamedTuple):
    """How many tasks there are, by what became of them."""

    total: int
    done: int  # they succeeded
    given_up: int  # abandoned or superseded
    by_status: Mapping[str, int]

    @property
    def ended(self) -> int:
        return self.done + self.given_up

    def __str__(self) -> str:
        return f"{self.done} of {self.total - self.given_up} tasks done" if self.total else "no task yet"


def tally_of(state: State) -> Tally:
    """Return how many tasks of *state* are where, those that left the board included."""
    counts = Counter(task.status for task in state.tasks.values()) + Counter(state.archived.values())
    done = sum(counts[status] for status in SUCCEEDED)
    given_up = sum(counts[status] for status in GIVEN_UP)
    by_status = {str(status): counts[status] for status in Status if counts[status]}
    return Tally(counts.total(), done, given_up, by_status)


def headline_of(
    state: State,
    switches: Mapping[str, str],
    *,
    is_running: bool,
    only: tuple[HumanWait, ...] = (),
    shortage: str | None = None,
) -> Headline:
    """Return the headline of *state*.

    *only* is what waits for people where nobody else can make progress, which takes more to find out;
    *shortage* is why the disk lets nothing new start.
    """
    tally = tally_of(state)
    if state.goal.is_over:
        return _over(state, tally)
    if halted := _halt(switches, shortage):
        return halted._replace(says=f"{halted.says}; {tally}")
    waits = human_waits(state)
    asks = f"{len(waits)} question{'s' if len(waits) > 1 else ''} for you" if waits else ""
    if only:
        then = only[0].then
        command = then if is_running or then.endswith("liza run") else f"{then}; liza run"
        count = asks or "nobody else can go on"
        return Headline(RunStanding.WAITING, f"It waits for you: {tally}, {count}; {only[0].what}", command)
    parts = [str(tally), *([asks] if asks else [])]
    if not is_running:
        then = (
            f"{waits[0].then}; liza run" if waits and not waits[0].then.endswith("liza run") else "liza run"
        )
        return Headline(RunStanding.STOPPED, f"Nobody works: {', '.join(parts)}", then)
    held = [f"{task.lease.holder} on {task.id}" for task in state.tasks.values() if task.lease]
    parts[1:1] = [_shortened(held)] if held else []
    return Headline(RunStanding.GOING, f"It goes on: {', '.join(parts)}", waits[0].then if waits else "")


_SHOWN: int = 3  # holders that a sentence names


def _shortened(held: list[str]) -> str:
    more = f" and {len(held) - _SHOWN} more" if len(held) > _SHOWN else ""
    return ", ".join(held[:_SHOWN]) + more


def _over(state: State, tally: Tally) -> Headline:
    merged = tally.by_status.get(Status.MERGED, 0)
    then = f"git merge {state.config.integration_branch}" if merged else 'liza goal "…"; liza run'
    word = "complete" if state.goal.status is GoalStatus.COMPLETE else "abandoned"
    return Headline(RunStanding.OVER, f"The goal is {word}: {tally}", then)


def _halt(switches: Mapping[str, str], shortage: str | None) -> Headline | None:
    switch = strongest_switch(switches)
    if switch is not Switch.NORMAL:
        said = switches[switch.name]
        cause = switch_cause(said)
        why = f"{switch.name} is thrown{f' ({cause})' if cause else ''}"
        return Headline(RunStanding.HALTED, f"Nothing new starts: {why}", resume_command(said))
    return (
        Headline(RunStanding.HALTED, f"Nothing new starts: {shortage}", "liza status") if shortage else None
    )
