"""Finds the changed files that decide how tests run: runner settings, scripts, build files."""

from __future__ import annotations

from posixpath import basename
from typing import Final

from liza.gates.context import GateContext
from liza.gates.files import is_config, is_generated, is_script
from liza.gates.known_runners import is_manifest, is_runner_file, runner_settings_in
from liza.repo.diff import EXECUTABLE
from liza.repo.objects import blob_contents

# Where a build says what it calls: a file that one of these names steers as much as they do.
_BUILDS: Final = (
    *("Makefile", "makefile", "GNUmakefile", "package.json", "tox.ini", "noxfile.py", "justfile", "Justfile"),
    *("Rakefile", "pyproject.toml", "setup.cfg"),
)


def steering_paths(case: GateContext, line: str) -> list[str]:
    """Return the paths of the diff that could decide what *line* runs."""
    called = _build_texts(case, line)
    return [
        path
        for entry in case.diff
        for path in entry.paths
        if is_runner_file(path)
        or (is_manifest(path) and has_new_runner_settings(case, path))
        or (is_config(path) and not is_generated(path) and not is_manifest(path))
        or is_script(path)
        or EXECUTABLE in (entry.mode, entry.old_mode)
        or basename(path) in called
    ]


def _build_texts(case: GateContext, line: str) -> str:
    """Return all texts that say what *line* calls, before the change and after it."""
    blobs = {
        files[name].blob for files in (case.base_files, case.head_files) for name in _BUILDS if name in files
    }
    texts = blob_contents(case.repository, blobs).values()
    return "\n".join([line, *(text.decode("utf-8", "replace") for text in texts)])


def has_new_runner_settings(case: GateContext, path: str) -> bool:
    """Return whether the runner settings in the manifest *path* differ from the base; dependencies do not
    count.
    """
    texts = []
    for files in (case.base_files, case.head_files):
        found = files.get(path)
        data = blob_contents(case.repository, [found.blob]).get(found.blob, b"") if found else b""
        texts.append(runner_settings_in(path, data.decode("utf-8", "replace")))
    return bool(texts[0] != texts[1])
