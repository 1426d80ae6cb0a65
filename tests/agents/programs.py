"""Which real programs the tests of this folder run, and where `make test-agents` has put them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import yaml

from liza.domain.record import Record

ROOT: Final = Path(__file__).resolve().parents[2]
# People who test several checkouts set it, so that each is installed once.
PLACE: Final = Path(os.environ.get("LIZA_AGENTS_CACHE") or ROOT / ".agents")
LIZA: Final = "liza"
STAMP: Final = ".installed"


class Program(Record):
    """One line of the table: what is installed by which installer, and what is started then."""

    program: Path
    npm: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    pip_alone: tuple[str, ...] = ()  # without what they depend on

    @property
    def stamp(self) -> str:
        """Return what says that this very line is installed; what is linked to a checkout is of that one."""
        return f"{self.model_dump_json()}{ROOT if '--editable' in self.pip else ''}"


def table() -> dict[str, Program]:
    read = yaml.safe_load(Path(__file__).with_name("programs.yaml").read_text())
    return {name: Program.model_validate(row) for name, row in read.items()}


def is_installed(name: str, program: Program) -> bool:
    folder = PLACE / name
    stamp = folder / STAMP
    return stamp.is_file() and stamp.read_text() == program.stamp and (folder / program.program).exists()


def installed(name: str) -> Path | None:
    """Return the program *name*, or None where it could not be installed."""
    program = table()[name]
    return PLACE / name / program.program if is_installed(name, program) else None
