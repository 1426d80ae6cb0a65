"""What is in a tree, read from git's objects: no checkout, one call for many files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.errors import GitFailed
from liza.repo.command import encode_git
from liza.repo.object_reader import (
    NEAR,
    REPOSITORY_MODE,
    TREE_MODE,
    TreeEntry,
    find_objects,
    read_commit,
    read_objects,
    read_trees,
    walk_tree,
    write_tree,
)
from liza.repo.repository import Repository

DEEPEST: Final = 100  # folders in each other that are written one by one; deeper ones are git's own affair


class TreeItem(NamedTuple):
    """A path of a tree."""

    mode: str
    blob: str


def list_tree(repository: Repository, tree: str) -> dict[str, TreeItem]:
    """Return every path of *tree*."""
    return dict(_list_tree(repository, repository.tree_of(tree)))


@lru_cache(8)
def _list_tree(repository: Repository, tree: str) -> Mapping[str, TreeItem]:
    return {path: TreeItem(*facts) for path, facts in walk_tree(repository.common, tree).items()}


def blob_sizes(repository: Repository, blobs: Iterable[str]) -> dict[str, int]:
    """Return the bytes of each of *blobs* that is there."""
    return {found.name: found.size for found in find_objects(repository.common, list(set(blobs))) if found}


def blob_contents(repository: Repository, blobs: Iterable[str]) -> dict[str, bytes]:
    """Return what is in each of *blobs* that is there."""
    return {found.name: found.content for found in read_objects(repository.common, list(set(blobs))) if found}


class CommitInfo(NamedTuple):
    """A commit between base and head: its parent, message and authors."""

    commit: str
    before: str
    message: str
    people: str = ""  # who made it, as it says


def commits_between(repository: Repository, base: str, head: str) -> list[CommitInfo]:
    """Return the commits from *base* to *head*, each with what it was made from; a first one from nothing."""
    if (line := _line_between(repository, base, head)) is not None:
        return line
    text = repository.git(
        "log", "--no-color", "--format=%x00%H %P%n%an <%ae>, %cn <%ce>%n%B", f"{base}..{head}"
    )
    found = []
    for part in text.split("\0")[1:]:
        hashes, _, rest = part.partition("\n")
        people, _, said = rest.partition("\n")
        commit, *parents = hashes.split()
        before = parents[0] if parents else repository.git("hash-object", "-t", "tree", "--stdin")
        found.append(CommitInfo(commit, before, said.strip(), people))
    return found


def _line_between(repository: Repository, base: str, head: str) -> list[CommitInfo] | None:
    """Return the commits where each has one parent and says nothing odd; else None, and git is asked."""
    found: list[CommitInfo] = []
    name = head
    while name != base:
        commit = read_commit(repository.common, name)
        if commit is None or len(found) >= NEAR or not commit.is_plain or len(commit.parents) != 1:
            return None
        author, committer = (
            _PERSON.fullmatch(commit.header("author")),
            _PERSON.fullmatch(commit.header("committer")),
        )
        if not author or not committer:
            return None
        people = f"{author['name']} <{author['mail']}>, {committer['name']} <{committer['mail']}>"
        found.append(CommitInfo(commit.name, commit.parents[0], commit.message.strip(), people))
        name = commit.parents[0]
    return found


_PERSON: Final = re.compile(r"(?P<name>[^<>\s](?:[^<>]*[^<>\s])?) <(?P<mail>[^<>\s]*)> \d+ [+-]\d{4}")


def commit_message(repository: Repository, commit: str) -> str:
    """Return the message of *commit*."""
    found = read_commit(repository.common, commit)
    if found is None or not found.is_plain:
        return repository.git("show", "--no-patch", "--format=%B", commit)
    return found.message


def objects_between(repository: Repository, base: str, head: str) -> list[str]:
    """Return the hashes of what *head* adds to *base*: commits, trees and blobs."""
    commits = _line_between(repository, base, head)
    if commits is None:
        return repository.git("rev-list", "--objects", "--no-object-names", f"{base}..{head}").split()
    trees = [repository.tree_of(commit.commit) for commit in commits]
    before = [repository.tree_of(commit.before) for commit in commits]
    new = {one for pair in zip(before, trees, strict=True) for one in _new_objects(repository, *pair)}
    return [*(commit.commit for commit in commits), *sorted(new)]


def _new_objects(repository: Repository, before: str, after: str) -> Iterator[str]:
    """Yield the trees and blobs of the tree *after* that are not at the same place in *before*."""
    waiting: list[tuple[str | None, str]] = [(before, after)]
    while waiting:
        old, new = waiting.pop()
        if old == new:
            continue
        yield new
        known = read_trees(repository.common, filter(None, (old, new)))
        there = {entry.name: entry for entry in (known[old] if old else ())}
        for entry in known[new]:
            was = there.get(entry.name)
            if entry.mode == TREE_MODE:
                waiting.append((was.object if was and was.mode == TREE_MODE else None, entry.object))
            elif (was is None or was.object != entry.object) and entry.mode != REPOSITORY_MODE:
                yield entry.object


def write_tree_with(repository: Repository, tree: str, items: Mapping[str, TreeItem | None]) -> str:
    """Write and return *tree* with *items* replaced; None removes a path."""
    if any(path.count("/") > DEEPEST for path in items):
        return _write_by_index(repository, tree, items)
    try:
        return _write_folder(repository, repository.tree_of(tree), items) or _empty_tree(repository)
    except (GitFailed, _InTheWay):
        return _write_by_index(repository, tree, items)


class _InTheWay(Exception):
    """A file and a directory have the same name; an index sorts that out."""


def _write_folder(
    repository: Repository, tree: str | None, items: Mapping[str, TreeItem | None]
) -> str | None:
    """Write the tree of one folder; *items* are named from there. Return None where nothing is left in it."""
    known = read_trees(repository.common, [tree])[tree] if tree else ()
    entries = {entry.name: entry for entry in known}
    inner: dict[str, dict[str, TreeItem | None]] = {}
    for path, item in items.items():
        name, is_inside, rest = path.partition("/")
        if is_inside:
            inner.setdefault(name, {})[rest] = item
        else:
            _put(entries, name, item)
    for name, below in inner.items():
        old = entries.get(name)
        if old is not None and old.mode != TREE_MODE:
            raise _InTheWay
        written = _write_folder(repository, old.object if old else None, below)
        _put(entries, name, TreeItem(TREE_MODE, written) if written else None)
    return write_tree(repository.common, entries.values()) if entries else None


def _put(entries: dict[str, TreeEntry], name: str, item: TreeItem | None) -> None:
    entries.pop(name, None)
    if item is not None:
        entries[name] = TreeEntry(item.mode, name, item.blob)


def _empty_tree(repository: Repository) -> str:
    return repository.git("mktree", stdin=b"")


def _write_by_index(repository: Repository, tree: str, items: Mapping[str, TreeItem | None]) -> str:
    gone = [f"0 {'0' * len(tree)}\t{path}\0" for path, item in items.items() if item is None]
    put = [f"{item.mode} {item.blob}\t{path}\0" for path, item in items.items() if item is not None]
    with TemporaryDirectory(prefix="liza-index-") as place:
        index = {"GIT_INDEX_FILE": str(Path(place) / "index")}
        repository.git("read-tree", tree, environment=index)
        # What goes, goes first: a file may come where a directory was.
        lines = encode_git("".join([*gone, *put]))
        repository.git("update-index", "-z", "--index-info", stdin=lines, environment=index)
        return repository.git("write-tree", environment=index)
