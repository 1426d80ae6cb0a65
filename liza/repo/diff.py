"""What differs between two trees: paths, sizes of the change and its lines, with one call of git.

No file of either tree can hide anything: no attribute, filter, external program or textconv is asked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from liza.repo.command import decode_git
from liza.repo.repository import Repository

LINK: Final = "120000"
REPOSITORY: Final = "160000"
EXECUTABLE: Final = "100755"
NO_MODE: Final = "000000"  # the mode of a path that is not there

_DIFF_OPTIONS: Final = ("-r", "-z", "-M", "--raw", "--numstat", "--patch", "--unified=0", "--full-index")
_PATCH_OPTIONS: Final = ("-r", "-z", "-M", "--raw", "--patch", "--unified=3", "--full-index")
_NO_HELPERS: Final = ("--no-color", "--no-ext-diff", "--no-textconv", "--ignore-submodules=none")
_NO_ATTRIBUTES: Final = ("-c", f"core.attributesFile={os.devnull}")
_HUNK: Final = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_TYPE_CHANGED: Final = "T"


class DiffLine(NamedTuple):
    """A line that came or went, with its number in the file that has it."""

    number: int
    text: str


@dataclass(frozen=True)
class DiffEntry:
    """One path that differs; *source* is where it was before, where it was renamed."""

    path: str
    status: str
    old_mode: str
    mode: str
    old_blob: str
    blob: str
    source: str | None = None
    loc: int = 0
    is_binary: bool = False
    added: tuple[DiffLine, ...] = ()
    removed: tuple[DiffLine, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Both ends: whoever moves a file touches where it was, too."""
        return (self.path,) if self.source is None else (self.source, self.path)

    @property
    def is_there(self) -> bool:
        """Whether the head has the path."""
        return self.mode != NO_MODE

    @property
    def is_new(self) -> bool:
        return self.old_mode == NO_MODE or self.source is not None


class _RawEntry(NamedTuple):
    old_mode: str
    mode: str
    old_blob: str
    blob: str
    status: str
    paths: tuple[str, ...]


class _PatchBody(NamedTuple):
    added: tuple[DiffLine, ...]
    removed: tuple[DiffLine, ...]


def diff_trees(repository: Repository, base: str, head: str) -> tuple[DiffEntry, ...]:
    """Return what *head* has otherwise than *base*, path by path."""
    return _diff_trees(repository, repository.tree_of(base), repository.tree_of(head))


@lru_cache(4)
def _diff_trees(repository: Repository, base: str, head: str) -> tuple[DiffEntry, ...]:
    """Compare two trees by their hashes, which gates do several times in a turn."""
    if base == head:
        return ()
    return tuple(_entries(_ask_diff(repository, _DIFF_OPTIONS, base, head)))


def _ask_diff(repository: Repository, options: tuple[str, ...], base: str, head: str) -> bytes:
    # Attributes would be read from the index too, and can call any file a binary.
    blind = {"GIT_INDEX_FILE": str(repository.common / "liza-no-index"), "GIT_ATTR_NOSYSTEM": "1"}
    answer = repository.ask(
        *_NO_ATTRIBUTES, "diff-tree", *options, *_NO_HELPERS, base, head, environment=blind
    )
    if answer.code != 0:
        repository.git("diff-tree", "--name-only", base, head)  # raises git's own sentence
    return answer.output


class PatchLine(NamedTuple):
    """A line of a patch for people to read; *old* and *new* are its numbers in the two files."""

    sign: str  # "+", "-", " ", or "@" for the heading of a hunk
    text: str
    old: int | None = None
    new: int | None = None


class FilePatch(NamedTuple):
    """How one path differs, with lines around each change; no lines where it is not text."""

    path: str
    source: str | None  # where it was before, where it was renamed
    status: str  # git's letter: A, M, D, R, T
    is_binary: bool
    lines: tuple[PatchLine, ...]

    def count(self, sign: str) -> int:
        return sum(line.sign == sign for line in self.lines)


def patch_between(repository: Repository, base: str, head: str) -> tuple[FilePatch, ...]:
    """Return what *head* has otherwise than *base*, as people read it."""
    fields = _Fields(_ask_diff(repository, _PATCH_OPTIONS, base, head))
    raws = _raw_entries(fields)
    sections = _readable_sections(fields.rest().removeprefix(b"\0"))
    found = []
    for raw in raws:
        parts = [next(sections, ([], False)) for _ in range(2 if raw.status == _TYPE_CHANGED else 1)]
        source = raw.paths[0] if len(raw.paths) > 1 else None
        lines = tuple(line for part, _ in parts for line in part)
        found.append(FilePatch(raw.paths[-1], source, raw.status, any(part[1] for part in parts), lines))
    return tuple(found)


def _readable_sections(patch: bytes) -> Iterator[tuple[list[PatchLine], bool]]:
    """Yield the lines of each file in *patch*, and whether it is said to be no text."""
    lines = iter(patch.split(b"\n"))
    found: list[PatchLine] | None = None
    is_binary = False
    for line in lines:
        if line.startswith(b"diff --git "):
            if found is not None:
                yield found, is_binary
            found, is_binary = [], False
        elif found is not None and (hunk := _HUNK.match(line)):
            found += _readable_hunk(lines, hunk, line)
        elif line.startswith(b"Binary files "):
            is_binary = True
    if found is not None:
        yield found, is_binary


def _readable_hunk(lines: Iterator[bytes], hunk: re.Match[bytes], heading: bytes) -> Iterator[PatchLine]:
    """Yield as many lines as the hunk says: what they look like is the author's choice."""
    yield PatchLine("@", _decode(heading))
    old, new = int(hunk[1]), int(hunk[3])
    old_end, new_end = (
        first + (1 if count is None else int(count)) for first, count in ((old, hunk[2]), (new, hunk[4]))
    )
    while old < old_end or new < new_end:
        line = next(lines)
        sign, text = _decode(line[:1]), _decode(line[1:])
        if sign == "\\":  # \ No newline at end of file
            continue
        is_old, is_new = sign != "+", sign != "-"
        yield PatchLine(sign, text, old if is_old else None, new if is_new else None)
        old, new = old + is_old, new + is_new


def _decode(line: bytes) -> str:
    return line.decode("utf-8", "replace")


class _Fields:
    """What git prints with `-z`, field by field; the rest is never copied, however long it is."""

    def __init__(self, output: bytes) -> None:
        self._output = output
        self.at = 0

    def take(self) -> bytes:
        end = self._output.find(b"\0", self.at)
        end = len(self._output) if end < 0 else end
        field, self.at = self._output[self.at : end], end + 1
        return field

    def starts_with(self, sign: bytes) -> bool:
        return self._output.startswith(sign, self.at)

    def rest(self) -> bytes:
        return self._output[self.at :]


def _entries(output: bytes) -> Iterator[DiffEntry]:
    fields = _Fields(output)
    raws = _raw_entries(fields)
    counts = _line_counts(fields, len(raws))
    sections = _patch_bodies(fields.rest().removeprefix(b"\0"))
    for raw, count in zip(raws, counts, strict=True):
        bodies = [next(sections, _PatchBody((), ())) for _ in range(2 if raw.status == _TYPE_CHANGED else 1)]
        yield DiffEntry(
            path=raw.paths[-1],
            status=raw.status,
            old_mode=raw.old_mode,
            mode=raw.mode,
            old_blob=raw.old_blob,
            blob=raw.blob,
            source=raw.paths[0] if len(raw.paths) > 1 else None,
            loc=count or 0,
            is_binary=count is None,
            added=tuple(line for body in bodies for line in body.added),
            removed=tuple(line for body in bodies for line in body.removed),
        )


def _raw_entries(fields: _Fields) -> list[_RawEntry]:
    found = []
    while fields.starts_with(b":"):
        old_mode, mode, old_blob, blob, status = decode_git(fields.take()[1:]).split(" ")
        paths = tuple(decode_git(fields.take()) for _ in range(2 if status[0] in "RC" else 1))
        found.append(_RawEntry(old_mode, mode, old_blob, blob, status[0], paths))
    return found


def _line_counts(fields: _Fields, number: int) -> list[int | None]:
    """Return how many lines came and went for each path, None for what is not text."""
    found: list[int | None] = []
    for _ in range(number):
        added, removed, path = fields.take().split(b"\t", 2)
        for _ in range(0 if path else 2):
            fields.take()
        found.append(None if added == b"-" else int(added) + int(removed))
    return found


def _patch_bodies(patch: bytes) -> Iterator[_PatchBody]:
    lines = iter(patch.split(b"\n"))
    body: tuple[list[DiffLine], list[DiffLine]] | None = None
    for line in lines:
        if line.startswith(b"diff --git "):
            if body is not None:
                yield _PatchBody(tuple(body[0]), tuple(body[1]))
            body = ([], [])
        elif body is not None and (hunk := _HUNK.match(line)):
            _read_hunk(lines, hunk, *body)
    if body is not None:
        yield _PatchBody(tuple(body[0]), tuple(body[1]))


def _read_hunk(
    lines: Iterator[bytes], hunk: re.Match[bytes], added: list[DiffLine], removed: list[DiffLine]
) -> None:
    """Take as many lines as the hunk says: what they look like is the author's choice."""
    gone, came = int(hunk[1]), int(hunk[3])
    for into, first, count in ((removed, gone, hunk[2]), (added, came, hunk[4])):
        taken = 0
        while taken < (1 if count is None else int(count)):
            line = next(lines)
            if not line.startswith(b"\\"):  # \ No newline at end of file
                into.append(DiffLine(first + taken, _decode(line[1:])))
                taken += 1
