"""Restores instruction files of coding programs to those of the base, so that work cannot instruct its
reviewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from liza.gates.files import INSTRUCTIONS
from liza.repo.objects import list_tree, write_tree_with

if TYPE_CHECKING:
    from datetime import datetime

    from liza.repo.repository import Repository


def with_instructions_of(repository: Repository, base: str, commit: str, *, at: datetime) -> str:
    """Return *commit*, or where it changes what programs obey, one on top of it with the files of *base*."""
    old, new = list_tree(repository, base), list_tree(repository, commit)
    paths = {path for path in (*old, *new) if INSTRUCTIONS.search(path)}
    changed = {path: old.get(path) for path in paths if old.get(path) != new.get(path)}
    if not changed:
        return commit
    tree = write_tree_with(repository, repository.tree_of(commit), changed)
    message = f"{commit[:12]} with the instructions to agents of {base[:12]}\n"
    return repository.commit_tree(tree, parents=(commit,), message=message, at=at)
