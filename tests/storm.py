"""Deaths at random: SIGKILL for the supervisor of a run, for its workers and for what they started."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from liza.agents.sweep import mark_of, table

if TYPE_CHECKING:
    import random
    from pathlib import Path

SHARES: Final = {"agent": 5, "worker": 4, "supervisor": 1}  # of the kills; who starts anew does no work


class Storm:
    """Kills what belongs to the runs on one board, and counts by kind."""

    def __init__(self, home: Path, chance: random.Random) -> None:
        self._area = str(home / "runs")
        self._chance = chance
        self.kills: Counter[str] = Counter()

    def strike(self, supervisor: int) -> None:
        """Kill one process of the run of *supervisor*, if there is one of the kind that chance chose."""
        found = self._victims(supervisor)
        if not found:
            return
        kind = self._chance.choices(list(SHARES), list(SHARES.values()))[0]
        victims = sorted(pid for pid, its in found.items() if its == kind)
        with suppress(ProcessLookupError, IndexError):  # there may be no agent at this moment
            os.kill(self._chance.choice(victims), signal.SIGKILL)
            self.kills[kind] += 1

    def _victims(self, supervisor: int) -> dict[int, str]:
        everyone = table()
        workers = [pid for pid, it in everyone.items() if it.parent == supervisor and it.name != "git"]
        # An agent whose git is killed fails by itself: that tells nothing about who kills agents.
        agents = [
            pid
            for pid, it in everyone.items()
            if it.name != "git" and (mark_of(pid) or "").startswith(self._area)
        ]
        # One that has no worker yet is left alone, or it never gets anywhere.
        if not workers:
            return {}
        return {
            supervisor: "supervisor",
            **dict.fromkeys(workers, "worker"),
            **dict.fromkeys(agents, "agent"),
        }
