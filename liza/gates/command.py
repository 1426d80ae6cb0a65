"""The command gate: the project's own commands, and those that agents say prove their work, run by us.

They run on a checkout of exactly the head's tree, never in the agent's worktree: what is not committed
cannot help, and what they change is not what is judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, Self

from pydantic import Field, model_validator

from liza.agents.protocol import Ending
from liza.gates.case import Case, Trial
from liza.gates.expecting import Check, checks_of, missing
from liza.gates.failures import reason_for
from liza.gates.finding import Finding, blocker, concern, first, has_blocker, passed, revise, tail, unknown
from liza.gates.forbidden import forbidden_in
from liza.gates.running import evidence, how, outcome_of
from liza.model import Validation
from liza.record import Line, Record
from liza.verdicts import Feedback, Outcome

NO_SUCH_COMMAND: Final = 127  # what a shell ends with
SHOWN_OUTPUT: Final = 400  # characters of a command's output in a message; the evidence has more

_PLACE: Final = re.compile(
    r"^(?:\s*File \")?(?P<file>[\w./+-]+\.\w+)(?:\", line |:)(?P<line>\d+)(?P<rest>.*)$", re.MULTILINE
)


class Options(Record):
    command: Literal["setup", "test", "lint"] | None = None
    source: Literal["checkpoint.validation", "task.validation", "done_when"] | None = Field(
        default=None, alias="from"
    )
    run: Line | None = None
    expect: str = ""
    keep: tuple[Line, ...] = ()
    mode: Literal["gate", "record"] = "gate"

    @model_validator(mode="after")
    def _is_one_command(self) -> Self:
        if sum(1 for one in (self.command, self.source, self.run) if one) != 1:
            raise ValueError("give exactly one of command, from or run")
        return self


def judge(options: Options, case: Case) -> Finding:
    """Run what *options* name; in the mode `record`, what comes of it does not decide."""
    found = _of(options)(options, case)
    if options.mode == "record" and found.outcome is Outcome.REVISE:
        return passed(f"recorded: {found.reason}", found.feedback, found.evidence, label="recorded")
    return found


def _of(options: Options) -> Callable[[Options, Case], Finding]:
    if options.source == "done_when":
        return _done_when
    return _claimed if options.source else _own


def _own(options: Options, case: Case) -> Finding:
    name = options.command or "run"
    line = options.run or getattr(case.config.gates, name)
    if line is None:
        return passed(f"not set up: there is no {name} command in the settings", label="skipped")
    if name == "setup":
        setup = case.checkout(case.tree).setup
        trial = Trial(line, setup) if setup else case.trial(case.tree, name, line)
    else:
        trial = case.trial(case.tree, name, line, options.keep)
    return ended(name, trial, options.expect)


def ended(name: str, trial: Trial, expect: str = "") -> Finding:
    """Return what *trial* says about its tree."""
    name = "setup" if trial.is_setup else name
    shown, outcome = evidence(trial.line, trial.ran), outcome_of(trial.ran)
    if outcome is Outcome.NONE:
        return unknown(f"{name} ({trial.line}) {how(trial.ran)}", shown)
    if outcome is Outcome.REVISE:
        message = f"`{trial.line}` {how(trial.ran)}; its last lines are shown with this"
        places_named = places(trial.ran.said)
        return revise(
            reason_for(name, trial.line, trial.ran), first([blocker(message), *places_named]), shown
        )
    if gaps := missing(expect, trial.ran.said):
        reason = f"{name} did not print what it has to"
        return revise(reason, [blocker(f"{gap!r} is not in its output") for gap in gaps], shown)
    return passed(f"{name} ({trial.line}) passed", (), shown)


def places(said: str) -> list[Feedback]:
    """Return the places inside the repository that the output of a failed command names."""
    found = {
        (match["file"].removeprefix("./"), int(match["line"])): match["rest"]
        for match in _PLACE.finditer(said)
    }
    inside = {place: rest for place, rest in found.items() if not place[0].startswith(("/", ".."))}
    return [
        concern(rest.strip(" :") or "the output names this place", file, line)
        for (file, line), rest in list(inside.items())[-5:]
    ]


def _claimed(options: Options, case: Case) -> Finding:
    """Run what the agent says validates its work: a claim that is not true is told as such."""
    validation = _validation(options, case)
    if validation is None:
        note = concern("the checkpoint names no validation, so nothing of what it claims was run")
        return passed(f"not set up: {options.source} is empty", [note], label="skipped")
    line = validation.command
    if bad := forbidden_in(line):
        reason = f"the validation is not run: {bad} is forbidden"
        return revise(reason, [blocker(f"{reason}; name a command that only looks")])
    trial = case.trial(case.tree, "validation", line)
    found = ended("validation", trial)
    if found.outcome is Outcome.REVISE and not trial.is_setup:
        claim = f"the checkpoint claims that `{line}` succeeds, and that is not true of the committed work"
        return found._replace(feedback=first([blocker(claim), *found.feedback]))
    if found.outcome is not Outcome.PASS or not missing(validation.expect, trial.ran.said):
        return found
    claim = (
        f"the checkpoint claims that `{line}` prints {validation.expect.strip()!r}; it printed "
        f"{tail(trial.ran.said)[-SHOWN_OUTPUT:]!r}"
    )
    return revise(f"validation ({line}) did not print what was claimed", [blocker(claim)], found.evidence)


def _validation(options: Options, case: Case) -> Validation | None:
    if options.source == "task.validation":
        return case.task.validation
    return case.checkpoint.validation if case.checkpoint else None


def _done_when(_: Options, case: Case) -> Finding:
    """Run the checks that the `done_when` lines carry."""
    checks = checks_of(case.task)
    if not checks:
        return passed("not set up: no done_when line carries a command", label="skipped")
    results = [(check, case.trial(case.tree, "done-when", check.command)) for check in _allowed(checks)]
    refused = [check for check in checks if forbidden_in(check.command)]
    feedback = [blocker(f"{check.line!r} is not run: its command is forbidden") for check in refused]
    for check, trial in results:
        feedback += _unmet(check, trial)
    stopped = next((trial for _, trial in results if outcome_of(trial.ran) is Outcome.NONE), None)
    if stopped:
        return ended("done_when", stopped)
    worst = next(
        (trial for check, trial in results if _unmet(check, trial)), results[-1][1] if results else None
    )
    shown = evidence(worst.line, worst.ran) if worst else None
    if has_blocker(feedback):
        return revise("a done_when line is not met", first(feedback), shown)
    return passed("every done_when line that carries a command is met", first(feedback), shown)


def _allowed(checks: Sequence[Check]) -> list[Check]:
    return [check for check in checks if not forbidden_in(check.command)]


def _unmet(check: Check, trial: Trial) -> list[Feedback]:
    ran = trial.ran
    if trial.is_setup:
        return [blocker(f"setup ({trial.line}) {how(ran)}, so {check.line!r} cannot be checked")]
    if ran.code == NO_SUCH_COMMAND and "/" not in check.command.split()[0]:
        return [concern(f"{check.line!r} was not checked: there is no such command here")]
    if ran.ending is not Ending.DONE or ran.code != check.code:
        return [blocker(f"{check.line!r} is not met: the command {how(ran)}")]
    gaps = missing(check.expect, ran.said)
    printed = tail(ran.said)[-SHOWN_OUTPUT:]
    return [blocker(f"{check.line!r} is not met: it printed {printed!r}")] if gaps else []
