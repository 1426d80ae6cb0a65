"""A fingerprint of what agents must not touch, and the differences between two, each as a sentence.

A person works in the same repository. What people do there every day (edit, stage, commit, switch, tag,
stash, track a branch) may have been either; what only an agent has a reason for is not.

Covered: HEAD, every ref, the index with its flags, the tracked and untracked files of the user's checkout,
and the files that tell git what to do (configuration, hooks, attributes, excludes, alternates, grafts). Not
covered: ignored files, the inside of submodules beyond their HEAD, and hooks outside of the repository.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from fnmatch import fnmatchcase
from hashlib import blake2b
from itertools import chain, repeat
from pathlib import Path
from typing import Any, Final, NamedTuple

from liza.errors import GitFailed
from liza.repo import status
from liza.repo.command import decode_git
from liza.repo.repository import BRANCHES, OWN_PATHS, TASK_PREFIX, Repository, user_config_paths
from liza.system.no_follow import directories, plain_files, read_file

READ_BYTES: Final = 1 << 20  # a larger file is known by its size and times, which cannot all be set back
READ_FILES: Final = 1000  # more files than these are known so too: reading them would take longer than git
# Seconds after which a change of a file shows in its ctime, whatever the clock's ticks.
CTIME_GRANULARITY: Final = 1.0
PATHS_SHOWN: Final = 20  # paths that are named one by one
ALWAYS_ALLOWED: Final = ("refs/liza/*", "refs/remotes/*")  # the latter move by every fetch
ONLY_ADDED: Final = "refs/liza/salvage/"  # what was saved is never moved or deleted, by Liza least of all
_NOT_FOR_PEOPLE: Final = ("refs/replace/", "refs/liza/", f"{BRANCHES}{TASK_PREFIX}/")
# What `git push -u`, `git switch --track` and editors write: it says whence to pull, and runs nothing.
_BRANCH_SECTION: Final = re.compile(
    rb"^[ \t]*\[branch \"[^\"\]\n]*\"\][ \t]*\n(?:[ \t]+[^\[\n]*\n?)*", re.MULTILINE
)
_LARGEST_REF: Final = 1024  # bytes of the file of a ref
_OF_BRANCHES: Final = " (its branches)"


class Part(StrEnum):
    """What can move."""

    CONFIGURATION = "configuration"
    HEAD = "HEAD"
    REFS = "refs"
    INDEX = "index"
    FILES = "files"


class DriftItem(NamedTuple):
    """One thing that is not as it was."""

    part: Part
    sentence: str
    may_be_yours: bool = False  # people do so every day
    ref: str = ""  # or the path of a file

    def __str__(self) -> str:
        return self.sentence


@dataclass(frozen=True)
class Fingerprint:
    """The repository at one moment; *looked* is false where the configuration had moved and no git ran."""

    configuration: Mapping[str, str]
    head: str
    refs: Mapping[str, str]
    index: str
    files: Mapping[str, str]
    looked: bool = True
    # Of the file of the index, where that is old enough to tell.
    stamp: str = field(default="", compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def take_fingerprint(repository: Repository, *, since: Fingerprint | None = None) -> Fingerprint:
    """Look at everything now; where the configuration is not as in *since*, at nothing that runs git."""
    configuration = dict(_configuration(repository))
    head = _head(repository)
    if since and _program_config(since.configuration) != _program_config(configuration):
        return Fingerprint(configuration, head, {}, "", {}, looked=False)
    stamp = _index_stamp(repository)
    known = since.index if since and stamp and stamp == since.stamp else None
    with ThreadPoolExecutor(2) as threads:
        files = threads.submit(_files, repository)
        index = threads.submit(lambda: known or _index_digest(repository))
        refs = _refs(repository)
        return Fingerprint(configuration, head, refs, index.result(), files.result(), stamp=stamp)


def _program_config(configuration: Mapping[str, str]) -> dict[str, str]:
    """Return the part of *configuration* that can name programs."""
    return {name: value for name, value in configuration.items() if not name.endswith(_OF_BRANCHES)}


def drift(before: Fingerprint, after: Fingerprint, allowed: Iterable[str] = ()) -> list[DriftItem]:
    """Return what moved from *before* to *after*; refs that match one of *allowed* may."""
    moved = [
        DriftItem(Part.CONFIGURATION, f"{name} was {how}", may_be_yours=name.endswith(_OF_BRANCHES))
        for name, how in _differences(before.configuration, after.configuration)
    ]
    if not after.looked:
        return moved
    patterns = (*ALWAYS_ALLOWED, *allowed)
    if before.head != after.head:
        sentence = f"your checkout went from {before.head} to {after.head}"
        moved.append(DriftItem(Part.HEAD, sentence, may_be_yours=True))
    moved += _ref_drift(before.refs, after.refs, patterns)
    if before.index != after.index:
        moved.append(DriftItem(Part.INDEX, "the index of your checkout was changed", may_be_yours=True))
    return moved + list(_file_drift(before.files, after.files))


def _ref_drift(
    before: Mapping[str, str], after: Mapping[str, str], allowed: Iterable[str]
) -> Iterator[DriftItem]:
    for ref, how in _differences(before, after):
        is_lost = ref.startswith(ONLY_ADDED) and ref in before
        if is_lost or not any(fnmatchcase(ref, pattern) for pattern in allowed):
            name = f"the branch {ref.removeprefix(BRANCHES)}" if ref.startswith(BRANCHES) else ref
            was, now = before.get(ref, "nothing")[:12], after.get(ref, "nothing")[:12]
            is_plain = not ref.startswith(_NOT_FOR_PEOPLE)
            yield DriftItem(Part.REFS, f"{name} was {how}: {was}, now {now}", may_be_yours=is_plain, ref=ref)


def _file_drift(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[DriftItem]:
    paths = sorted(path for path, _ in _differences(before, after))
    for path in paths[:PATHS_SHOWN]:
        yield DriftItem(Part.FILES, f"{path} in your checkout was changed", may_be_yours=True, ref=path)
    if paths[PATHS_SHOWN:]:
        sentence = f"{len(paths) - PATHS_SHOWN} more files in your checkout were changed"
        yield DriftItem(Part.FILES, sentence, may_be_yours=True)


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            yield name, "removed"
        elif name not in before:
            yield name, "added"
        elif before[name] != after[name]:
            yield name, "changed"


def _configuration(repository: Repository) -> Iterator[tuple[str, str]]:
    """Yield the files that tell git what to do, by name, as far as they exist; no git is run for it."""
    common, home = repository.common, repository.home
    hooks = sorted((common / "hooks").glob("*"))
    shared = (
        "config",
        "info/attributes",
        "info/exclude",
        "info/grafts",
        "objects/info/alternates",
        "shallow",
    )
    own = ("config.worktree", "info/sparse-checkout")
    paths = [
        *(common / name for name in shared),
        *(home / name for name in own),
        *hooks,
        *user_config_paths(),
    ]
    for path in paths:
        if path == common / "config" and path.is_file():
            text = path.read_bytes()
            branches = b"".join(_BRANCH_SECTION.findall(text))
            yield str(path), f"{path.lstat().st_mode:o} {_hash(_BRANCH_SECTION.sub(b'', text))}"
            yield f"{path}{_OF_BRANCHES}", _hash(branches)
        elif os.path.lexists(path):
            yield str(path), f"{path.lstat().st_mode:o} {_digest(path)}"


def _head(repository: Repository) -> str:
    return (repository.home / "HEAD").read_text().strip().removeprefix(f"ref: {BRANCHES}")


def _refs(repository: Repository) -> dict[str, str]:
    """Return every ref with its hash; one that points at another ref is known by that, which may move."""
    if (found := _refs_in_files(repository)) is not None:
        return found
    shape = "%(refname) %(if)%(symref)%(then)%(symref)%(else)%(objectname)%(end)"
    lines = repository.git("for-each-ref", f"--format={shape}").splitlines()
    return {name: value for name, _, value in (line.partition(" ") for line in lines)}


def _refs_in_files(repository: Repository) -> dict[str, str] | None:
    """Return the refs as git's files have them; None where these are other than git makes them."""
    if repository.has_reftable:
        return None
    try:
        # Single files first: what is packed meanwhile is seen there or here.
        found = {name: _ref_value(repository.common, name) for name in _ref_names(repository.common)}
        return _packed_refs(repository.common) | found
    except OSError:  # a link or a pipe among them, or one that went while we looked
        return None


def _packed_refs(common: Path) -> dict[str, str]:
    try:
        text = decode_git(read_file(common, "packed-refs"))
    except FileNotFoundError:
        return {}
    lines = (line.split(" ", 1) for line in text.splitlines() if line[:1] not in "#^")
    return {name: value for value, name in lines}


def _ref_names(common: Path) -> Iterator[str]:
    waiting = ["refs"]
    while waiting:
        inside = waiting.pop()
        waiting += [f"{inside}/{name}" for name in directories(common, inside)]
        yield from (f"{inside}/{name}" for name in plain_files(common, inside) if not name.endswith(".lock"))


def _ref_value(common: Path, name: str) -> str:
    return decode_git(read_file(common, name, _LARGEST_REF)).strip().removeprefix("ref: ")


def _index_stamp(repository: Repository) -> str:
    """Return an identity of the index file; empty where it was written too recently to rely on its ctime."""
    try:
        facts = (repository.home / "index").stat()
    except OSError:
        return ""
    if time.time() - facts.st_ctime < CTIME_GRANULARITY:
        return ""
    return f"{facts.st_ino} {facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}"


def _index_digest(repository: Repository) -> str:
    # With the flags by which a changed file can be hidden from `git status`.
    answer = repository.ask_checkout("ls-files", "-v", "--stage", "-z")
    if answer.code != 0:
        raise GitFailed("ls-files", answer.said)
    return blake2b(answer.output, digest_size=16).hexdigest()


def _files(repository: Repository) -> dict[str, str]:
    answer = repository.ask_checkout(*status.STATUS_COMMAND)
    if answer.code != 0:
        raise GitFailed("status", answer.said)
    found = sorted(change for change in status.parse_status(answer.output) if not _is_liza_path(change.path))
    looks = chain(repeat(_digest, READ_FILES), repeat(_stat_digest))
    return {
        change.path: f"{change.line} {look(repository.root / change.path)}"
        for change, look in zip(found, looks, strict=False)
    }


def _is_liza_path(path: str) -> bool:
    return path.partition("/")[0] in OWN_PATHS


def _digest(path: Path) -> str:
    if path.is_symlink():
        return str(path.readlink())
    if not path.is_file() or path.stat().st_size > READ_BYTES:
        return _stat_digest(path)
    return _hash(path.read_bytes())


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()


def _stat_digest(path: Path) -> str:
    if not os.path.lexists(path):
        return "absent"
    facts = path.lstat()
    # A directory here is a repository of its own: what happens inside is not the user's checkout.
    return "directory" if path.is_dir() else f"{facts.st_size} {facts.st_mtime_ns} {facts.st_ctime_ns}"
