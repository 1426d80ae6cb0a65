"""What a red command says about itself: which tests failed, and in one line why.

A list of failed tests is given only where nothing can have failed unseen: a runner that stops at the first
failure says nothing about the tests after it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from liza.domain.similarity import are_similar
from liza.gates.finding import escape_to_line
from liza.gates.known_runners import runner_of
from liza.gates.runner import CommandResult, describe_ending
from liza.system.run_control import RunEnding

NOT_STARTED_CODES: Final = (126, 127)  # what a shell ends with where it could not start the program
TESTS_NAMED: Final = 2  # failed tests that a reason names; the output has all of them
LONGEST_CAUSE: Final = 160  # characters

# By runner: what names a failed test, one a line. A file, package or suite that cannot be loaded counts.
_FAILED: Final[dict[str, re.Pattern[str]]] = {
    "pytest": re.compile(r"^(?:FAILED|ERROR) (?P<name>[^\n]+?)(?: - [^\n]*)?$", re.MULTILINE),
    "unittest": re.compile(r"^(?:FAIL|ERROR): (?P<name>[^\n]+)$", re.MULTILINE),
    "node": re.compile(
        r"^\s*not ok \d+ - (?P<name>[^\n]+?)(?: # (?:TODO|SKIP)\b[^\n]*)?$"
        r"|^\s*✖ (?!failing tests:)(?P<spec>[^\n]+?) \([\d.]+ms\)$",
        re.MULTILINE,
    ),
    "jest": re.compile(r"^\s*● (?P<name>[^\n]+)$|^[ \t]*FAIL[ \t]+(?P<file>\S[^\n]*)$", re.MULTILINE),
    "go": re.compile(r"^\s*--- FAIL: (?P<name>\S+)|^FAIL[ \t]+(?P<package>\S+)", re.MULTILINE),
    "cargo": re.compile(r"^test (?P<name>\S+)(?: - should panic)? \.\.\. FAILED$", re.MULTILINE),
    "rspec": re.compile(r"^rspec (?P<name>\S+)", re.MULTILINE),
    "bats": re.compile(r"^not ok \d+ (?P<name>[^\n]+)$", re.MULTILINE),
}
_SUMMARY: Final = re.compile(r"^=+ short test summary info =+$", re.MULTILINE)  # pytest's own list
_EARLY_END: Final = re.compile(
    r"(?:^|\s)(?:-x|-f|-failfast|--exitfirst|--maxfail\S*|--failfast|--fail-fast|--bail\S*)(?=\s|$)"
)
_STOPPED: Final = re.compile(r"^!+ (?:stopping after|Interrupted|_pytest\.outcomes\.Exit)", re.MULTILINE)
_NO_TESTS: Final = re.compile(
    r"\bno tests? (?:ran|run|found|specified|collected|to run)\b|\bno test files\b|^Ran 0 tests\b"
    r"|\bcollected 0 items\b|\bno packages to test\b|\bmatched no packages\b",
    re.IGNORECASE | re.MULTILINE,
)
_SOME_PASSED: Final = re.compile(
    r"\b[1-9]\d* (?:tests? )?(?:passed|passing|passes|ok)\b|^Ran [1-9]|^(?:ok|PASS)[ \t]+\S"
    r"|\btests? +[1-9]\d*\b",
    re.IGNORECASE | re.MULTILINE,
)
_CAUSE_LINE: Final = re.compile(
    r"""(?mix)^(?P<line>.*(?:
        no\ module\ named | \b\w*Error\b:\ | cannot\ find\ (?:module|package) | not\ found | no\ such\ file
      | permission\ denied | ^error(?:\[\w+\])?: | ^make(?:\[\d+\])?:\ \*\*\* | ^npm\ (?:ERR!|error)\ Missing
    ).*)$"""
)


def failed_tests(line: str, said: str) -> frozenset[str] | None:
    """Return the tests that failed in a run of *line* that said *said*; None where some may be unseen."""
    runner = runner_of(line)
    if runner is None or runner.name not in _FAILED or _EARLY_END.search(line):
        return None
    if runner.name == "cargo" and "--no-fail-fast" not in line:
        return None
    if runner.name == "pytest":
        parts = _SUMMARY.split(said)
        if len(parts) == 1 or _STOPPED.search(said):
            return None
        said = parts[-1]
    found = {next(filter(None, match.groups())).strip() for match in _FAILED[runner.name].finditer(said)}
    return frozenset(map(escape_to_line, found)) or None


def cause_of(line: str, ran: CommandResult) -> str | None:
    """Return in a few words why a red run of *line* is red; None where its output does not tell."""
    if ran.ending is not RunEnding.DONE:
        return None
    if failed := failed_tests(line, ran.said):
        return summarize_tests(failed)
    telling = [match["line"] for match in _CAUSE_LINE.finditer(ran.said)]
    lines = telling[-1:] or ran.said.strip().splitlines()[-1:]
    return escape_to_line(lines[0].strip())[:LONGEST_CAUSE] or None if lines else None


def finds_no_tests(ran: CommandResult) -> bool:
    """Return whether a run says that there is nothing to test: a new project is not broken.

    Most runners are red then. Python's own is green before 3.12; such a run must not have tested anything.
    """
    if ran.ending is not RunEnding.DONE or ran.code in NOT_STARTED_CODES or not _NO_TESTS.search(ran.said):
        return False
    is_tested = _SOME_PASSED if ran.is_green else re.compile(r"\b[1-9]\d* (?:failed|error)")
    return not is_tested.search(ran.said)


def is_same_cause(one: str | None, other: str | None) -> bool:
    """Return whether two causes are the same; two unknown causes are."""
    return one == other or are_similar(one, other)


def summarize_tests(tests: Iterable[str]) -> str:
    """Return *tests* for a sentence: the first few, sorted, and how many there are besides."""
    ordered = sorted(set(tests))
    more = f" and {len(ordered) - TESTS_NAMED} more" if len(ordered) > TESTS_NAMED else ""
    return ", ".join(ordered[:TESTS_NAMED]) + more


def reason_for(name: str, line: str, ran: CommandResult) -> str:
    """Return why the gate *name* is red: the gate, then the cause; the evidence has the command."""
    cause = cause_of(line, ran)
    return f"{name} failed: {cause}" if cause else f"{name} {describe_ending(ran)}"
