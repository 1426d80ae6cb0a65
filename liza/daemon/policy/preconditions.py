"""What has to be true of a run before any worker takes a turn: the goal, the switches, the supervisor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from liza.daemon.policy.conditions import Blocker
from liza.domain.model import State
from liza.domain.switches import MEANING, Switch, resume_command, strongest_switch, switch_cause


class RunContext(NamedTuple):
    """A run: its board, the thrown switches with their texts, whether a supervisor runs, and whether the disk
    is full.
    """

    state: State
    switches: Mapping[str, str]
    is_running: bool = True
    shortage: str | None = None  # why the disk lets nothing new start

    @property
    def switch(self) -> Switch:
        return strongest_switch(self.switches)


class Precondition(NamedTuple):
    """A condition of every turn. Where it does not hold, a worker waits, or *ends*."""

    holds: Callable[[RunContext], bool]
    blocker: Callable[[RunContext], Blocker]
    ends: bool = False


def first_unmet(setting: RunContext) -> tuple[Precondition, Blocker] | None:
    """Return the first condition that keeps every worker from its turn, with what to tell people."""
    for one in PRECONDITIONS:
        if not one.holds(setting):
            return one, one.blocker(setting)
    return None


def _goal_blocker(setting: RunContext) -> Blocker:
    goal = setting.state.goal
    return Blocker(f"the goal is {goal.status}", "you", 'liza goal "…"; liza run', goal.completed)


def _switch_blocker(setting: RunContext) -> Blocker:
    name = setting.switch.name
    said = setting.switches[name]
    cause = switch_cause(said)
    what = f"{name} is thrown{f' ({cause})' if cause else ''}: {MEANING[setting.switch]}"
    return Blocker(what, "you", resume_command(said))


def _disk_blocker(setting: RunContext) -> Blocker:
    return Blocker(str(setting.shortage), "you", "liza status")


def _supervisor_blocker(_: RunContext) -> Blocker:
    return Blocker("nobody works, because no supervisor runs", "you", "liza run")


# All others come before it.
SUPERVISOR_RUNS: Final = Precondition(lambda setting: setting.is_running, _supervisor_blocker)
PRECONDITIONS: Final = (
    Precondition(lambda setting: not setting.state.goal.is_over, _goal_blocker, ends=True),
    Precondition(lambda setting: setting.switch is not Switch.ABORT, _switch_blocker, ends=True),
    Precondition(lambda setting: setting.switch is Switch.NORMAL, _switch_blocker),
    Precondition(lambda setting: setting.shortage is None, _disk_blocker),
    SUPERVISOR_RUNS,
)
