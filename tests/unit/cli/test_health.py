"""What the doctor says about facts: one finding a fact, and what to do for every one that is not well."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import pytest

from liza.cli.views.health import HealthFinding, HealthMark, MachineFacts, ProjectFacts, diagnose
from liza.system.disk_space import DiskSpace

MACHINE: Final = MachineFacts(
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
    space=DiskSpace(50 << 30, 100 << 30),
    skew=0.0,
)
PROJECT: Final = ProjectFacts(
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
    has_commit=True,
    is_writable=True,
    checked_out=None,
    has_agent=True,
    agent_trouble=None,
    switches=(),
)


def marks(findings: list[HealthFinding]) -> dict[str, HealthMark]:
    return {finding.what: finding.mark for finding in findings if finding.mark is not HealthMark.OK}


def test_a_sound_machine_is_sound() -> None:
    """Nothing is said against what is well, and every fact has its line."""
    findings = diagnose(MACHINE, PROJECT)

    assert marks(findings) == {}
    assert len({finding.what for finding in findings}) == len(findings) == 21


def test_without_a_project_only_the_machine_is_judged() -> None:
    assert len(diagnose(MACHINE, None)) == 10


@pytest.mark.parametrize(
    ("change", "what", "mark"),
    [
        ({"python": (3, 10, 1)}, "python", HealthMark.FAIL),
        ({"git": ()}, "git", HealthMark.FAIL),
        ({"git": (2, 34)}, "git", HealthMark.FAIL),
        ({"obstacle": "there is no bwrap; install bubblewrap"}, "bubblewrap", HealthMark.WARN),
        ({"namespaces": 0}, "kernel", HealthMark.WARN),
        ({"exchanges": False}, "kernel", HealthMark.WARN),
        ({"watches": 10}, "inotify", HealthMark.WARN),
        ({"instances": 10}, "inotify", HealthMark.WARN),
        ({"open_files": 64}, "open files", HealthMark.WARN),
        ({"programs": {}}, "agents", HealthMark.WARN),
        ({"space": DiskSpace(1 << 20, 100 << 30)}, "disk", HealthMark.FAIL),
        ({"skew": 60.0}, "clock", HealthMark.WARN),
        ({"skew": -60.0}, "clock", HealthMark.WARN),
    ],
)
def test_what_is_wrong_with_a_machine_is_said(change: dict[str, Any], what: str, mark: HealthMark) -> None:
    """One fact that is not well changes one line, which says what to do."""
    findings = diagnose(replace(MACHINE, **change), None)

    assert marks(findings) == {what: mark}
    assert all(finding.do for finding in findings if finding.mark is not HealthMark.OK)


@pytest.mark.parametrize(
    ("change", "what", "mark"),
    [
        ({"trouble": "line 3: bad"}, "board", HealthMark.FAIL),
        ({"is_writable": False}, "board", HealthMark.FAIL),
        ({"sandbox": "agents run free"}, "sandbox", HealthMark.WARN),
        ({"refused": "no sandbox"}, "sandbox", HealthMark.FAIL),
        ({"holder": "process 12 on h since x", "real_holder": 13}, "supervisor", HealthMark.FAIL),
        ({"orphans": ("python (pid 3)",)}, "processes", HealthMark.WARN),
        ({"leftovers": ("sleep (pid 4)",)}, "processes", HealthMark.WARN),
        ({"stale": ("t1",)}, "worktrees", HealthMark.WARN),
        ({"has_identity": False}, "identity", HealthMark.WARN),
        ({"checked_out": "/x"}, "integration", HealthMark.FAIL),
        ({"integration_at": None, "has_commit": False}, "integration", HealthMark.FAIL),
        ({"has_agent": False}, "settings", HealthMark.WARN),
        ({"agent_trouble": "there is no program 'x'; install it"}, "settings", HealthMark.FAIL),
        ({"switches": ("PAUSE",)}, "switches", HealthMark.WARN),
    ],
)
def test_what_is_wrong_with_a_project_is_said(change: dict[str, Any], what: str, mark: HealthMark) -> None:
    assert marks(diagnose(MACHINE, replace(PROJECT, **change))) == {what: mark}


def test_a_program_of_your_own_needs_none_on_the_path() -> None:
    assert marks(diagnose(replace(MACHINE, programs={}), PROJECT)) == {}


def test_a_lock_whose_holder_is_who_it_says_is_well() -> None:
    project = replace(PROJECT, holder="process 12 on h since x", real_holder=12)

    assert marks(diagnose(MACHINE, project)) == {}
