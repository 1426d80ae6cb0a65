"""Merging without a checkout: a tree is made, judged, sealed in a commit, and only then does the ref move.

Every step is a value that can be recorded before the next one: a tree that nobody refers to does no harm,
a commit that the ref has not reached is an intent, and a ref that moved is proven by looking again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.errors import GitFailed
from liza.repo.conflicts import Versions, resolve_file
from liza.repo.object_reader import read_objects
from liza.repo.objects import TreeItem, write_tree_with
from liza.repo.repository import BRANCHES, Repository
from liza.repo.signing import with_signature
from liza.repo.trailers import Trailer, message_with_trailers, single_line
from liza.repo.tree_merge import merge_disjoint

_CLEAN, _CONFLICTS = 0, 1
_BASE, _OURS, _THEIRS = 1, 2, 3
_FILES: Final = {"100644", "100755"}
# Where both sides changed lines of a file, or both added it; all others are about what a path is.
_ABOUT_LINES: Final = {"CONFLICT (contents)", "CONFLICT (add/add)"}
_LARGEST_TEXT: Final = 1 << 20  # bytes; a conflict in a larger file is not looked at line by line


class Merged(NamedTuple):
    """The tree that both sides make together; *resolved* are the paths that took more than git alone."""

    tree: str
    resolved: tuple[str, ...] = ()


class ConflictStage(NamedTuple):
    """One version of a path in conflict."""

    mode: str
    blob: str
    side: int
    path: str


class Conflict(NamedTuple):
    """What git could not merge: the paths, the kinds as git names them, and the tree with its marks."""

    paths: tuple[str, ...]
    kinds: tuple[str, ...]
    tree: str
    stages: tuple[ConflictStage, ...]

    def __str__(self) -> str:
        return f"{', '.join(self.kinds)} in {', '.join(self.paths)}"


class MergeDescription(NamedTuple):
    """The subject and trailers of a merge commit, and the key that signs it."""

    subject: str
    trailers: Mapping[Trailer, str]
    key: bytes | None = None


class Landed(NamedTuple):
    commit: str


class Overtaken(NamedTuple):
    """The ref was elsewhere, or gone: merge again onto *head*."""

    head: str | None


def merge(repository: Repository, onto: str, commit: str) -> Merged | Conflict:
    """Merge *commit* into *onto* as trees, and return what came of it."""
    if repository.contains(commit, onto):
        return Merged(repository.tree_of(commit))  # nothing else happened there, so that is all there is
    with suppress(GitFailed):  # git itself tells more, or gets further
        if tree := merge_disjoint(repository, onto, commit):
            return Merged(tree)
    words = ("merge-tree", "--write-tree", "-z", onto, commit)
    with TemporaryDirectory(prefix="liza-") as directory:
        # Attributes are read from a checkout, and there is none: one with the attributes alone will do.
        (attributes,) = read_objects(repository.common, [f"{onto}:.gitattributes"])
        if attributes and attributes.type == "blob":
            (Path(directory) / ".gitattributes").write_bytes(attributes.content)
        pins = {"GIT_WORK_TREE": directory}
        answer = repository.ask(*words, environment=pins, cwd=Path(directory))
    if answer.code not in (_CLEAN, _CONFLICTS):
        raise GitFailed("merge-tree", answer.said)
    if answer.code == _CLEAN:
        return Merged(answer.text.split("\0")[0])
    return _parse_conflict(answer.text)


def _parse_conflict(output: str) -> Conflict:
    fields = iter(output.split("\0"))
    tree = next(fields)
    stages = tuple(_stages(fields))
    messages = [kind for kind in _kinds(fields) if kind.startswith("CONFLICT")]
    paths = dict.fromkeys(stage.path for stage in stages)
    return Conflict(tuple(paths), tuple(dict.fromkeys(messages)), tree, stages)


def _stages(fields: Iterator[str]) -> Iterator[ConflictStage]:
    for field in fields:
        if not field:
            return
        facts, path = field.split("\t", 1)
        mode, blob, side = facts.split(" ")
        yield ConflictStage(mode, blob, int(side), path)


def _kinds(fields: Iterator[str]) -> Iterator[str]:
    """Read the messages: how many paths, the paths, the kind, the sentence."""
    for field in fields:
        if not field.isdecimal():
            return
        for _ in range(int(field)):
            next(fields)
        yield next(fields)
        next(fields)


def resolve_conflict(repository: Repository, conflict: Conflict) -> Merged | None:
    """Return the tree with every conflict resolved, or None where one of them takes thought."""
    if not set(conflict.kinds) <= _ABOUT_LINES:
        return None
    solved: list[ConflictStage] = []
    for path in conflict.paths:
        stage = _resolve_path(repository, [stage for stage in conflict.stages if stage.path == path])
        if stage is None:
            return None
        solved.append(stage)
    items = {stage.path: TreeItem(stage.mode, stage.blob) for stage in solved}
    return Merged(write_tree_with(repository, conflict.tree, items), conflict.paths)


def _resolve_path(repository: Repository, stages: list[ConflictStage]) -> ConflictStage | None:
    ours = next((stage for stage in stages if stage.side == _OURS), None)
    modes = {stage.mode for stage in stages}
    if ours is None or len(modes) != 1 or not modes <= _FILES:
        return None
    texts = {stage.side: _blob_text(repository, stage.blob) for stage in stages}
    mine, other = texts[_OURS], texts.get(_THEIRS)
    if mine is None or other is None or (_BASE in texts and texts[_BASE] is None):
        return None
    text = resolve_file(Versions(ours.path, texts.get(_BASE), mine, other))
    if text is None:
        return None
    blob = repository.git("hash-object", "-w", "--stdin", stdin=text.encode())
    return ours._replace(blob=blob)


def _blob_text(repository: Repository, blob: str) -> str | None:
    """Return the blob as text; None where it is none, or too long to look at."""
    (found,) = read_objects(repository.common, [blob])
    content = found.content if found else b""
    if len(content) > _LARGEST_TEXT or b"\0" in content:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None


def commit_merge(
    repository: Repository,
    merged: Merged,
    account: MergeDescription,
    *,
    onto: str,
    commit: str,
    at: datetime,
) -> str:
    """Make the merge commit, which nothing refers to yet, and return its hash."""
    facts = {**account.trailers, Trailer.REVIEWED_COMMIT: commit}
    if merged.resolved:
        facts[Trailer.RESOLVED] = json.dumps(merged.resolved)
    message, parents = message_with_trailers(account.subject, "", facts), (onto, commit)
    if account.key is not None:
        message = with_signature(account.key, tree=merged.tree, parents=parents, message=message)
    return repository.commit_tree(merged.tree, parents=parents, message=message, at=at)


def land_merge(repository: Repository, ref: str, sealed: str, *, onto: str, task: str) -> Landed | Overtaken:
    """Move *ref* from *onto* to *sealed*, or return where it is instead; safe to repeat."""
    repository.require_free(ref)
    if repository.move_ref(ref, to=sealed, expected=onto, why=f"merge {single_line(task)}"):
        return Landed(sealed)
    return Overtaken(repository.commit_at(ref))


def merge_doubts(repository: Repository, ref: str, sealed: str, *, commit: str, tree: str) -> list[str]:
    """Return why *commit* is not merged into *ref* with the judged *tree*; empty where it is."""
    name = ref.removeprefix(BRANCHES)
    if repository.commit_at(sealed) is None:
        return [f"the merge commit {sealed[:12]} does not exist"]
    facts = {
        f"{name} does not contain the merge {sealed[:12]}": repository.contains(ref, sealed),
        f"{name} does not contain the work {commit[:12]}": repository.contains(ref, commit),
        f"the merge {sealed[:12]} is not the tree that was judged": repository.tree_of(sealed) == tree,
    }
    return [sentence for sentence, holds in facts.items() if not holds]
