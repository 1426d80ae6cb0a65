"""Install the real programs of tests/agents/programs.yaml, each into a folder of its own.

What cannot be installed is said in a sentence, and its tests are skipped; only Liza itself has to be there.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from liza.errors import LizaError
from liza.system.files import hold_patiently
from tests.agents.programs import LIZA, PLACE, ROOT, STAMP, is_installed, table

if TYPE_CHECKING:
    from tests.agents.programs import Program

PATIENCE: Final = 900.0  # seconds that one may take on a slow line
AT_ONCE: Final = 3
LONGEST: Final = 300  # characters of what an installer said last


def install(name: str, program: Program) -> str:
    """Install one, if it is not there as the table has it; return what became of it."""
    # Several checkouts share the cache: two that install the same would remove what the other just made.
    try:
        with hold_patiently(PLACE / f"{name}.lock", PATIENCE):
            return _install_locked(name, program)
    except LizaError as error:
        return f"{name}: not installed, because {error}"


def _install_locked(name: str, program: Program) -> str:
    if is_installed(name, program):
        return f"{name}: there already"
    began, folder = time.monotonic(), PLACE / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        (_npm if program.npm else _pip)(folder, program)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{name}: cannot be installed, so it is not tested: {_words(error)}"
    if not (folder / program.program).exists():
        return f"{name}: cannot be installed, so it is not tested: its package has no {program.program}"
    (folder / STAMP).write_text(program.stamp)
    return f"{name}: installed in {time.monotonic() - began:.0f} s"


def _npm(folder: Path, program: Program) -> None:
    quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--loglevel", "error")
    _run("npm", "install", "--prefix", str(folder), *quiet, *program.npm)


def _pip(folder: Path, program: Program) -> None:
    _run(sys.executable, "-m", "venv", str(folder))
    pip = (str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "-qq")
    _run(*pip, *program.pip)
    if program.pip_alone:
        _run(*pip, "--no-deps", *program.pip_alone)


def _run(*words: str) -> None:
    subprocess.run(words, cwd=ROOT, check=True, capture_output=True, text=True, timeout=PATIENCE)


def _words(error: Exception) -> str:
    said = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
    return " ".join(said.split())[-LONGEST:]


def main(wanted: list[str]) -> int:
    chosen = {name: row for name, row in table().items() if not wanted or name in wanted}
    PLACE.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in as_completed(pool.submit(install, name, program) for name, program in chosen.items()):
            print(done.result(), flush=True)
    if LIZA in chosen and not is_installed(LIZA, chosen[LIZA]):
        print("make test-agents needs Liza's own environment; nothing was tested.", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
