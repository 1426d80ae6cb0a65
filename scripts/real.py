"""Fetch the real projects of tests/real/projects.py by their digests, and what their tests need."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.real.projects import MODULES, PINNED, PROJECTS, SOURCES, TOOLS, WHEELS

if TYPE_CHECKING:
    from tests.real.projects import Real

PATIENCE: Final = 900.0  # seconds that one may take on a slow line
PIP: Final = (sys.executable, "-m", "pip", "--disable-pip-version-check", "-qq")


def main() -> int:
    SOURCES.mkdir(parents=True, exist_ok=True)
    wrong = [sentence for project in PROJECTS if (sentence := _fetch(project))]
    wrong += [sentence for sentence in (_wheels(), _tools()) if sentence]
    for sentence in wrong:
        print(sentence, file=sys.stderr)
    return 1 if wrong else 0


def _fetch(project: Real) -> str | None:
    """Have the archive of *project*, with its digest, and for npm its modules; return what went wrong."""
    if not project.archive.exists():
        print(f"Fetching {project.name} {project.version}", flush=True)
        try:
            (_npm if project.is_npm else _sdist)(project)
        except (OSError, subprocess.SubprocessError) as error:
            return f"{project.name} cannot be fetched: {_words(error)}"
    found = hashlib.sha256(project.archive.read_bytes()).hexdigest()
    if found != project.sha256:
        project.archive.unlink()
        return f"{project.name} {project.version} is not what it was: its digest is {found}"
    if project.is_npm and not (MODULES / project.name / "node_modules").is_dir():
        return _install_modules(project)
    return None


def _sdist(project: Real) -> None:
    wanted = f"{project.name}=={project.version}"
    _run(*PIP, "download", "--no-deps", "--no-binary", project.name, "--dest", str(SOURCES), wanted)


def _npm(project: Real) -> None:
    _run("npm", "pack", "--silent", "--pack-destination", str(SOURCES), f"{project.name}@{project.version}")


def _install_modules(project: Real) -> str | None:
    place = MODULES / project.name
    place.mkdir(parents=True, exist_ok=True)
    with tarfile.open(project.archive) as archive:
        (place / "package.json").write_bytes(_member(archive, "package/package.json"))
    quiet = ("--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts", "--loglevel", "error")
    try:
        _run("npm", "install", "--prefix", str(place), *quiet)
    except (OSError, subprocess.SubprocessError) as error:
        return f"what {project.name} needs cannot be installed: {_words(error)}"
    return None


def _member(archive: tarfile.TarFile, name: str) -> bytes:
    file = archive.extractfile(name)
    return file.read() if file else b""


def _wheels() -> str | None:
    """Have a wheel of all that is pinned, so that every test installs without a network."""
    stamp, wanted = WHEELS / "stamp", "\n".join(PINNED)
    if stamp.exists() and stamp.read_text() == wanted:
        return None
    shutil.rmtree(WHEELS, ignore_errors=True)
    print("Fetching what their tests need", flush=True)
    try:
        _run(*PIP, "wheel", "--no-deps", "--wheel-dir", str(WHEELS), *PINNED)
    except (OSError, subprocess.SubprocessError) as error:
        return f"what the projects need cannot be fetched: {_words(error)}"
    stamp.write_text(wanted)
    return None


def _tools() -> str | None:
    if (TOOLS / "bin" / "pytest").exists():
        return None
    try:
        _run(sys.executable, "-m", "venv", "--clear", str(TOOLS))
        here = (str(TOOLS / "bin" / "python"), *PIP[1:])
        _run(*here, "install", "--no-index", "--find-links", str(WHEELS), "pytest", "freezegun")
    except (OSError, subprocess.SubprocessError) as error:
        return f"pytest cannot be installed: {_words(error)}"
    return None


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, text=True, timeout=PATIENCE)


def _words(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    return " ".join(said.split())[-300:]


if __name__ == "__main__":
    sys.exit(main())
