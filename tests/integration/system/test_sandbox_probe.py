"""Whether there is a sandbox at all: a trial that is cut short says nothing about the machine."""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING

import pytest

from liza.daemon.project_sandbox import is_sandboxed, require_sandbox, sandbox_warning, with_required_mode
from liza.domain.config import SandboxConfig, SandboxMode
from liza.errors import SandboxUnavailable
from liza.system.sandbox import bubblewrap
from tests.support.sandboxed_project import skip_without_sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KILLED = "kill -9 $$"
SCARCE = "echo 'bwrap: Creating new namespace failed: Cannot allocate memory' >&2; exit 1"
REFUSED = "echo 'bwrap: No permissions to create new namespace' >&2; exit 1"
AUTO = SandboxConfig()


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a directory that comes first on the PATH, in a process that has not tried a sandbox yet."""
    skip_without_sandbox()
    known = list(bubblewrap._last_probe)
    bubblewrap._last_probe.clear()
    monkeypatch.setattr(bubblewrap, "PAUSES", (0.0, 0.0))
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    yield tmp_path
    bubblewrap._last_probe[:] = known


def put_bwrap(programs: Path, *lines: str) -> None:
    """Put a bwrap there that does one of *lines* each time, and then what the real one does."""
    real = shutil.which("bwrap", path=os.environ["PATH"].partition(os.pathsep)[2])
    cases = "".join(f"{number}) {line} ;;\n" for number, line in enumerate(lines, start=1))
    count = f"echo >> {programs}/count; n=$(wc -l < {programs}/count)"
    script = f'#!/bin/sh\n{count}\ncase $n in\n{cases}*) exec {real} "$@" ;;\nesac\n'
    (programs / "bwrap").write_text(script)
    (programs / "bwrap").chmod(0o755)


class TestATrial:
    @pytest.mark.parametrize("line", [KILLED, SCARCE])
    def test_one_that_is_cut_short_is_made_again(self, programs: Path, line: str) -> None:
        put_bwrap(programs, line, line)

        require_sandbox(AUTO)

        assert is_sandboxed(AUTO)
        assert sandbox_warning(AUTO) is None

    def test_where_each_is_cut_short_nobody_runs_free(self, programs: Path) -> None:
        """That is no answer; the machine may well have a sandbox."""
        put_bwrap(programs, *[KILLED] * 9)

        with pytest.raises(SandboxUnavailable, match="try again"):
            require_sandbox(AUTO)

    def test_one_that_is_refused_is_made_once(self, programs: Path) -> None:
        put_bwrap(programs, REFUSED)

        require_sandbox(AUTO)

        assert not is_sandboxed(AUTO)
        assert (programs / "count").read_text() == "\n"

    def test_a_board_that_ran_in_one_does_not_go_on_without(self, programs: Path) -> None:
        always = with_required_mode(AUTO)
        assert always.mode is SandboxMode.REQUIRE
        put_bwrap(programs, REFUSED)
        bubblewrap._last_probe.clear()

        with pytest.raises(SandboxUnavailable, match=r"sandbox: \{mode: off\}"):
            require_sandbox(always)
        require_sandbox(always.replace(mode=SandboxMode.OFF))

    def test_a_board_that_never_did_stays_as_it_is(self, programs: Path) -> None:
        put_bwrap(programs, REFUSED)

        assert with_required_mode(AUTO) is AUTO
        assert with_required_mode(AUTO.replace(mode=SandboxMode.OFF)).mode is SandboxMode.OFF
