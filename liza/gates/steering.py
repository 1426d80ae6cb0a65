"""What of a change decides how tests run, and not what they test: settings, scripts, what a build calls."""

from __future__ import annotations

from posixpath import basename
from typing import Final

from liza.gates.context import Case
from liza.gates.files import is_config, is_generated, is_script
from liza.gates.known_runners import is_manifest, is_runner_file, steering
from liza.repo.diff import EXECUTABLE
from liza.repo.objects import contents

# Where a build says what it calls: a file that one of these names steers as much as they do.
_BUILDS: Final = (
    *("Makefile", "makefile", "GNUmakefile", "package.json", "tox.ini", "noxfile.py", "justfile", "Justfile"),
    *("Rakefile", "pyproject.toml", "setup.cfg"),
)


def steering_paths(case: Case, line: str) -> list[str]:
    """Return the paths of the diff that could decide what *line* runs."""
    called = _called(case, line)
    return [
        path
        for entry in case.diff
        for path in entry.paths
        if is_runner_file(path)
        or (is_manifest(path) and is_steered(case, path))
        or (is_config(path) and not is_generated(path) and not is_manifest(path))
        or is_script(path)
        or EXECUTABLE in (entry.mode, entry.old_mode)
        or basename(path) in called
    ]


def _called(case: Case, line: str) -> str:
    """Return all texts that say what *line* calls, before the change and after it."""
    blobs = {
        files[name].blob for files in (case.base_files, case.head_files) for name in _BUILDS if name in files
    }
    texts = contents(case.repository, blobs).values()
    return "\n".join([line, *(text.decode("utf-8", "replace") for text in texts)])


def is_steered(case: Case, path: str) -> bool:
    """Return whether the manifest at *path* runs tests otherwise than before; dependencies are no matter."""
    texts = []
    for files in (case.base_files, case.head_files):
        found = files.get(path)
        data = contents(case.repository, [found.blob]).get(found.blob, b"") if found else b""
        texts.append(steering(path, data.decode("utf-8", "replace")))
    return bool(texts[0] != texts[1])
