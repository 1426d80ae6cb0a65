"""Merging without a checkout: a tree is made, judged, sealed in a signed commit, then the ref moves.

Every step is a value that can be recorded before the next one: a tree that nobody refers to does no harm,
a commit that the ref has not reached is an intent, and a ref that moved is proven by looking again.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.errors import DiskTrouble, GitFailed, LizaError
from liza.repo.command import (
    TREE_MODE,
    TreeEntry,
    is_near_ancestor,
    parents_of,
    read_objects,
    read_trees,
    write_tree,
)
from liza.repo.conflicts import Versions, resolve_file
from liza.repo.repository import BRANCHES, Repository, TreeItem, branch_of, write_tree_with

# What a merge commit says about itself, in lines that git and people both read.

LONGEST_VALUE: Final = 500  # characters; a trailer is a fact, not a report
LONGEST_SUBJECT: Final = 72  # characters; where git log and forges cut it

_LINE: Final = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9-]*): (?P<value>.*)")
_INVISIBLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]+")


class Trailer(StrEnum):
    """The facts that `liza verify` rechecks, and those that people look for."""

    TASK = "Liza-Task"
    REVIEWED_COMMIT = "Liza-Reviewed-Commit"
    VERDICT = "Liza-Verdict"
    APPROVED_BY = "Liza-Approved-By"
    GATES = "Liza-Gates"
    AGENT = "Liza-Agent"
    TAINTS = "Liza-Taints"
    RESOLVED = "Liza-Resolved"
    SQUASHED = "Liza-Squashed"
    SIGNATURE = "Liza-Signature"


def single_line(text: str) -> str:
    """Return *text* as a single printable line, so that no value can pretend to be another trailer."""
    return _INVISIBLE.sub(" ", text).strip()


def message_with_trailers(subject: str, body: str, trailers: Mapping[Trailer, str]) -> str:
    """Return a commit message; *subject* and *body* cannot add a trailer, whatever they say."""
    lines = "\n".join(f"{key}: {_value(key, value)}" for key, value in trailers.items())
    paragraphs = [shorten_subject(single_line(subject)) or "-", body.strip(), lines]
    return "\n\n".join(paragraph for paragraph in paragraphs if paragraph) + "\n"


def _value(key: Trailer, value: str) -> str:
    limit = None if key is Trailer.RESOLVED else LONGEST_VALUE  # a list of paths is worth nothing in part
    return single_line(value)[:limit] or "-"


def shorten_subject(subject: str) -> str:
    return subject if len(subject) <= LONGEST_SUBJECT else f"{subject[: LONGEST_SUBJECT - 1].rstrip()}…"


def parse_trailers(message: str) -> dict[str, str]:
    """Return the trailers of *message*: its last paragraph, if all of it is trailers, and not its first."""
    paragraphs = re.split(r"\n\s*\n", message.strip())
    lines = [_LINE.fullmatch(line) for line in paragraphs[-1].splitlines()]
    if len(paragraphs) == 1 or not all(lines):
        return {}
    return {line["key"]: line["value"] for line in lines if line}


# Signatures of merge commits: anybody can write trailers, so a key of the board vouches for them.
#
# The key is random bytes in `.liza/key`, which no agent in a sandbox can read. What is signed is the tree,
# the parents and the message: a commit with a right signature was made by whoever has the key, just as it
# is.

KEY_FILE: Final = "key"  # below .liza
_BYTES: Final = 32
_SIGNATURE_PREFIX: Final = f"\n{Trailer.SIGNATURE}: "


def ensure_key(home: Path) -> bytes:
    """Return the key of the board in *home*; create it where there is none."""
    path = home / KEY_FILE
    if (known := read_key(path)) is not None:
        return known
    try:
        draft = path.with_name(f"{KEY_FILE}.{secrets.token_hex(4)}")
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(secrets.token_hex(_BYTES).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        # Whole under its name, and only once: whoever else makes one at this moment uses this.
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
        return path.read_bytes().strip()
    except OSError as error:
        raise DiskTrouble(f"write {path}", error) from error


def adopt_key(home: Path, key: bytes) -> None:
    """Let *key* be the one of *home*: it is the one of its board, which several machines share."""
    if read_key(home / KEY_FILE) == key:
        return
    draft = home / f"{KEY_FILE}.{secrets.token_hex(4)}"
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(key + b"\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(home / KEY_FILE)
    except OSError as error:
        raise DiskTrouble(f"write {home / KEY_FILE}", error) from error


def read_key(path: Path) -> bytes | None:
    """Return the key in the file *path*; None where there is none that may be read."""
    try:
        return path.read_bytes().strip() or None
    except OSError:
        return None


def key_label(key: bytes) -> str:
    """Return a short public label of *key*, which does not reveal it."""
    return hashlib.sha256(b"liza key " + key).hexdigest()[:8]


def signature_of(key: bytes, *, tree: str, parents: tuple[str, ...], message: str) -> str:
    """Return the value of the trailer that signs a commit with this *message*, which has none yet."""
    text = "\n".join(["liza merge 1", tree, *parents, message.rstrip("\n")])
    code = hmac.new(key, text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()
    return f"{key_label(key)} {code}"


def with_signature(key: bytes, *, tree: str, parents: tuple[str, ...], message: str) -> str:
    """Return *message* with its signature as the last of its trailers."""
    signed = signature_of(key, tree=tree, parents=parents, message=message)
    return f"{message.rstrip()}{_SIGNATURE_PREFIX}{signed}\n"


def signer_label(message: str) -> str | None:
    """Return the label of the key that *message* says it was signed with; None where it is not signed."""
    _, found, value = message.rstrip().rpartition(_SIGNATURE_PREFIX)
    return value.split(" ")[0] if found else None


def is_signed(key: bytes, *, tree: str, parents: tuple[str, ...], message: str) -> bool:
    """Return whether a commit of just this *tree*, *parents* and *message* was signed with *key*."""
    plain, found, value = message.rstrip().rpartition(_SIGNATURE_PREFIX)
    if not found:
        return False
    expected = signature_of(key, tree=tree, parents=parents, message=plain)
    return hmac.compare_digest(expected.encode(), value.encode("utf-8", "surrogateescape"))


# One commit instead of many, with the same tree: what only commits on the way had is not merged.


class Squashing(NamedTuple):
    """What becomes one commit: all from *base* to *head*, with a message."""

    base: str
    head: str
    message: str


def squash(repository: Repository, what: Squashing, *, at: datetime) -> str:
    """Make the commit, which nothing refers to yet, and return its hash."""
    subject, _, body = what.message.strip().partition("\n")
    message = message_with_trailers(subject, body, {Trailer.SQUASHED: what.head})
    return repository.commit_tree(repository.tree_of(what.head), parents=(what.base,), message=message, at=at)


def move_squashed(repository: Repository, task: str, commit: str, *, instead_of: str) -> None:
    """Let the branch of *task* be *commit*; what was there stays in the branch's own log."""
    if not repository.move_ref(branch_of(task), to=commit, expected=instead_of, why=f"squash {task}"):
        raise LizaError(f"{task}: its branch moved while its gates looked at it; nothing was changed")


# Merges trees that differ in different paths, without a git process.
#
# Where neither side took a path away there is no renaming to be found, and where no path was changed on both
# sides there is nothing to merge within a file: then every path is as the side has it that changed it. All
# else is for git's own merge.

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
