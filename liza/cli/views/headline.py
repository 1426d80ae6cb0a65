"""How it stands in one sentence, and what to do next: the first thing that every view says.

It loads little, so that `liza status` can say it as well.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from liza.domain.config import Switch, resume_command, strongest_switch, switch_cause
from liza.domain.model import GoalStatus, Status
from liza.domain.report_words import tally_of
from liza.domain.waits import human_waits

if TYPE_CHECKING:
    from collections.abc import Mapping

    from liza.domain.model import State
    from liza.domain.report_words import Tally
    from liza.domain.waits import HumanWait


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
    then = f"git merge {state.config.integration_branch}" if merged else _after_nothing_merged(state)
    word = "complete" if state.goal.status is GoalStatus.COMPLETE else "abandoned"
    ended = f"; {state.goal.search_ended}" if state.goal.search_ended else ""
    return Headline(RunStanding.OVER, f"The goal is {word}: {tally}{ended}", then)


def _after_nothing_merged(state: State) -> str:
    return "liza experiment" if state.config.experiment.sweep else 'liza goal "…"; liza run'


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
