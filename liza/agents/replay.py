"""A recording as an agent: the same work and the same words again, offline and for nothing."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from liza.agents.protocol import Reply, finished_runs_beside
from liza.domain.record import utc_now
from liza.errors import LizaError
from liza.repo.snapshot import Patch
from liza.system.run_control import RunEnding, sleep_unless_stopped

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from liza.agents.protocol import Brief, RecordedRun, Recording
    from liza.system.run_control import RunControl

    Apply = Callable[[Path, Patch], None]
    Rest = Callable[[RunControl, float], bool]
    Key = tuple[str, str, str | None, int]

SHORTEST_LIMIT: Final = timedelta(seconds=1)
LIMIT_ENDINGS: Final = frozenset({RunEnding.RATE_LIMITED, RunEnding.QUOTA, RunEnding.AUTH})


class ReplayAgent:
    """Plays *recording* back; *pace* 1 takes as long as it took, 0 no time at all.

    A run is found by role, step, task and iteration. Asked for the same again after that ended, the next such
    run is played, and the last one for as often as it is asked for.
    """

    def __init__(
        self, recording: Recording, apply: Apply, *, pace: float = 1.0, wait: Rest = sleep_unless_stopped
    ) -> None:
        self._recording = recording
        self._apply = apply
        self._pace = pace
        self._wait = wait
        self._asked: Counter[Key] = Counter()

    def run(self, brief: Brief, stop: RunControl) -> Reply:
        began = utc_now()
        found = self._found(brief)
        if found is None:
            return Reply(ending=RunEnding.NOT_STARTED, why=self._missing(brief), began=began)
        if not self._wait(stop, found.seconds * self._pace):
            return Reply(ending=RunEnding.STOPPED, why="it was told to stop", began=began)
        try:
            self._apply_changes(brief.cwd, found)
        except (LizaError, OSError) as error:
            why = f"what was recorded cannot be done in this tree: {error}"
            return Reply(ending=RunEnding.CRASHED, why=why, began=began)
        return _reply_of(found, began, self._pace)

    def _found(self, brief: Brief) -> RecordedRun | None:
        runs = [run for run in self._recording.runs if _request_of(brief) == (run.role, run.step, run.task)]
        exact = [run for run in runs if run.iteration == brief.iteration]
        fitting = exact or [run for run in runs if run.iteration is None]
        turn = min(self._turn(brief), len(fitting) - 1)
        return fitting[turn] if fitting else None

    def _turn(self, brief: Brief) -> int:
        """Return how often this was played already; a worker that was restarted asks what is recorded."""
        key = _key(brief)
        before = max(self._asked[key], sum(1 for other in finished_runs_beside(brief) if _key(other) == key))
        self._asked[key] = before + 1
        return before

    def _missing(self, brief: Brief) -> str:
        known = sorted({f"{run.step} {run.task or ''}".strip() for run in self._recording.runs})
        wanted = f"{brief.step} {brief.task or ''}".strip()
        return (
            f"the recording has no run of {wanted} in iteration {brief.iteration}; it has {', '.join(known)}"
        )

    def _apply_changes(self, cwd: Path, run: RecordedRun) -> None:
        for patch in run.patches:
            self._apply(cwd, patch)
        for name, content in run.files.items():
            path = _path_inside(cwd, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        for name in run.delete:
            _path_inside(cwd, name).unlink(missing_ok=True)  # a run that was killed may have done it
        if run.commit is not None:
            self._apply(cwd, Patch(message=run.commit))


def _key(brief: Brief) -> Key:
    return (*_request_of(brief), brief.iteration)


def _request_of(brief: Brief) -> tuple[str, str, str | None]:
    return brief.role, brief.step, brief.task


def _path_inside(cwd: Path, name: str) -> Path:
    """Return the path of *name*, which no link may lead out of the tree."""
    path = cwd / name
    if not path.parent.resolve().is_relative_to(cwd.resolve()):
        raise LizaError(f"{name} leads out of {cwd}")
    return path


def _reply_of(run: RecordedRun, began: datetime, pace: float) -> Reply:
    # What a provider's limit was then lasts as long as all else does; never no time, or a run would spin.
    wait = max(SHORTEST_LIMIT, timedelta(seconds=run.reset_in or 0) * pace)
    reset = utc_now() + wait if run.ending in LIMIT_ENDINGS else None
    return Reply(
        ending=run.ending,
        why=run.why,
        text=run.reply,
        code=0 if run.ending is RunEnding.DONE else None,
        usage=run.usage,
        began=began,
        seconds=run.seconds,
        reset=reset,
    )
