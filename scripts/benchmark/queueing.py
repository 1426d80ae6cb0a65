"""How often a merge is tried where several reviewers have something to merge at once."""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.domain.config import Workers
from scripts.benchmark.projects import Project, task
from scripts.benchmark.speed import progress
from scripts.benchmark.tables import Table

REVIEWERS: Final = 4
PATIENCE: Final = 300.0  # seconds for a run of agents that answer at once, on a busy machine
TRIED, MERGED = "start_merge", "merge"


class Queue(NamedTuple):
    merged: int
    tried: int
    seconds: float


def run_queue(place: Path, tasks: int) -> Queue | str:
    progress(f"{tasks} merges by {REVIEWERS} reviewers")
    with TemporaryDirectory(prefix="queue-", dir=place) as name:
        project = Project(Path(name), Workers(planner=1, coder=REVIEWERS, reviewer=REVIEWERS), 0.0)
        project.add(*(task(f"t{number}") for number in range(tasks)))
        begun = time.monotonic()
        with project.running() as run:
            run.wait(PATIENCE)
        took = time.monotonic() - begun
        # By the journal: tasks that are done leave the board once there are many.
        events = [event for history in project.histories().values() for _, event in history]
        if (merged := events.count(MERGED)) != tasks:
            return f"{merged} of {tasks} were merged: {project.last_words()}"
        return Queue(merged, events.count(TRIED), took)


def queue_table(queue: Queue | str) -> Table:
    table = Table(
        f"Merges by {REVIEWERS} reviewers, agents that answer at once", ("merged", "tried", "seconds")
    )
    if isinstance(queue, str):
        table.notes.append(queue)
    else:
        table.add(*queue)
    return table
