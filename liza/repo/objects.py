"""What is in a tree, read from git's objects: no checkout, one call for many files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from liza.errors import GitFailed
from liza.repo.command import decode_git, encode_git
from liza.repo.repository import Repository


class TreeItem(NamedTuple):
    """A path of a tree."""

    mode: str
    blob: str


def list_tree(repository: Repository, tree: str) -> dict[str, TreeItem]:
    """Return every path of *tree*."""
    found = {}
    for line in repository.git("ls-tree", "-r", "-z", "--full-tree", tree).split("\0"):
        if line:
            facts, _, path = line.partition("\t")
            mode, _, blob = facts.split(" ")
            found[path] = TreeItem(mode, blob)
    return found


def blob_sizes(repository: Repository, blobs: Iterable[str]) -> dict[str, int]:
    """Return the bytes of each of *blobs* that is there."""
    asked = "".join(f"{blob}\n" for blob in set(blobs))
    if not asked:
        return {}
    format_ = "--batch-check=%(objectname) %(objecttype) %(objectsize)"
    lines = (
        line.split(" ") for line in repository.git("cat-file", format_, stdin=encode_git(asked)).split("\n")
    )
    return {facts[0]: int(facts[2]) for facts in lines if len(facts) > 2}  # noqa: PLR2004 - else it is missing


def blob_contents(repository: Repository, blobs: Iterable[str]) -> dict[str, bytes]:
    """Return what is in each of *blobs* that is there."""
    asked = encode_git("".join(f"{blob}\n" for blob in set(blobs)))
    if not asked:
        return {}
    answer = repository.ask("cat-file", "--batch", stdin=asked)
    if answer.code != 0:
        raise GitFailed("cat-file", answer.said)
    found, output, at = {}, answer.output, 0
    while at < len(output):
        end = output.index(b"\n", at)
        facts = decode_git(output[at:end]).split(" ")
        at = end + 1
        if len(facts) == 3:  # noqa: PLR2004 - name, type, size; a missing one has two words
            found[facts[0]] = output[at : at + int(facts[2])]
            at += int(facts[2]) + 1
    return found


class CommitInfo(NamedTuple):
    """A commit between base and head: its parent, message and authors."""

    commit: str
    before: str
    message: str
    people: str = ""  # who made it, as it says


def commits_between(repository: Repository, base: str, head: str) -> list[CommitInfo]:
    """Return the commits from *base* to *head*, each with what it was made from; a first one from nothing."""
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


def write_tree_with(repository: Repository, tree: str, items: Mapping[str, TreeItem | None]) -> str:
    """Write and return *tree* with *items* replaced; None removes a path."""
    gone = [f"0 {'0' * len(tree)}\t{path}\0" for path, item in items.items() if item is None]
    put = [f"{item.mode} {item.blob}\t{path}\0" for path, item in items.items() if item is not None]
    with TemporaryDirectory(prefix="liza-index-") as place:
        index = {"GIT_INDEX_FILE": str(Path(place) / "index")}
        repository.git("read-tree", tree, environment=index)
        # What goes, goes first: a file may come where a directory was.
        lines = encode_git("".join([*gone, *put]))
        repository.git("update-index", "-z", "--index-info", stdin=lines, environment=index)
        return repository.git("write-tree", environment=index)
