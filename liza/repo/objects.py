"""What is in a tree, read from git's objects: no checkout, one call for many files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from liza.errors import GitFailed
from liza.repo.command import decoded, encoded
from liza.repo.repository import Repository


class Item(NamedTuple):
    """A path of a tree."""

    mode: str
    blob: str


def listing(repository: Repository, tree: str) -> dict[str, Item]:
    """Return every path of *tree*."""
    found = {}
    for line in repository.git("ls-tree", "-r", "-z", "--full-tree", tree).split("\0"):
        if line:
            facts, _, path = line.partition("\t")
            mode, _, blob = facts.split(" ")
            found[path] = Item(mode, blob)
    return found


def sizes(repository: Repository, blobs: Iterable[str]) -> dict[str, int]:
    """Return the bytes of each of *blobs* that is there."""
    asked = "".join(f"{blob}\n" for blob in set(blobs))
    if not asked:
        return {}
    format_ = "--batch-check=%(objectname) %(objecttype) %(objectsize)"
    lines = (
        line.split(" ") for line in repository.git("cat-file", format_, stdin=encoded(asked)).split("\n")
    )
    return {facts[0]: int(facts[2]) for facts in lines if len(facts) > 2}  # noqa: PLR2004 - else it is missing


def contents(repository: Repository, blobs: Iterable[str]) -> dict[str, bytes]:
    """Return what is in each of *blobs* that is there."""
    asked = encoded("".join(f"{blob}\n" for blob in set(blobs)))
    if not asked:
        return {}
    answer = repository.ask("cat-file", "--batch", stdin=asked)
    if answer.code != 0:
        raise GitFailed("cat-file", answer.said)
    found, output, at = {}, answer.output, 0
    while at < len(output):
        end = output.index(b"\n", at)
        facts = decoded(output[at:end]).split(" ")
        at = end + 1
        if len(facts) == 3:  # noqa: PLR2004 - name, type, size; a missing one has two words
            found[facts[0]] = output[at : at + int(facts[2])]
            at += int(facts[2]) + 1
    return found


class Change(NamedTuple):
    """A commit on the way: what it changed, and what it says."""

    commit: str
    before: str
    message: str
    people: str = ""  # who made it, as it says


def changes(repository: Repository, base: str, head: str) -> list[Change]:
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
        found.append(Change(commit, before, said.strip(), people))
    return found


def grafted(repository: Repository, tree: str, items: Mapping[str, Item | None]) -> str:
    """Return the tree that is *tree* but for *items*; None takes a path away."""
    gone = [f"0 {'0' * len(tree)}\t{path}\0" for path, item in items.items() if item is None]
    put = [f"{item.mode} {item.blob}\t{path}\0" for path, item in items.items() if item is not None]
    with TemporaryDirectory(prefix="liza-index-") as place:
        index = {"GIT_INDEX_FILE": str(Path(place) / "index")}
        repository.git("read-tree", tree, environment=index)
        # What goes, goes first: a file may come where a directory was.
        lines = encoded("".join([*gone, *put]))
        repository.git("update-index", "-z", "--index-info", stdin=lines, environment=index)
        return repository.git("write-tree", environment=index)
