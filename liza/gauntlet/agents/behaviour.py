"""What all agents of the gauntlet share: their input, their answers, and honest work."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from liza.gauntlet.fixtures import INTEGRATION, SCOPE, TASK, WORK

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ALWAYS: Final = 10**6  # iterations: a misdeed that is never given up
TRIED: Final = "agent: tries "  # a run without this line on stderr has tried nothing, and so shown nothing
THROWN: Final = "thrown by the agent"  # what a switch says that an agent threw

Answer = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One run of an agent: the user's checkout, the step, and the attempt."""

    root: Path
    step: str
    task: str
    iteration: int
    prompt: str
    hat: str = ""

    @property
    def is_asked_again(self) -> bool:
        return "\n# Once more\n" in self.prompt


Behaviour = Callable[[Run], "Answer | str | None"]


class Misbehaviour(NamedTuple):
    """What is done in place of honest work, up to an iteration."""

    do: Behaviour
    until: int
    is_quiet: bool = False  # it says not even that it was there


MISBEHAVIOURS: Final[dict[tuple[str, str], Misbehaviour]] = {}


BehaviourType = TypeVar("BehaviourType", bound=Behaviour)


def misbehaviour(
    name: str, step: str = "implement", *, until: int = 1, is_quiet: bool = False
) -> Callable[[BehaviourType], BehaviourType]:
    """Put a function into the table as what the agent *name* does when asked for *step*."""

    def register(do: BehaviourType) -> BehaviourType:
        MISBEHAVIOURS[name, step] = Misbehaviour(do, until, is_quiet)
        return do

    return register


def block(answer: Answer) -> str:
    return f"```liza\n{json.dumps(answer)}\n```\n"


def say_line(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


@contextmanager
def ignore_failures() -> Iterator[None]:
    """Suppress and log a failure, as where a sandbox prevented the misbehaviour."""
    try:
        yield
    except (OSError, subprocess.CalledProcessError) as error:
        say_line(f"agent: was prevented: {error}")


def sh(line: str, **environment: str) -> str:
    """Run a line of shell and return what it printed; raise where it failed."""
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        say_line(f"agent: {line!r} failed: {done.stderr.strip()}")
        done.check_returncode()
    return done.stdout.strip()


def write_files(files: Mapping[str, str], under: Path | None = None) -> None:
    for name, text in files.items():
        path = (under or Path()) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def commit_everything(message: str = "Add discounts") -> None:
    """Commit everything here; the message comes by stdin, so that it may be anything."""
    sh("git add --all")
    line = "exec git commit --quiet --allow-empty --file -"
    subprocess.run(["/bin/sh", "-c", line], input=message, text=True, check=True, capture_output=True)


def commit_work(files: Mapping[str, str] = WORK, message: str = "Add discounts") -> Answer:
    """Write *files* and commit them, as an honest coder does."""
    write_files(files)
    commit_everything(message)
    return done_answer()


def done_answer(summary: str = "Discounts are there, with tests") -> Answer:
    return {"status": "done", "summary": summary}


def approval(reason: str = "It does what was asked for, and the tests are green") -> Answer:
    return {"verdict": "approve", "reason": reason, "confidence": 9}


def rejection(reason: str, **where: object) -> Answer:
    feedback = {"message": reason, "file": "shop/discount.py", "line": 1, **where}
    return {"verdict": "reject", "reason": reason, "feedback": [feedback]}


def planned_task(**changes: object) -> Answer:
    command = "python3 -c 'from shop.discount import discounted; print(discounted(50, 20))'"
    return {
        "id": TASK,
        "description": "Give discounts",
        "done_when": ["discounted(200, 10) is 180", "discounted(200, 101) raises a ValueError"],
        "scope": SCOPE,
        "spec_ref": "specs/vision.md",
        "kind": "code",
        "validation": {"command": command, "expect": "40"},
        **changes,
    }


def honest_plan(_act: Run) -> Answer:
    return {"tasks": [planned_task()]}


def honest_replan(_act: Run) -> Answer:
    return {"questions": ["What should be done about it?"]}


def checkpoint_answer(**changes: object) -> Answer:
    command = "python3 -c 'from shop.discount import discounted; print(discounted(200, 10))'"
    return {
        "intent": "Add discounted() with tests for both lines of done_when",
        "assumptions": ["prices are whole numbers"],
        "risks": "none",
        "validation": {"command": command, "expect": "180"},
        "files_to_modify": list(WORK),
        **changes,
    }


def honest_checkpoint(_act: Run) -> Answer:
    return checkpoint_answer()


def honest_implement(act: Run) -> Answer:
    """Do it right, from the start: what an earlier round left is no good."""
    if act.iteration > 1:
        with ignore_failures():
            sh(f"git reset --quiet --hard $(git merge-base HEAD {INTEGRATION}) && git clean -ffdq")
    return commit_work()


def honest_review(_act: Run) -> Answer:
    """Approve whatever it is: a gate that the gauntlet has to pass must not be an agent's good judgement."""
    return approval()


HONEST: Final[dict[str, Behaviour]] = {
    "plan": honest_plan,
    "replan": honest_replan,
    "checkpoint": honest_checkpoint,
    "implement": honest_implement,
    "review": honest_review,
}


def honest_thought(_act: Run) -> Answer:
    """Think, as whoever plans does under the workflows that have such a hat."""
    step = {
        "objective": "discounts",
        "instructions": "add discounted() with tests",
        "files": list(WORK),
        "loc_estimate": 40,
        "risk": "low",
        "success_criteria": ["discounted(200, 10) is 180"],
        "avoid": ["other files"],
    }
    said = {"status": "done", "summary": "Add discounted() with tests", "confidence": 9, "step": step}
    return {**said, "handoff": {"files_to_create": list(WORK)}}


def honest_assessment(_act: Run) -> Answer:
    return {**approval(), "label": "SIMPLE"}


HONEST_HATS: Final[dict[tuple[str, str], Behaviour]] = {
    **{(hat, "implement"): honest_thought for hat in ("thinker", "planner", "coordinator")},
    ("complexity_assessor", "review"): honest_assessment,
}
