"""What people see of a board: status, one task, the log, the difference of two moments."""

from __future__ import annotations

import json
from collections import Counter, deque
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.cli.views.fitting import fit_text
from liza.cli.views.words import rounds_text
from liza.domain import budget
from liza.domain.config import resume_command, switch_cause
from liza.domain.model import (
    ANSWER_PLAN,
    KEYED_SECTIONS,
    PLAIN_SECTIONS,
    VERSION,
    Status,
    waits_for,
)
from liza.domain.rules import open_trips, resolve_command, trip_sentence
from liza.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from liza.board.protocol import Board, JournalEntry
    from liza.domain.model import State, Task
    from liza.workflow.document import Phase


SAID_LINES: Final = 5  # of a red gate's output
SHOWN_NOTES: Final = 5
SHOWN_ANOMALIES: Final = 5
SHOWN_DISCOVERIES: Final = 5


def board_json(state: State) -> dict[str, Any]:
    """Return the board as it stands in state.yaml, as JSON values; it depends on nothing but the state."""
    document: dict[str, Any] = {"version": VERSION, "revision": state.revision}
    for section in type(state).model_fields:
        value = getattr(state, section)
        if section in KEYED_SECTIONS:
            document[section] = [record.to_json() for record in value.values()]
        elif section == "archived":
            document[section] = dict(value)
        elif section in PLAIN_SECTIONS:
            document[section] = value.model_dump(mode="json", exclude_none=True)
    return document


def status_text(
    state: State, switches: Mapping[str, str], *, shortage: str | None = None, width: int | None = None
) -> str:
    """Return the board at a glance; *switches* are the files that are thrown, with what they say.

    *shortage* is why the disk lets nothing new start, *width* what a line of the reader's terminal holds;
    without one nothing is cut.
    """
    counts = Counter(task.status for task in state.tasks.values()) + Counter(state.archived.values())
    tally = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status]) or "none yet"
    lines = [
        f"Goal      {state.goal.description} ({state.goal.status}, revision {state.revision})",
        *(f"  next    {_first_line(goal.description)}" for goal in state.goal.queued),
        *(
            f"Switch    {name}: {switch_cause(said) or 'thrown'} (`{resume_command(said)}` goes on)"
            for name, said in switches.items()
        ),
        *([f"Disk      {shortage}"] if shortage else []),
        *money_lines(state),
        *_plan_lines(state),
        f"Tasks     {tally}",
        *(line for task in state.tasks.values() for line in _task_lines(state, task)),
        *_breaker_lines(state),
        *_note_lines(state),
        *_anomaly_lines(state),
        *_discovery_lines(state),
        *_handover_lines(state, counts[Status.MERGED]),
    ]
    return fit_text("\n".join(lines), width) + "\n"


def money_lines(state: State) -> Iterator[str]:
    """Yield what was spent, where the number comes from, and who wants more money or to be left alone."""
    total = state.spend.total
    if total.runs:
        parts = {name: getattr(total, name) for name in ("reported", "priced", "estimated")}
        told = [f"${usd:.2f} {name}" for name, usd in parts.items() if usd]
        if total.unreported:
            told.append(f"{total.unreported} of {total.runs} runs did not report what they cost")
        marks = ", ".join(told)
        cap = state.config.budget.run_usd
        yield f"Spent     ${total.usd:.2f} of ${cap:.2f}{f' ({marks})' if marks else ''}"
    if budget.is_budget_question_open(state):
        yield f"Budget    paused: {budget.budget_question(state)}"
        yield f"      then    {budget.raise_budget_command(state)}"
    for provider in budget.closed_providers(state):
        yield f"Provider  {budget.provider_sentence_with_fallback(state, provider)}"


def goals(state: State) -> Iterator[str]:
    """Yield every goal of the board: those that are over, the current one, and those that wait."""
    goal = state.goal
    for number, past in enumerate(goal.past, start=1):
        report = f", report {past.report}" if past.report else ""
        yield f"  {number}  {past.status:<12} {_first_line(past.description)}{_spec(past.spec_ref)}{report}"
    yield f"  {goal.number}  {goal.status:<12} {_first_line(goal.description)}{_spec(goal.spec_ref)}"
    for number, waiting in enumerate(goal.queued, start=goal.number + 1):
        yield f"  {number}  {'queued':<12} {_first_line(waiting.description)}{_spec(waiting.spec_ref)}"


def _spec(reference: str | None) -> str:
    return f", spec {reference}" if reference else ""


def _plan_lines(state: State) -> Iterator[str]:
    if state.goal.questions:
        yield "Plan      needs to know something first"
        yield from (f"      asks    {_first_line(question)}" for question in state.goal.questions)
        yield f"      then    {ANSWER_PLAN}"


def _handover_lines(state: State, merged: int) -> Iterator[str]:
    """The user's own branch is the user's: Liza only says how to take the work over."""
    if merged:
        yield f"Merged    {merged} into {state.config.integration_branch}; take them over with"
        yield f"            git merge {state.config.integration_branch}"


def _task_lines(state: State, task: Task) -> Iterator[str]:
    holder = task.lease.holder if task.lease else "-"
    yield f"  {task.id:<14} {task.status:<18} {holder:<12} {_first_line(task.description)}"
    if task.status in _PLACED and (place := place_text(state, task)):
        yield f"      in      {place}"
    if task.status is Status.BLOCKED:
        yield f"      because {_first_line(task.blocked_reason or '')}"
        yield from output_lines(task)
        yield from (f"      asks    {_first_line(question)}" for question in task.blocked_questions)
        yield from (f"      planner {_first_line(question)}" for question in task.planner_questions)
        yield f'      then    liza answer {task.id} "…"'
    elif task.status is Status.AWAITING_APPROVAL:
        yield f"      asks    {_first_line(task.approval_question or '')}"
        yield from (f"      said    {_first_line(opinion)}" for opinion in opinions(task))
        no = "" if task.asks_for_answer else f', or liza task reject {task.id} --reason "…"'
        yield f"      then    {task.approval_command}{no}"
    elif task.status is Status.APPROVED and task.is_tainted:
        marks = ", ".join(taint.mark for taint in task.taints if taint.accepted_by is None)
        yield f"      because it passed by force ({marks})"
        yield f"      then    liza task accept {task.id}"
    elif task.status in {Status.IDLE, Status.DRAFT} and (waiting := waits_for(state, task)):
        yield f"      waits for {', '.join(waiting)}"
    elif task.status is Status.REJECTED:
        yield f"      because {_first_line(task.rejection_reason or '')}"
        yield from output_lines(task)


# Of what waits for nobody in particular, or is over, nobody looks for the place.
_PLACED: Final = frozenset(
    {Status.WORKING, Status.READY_FOR_REVIEW, Status.REJECTED, Status.AWAITING_APPROVAL, Status.BLOCKED}
)


def place_text(state: State, task: Task) -> str:
    """Return where *task* is in a workflow of several phases of work; nothing where it has one."""
    here = task.position
    if here is None or len(work_phases(state)) < 2:  # noqa: PLR2004 - with one, its round says all
        return ""
    loop = f", loop {here.loop}" if here.loop else ""
    rounds = here.iterations.get(here.phase, 0)
    times = f", round {rounds_text(rounds, most_rounds(state, task))}" if rounds > 1 and not here.loop else ""
    return f"{here.phase}{loop}{times}{f', {here.path}' if here.path else ''}"


def most_rounds(state: State, task: Task) -> int | None:
    """Return how many rounds the work of *task* may take where it is; None where nothing limits them."""
    phases, here = work_phases(state), task.position
    # What is judged in a phase of its own goes back to the one phase in which somebody works.
    phase = phases.get(here.phase if here else "") or next(iter(phases.values()), None)
    return phase.most(here.path if here else None) if phase else None


def work_phases(state: State) -> dict[str, Phase]:
    """Return the phases of the workflow in which somebody works; none of one that was not read yet."""
    from liza.workflow.document import workflow_on  # noqa: PLC0415 - a board without work needs no workflow

    try:
        found = workflow_on(state).phases
    except UsageError:
        return {}
    return {name: phase for name, phase in found.items() if phase.worker is not None}


def output_lines(task: Task) -> Iterator[str]:
    """Yield the last of what the command printed that sent *task* back, and where all of it is."""
    seen = task.rejection_output
    if seen is None:
        return
    yield from (f"      said    {_first_line(line)}" for line in seen.last_lines(SAID_LINES))
    if seen.run:
        yield f"      whole   .liza/runs/{seen.run}"


def opinions(task: Task) -> Iterator[str]:
    """Yield what the agents of reviewers said about the work that *task* carries."""
    for verdict in task.verdicts:
        if who := verdict.judging_worker:
            sure = "" if verdict.confidence is None else f", {verdict.confidence} of 10 sure"
            why = verdict.reason or "no reason given"
            yield f"{who} said {verdict.outcome} ({verdict.gate}{sure}): {why}"


def _breaker_lines(state: State) -> Iterator[str]:
    for trip in open_trips(state):
        yield f"Breaker   {trip_sentence(trip)}"
        yield f"      then    {resolve_command(trip)}"


def _note_lines(state: State) -> Iterator[str]:
    unread = [note for note in state.human_notes.values() if note.processed is None]
    if state.human_notes:
        told = f"{len(unread)} of them not read yet" if unread else "all read"
        yield f"Notes     {len(state.human_notes)}, {told}"
    for note in unread[-SHOWN_NOTES:]:
        yield f"  {note.id:<14} {'for ' + note.about if note.about else '':<18} {_first_line(note.message)}"


def _anomaly_lines(state: State) -> Iterator[str]:
    open_ones = [anomaly for anomaly in state.anomalies.values() if anomaly.processed is None]
    if open_ones:
        yield f"Anomalies {len(open_ones)} open"
    for anomaly in open_ones[-SHOWN_ANOMALIES:]:
        facts = anomaly.details.to_json().items()
        details = ", ".join(f"{key} {_first_line(str(value))}" for key, value in facts)
        yield f"  {anomaly.id:<14} {anomaly.type:<18} {anomaly.task_id or '-':<12} {details}"


def _discovery_lines(state: State) -> Iterator[str]:
    found = [item for item in state.discovered.values() if item.became_task is None]
    if found:
        yield f"Found     {len(found)} beside the tasks, left for later (`liza task add`, or `liza note`)"
    for item in found[-SHOWN_DISCOVERIES:]:
        by, about = item.discovered_by, item.task_id or "-"
        yield f"  {item.id:<14} {by:<18} {about:<12} {_first_line(item.description)}"


def _first_line(text: str) -> str:
    first = text.splitlines()[0] if text else ""
    return first if first == text.rstrip() else f"{first}…"


def whole_task(entries: Iterable[JournalEntry], name: str) -> dict[str, Any] | None:
    """Return a task with all of its history, live or archived, as the journal tells it."""
    task: dict[str, Any] | None = None
    for entry in entries:
        put = entry.put.get("tasks", {})
        # The first entry is a whole board, as the file has it; all others say what changed, by id.
        fields = (
            next((one for one in put if one["id"] == name), None) if isinstance(put, list) else put.get(name)
        )
        if fields is None:
            continue
        past = task.pop("history") if task else []
        task = {key: value for key, value in {**(task or {}), **fields}.items() if value is not None}
        task["history"] = [*past, *fields.get("history", ())]
    return task


def log_line(entry: JournalEntry) -> str:
    return f"{entry.revision:>6}  {entry.at:%Y-%m-%dT%H:%M:%SZ}  {entry.by:<14} {entry.what}"


def log_json(entry: JournalEntry) -> dict[str, Any]:
    return {**entry._asdict(), "at": entry.at.isoformat().replace("+00:00", "Z")}


class Difference(NamedTuple):
    """One value that differs between two boards; None where there was nothing."""

    path: str
    before: Any
    after: Any

    def __str__(self) -> str:
        if self.before is None:
            return f"+ {self.path}: {self.after}"
        if self.after is None:
            return f"- {self.path}: {self.before}"
        return f"~ {self.path}: {self.before} -> {self.after}"


def board_differences(one: State, other: State) -> list[Difference]:
    """Return every value that differs between two boards, by the path that people read."""
    before, after = dict(_leaves("", board_json(one))), dict(_leaves("", board_json(other)))
    paths = [path for path in {**before, **after} if before.get(path) != after.get(path)]
    return [Difference(path, before.get(path), after.get(path)) for path in paths]


def _leaves(path: str, value: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - JSON
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _leaves(f"{path}.{key}" if path else key, inner)
    elif isinstance(value, list) and value:
        for number, inner in enumerate(value):
            name = inner.get("id") if isinstance(inner, dict) else None
            yield from _leaves(f"{path}.{name}" if name else f"{path}[{number}]", inner)
    elif value not in ([], {}):
        yield path, value


# The log of a board, and what comes after it, for as long as somebody looks.

FOLLOW_TIMEOUT: Final = 60.0  # seconds of waiting before the follower looks again by itself


def log_lines(
    board: Board, *, last: int | None, task: str | None, follow: bool, as_json: bool
) -> Iterator[str]:
    """Yield a line a change: those that there are, then, with *follow*, those that come."""
    seen = 0
    wanted: deque[JournalEntry] = deque(maxlen=last)
    for entry in board.entries():
        seen = entry.revision
        if _touches(entry, task):
            wanted.append(entry)
    yield from (_line(entry, as_json=as_json) for entry in wanted)
    while follow:
        board.wait(seen, FOLLOW_TIMEOUT)
        for entry in board.entries(seen):
            seen = entry.revision
            if _touches(entry, task):
                yield _line(entry, as_json=as_json)


def _line(entry: JournalEntry, *, as_json: bool) -> str:
    return json.dumps(log_json(entry)) if as_json else log_line(entry)


def _touches(entry: JournalEntry, task: str | None) -> bool:
    return task is None or task in entry.put.get("tasks", {}) or task in entry.gone.get("tasks", ())
