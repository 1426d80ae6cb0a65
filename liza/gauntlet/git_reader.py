"""The judge's own reading of a repository, by another library than the code that is judged.

Liza reads and writes git through `liza/repo/`. A judge that read by the same code would share its mistakes.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from git import BadName, Blob, Repo, Submodule, Tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from git import Commit

_SETTLED: Final = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
}


@contextmanager
def _open_repository(root: Path) -> Iterator[Repo]:
    """Open the repository at *root* in a process that forgets every variable of git's."""
    # GitPython obeys what it inherits, also where a path is given; this process has no use for any of it.
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        del os.environ[name]
    with Repo(root) as repo:
        repo.git.update_environment(**_SETTLED)
        yield repo


def _commit(repo: Repo, name: str) -> Commit | None:
    """Return the commit that *name*, a full ref or a hash, stands for; None where there is none."""
    if (Path(repo.git_dir) / name).is_fifo():  # GitPython would wait for it without end
        return None
    try:
        return repo.commit(name)
    except (BadName, ValueError):
        return None


def _entries(tree: Tree) -> Iterator[Tree | Blob | Submodule]:
    """Yield all that is below *tree*, directories included."""
    for entry in tree:
        yield entry
        if isinstance(entry, Tree):
            yield from _entries(entry)


def files_of_commit(root: Path, name: str) -> dict[str, str] | None:
    """Return the files of a commit, each with its mode and hash; None where there is no such commit."""
    with _open_repository(root) as repo:
        if (commit := _commit(repo, name)) is None:
            return None
        files = (entry for entry in _entries(commit.tree) if not isinstance(entry, Tree))
        return {str(entry.path): f"{entry.mode:06o} {entry.hexsha}" for entry in files}


def file_in_commit(root: Path, name: str, path: str) -> bytes:
    """Return what the file *path* holds in a commit."""
    with _open_repository(root) as repo:
        return bytes(repo.commit(name).tree[path].data_stream.read())


def contents_since(root: Path, base: str, name: str) -> Iterator[bytes]:
    """Yield every message and every file's content that commits after *base* brought to *name*."""
    with _open_repository(root) as repo:
        seen = {entry.hexsha for entry in _entries(repo.commit(base).tree)}
        for commit in repo.iter_commits(f"{base}..{name}"):
            yield commit.message if isinstance(commit.message, bytes) else commit.message.encode()
            for entry in _entries(commit.tree):
                if isinstance(entry, Blob) and entry.hexsha not in seen:
                    seen.add(entry.hexsha)
                    yield entry.data_stream.read()


def shared_objects(root: Path, other: Path) -> Iterator[str]:
    """Yield the hashes of objects of *other* that the repository at *root* has as well."""
    with _open_repository(other) as theirs, _open_repository(root) as ours:
        for name in _objects(theirs.iter_commits("--all")):
            try:
                ours.odb.info(bytes.fromhex(name))
            except ValueError:
                continue
            yield name


def _objects(commits: Iterable[Commit]) -> set[str]:
    found = set()
    for commit in commits:
        found |= {commit.hexsha, commit.tree.hexsha, *(entry.hexsha for entry in _entries(commit.tree))}
    return found
