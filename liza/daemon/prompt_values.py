"""Values for the prompt templates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.domain.anomalies import anomaly_sentence
from liza.domain.memory import FEEDBACK_TYPES, MEMORY_TYPES, feedback_for, render_memory
from liza.domain.phase_handoff import HANDOFF_NAMES, phase_input
from liza.domain.proposals import proposed_tasks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from liza.daemon.policy.planner import PlanRequest
    from liza.domain.model import Checkpoint, Discovery, Handoff, Note, State, Task
    from liza.domain.verdicts import Evidence

SHOWN_DISCOVERIES: Final = 30
LONGEST_TEXT: Final = 20_000  # characters of one text; a diff can be of any size, and a context cannot
_SHOWN_EVENTS: Final = frozenset({"fail", "fail_integration", "block", "release", "reclaim"})

PromptValues = dict[str, str]


def for_plan(state: State, wake: PlanRequest) -> PromptValues:
    return {
        "goal": state.goal.description,
        "spec": state.goal.spec_ref or "",
        "sent_back": _sent_back(state, wake),
        "notes": _lines(_notes(state, wake)),
        "reported": _anomalies(state, wake),
        "found": _discoveries(state, wake),
        "tasks": _tasks(state),
        "labels": " ".join(sorted({label for agent in state.agents.values() for label in agent.labels})),
    }


def for_plan_review(state: State) -> PromptValues:
    said = [f"- {note.message}" for note in state.human_notes.values() if note.about is None]
    return {
        "goal": state.goal.description,
        "spec": state.goal.spec_ref or "",
        "plan": plan_text(proposed_tasks(state)),
        "notes": _lines(said),
        "tasks": _tasks(state),
    }


def plan_text(tasks: Iterable[Task]) -> str:
    """Return *tasks* as somebody reads them who decides about the plan."""
    return "\n\n".join(_lines(_planned_lines(task)) for task in tasks)


def _planned_lines(task: Task) -> list[str]:
    lists = {
        "done when": task.done_when,
        "in": task.scope.include,
        "out": task.scope.exclude,
        "depends on": task.depends_on,
        "spec": [task.spec_ref] if task.spec_ref else [],
        "validation": [task.validation.command] if task.validation else [],
    }
    told = [f"  {name}: {'; '.join(values)}" for name, values in lists.items() if values]
    return [f"{task.id} ({task.kind}): {task.description}", *told]


def _sent_back(state: State, wake: PlanRequest) -> str:
    if not wake.replaces:
        return ""
    drafts = (state.tasks[name] for name in wake.replaces)
    return f"{state.goal.sent_back}\n\n{plan_text(drafts)}"


def for_replan(state: State, wake: PlanRequest) -> PromptValues:
    task = state.task(str(wake.task))
    return {
        **_task_values(task),
        "blocked": _lines([task.blocked_reason or "", *task.questions]),
        "history": _lines(_attempts(task)),
        "notes": _lines(_notes(state, wake)),
        "reported": _anomalies(state, wake),
        "found": _discoveries(state, wake),
        "tasks": _tasks(state),
    }


def for_checkpoint(state: State, task: Task) -> PromptValues:
    return {
        **_for_work(task),
        "iteration": str(task.iteration),
        "spec": task.spec_ref or state.goal.spec_ref or "",
        "guidance": _lines(_guidance(state, task)),
        "feedback": _feedback(task),
    }


def _for_work(task: Task) -> PromptValues:
    """Return the values of *task* for who works on it: once there is a plan, that stands for the issue."""
    known = _task_values(task)
    return {**known, "description": _description(task, phase_input(task))} if task.issue else known


def for_implement(state: State, task: Task) -> PromptValues:
    return {**for_checkpoint(state, task), "checkpoint": _checkpoint(task.checkpoint)}


def for_thinking(state: State, task: Task) -> PromptValues:
    return for_checkpoint(state, task)


def for_review(state: State, task: Task, *, diff: str, log: str, checks: str) -> PromptValues:
    return {
        **_task_values(task),
        "iteration": str(task.iteration),
        "base": str(task.base_commit),
        "commit": str(task.review_commit or task.base_commit),
        "checkpoint": _checkpoint(task.checkpoint),
        "summary": _summary(task, log)[:LONGEST_TEXT],
        "checks": checks[:LONGEST_TEXT],
        "notes": _lines(f"- {message}" for message in _notes_about(state, task)),
        "feedback": _feedback(task),
        "diff": diff
        if len(diff) <= LONGEST_TEXT
        else f"{diff[:LONGEST_TEXT]}\n(cut; `git diff` shows the rest)",
    }


def _summary(task: Task, log: str) -> str:
    """Return what its maker says of the work that is judged."""
    said = f"Nothing needs doing: {task.nothing_to_do}" if task.nothing_to_do else log
    return _lines([said, *_artifact_lines(task)])


def _task_values(task: Task) -> PromptValues:
    scope = [
        f"in: {', '.join(task.scope.include) or 'not limited'}",
        f"out: {', '.join(task.scope.exclude) or 'nothing'}",
    ]
    return {
        "task": task.id,
        "description": _description(task, task.description),
        "done_when": _lines(f"- {line}" for line in task.done_when),
        "scope": _lines(scope),
    }


def _description(task: Task, text: str) -> str:
    return _lines([text, *([f"Validation: {task.validation.command}"] if task.validation else [])])


def _lines(lines: Iterable[str]) -> str:
    return "\n".join(lines)


def _guidance(state: State, task: Task) -> list[str]:
    """Return all that helps a coder: the planner's words, people's, what failed before, and the hand-over."""
    return [
        *([task.guidance] if task.guidance else []),
        *(f"People say: {message}" for message in _notes_about(state, task) if message != task.guidance),
        *_attempts(task),
        *_artifact_lines(task),
        *_memory(task),
        *_handoff(state.handoff.get(task.id)),
    ]


def _artifact_lines(task: Task) -> list[str]:
    """Return what work in other phases left for this one."""
    texts = {name: one for name, one in task.artifacts.items() if name not in HANDOFF_NAMES}
    return [f"{name}, of {one.phase}: {one.text}" for name, one in texts.items()]


def _memory(task: Task) -> list[str]:
    """Return what earlier work wants remembered; what was found wrong comes with the feedback."""
    kept = tuple(entry for entry in task.memory if entry.type not in FEEDBACK_TYPES)
    return [f"What is remembered of it:\n{render_memory(kept, task.id)}"] if kept else []


def _notes_about(state: State, task: Task) -> list[str]:
    return [note.message for note in state.human_notes.values() if note.about == task.id]


def _attempts(task: Task) -> list[str]:
    """Return what the latest attempts came to, as far as history shows it."""
    entries = [entry for entry in task.history if entry.event in _SHOWN_EVENTS and "reason" in entry.facts]
    return [f"{entry.event} by {entry.by}: {entry.facts['reason']}{_paths(entry.facts)}" for entry in entries]


def _paths(facts: object) -> str:
    paths = facts.get("paths") if isinstance(facts, dict) else None
    return f" (in {', '.join(paths)})" if paths else ""


def _handoff(handoff: Handoff | None) -> list[str]:
    if handoff is None:
        return []
    return [f"Handed over by {handoff.agent}: {handoff.summary}"]


def _feedback(task: Task) -> str:
    if task.rejection_reason is None:
        return ""
    here = task.position
    rounds = here.iterations.get(here.phase, 1) if here else 1
    # Who works is one round further than who judged; who judges sees the round before its own.
    known = feedback_for(task.memory, task.id, here.phase, rounds) if here else ()
    points = [
        f"- {item.severity}: {f'{item.file}:{item.line or 1}: ' if item.file else ''}{item.message}"
        f"{f' ({item.suggestion})' if item.suggestion else ''}"
        for item in task.rejection_feedback
    ]
    heard = [f"- {MEMORY_TYPES[one.type].heading}: {one.content}" for one in known]
    return _lines([task.rejection_reason, *points, *heard, *_output(task.rejection_output)])


def _output(evidence: Evidence | None) -> list[str]:
    """Return what the gate ran that sent the work back, and the end of what that printed."""
    if evidence is None or evidence.command is None:
        return []
    ended = "did not end by itself" if evidence.code is None else f"ended with exit code {evidence.code}"
    return [f"`{evidence.command}` {ended}. Its output ends with:", *evidence.tail.splitlines()]


def _checkpoint(checkpoint: Checkpoint | None) -> str:
    if checkpoint is None:
        return ""
    return _lines(
        [
            checkpoint.intent,
            *(f"assumes: {line}" for line in checkpoint.assumptions),
            f"risks: {checkpoint.risks or 'none named'}",
            f"files: {', '.join(checkpoint.files_to_modify) or 'none named'}",
            *([f"validation: {checkpoint.validation.command}"] if checkpoint.validation else []),
        ]
    )


def _notes(state: State, wake: PlanRequest) -> list[str]:
    notes: list[Note] = [state.human_notes[name] for name in wake.notes]
    return [f"- {f'({note.about}) ' if note.about else ''}{note.message}" for note in notes]


def _anomalies(state: State, wake: PlanRequest) -> str:
    """Return the anomalies that nobody dealt with; those of the task that is asked about come first."""
    found = sorted(
        (state.anomalies[name] for name in wake.anomalies), key=lambda one: one.task_id != wake.task
    )
    return _lines(f"- {anomaly_sentence(one)}" for one in found)


def _discoveries(state: State, wake: PlanRequest) -> str:
    """Return what agents found beside their tasks: what is new, then what became of the rest."""
    new = [state.discovered[name] for name in wake.discoveries]
    old = [item for item in state.discovered.values() if item.considered is not None][-SHOWN_DISCOVERIES:]
    return _lines(f"- {item.description} ({_discovery_status(state, item)})" for item in (*new, *old))


def _discovery_status(state: State, item: Discovery) -> str:
    if item.considered is None:
        return f"{item.urgency}, new, by {item.discovered_by}"
    if item.became_task is None:
        return "looked at before; no task came of it"
    return f"became {item.became_task}, which is {state.status_of(item.became_task)}"


def _tasks(state: State) -> str:
    return _lines(
        f"- {task.id} ({task.status}): {task.description.splitlines()[0]}" for task in state.tasks.values()
    )
