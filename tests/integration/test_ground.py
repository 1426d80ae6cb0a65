"""Which code a gate and an agent see: that of the tree, and never that of the user's checkout."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from liza.verdicts import Outcome
from tests.caged import require_cage
from tests.grounds import INSTALLERS, RIGHT, Ground, package

if TYPE_CHECKING:
    from pathlib import Path

RELATIVE = ".venv/bin/python -m unittest discover -q -s tests"


@pytest.mark.parametrize("mode", ["require"])
@pytest.mark.parametrize("install", INSTALLERS)
def test_a_gate_tests_the_work_and_not_the_checkout(tmp_path: Path, install: str, mode: str) -> None:
    """By a path of the environment, relative or absolute: red where the tree is wrong, green where right."""
    if mode == "require":
        require_cage()
    ground = Ground(tmp_path, install, mode=mode)
    wrong, right = ground.base, ground.commit(package(RIGHT))

    for line in (RELATIVE, f"{ground.root}/{RELATIVE}"):
        assert ground.tried(right, line, checkout=wrong).outcome is Outcome.PASS, line
        red = ground.tried(wrong, line, checkout=right)
        assert red.outcome is Outcome.REVISE, line
        assert "AssertionError" in str(red.evidence), line
