"""One task: made from what a person typed, and shown with everything that happened to it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pydantic import ValidationError

from liza.cli.views.status import whole_task, work_phases
from liza.cli.views.words import EVENT_WORDS, rounds_text, sent_back_text
from liza.domain.budget import RESERVED, RESERVED_IDS, spent_on
from liza.domain.model import Evidence, Status, Task
from liza.domain.problems import violations_from
from liza.domain.record import section_text, utc_now
from liza.errors import LizaError, NotThere, UsageError
from liza.workflow.transition import add_task

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from liza.board.protocol import Board
    from liza.domain.changes import Change
    from liza.domain.model import Actor, State

SHOWN_OUTPUT: Final = 15  # lines of a red command on the page of a task


def new_task(typed: Mapping[str, Any], by: Actor) -> Change:
    """Return the change that adds the task described by the words of `liza task add`."""
    now = utc_now()
    fields = {
        "id": typed["id"],
        "description": typed["description"],
        "status": Status.IDLE,
        "kind": typed["kind"],
        "priority": typed["priority"],
        "done_when": typed["done_when"],
        "scope": {"in": typed["include"], "out": typed["exclude"]},
        "spec_ref": typed["spec"],
        "depends_on": typed["depends_on"],
        "needs": typed.get("needs", ()),
        "created": now,
        "created_by": by.id,
    }
    try:
        task = Task.model_validate(fields)
    except ValidationError as error:
        problems = "; ".join(
            f"{wrong.path}: {wrong.problem}" for wrong in violations_from(error, Task, "", {})
        )
        raise UsageError(f"the task was not added: {problems}") from error
    wrong = [f"scope: {problem}" for problem in task.scope.problems()]
    if task.id.casefold() in RESERVED_IDS:
        wrong.insert(0, f"id: {RESERVED.format(task.id)}")
    if wrong:
        raise UsageError(f"the task was not added: {'; '.join(wrong)}")
    return add_task(task, by=by, at=now)


def task_text(board: Board, name: str, *, as_json: bool) -> str:
    """Return a task, live or archived, with its whole history, as it stands on the board."""
    task = whole_task(board.entries(), name)
    if task is None:
        raise NotThere("task", name, "`liza status` lists the tasks")
    return json.dumps(task) + "\n" if as_json else section_text("task", task)


def task_lines(board: Board, name: str) -> Iterator[str]:
    """Yield a task as a page for people: what, who, rounds, what went wrong last, its diff, its history."""
    task = whole_task(board.entries(), name)
    if task is None:
        raise NotThere("task", name, "`liza status` lists the tasks")
    yield f"{task['id']}  {task['status']}  {task['description']}"
    yield from (f"  {label:<12}{value}" for label, value in _facts(board, task) if value)
    yield from _block("done when", task.get("done_when") or ())
    yield from _block("announced", _checkpoint_lines(task.get("checkpoint") or {}))
    yield from _block("went wrong", _failure_lines(task))
    yield from _block("gates", map(_verdict_line, task.get("verdicts") or ()))
    yield from _block("diff", _diff_stat(board, name))
    yield from _block("history", map(_history_line, task["history"]))


def _facts(board: Board, task: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    state, lease = board.read(), task.get("lease") or {}
    scope = task.get("scope") or {}
    yield "kind", f"{task.get('kind', 'code')}, priority {task.get('priority', 0)}"
    yield "phase", (task.get("position") or {}).get("phase") or ""
    yield "spec", task.get("spec_ref") or ""
    yield "scope", ", ".join([*scope.get("in", ()), *(f"not {path}" for path in scope.get("out", ()))])
    yield "depends on", ", ".join(f"{one} ({state.status_of(one)})" for one in task.get("depends_on", ()))
    yield "needs", " ".join(task.get("needs", ()))
    yield "held by", f"{lease['holder']} until {lease['expires']}" if lease else ""
    yield "coders", ", ".join(task.get("authors", ()))
    yield "rounds", f"{_rounds(state, task)}, {sent_back_text(task.get('review_cycles_total', 0))}"
    spent = spent_on(state, task["id"])
    yield "cost", f"${spent.usd:.2f} in {spent.runs} runs" if spent.runs else ""
    yield "merged as", task.get("merge_commit") or ""


def _rounds(state: State, task: Mapping[str, Any]) -> str:
    phases, here = work_phases(state), task.get("position") or {}
    used = here.get("iterations", {})
    if len(phases) > 1:  # each has a limit of its own
        most = {name: phase.most(here.get("path")) for name, phase in phases.items()}
        return ", ".join(f"{name} {rounds_text(used[name], most[name])}" for name in phases if name in used)
    limits = [phase.most(here.get("path")) for phase in phases.values()]
    return rounds_text(task.get("iteration", 0), next(iter(limits), None))


def _block(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = [part for line in lines for part in str(line).splitlines()]
    if found:
        yield f"{title}:"
        yield from (f"  {line}" for line in found)


def _checkpoint_lines(said: Mapping[str, Any]) -> Iterator[str]:
    if said:
        yield said["intent"]
        yield from (f"assumes {one}" for one in said.get("assumptions", ()))
        yield from (f"risks: {said['risks']}",) if said.get("risks") else ()


def _failure_lines(task: Mapping[str, Any]) -> Iterator[str]:
    """Yield why it was sent back or blocked last, with the end of what a command printed."""
    for key in ("blocked_reason", "rejection_reason", "approval_question"):
        if task.get(key):
            yield task[key]
    for point in task.get("rejection_feedback") or ():
        place = f"{point['file']}:{point['line']}: " if point.get("line") else ""
        if point["message"] != task.get("rejection_reason"):
            yield f"- {place}{point['message']}"
    if conflict := task.get("integration_failure"):
        yield f"{conflict['reason']}: {', '.join(conflict.get('paths', ()))}"
    seen = Evidence.model_validate(task.get("rejection_output") or {})
    yield from (f"| {line}" for line in seen.last_lines(SHOWN_OUTPUT))
    yield from (f"all of it: .liza/runs/{seen.run}",) if seen.run else ()
    yield from (
        f"asks: {one}" for one in (*task.get("blocked_questions", ()), *task.get("planner_questions", ()))
    )


def _verdict_line(verdict: Mapping[str, Any]) -> str:
    reason = f": {verdict['reason']}" if verdict.get("reason") else ""
    return f"{verdict['gate']:<14} {verdict['outcome']}{reason}"


def _diff_stat(board: Board, name: str) -> Iterable[str]:
    from liza.cli.views.diffs import stat_lines, task_diff  # noqa: PLC0415 - git is only for who looks

    try:
        return list(stat_lines(task_diff(board, name)))
    except LizaError:  # nothing was committed, or its commits are gone
        return ()


def _history_line(entry: Mapping[str, Any]) -> str:
    what = EVENT_WORDS.get(entry["event"], entry["event"])
    moved = f" -> {entry['to']}" if entry.get("from") != entry["to"] else ""
    reason = (entry.get("facts") or {}).get("reason")
    told = f" ({' '.join(str(reason).split())})" if reason else ""
    begun = f", {phase} begins" if (phase := (entry.get("facts") or {}).get("phase")) else ""
    return f"{entry['at'][:19]}Z  {entry['by']:<12} {what}{moved}{begun}{told}"
