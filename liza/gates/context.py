"""What a gate may look at, run and find: the task, its base and head, what was said, and command runs.

Answers of git are cached, and a command is run only once on a tree. In this order: findings, commands and how
they ended, known test runners and their reports, what a red command says, results that are kept, the checkout
that commands run in, and the context itself.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import secrets
import shlex
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from posixpath import basename, dirname
from typing import Any, Final, NamedTuple, Self
from xml.etree import ElementTree as ET

from pydantic import ValidationError

from liza.domain.answers import IssuedStep, StepSpec, issued_step
from liza.domain.config import Config
from liza.domain.model import LONGEST_TAIL, Checkpoint, Evidence, Feedback, Outcome, Severity, Task
from liza.domain.record import NonEmptyStr, Record, Time, printable, strip_colour, utc_now
from liza.domain.similarity import are_similar
from liza.errors import LizaError
from liza.gates.files import (
    INSTRUCTIONS,
    ScopePatterns,
    diff_facts,
    folders_for_tests,
    has_tests,
    is_named_as_test,
    language_of,
    scope_patterns,
)
from liza.repo.pool import Worktrees, refill, scratch_tree
from liza.repo.repository import (
    CommitInfo,
    DiffEntry,
    Repository,
    TreeItem,
    blob_contents,
    commits_between,
    diff_trees,
    list_tree,
    write_tree_with,
)
from liza.system import process
from liza.system.files import overwrite, remove, secrets_of
from liza.system.run_control import MEANING, RunControl, RunEnding, RunLimits
from liza.system.sandbox.bubblewrap import HEADLESS, allowed_environment

# What a gate found, before it becomes a verdict with a gate, a tree and a time, and as reviewers read it.
#
# Equal defects get equal reasons, without numbers that vary: the rule about repeated reasons compares them.

MOST_FEEDBACK: Final = 20  # messages of one verdict: an agent mends these and then sees the rest
NAMES_SHOWN: Final = 3  # names in a reason
TAIL_LINES: Final = 40  # of a command's output that whoever has to mend it is shown
GREEN_LINES: Final = 5  # of a command that passed


# What helps where only commits on the way are at fault; whoever hands work in looks for it.
ONE_COMMIT: Final = "make one commit of all of them: git reset --soft BASE && git commit"


class Finding(NamedTuple):
    """An outcome with its reason and what shows it."""

    outcome: Outcome
    reason: str
    feedback: tuple[Feedback, ...] = ()
    evidence: Evidence | None = None
    label: str | None = None


def let_pass(
    reason: str, feedback: Iterable[Feedback] = (), evidence: Evidence | None = None, label: str | None = None
) -> Finding:
    return Finding(Outcome.PASS, reason, tuple(feedback), evidence, label)


def revise(reason: str, feedback: Iterable[Feedback] = (), evidence: Evidence | None = None) -> Finding:
    return Finding(Outcome.REVISE, reason, tuple(feedback), evidence)


def unknown(reason: str, evidence: Evidence | None = None) -> Finding:
    """There is no verdict; what that means is for the workflow, and it is never a pass."""
    return Finding(Outcome.NONE, reason, (), evidence)


def blocker(message: str, file: str | None = None, line: int | None = None, *, mend: str = "") -> Feedback:
    return _feedback(message, file, line, mend, Severity.BLOCKER)


def concern(message: str, file: str | None = None, line: int | None = None, *, mend: str = "") -> Feedback:
    return _feedback(message, file, line, mend, Severity.CONCERN)


def _feedback(message: str, file: str | None, line: int | None, mend: str, severity: Severity) -> Feedback:
    return Feedback(
        message=escape_unprintable(message),
        file=None if file is None else escape_to_line(file),
        line=line if line and line > 0 else None,
        severity=severity,
        suggestion=escape_unprintable(mend) if mend else None,
    )


def has_blocker(feedback: Iterable[Feedback]) -> bool:
    return any(one.severity is Severity.BLOCKER for one in feedback)


def blames_history(feedback: Iterable[Feedback]) -> bool:
    """Return whether commits on the way are wrong in what one commit of the same tree would not have."""
    return any(one.suggestion == ONE_COMMIT and one.severity is Severity.BLOCKER for one in feedback)


def finding_from(good: str, bad: str, feedback: Sequence[Feedback]) -> Finding:
    """Return the finding that *feedback* amounts to: REVISE if it has a blocker, else PASS."""
    made = revise if has_blocker(feedback) else let_pass
    return made(bad if has_blocker(feedback) else good, most_important(feedback))


def most_important(feedback: Sequence[Feedback]) -> tuple[Feedback, ...]:
    """Return the most important of *feedback*, and say how many more there are."""
    ordered = sorted(feedback, key=lambda one: one.severity is not Severity.BLOCKER)
    if len(ordered) <= MOST_FEEDBACK:
        return tuple(ordered)
    more = concern(f"and {len(ordered) - MOST_FEEDBACK} more of the same kind")
    return (*ordered[:MOST_FEEDBACK], more)


def escape_unprintable(text: str) -> str:
    """Return *text* without what a terminal or YAML would choke on."""
    shown = printable(text)
    return "".join(sign if sign.isprintable() or sign in "\n\t" else f"\\x{ord(sign):02x}" for sign in shown)


def escape_to_line(text: str) -> str:
    """Return *text* such that a reader sees every sign of it: the name of a file may have a newline."""
    return escape_unprintable(text).replace("\n", "\\n").replace("\t", "\\t")


ADVERTISED: Final = re.compile(r"npm notice\b")  # what npm says of itself, behind what a command said


def tail(text: str, lines: int = TAIL_LINES) -> str:
    """Return the last *lines* of an output that are about the work."""
    said = [line for line in escape_unprintable(text.strip()).splitlines() if not ADVERTISED.match(line)]
    return "\n".join(said[-lines:])[-LONGEST_TAIL:]


def summarize_names(names: Iterable[str]) -> str:
    """Return *names* for a sentence, sorted, and how many there are besides."""
    ordered = sorted(set(map(escape_unprintable, names)))
    more = f" and {len(ordered) - NAMES_SHOWN} more" if len(ordered) > NAMES_SHOWN else ""
    return ", ".join(ordered[:NAMES_SHOWN]) + more


# A command of a gate: which test runner it is, how it ended, which tests failed, and what that means.


class CommandResult(NamedTuple):
    """How a command ended; *run* names the folder that has all of its output."""

    code: int | None
    ending: RunEnding
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    run: str | None = None
    why: str = ""

    @property
    def is_green(self) -> bool:
        return self.ending is RunEnding.DONE and self.code == 0

    @property
    def said(self) -> str:
        return f"{self.out}\n{self.err}"


# The line, the directory, and a word for the name of its run.
CommandRunner = Callable[[str, Path, str], CommandResult]

# What it means that a command did not end by itself: its own fault, or nobody's.
CUT_SHORT: Final[dict[RunEnding, Outcome]] = {
    RunEnding.TIMEOUT: Outcome.REVISE,
    RunEnding.SILENT: Outcome.REVISE,
    RunEnding.SLOW_START: Outcome.REVISE,
}


def outcome_of(ran: CommandResult) -> Outcome:
    if ran.ending is RunEnding.DONE:
        return Outcome.PASS if ran.code == 0 else Outcome.REVISE
    return CUT_SHORT.get(ran.ending, Outcome.NONE)


def describe_ending(ran: CommandResult) -> str:
    """Return how *ran* ended, in words that are the same each time."""
    if ran.ending is not RunEnding.DONE:
        return f"was not through: {MEANING[ran.ending]}"
    if ran.code is not None and ran.code < 0:
        return f"was ended by signal {-ran.code}"
    return f"ended with exit code {ran.code}"


def evidence_of(line: str, ran: CommandResult) -> Evidence:
    said = tail(ran.said, GREEN_LINES if ran.is_green else TAIL_LINES)
    return Evidence(command=line, code=ran.code, tail=said, run=ran.run, seconds=ran.seconds)


# Compiled modules are known there by path, size and second: the same for two trees that are seen at one path.
SHARED_CACHES: Final = ("PYTHONPYCACHEPREFIX",)


def shell_job(line: str, cwd: Path, folder: Path, limits: RunLimits) -> process.Job:
    """Return the job of running *line* in *cwd* with nothing of our environment that it does not need."""
    environment = {
        name: value for name, value in allowed_environment(os.environ).items() if name not in SHARED_CACHES
    }
    return process.Job(
        argv=("/bin/sh", "-c", line),
        cwd=cwd,
        folder=folder,
        environment={**environment, **HEADLESS},
        limits=limits,
        secrets=secrets_of(os.environ),
    )


def command_result(outcome: process.ProcessOutcome, run: str) -> CommandResult:
    return CommandResult(
        code=outcome.code,
        ending=outcome.ending,
        # Some projects ask for colours also where nobody sees them, and counts are read from this text.
        out=strip_colour(outcome.out),
        err=strip_colour(outcome.err),
        seconds=outcome.seconds,
        run=run,
        why=outcome.why,
    )


def run_shell(line: str, cwd: Path, folder: Path, limits: RunLimits, stop: RunControl) -> CommandResult:
    """Run *line* in *cwd*."""
    return command_result(process.run_job(shell_job(line, cwd, folder, limits), stop), folder.name)


# Test runners that we know: how to run one file, how to see that tests ran, what decides which do.

_SHELL: Final = re.compile(r"[;&|<>$`\n\\(){}*?~!#]")  # what makes a line more than one plain command
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=")


class KnownRunner(NamedTuple):
    """A row: *restricted* narrows a command to one file, *passed* finds how many tests passed."""

    name: str
    is_called: Callable[[Sequence[str]], bool]
    restricted: Callable[[list[str], str], list[str] | None]
    passed: re.Pattern[str]


# Options that have no value of their own; all others may.
_FLAG: Final = re.compile(
    r"-[qvsxlbfi]+|-r[aAfEsxXpPwN]+|-n\d+"
    r"|--(?:quiet|verbose|exitfirst|lf|ff|nf|last-failed|failed-first|new-first|strict|strict-markers"
    r"|strict-config|no-header|no-summary|no-cov|showlocals|doctest-modules|sw|stepwise|ci|runInBand|silent"
    r"|passWithNoTests|forceExit|exit|recursive|failfast|fail-fast|locals|buffer|catch)"
    r"|-(?:race|short|cover|failfast|json)"
)


def _calls_any(*names: str) -> Callable[[Sequence[str]], bool]:
    def is_called(words: Sequence[str]) -> bool:
        return any(basename(word) in names for word in words)

    return is_called


def _options(words: Sequence[str]) -> list[str]:
    """Return the options of a command, with what may be their values, and nothing else.

    A path that stays with them lets more tests run. A value that goes makes an error, which would be taken
    for a test that failed.
    """
    kept, may_be_value = [], False
    for word in words:
        is_option = word.startswith("-")
        if is_option or may_be_value:
            kept.append(word)
        may_be_value = is_option and "=" not in word and not _FLAG.fullmatch(word)
    return kept


def _index_after(words: list[str], *names: str) -> int:
    return next(number for number, word in enumerate(words) if basename(word) in names) + 1


def _with_path(*names: str) -> Callable[[list[str], str], list[str] | None]:
    def restricted(words: list[str], path: str) -> list[str] | None:
        start = _index_after(words, *names)
        # Before the options: the last of them could take it for its value.
        return [*words[:start], path, *_options(words[start:])]

    return restricted


def _unittest(words: list[str], path: str) -> list[str] | None:
    start = _index_after(words, "unittest")
    if "discover" not in words:
        return [*words[:start], *_options(words[start:]), path]
    rest = words[start:]
    pairs = [number for number, word in enumerate(rest) if word in ("-p", "--pattern")]
    kept = [word for number, word in enumerate(rest) if number not in pairs and number - 1 not in pairs]
    return [*words[:start], *kept, "-p", basename(path)]


def _node(words: list[str], path: str) -> list[str] | None:
    start = words.index("--test") + 1
    return [*words[:start], *_options(words[start:]), path]


def _go(words: list[str], path: str) -> list[str] | None:
    start = words.index("test") + 1
    return [*words[:start], "-v", "-count=1", *_options(words[start:]), f"./{dirname(path)}"]


def _cargo(words: list[str], path: str) -> list[str] | None:
    if not re.fullmatch(r"tests/[^/]+\.rs", path):
        return None
    return [*words, "--test", basename(path).removesuffix(".rs")]


def _calls_pair(program: str, command: str) -> Callable[[Sequence[str]], bool]:
    def is_called(words: Sequence[str]) -> bool:
        return bool(words) and basename(words[0]) == program and command in words

    return is_called


RUNNERS: Final = (
    KnownRunner(
        "pytest",
        _calls_any("pytest", "py.test"),
        _with_path("pytest", "py.test"),
        re.compile(r"\b(\d+) passed"),
    ),
    KnownRunner(
        "unittest", _calls_any("unittest"), _unittest, re.compile(r"^Ran (\d+) tests?", re.MULTILINE)
    ),
    KnownRunner("node", _calls_pair("node", "--test"), _node, re.compile(r"^\S+ pass (\d+)", re.MULTILINE)),
    KnownRunner(
        "jest",
        _calls_any("jest", "vitest", "mocha"),
        _with_path("jest", "vitest", "mocha"),
        re.compile(r"\b(\d+) pass(?:ed|ing)"),
    ),
    KnownRunner("go", _calls_pair("go", "test"), _go, re.compile(r"^(?:ok|\s*--- PASS)()", re.MULTILINE)),
    KnownRunner("cargo", _calls_pair("cargo", "test"), _cargo, re.compile(r"\b(\d+) passed")),
    KnownRunner(
        "rspec", _calls_any("rspec"), _with_path("rspec"), re.compile(r"^(\d+) examples?", re.MULTILINE)
    ),
    KnownRunner("bats", _calls_any("bats"), _with_path("bats"), re.compile(r"^ok ()", re.MULTILINE)),
)

_SKIPPED: Final = re.compile(r"skipped=(\d+)|(\d+) pending")


def runner_of(line: str) -> KnownRunner | None:
    """Return the runner that *line* calls by itself; None where a shell or a script is in between."""
    if _SHELL.search(re.sub(r"'[^']*'", "", line)):
        return None
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    return next((runner for runner in RUNNERS if runner.is_called(words)), None)


def with_only_file(line: str, path: str) -> str | None:
    """Return *line* for the tests of one file, or None where it can only run all of them."""
    runner = runner_of(line)
    if runner is None or path.startswith("-"):
        return None
    words = runner.restricted(shlex.split(line), path)
    return _join_words(words) if words else None


def _join_words(words: Sequence[str]) -> str:
    """Return *words* as a line for a shell; `NAME="a b"` before the program stays a variable."""
    before = list(takewhile(_ASSIGNMENT.match, words))
    pairs = (word.partition("=") for word in before)
    return " ".join(
        [*(f"{name}={shlex.quote(value)}" for name, _, value in pairs), shlex.join(words[len(before) :])]
    )


def passed_count(line: str, said: str) -> int | None:
    """Return how many tests passed by a run of *line* that said *said*; None where it cannot be told."""
    runner = runner_of(line)
    if runner is None:
        return None
    found = runner.passed.findall(said)
    if not found:
        return 0 if _says_no_tests(runner, said) else None
    skipped = sum(int(next(filter(None, groups))) for groups in _SKIPPED.findall(said))
    return max(0, sum(int(count or 1) for count in found) - skipped)


def _says_no_tests(runner: KnownRunner, said: str) -> bool:
    """Return whether the output says that no test ran; no count at all says nothing."""
    return bool(re.search(r"no tests|\b\d+ (?:skipped|deselected|xfailed)|Ran 0 tests", said)) or (
        runner.name in ("go", "bats", "cargo")
    )


# What decides which tests run, and how; an agent's version of these must not judge an agent's work.
_RUNNER_FILE: Final = re.compile(
    r"""(?:^|/)(?:
        conftest\.py | \.?pytest\.(?:ini|toml) | tox\.(?:ini|toml) | \.coveragerc | noxfile\.py | nose2?\.cfg
      | sitecustomize\.py | usercustomize\.py | [^/]*\.pth | [^/]*\.(?:dist|egg)-info/[^/]*
      | (?:pytest|_pytest|unittest|pluggy|nose)(?:\.py|/.*)
      | (?:jest|vitest|karma|ava|playwright|cypress|web-test-runner|wdio)
        \.(?:conf(?:ig)?|setup|preset|workspace)\.[cm]?[jt]s(?:on)?
      | setupTests\.[cm]?[jt]sx? | \.mocharc[^/]* | \.nycrc[^/]* | \.c8rc[^/]* | \.taprc
      | phpunit\.xml(?:\.dist)? | (?:spec|test|rails)_helper\.rb | \.bazelrc
      | \.rspec | [Rr]akefile(?:\.rb)? | GNUmakefile | [Mm]akefile | [^/]*\.mk | \.?[Jj]ustfile
      | \.cargo/config(?:\.toml)?
    )$""",
    re.VERBOSE,
)
_MANIFEST: Final = re.compile(r"(?:^|/)(?:pyproject\.toml|package\.json|setup\.cfg)$")
_JSON_KEYS: Final = ("scripts", "jest", "mocha", "vitest", "ava", "nyc", "type")
_TOML_TOOLS: Final = ("pytest", "coverage", "tox", "nox", "hatch", "pdm", "poe", "taskipy")
_CFG_SECTION: Final = re.compile(r"^\[(?:tool:pytest|aliases|coverage[^\]]*|nosetests)\][^\[]*", re.MULTILINE)


def is_runner_file(path: str) -> bool:
    return bool(_RUNNER_FILE.search(path))


def is_manifest(path: str) -> bool:
    """Return whether *path* has settings of a runner among other things, such as dependencies."""
    return bool(_MANIFEST.search(path))


def runner_settings_in(path: str, text: str) -> Any:  # noqa: ANN401 - whatever the manifest says; it is only compared
    """Return what of the manifest *text* decides how tests run."""
    name = basename(path)
    try:
        if name == "package.json":
            data = json.loads(text or "{}")
            return {key: data.get(key) for key in _JSON_KEYS}
        if name == "pyproject.toml":
            tools = tomllib.loads(text).get("tool", {})
            return {key: tools.get(key) for key in _TOML_TOOLS}
    except (ValueError, AttributeError, RecursionError):
        return text
    return _CFG_SECTION.findall(text)


# By language: the words of a command that runs its tests. Any other, such as make, may run all of them.
_LANGUAGE_WORDS: Final = {
    "Python": re.compile(r"\b(?:python[\d.]*|py\.?test|unittest|tox|nox|nose2?)\b"),
    "JavaScript": re.compile(r"\b(?:npm|npx|yarn|pnpm|bun|deno|node|jest|vitest|mocha|ava)\b"),
    "Go": re.compile(r"\bgo\b"),
    "Rust": re.compile(r"\bcargo\b"),
    "Java": re.compile(r"\b(?:mvn|mvnw|gradle|gradlew|sbt)\b"),
    "Ruby": re.compile(r"\b(?:rspec|rake|ruby|bundle)\b"),
    "shell": re.compile(r"\bbats\b"),
}
_CHANGED_DIRECTORY: Final = re.compile(
    r"(?:^|[;&|(]\s*)cd\s+(?P<name>[^\s;&|]+)|(?:\s-C|--prefix)[ =](?P<option>\S+)"
)


def languages_of(line: str) -> frozenset[str]:
    """Return the languages whose tests *line* may run."""
    named = [name for name, words in _LANGUAGE_WORDS.items() if words.search(line)]
    return frozenset(named or _LANGUAGE_WORDS)


def directories_of(line: str) -> tuple[str, ...]:
    """Return how the paths begin of what *line* may test: all do where it stays at the top."""
    entered = (match["name"] or match["option"] for match in _CHANGED_DIRECTORY.finditer(line))
    places = tuple(name.strip("'\"").removeprefix("./").rstrip("/") for name in entered)
    return tuple(f"{place}/" for place in places if place and place != ".") or ("",)


# The report that a test runner writes beside what it prints: which tests ran, and which failed.
#
# What is judged runs in the same process and could write it as well. So a report proves nothing by itself;
# that there is none, or that it contradicts the exit code, shows that the runner did not come to its end.

_DOCTYPE: Final = b"<!DOCTYPE"  # entities can make a small file huge; no runner writes any


class JunitReport(NamedTuple):
    """The tests that a runner names, by suite and name."""

    passed: frozenset[str]
    failed: frozenset[str]

    @property
    def names(self) -> frozenset[str]:
        """The functions that passed, whatever they were given: what a test is given may well change."""
        return frozenset(name.partition("[")[0] for name in self.passed)


def with_report_option(line: str, path: str) -> str | None:
    """Return *line* such that it also writes its report to *path*; None where nobody knows how."""
    runner = runner_of(line)
    words = shlex.split(line) if runner else []
    if runner is None or any(word.startswith(_OWN_REPORTS) for word in words):
        return None
    if runner.name == "pytest":
        return _join_words([*words, f"--junitxml={path}"])
    if runner.name == "node":
        at = words.index("--test") + 1
        more = ("tap", "stdout", "junit", path)
        options = [
            f"--test-reporter{end}={word}" for end, word in zip(("", "-destination") * 2, more, strict=True)
        ]
        return _join_words([*words[:at], *options, *words[at:]])
    return None


_OWN_REPORTS: Final = ("--junitxml", "--junit-xml", "--test-reporter", "no:junitxml", "-pno:junitxml")


def parse_report(data: bytes) -> JunitReport | None:
    """Return what a report in the format of JUnit says; None where it is none."""
    if not data.strip() or _DOCTYPE in data:
        return None
    try:
        root = ET.fromstring(data)  # noqa: S314 - without a DOCTYPE there are no entities
    except ET.ParseError:
        return None
    passed, failed = set(), set()
    for case in root.iter("testcase"):
        name = f"{case.get('classname', '')}::{case.get('name', '')}"
        # Node tells of a test that is still to do, and fails, both that it was skipped and that it failed.
        kinds = {"todo" if child.get("type") == "todo" else child.tag for child in case}
        if kinds & {"failure", "error"} and "todo" not in kinds:
            failed.add(name)
        elif kinds.isdisjoint({"skipped", "todo"}):
            passed.add(name)
    return JunitReport(frozenset(passed), frozenset(failed))


# What a red command says about itself: which tests failed, and in one line why.
#
# A list of failed tests is given only where nothing can have failed unseen: a runner that stops at the first
# failure says nothing about the tests after it.

NOT_STARTED_CODES: Final = (126, 127)  # what a shell ends with where it could not start the program
TESTS_NAMED: Final = 2  # failed tests that a reason names; the output has all of them
LONGEST_CAUSE: Final = 160  # characters

# In TAP a test that is still to do may fail, and does not make the run red.
_NOT_EXPECTED: Final = r"(?![^\n]*\s# (?i:todo|skip)\b)"
# By runner: what names a failed test, one a line. A file, package or suite that cannot be loaded counts.
_FAILED: Final[dict[str, re.Pattern[str]]] = {
    "pytest": re.compile(r"^(?:FAILED|ERROR) (?P<name>[^\n]+?)(?: - [^\n]*)?$", re.MULTILINE),
    "unittest": re.compile(r"^(?:FAIL|ERROR): (?P<name>[^\n]+)$", re.MULTILINE),
    "node": re.compile(
        rf"^\s*not ok \d+ - {_NOT_EXPECTED}(?P<name>[^\n]+)$"
        r"|^\s*✖ (?!failing tests:)(?P<spec>[^\n]+?) \([\d.]+ms\)$",
        re.MULTILINE,
    ),
    "jest": re.compile(r"^\s*● (?P<name>[^\n]+)$|^[ \t]*FAIL[ \t]+(?P<file>\S[^\n]*)$", re.MULTILINE),
    "go": re.compile(r"^\s*--- FAIL: (?P<name>\S+)|^FAIL[ \t]+(?P<package>\S+)", re.MULTILINE),
    "cargo": re.compile(r"^test (?P<name>\S+)(?: - should panic)? \.\.\. FAILED$", re.MULTILINE),
    "rspec": re.compile(r"^rspec (?P<name>\S+)", re.MULTILINE),
    "bats": re.compile(rf"^not ok \d+ {_NOT_EXPECTED}(?P<name>[^\n]+)$", re.MULTILINE),
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
_NOT_THERE: Final = re.compile(r"^ERROR: file or directory not found: ", re.MULTILINE)  # pytest's
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


# What pytest-cov, nyc, jest and vitest say where the tests that ran cover too little.
_COVERS_TOO_LITTLE: Final = re.compile(
    r"Coverage failure: total of \S+ is less than fail-under|Required test coverage of \S+ not reached"
    r"|Coverage for \w+ \(\S+\) does not meet|coverage threshold for \w+ \(\S+\) not met"
)
_SOME_FAILED: Final = re.compile(
    r"\b[1-9]\d* (?:failed|failing|failures?|errors?)\b"
    rf"|^\s*not ok\b{_NOT_EXPECTED}|^# fail +[1-9]|(?-i:\bFAILED\b)|[✖✗●]",
    re.IGNORECASE | re.MULTILINE,
)
_SAYS_GREEN: Final = re.compile(r"\s*OK\b")  # of a runner before something else in the command was red


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


def covers_too_little(ran: CommandResult) -> bool:
    """Return whether a run is red only since its tests cover too little; a part of them always may."""
    if ran.ending is not RunEnding.DONE or ran.code in (0, None) or not _COVERS_TOO_LITTLE.search(ran.said):
        return False
    return bool(_SOME_PASSED.search(ran.said)) and not _SOME_FAILED.search(ran.said)


def cause_of(line: str, ran: CommandResult) -> str | None:
    """Return in a few words why a red run of *line* is red; None where its output does not tell."""
    if ran.ending is not RunEnding.DONE:
        return None
    if failed := failed_tests(line, ran.said):
        return summarize_tests(failed)
    telling = [match["line"] for match in _CAUSE_LINE.finditer(ran.said)]
    spoken = [text for text in ran.said.splitlines() if text.strip() and not ADVERTISED.match(text)]
    lines = telling[-1:] or [text for text in spoken[-1:] if not _SAYS_GREEN.match(text)]
    return escape_to_line(lines[0].strip())[:LONGEST_CAUSE] or None if lines else None


def finds_no_tests(ran: CommandResult) -> bool:
    """Return whether a run says that there is nothing to test: a new project is not broken.

    Most runners are red then. Python's own is green before 3.12; such a run must not have tested anything.
    """
    if ran.ending is not RunEnding.DONE or ran.code in NOT_STARTED_CODES or not _NO_TESTS.search(ran.said):
        return False
    if _NOT_THERE.search(ran.said):
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


# What a gate may look at: the task, its base and head, statements of agents and people, and command runs.

# Results of the project's commands by tree, cached on disk.
#
# A result holds until the settings change. A red one is not trusted for ever: it is tried again before a run
# is refused because of it.

FOLDER: Final = "baseline"  # in `.liza/`
MOST_KEPT: Final = 300  # files; the oldest go first


class CachedResult(Record):
    """What a command came to on a tree."""

    line: NonEmptyStr
    tree: str
    at: Time
    code: int | None = None
    ending: RunEnding = RunEnding.DONE
    is_green: bool = False
    is_empty: bool = False  # there is no test yet, for which most runners are red
    failed: tuple[str, ...] | None = None  # the tests that failed; None where some may be unseen
    is_reported: bool = False  # the runner wrote its report
    passed: int | None = None  # how many tests did, where the runner tells
    names: tuple[str, ...] = ()  # of those that did, where it wrote its report
    cause: str | None = None
    tail: str = ""
    run: str | None = None
    seconds: float = 0.0

    @property
    def known_red(self) -> frozenset[str]:
        """The tests that are red on this tree, so that work on it need not answer for them."""
        return frozenset(self.failed or ())

    @property
    def is_usable(self) -> bool:
        """Whether work can be judged by comparison: green, nothing to test yet, or known by name."""
        return self.is_green or self.is_empty or bool(self.failed)


class ResultCache:
    """A cache of results; without a folder it lives as long as the process."""

    def __init__(self, folder: Path | None = None, config: Config | None = None) -> None:
        self._folder = folder
        # What decides where a command runs is part of what it came to.
        around = (config.gates.setup, config.sandbox.to_json(), config.worktree.to_json()) if config else ()
        self._around = json.dumps(around, sort_keys=True, default=str)
        self._known: dict[str, CachedResult] = {}

    def of(self, tree: str, line: str, about: str = "") -> CachedResult | None:
        """Return what *line* came to on *tree*; *about* tells several questions to one command apart."""
        key = self._key(tree, line, about)
        if key not in self._known and self._folder is not None:
            with suppress(OSError, ValidationError, UnicodeDecodeError):
                text = (self._folder / f"{key}.json").read_text(encoding="utf-8")
                self._known[key] = CachedResult.model_validate_json(text)
        return self._known.get(key)

    def keep(self, result: CachedResult, about: str = "") -> None:
        key = self._key(result.tree, result.line, about)
        self._known[key] = result
        if self._folder is None:
            return
        with suppress(OSError):  # it is only asked again; a full disk is told by those who need it
            self._folder.mkdir(parents=True, exist_ok=True)
            overwrite(self._folder / f"{key}.json", result.model_dump_json(exclude_none=True))
            self._evict(self._folder.glob("*.json"))

    def _key(self, tree: str, line: str, about: str) -> str:
        return hashlib.sha256(json.dumps([tree, line, about, self._around]).encode()).hexdigest()[:32]

    def _evict(self, files: Iterable[Path]) -> None:
        paths = list(files)
        if len(paths) <= MOST_KEPT:
            return
        for path in sorted(paths, key=lambda one: one.stat().st_mtime)[: len(paths) - MOST_KEPT]:
            path.unlink(missing_ok=True)


# One scratch directory for all commands of a case: exact before each, prepared as rarely as possible.
#
# There is one directory, because a project's setup may write its path somewhere (an editable installation).
# A command may leave nothing to the next: git makes the tree again. After a setup, which may take long, only
# what the command made is removed, and all is made again where it touched what was there. What was touched is
# seen by the ctime of a file, which cannot be set back.

SETUP: Final = "setup"  # names the run of the project's setup
TEARDOWN: Final = "teardown"  # and of what follows the last command on a tree
# Commands that make an environment: the one of the user's checkout is in their way, or would be changed.
_INSTALLS: Final = re.compile(
    r"\b(?:npm|pnpm|yarn|bun|poetry|pdm|uv|hatch|bundle|composer|pipenv|conda|mamba|rye|pixi)\s+"
    r"(?:-\S+\s+)*(?:ci|i|install|add|sync|update|env|create|venv|pip)\b"
    r"|\bpip[\d.]*\s+(?:-\S+\s+)*install\b|\bvirtualenv\b|-m\s+(?:venv|virtualenv|pip)\b|\byarn\s*(?:$|[;&|])"
)

log = logging.getLogger(__name__)


def installs(line: str) -> bool:
    """Return whether the setup *line* installs packages, and so makes an environment of its own."""
    return _INSTALLS.search(line) is not None


class PreparedTree(NamedTuple):
    """A directory that is exactly a tree, and what the project's setup said there."""

    path: Path
    setup: CommandResult | None


class _FileStamp(NamedTuple):
    mode: int
    inode: int
    size: int
    changed: int  # nanoseconds; 0 for a directory, whose own time moves with every file in it


class Checkout:
    """The scratch directory of a case; nothing is taken before somebody asks."""

    def __init__(
        self, worktrees: Worktrees, run: CommandRunner, setup: str | None, teardown: str | None = None
    ) -> None:
        self._worktrees = worktrees
        self._run = run
        self._setup = setup
        self._teardown = teardown
        self._stack = ExitStack()
        self._tree: str | None = None
        self._prepared: PreparedTree | None = None
        self._marks: dict[str, _FileStamp] = {}

    def at(self, tree: str, commit: str | None = None) -> PreparedTree:
        """Return the directory as *tree*, which is that of *commit*, after the project's setup."""
        if self._prepared and self._tree == tree and self._restore(self._prepared.path):
            return self._prepared
        path = self._check_out(commit or tree)
        setup = self._run(self._setup, path, SETUP) if self._setup else None
        self._marks = dict(_file_stamps(path)) if self._is_costly else {}
        self._tree, self._prepared = tree, PreparedTree(path, setup)
        return self._prepared

    @property
    def _is_costly(self) -> bool:
        """Return whether more than git makes the tree: then what a command did to it is looked at first."""
        return bool(self._setup or self._teardown)

    def close(self) -> None:
        with self._stack:
            self._tear_down()
            self._tree = self._prepared = None

    def _tear_down(self) -> None:
        """Run what ends whatever the setup or the commands on a tree began."""
        if self._teardown and self._prepared:
            ran = self._run(self._teardown, self._prepared.path, TEARDOWN)
            if not ran.is_green:
                log.warning("teardown (%s) %s", self._teardown, describe_ending(ran))

    def _check_out(self, name: str) -> Path:
        if self._prepared is None:
            return self._stack.enter_context(scratch_tree(self._worktrees, name))
        self._tear_down()
        refill(self._worktrees, self._prepared.path, name)
        return self._prepared.path

    def _restore(self, path: Path) -> bool:
        """Remove files that a command created; return whether all others are unchanged."""
        if not self._is_costly:
            return False
        now = dict(_file_stamps(path))
        if any(now.get(name) != mark for name, mark in self._marks.items()):
            return False
        try:
            for name in sorted(now.keys() - self._marks.keys()):
                remove(path / name)
        except (LizaError, OSError):
            return False
        return True


def _file_stamps(top: Path) -> Iterator[tuple[str, _FileStamp]]:
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        try:
            entries = list(os.scandir(top / inside))
        except OSError:  # a command took our rights away, so that its mode differs
            continue
        for entry in entries:
            name = f"{inside}/{entry.name}" if inside else entry.name
            facts = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(facts.st_mode):
                waiting.append(name)
                yield name, _FileStamp(facts.st_mode, facts.st_ino, 0, 0)
            else:
                yield name, _FileStamp(facts.st_mode, facts.st_ino, facts.st_size, facts.st_ctime_ns)


MOST_LOOKED_AT: Final = 50  # files in which a test is looked for where a command finds none
MOST_NAMES: Final = 20_000  # tests of a tree that are remembered by name
PYTEST_USAGE_ERROR: Final = 4  # what pytest ends with where it does not know an option
MOST_COMMITS: Final = 200  # of one task, each of which has to be looked at by itself
LARGEST_KEPT: Final = 16 << 20  # bytes of a file that a command made and a gate reads


@dataclass(frozen=True)
class Statements:
    """What agents said; gates compare it with what is."""

    text: str = ""  # the transcript of the run
    commands: tuple[str, ...] = ()  # what the agent ran, where its backend tells
    answers: tuple[str, ...] = ()  # summaries, plans, reasons
    feedback: tuple[Feedback, ...] = ()  # a reviewer's
    step: StepSpec | None = None  # that is to be done next
    handoff: Record | None = None  # what is handed on to the next phase


def result_of(tree: str, trial: TreeRun, *, is_empty: bool = False) -> CachedResult:
    """Return what *trial* came to on *tree*, to be kept; *is_empty* where there is nothing to test yet."""
    ran, report = trial.ran, trial.report
    failed = None if ran.is_green else failed_tests(trial.line, ran.said)
    return CachedResult(
        line=trial.line,
        tree=tree,
        at=utc_now(),
        code=ran.code,
        ending=ran.ending,
        is_green=ran.is_green,
        is_empty=is_empty,
        failed=None if failed is None else tuple(sorted(failed)),
        is_reported=report is not None,
        passed=len(report.passed) if report else passed_count(trial.line, ran.said),
        names=tuple(sorted(report.names)[:MOST_NAMES]) if report else (),
        cause=cause_of(trial.line, ran),
        tail=tail(ran.said),
        run=ran.run,
        seconds=ran.seconds,
    )


# What a person should try, given a command that is red whatever the work is, and what it said.
CauseExplainer = Callable[[str, CommandResult], str]


# Keeps a file that a command made in the folder of its run, by the id of the run and a name.
FileKeeper = Callable[[str, str, bytes], None]


def _keep_nothing(_run: str, _name: str, _data: bytes) -> None:
    pass


def _no_explanation(_line: str, _ran: CommandResult) -> str:
    return "mend what it needs"


class TreeRun(NamedTuple):
    """A command run on a tree after the project's setup; where the setup failed, the setup's own run."""

    line: str
    ran: CommandResult
    kept: Mapping[str, bytes] = {}
    is_setup: bool = False
    report: JunitReport | None = None  # what the runner wrote, where it was asked to


class PastVersion(NamedTuple):
    """A version of a file that a commit on the way had, and the head has not."""

    change: CommitInfo
    entry: DiffEntry

    @property
    def where(self) -> str:
        """How to say where it is."""
        return f"by the commit {self.change.commit[:12]}, and stays in the history"


@dataclass(frozen=True)
class GateContext:
    """One task at one head; leaving the `with` block returns the scratch directory."""

    task: Task
    repository: Repository
    base: str
    head: str
    config: Config
    run: CommandRunner
    clock: Callable[[], datetime] = utc_now
    said: Statements = field(default_factory=Statements)
    # Of the project's commands.
    results: ResultCache = field(default_factory=ResultCache, repr=False, compare=False)
    likely: CauseExplainer = field(default=_no_explanation, repr=False, compare=False)
    keep_file: FileKeeper = field(default=_keep_nothing, repr=False, compare=False)
    _tree_runs: dict[tuple[str, str], TreeRun] = field(default_factory=dict, repr=False, compare=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._checkout.close()

    @property
    def checkpoint(self) -> Checkpoint | None:
        return self.task.checkpoint

    @cached_property
    def tree(self) -> str:
        return self.repository.tree_of(self.head)

    @cached_property
    def base_tree(self) -> str:
        return self.repository.tree_of(self.base)

    @cached_property
    def diff(self) -> tuple[DiffEntry, ...]:
        return diff_trees(self.repository, self.base, self.head)

    @cached_property
    def step(self) -> IssuedStep | None:
        """The step that this is the work of; None where there is none, or the work has another beginning."""
        step = issued_step(self.task.artifacts)
        return step if step and self.repository.contains(self.head, step.base) else None

    @cached_property
    def step_diff(self) -> tuple[DiffEntry, ...]:
        """What the last step changed; all of the work where there are no steps."""
        return diff_trees(self.repository, self.step.base, self.head) if self.step else self.diff

    @cached_property
    def commits(self) -> tuple[CommitInfo, ...]:
        """The commits from the base to the head, the latest first; all that they hold is merged."""
        return tuple(commits_between(self.repository, self.base, self.head))

    @cached_property
    def history(self) -> tuple[PastVersion, ...]:
        """What commits on the way added that the head no longer has so: it stays in what is merged."""
        if not 1 < len(self.commits) <= MOST_COMMITS:
            return ()
        now = {(entry.path, entry.blob) for entry in self.diff}
        return tuple(
            PastVersion(change, entry)
            for change in self.commits
            for entry in diff_trees(self.repository, change.before, change.commit)
            if entry.is_there and (entry.path, entry.blob) not in now
        )

    @cached_property
    def bounds(self) -> ScopePatterns:
        return scope_patterns(self.task.scope)

    @cached_property
    def head_files(self) -> dict[str, TreeItem]:
        return list_tree(self.repository, self.head)

    @cached_property
    def base_files(self) -> dict[str, TreeItem]:
        return list_tree(self.repository, self.base)

    @cached_property
    def folders_for_tests(self) -> frozenset[str]:
        """The directories that are there for tests, as the base has them."""
        return folders_for_tests(self.base_files)

    @cached_property
    def texts(self) -> Mapping[str, str]:
        """What is in the files that differ, by blob, before and after; what is not text is left out."""
        blobs = {blob for entry in self.diff for blob in (entry.old_blob, entry.blob) if not entry.is_binary}
        found = blob_contents(self.repository, {blob for blob in blobs if blob.strip("0")})
        return {blob: data.decode("utf-8", "replace") for blob, data in found.items()}

    @cached_property
    def facts(self) -> frozenset[str]:
        """The named predicates that hold; workflows switch gates on and off by them."""
        settings = {f"{name}_command" for name, line in self.config.gates.to_json().items() if line}
        return diff_facts(self.diff) | settings

    @cached_property
    def _checkout(self) -> Checkout:
        gates = self.config.gates
        return Checkout(Worktrees(self.repository), self.run, gates.setup, gates.teardown)

    def checkout(self, tree: str) -> PreparedTree:
        """Return a directory that is exactly *tree*, after the project's setup."""
        known = {self.base_tree: self.base, self.tree: self.head}
        return self._checkout.at(tree, known.get(tree))

    def run_on(self, tree: str, name: str, line: str, keep: tuple[str, ...] = ()) -> TreeRun:
        """Run *line* on *tree*, unless it ran there already; *keep* are files that it makes."""
        known = self._tree_runs.get((tree, line))
        if known and set(keep) <= set(known.kept):
            return known
        path, setup = self.checkout(tree)
        if setup is not None and not setup.is_green:
            return TreeRun(str(self.config.gates.setup), setup, is_setup=True)
        before = {wanted: _ctime_of(path / wanted) for wanted in keep}
        ran, report = self._run_with_report(line, path, name)
        made = {wanted: _new_content(path, wanted, before[wanted]) for wanted in keep}
        trial = TreeRun(line, ran, made, report=report)
        if ran.ending is not RunEnding.STOPPED:
            self._tree_runs[(tree, line)] = trial
            self._note(tree, trial)
        return trial

    def _run_with_report(self, line: str, path: Path, name: str) -> tuple[CommandResult, JunitReport | None]:
        """Run *line*, and ask a runner that can for its report; one that cannot is run as it is."""
        into = f".report-{secrets.token_hex(6)}.xml"
        asking = with_report_option(line, into) if self._is_project_command(line) else None
        ran = self.run(asking or line, path, name)
        if asking is None:
            return ran, None
        data = _new_content(path, into, None)
        if ran.code == PYTEST_USAGE_ERROR and not data and "junitxml" in ran.said:
            return self.run(line, path, name), None
        return ran, parse_report(data)

    def _is_project_command(self, line: str) -> bool:
        """Return whether *line* is one of the project's commands, and not a part of one, or an agent's."""
        return line in self.config.gates.to_json().values()

    def run_setup_on(self, tree: str) -> TreeRun:
        """Return what the project's setup came to on *tree*; only for projects that have one."""
        line, ran = str(self.config.gates.setup), self.checkout(tree).setup
        trial = TreeRun(line, ran, is_setup=True) if ran else self.run_on(tree, "setup", line)
        self._note(tree, trial)
        return trial

    def base_result(self, name: str, line: str, *, afresh: bool = False) -> CachedResult:
        """Return the result of *line* on the base; *afresh* ignores the cache.

        A cached red result is always tried again: somebody may have mended it since.
        """
        known = self.results.of(self.base_tree, line)
        if known is not None and known.is_usable and not afresh:
            return known
        if name == "setup":
            trial = self.run_setup_on(self.base_tree)
        else:
            trial = self.run_on(self.base_tree, f"{name}-base", line)
        return self._result_of(self.base_tree, trial)

    def _result_of(self, tree: str, trial: TreeRun) -> CachedResult:
        # A command that finds none of the tests that are there is wrong, and no word about a new project.
        is_empty = finds_no_tests(trial.ran) and not self._has_tests_for(trial.line, tree)
        return result_of(tree, trial, is_empty=is_empty)

    def _has_tests_for(self, line: str, tree: str) -> bool:
        """Return whether *tree* has a test in a language that *line* runs tests of, where it runs."""
        files = self.base_files if tree == self.base_tree else self.head_files
        kinds, places = languages_of(line), directories_of(line)
        tests = {
            path: item.blob
            for path, item in files.items()
            if is_named_as_test(path)
            and (language := language_of(path))
            and language.name in kinds
            and any(path.startswith(place) for place in places)
        }
        texts = blob_contents(self.repository, list(tests.values())[:MOST_LOOKED_AT])
        return any(
            has_tests(path, texts[blob].decode("utf-8", "replace"))
            for path, blob in tests.items()
            if blob in texts
        )

    def _note(self, tree: str, trial: TreeRun) -> None:
        """Remember what the project's commands come to on the trees that work is, or will be, based on."""
        is_based_on = tree in (self.base_tree, self.tree)
        if is_based_on and trial.ran.ending is RunEnding.DONE and self._is_project_command(trial.line):
            self.results.keep(self._result_of(tree, trial))


def _ctime_of(path: Path) -> int | None:
    return path.lstat().st_ctime_ns if path.is_file() and not path.is_symlink() else None


def _new_content(top: Path, wanted: str, before: int | None) -> bytes:
    """Return what a command wrote; nothing where the file is as it was, is a link, or leads elsewhere."""
    path = top / wanted
    now = _ctime_of(path)
    if now is None or now == before or not path.resolve().is_relative_to(top.resolve()):
        return b""
    with path.open("rb") as file:
        return file.read(LARGEST_KEPT)


# Restores instruction files of coding programs to those of the base, so that work cannot instruct its
# reviewer.


def with_instructions_of(repository: Repository, base: str, commit: str, *, at: datetime) -> str:
    """Return *commit*, or where it changes what programs obey, one on top of it with the files of *base*."""
    old, new = list_tree(repository, base), list_tree(repository, commit)
    paths = {path for path in (*old, *new) if INSTRUCTIONS.search(path)}
    changed = {path: old.get(path) for path in paths if old.get(path) != new.get(path)}
    if not changed:
        return commit
    tree = write_tree_with(repository, repository.tree_of(commit), changed)
    message = f"{commit[:12]} with the instructions to agents of {base[:12]}\n"
    return repository.commit_tree(tree, parents=(commit,), message=message, at=at)
