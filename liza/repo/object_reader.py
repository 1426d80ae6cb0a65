"""Refs, commits, trees and blobs by git processes that stay: one that reads, one for trees, one for commits.

They are the same git as everywhere else, with the same environment: refs in any format, either hash, a limit
for each answer. A name is looked up anew each time. What never changes, since its name is its hash, is kept.
"""

from __future__ import annotations

import atexit
import os
import select
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, NamedTuple, TypeVar

from liza.errors import GitFailed
from liza.repo.command import MOST_KILLED, BatchProcess, decode_git, encode_git

MOST_OPEN: Final = 4  # processes that stay; whoever has more repositories than that asks one after the other
_READ: Final = ("cat-file", "--batch-command")
_WRITE_TREE: Final = ("mktree", "-z", "--batch")
_WRITE_COMMIT: Final = ("hash-object", "-t", "commit", "-w", "--no-filters", "--stdin-paths")
MOST_TREES: Final = 1 << 14  # that are kept; a tree has some twenty entries
NEAR: Final = 64  # commits that are looked at one by one; git itself is quicker with more
_FACTS: Final = 3  # words of an answer: name, type, size; one about what is missing has others

Value = TypeVar("Value")


class GitObject(NamedTuple):
    """What git says of an object; *content* only where it was asked for."""

    name: str
    type: str
    size: int
    content: bytes = b""


class TreeEntry(NamedTuple):
    """One entry of one tree object."""

    mode: str
    name: str
    object: str


TREE_MODE: Final = "040000"
REPOSITORY_MODE: Final = "160000"  # of a submodule, whose commit is not here


def find_objects(common: Path, names: Sequence[str]) -> list[GitObject | None]:
    """Return type and size of each of *names*, which are hashes or whatever git takes for one."""
    return _ask(common, "info", names)


def read_objects(common: Path, names: Sequence[str]) -> list[GitObject | None]:
    """Return the objects of *names* with their contents."""
    return _ask(common, "contents", names)


def _ask(common: Path, command: str, names: Sequence[str]) -> list[GitObject | None]:
    found: list[GitObject | None] = []
    for requests in _chunks([_request(command, name) for name in names]):
        found += _with_process(common, _READ, partial(_exchange, command, requests))
    return found


def _request(command: str, name: str) -> bytes:
    if "\n" in name or "\0" in name:
        raise GitFailed("cat-file", f"{name!r} is no name of an object")
    return b"%s %s\n" % (command.encode(), encode_git(name))


def _chunks(requests: Iterable[bytes]) -> Iterator[list[bytes]]:
    """Yield as many of *requests* together as a pipe takes at once."""
    together: list[bytes] = []
    size = 0
    for request in requests:
        if len(request) > select.PIPE_BUF:
            raise GitFailed("cat-file", f"the name of an object has {len(request)} bytes")
        if size + len(request) > select.PIPE_BUF:
            yield together
            together, size = [], 0
        together.append(request)
        size += len(request)
    if together:
        yield together


def _exchange(command: str, requests: list[bytes], process: BatchProcess) -> list[GitObject | None]:
    process.send(b"".join(requests))
    return [_answer(process, command) for _ in requests]


def _answer(process: BatchProcess, command: str) -> GitObject | None:
    words = decode_git(process.line()).split(" ")
    if len(words) != _FACTS or not words[2].isdecimal():
        return None
    size = int(words[2])
    return GitObject(words[0], words[1], size, process.content(size) if command == "contents" else b"")


def _with_process(common: Path, words: tuple[str, ...], act: Callable[[BatchProcess], Value]) -> Value:
    """Return what *act* makes of the process *words* for *common*; one that ended is started again."""
    for _ in range(MOST_KILLED):
        with _OPEN.process_for(common, words) as process:
            try:
                return act(process)
            except BaseException:
                _OPEN.drop(common, words)  # half of an answer may still be to come
                if not process.has_ended:
                    raise
    raise GitFailed(words[0], "it ends again and again before it has answered")


class _OpenProcesses:
    """The processes that stay, by the repository that each reads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: OrderedDict[tuple[Path, tuple[str, ...]], BatchProcess] = OrderedDict()
        self._inherited: list[object] = []

    @contextmanager
    def process_for(self, common: Path, words: tuple[str, ...]) -> Iterator[BatchProcess]:
        key = (common, words)
        with self._lock:
            if key not in self._open:
                while len(self._open) >= MOST_OPEN:
                    self._open.popitem(last=False)[1].close()
                self._open[key] = BatchProcess(*words, cwd=common, environment={"GIT_DIR": str(common)})
            self._open.move_to_end(key)
            yield self._open[key]

    def drop(self, common: Path, words: tuple[str, ...]) -> None:
        if process := self._open.pop((common, words), None):
            process.close()

    def close(self) -> None:
        with self._lock:
            for key in list(self._open):
                self.drop(*key)

    def forget(self) -> None:
        """Leave the processes to the process that we are a copy of; none of their descriptors is closed."""
        self._lock = threading.Lock()
        self._inherited.append(self._open)
        self._open = OrderedDict()


_OPEN: Final = _OpenProcesses()
os.register_at_fork(after_in_child=_OPEN.forget)


@atexit.register
def close_readers() -> None:
    """End the processes that stay; the next question starts another."""
    _OPEN.close()


@lru_cache(1 << 13)
def parents_of(common: Path, commit: str) -> tuple[str, ...] | None:
    """Return the parents of *commit*, by its hash; None where there is no such commit."""
    found = read_commit(common, commit)
    return None if found is None else found.parents


def is_near_ancestor(common: Path, ancestor: str, tip: str) -> bool | None:
    """Return whether *ancestor* is reachable from *tip*; None where that takes more than a few commits."""
    seen, level = {tip}, [tip]
    while level and len(seen) <= NEAR:
        if ancestor in seen:
            return True
        families = [parents_of(common, commit) for commit in level]
        if None in families:  # the end of a shallow clone, or damage: git knows more about either
            return None
        level = [parent for family in families for parent in family or () if parent not in seen]
        seen.update(level)
    return ancestor in seen or (False if not level else None)


class CommitObject(NamedTuple):
    """What a commit says: its headers in order, and its message."""

    name: str
    headers: tuple[tuple[str, str], ...]
    message: str

    @property
    def parents(self) -> tuple[str, ...]:
        return tuple(value for key, value in self.headers if key == "parent")

    @property
    def is_plain(self) -> bool:
        """Return whether git would show its message as it stands: in UTF-8, and to its end."""
        return not self.header("encoding") and "\0" not in self.message

    def header(self, key: str) -> str:
        """Return the first value of *key*; empty where there is none."""
        return next((value for name, value in self.headers if name == key), "")


def read_commit(common: Path, commit: str) -> CommitObject | None:
    """Return the commit of this hash, or None."""
    (found,) = read_objects(common, [commit])
    if found is None or found.type != "commit":
        return None
    head, _, message = decode_git(found.content).partition("\n\n")
    lines = [line for line in head.split("\n") if not line.startswith(" ")]  # else it goes on, as a signature
    pairs = (line.partition(" ") for line in lines)
    return CommitObject(found.name, tuple((key, value) for key, _, value in pairs), message)


def read_trees(common: Path, trees: Iterable[str]) -> dict[str, tuple[TreeEntry, ...]]:
    """Return what is directly in each of *trees*, by their hashes."""
    wanted = list(dict.fromkeys(trees))
    known = {tree: entries for tree in wanted if (entries := _TREES.get((common, tree))) is not None}
    missing = [tree for tree in wanted if tree not in known]
    for tree, found in zip(missing, read_objects(common, missing), strict=True):
        if found is None or found.type != "tree":
            raise GitFailed("cat-file", f"there is no tree {tree}")
        known[tree] = _TREES.put((common, tree), tuple(_entries(found.content, len(tree) // 2)))
    return known


def write_tree(common: Path, entries: Iterable[TreeEntry]) -> str:
    """Write the tree that has just *entries*, whose objects are there, and return its hash."""
    lines = "".join(f"{entry.mode} {_type_of(entry)} {entry.object}\t{entry.name}\0" for entry in entries)

    def act(process: BatchProcess) -> str:
        process.send(encode_git(f"{lines}\0"))
        return decode_git(process.line())

    return _with_process(common, _WRITE_TREE, act)


def write_commit(common: Path, content: bytes) -> str:
    """Write the commit that is just *content*, and return its hash; git refuses what is none."""
    with NamedTemporaryFile(prefix="liza-") as file:
        file.write(content)
        file.flush()

        def act(process: BatchProcess) -> str:
            process.send(f"{file.name}\n".encode())
            return decode_git(process.line())

        return _with_process(common, _WRITE_COMMIT, act)


def _type_of(entry: TreeEntry) -> str:
    return {TREE_MODE: "tree", REPOSITORY_MODE: "commit"}.get(entry.mode, "blob")


def _entries(content: bytes, width: int) -> Iterator[TreeEntry]:
    at = 0
    while at < len(content):
        end = content.index(b"\0", at)
        mode, _, name = content[at:end].partition(b" ")
        at = end + 1 + width
        yield TreeEntry(_canonical(int(mode, 8)), decode_git(name), content[end + 1 : at].hex())


def _canonical(mode: int) -> str:
    """Return *mode* as git lists it, whatever bits a tree of another program has."""
    if stat.S_ISREG(mode):
        return "100755" if mode & stat.S_IXUSR else "100644"
    if stat.S_ISLNK(mode):
        return "120000"
    return TREE_MODE if stat.S_ISDIR(mode) else REPOSITORY_MODE


class _KnownTrees:
    """Trees that were read, the latest of them: they never change."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[Path, str], tuple[TreeEntry, ...]] = OrderedDict()

    def get(self, key: tuple[Path, str]) -> tuple[TreeEntry, ...] | None:
        return self._known.get(key)

    def put(self, key: tuple[Path, str], entries: tuple[TreeEntry, ...]) -> tuple[TreeEntry, ...]:
        self._known[key] = entries
        while len(self._known) > MOST_TREES:
            self._known.popitem(last=False)
        return entries


_TREES: Final = _KnownTrees()


def walk_tree(common: Path, tree: str) -> dict[str, tuple[str, str]]:
    """Return mode and hash of every path below *tree*, in git's order; trees themselves are not listed."""
    folders: dict[str, tuple[TreeEntry, ...]] = {}
    level = [tree]
    while level := [one for one in dict.fromkeys(level) if one not in folders]:
        folders |= read_trees(common, level)
        level = [entry.object for one in level for entry in folders[one] if entry.mode == TREE_MODE]
    found: dict[str, tuple[str, str]] = {}
    waiting = [("", iter(folders[tree]))]
    while waiting:
        inside, entries = waiting[-1]
        entry = next(entries, None)
        if entry is None:
            waiting.pop()
        elif entry.mode == TREE_MODE:
            waiting.append((f"{inside}{entry.name}/", iter(folders[entry.object])))
        else:
            found[inside + entry.name] = (entry.mode, entry.object)
    return found
