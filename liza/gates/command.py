"""The command gate: the project's own commands, and those that agents say prove their work, run by us.

They run on a checkout of exactly the head's tree, never in the agent's worktree: what is not committed
cannot help, and what they change is not what is judged.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, Literal, Self

from pydantic import Field, model_validator

from liza.domain.model import Validation
from liza.domain.record import NonEmptyStr, Record
from liza.domain.verdicts import Feedback, Outcome
from liza.errors import BrokenGate
from liza.gates.canary import CanaryOutcome, run_test_canary
from liza.gates.context import GateContext, TreeRun
from liza.gates.failures import (
    NOT_STARTED_CODES,
    cause_of,
    failed_tests,
    finds_no_tests,
    is_same_cause,
    reason_for,
    summarize_tests,
)
from liza.gates.finding import (
    Finding,
    blocker,
    concern,
    has_blocker,
    most_important,
    passed,
    revise,
    tail,
    unknown,
)
from liza.gates.forbidden import forbidden_command_in
from liza.gates.known_runners import passed_count, runner_of
from liza.gates.output_check import DoneWhenCheck, checks_of, missing_output
from liza.gates.results import CachedResult
from liza.gates.runner import CUT_SHORT, describe_ending, evidence_of, outcome_of
from liza.gates.steering import steering_paths
from liza.system.run_control import RunEnding

NO_SUCH_COMMAND: Final = 127  # what a shell ends with
PROJECT: Final = frozenset({"setup", "test", "lint"})  # whose commands are the project's own, not an agent's
SHOWN_OUTPUT: Final = 400  # characters of a command's output in a message; the evidence has more

_PLACE: Final = re.compile(
    r"^(?:\s*File \")?(?P<file>[\w./+-]+\.\w+)(?:\", line |:)(?P<line>\d+)(?P<rest>.*)$", re.MULTILINE
)


class CommandOptions(Record):
    command: Literal["setup", "test", "lint"] | None = None
    source: Literal["checkpoint.validation", "task.validation", "done_when"] | None = Field(
        default=None, alias="from"
    )
    run: NonEmptyStr | None = None
    expect: str = ""
    keep: tuple[NonEmptyStr, ...] = ()
    mode: Literal["gate", "record"] = "gate"

    @model_validator(mode="after")
    def _is_one_command(self) -> Self:
        if sum(1 for one in (self.command, self.source, self.run) if one) != 1:
            raise ValueError("give exactly one of command, from or run")
        return self


def judge(options: CommandOptions, case: GateContext) -> Finding:
    """Run what *options* name; in the mode `record`, what comes of it does not decide."""
    found = _judge_for(options)(options, case)
    if options.mode == "record" and found.outcome is Outcome.REVISE:
        return passed(f"recorded: {found.reason}", found.feedback, found.evidence, label="recorded")
    return found


def _judge_for(options: CommandOptions) -> Callable[[CommandOptions, GateContext], Finding]:
    if options.source == "done_when":
        return _judge_done_when
    return _judge_claim if options.source else _judge_project_command


def _judge_project_command(options: CommandOptions, case: GateContext) -> Finding:
    name = options.command or "run"
    line = options.run or getattr(case.config.gates, name)
    if line is None:
        return passed(f"not set up: there is no {name} command in the settings", label="skipped")
    trial = (
        case.run_setup_on(case.tree) if name == "setup" else case.run_on(case.tree, name, line, options.keep)
    )
    found = finding_of(name, trial, options.expect)
    if name in PROJECT:
        found = compare_with_base(name, case, trial, found)
    return check_trust(case, trial, found) if name == "test" and found.outcome is Outcome.PASS else found


def check_trust(case: GateContext, trial: TreeRun, found: Finding) -> Finding:
    """Return *found*, unless the change under test may have decided the runner's result itself."""
    if case.tree == case.base_tree or "docs_only" in case.facts:
        return found
    line, steers = trial.line, steering_paths(case, trial.line)
    if doubt := _contradiction(case, trial, steers):
        return revise("the tests' word cannot be taken", [blocker(doubt)], found.evidence)
    if runner_of(line) is None and not steers:
        return found
    shown = run_test_canary(case, line)
    if shown.sight is not CanaryOutcome.BLIND:
        return found
    message = (
        f"`{line}` passes on this work although tests in {shown.how} were made to fail; on the base it "
        "notices. Something in the change decides what the runner says: take it out"
    )
    feedback = [blocker(message), *(concern("this can decide what the runner says", path) for path in steers)]
    seen = evidence_of(line, trial.ran).replace(run=shown.result.run) if shown.result else found.evidence
    return revise("the tests stay green whatever fails", most_important(feedback), seen)


def _contradiction(case: GateContext, trial: TreeRun, steers: Sequence[str]) -> str | None:
    """Return how the runner's report, its exit code and what it did on the base contradict each other."""
    before = case.results.of(case.base_tree, trial.line)
    if before is None or not trial.ran.is_green:
        return None
    if before.is_reported and trial.report is None:
        return "the runner ended well and left no report, as it does on the base; the code must not end it"
    if before.is_green and trial.report and trial.report.failed:
        failed = summarize_tests(trial.report.failed)
        return f"it ended with exit code 0, and its report has failed tests: {failed}"
    unnamed = [path for path in steers if not case.bounds.names(path)]
    lost = _missing_tests(trial, before) if unnamed else None
    return f"{lost}, and {summarize_tests(unnamed)} can decide which run" if lost else None


def _missing_tests(trial: TreeRun, before: CachedResult) -> str | None:
    """Return which tests that pass on the base do not run any more, or how many."""
    if trial.report and before.names:
        gone = frozenset(before.names) - trial.report.names - trial.report.failed
        return f"tests that pass on the base do not run any more ({summarize_tests(gone)})" if gone else None
    now = passed_count(trial.line, trial.ran.said)
    if now is None or not before.passed or now >= before.passed:
        return None
    return f"{now} tests pass, {before.passed} did on the base"


def compare_with_base(name: str, case: GateContext, trial: TreeRun, found: Finding) -> Finding:
    """Return *found* without failures that the base has too; raise BrokenGate where the command cannot judge.

    A command that cannot start, or fails in the same way without the work, is no coder's mistake. Tests that
    are red on the base count neither for nor against the work.
    """
    name, ran = "setup" if trial.is_setup else name, trial.ran
    if found.outcome is Outcome.NONE and ran.ending is RunEnding.NOT_STARTED:
        raise BrokenGate(name, trial.line, describe_ending(ran), case.likely(trial.line, ran), ran.run)
    if found.outcome is not Outcome.REVISE or ran.is_green:
        return found
    if ran.ending in CUT_SHORT:
        require_end_on_base(name, case, trial)
        return found
    before = case.base_result(name, trial.line, afresh=ran.code in NOT_STARTED_CODES)
    if before.is_empty and finds_no_tests(ran):
        return passed(f"{name} finds no tests yet, as on the base", (), evidence_of(trial.line, ran))
    if before.is_green or before.is_empty:
        return found
    failed, cause = failed_tests(trial.line, ran.said), cause_of(trial.line, ran)
    if before.failed and failed is not None:
        return _judge_new_failures(name, trial, failed - before.known_red, before.known_red)
    if before.code == ran.code and is_same_cause(before.cause, cause):
        raise BrokenGate(
            name, trial.line, cause or describe_ending(ran), case.likely(trial.line, ran), ran.run
        )
    return found


def require_end_on_base(name: str, case: GateContext, trial: TreeRun) -> None:
    """Raise where *trial*, which took too long, takes too long without the work as well.

    What was kept is not believed: a service that the command waits for may have been there at that time.
    """
    if case.base_result(name, trial.line, afresh=True).ending in CUT_SHORT:
        ran = trial.ran
        raise BrokenGate(name, trial.line, describe_ending(ran), case.likely(trial.line, ran), ran.run)


def _judge_new_failures(name: str, trial: TreeRun, new: frozenset[str], known: frozenset[str]) -> Finding:
    shown = evidence_of(trial.line, trial.ran)
    note = concern(
        f"{len(known)} tests are red on the base as well and do not count: {summarize_tests(known)}"
    )
    if not new:
        return passed(f"{name} passed, but for tests that are red on the base", [note], shown)
    message = (
        f"`{trial.line}` {describe_ending(trial.ran)}; these tests pass on the base: {summarize_tests(new)}"
    )
    feedback = most_important([blocker(message), note, *named_places(trial.ran.said)])
    return revise(f"{name} failed: {summarize_tests(new)}", feedback, shown)


def finding_of(name: str, trial: TreeRun, expect: str = "") -> Finding:
    """Return what *trial* says about its tree."""
    name = "setup" if trial.is_setup else name
    shown, outcome = evidence_of(trial.line, trial.ran), outcome_of(trial.ran)
    if outcome is Outcome.NONE:
        return unknown(f"{name} ({trial.line}) {describe_ending(trial.ran)}", shown)
    if outcome is Outcome.REVISE:
        message = f"`{trial.line}` {describe_ending(trial.ran)}; its last lines are shown with this"
        places_named = named_places(trial.ran.said)
        return revise(
            reason_for(name, trial.line, trial.ran), most_important([blocker(message), *places_named]), shown
        )
    if gaps := missing_output(expect, trial.ran.said):
        reason = f"{name} did not print what it has to"
        return revise(reason, [blocker(f"{gap!r} is not in its output") for gap in gaps], shown)
    return passed(f"{name} ({trial.line}) passed", (), shown)


def named_places(said: str) -> list[Feedback]:
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


def _judge_claim(options: CommandOptions, case: GateContext) -> Finding:
    """Run what the agent says validates its work: a claim that is not true is told as such."""
    validation = _validation(options, case)
    if validation is None:
        note = concern("the checkpoint names no validation, so nothing of what it claims was run")
        return passed(f"not set up: {options.source} is empty", [note], label="skipped")
    line = validation.command
    if bad := forbidden_command_in(line):
        reason = f"the validation is not run: {bad} is forbidden"
        return revise(reason, [blocker(f"{reason}; name a command that only looks")])
    trial = case.run_on(case.tree, "validation", line)
    if _is_program_absent(line, trial):
        note = concern(f"`{line}` was not run: there is no such command here")
        return passed("the validation names a command that is not here", [note], label="skipped")
    found = finding_of("validation", trial)
    if found.outcome is Outcome.REVISE and not trial.is_setup:
        claim = f"the checkpoint claims that `{line}` succeeds, and that is not true of the committed work"
        return found._replace(feedback=most_important([blocker(claim), *found.feedback]))
    if found.outcome is not Outcome.PASS or not missing_output(validation.expect, trial.ran.said):
        return found
    claim = (
        f"the checkpoint claims that `{line}` prints {validation.expect.strip()!r}; it printed "
        f"{tail(trial.ran.said)[-SHOWN_OUTPUT:]!r}"
    )
    return revise(f"validation ({line}) did not print what was claimed", [blocker(claim)], found.evidence)


def _validation(options: CommandOptions, case: GateContext) -> Validation | None:
    if options.source == "task.validation":
        return case.task.validation
    return case.checkpoint.validation if case.checkpoint else None


def _judge_done_when(_: CommandOptions, case: GateContext) -> Finding:
    """Run the checks that the `done_when` lines carry."""
    checks = checks_of(case.task)
    if not checks:
        return passed("not set up: no done_when line carries a command", label="skipped")
    results = [
        (check, case.run_on(case.tree, "done-when", check.command)) for check in _runnable_checks(checks)
    ]
    refused = [check for check in checks if forbidden_command_in(check.command)]
    feedback = [blocker(f"{check.line!r} is not run: its command is forbidden") for check in refused]
    for check, trial in results:
        feedback += _unmet(check, trial)
    stopped = next((trial for _, trial in results if outcome_of(trial.ran) is Outcome.NONE), None)
    if stopped:
        return finding_of("done_when", stopped)
    worst = next(
        (trial for check, trial in results if _unmet(check, trial)), results[-1][1] if results else None
    )
    shown = evidence_of(worst.line, worst.ran) if worst else None
    if has_blocker(feedback):
        return revise("a done_when line is not met", most_important(feedback), shown)
    return passed("every done_when line that carries a command is met", most_important(feedback), shown)


def _runnable_checks(checks: Sequence[DoneWhenCheck]) -> list[DoneWhenCheck]:
    return [check for check in checks if not forbidden_command_in(check.command)]


def _is_program_absent(line: str, trial: TreeRun) -> bool:
    """Return whether *line* is a program that this machine does not have: nobody's work can change that."""
    return not trial.is_setup and trial.ran.code == NO_SUCH_COMMAND and "/" not in line.split(maxsplit=1)[0]


def _unmet(check: DoneWhenCheck, trial: TreeRun) -> list[Feedback]:
    ran = trial.ran
    if trial.is_setup:
        return [blocker(f"setup ({trial.line}) {describe_ending(ran)}, so {check.line!r} cannot be checked")]
    if _is_program_absent(check.command, trial):
        return [concern(f"{check.line!r} was not checked: there is no such command here")]
    if ran.ending is not RunEnding.DONE or ran.code != check.code:
        return [blocker(f"{check.line!r} is not met: the command {describe_ending(ran)}")]
    gaps = missing_output(check.expect, ran.said)
    printed = tail(ran.said)[-SHOWN_OUTPUT:]
    return [blocker(f"{check.line!r} is not met: it printed {printed!r}")] if gaps else []
