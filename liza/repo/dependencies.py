"""What was installed for the user's checkout and is no part of it: virtual environments, `node_modules`.

A tree that is worked on or tested has none of it, yet its commands name it: `.venv/bin/python`, `npx jest`.
So it is borrowed. In a sandbox it is mounted inside of the tree, to read; without one the tree gets a
directory of links. A link that leads to the project itself, as of a workspace of npm's, leads to the tree.
"""

from __future__ import annotations

import os
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.system.no_follow import remove, stamp_of
from liza.system.sandbox.bubblewrap import DEPENDENCIES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from liza.repo.repository import Repository

# Beside these something may be installed, also below the root of the project.
MANIFESTS: Final = (
    *("package.json", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "Pipfile"),
    "tox.ini",
)
MOST_PROJECTS: Final = 200  # directories of one repository in which something may be installed
STRICT_EDITABLE_PREFIX: Final = "__editable__."  # how setuptools names its directory of links to single files
_LINK_FOLDER_IGNORE: Final = (
    "# Links to what is installed in the checkout that this worktree belongs to.\n*\n"
)
# Of these the entries are links one by one, since each may lead to another package of the project.
_SCOPES: Final = ("@", ".bin")


def installed_folders(repository: Repository) -> tuple[Path, ...]:
    """Return the directories of the checkout that were installed and are not tracked, without links."""
    root = repository.root.resolve()
    tracked = _tracked_manifests(repository, stamp_of(repository.home / "index"))
    projects = dict.fromkeys(["", *(os.path.dirname(path) for path in tracked if path)])  # noqa: PTH120 - text
    found = [root / project / name for project in list(projects)[:MOST_PROJECTS] for name in DEPENDENCIES]
    kept = {Path(path).parts[:depth] for path in tracked for depth in range(1, len(Path(path).parts))}
    return tuple(path for path in found if path.is_dir() and path.relative_to(root).parts not in kept)


@lru_cache(4)
def _tracked_manifests(repository: Repository, _stamp: tuple[int, ...]) -> tuple[str, ...]:
    patterns = [f":(glob)**/{name}" for name in MANIFESTS]
    answer = repository.ask_checkout("ls-files", "-z", "--", *patterns, *DEPENDENCIES)
    return tuple(answer.text.split("\0"))


def strict_editable_folders(root: Path) -> tuple[Path, ...]:
    """Return the directories of links to the files of packages, which lead to whatever is at *root*."""
    found = sorted(root.glob(f"build/{STRICT_EDITABLE_PREFIX}*"))
    # A copy of a file would be the checkout's, whatever is there.
    return tuple(path for path in found if not any(_is_copy(file) for file in path.rglob("*.py")))


def _is_copy(file: Path) -> bool:
    return file.is_file() and not file.is_symlink()


def is_free(top: Path, name: Path) -> bool:
    """Return whether nothing of the tree at *top* is at *name*, so that it can be put there."""
    path = top
    for part in name.parts:
        path = path / part
        if path.is_symlink() or (path.exists() and not path.is_dir()):
            return False
        if not path.exists():
            return True
    return not any(path.iterdir()) or _is_link_folder(path)


def link_dependencies(root: Path, top: Path, names: Iterable[Path]) -> None:
    """Link the dependencies at *names* of the checkout *root* into the tree *top*, where it has nothing
    there.
    """
    for name in names:
        if is_free(top, name):
            _link_all(root, top, name)
            (top / name / ".gitignore").write_text(_LINK_FOLDER_IGNORE)


def remove_dependency_links(top: Path, names: Iterable[Path]) -> None:
    """Remove what `lend` put into the tree at *top*."""
    for name in names:
        if (top / name).is_dir() and not (top / name).is_symlink() and _is_link_folder(top / name):
            remove(top / name)


def _is_link_folder(directory: Path) -> bool:
    mark = directory / ".gitignore"
    return (
        mark.is_file() and not mark.is_symlink() and mark.read_text(errors="replace") == _LINK_FOLDER_IGNORE
    )


def _link_all(root: Path, top: Path, name: Path) -> None:
    """Make a directory with a link for each entry; links of another time are made again."""
    directory = top / name
    directory.mkdir(parents=True, exist_ok=True)
    for entry in _entries(directory):
        if entry.is_symlink():
            Path(entry.path).unlink()
    for entry in _entries(root / name):
        target = directory / entry.name
        if os.path.lexists(target):
            continue
        if entry.is_dir(follow_symlinks=False) and entry.name.startswith(_SCOPES):
            _link_all(root, top, name / entry.name)
        else:
            target.symlink_to(_target(root, top, Path(entry.path)))


def _target(root: Path, top: Path, path: Path) -> Path:
    """Return where a link that stands for *path* has to lead: into the tree where *path* leads to ours."""
    if not path.is_symlink():
        return path
    where = Path(os.path.normpath(path.parent / path.readlink()))
    return top / where.relative_to(root) if where.is_relative_to(root) else path


def _entries(directory: Path) -> list[os.DirEntry[str]]:
    with os.scandir(directory) as found:
        return sorted(found, key=lambda entry: entry.name)
