"""What the counters of a run say, as a small table, as JSON, and as a look back on a sprint."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from liza.domain.changes import Figures, figures, sum_metrics
from liza.domain.model import Sprint, Status
from liza.domain.report_words import duration_text
from liza.domain.rules import MIN_REVIEWS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.domain.model import State

_LOW_PASS: Final = 0.5  # share of work that passes its first review below which planning is the matter
_MUCH: Final = 0.3  # share of attempts, or of all time, that is worth a suggestion


def of_sprint(state: State, now: datetime) -> Figures:
    return figures(state, now)


def of_goal(board: Board, now: datetime) -> Figures:
    """Return the figures of all sprints together; the journal has what each came to."""
    sprints: dict[int, Sprint] = {}
    for entry in board.entries():
        if "sprint" in entry.put:
            sprint = Sprint.model_validate(entry.put["sprint"])
            sprints[sprint.number] = sprint
    state = board.read()
    return figures(state, now, sum_metrics(sprint.metrics for sprint in sprints.values()), state.goal.created)


def figures_json(found: Figures) -> dict[str, Any]:
    return found._asdict()


def figures_table(found: Figures) -> str:
    """Return the figures as lines of a name and a value."""
    return "".join(f"{name:<24}{value}\n" for name, value in figure_rows(found))


def figure_rows(found: Figures) -> Iterator[tuple[str, str]]:
    yield "sprint", f"{found.sprint}, {duration_text(timedelta(hours=found.hours))}"
    yield "tasks added", str(found.added)
    yield "tasks by outcome", _counts(found.outcomes)
    yield "merged per hour", _number(found.merged_per_hour)
    yield "cycle time", f"p50 {_length(found.cycle_seconds_p50)}, p90 {_length(found.cycle_seconds_p90)}"
    yield "rounds per merged task", _number(found.iterations_per_merged)
    yield "rejections per merged", _number(found.rejections_per_merged)
    yield "attempts", _attempts(found)
    yield "passed first review", _rate(found.first_pass_rate)
    yield (
        "approvals",
        ", ".join(f"{name} {_rate(rate)}" for name, rate in found.approval_rates.items()) or "-",
    )
    if found.rubber_stamps:
        yield "rubber stamps?", ", ".join(found.rubber_stamps)
    yield "rejections", _counts(found.rejections)
    yield "blocked", _length(found.blocked_seconds)
    yield (
        "time by status",
        ", ".join(f"{name} {_length(spent)}" for name, spent in found.seconds.items()) or "-",
    )
    yield "crashes", _counts(found.crashes)
    yield "refused answers", _counts(found.refused_answers)
    yield "anomalies", _counts(found.anomalies)
    yield from ((f"gate {gate}", _counts(outcomes)) for gate, outcomes in found.gates.items())


def _attempts(found: Figures) -> str:
    since = f"{found.attempts_since_progress} of them since the last progress"
    return f"{found.attempts}, {found.attempts_in_vain} in vain, {since}"


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items())) or "-"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _length(seconds: int | None) -> str:
    return "-" if seconds is None else duration_text(timedelta(seconds=seconds))


def retrospective(state: State, why: str, now: datetime) -> str:
    """Return the look back on the sprint of *state* as Markdown."""
    found, sprint = figures(state, now), state.sprint
    fired = [
        f"{trip.id} {trip.rule}: {trip.resolution or 'open'}"
        for trip in state.circuit_breaker.trips
        if sprint.started is None or trip.at >= sprint.started
    ]
    blocked = [
        f"{task.id}: {task.blocked_reason}" for task in state.tasks.values() if task.status is Status.BLOCKED
    ]
    sections: dict[str, Iterable[str]] = {
        "Metrics": (f"{name}: {value}" for name, value in figure_rows(found)),
        "Blocked": blocked,
        "Rules that fired": fired,
        "Time by status": (f"{name}: {_length(spent)}" for name, spent in _longest(found.seconds)),
        "Suggestions": suggestions(found, blocked),
    }
    about = f"Goal {state.goal.number}: {' '.join(state.goal.description.split())}"
    head = [f"# Sprint {sprint.number}", "", about, "", f"It is over because {why}."]
    body = [line for title, items in sections.items() for line in _section(title, items)]
    return "\n".join([*head, *body]) + "\n"


def _section(title: str, items: Iterable[str]) -> list[str]:
    return ["", f"## {title}", "", *([f"- {' '.join(item.split())}" for item in items] or ["- none"])]


def _longest(seconds: Mapping[str, int]) -> list[tuple[str, int]]:
    return sorted(seconds.items(), key=lambda item: -item[1])


def suggestions(found: Figures, blocked: Iterable[str]) -> Iterator[str]:
    """Yield what the figures give reason to do."""
    if found.rejections and (found.first_pass_rate or 0.0) < _LOW_PASS:
        kind = max(found.rejections, key=lambda name: found.rejections[name])
        yield f"most work is rejected at first; `{kind}` is the commonest reason: say it in the specification"
    if found.rubber_stamps:
        names = ", ".join(found.rubber_stamps)
        yield f"{names} approves nearly all of {MIN_REVIEWS} or more first looks: check some of it by hand"
    if found.attempts and found.attempts_in_vain > _MUCH * found.attempts:
        yield "many attempts come to nothing: smaller tasks, or another agent, may help"
    if found.blocked_seconds > _MUCH * sum(found.seconds.values(), start=1):
        yield "much of the time tasks waited for an answer: `notify` in the settings tells you at once"
    if sum(found.refused_answers.values()) > _MUCH * max(found.attempts, 1):
        yield f"many answers are refused ({_counts(found.refused_answers)}): another model may help"
    if found.crashes:
        yield f"workers crashed ({_counts(found.crashes)}): see workers/*.log"
    if list(blocked):
        yield 'answer what is BLOCKED: `liza answer TASK "…"`'
