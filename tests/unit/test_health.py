"""What the doctor says about facts: one finding a fact, and what to do for every one that is not well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from liza.cli.views.health import Finding, Machine, Mark, Project, judged
from liza.system.disk_space import Space

MACHINE: Final = Machine(
    python=(3, 11, 2),
    git=(2, 39),
    obstacle=None,
    namespaces=1000,
    exchanges=True,
    watches=100000,
    instances=128,
    open_files=1024,
    programs={"claude": "2.0"},
    keys=("OPENAI_API_KEY",),
    space=Space(50 << 30, 100 << 30),
    skew=0.0,
)
PROJECT: Final = Project(
    trouble=None,
    sandbox=None,
    refused=None,
    holder=None,
    real_holder=None,
    orphans=(),
    leftovers=(),
    stale=(),
    salvages=0,
    has_identity=True,
    integration="liza/integration",
    integration_at="a" * 40,
    checked_out=None,
    has_agent=True,
    switches=(),
)


def marks(findings: list[Finding]) -> dict[str, Mark]:
    return {finding.what: finding.mark for finding in findings if finding.mark is not Mark.OK}


def test_a_sound_machine_is_sound() -> None:
    """Nothing is said against what is well, and every fact has its line."""
    findings = judged(MACHINE, PROJECT)

    assert marks(findings) == {}
    assert len({finding.what for finding in findings}) == len(findings) == 21


def test_without_a_project_only_the_machine_is_judged() -> None:
    assert len(judged(MACHINE, None)) == 10


@pytest.mark.parametrize(
    ("change", "what", "mark"),
    [
        ({"python": (3, 10, 1)}, "python", Mark.FAIL),
        ({"git": ()}, "git", Mark.FAIL),
        ({"git": (2, 34)}, "git", Mark.FAIL),
        ({"obstacle": "there is no bwrap; install bubblewrap"}, "bubblewrap", Mark.WARN),
        ({"namespaces": 0}, "kernel", Mark.WARN),
        ({"exchanges": False}, "kernel", Mark.WARN),
        ({"watches": 10}, "inotify", Mark.WARN),
        ({"instances": 10}, "inotify", Mark.WARN),
        ({"open_files": 64}, "open files", Mark.WARN),
        ({"programs": {}}, "agents", Mark.WARN),
        ({"space": Space(1 << 20, 100 << 30)}, "disk", Mark.FAIL),
        ({"skew": 60.0}, "clock", Mark.WARN),
        ({"skew": -60.0}, "clock", Mark.WARN),
    ],
)
def test_what_is_wrong_with_a_machine_is_said(change: dict[str, Any], what: str, mark: Mark) -> None:
    """One fact that is not well changes one line, which says what to do."""
    findings = judged(replace(MACHINE, **change), None)

    assert marks(findings) == {what: mark}
    assert all(finding.do for finding in findings if finding.mark is not Mark.OK)


@pytest.mark.parametrize(
    ("change", "what", "mark"),
    [
        ({"trouble": "line 3: bad"}, "board", Mark.FAIL),
        ({"sandbox": "agents run free"}, "sandbox", Mark.WARN),
        ({"refused": "no cage"}, "sandbox", Mark.FAIL),
        ({"holder": "process 12 on h since x", "real_holder": 13}, "supervisor", Mark.FAIL),
        ({"orphans": ("python (pid 3)",)}, "processes", Mark.WARN),
        ({"leftovers": ("sleep (pid 4)",)}, "processes", Mark.WARN),
        ({"stale": ("t1",)}, "worktrees", Mark.WARN),
        ({"has_identity": False}, "identity", Mark.WARN),
        ({"checked_out": "/x"}, "integration", Mark.FAIL),
        ({"has_agent": False}, "settings", Mark.WARN),
        ({"switches": ("PAUSE",)}, "switches", Mark.WARN),
    ],
)
def test_what_is_wrong_with_a_project_is_said(change: dict[str, Any], what: str, mark: Mark) -> None:
    assert marks(judged(MACHINE, replace(PROJECT, **change))) == {what: mark}


def test_a_lock_whose_holder_is_who_it_says_is_well() -> None:
    project = replace(PROJECT, holder="process 12 on h since x", real_holder=12)

    assert marks(judged(MACHINE, project)) == {}
