"""Deaths at random: SIGKILL for the supervisor of a run, its fork server, its workers and their processes."""

from __future__ import annotations

import os
import signal
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from liza.system.fork_server import SERVER_NAME
from liza.system.process import mark_of, process_table

if TYPE_CHECKING:
    import random
    from pathlib import Path

# Of the kills; who starts anew does no work.
SHARES: Final = {"agent": 10, "worker": 8, "supervisor": 2, "fork server": 1}


IMPATIENCE: Final = 0.3  # how often another kind dies instead, where there is none of the one that should


class Storm:
    """Kills what belongs to the runs on one board, and counts by kind."""

    def __init__(self, home: Path, chance: random.Random) -> None:
        self._area = str(home / "runs")
        self._chance = chance
        self.kills: Counter[str] = Counter()

    def strike(self, supervisor: int) -> None:
        """Kill one process of the run of *supervisor*, of the kind that is furthest behind its share.

        Where there is none of it at this moment, mostly nobody dies: agents come and go, workers are always
        there, and soon only workers would have died.
        """
        found = self._victims(supervisor)
        for kind in sorted(SHARES, key=lambda kind: self.kills[kind] / SHARES[kind]):
            victims = sorted(pid for pid, its in found.items() if its == kind)
            if victims:
                with suppress(ProcessLookupError):
                    os.kill(self._chance.choice(victims), signal.SIGKILL)
                    self.kills[kind] += 1
                return
            if self._chance.random() > IMPATIENCE:
                return

    def _victims(self, supervisor: int) -> dict[int, str]:
        everyone = process_table()
        children = [it for it in everyone.values() if it.parent == supervisor and it.name != "git"]
        servers = [it.pid for it in children if SERVER_NAME.startswith(it.name)]
        workers = [it.pid for it in children if it.pid not in servers]
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
            **dict.fromkeys(servers, "fork server"),
            **dict.fromkeys(workers, "worker"),
            **dict.fromkeys(agents, "agent"),
        }
