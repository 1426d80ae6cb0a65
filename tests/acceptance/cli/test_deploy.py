"""What is shipped for servers: systemd itself finds nothing wrong with it, and what it runs is there."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path
from typing import Final

import pytest

from liza.cli.main import parser
from liza.errors import EXIT_CODES

UNITS: Final = Path(__file__).parents[3] / "deploy/systemd"
SERVICES: Final = sorted(UNITS.glob("*.service"))


def settings(unit: Path) -> ConfigParser:
    found = ConfigParser(interpolation=None)
    found.optionxform = str  # type: ignore[assignment,method-assign]
    found.read(unit)
    return found


@pytest.mark.parametrize("unit", SERVICES, ids=lambda unit: unit.name)
def test_a_service_runs_a_command_that_liza_has(unit: Path) -> None:
    program, *words = shlex.split(settings(unit)["Service"]["ExecStart"])
    assert Path(program).name == "liza"
    assert parser().parse_args(words).run
    expected = settings(unit)["Service"].get("SuccessExitStatus", "0")
    assert int(expected) in EXIT_CODES


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd here to ask")
@pytest.mark.parametrize("unit", sorted(UNITS.iterdir()), ids=lambda unit: unit.name)
def test_systemd_finds_nothing_wrong(unit: Path, tmp_path: Path) -> None:
    """Of an instance, for that is what runs, with a program that is there."""
    for each in UNITS.iterdir():
        name = each.name.replace("@.", "@site.")
        (tmp_path / name).write_text(
            each.read_text().replace("/usr/local/bin/liza", shutil.which("true") or "")
        )
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", tmp_path / unit.name.replace("@.", "@site.")],
        capture_output=True,
        text=True,
        check=False,
    )
    ours = [line for line in done.stderr.splitlines() if str(tmp_path) in line or "liza-" in line]
    assert ours == []
