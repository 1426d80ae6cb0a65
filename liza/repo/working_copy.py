"""The user's checkout as a commit, with what is changed, staged or new in it; the checkout is left alone."""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from liza.errors import GitFailed, UnfitRepository
from liza.repo.command import ask, decode_git
from liza.repo.repository import OWN_PATHS, Repository

_LIST: Final = ("ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard")


def commit_checkout(repository: Repository, *, at: datetime) -> str:
    """Return a commit of the files as they are, on top of HEAD; HEAD itself where nothing differs.

    No branch points at it and no index changes. What is ignored stays out.
    """
    head = repository.head()
    if head is None:
        raise UnfitRepository(f"{repository.root} has no commit yet; make one first")
    tree = _tree_of_files(repository)
    if tree == repository.tree_of(head):
        return head
    message = "the checkout as it is\n"
    return repository.commit_tree(tree, parents=(head,), message=message, at=at)


def _tree_of_files(repository: Repository) -> str:
    with TemporaryDirectory(prefix="liza-") as directory:
        index = Path(directory) / "index"
        # A copy, not HEAD: it knows what a sparse checkout leaves out on purpose.
        if (repository.home / "index").exists():
            shutil.copy2(repository.home / "index", index)
        pins = {
            "GIT_DIR": str(repository.home),
            "GIT_WORK_TREE": str(repository.root),
            "GIT_INDEX_FILE": str(index),
        }
        names = _git(repository, pins, *_LIST).split(b"\0")
        # A directory is a repository of its own: nothing of ours to take along.
        changed = [name for name in names if name and not name.endswith(b"/") and not _is_own(name)]
        stdin = b"".join(name + b"\0" for name in changed)
        _git(repository, pins, "update-index", "--add", "--remove", "-z", "--stdin", stdin=stdin)
        return decode_git(_git(repository, pins, "write-tree")).strip()


def _is_own(name: bytes) -> bool:
    return decode_git(name).partition("/")[0] in OWN_PATHS


def _git(repository: Repository, pins: dict[str, str], *words: str, stdin: bytes = b"") -> bytes:
    answer = ask(*words, cwd=repository.root, environment=pins, stdin=stdin)
    if answer.code != 0:
        raise GitFailed(words[0], answer.said)
    return answer.output
