"""What CHECKPOINT leaves in `checkpoints/`: where the run stands, what worries, and what comes next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.daemon.reports import metrics
from liza.domain.changes import figures
from liza.domain.lifecycle import SUCCEEDED, TERMINAL
from liza.domain.model import ANSWER_PLAN, Status
from liza.domain.report_words import duration_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from datetime import datetime

    from liza.domain.model import State, Task


def checkpoint_summary(state: State, now: datetime, reason: str) -> str:
    """Return the summary of *state* as Markdown."""
    sections = {
        "Metrics": _metrics(state, now),
        "Tasks by status": _by_status(state),
        "Anomalies": _anomalies(state),
        "Blocked questions": _questions(state),
        "Goal alignment": _alignment(state),
        "Next steps": _next_steps(state),
    }
    head = [f"# Halt at CHECKPOINT, {now:%Y-%m-%dT%H:%M:%SZ}", "", f"Goal: {state.goal.description}"]
    said = [f"Reason: {reason}"] if reason else []
    body = [line for title, items in sections.items() for line in _section(title, items)]
    return "\n".join([*head, *said, f"Revision: {state.revision}", *body]) + "\n"


def _section(title: str, items: Iterable[str]) -> list[str]:
    return ["", f"## {title}", "", *([f"- {' '.join(item.split())}" for item in items] or ["- none"])]


def _metrics(state: State, now: datetime) -> Iterator[str]:
    tasks = state.tasks.values()
    statuses = [*(task.status for task in tasks), *state.archived.values()]
    yield f"{duration_text(now - state.goal.created)} since the goal was set"
    yield f"{sum(status in SUCCEEDED for status in statuses)} of {len(statuses)} tasks succeeded"
    yield f"{sum(status in TERMINAL - SUCCEEDED for status in statuses)} given up or replaced"
    yield f"{sum(task.review_cycles_total for task in tasks)} rejections of the tasks on the board"
    yield f"{sum(task.iteration for task in tasks)} rounds of their current coders"
    yield f"{sum(len(agent.crashes) for agent in state.agents.values())} crashes of workers"
    yield f"{sum(note.processed is None for note in state.human_notes.values())} notes not read yet"
    yield from (f"{name}: {value}" for name, value in metrics.figure_rows(figures(state, now)))


def _by_status(state: State) -> Iterator[str]:
    for status in Status:
        names = [task.id for task in state.tasks.values() if task.status is status]
        archived = sum(other is status for other in state.archived.values())
        more = [f"{archived} archived"] if archived else []
        if names or archived:
            yield f"{status} ({len(names) + archived}): {', '.join([*names, *more])}"


def _anomalies(state: State) -> Iterator[str]:
    for anomaly in state.anomalies.values():
        if anomaly.processed is None:
            facts = ", ".join(f"{key} {value}" for key, value in anomaly.details.to_json().items())
            about = f" of {anomaly.task_id}" if anomaly.task_id else ""
            yield f"{anomaly.id}: {anomaly.type}{about} by {anomaly.logged_by}: {facts or 'no details'}"


def _questions(state: State) -> Iterator[str]:
    yield from (f"the plan: {question} (`{ANSWER_PLAN}`)" for question in state.goal.questions)
    for task in state.tasks.values():
        for question in task.questions if task.status is Status.BLOCKED else ():
            yield f'{task.id}: {question} (`liza answer {task.id} "…"`)'


def _alignment(state: State) -> Iterator[str]:
    """Say which promises of the plan are kept, and which work is tied to no specification."""
    spec = state.goal.spec_ref
    yield f"the goal is specified in {spec}" if spec else "the goal has no specification but its sentence"
    wanted = [task for task in state.tasks.values() if task.status not in TERMINAL - SUCCEEDED]
    kept = sum(len(task.done_when) for task in wanted if task.status in SUCCEEDED)
    criteria = sum(len(task.done_when) for task in wanted)
    yield f"{kept} of {criteria} criteria of the tasks on the board are met"
    loose = [task.id for task in wanted if task.spec_ref is None]
    if spec and loose:
        yield f"without a reference to the specification: {', '.join(loose)}"
    forced = [task.id for task in wanted if task.is_tainted]
    if forced:
        yield f"passed by force: {', '.join(forced)}"


def _next_steps(state: State) -> Iterator[str]:
    for task in state.tasks.values():
        if step := _next_step(task):
            yield f"{task.id}: {step}"
    yield "`liza resume` lets the agents go on"


def _next_step(task: Task) -> str | None:
    if task.status is Status.APPROVED and task.is_tainted:
        return "accept that it passed by force"
    return _STEPS.get(task.status)


_STEPS: Final = {
    Status.DRAFT: "release it to the coders",
    Status.WORKING: "its coder goes on with it",
    Status.READY_FOR_REVIEW: "review it",
    Status.REJECTED: "its coder takes it up again",
    Status.INTEGRATION_FAILED: "its coder takes it up again",
    Status.APPROVED: "merge it",
    Status.AWAITING_APPROVAL: "decide what it asks",
    Status.BLOCKED: "answer it, or let the planner replan it",
}
