"""What agents want remembered of a task: types, how long each is kept, how much of it a prompt shows."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated, Final, NamedTuple

from pydantic import AfterValidator, Field

from liza.domain.record import Id, NonEmptyStr, Record, Time

MOST_ENTRIES: Final = 100  # of one task; the oldest go
BUDGET: Final = 3000  # characters of a prompt
SHORTEST_ITEM: Final = 60  # characters that an item is cut to before another section is left out


class MemoryType(StrEnum):
    KEY_FACT = "KEY_FACT"
    DECISION = "DECISION"
    STEP_DONE = "STEP_DONE"
    STEP_PENDING = "STEP_PENDING"
    FILE_MODIFIED = "FILE_MODIFIED"
    ERROR = "ERROR"
    EVAL_FEEDBACK = "EVAL_FEEDBACK"
    JUDGE_DIRECTIVE = "JUDGE_DIRECTIVE"
    FEEDBACK_RESPONSE = "FEEDBACK_RESPONSE"
    PHASE_RESULT = "PHASE_RESULT"


class Retention(StrEnum):
    """Until when something is remembered: the end of its phase, or of its task."""

    PHASE = "phase"
    TASK = "task"


class MemoryRow(NamedTuple):
    retention: Retention
    heading: str
    is_said_by_agents: bool = True


# In the order in which a prompt shows them.
MEMORY_TYPES: Final[dict[MemoryType, MemoryRow]] = {
    MemoryType.JUDGE_DIRECTIVE: MemoryRow(Retention.PHASE, "Judge directives", is_said_by_agents=False),
    MemoryType.EVAL_FEEDBACK: MemoryRow(Retention.PHASE, "Reviewer feedback", is_said_by_agents=False),
    MemoryType.FEEDBACK_RESPONSE: MemoryRow(Retention.PHASE, "Answers to feedback"),
    MemoryType.PHASE_RESULT: MemoryRow(Retention.TASK, "Phase results", is_said_by_agents=False),
    MemoryType.STEP_PENDING: MemoryRow(Retention.PHASE, "Pending steps"),
    MemoryType.KEY_FACT: MemoryRow(Retention.TASK, "Key facts"),
    MemoryType.DECISION: MemoryRow(Retention.TASK, "Decisions"),
    MemoryType.ERROR: MemoryRow(Retention.PHASE, "Errors"),
    MemoryType.STEP_DONE: MemoryRow(Retention.PHASE, "Completed steps"),
    MemoryType.FILE_MODIFIED: MemoryRow(Retention.TASK, "Files modified"),
}
FEEDBACK_TYPES: Final = (MemoryType.JUDGE_DIRECTIVE, MemoryType.EVAL_FEEDBACK)
AGENT_TYPES: Final = tuple(kind for kind, row in MEMORY_TYPES.items() if row.is_said_by_agents)


def _check_said_by_agents(kind: MemoryType) -> MemoryType:
    if kind not in AGENT_TYPES:
        raise ValueError(f"{kind} is for judges alone; use one of {', '.join(AGENT_TYPES)}")
    return kind


class Remembered(Record):
    """Something that who works on the task later should know."""

    type: Annotated[MemoryType, AfterValidator(_check_said_by_agents)]
    text: NonEmptyStr


class MemoryEntry(Record):
    type: MemoryType
    content: NonEmptyStr
    task: Id
    phase: NonEmptyStr
    iteration: Annotated[int, Field(ge=0)]  # of the phase
    at: Time


Memory = tuple[MemoryEntry, ...]


def with_entries(memory: Memory, added: Iterable[MemoryEntry]) -> Memory:
    """Return *memory* with *added*; a step that is done is no longer pending, and the oldest of a task go."""
    known = list(memory)
    for entry in added:
        if entry.type is MemoryType.STEP_DONE:
            known = [one for one in known if not _is_pending_step(one, entry)]
        known.append(entry)
        mine = [one for one in known if one.task == entry.task]
        if len(mine) > MOST_ENTRIES:
            known.remove(mine[0])
    return tuple(known)


def _is_pending_step(one: MemoryEntry, done: MemoryEntry) -> bool:
    return (one.type, one.task, one.content) == (MemoryType.STEP_PENDING, done.task, done.content)


def after_phase(memory: Memory, task: str) -> Memory:
    """Return *memory* as *task* takes it into its next phase."""
    return tuple(
        entry
        for entry in memory
        if entry.task != task or MEMORY_TYPES[entry.type].retention is Retention.TASK
    )


def feedback_for(memory: Memory, task: str, phase: str, iteration: int) -> Memory:
    """Return what was said of the round before *iteration*: directives first."""
    found = [
        entry
        for entry in memory
        if (entry.task, entry.phase, entry.iteration) == (task, phase, iteration - 1)
        and entry.type in FEEDBACK_TYPES
    ]
    return tuple(sorted(found, key=lambda entry: FEEDBACK_TYPES.index(entry.type)))


def render_memory(memory: Memory, task: str, budget: int = BUDGET) -> str:
    """Return what is remembered of *task*, in at most *budget* characters.

    Items are cut, and the oldest of a section left out, before a section is: one long item hides no other.
    """
    mine = [entry for entry in memory if entry.task == task]
    parts = [
        (row.heading, [" ".join(entry.content.split()) for entry in mine if entry.type is kind])
        for kind, row in MEMORY_TYPES.items()
    ]
    shown = [(heading, items) for heading, items in parts if items]
    text: list[str] = []
    left = budget
    for position, (heading, items) in enumerate(shown):
        # What the sections below need at least is kept for them.
        below = sum(len(_section(name, others, 0)) + 1 for name, others in shown[position + 1 :])
        section = _section(heading, items, left - below)
        if len(section) + 1 > left:
            break
        text.append(section)
        left -= len(section) + 1
    return "\n".join(text)


def _section(heading: str, items: Sequence[str], room: int) -> str:
    """Return a section with as many of the latest *items* as fit; at least the last, cut short."""
    lines = [f"- {items[-1]}"]
    head = f"### {heading}\n"
    if len(head) + len(lines[0]) > room:
        longest = max(SHORTEST_ITEM, room - len(head))
        return head + _cut(lines[0], longest)
    used = len(head) + len(lines[0])
    for item in reversed(items[:-1]):
        line = f"- {item}"
        if used + len(line) + 1 > room:
            break
        lines.insert(0, line)
        used += len(line) + 1
    return head + "\n".join(lines)


def _cut(line: str, longest: int) -> str:
    return line if len(line) <= longest else line[: longest - 1] + "…"
