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
from liza.errors import BrokenGate
from liza.gates.canary import Sight, notices_failure
from liza.gates.case import Case, Trial
from liza.gates.expecting import Check, checks_of, missing
from liza.gates.failures import UNSTARTED, are_alike, cause_of, failed_tests, named, reason_for
from liza.gates.finding import Finding, blocker, concern, first, has_blocker, passed, revise, tail, unknown
from liza.gates.forbidden import forbidden_in
from liza.gates.results import Result
from liza.gates.runners import passed_in, runner_of
from liza.gates.running import CUT_SHORT, evidence, how, outcome_of
from liza.gates.steering import steering_paths
from liza.model import Validation
from liza.record import Line, Record
from liza.verdicts import Feedback, Outcome

NO_SUCH_COMMAND: Final = 127  # what a shell ends with
PROJECT: Final = frozenset({"setup", "test", "lint"})  # whose commands are the project's own, not an agent's
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
    trial = case.setup_on(case.tree) if name == "setup" else case.trial(case.tree, name, line, options.keep)
    found = ended(name, trial, options.expect)
    if name in PROJECT:
        found = compared(name, case, trial, found)
    return trusted(case, trial, found) if name == "test" and found.outcome is Outcome.PASS else found


def trusted(case: Case, trial: Trial, found: Finding) -> Finding:
    """Return *found*, which says that the tests pass, unless what is judged may have said so itself."""
    if case.tree == case.base_tree or "docs_only" in case.facts:
        return found
    line, steers = trial.line, steering_paths(case, trial.line)
    if doubt := _contradiction(case, trial, steers):
        return revise("the tests' word cannot be taken", [blocker(doubt)], found.evidence)
    if runner_of(line) is None and not steers:
        return found
    shown = notices_failure(case, line)
    if shown.sight is not Sight.BLIND:
        return found
    message = (
        f"`{line}` passes on this work although tests in {shown.how} were made to fail; on the base it "
        "notices. Something in the change decides what the runner says: take it out"
    )
    feedback = [blocker(message), *(concern("this can decide what the runner says", path) for path in steers)]
    seen = evidence(line, trial.ran).but(run=shown.result.run) if shown.result else found.evidence
    return revise("the tests stay green whatever fails", first(feedback), seen)


def _contradiction(case: Case, trial: Trial, steers: Sequence[str]) -> str | None:
    """Return how the runner's report, its exit code and what it did on the base contradict each other."""
    before = case.results.of(case.base_tree, trial.line)
    if before is None or not trial.ran.is_green:
        return None
    if before.is_reported and trial.report is None:
        return "the runner ended well and left no report, as it does on the base; the code must not end it"
    if before.is_green and trial.report and trial.report.failed:
        return f"it ended with exit code 0, and its report has failed tests: {named(trial.report.failed)}"
    unnamed = [path for path in steers if not case.bounds.names(path)]
    lost = _lost(trial, before) if unnamed else None
    return f"{lost}, and {named(unnamed)} can decide which run" if lost else None


def _lost(trial: Trial, before: Result) -> str | None:
    """Return which tests that pass on the base do not run any more, or how many."""
    if trial.report and before.names:
        gone = frozenset(before.names) - trial.report.names - trial.report.failed
        return f"tests that pass on the base do not run any more ({named(gone)})" if gone else None
    now = passed_in(trial.line, trial.ran.said)
    if now is None or not before.passed or now >= before.passed:
        return None
    return f"{now} tests pass, {before.passed} did on the base"


def compared(name: str, case: Case, trial: Trial, found: Finding) -> Finding:
    """Return *found* without what the base is to blame for; raise where the command can judge nothing.

    What cannot be started, and what fails alike without the work, is no coder's mistake. Tests that are red
    on the base are known: they count neither for nor against the work.
    """
    name, ran = "setup" if trial.is_setup else name, trial.ran
    if found.outcome is Outcome.NONE and ran.ending is Ending.NOT_STARTED:
        raise BrokenGate(name, trial.line, how(ran), case.likely(trial.line, ran), ran.run)
    if found.outcome is not Outcome.REVISE or ran.is_green:
        return found
    if ran.ending in CUT_SHORT:
        require_end_on_base(name, case, trial)
        return found
    before = case.on_base(name, trial.line, afresh=ran.code in UNSTARTED)
    if before.is_green or before.is_empty:
        return found
    failed, cause = failed_tests(trial.line, ran.said), cause_of(trial.line, ran)
    if before.failed and failed is not None:
        return _beyond(name, trial, failed - before.known_red, before.known_red)
    if before.code == ran.code and are_alike(before.cause, cause):
        raise BrokenGate(name, trial.line, cause or how(ran), case.likely(trial.line, ran), ran.run)
    return found


def require_end_on_base(name: str, case: Case, trial: Trial) -> None:
    """Raise where *trial*, which took too long, takes too long without the work as well.

    What was kept is not believed: a service that the command waits for may have been there at that time.
    """
    if case.on_base(name, trial.line, afresh=True).ending in CUT_SHORT:
        ran = trial.ran
        raise BrokenGate(name, trial.line, how(ran), case.likely(trial.line, ran), ran.run)


def _beyond(name: str, trial: Trial, new: frozenset[str], known: frozenset[str]) -> Finding:
    shown = evidence(trial.line, trial.ran)
    note = concern(f"{len(known)} tests are red on the base as well and do not count: {named(known)}")
    if not new:
        return passed(f"{name} passed, but for tests that are red on the base", [note], shown)
    message = f"`{trial.line}` {how(trial.ran)}; these tests pass on the base: {named(new)}"
    feedback = first([blocker(message), note, *places(trial.ran.said)])
    return revise(f"{name} failed: {named(new)}", feedback, shown)


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
    if _is_absent(line, trial):
        note = concern(f"`{line}` was not run: there is no such command here")
        return passed("the validation names a command that is not here", [note], label="skipped")
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


def _is_absent(line: str, trial: Trial) -> bool:
    """Return whether *line* is a program that this machine does not have: nobody's work can change that."""
    return not trial.is_setup and trial.ran.code == NO_SUCH_COMMAND and "/" not in line.split(maxsplit=1)[0]


def _unmet(check: Check, trial: Trial) -> list[Feedback]:
    ran = trial.ran
    if trial.is_setup:
        return [blocker(f"setup ({trial.line}) {how(ran)}, so {check.line!r} cannot be checked")]
    if _is_absent(check.command, trial):
        return [concern(f"{check.line!r} was not checked: there is no such command here")]
    if ran.ending is not Ending.DONE or ran.code != check.code:
        return [blocker(f"{check.line!r} is not met: the command {how(ran)}")]
    gaps = missing(check.expect, ran.said)
    printed = tail(ran.said)[-SHOWN_OUTPUT:]
    return [blocker(f"{check.line!r} is not met: it printed {printed!r}")] if gaps else []
