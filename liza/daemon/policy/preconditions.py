"""What has to be true of a run before any worker takes a turn: the goal, the switches, the supervisor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from liza.daemon.policy.conditions import Hindrance
from liza.domain.model import State
from liza.domain.switches import MEANING, Switch, thrown, way_on


class Setting(NamedTuple):
    """A run from outside: its board, the switches that are thrown with what they say, and whether it runs."""

    state: State
    switches: Mapping[str, str]
    is_running: bool = True
    shortage: str | None = None  # why the disk lets nothing new start

    @property
    def switch(self) -> Switch:
        return thrown(self.switches)


class Precondition(NamedTuple):
    """A condition of every turn. Where it does not hold, a worker waits, or *ends*."""

    holds: Callable[[Setting], bool]
    hindrance: Callable[[Setting], Hindrance]
    ends: bool = False


def hindered(setting: Setting) -> tuple[Precondition, Hindrance] | None:
    """Return the first condition that keeps every worker from its turn, with what to tell people."""
    for one in PRECONDITIONS:
        if not one.holds(setting):
            return one, one.hindrance(setting)
    return None


def _closed(setting: Setting) -> Hindrance:
    goal = setting.state.goal
    return Hindrance(f"the goal is {goal.status}", "you", 'liza goal "…"; liza run', goal.completed)


def _switched(setting: Setting) -> Hindrance:
    name = setting.switch.name
    said = setting.switches[name]
    what = f"{name} is thrown{f' ({said})' if said else ''}: {MEANING[setting.switch]}"
    return Hindrance(what, "you", way_on(said))


def _cramped(setting: Setting) -> Hindrance:
    return Hindrance(str(setting.shortage), "you", "liza status")


def _nobody(_: Setting) -> Hindrance:
    return Hindrance("nobody works, because no supervisor runs", "you", "liza run")


NOBODY: Final = Precondition(lambda setting: setting.is_running, _nobody)  # all others come before it
PRECONDITIONS: Final = (
    Precondition(lambda setting: not setting.state.goal.is_over, _closed, ends=True),
    Precondition(lambda setting: setting.switch is not Switch.ABORT, _switched, ends=True),
    Precondition(lambda setting: setting.switch is Switch.NORMAL, _switched),
    Precondition(lambda setting: setting.shortage is None, _cramped),
    NOBODY,
)
