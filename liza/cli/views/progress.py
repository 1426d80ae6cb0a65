"""A run as people look on: who works on what since when, how far it is, and when it will be done.

All of it is a function of the board and the time, so that a second terminal shows the same.
"""

from __future__ import annotations

from datetime import timedelta
from heapq import nlargest
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.cli.views.status import money_lines
from liza.cli.views.words import EVENT_WORDS
from liza.daemon.policy import planner
from liza.domain.config import resume_command, switch_cause
from liza.domain.lifecycle import TERMINAL
from liza.domain.model import ANSWER_PLAN, Role, Status, WorkerStatus
from liza.domain.report_words import duration_text, tally_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from liza.domain.model import HistoryEntry, Refusal, State, Task, WorkerRecord


# When a run will be done if it goes on as it did: from how long finished tasks were in work.

# Where somebody works on a task, or could at once: what a forecast counts as work.
_IN_WORK: Final = frozenset(
    {Status.WORKING, Status.READY_FOR_REVIEW, Status.REJECTED, Status.APPROVED, Status.INTEGRATION_FAILED}
)
_LAST_PART: Final = 0.1  # share of the usual time that a task which takes longer still needs
_FOR_PEOPLE: Final = frozenset({Status.BLOCKED, Status.AWAITING_APPROVAL, Status.DRAFT})


class Forecast(NamedTuple):
    """When it will be done if it goes on as it did; *seconds* is None where too little is known."""

    seconds: float | None
    remaining: int  # tasks that agents can go on with
    for_people: int  # tasks that wait for people, which no time tells
    finished: int  # tasks that it is measured from
    seconds_per_task: float | None

    def done_at(self, now: datetime) -> datetime | None:
        return None if self.seconds is None else now + timedelta(seconds=self.seconds)


def forecast_of(state: State, now: datetime) -> Forecast:
    """Return when *state* will be done, from how long finished tasks of this sprint were in work."""
    tasks = [task for task in state.tasks.values() if task.status not in TERMINAL]
    for_people = sum(task.status in _FOR_PEOPLE for task in tasks)
    open_ones = [task for task in tasks if task.status not in _FOR_PEOPLE]
    counted = state.sprint.metrics
    finished = sum(counted.outcomes.values())
    if not finished:
        return Forecast(None, len(open_ones), for_people, 0, None)
    worked = sum(spent for name, spent in counted.seconds.items() if name.rpartition(".")[2] in _IN_WORK)
    each = worked / finished
    left = sum(_seconds_left(task, each, now) for task in open_ones)
    # Many hosts have more coders than the settings say for one.
    coders = sum(
        one.role is Role.CODER and one.status is WorkerStatus.RUNNING for one in state.agents.values()
    )
    lanes = max(1, min(max(coders, state.config.workers.coder), len(open_ones)))
    return Forecast(round(left / lanes, 1), len(open_ones), for_people, finished, round(each, 1))


def _seconds_left(task: Task, each: float, now: datetime) -> float:
    """Return what is left of *task* if it takes as long as others; one that takes longer is nearly done."""
    if task.status not in _IN_WORK:
        return each
    begun = next((entry.at for entry in task.history if entry.event == "claim"), task.created)
    return max(_LAST_PART * each, each - (now - begun).total_seconds())


def forecast_text(forecast: Forecast, now: datetime, *, is_going: bool) -> str:
    """Return in a few words when it will be done; nothing where too little is known, or nothing is left."""
    words = forecast_words(forecast, now, is_going=is_going)
    measured = f" (from {forecast.finished} finished task{'s' if forecast.finished > 1 else ''})"
    return f"{words}{measured}" if words else ""


def forecast_words(forecast: Forecast, now: datetime, *, is_going: bool) -> str:
    """Return the same without what it is measured from; of work that nobody does, no time of day is known."""
    done = forecast.done_at(now)
    if done is None or forecast.seconds is None or not forecast.remaining:
        return ""
    left = duration_text(timedelta(seconds=max(1.0, forecast.seconds)))
    return f"about {left} left, until {done:%H:%MZ}" if is_going else f"about {left} of work left"


SHOWN_EVENTS: Final = 8
SHOWN_TASKS: Final = 12  # questions and holders come first; a board may have thousands of tasks
_BAR: Final = 30  # characters


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
    tally = tally_of(state)
    if not tally.total:
        return str(tally)
    full = _BAR * tally.ended // tally.total
    by_status = ", ".join(f"{count} {status}" for status, count in tally.by_status.items())
    return f"[{'#' * full}{'.' * (_BAR - full)}] {tally}: {by_status}"


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
    begun = f", {phase} begins" if (phase := entry.facts.get("phase")) else ""
    return NewsItem(entry.at, entry.by, f"{task.id}: {what}{moved}{begun}{because}")


def _first_line(text: str, most: int = 100) -> str:
    first = "".join(letter if letter.isprintable() else " " for letter in text.partition("\n")[0])
    return first if len(first) <= most else first[: most - 1] + "…"
