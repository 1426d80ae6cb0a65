"""The shortest time in which a team could do its tasks if nothing but its agents took any time."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

CODING: Final = 2  # steps of an agent before a task is handed in: checkpoint and implement
REVIEWING: Final = 1


class Team(NamedTuple):
    coders: int
    reviewers: int


def ideal(waits_for: Sequence[int | None], team: Team, step: float) -> float:
    """Return the seconds that list scheduling takes: whoever is free does the first task that can be done.

    *waits_for* has the tasks in the order in which they are taken, each with the number of the one that
    must be merged before it, if any; *step* is what an agent takes for a step.
    """
    coders, reviewers, now = team.coders, team.reviewers, 0.0
    waiting = list(range(len(waits_for)))
    handed_in: deque[int] = deque()
    merged: set[int | None] = {None}
    ends: list[tuple[float, int, bool]] = []  # when, which task, and whether it is merged then
    while len(merged) <= len(waits_for):
        able = [task for task in waiting if waits_for[task] in merged][:coders]
        for task in able:
            waiting.remove(task)
            heappush(ends, (now + CODING * step, task, False))
        coders -= len(able)
        while handed_in and reviewers:
            heappush(ends, (now + REVIEWING * step, handed_in.popleft(), True))
            reviewers -= 1
        now, task, is_merged = heappop(ends)
        if is_merged:
            merged.add(task)
            reviewers += 1
        else:
            handed_in.append(task)
            coders += 1
    return now
