"""The report that a test runner writes beside what it prints: which tests ran, and which failed.

What is judged runs in the same process and could write it as well. So a report proves nothing by itself; that
there is none, or that it contradicts the exit code, shows that the runner did not come to its end.
"""

from __future__ import annotations

import shlex
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from liza.gates.known_runners import runner_of

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
        return shlex.join([*words, f"--junitxml={path}"])
    if runner.name == "node":
        at = words.index("--test") + 1
        more = ("tap", "stdout", "junit", path)
        options = [
            f"--test-reporter{end}={word}" for end, word in zip(("", "-destination") * 2, more, strict=True)
        ]
        return shlex.join([*words[:at], *options, *words[at:]])
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
        kinds = {child.tag for child in case}
        if kinds & {"failure", "error"}:
            failed.add(name)
        elif "skipped" not in kinds:
            passed.add(name)
    return JunitReport(frozenset(passed), frozenset(failed))
