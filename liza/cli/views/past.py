"""What happened so far, out of the journal: every move of every task, as values that can be added to.

The board shows only the latest history of a task; the journal has all of it, also of tasks that left.
"""

from __future__ import annotations

from collections import defaultdict
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.domain.changes import sum_metrics
from liza.domain.lifecycle import ADDED, SUCCEEDED, TERMINAL
from liza.domain.model import Metrics, Sprint, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from liza.board.protocol import JournalEntry

_TAKERS: Final = frozenset({"claim", "take_review"})  # the events by which a worker begins to hold a task
_LEAVERS: Final = frozenset({"release", "reclaim"})  # those by which it holds it no more, and nothing moved


class TaskMove(NamedTuple):
    """One entry of a task's history, as the journal has it."""

    at: datetime
    task: str
    event: str
    by: str
    source: str | None
    target: str
    reason: str


class BoardPast(NamedTuple):
    """All that happened up to a revision; `extend` adds what came after."""

    revision: int = 0
    began: datetime | None = None
    latest: datetime | None = None
    moves: tuple[TaskMove, ...] = ()
    descriptions: Mapping[str, str] = {}  # of every task that ever was, by id
    sprints: Mapping[int, Metrics] = {}  # what each sprint came to, by number
    merges: Mapping[str, str] = {}  # the commit by which each task was merged

    def extend(self, entries: Iterable[JournalEntry]) -> BoardPast:
        """Return the past with *entries*, which come right after it."""
        moves, sprints, descriptions = list(self.moves), dict(self.sprints), dict(self.descriptions)
        merges = dict(self.merges)
        revision, began, latest = self.revision, self.began, self.latest
        for entry in entries:
            revision, latest = entry.revision, entry.at
            began = began or entry.at
            for name, fields in _tasks_in(entry):
                descriptions.update({name: fields["description"]} if fields.get("description") else {})
                merges.update({name: fields["merge_commit"]} if fields.get("merge_commit") else {})
                moves += (_move(name, event) for event in fields.get("history", ()))
            if "sprint" in entry.put:
                sprint = Sprint.model_validate(entry.put["sprint"])
                sprints[sprint.number] = sprint.metrics
        return BoardPast(revision, began, latest, tuple(moves), descriptions, sprints, merges)

    @property
    def metrics(self) -> Metrics:
        """What all sprints came to together."""
        return sum_metrics(self.sprints.values())


def _tasks_in(entry: JournalEntry) -> Iterator[tuple[str, dict[str, Any]]]:
    put = entry.put.get("tasks", {})
    # The first entry is a whole board, as the file has it; all others say what changed, by id.
    yield from ((one["id"], one) for one in put) if isinstance(put, list) else put.items()


def _move(task: str, event: dict[str, Any]) -> TaskMove:
    return TaskMove(
        at=datetime.fromisoformat(event["at"]),
        task=task,
        event=event["event"],
        by=event["by"],
        source=event.get("from"),
        target=event["to"],
        reason=str((event.get("facts") or {}).get("reason") or ""),
    )


class TimelineSpan(NamedTuple):
    """A stretch of one task in one status; *worker* is who held it, if anybody did."""

    task: str
    status: str
    began: datetime
    ended: datetime | None  # None: it is still there
    worker: str | None
    ended_by: str | None  # the event that ended it, such as `reject`
    reason: str  # what that event said

    def seconds(self, now: datetime) -> float:
        return max(0.0, ((self.ended or now) - self.began).total_seconds())


def timeline(moves: Iterable[TaskMove]) -> tuple[TimelineSpan, ...]:
    """Return where each task was and who held it, by the time at which that began."""
    by_task: defaultdict[str, list[TaskMove]] = defaultdict(list)
    for move in moves:
        by_task[move.task].append(move)
    spans = [span for found in by_task.values() for span in _spans(found)]
    return tuple(sorted(spans, key=lambda span: (span.began, span.task)))


def _spans(moves: list[TaskMove]) -> Iterator[TimelineSpan]:
    begin, holder = moves[0], None
    for move in moves[1:]:
        taker = move.by if move.event in _TAKERS else None if move.event in _LEAVERS else holder
        if move.target == begin.target and taker == holder:
            continue  # a checkpoint, a note: nothing moved
        yield TimelineSpan(begin.task, begin.target, begin.at, move.at, holder, move.event, move.reason)
        holder = taker if move.event in _TAKERS else None
        begin = move
    if begin.target not in TERMINAL:
        yield TimelineSpan(begin.task, begin.target, begin.at, None, holder, None, "")


class BurnUpPoint(NamedTuple):
    """How many tasks there were at a moment, and how many of them were over."""

    at: datetime
    total: int
    done: int
    given_up: int


def burn_up(moves: Iterable[TaskMove]) -> tuple[BurnUpPoint, ...]:
    """Return a point for each moment at which the number of tasks, or of those that are over, changed."""
    points: list[BurnUpPoint] = []
    total = done = given_up = 0
    for move in sorted(moves):
        if move.event != ADDED and (move.target not in TERMINAL or move.source == move.target):
            continue
        total += move.event == ADDED
        done += Status(move.target) in SUCCEEDED
        given_up += Status(move.target) in TERMINAL - SUCCEEDED
        if points and points[-1].at == move.at:
            points.pop()
        points.append(BurnUpPoint(move.at, total, done, given_up))
    return tuple(points)


def seconds_by_status(spans: Iterable[TimelineSpan], now: datetime) -> dict[str, float]:
    """Return how long tasks were in each status, in the order of the lifecycle."""
    spent: defaultdict[str, float] = defaultdict(float)
    for span in spans:
        spent[span.status] += span.seconds(now)
    return {str(status): round(spent[status], 1) for status in Status if spent[status]}
