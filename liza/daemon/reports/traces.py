"""What happened on a board as spans: a trace a task, a span a run of an agent and a span a gate.

Nothing here is remembered elsewhere. Who a span is follows from the board, the task and the run alone, so
that whoever tells it again, on this machine or another, tells the same span.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.domain.lifecycle import TERMINAL
from liza.domain.model import Outcome, Status, Verdict
from liza.system.run_control import RunEnding

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from liza.agents.protocol import Brief, Reply
    from liza.board.protocol import JournalEntry
    from liza.domain.model import State, Task

Attributes = dict[str, str | int | float]

_INNOCENT: Final = frozenset({Outcome.PASS, Outcome.ASK})  # a question is no failure


class Span(NamedTuple):
    """One span, whatever it is sent by."""

    trace: int
    id: int
    parent: int | None
    name: str
    began: datetime
    ended: datetime
    attributes: Attributes
    failure: str | None = None  # a sentence; None where nothing failed


def board_id(state: State) -> str:
    """Return what tells this board from others, and stays: when its first goal was made."""
    return (state.goal.past[0] if state.goal.past else state.goal).created.isoformat()


def run_span(board: str, brief: Brief, reply: Reply) -> Span:
    """Return the span of a run that ended; without a task it is a trace of its own."""
    usage = reply.usage
    known: Mapping[str, str | int | float | None] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.agent.name": brief.hat or brief.role.value,
        "gen_ai.response.model": usage.model,
        "gen_ai.usage.input_tokens": usage.tokens_in,
        "gen_ai.usage.output_tokens": usage.tokens_out,
        "gen_ai.usage.cache_read.input_tokens": usage.tokens_cached,
        "liza.cost_usd": usage.usd,
        "liza.cost_provenance": usage.provenance.value,
        "liza.run": brief.run,
        "liza.worker": brief.run.partition(".")[0],
        "liza.step": brief.step.value,
        "liza.task": brief.task,
        "liza.iteration": brief.iteration,
    }
    failed = reply.ending is not RunEnding.DONE
    attributes = {name: value for name, value in known.items() if value is not None}
    if failed:
        attributes["error.type"] = reply.ending.value
    return Span(
        _trace(board, brief.task or brief.run),
        _digest(8, board, brief.run),
        _root(board, brief.task) if brief.task else None,
        f"invoke_agent {brief.step.value}",
        reply.began,
        reply.began + timedelta(seconds=reply.seconds),
        attributes,
        (reply.why or reply.ending.value) if failed else None,
    )


class JournalTracer:
    """Reads the changes of a board in order, and makes spans of the tasks that ended and of their gates."""

    def __init__(self, board: str) -> None:
        self._board = board
        self._created: dict[str, datetime] = {}
        self._told: dict[str, set[int]] = {}  # the gates of tasks that go on

    def spans(self, entries: Iterable[JournalEntry], known: Mapping[str, Task]) -> Iterator[Span]:
        """Yield what *entries* end; *known* are tasks of the board, for what happened before them."""
        for entry in entries:
            for task, fields in _tasks(entry):
                if created := fields.get("created"):
                    self._created[task] = datetime.fromisoformat(created)
                yield from self._gates(task, fields)
                if fields.get("status") in TERMINAL:
                    yield self._task(task, fields, entry, known.get(task))
                    self._told.pop(task, None)
                    self._created.pop(task, None)

    def _gates(self, task: str, fields: dict[str, Any]) -> Iterator[Span]:
        told = self._told.setdefault(task, set())
        said = [*(fields.get("verdicts") or ()), *((fields.get("position") or {}).get("verdicts") or ())]
        for verdict in map(Verdict.model_validate, said):
            span = _gate_span(self._board, task, verdict)
            if span.id not in told:
                told.add(span.id)
                yield span

    def _task(self, task: str, fields: dict[str, Any], entry: JournalEntry, known: Task | None) -> Span:
        """Return the span over all of a task, from when it was added."""
        status = Status(fields["status"])
        began = self._created.get(task) or (known.created if known else entry.at)
        why = fields.get("closing_reason") or (known.closing_reason if known else None)
        attributes: Attributes = {"liza.task": task, "liza.status": status.value, "liza.board": self._board}
        if known:
            attributes |= {"liza.description": known.description, "liza.iteration": known.iteration}
        failure = None
        if status is Status.ABANDONED:
            attributes["error.type"] = status.value
            failure = why or "it was given up"
        trace, root = _trace(self._board, task), _root(self._board, task)
        return Span(trace, root, None, f"task {task}", began, entry.at, attributes, failure)


def _tasks(entry: JournalEntry) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the tasks that *entry* puts with their changed fields; the first entry has them in a row."""
    tasks = entry.put.get("tasks") or {}
    yield from tasks.items() if isinstance(tasks, dict) else ((one["id"], one) for one in tasks)


def _gate_span(board: str, task: str, verdict: Verdict) -> Span:
    seen = verdict.evidence
    failed = verdict.outcome not in _INNOCENT
    known: Mapping[str, str | int | float | None] = {
        "liza.task": task,
        "liza.gate": verdict.gate,
        "liza.outcome": verdict.outcome.value,
        "liza.tree": verdict.tree,
        "liza.confidence": verdict.confidence,
        "liza.run": seen.run if seen else None,
        "process.exit.code": seen.code if seen else None,
        "error.type": verdict.outcome.value if failed else None,
    }
    return Span(
        _trace(board, task),
        _digest(8, board, task, verdict.gate, verdict.at.isoformat()),
        _root(board, task),
        f"gate {verdict.gate}",
        verdict.at - timedelta(seconds=seen.seconds if seen else 0.0),
        verdict.at,
        {name: value for name, value in known.items() if value is not None},
        (verdict.reason or verdict.outcome.value) if failed else None,
    )


def _trace(board: str, what: str) -> int:
    return _digest(16, board, what)


def _root(board: str, task: str) -> int:
    return _digest(8, board, "task", task)


def _digest(size: int, *parts: str) -> int:
    return int.from_bytes(hashlib.blake2b("\0".join(parts).encode(), digest_size=size).digest(), "big")
