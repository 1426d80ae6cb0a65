"""Boards to measure on: tasks that walked the real lifecycle, the same ones for every engine."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final

from liza.domain.changes import HUMAN
from liza.domain.config import Config
from liza.domain.lifecycle import Amend, Event, Release, Report, Take, Write
from liza.domain.model import (
    Actor,
    Checkpoint,
    Feedback,
    Goal,
    Lease,
    Outcome,
    Role,
    Severity,
    State,
    Status,
    Task,
    TaskScope,
    Validation,
    Verdict,
)
from liza.domain.record import records_by_id
from liza.workflow.document import load_workflow
from liza.workflow.transition import advance, new_task_at_start

FLOW: Final = load_workflow(Config().workflow)
REALISTIC: Final = 8  # events in the history of a task that was tried once and sent back
MOST_ROUNDS: Final = 5  # of review; the workflow blocks a task that is sent back more often
KINDS: Final = 16  # tasks that walk the lifecycle; a larger board repeats them under other ids
BEGIN: Final = datetime(2025, 1, 6, 9, tzinfo=UTC)
PACE: Final = timedelta(minutes=7)  # between two events
LEASED_UNTIL: Final = BEGIN + timedelta(days=365)  # past the longest walk; no lease is left at its end

PLANNER: Final = Actor(role=Role.PLANNER, id="planner-1")
CODER: Final = Actor(role=Role.CODER, id="coder-1", token="0f3c9a7e51d24b86", run="coder-1.17")  # noqa: S106
REVIEWER: Final = Actor(role=Role.REVIEWER, id="reviewer-1", token="b7e2d4c8a9f01635")  # noqa: S106


def board_of(size: int, *, events: int = REALISTIC) -> State:
    """Return a board of *size* IDLE tasks, each with a history of *events* (at least the first)."""
    walked = [_walked(number, events) for number in range(min(size, KINDS))]
    tasks = (
        walked[number % KINDS].replace(id=f"goal.{number}", description=_description(number))
        for number in range(size)
    )
    goal = Goal(
        description="Bring the invoice service to version 2", spec_ref="specs/vision.md", created=BEGIN
    )
    return State(revision=1, goal=goal, tasks=records_by_id(tasks))


def _description(number: int) -> str:
    return f"Round the totals of invoice kind {number} half to even and keep the old totals readable"


def _new(number: int) -> Task:
    return Task(
        id=f"goal.{number}",
        description=_description(number),
        status=Status.IDLE,
        priority=number % 5,
        done_when=(
            f"`invoice total --kind {number}` prints the amount of the ledger",
            "no test of the old totals was changed",
            "the changelog says what users see",
        ),
        scope=TaskScope(
            include=(f"invoices/kind_{number}.py", "tests/invoices"), exclude=("migrations", "vendor")
        ),
        spec_ref="specs/vision.md#totals",
        validation=Validation(
            command=f"python -m pytest -q tests/invoices -k kind_{number}", expect="passed"
        ),
        created=BEGIN,
        created_by=PLANNER.id,
    )


def _walked(number: int, events: int) -> Task:
    at = BEGIN
    task = new_task_at_start(FLOW, _new(number), by=PLANNER, at=at)
    for event, by in _walk(number, events - 1):
        at += PACE
        task = advance(FLOW, task, event, by=by, at=at)
    return task


def _walk(number: int, events: int) -> Iterator[tuple[Event, Actor]]:
    """Yield whole rounds, which end in IDLE, and fill up with amendments."""
    for _ in range(MOST_ROUNDS):
        if events < len(round_ := _round(number, events)):
            break
        yield from round_
        events -= len(round_)
    for priority in range(events):
        yield Amend(fields={"priority": priority}), HUMAN


def _round(number: int, turn: int) -> list[tuple[Event, Actor]]:
    claim = Take(lease=_lease(CODER), base_commit=_commit(f"base {number} {turn}"))
    return [
        (claim, CODER),
        (Write(checkpoint=_checkpoint(number)), CODER),
        (Report(commit=_commit(f"head {number} {turn}"), verdicts=_passes()), CODER),
        (Take(lease=_lease(REVIEWER)), REVIEWER),
        (
            Report(
                outcome=Outcome.REVISE,
                reason="a total of a credit note is rounded twice",
                feedback=(_feedback(number),),
            ),
            REVIEWER,
        ),
        (claim, CODER),
        (Release(reason="the worker was asked to stop"), CODER),
    ]


def _passes() -> tuple[Verdict, ...]:
    """Return what every gate of the coder's side says of work that may be handed in."""
    gates = FLOW.phases[FLOW.start].gates
    return tuple(Verdict(gate=gate.id, outcome=Outcome.PASS, at=BEGIN) for gate in gates)


def _lease(holder: Actor) -> Lease:
    return Lease(holder=holder.id, token=str(holder.token), expires=LEASED_UNTIL)


def _commit(of: str) -> str:
    return sha256(of.encode()).hexdigest()[:40]


def _checkpoint(number: int) -> Checkpoint:
    return Checkpoint(
        intent=f"Move the rounding of kind {number} to one place",
        assumptions=("amounts are in cents", "the ledger is right where the two differ"),
        risks="exports that round again",
        validation=Validation(command="python -m pytest -q tests/invoices", expect="passed"),
        files_to_modify=(f"invoices/kind_{number}.py", "invoices/rounding.py"),
    )


def _feedback(number: int) -> Feedback:
    return Feedback(
        message="credit_total() rounds what line_total() has rounded",
        file=f"invoices/kind_{number}.py",
        line=118,
        severity=Severity.BLOCKER,
        suggestion="round once, in credit_total()",
    )
