"""A run as people look on: who works on what since when, how far it is, and what happened last.

All of it is a function of the board and the time, so that a second terminal shows the same.
"""

from __future__ import annotations

from collections import Counter
from heapq import nlargest
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.cli.views.forecast import forecast_of, forecast_text
from liza.cli.views.headline import tally_of
from liza.cli.views.status import money_lines
from liza.daemon.policy import planner
from liza.daemon.reports.words import duration_text
from liza.domain.lifecycle import TERMINAL
from liza.domain.model import ANSWER_PLAN, GoalStatus, Role, Status, WorkerStatus
from liza.domain.switches import resume_command, switch_cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from liza.domain.model import HistoryEntry, Refusal, State, Task, WorkerRecord

SHOWN_EVENTS: Final = 8
SHOWN_TASKS: Final = 12  # questions and holders come first; a board may have thousands of tasks
# The names of events as people read them, where another thing has the same name.
EVENT_WORDS: Final = {"pre_execution_checkpoint": "announced its work"}
_BAR: Final = 30  # characters
_MINUTE: Final = 60
_HOUR: Final = 3600


class NewsItem(NamedTuple):
    """One thing that happened."""

    at: datetime
    by: str
    what: str

    def __str__(self) -> str:
        return f"{self.at:%H:%M:%S}  {self.by:<12} {self.what}"


def progress_lines(state: State, now: datetime, switches: Mapping[str, str]) -> list[str]:
    """Return the view of *state* at *now*; *switches* are the files that are thrown, with what they say."""
    return [
        f"{_first_line(state.goal.description)} ({state.goal.status}, revision {state.revision})",
        *(
            f"{name}: {switch_cause(said) or 'thrown'} (`{resume_command(said)}` goes on)"
            for name, said in switches.items()
        ),
        *money_lines(state),
        _tally(state),
        *filter(None, [forecast_text(forecast_of(state, now), now, is_going=not switches)]),
        "",
        *_workers(state, now),
        *_all_question_lines(state),
        "",
        *map(str, latest_news(state)),
    ]


def _tally(state: State) -> str:
    statuses = [*(task.status for task in state.tasks.values()), *state.archived.values()]
    counts = Counter(statuses)
    if not statuses:
        return "no task yet"
    done = sum(counts[status] for status in TERMINAL)
    full = _BAR * done // len(statuses)
    tally = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    return f"[{'#' * full}{'.' * (_BAR - full)}] {done} of {len(statuses)} done: {tally}"


def progress_sentence(state: State, now: datetime, switches: Mapping[str, str]) -> str:
    """Return in one line how far it is, and when it will be done."""
    forecast = forecast_text(forecast_of(state, now), now, is_going=not switches)
    return f"{tally_of(state)}{', ' if forecast else ''}{forecast}"


def _workers(state: State, now: datetime) -> Iterator[str]:
    held = {task.lease.holder: task for task in state.tasks.values() if task.lease}
    thinks = planner.plan_request(state) is not None
    for agent in state.agents.values():
        yield _worker(displayed_agent(agent, thinks=thinks), held.pop(agent.id, None), now)
    for holder, task in held.items():  # somebody who did not register
        yield f"  {holder:<12} {_work_text(task, holder, now)}"


def displayed_agent(agent: WorkerRecord, *, thinks: bool) -> WorkerRecord:
    """Return *agent*, which holds no task, as it is: who runs and has nothing to do is WAITING.

    Nobody writes that to the board, because it follows from it. A planner holds no task; it *thinks* where
    there is something to think about.
    """
    is_idle = agent.status is WorkerStatus.RUNNING and not (agent.role is Role.PLANNER and thinks)
    return agent.replace(status=WorkerStatus.WAITING) if is_idle else agent


def _worker(agent: WorkerRecord, task: Task | None, now: datetime) -> str:
    if task is not None and agent.status is not WorkerStatus.STOPPED:
        return f"  {agent.id:<12} {_work_text(task, agent.id, now)}"
    why = f": {_first_line(agent.stopped_reason)}" if agent.stopped_reason else ""
    return f"  {agent.id:<12} {agent.status.lower():<18} {duration_text(now - agent.since):>6}{why}"


def _work_text(task: Task, holder: str, now: datetime) -> str:
    taken = next((entry.at for entry in reversed(task.history) if entry.by == holder), task.created)
    return (
        f"{task.id:<18} {duration_text(now - taken):>6}  {task.status}: {_first_line(task.description, 60)}"
    )


def _all_question_lines(state: State) -> Iterator[str]:
    asking = [task for task in state.tasks.values() if task.status is Status.BLOCKED]
    if state.goal.questions or asking:
        yield ""
    yield from _question_lines("the plan", state.goal.questions, ANSWER_PLAN)
    for task in asking[:SHOWN_TASKS]:
        yield from _question_lines(task.id, task.questions, f'liza answer {task.id} "…"')
    if len(asking) > SHOWN_TASKS:
        yield f"  and {len(asking) - SHOWN_TASKS} more (`liza status`)"


def _question_lines(who: str, questions: tuple[str, ...], command: str) -> Iterator[str]:
    """Yield a line for each question; the last says how to answer them all."""
    for number, question in enumerate(questions, start=1):
        then = f" (`{command}`)" if number == len(questions) else ""
        yield f"  {who} asks: {_first_line(question)}{then}"


def latest_news(state: State, most: int = SHOWN_EVENTS) -> list[NewsItem]:
    """Return what happened last, oldest first."""
    happened = (
        (entry.at, entry.by, task.id, entry) for task in state.tasks.values() for entry in task.history
    )
    latest = nlargest(most, happened, key=lambda item: item[:3])  # made into words only where it is shown
    return [_history_news(state.tasks[name], entry) for _, _, name, entry in reversed(latest)]


def news_between(old: State, new: State) -> list[NewsItem]:
    """Return what happened between two boards, in order; a view that blinked may miss the oldest of it."""
    found = [
        _history_news(task, entry)
        for name, task in new.tasks.items()
        if task is not (before := old.tasks.get(name))
        for entry in _new_entries(task, before)
    ]
    found += [
        NewsItem(note.timestamp, "human", f"note: {_first_line(note.message)}")
        for name, note in new.human_notes.items()
        if name not in old.human_notes
    ]
    found += [
        NewsItem(
            anomaly.timestamp, anomaly.logged_by, f"anomaly: {anomaly.type} {anomaly.task_id or ''}".rstrip()
        )
        for name, anomaly in new.anomalies.items()
        if name not in old.anomalies
    ]
    found += [
        _refusal_news(agent, agent.refusal)
        for name, agent in new.agents.items()
        if agent.refusal and agent.refusal != (old.agents[name].refusal if name in old.agents else None)
    ]
    if new.goal.status is GoalStatus.COMPLETE is not old.goal.status:
        found.append(NewsItem(new.goal.completed or new.goal.created, "supervisor", "the goal is COMPLETE"))
    return sorted(found)


def _refusal_news(agent: WorkerRecord, refusal: Refusal) -> NewsItem:
    what = f"{refusal.task}: " if refusal.task else ""
    return NewsItem(
        refusal.at, agent.id, f"{what}answer to {refusal.step} refused ({_first_line(refusal.why, 120)})"
    )


def _new_entries(task: Task, before: Task | None) -> tuple[HistoryEntry, ...]:
    known = before.event_count if before else 0
    return task.history[max(0, known - task.history_earlier) :]


def _history_news(task: Task, entry: HistoryEntry) -> NewsItem:
    moved = f" -> {entry.target}" if entry.source is not entry.target else ""
    reason = entry.facts.get("reason")
    because = f" ({_first_line(str(reason), 80)})" if reason else ""
    what = EVENT_WORDS.get(entry.event, entry.event)
    return NewsItem(entry.at, entry.by, f"{task.id}: {what}{moved}{because}")


def _first_line(text: str, most: int = 100) -> str:
    first = "".join(letter if letter.isprintable() else " " for letter in text.partition("\n")[0])
    return first if len(first) <= most else first[: most - 1] + "…"
