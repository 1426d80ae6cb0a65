"""Merges trees that differ in different paths, without a git process.

Where neither side took a path away there is no renaming to be found, and where no path was changed on both
sides there is nothing to merge within a file: then every path is as the side has it that changed it. All
else is for git's own merge.
"""

from __future__ import annotations

from typing import Final

from liza.repo.object_reader import (
    TREE_MODE,
    TreeEntry,
    is_near_ancestor,
    parents_of,
    read_trees,
    write_tree,
)
from liza.repo.repository import Repository

MOST_COMMITS: Final = 64  # of a branch that are looked at for where it began
DEEPEST: Final = 64  # folders within folders


class _TakesThought(Exception):
    """Both sides changed a path, or one took it away."""


def merge_disjoint(repository: Repository, onto: str, commit: str) -> str | None:
    """Return the tree of *commit* merged into *onto*; None where git has to merge them."""
    base = _base_of(repository, onto, commit)
    if base is None:
        return None
    try:
        return _merge(repository, *map(repository.tree_of, (base, onto, commit)), depth=0)
    except _TakesThought:
        return None


def _base_of(repository: Repository, onto: str, commit: str) -> str | None:
    """Return the commit at which the straight line that ends in *commit* leaves the history of *onto*."""
    for _ in range(MOST_COMMITS):
        if (is_shared := is_near_ancestor(repository.common, commit, onto)) is None or is_shared:
            return commit if is_shared else None
        parents = parents_of(repository.common, commit)
        if parents is None or len(parents) != 1:
            return None
        (commit,) = parents
    return None


def _merge(repository: Repository, base: str, ours: str, theirs: str, *, depth: int) -> str:
    trees = read_trees(repository.common, (base, ours, theirs))
    old, mine, other = ({entry.name: entry for entry in trees[tree]} for tree in (base, ours, theirs))
    if depth > DEEPEST or not (old.keys() <= mine.keys() and old.keys() <= other.keys()):
        raise _TakesThought
    merged = dict(mine)
    for name, entry in other.items():
        before, own = old.get(name), mine.get(name)
        if entry in (before, own):
            continue
        if own == before:
            merged[name] = entry
            continue
        merged[name] = _merge_folder(repository, before, own, entry, depth)
    if merged == mine:
        return ours
    return write_tree(repository.common, merged.values())


def _merge_folder(
    repository: Repository, before: TreeEntry | None, own: TreeEntry | None, entry: TreeEntry, depth: int
) -> TreeEntry:
    if before is None or own is None or {before.mode, own.mode, entry.mode} != {TREE_MODE}:
        raise _TakesThought
    inner = _merge(repository, before.object, own.object, entry.object, depth=depth + 1)
    return entry._replace(object=inner)
