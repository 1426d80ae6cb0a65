"""Rechecking merged history with git alone: no board, no journal, no word of an agent's."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from liza.errors import NotThere
from liza.repo import trailers
from liza.repo.merging import Conflict, merge
from liza.repo.repository import Repository
from liza.repo.trailers import Trailer

REQUIRED: Final = (Trailer.TASK, Trailer.REVIEWED_COMMIT, Trailer.VERDICT, Trailer.APPROVED_BY)
_PARENTS_OF_A_MERGE: Final = 2


class Problem(StrEnum):
    """What can be wrong with a commit on the integration branch."""

    NOT_A_MERGE = "not a merge"
    TRAILER_MISSING = "trailer missing"
    OTHER_COMMIT = "other commit"
    OTHER_TREE = "other tree"
    MERGED_TWICE = "merged twice"
    REWRITTEN = "rewritten"


class Finding(NamedTuple):
    """One thing that is not as it must be."""

    commit: str
    problem: Problem
    sentence: str

    def __str__(self) -> str:
        return f"{self.commit[:12]}: {self.sentence}"


class Link(NamedTuple):
    """One commit on the first-parent line."""

    commit: str
    tree: str
    parents: tuple[str, ...]
    trailers: dict[str, str]


class Checked(NamedTuple):
    """What came of checking a part of history."""

    merges: int
    findings: list[Finding]


def checked(repository: Repository, span: str) -> Checked:
    """Check *span* as git writes one: `SINCE..UNTIL`, or a name alone from its first merge on."""
    since, _, until = span.rpartition("..")
    named = {name: repository.commit_at(name) for name in (since, until) if name}
    if missing := [name for name, commit in named.items() if commit is None]:
        hint = "name commits or branches of this repository; `liza run` makes the integration branch"
        raise NotThere("commit", missing[0], hint)
    start = named.get(since)
    merges = [link for link in links(repository, until, start) if len(link.parents) == _PARENTS_OF_A_MERGE]
    return Checked(len(merges), verify(repository, until, since=start))


def verify(repository: Repository, ref: str, *, since: str | None = None) -> list[Finding]:
    """Return all that is wrong with what was merged into *ref* after the commit *since*."""
    if since is not None and not repository.contains(ref, since):
        sentence = f"{ref} does not contain it any more: its history was rewritten"
        return [Finding(since, Problem.REWRITTEN, sentence)]
    chain = list(links(repository, ref, since))
    return [*_repeated(chain), *(finding for link in chain for finding in _wrong(repository, link))]


def links(repository: Repository, ref: str, since: str | None) -> Iterator[Link]:
    """Yield the first-parent line of *ref* after *since*, oldest first; else from the first merge on."""
    span = f"{since}..{ref}" if since else ref
    fields = "%H%x00%T%x00%P%x00%B%x00"
    words = ("log", "-z", "--first-parent", "--reverse", f"--format=tformat:{fields}", span)
    output = repository.git(*words).split("\0")
    rows = zip(*(output[start::5] for start in range(4)), strict=False)
    found = [
        Link(commit, tree, tuple(parents.split()), trailers.read(said))
        for commit, tree, parents, said in rows
    ]
    begun = since is not None
    for link in found:
        begun = begun or Trailer.TASK in link.trailers
        if begun:
            yield link


def _repeated(chain: Iterable[Link]) -> Iterator[Finding]:
    seen: dict[str, str] = {}
    for link in chain:
        task = link.trailers.get(Trailer.TASK)
        if task in seen:
            sentence = f"{task} was merged before, as {seen[task][:12]}"
            yield Finding(link.commit, Problem.MERGED_TWICE, sentence)
        elif task:
            seen[task] = link.commit


def _wrong(repository: Repository, link: Link) -> Iterator[Finding]:
    if len(link.parents) != _PARENTS_OF_A_MERGE:
        yield Finding(link.commit, Problem.NOT_A_MERGE, "it is no merge, so nobody reviewed it")
        return
    for key in REQUIRED:
        if key not in link.trailers:
            yield Finding(link.commit, Problem.TRAILER_MISSING, f"it does not say its {key}")
    onto, commit = link.parents
    reviewed = link.trailers.get(Trailer.REVIEWED_COMMIT, commit)
    if reviewed != commit:
        sentence = f"{reviewed[:12]} was reviewed, but {commit[:12]} was merged"
        yield Finding(link.commit, Problem.OTHER_COMMIT, sentence)
    yield from _other_tree(repository, link, onto, commit)


def _other_tree(repository: Repository, link: Link, onto: str, commit: str) -> Iterator[Finding]:
    merged = merge(repository, onto, commit)
    conflicting = set(merged.paths) if isinstance(merged, Conflict) else set()
    resolved = _resolved(link) & conflicting
    differing = _differing(repository, merged.tree, link.tree)
    for path in sorted((differing | conflicting) - resolved):
        sentence = f"{path} is not what merging {commit[:12]} into {onto[:12]} gives"
        yield Finding(link.commit, Problem.OTHER_TREE, sentence)


def _differing(repository: Repository, one: str, other: str) -> set[str]:
    if one == other:
        return set()
    output = repository.git("diff-tree", "-r", "-z", "--no-renames", "--name-only", one, other)
    return {path for path in output.split("\0") if path}


def _resolved(link: Link) -> set[str]:
    try:
        paths = json.loads(link.trailers.get(Trailer.RESOLVED, "[]"))
    except ValueError:
        return set()
    return set(map(str, paths)) if isinstance(paths, list) else set()
