"""The one place where a prompt is put together, so that no foreign text gets into one unfenced.

Every field is foreign unless `PLAIN` says that its shape makes it harmless. A fence carries a nonce that
whoever wrote the text could not know, so that the text cannot close it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.daemon.policy import planner
from liza.daemon.policy.planner import PlanRequest, spec_file
from liza.domain.anomalies import anomaly_sentence
from liza.domain.answer_parsing import DIALECT_STEPS
from liza.domain.answers import AGENT_ANOMALY_TYPES, ROLE_OF_STEP, Step
from liza.domain.dialects import DIALECTS
from liza.domain.memory import FEEDBACK_TYPES, MEMORY_TYPES, feedback_for, render_memory
from liza.domain.model import (
    Evidence,
    Feedback,
    Status,
    Task,
    TaskScope,
    Verdict,
)
from liza.domain.phase_handoff import HANDOFF_NAMES, phase_input
from liza.domain.record import printable, safe_id
from liza.domain.waits import proposed_tasks
from liza.errors import UsageError
from liza.repo.repository import BRANCHES, commits_between, diff_text

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from liza.domain.model import Checkpoint, Discovery, Handoff, Note, Role, State
    from liza.repo.repository import Repository
    from liza.workflow.document import Hat


# The first part of every prompt: role, paths, specs and task; an agent is not started while one of them is
# missing.

# Characters of a spec that a prompt carries where the agent cannot read the file.
LONGEST_SPEC: Final = 20_000


class RunPaths(NamedTuple):
    """The paths of a run."""

    root: Path  # of the user's project
    cwd: Path  # where the agent works
    seen: Path  # the path of that for the agent itself


class Bootstrap(NamedTuple):
    """Role, specs, board, root and task, as an agent is given them."""

    role: Role
    step: Step
    root: Path  # of the user's project
    cwd: Path  # where the agent works
    seen: Path  # the path of that for the agent itself
    goal: str
    task: Task | None = None
    spec: str | None = None  # the reference that counts for the task, or else for the goal
    hat: str | None = None  # the role of the workflow that is played in the phase of the task

    @classmethod
    def of(
        cls,
        role: Role,
        step: Step,
        state: State,
        task: Task | None,
        where: RunPaths,
        hat: str | None = None,
    ) -> Bootstrap:
        # A task whose spec is missing can only be replanned by who reads the goal's.
        own = task.spec_ref if task and step is not Step.REPLAN else None
        reference = own or state.goal.spec_ref
        return cls(role, step, *where, state.goal.description, task, reference, hat)

    def missing(self) -> tuple[str, ...]:
        """Return a sentence for each thing that is missing."""
        task = None if self.step is Step.REPLAN else self.task  # what a task lacks is a reason to replan it
        found = {
            "the goal has no words": bool(self.goal.strip()),
            f"its working directory {self.cwd} does not exist": self.cwd.is_dir(),
            f"its spec {self.spec!r} is no file of the repository": self.spec is None
            or self._file() is not None,
            "the task has no description": task is None or bool(task.description.strip()),
            "the task has no done_when, so nobody could tell when it is done": task is None
            or bool(task.done_when),
        }
        return tuple(sentence for sentence, is_there in found.items() if not is_there)

    def text(self) -> str:
        """Return what stands in the prompt."""
        return "\n".join(
            [
                f"role: {self.role}, step: {self.step}",
                f"task: {self.task.id if self.task else 'none; the goal as a whole'}",
                *self._phase_lines(),
                f"working directory: {self.seen}",
                *self._location_lines(),
                f"specs: {self.spec or 'none but the goal'}",
                *self._spec_text_lines(),
            ]
        )

    def _phase_lines(self) -> list[str]:
        position = self.task.position if self.task else None
        return [f"phase: {position.phase}, hat: {self.hat}"] if position and self.hat else []

    def _location_lines(self) -> list[str]:
        if self.seen != self.cwd:
            note = "a worktree of your own, at the path of the project; the user's checkout is out of reach"
            return [f"project root: {self.seen} ({note})", "board: kept by Liza, out of reach"]
        return [
            f"project root: {self.root} (the user's own checkout; it is not yours)",
            f"board: {self.root}/.liza (kept by Liza; it is not yours to read or write)",
        ]

    def _file(self) -> Path | None:
        """Return the spec file: from the agent's checkout, or from the user's where it is not committed."""
        path = spec_file(self.spec or "")
        found = (root / path for root in (self.cwd, self.root))
        return next((file for file in found if file.is_file()), None)

    def _spec_text_lines(self) -> list[str]:
        file = self._file() if self.spec else None
        if file is None or file.is_relative_to(self.cwd):
            return []
        text = file.read_text(errors="replace")[:LONGEST_SPEC]
        return ["", f"The spec is not committed yet, so this is what {self.spec} says:", "", text]


# Values for the prompt templates.

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
    """Return *tasks* as text for a reviewer of the plan."""
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


def shown_to(hat: Hat | None, task: Task) -> Task:
    """Return *task* with those of its texts that *hat* may see."""
    if hat is None or hat.sees is None:
        return task
    return task.replace(artifacts={name: one for name, one in task.artifacts.items() if name in hat.sees})


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
    """Return the open anomalies; those of the task in question come first."""
    found = sorted(
        (state.anomalies[name] for name in wake.anomalies), key=lambda one: one.task_id != wake.task
    )
    return _lines(f"- {anomaly_sentence(one)}" for one in found)


def _discoveries(state: State, wake: PlanRequest) -> str:
    """Return the discoveries of agents: first the new ones, then the others with their outcome."""
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


NONE: Final = "(none)"
LONGEST_REPLY: Final = 12_000  # characters of the end of a reply whose answer is asked for again
BOOTSTRAP: Final = "bootstrap"  # who is asked, about what, and where: the same for every step
TAKEN_OVER: Final = (
    "Another agent began this step and could not go on, which was no fault of its work. What it changed is "
    "still in the working directory: look at that first, keep what is right, and go on from there."
)


def _number(text: str) -> str:
    return str(int(text))


def _commit(text: str) -> str:
    return f"{int(text, 16):0{len(text)}x}"


# What each may be, by what it is checked with; all else is fenced.
UNFENCED: Final[dict[str, Callable[[str], str]]] = {
    "task": safe_id,
    "iteration": _number,
    "base": _commit,
    "commit": _commit,
}
ANSWER: Final = "## Answer\n"  # what follows it in a template is the form of the answer
OWN_ANSWER: Final = f"""\
- End your reply with one block that starts with a line ` ```liza `, holds the answer as YAML, and ends with a
  line ` ``` `. Only the last such block counts. Use the keys that are named below and no others.
- Any answer may report what should not have happened under `anomalies`: a list of `{{type, …}}`. Types: \
{", ".join(AGENT_ANOMALY_TYPES)}."""
DIALECT_ANSWER: Final = """\
- End your reply in the form that stands below under "Answer", and in no other: only its last one counts. What
  is called a key or a field before it is what the form has a place for; the rest is left out."""


def required_fields(step: str) -> frozenset[str]:
    """Return the names of the values that the prompt of *step* needs."""
    return frozenset(_template(step).get_identifiers()) | {BOOTSTRAP}


def render_prompt(
    step: str, known: Mapping[str, str], *, nonce: str, hat: str | None = None, form: str | None = None
) -> str:
    """Return the prompt for *step* with what is *known*, every foreign part of it fenced with *nonce*.

    *hat* is what the role of a workflow is there for; *form* is that of its answer where it has its own.
    """
    missing, unknown = required_fields(step) - known.keys(), known.keys() - required_fields(step)
    if missing or unknown:
        message = f"the prompt for {step} lacks {sorted(missing)} and has no place for {sorted(unknown)}"
        raise ValueError(message)
    values = {name: _safe(name, text, nonce) for name, text in known.items()}
    answered = OWN_ANSWER if form is None else DIALECT_ANSWER
    house = _template("house").substitute(answered=answered, nonce=nonce, bootstrap=values.pop(BOOTSTRAP))
    part = f"{hat.strip()}\n\n" if hat else ""
    asked, heading, own = _template(step).template.rpartition(ANSWER)
    told = Template(asked).substitute(values) + heading + (own if form is None else f"\n{form}\n")
    return f"{house}\n{part}{told}"


def hat_names() -> list[str]:
    """Return the files that say what a role is there for."""
    found = files("liza.daemon.prompts").joinpath("hats").iterdir()
    return sorted(one.name for one in found if one.name.endswith(".md") and one.name != "think.md")


def hat_text(name: str) -> str:
    """Return what the role is there for whose prompt is the file *name*."""
    return files("liza.daemon.prompts").joinpath("hats", name).read_text(encoding="utf-8")


def part_of(hat: Hat | None) -> str | None:
    """Return what a role is there for: in the words of its document, or of the file that it names."""
    if hat is None:
        return None
    return hat.instructions or (hat_text(hat.prompt) if hat.prompt else None)


def form_of(hat: Hat | None, name: str | None, step: Step) -> str | None:
    """Return how the role *name* answers *step*, where it speaks a dialect; None for our own block."""
    if hat is None or step not in DIALECT_STEPS or hat.dialect not in DIALECTS:
        return None
    return DIALECTS[hat.dialect].form(str(name))


def repeat_prompt(asked: str, why: str, *, nonce: str) -> str:
    """Return the prompt *asked* with the request to answer again, because of *why*."""
    return f"{asked}\n{_template('again').substitute(nonce=nonce, why=fence('why', why, nonce))}"


def correction_prompt(why: str, *, only_answer: bool, nonce: str) -> str:
    """Return the prompt that asks an agent in its own session to correct its answer, because of *why*."""
    name = "block" if only_answer else "mend"
    return _template(name).substitute(nonce=nonce, why=fence("why", why, nonce))


class AnswerForm(NamedTuple):
    """What an answer looks like: the prompt that has its form, and what a hat adds to it."""

    template: str
    role: str
    hat: str | None = None  # what the role is there for


def answer_prompt(form: AnswerForm, step: Step, reply: str, why: str, *, nonce: str) -> str:
    """Return the prompt that asks a new session for the answer block that *reply* lacks."""
    # Marked line by line, so that no block in it is a block of this prompt.
    end = "\n".join(f"| {line}" for line in reply.strip()[-LONGEST_REPLY:].split("\n"))
    return _template("answer").substitute(
        nonce=nonce,
        step=step,
        role=form.role,
        why=fence("why", why, nonce),
        reply=fence("reply", end, nonce),
        form="\n\n".join(
            [
                _template(form.template).template.partition(ANSWER)[2].strip(),
                *([form.hat.strip()] if form.hat else []),
            ]
        ),
    )


def takeover_prompt(asked: str) -> str:
    """Return the prompt *asked* for an agent that goes on where another one had to stop."""
    return f"{asked}\n{TAKEN_OVER}\n"


def fence(name: str, text: str, nonce: str) -> str:
    """Return *text* between two lines that it cannot contain."""
    if nonce in text:
        message = f"the nonce is in the text of {name}; it must not be known to whoever wrote that"
        raise ValueError(message)
    return f"<<<{nonce} {name}\n{text.strip() or NONE}\n{nonce}>>>"


def _safe(name: str, text: str, nonce: str) -> str:
    check = UNFENCED.get(name)
    return check(text) if check else fence(name, text, nonce)


@cache
def _template(name: str) -> Template:
    return Template(files("liza.daemon.prompts").joinpath(f"{name}.md").read_text(encoding="utf-8"))


# A prompt as an agent would get it now, for people who write one or want to know what theirs are told.

# A task to show where the board has none.
EXAMPLE: Final = "greet"


def preview_prompt(
    state: State, repository: Repository, step: Step, name: str | None, *, now: datetime
) -> str:
    """Return the prompt of *step*, about the task *name*, the first on the board, or an example of one."""
    task = _task_to_show(state, name, now) if step is not Step.PLAN else None
    if step is Step.PLAN and name is not None:
        raise UsageError("a plan is about the goal as a whole; leave the task out")
    if task is not None and task.id not in state.tasks:
        state = state.replace(tasks={**state.tasks, task.id: task})
    root = repository.root
    begin = Bootstrap.of(ROLE_OF_STEP[step], step, state, task, RunPaths(root, root, root))
    facts = {**_values_for(state, repository, step, task), BOOTSTRAP: begin.text()}
    return render_prompt(
        step, {key: printable(text) for key, text in facts.items()}, nonce=secrets.token_hex(8)
    )


def _task_to_show(state: State, name: str | None, now: datetime) -> Task:
    if name is not None:
        return state.task(name)
    example = Task(
        id=EXAMPLE,
        description="Add a function that greets",
        status=Status.IDLE,
        done_when=("greet('you') returns Hello, you",),
        scope=TaskScope(include=("greet.py", "tests")),
        created=now,
        created_by="human",
    )
    return next(iter(state.tasks.values()), example)


def _values_for(state: State, repository: Repository, step: Step, task: Task | None) -> PromptValues:
    if task is None:
        return for_plan(
            state, planner.plan_request(state) or PlanRequest(Step.PLAN, "somebody wants to see it")
        )
    if step is Step.REPLAN:
        return for_replan(state, PlanRequest(step, "somebody wants to see it", task.id))
    if step is Step.CHECKPOINT:
        return for_checkpoint(state, task)
    if step is Step.IMPLEMENT:
        return for_implement(state, task)
    head = repository.commit_at(BRANCHES + state.config.integration_branch) or repository.head()
    base, commit = task.base_commit or head, task.review_commit or task.base_commit or head
    work = task.replace(base_commit=base, review_commit=commit)
    diff = diff_text(repository, str(base), str(commit))
    log = "\n\n".join(one.message for one in commits_between(repository, str(base), str(commit)))
    return for_review(state, work, diff=diff, log=log, checks=gate_report(task.verdicts))


# What the machine gates found, as text for whoever reviews: facts that no reviewer can raise.

NOTHING = "No check was run."


def gate_report(verdicts: Iterable[Verdict]) -> str:
    """Return what was run, how it ended and what it printed."""
    return "\n\n".join("\n".join(_verdict_lines(verdict)) for verdict in verdicts) or NOTHING


def _verdict_lines(verdict: Verdict) -> Iterator[str]:
    yield f"{verdict.gate}: {verdict.outcome}" + (f" - {verdict.reason}" if verdict.reason else "")
    yield from (f"  {_feedback_line(one)}" for one in verdict.feedback)
    if verdict.evidence:
        yield from _evidence_lines(verdict.evidence)


def _feedback_line(feedback: Feedback) -> str:
    place = feedback.file or ""
    place += f":{feedback.line}" if feedback.file and feedback.line else ""
    return f"{feedback.severity}: {f'{place}: ' if place else ''}{feedback.message}"


def _evidence_lines(evidence: Evidence) -> Iterator[str]:
    if evidence.command is None:
        return
    ended = "did not end by itself" if evidence.code is None else f"exit code {evidence.code}"
    yield f"  ran: {evidence.command} ({ended}, {evidence.seconds:.1f} s)"
    if evidence.tail:
        yield "  its output ends with:"
        yield from (f"    {line}" for line in evidence.tail.splitlines())
