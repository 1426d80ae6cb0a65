"""One of Liza's worktrees, and what was done in it; nothing that an agent could have written is believed.

An agent may replace `.git` in its worktree, point its `commondir` elsewhere, plant a `config.worktree`, or
set flags in its index that hide changes. So git is told where everything is instead of finding it, and
what is clean is judged by an index of our own: the one that Liza kept from when it made the checkout.
A file that was touched since has another ctime there, which cannot be set back.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import stat
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.errors import GitFailed
from liza.repo.command import (
    NOTHING,
    QUICK_LIMIT,
    GitResult,
    ask_git,
    decode_git,
    encode_git,
    find_objects,
    read_objects,
    tree_differences,
)
from liza.repo.repository import AREA, BRANCHES, HASH, TASK_PREFIX, Repository, list_tree, objects_between
from liza.system.files import (
    directory_below,
    files_below,
    first_line,
    make_writable,
    read_file,
    remove,
    remove_empty,
    remove_entry,
    remove_file,
    remove_others,
    remove_special,
    stamp_of,
    write_file,
)

# What `git status` says, as values.

# Renames are shown as what they are on disk, a file that went and one that came: each path stands alone.
STATUS_COMMAND: Final = (
    "status",
    "--porcelain=v2",
    "-z",
    "--untracked-files=all",
    "--no-renames",
    "--ignore-submodules=dirty",
    "--no-ahead-behind",
)

_FIELDS: Final = {"1": 8, "u": 10}  # how many spaces come before the path


class StatusEntry(NamedTuple):
    """One path that is not as the commit has it, with the line that git says about it."""

    path: str
    line: str

    @property
    def is_untracked(self) -> bool:
        return self.line.startswith("? ")

    @property
    def is_on_disk(self) -> bool:
        """Return whether the directory differs from the index; the second letter of `XY` is about that."""
        return self.is_untracked or self.line[3] != "."

    @property
    def is_deletion(self) -> bool:
        return not self.is_untracked and self.line[3] == "D"

    def has_content(self, root: Path) -> bool:
        """Return whether below *root* is something that git can store: of a pipe or a socket it cannot."""
        path = root / self.path
        return not self.is_deletion and (path.is_symlink() or path.is_file() or path.is_dir())


def parse_status(output: bytes) -> Iterator[StatusEntry]:
    """Read what git printed for `WORDS`."""
    for line in decode_git(output).split("\0"):
        if line[:2] == "? ":
            yield StatusEntry(line[2:], line)
        elif line[:1] in _FIELDS:
            yield StatusEntry(line.split(" ", _FIELDS[line[0]])[-1], line)


# Git's index without a git process: what it says of a checkout, and how that goes to another tree.
#
# An index remembers of each file what tells one version from the next: inode, size and times, of which the
# ctime cannot be set back. So one look at every file tells which were touched since it was written, and a
# checkout goes from one tree to the next by these files and those that differ between the trees. Only what is
# plain is done so: an index of another format, names that git refuses, and files that git would write
# otherwise than they are stored are left to git.

LARGEST_INDEX: Final = 1 << 24  # bytes, some 150,000 files; one that is larger would fill our memory
ATTRIBUTES: Final = ".gitattributes"
LARGEST_FILE: Final = 1 << 20  # bytes of a file whose content is compared
EXECUTABLE: Final = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
EXECUTABLE_MODE: Final = 0o100755  # what git knows a mode by
PLAIN_MODE: Final = 0o100644
LINK_MODE: Final = 0o120000
_HEADER: Final = struct.Struct(">4sII")
_FACTS: Final = struct.Struct(">10I")
_SIGNATURE: Final = b"DIRC"
_VERSION: Final = 2  # the format that git writes where nobody asks for another
_NAME_LENGTH: Final = 0x0FFF  # all other bits of an entry's flags are for what is not plain
_ALIGNMENT: Final = 8
_HASHES: Final = {20: hashlib.sha1, 32: hashlib.sha256}  # by the bytes of a name
_SECOND: Final = 10**9
_WORD: Final = 0xFFFFFFFF
# Names that lead into a repository somewhere, or could on some system: git knows all of them.
_ODD_NAME: Final = re.compile(
    r"(?:^|/)(?:\.git(?!(?:ignore|keep|hub|lab|lab-ci\.yml)(?:/|$))|git~)|\\", re.IGNORECASE
)

Stamp = tuple[int, int, int, int]  # ctime and mtime in nanoseconds, inode, size


class IndexEntry(NamedTuple):
    """A file as the index has it: what its stamp was, and the entry's bytes."""

    stamp: Stamp
    mode: int
    blob: bytes
    raw: bytes


@dataclass(frozen=True)
class Index:
    """An index: every entry by its path in git's order; *written* is when, in nanoseconds."""

    entries: Mapping[str, IndexEntry]
    written: int
    width: int
    folders: frozenset[str]  # on the way to an entry
    attributes: frozenset[bytes]  # the blobs that say how files are written
    # What may have been changed without another stamp: within the tick in which the index was written. What
    # changes after that gets a later time. Where a clock was put back, times in the future say nothing.
    doubtful: frozenset[str]


def read_index(path: Path, width: int) -> Index | None:
    """Return the index at *path*, of objects with names of *width* bytes; None where only git can read it."""
    with suppress(OSError, ValueError, struct.error):
        facts = path.stat()
        if facts.st_size <= LARGEST_INDEX and width in _HASHES:
            entries = dict(_entries(path.read_bytes(), width))
            attributes = (entry.blob for name, entry in entries.items() if name.endswith(ATTRIBUTES))
            doubtful = _doubtful(entries, entries, facts.st_mtime_ns)
            folders = frozenset(_folders_of(entries))
            return Index(entries, facts.st_mtime_ns, width, folders, frozenset(attributes), doubtful)
    return None


def _doubtful(entries: Mapping[str, IndexEntry], names: Iterable[str], written: int) -> frozenset[str]:
    return frozenset(name for name in names if name in entries and max(entries[name].stamp[:2]) >= written)


def _folders_of(names: Iterable[str]) -> set[str]:
    found: set[str] = set()
    level = {name.rpartition("/")[0] for name in names}
    while level := level - found - {""}:
        found |= level
        level = {name.rpartition("/")[0] for name in level}
    return found


def cached_index(path: Path, width: int) -> Index | None:
    """Do as `read_index`, at once for the one that was read or written last: it takes long to read."""
    known = _LATEST.get(path)
    if known is not None and known[0] == stamp_of(path) and known[1].width == width:
        return known[1]
    index = read_index(path, width)
    return index and _remember(path, index)


_LATEST: Final[dict[Path, tuple[tuple[int, ...], Index]]] = {}


def _remember(path: Path, index: Index) -> Index:
    _LATEST.clear()  # one is enough: whoever goes from tree to tree does so in one directory
    _LATEST[path] = (stamp_of(path), index)
    return index


def write_index(index: Index, path: Path) -> tuple[Index, bytes]:
    """Write *index* to *path* and return it with its time, and what was written."""
    raw = b"".join(entry.raw for entry in index.entries.values())
    content = _HEADER.pack(_SIGNATURE, _VERSION, len(index.entries)) + raw
    content += _HASHES[index.width](content).digest()
    write_file(path.parent, path.name, content)
    written = path.stat().st_mtime_ns
    # What was certain stays so, unless the clock was put back.
    names = index.doubtful if written >= index.written else index.entries
    doubtful = _doubtful(index.entries, names, written)
    return _remember(path, replace(index, written=written, doubtful=doubtful)), content


def _entries(content: bytes, width: int) -> Iterator[tuple[str, IndexEntry]]:
    signature, version, count = _HEADER.unpack_from(content)
    if signature != _SIGNATURE or version != _VERSION:
        raise ValueError(version)
    at = _HEADER.size
    for _ in range(count):
        ctime, cnano, mtime, mnano, _, inode, mode, _, _, size = _FACTS.unpack_from(content, at)
        name_at = at + _FACTS.size + width + 2
        flags = int.from_bytes(content[name_at - 2 : name_at], "big")
        length = flags & _NAME_LENGTH
        # Half merged, hidden, very long, or a repository of its own.
        if flags != length or length == _NAME_LENGTH or mode not in (PLAIN_MODE, EXECUTABLE_MODE, LINK_MODE):
            raise ValueError(flags)
        end = _entry_end(at, name_at + length)
        stamp = (ctime * _SECOND + cnano, mtime * _SECOND + mnano, inode, size)
        blob = content[at + _FACTS.size : name_at - 2]
        # One that is no UTF-8 is sorted otherwise than we would.
        name = content[name_at : name_at + length].decode()
        yield name, IndexEntry(stamp, mode, blob, content[at:end])
        at = end


def _entry_end(start: int, end: int) -> int:
    """Return where the entry from *start* ends whose name ends at *end*: at least one zero follows that."""
    return end - (end - start) % _ALIGNMENT + _ALIGNMENT


def _entry_of(path: str, name: str, blob: bytes) -> IndexEntry:
    """Return the entry of the file at *path*, which is just *blob*."""
    facts, word = os.lstat(path), _WORD
    mode = git_mode(facts.st_mode)
    known = (
        *(part & word for part in (*divmod(facts.st_ctime_ns, _SECOND), *divmod(facts.st_mtime_ns, _SECOND))),
        *(facts.st_dev & word, facts.st_ino & word, mode, facts.st_uid, facts.st_gid, facts.st_size & word),
    )
    words = name.encode()
    if len(words) >= _NAME_LENGTH:
        raise ValueError(name)
    raw = _FACTS.pack(*known) + blob + len(words).to_bytes(2, "big") + words
    return IndexEntry(stamp_in(facts), mode, blob, raw.ljust(_entry_end(0, len(raw)), b"\0"))


def stamp_in(facts: os.stat_result) -> Stamp:
    """Return what an index remembers of a file with these *facts*."""
    return (facts.st_ctime_ns, facts.st_mtime_ns, facts.st_ino & _WORD, facts.st_size & _WORD)


def git_mode(mode: int) -> int:
    """Return *mode* as git knows it; 0 for what it does not store."""
    if stat.S_ISREG(mode):
        return EXECUTABLE_MODE if mode & stat.S_IXUSR else PLAIN_MODE
    return LINK_MODE if stat.S_ISLNK(mode) else 0


def usual_mode(mode: int, usual: int) -> int:
    """Return the permissions that a checkout gives a file of *mode*, where directories get *usual*."""
    return usual if mode & stat.S_IXUSR else usual & ~EXECUTABLE


def _has_content(path: str, entry: IndexEntry, usual: int) -> bool:
    """Return whether the file at *path* surely is what *entry* says, by its content."""
    facts = os.lstat(path)
    if git_mode(facts.st_mode) != entry.mode or facts.st_size > LARGEST_FILE:
        return False
    if stat.S_ISREG(facts.st_mode) and stat.S_IMODE(facts.st_mode) != usual_mode(facts.st_mode, usual):
        return False
    return _blob_of(path, facts.st_mode, len(entry.blob)) == entry.blob


def _blob_of(path: str, mode: int, width: int) -> bytes:
    if stat.S_ISLNK(mode):
        content = os.fsencode(os.readlink(path))  # noqa: PTH115 - as bytes
    else:
        content = read_file(Path(os.path.dirname(path)), os.path.basename(path), LARGEST_FILE)  # noqa: PTH119, PTH120 - text
    return _HASHES[width](b"blob %d\0%s" % (len(content), content)).digest()


# Tells without a git process that a small checkout is just what its index says.
#
# Only a plain yes counts: every file is in the index and as it was when the index was written, and there is
# no other file. Whatever else is found, git is asked, who knows about filters, ignored files and modules.

LARGEST_COMPARED: Final = 1 << 16  # bytes of an index, some 700 files; git is quicker with more


def is_unchanged(directory: Path, path: Path, width: int, usual: int) -> bool:
    """Return whether *directory* is surely what the index at *path* says; directories there are *usual*."""
    with suppress(OSError):
        index = read_index(path, width) if path.stat().st_size <= LARGEST_COMPARED else None
        return index is not None and _is_unchanged(directory, index, usual)
    return False


def _is_unchanged(directory: Path, index: Index, usual: int) -> bool:
    seen = 0
    waiting = [("", str(directory))]
    while waiting:
        inside, path = waiting.pop()
        with os.scandir(path) as found:
            for entry in found:
                name = inside + entry.name
                known = index.entries.get(name)
                if known is None:
                    if name == ".git":
                        continue
                    if name not in index.folders or not entry.is_dir(follow_symlinks=False):
                        return False
                    waiting.append((f"{name}/", entry.path))
                elif known.stamp != stamp_in(entry.stat(follow_symlinks=False)):
                    return False
                else:
                    seen += 1
    places = ((str(directory / name), index.entries[name]) for name in index.doubtful)
    return seen == len(index.entries) and all(_has_content(*place, usual) for place in places)


# Leads a checkout of ours, in which anything may have been done, to another tree.


def find_touched(root: Path, index: Index, usual: int) -> list[str]:
    """Return which files below *root* are not as *index* remembers them, after all others were removed.

    Directories get the permissions *usual* again, since git does not look at them.
    """
    left, touched, waiting = dict(index.entries), list[str](), [""]
    while waiting:
        inside = waiting.pop()
        with directory_below(root, inside) as directory, os.scandir(directory) as found:
            if stat.S_IMODE(os.fstat(directory).st_mode) != usual:
                os.fchmod(directory, usual)
            for entry in found:
                name = inside + entry.name
                known = left.pop(name, None)
                if known is not None:
                    facts = entry.stat(follow_symlinks=False)
                    now = (facts.st_ctime_ns, facts.st_mtime_ns, facts.st_ino & _WORD, facts.st_size & _WORD)
                    if known.stamp != now:
                        touched.append(name)
                elif name in index.folders and entry.is_dir(follow_symlinks=False):
                    waiting.append(f"{name}/")
                elif name != ".git":
                    remove_entry(entry.name, directory)
    known_touched = {*touched, *left}
    unsure = (name for name in index.doubtful if name not in known_touched)
    wrong = [name for name in unsure if not _has_content(str(root / name), index.entries[name], usual)]
    return [*touched, *left, *wrong]


class PlainFile(NamedTuple):
    """A file as a tree has it."""

    mode: int
    blob: str
    content: bytes


def is_plain_name(name: str) -> bool:
    """Return whether *name* surely is one that git would check out."""
    return not _ODD_NAME.search(name)


def put_files(root: Path, index: Index, files: Mapping[str, PlainFile | None]) -> Index:
    """Write *files* below *root*, or remove those that are None; return *index* with them."""
    entries, fresh = dict(index.entries), {name: file for name, file in files.items() if file is not None}
    gone = files.keys() - fresh.keys()
    for name in gone:
        remove_file(root, name)
        entries.pop(name, None)
    folders = index.folders - _remove_folders(root, _folders_of(gone))
    is_ordered = all(name in entries for name in fresh)
    for name, file in fresh.items():
        write_file(root, name, file.content, mode=0o777 if file.mode == EXECUTABLE_MODE else 0o666)
        entries[name] = _entry_of(str(root / name), name, bytes.fromhex(file.blob))
    return replace(
        index,
        entries=entries if is_ordered else dict(sorted(entries.items())),  # as text: the order of its bytes
        folders=folders | _folders_of(fresh),
        doubtful=index.doubtful | fresh.keys(),
    )


def _remove_folders(root: Path, folders: Iterable[str]) -> set[str]:
    """Remove those of *folders* in which nothing is, and return them."""
    gone = set()
    for folder in sorted(folders, key=len, reverse=True):
        try:
            remove_empty(root, folder)
        except FileNotFoundError:
            pass
        except OSError:  # something is in it
            continue
        gone.add(folder)
    return gone


# The user's content filters, started where no agent decides which program they are.
#
# Git starts the programs of `filter.*` in the top directory of the checkout that it works on. In a worktree
# that directory is an agent's, and so would be whatever a filter finds there: `./tools/clean.sh`, the module
# of `python3 -m nbstripout`, the rule of a Makefile. So Liza's own git starts them in the user's checkout,
# as the user's git does. They get the content on stdin and the path as a word; what else they look up, they
# find in the repository as the user has it.

_PROGRAM: Final = re.compile(r"filter\..*\.(clean|smudge|process)$", re.DOTALL)
_EXPANDED: Final = re.compile(r"\.(clean|smudge)$")  # in which git replaces %f
# What leads git to the worktree: a filter that asks git for the top directory must not be led there either.
_LOCATION_VARIABLES: Final = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_CONFIG_COUNT"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "OLDPWD"),
)


def filter_settings(repository: Repository) -> dict[str, str]:
    """Return git settings that start every content filter of the user's in the user's checkout."""
    known = {key: value for key, value in repository.settings() if _PROGRAM.match(key)}
    return {key: _in_user_checkout(repository, key, value) for key, value in known.items() if value}


def _in_user_checkout(repository: Repository, key: str, command: str) -> str:
    home = shlex.quote(str(repository.root))
    if _EXPANDED.search(key):
        home = home.replace("%", "%%")
    return f"cd {home} && unset {' '.join(_LOCATION_VARIABLES)} && {{ {command}\n}}"


# Files that git writes as they are stored, which is what we do.

_CONVERTS: Final = re.compile(rb"\bfilter\b|\bident\b|working-tree-encoding|eol=crlf")
# Settings with the values by which nothing is converted; whatever else one says, git is asked.
_PLAIN_SETTINGS: Final[Mapping[str, frozenset[str]]] = {
    "core.attributesfile": frozenset(),
    "core.autocrlf": frozenset({"false", "no", "off", "0", "input"}),
    "core.eol": frozenset({"lf", "native"}),
    "core.filemode": frozenset({"true"}),
    "core.symlinks": frozenset({"true"}),
}


def _is_plain(repository: Repository, index: Index) -> bool:
    """Return whether git surely writes every file of *index* as it is stored."""
    plain = _PLAIN_SETTINGS
    if any(value.lower() not in plain[key] for key, value in repository.settings() if key in plain):
        return False
    if any(_CONVERTS.search(path.read_bytes()) for path in _attribute_files(repository) if path.is_file()):
        return False
    files = read_objects(repository.common, [blob.hex() for blob in index.attributes])
    return all(file and not _CONVERTS.search(file.content) for file in files)


def _attribute_files(repository: Repository) -> list[Path]:
    directory = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    own = repository.common / "info" / "attributes"
    return [own, directory / "git" / "attributes", *_system_attributes()]


@cache
def _system_attributes() -> tuple[Path, ...]:
    program = Path(shutil.which("git") or "/usr/bin/git").resolve()
    return tuple({Path("/etc/gitattributes"), program.parent.parent / "etc" / "gitattributes"})


NO_BRANCH: Final = f"{BRANCHES}liza/nowhere"  # a branch that never is: what a HEAD names that was spoiled
KEPT: Final = ".kept"  # beside the worktrees, where a sandboxed agent cannot write

# A task's worktree is whole, even where the user's own checkout is sparse.
_WHOLE: Final = {"core.sparseCheckout": "false", "index.sparse": "false"}
_ADMINISTRATION: Final = {"HEAD", "commondir", "gitdir"}  # all that git itself puts there for a new worktree
_PLAIN_MODES: Final = frozenset({PLAIN_MODE, EXECUTABLE_MODE})
_LARGEST_LOG: Final = 16 << 20  # bytes; reflogs stay far below, and a planted file must not fill our memory
_LONGEST_REF: Final = 256  # bytes of the file of a ref; one hash and a line feed
MOST_WRITTEN: Final = 200  # files of a checkout that we write ourselves; git is quicker with more
_LARGEST_WRITTEN: Final = 16 << 20  # bytes of them, which are all in memory at once
_HEAD: Final = re.compile(r"ref: refs/.+|[0-9a-f]{40}(?:[0-9a-f]{24})?")
_HASH: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


class HeadPosition(NamedTuple):
    """Where a HEAD is: the commit, its tree, and the branch, if there is one."""

    head: str
    tree: str
    branch: str | None


class _PlainHead(NamedTuple):
    commit: str | None
    branch: str | None


@dataclass(frozen=True)
class Worktree:
    """A checkout of Liza's; *admin* is git's own directory for it, named by its slot in the pool."""

    repository: Repository
    path: Path
    admin: Path

    @cached_property
    def kept(self) -> Path:
        return self.repository.area / KEPT / self.admin.name

    @property
    def kept_index(self) -> Path:
        """The index as it was when Liza had made the checkout."""
        return self.kept / "index"

    @property
    def _kept_at(self) -> Path:
        return self.kept / "at"

    @property
    def _staged(self) -> Path:
        """The index of the files as they were looked at last, where they were not what is committed."""
        return self.kept / "staged"

    @property
    def _staged_as(self) -> Path:
        return self.kept / "staged-as"

    @property
    def task(self) -> str | None:
        """The task that the worktree is ready for; empty while it is for none, None where nobody knows."""
        try:
            return (self.kept / "task").read_text()
        except FileNotFoundError:
            return None

    @property
    def setup_record(self) -> Path:
        """What the project's setup was run for; absent where it was not, or all that it made is gone."""
        return self.kept / "setup"

    @property
    def excluded(self) -> Path:
        """The patterns of what is no part of the work, though nothing in the tree says so."""
        return self.kept / "excluded"

    @property
    def at_rest(self) -> Path:
        """The record of the files when the task was released; absent while a worker holds the worktree."""
        return self.kept / "rest"

    def exclude(self, names: Iterable[str]) -> None:
        """Leave paths with these *names* out of the work."""
        known = self.excluded.read_text() if self.excluded.exists() else ""
        write_text_whole(self.excluded, known + "".join(f"/{escape_pattern(name)}\n" for name in names))

    def mark(self, task: str) -> None:
        """Remember that all is ready for *task*; with an empty one, that nothing in it is worth saving."""
        # What another task, or the same one before, left here is about files that are no longer there.
        self.at_rest.unlink(missing_ok=True)
        write_text_whole(self.kept / "task", task)

    @property
    def is_there(self) -> bool:
        return self.path.is_dir() and not self.path.is_symlink()

    def ask(self, *words: str, environment: Mapping[str, str] = NOTHING, stdin: bytes = b"") -> GitResult:
        """Run git here, and nowhere else, whatever the files in the worktree say."""
        pins = {**self._pin_git(), "GIT_WORK_TREE": str(self.path), **environment}
        settings = {**_WHOLE, **filter_settings(self.repository), **self.exclusion}
        return ask_git(*words, cwd=self.path, environment=pins, settings=settings, stdin=stdin)

    @property
    def exclusion(self) -> dict[str, str]:
        """The setting by which git ignores what is no part of the work."""
        return {"core.excludesFile": str(self.excluded)} if self.excluded.exists() else {}

    def _ask_git_directory(self, *words: str) -> GitResult:
        return ask_git(*words, cwd=self.admin, environment=self._pin_git(), limit=QUICK_LIMIT)

    def _pin_git(self) -> dict[str, str]:
        # Before every command: a link or a pipe in place of a file leads elsewhere, or nowhere.
        remove_special(self.admin, and_links=True)
        # The one can name programs, the other lead to another repository.
        remove(self.admin / "config.worktree")
        pointer, place = self.admin / "commondir", os.path.relpath(self.repository.common, self.admin)
        if first_line(pointer) != place:
            write_text_whole(pointer, f"{place}\n")
        if not _HEAD.fullmatch(first_line(self.admin / "HEAD")):
            write_text_whole(
                self.admin / "HEAD", f"ref: {NO_BRANCH}\n"
            )  # without a HEAD git knows no repository here
        return {"GIT_DIR": str(self.admin), "GIT_COMMON_DIR": str(self.repository.common)}

    def git(self, *words: str, environment: Mapping[str, str] = NOTHING, stdin: bytes = b"") -> str:
        answer = self.ask(*words, environment=environment, stdin=stdin)
        if answer.code != 0:
            raise GitFailed(words[0], answer.said)
        return answer.text

    def head(self) -> str | None:
        if (plain := self._plain_head()) is not None:
            return plain.commit
        answer = self._ask_git_directory("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        return answer.text if answer.code == 0 else None

    def head_position(self) -> HeadPosition | None:
        """Return where HEAD is, in one look; None where it names no commit."""
        if (plain := self._plain_head()) is not None:
            if plain.commit is None:
                return None
            return HeadPosition(plain.commit, self.repository.tree_of(plain.commit), plain.branch)
        words = ("rev-parse", "HEAD^{commit}", "HEAD^{tree}", "--symbolic-full-name", "HEAD")
        answer = self._ask_git_directory(*words)
        if answer.code != 0:
            return None
        head, tree, name = answer.text.splitlines()
        return HeadPosition(head, tree, name.removeprefix(BRANCHES) if name.startswith(BRANCHES) else None)

    def branch(self) -> str | None:
        """Return the name of the branch that is checked out; None where HEAD is detached or broken."""
        if (plain := self._plain_head()) is not None:
            return plain.branch
        answer = self._ask_git_directory("symbolic-ref", "--quiet", "HEAD")
        return answer.text.removeprefix(BRANCHES) if answer.code == 0 else None

    def _plain_head(self) -> _PlainHead | None:
        """Return what HEAD says where it is a hash or a branch that is one; else git itself has to be asked.

        A branch whose file is a link, a pipe or another name is none: where that leads, git decides.
        """
        if self.repository.has_reftable:
            return None
        self._pin_git()
        line = first_line(self.admin / "HEAD")
        if _HASH.fullmatch(line):
            return _PlainHead(self.repository.commit_at(line), None)
        ref = line.removeprefix("ref: ")
        if not ref.startswith(BRANCHES):
            return None
        try:
            known = read_file(self.repository.common, ref, _LONGEST_REF).decode(errors="replace").rstrip("\n")
        except FileNotFoundError:  # packed with others, where none can be another name
            known = ref
        except OSError:
            return None
        if known != ref and not _HASH.fullmatch(known):
            return None
        return _PlainHead(self.repository.commit_at(known), ref.removeprefix(BRANCHES))

    @contextmanager
    def private_index(self, at: str | None) -> Iterator[dict[str, str]]:
        """Give an index that no agent has touched, with the tree of *at*; the real one is left alone."""
        remove_special(self.path)
        with TemporaryDirectory(prefix="liza-") as directory:
            index = Path(directory) / "index"
            if self.kept_index.exists():
                copy_index(self.kept_index, index)
            environment = {"GIT_INDEX_FILE": str(index)}
            if at is not None and index.exists() and first_line(self._kept_at) == self._index_label(at):
                yield environment  # it was made of just that
                return
            words = ("read-tree", *(("--reset", at) if at else ("--empty",)))
            if self.ask(*words, environment=environment).code != 0:
                index.unlink(missing_ok=True)  # it may be damaged; without it, every file is read
                self.git(*words, environment=environment)
            yield environment

    def is_exactly(self, at: str) -> bool:
        """Return whether the directory is surely *at*; where it is not, git has to be asked."""
        if not self.kept_index.exists() or first_line(self._kept_at) != self._index_label(at):
            return False
        return is_unchanged(self.path, self.kept_index, len(at) // 2, self._usual_mode)

    @property
    def _usual_mode(self) -> int:
        """The permissions of a directory that somebody just made here."""
        return stat.S_IMODE(self.repository.area.stat().st_mode)

    def keep_staged(self, environment: Mapping[str, str], tree: str) -> None:
        """Keep the index in *environment*, which holds *tree*, for the commit of that tree."""
        self._staged_as.unlink(missing_ok=True)  # first, as below
        copy_index(Path(environment["GIT_INDEX_FILE"]), self._staged)
        write_text_whole(self._staged_as, _index_label(self._staged, tree))

    def use_staged(self, tree: str, commit: str) -> bool:
        """Let the index be *commit*, of this *tree*, if that was staged last; return whether it was."""
        if not self._staged.exists() or first_line(self._staged_as) != _index_label(self._staged, tree):
            return False
        self._kept_at.unlink(missing_ok=True)
        copy_index(self._staged, self.admin / "index")
        copy_index(self._staged, self.kept_index)
        write_text_whole(self._kept_at, self._index_label(commit))
        return True

    def changes(self, environment: Mapping[str, str]) -> list[StatusEntry]:
        """Return every path that differs from the index in *environment*, or is untracked and not ignored."""
        answer = self.ask(*STATUS_COMMAND, environment=environment)
        if answer.code != 0:
            raise GitFailed("status", answer.said)
        # The index has been read from a commit, so what is staged against another HEAD says nothing.
        return [change for change in parse_status(answer.output) if change.is_on_disk]

    @property
    def has_foreign_git(self) -> bool:
        """Return whether an agent's own repository stands in place of our `.git` file."""
        link = self.path / ".git"
        return link.is_dir() and not link.is_symlink()

    def mend(self) -> None:
        """Repair the link between directory and git, and remove locks and files that a killed or hostile
        agent left.
        """
        if first_line(self.path / ".git") != f"gitdir: {self.admin}":
            write_text_whole(self.path / ".git", f"gitdir: {self.admin}\n")
        self._pin_git()
        self.claim()
        for lock in self.admin.glob("*.lock"):
            remove(lock)

    def claim(self) -> None:
        """Tell git where the directory is."""
        if first_line(self.admin / "gitdir") != str(self.path / ".git"):
            write_text_whole(self.admin / "gitdir", f"{self.path / '.git'}\n")

    def strip(self, at: str) -> None:
        """Leave nothing of git's own state here but a HEAD detached at *at*."""
        for entry in self.admin.iterdir():
            if entry.name not in _ADMINISTRATION or not entry.is_file():
                remove(entry)
        self.mend()
        write_text_whole(self.admin / "HEAD", f"{at}\n")
        # Git goes on with a reflog that is there, even where the user has switched reflogs off.
        write_file(self.admin, "logs/HEAD", b"")

    def point_head(self, ref: str) -> None:
        """Let HEAD be the branch *ref*, as `git symbolic-ref` does."""
        write_text_whole(self.admin / "HEAD", f"ref: {ref}\n")

    def fill(self, at: str) -> None:
        """Make the directory exactly the tree of *at*, rewriting whatever was touched, removing the rest."""
        if not self._switch(at):
            self._fill_by_git(at)

    def _switch(self, at: str) -> bool:
        """Do so without git, by what differs; return False, with nothing lost, where only git can."""
        index = self._checked_out(len(at) // 2)
        if index is None or not _is_plain(self.repository, index):
            return False
        with suppress(OSError, GitFailed, ValueError):
            was, now = (self.repository.tree_of(name) for name in (self._kept_commit, at))
            files = {
                path: item and (int(item[0], 8), item[1])
                for path, item in tree_differences(self.repository.common, was, now).items()
            }
            for path in find_touched(self.path, index, self._usual_mode):
                entry = index.entries[path]
                files.setdefault(path, (entry.mode, entry.blob.hex()))
            contents = self._plain_files(files)
            if contents is not None:
                self._keep(put_files(self.path, index, contents) if contents else index, at)
                return True
        return False

    @property
    def _kept_commit(self) -> str:
        """What the kept index was made of; empty where nobody knows."""
        line = first_line(self._kept_at)
        at = line.partition(" ")[0]
        return at if at and self.kept_index.exists() and line == self._index_label(at) else ""

    def _checked_out(self, width: int) -> Index | None:
        """Return the kept index if it is known what of, and names on disk are those of git."""
        if not self._kept_commit or self.repository.folds_names:
            return None
        return cached_index(self.kept_index, width)

    def _plain_files(self, files: Mapping[str, tuple[int, str] | None]) -> dict[str, PlainFile | None] | None:
        """Return *files* with their contents; None where git has to write one of them."""
        there = {path: item for path, item in files.items() if item is not None}
        if len(files) > MOST_WRITTEN or any(mode not in _PLAIN_MODES for mode, _ in there.values()):
            return None
        if not all(is_plain_name(path) and not path.endswith(ATTRIBUTES) for path in files):
            return None
        blobs = list({blob for _, blob in there.values()})
        sizes = [found.size for found in find_objects(self.repository.common, blobs) if found]
        if len(sizes) < len(blobs) or sum(sizes) > _LARGEST_WRITTEN:
            return None
        found = dict(zip(blobs, read_objects(self.repository.common, blobs), strict=True))
        contents: dict[str, PlainFile | None] = dict.fromkeys(files)
        for path, (mode, blob) in there.items():
            read = found[blob]
            if read is None or read.type != "blob":
                return None
            contents[path] = PlainFile(mode, blob, read.content)
        return contents

    def _keep(self, index: Index, at: str) -> None:
        """Keep *index*, of *at*, and let git have a copy of it."""
        self._kept_at.unlink(missing_ok=True)  # first: it must never name what the index is not
        kept, content = write_index(index, self.kept_index)
        write_file(self.admin, "index", content, modified=kept.written)
        write_text_whole(self._kept_at, self._index_label(at))

    def _fill_by_git(self, at: str) -> None:
        index = self.admin / "index"
        self.normalize_modes()
        self._kept_at.unlink(missing_ok=True)  # as above
        if self.kept_index.exists():
            copy_index(self.kept_index, index)
        try:
            self._check_out(at)
        except GitFailed:
            make_writable(self.path)
            index.unlink(missing_ok=True)
            self._check_out(at)
        copy_index(index, self.kept_index)
        write_text_whole(self._kept_at, self._index_label(at))

    def _index_label(self, at: str) -> str:
        return _index_label(self.kept_index, at)

    def _check_out(self, at: str) -> None:
        # One walk before git: it leaves nothing for which git would wait, nor what git would leave alone.
        is_cleared = self._remove_others(at)
        if not is_cleared:
            remove_special(self.path)
        self.git("read-tree", "--reset", "-u", at)
        if not is_cleared:
            self.git("clean", "-ffdxq")

    def remove_untracked(self, at: str) -> None:
        """Remove whatever is in the directory and not in the tree of *at*, ignored or not."""
        if not self._remove_others(at):
            self.git("clean", "-ffdxq")

    def _remove_others(self, at: str) -> bool:
        """Do the same without git; return False where only git can say what is in the way."""
        if self.repository.folds_names:
            return False
        with suppress(OSError, GitFailed):
            index = self._checked_out(len(at) // 2)
            names = index.entries if index else list_tree(self.repository, at)
            remove_others(self.path, {".git", *names})
            return True
        return False

    def checkout_tree(self, tree: str) -> None:
        """Make the tracked files and the index those of *tree*."""
        remove_special(self.path)
        self.git("read-tree", "--reset", "-u", tree)

    def stage_all(self, environment: Mapping[str, str]) -> bool:
        """Put all that the directory is, but for what is ignored, into the index in *environment*; return
        whether that changed it.

        As `git add --all` does; but that one starts git in every repository inside this one, where the
        configuration is an agent's and may name programs.
        """
        changes = self.changes(environment)
        self.stage(changes, environment)
        return bool(changes)

    def stage(self, changes: Sequence[StatusEntry], environment: Mapping[str, str]) -> None:
        """Put *changes* into the index in *environment*."""
        gone = [change.path for change in changes if not change.has_content(self.path)]
        there = [change.path.removesuffix("/") for change in changes if change.has_content(self.path)]
        # By force, because what was deleted may have a link in its place now, behind which git does not look.
        for how, paths in (("--force-remove", gone), ("--replace", there)):
            stdin = b"".join(encode_git(path) + b"\0" for path in paths)
            if paths:
                words = ("update-index", "--add", how, "-z", "--stdin")
                self.git(*words, environment=environment, stdin=stdin)

    def reset(self, at: str) -> None:
        """Leave nothing of what was here before: neither in the files nor in what git remembers of them."""
        self._forget(at)
        self.fill(at)

    def clear(self, at: str) -> None:
        """Do as `reset` does, except for tracked files of *at*: the next holder rewrites them."""
        self._forget(at)
        self.remove_untracked(at)

    def _forget(self, at: str) -> None:
        self.setup_record.unlink(missing_ok=True)
        self.excluded.unlink(missing_ok=True)
        self.strip(at)

    def normalize_modes(self) -> None:
        """Reset modes of files and directories and remove pipes and sockets, which git does not look at."""
        for path, mode in _unusual_modes(self.path, self._usual_mode):
            path.unlink() if mode is None else path.chmod(mode)


def _index_label(index: Path, at: str) -> str:
    """Return the label of *index* for *at*; a changed size or time of the index invalidates it."""
    facts = index.stat()
    return f"{at} {facts.st_size} {facts.st_mtime_ns}"


def escape_pattern(name: str) -> str:
    """Return *name* as a pattern of git's that stands for that path alone."""
    return re.sub(r"([\\*?\[ !#])", r"\\\1", name)


def worktree_paths(repository: Repository) -> dict[Path, Path]:
    """Return where git thinks that every linked worktree is, by git's directory for each."""
    links = (repository.common / "worktrees").glob("*/gitdir")
    return {link.parent: Path(place).parent for link in links if (place := first_line(link))}


def hashes_below(directory: Path) -> set[str]:
    """Return every hash in the text files below *directory*."""
    paths = files_below(directory)
    return {found for path in paths if path.name != "index" for found in hashes_in_file(path)}


def hashes_in_file(path: Path) -> list[str]:
    """Return the hashes in one file; none where it is no file of git's making."""
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _LARGEST_LOG:
        return []
    return _HASH.findall(path.read_text(errors="replace"))


def write_text_whole(path: Path, text: str) -> None:
    """Put *text* at *path* in one step, whatever is there, without following a link."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path.parent, path.name, encode_git(text))


def copy_index(source: Path, target: Path) -> None:
    """Put a copy of an index at *target* in one step, with its time, by which git knows what to trust."""
    target.parent.mkdir(parents=True, exist_ok=True)
    facts = source.lstat()
    content = read_file(source.parent, source.name, facts.st_size)
    write_file(target.parent, target.name, content, modified=facts.st_mtime_ns)


def _unusual_modes(directory: Path, usual: int) -> Iterator[tuple[Path, int | None]]:
    """Yield what is not as a fresh checkout has it, with the mode it must get; None for what must go."""
    waiting = [str(directory)]
    while waiting:
        current = waiting.pop()
        if stat.S_IMODE(os.lstat(current).st_mode) != usual:
            yield Path(current), usual
        with os.scandir(current) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif not entry.is_symlink():
                    yield from _unusual_file(entry, usual)


def _unusual_file(entry: os.DirEntry[str], usual: int) -> Iterator[tuple[Path, int | None]]:
    mode = entry.stat(follow_symlinks=False).st_mode
    wanted = usual_mode(mode, usual)
    if not stat.S_ISREG(mode):
        yield Path(entry.path), None
    elif stat.S_IMODE(mode) != wanted:
        yield Path(entry.path), wanted


# Facts of git about submitted work, whatever the agent says, made durable against a crash.

# Makes commits durable before the board names them, and finds what a crash of the machine damaged.
#
# Git syncs neither objects nor refs by default. Liza's own git does (`core.fsync` in `repo.command`); what
# an agent committed with its own git is synced here before it is handed in. After a crash, empty or missing
# objects and refs without a hash are found here.


def sync_work(repository: Repository, base: str, commit: str, ref: str) -> None:
    """Have all that *commit* adds to *base*, and the *ref* that leads to it, on disk."""
    objects = repository.common / "objects"
    # The commit itself may be the agent's own, or an old one that it only moved the branch to.
    listed = objects_between(repository, base, commit)
    loose = [objects / name[:2] / name[2:] for name in listed]
    there = [path for path in loose if path.exists()]
    packs = [*(objects / "pack").glob("*.pack"), *(objects / "pack").glob("*.idx")]
    files = [*there, *(packs if len(there) < len(loose) else [])]
    names = [repository.common / ref, repository.common / "packed-refs"]
    files += [path for path in names if path.is_file()]
    for path in [*files, *{file.parent for file in files}]:
        _sync(path)


def _sync(path: Path) -> None:
    with suppress(FileNotFoundError):  # packed meanwhile, and synced by whoever did that
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


class BrokenRef(NamedTuple):
    """A ref whose file names no commit, as a crash of the machine leaves it."""

    ref: str
    path: Path


def broken_refs(repository: Repository, *more: str) -> list[BrokenRef]:
    """Return those of Liza's refs, and of *more*, whose file has no hash in it."""
    folders = (f"{BRANCHES}{TASK_PREFIX}", "refs/liza")
    files = [path for name in folders for path in (repository.common / name).glob("**/*") if path.is_file()]
    files += [path for name in more if (path := repository.common / name).is_file()]
    return [
        BrokenRef(str(path.relative_to(repository.common)), path)
        for path in files
        if path.suffix != ".lock" and not _names_a_commit(path)
    ]


def _names_a_commit(path: Path) -> bool:
    text = path.read_bytes()[:1024].decode(errors="replace").strip()
    return bool(HASH.fullmatch(text)) or text.startswith("ref: refs/")


def present(repository: Repository, commits: Iterable[str]) -> frozenset[str]:
    """Return those of *commits*, by hash, that are there."""
    found = find_objects(repository.common, sorted(set(commits)))
    return frozenset(one.name for one in found if one and one.type == "commit")


def missing_commits(repository: Repository, bases: Mapping[str, str | None]) -> frozenset[str]:
    """Return those of *commits* that are incomplete: an object since *base* is missing."""
    if not bases or _are_whole(repository, bases):
        return frozenset()
    return frozenset(commit for commit, base in bases.items() if not _are_whole(repository, {commit: base}))


def _are_whole(repository: Repository, bases: Mapping[str, str | None]) -> bool:
    since = present(repository, filter(None, bases.values()))
    # With the sizes of what is listed: an empty file is found as a name, and is no object.
    answer = repository.ask(
        "rev-list", "--objects", "--no-object-names", *bases, *(["--not", *since] if since else [])
    )
    if answer.code != 0:
        return False
    checked = repository.ask("cat-file", "--batch-check", stdin=f"{answer.text}\n".encode())
    return checked.code == 0 and not any(line.endswith(" missing") for line in checked.text.splitlines())


def empty_objects(repository: Repository) -> Iterator[Path]:
    """Yield the files of objects that have nothing in them: git takes them for written, and for damaged."""
    objects = repository.common / "objects"
    for folder in objects.glob("[0-9a-f][0-9a-f]"):
        yield from (path for path in folder.iterdir() if path.is_file() and not path.stat().st_size)


PATHS_NAMED: Final = 5  # paths in a sentence; more are counted
_LINK_MODE: Final = "160000"
_FORBIDDEN: Final = {".liza": "belongs to Liza", AREA: "belongs to Liza", ".git": "belongs to git"}


class Submission(NamedTuple):
    """The commit that a worktree is at, and every reason why it cannot be taken."""

    head: str | None
    reasons: tuple[str, ...]


class CommittedPath(NamedTuple):
    """One path of a commit that differs from the base."""

    mode: str
    path: str


def inspect_submission(worktree: Worktree, task: str, base: str, *, tree: str | None = None) -> Submission:
    """Return the facts of what *task* would hand in from its worktree.

    *tree* is what the directory is, for whoever knows it already.
    """
    if not worktree.is_there:
        return Submission(None, (f"{task}: the worktree {worktree.path} is gone",))
    spot = worktree.head_position()
    if spot is None:
        return Submission(
            None, (f"{task}: HEAD of the worktree names no commit; check out {TASK_PREFIX}/{task}",)
        )
    head = spot.head
    reasons = [
        *_branch_problems(spot.branch, task),
        *_history_problems(worktree, head, base),
        *refusals(introduced_paths(worktree, base, head)),
        *([] if tree == spot.tree else _uncommitted_problems(worktree, head)),
    ]
    return Submission(head, tuple(f"{task}: {reason}" for reason in reasons))


def refusals(entries: list[CommittedPath]) -> list[str]:
    """Return what must not be in a commit, as sentences."""
    links = [entry.path for entry in entries if entry.mode == _LINK_MODE]
    reasons = [
        f"{summarize_paths(links)}: a repository inside the repository cannot be merged; add files instead"
    ]
    for name, why in _FORBIDDEN.items():
        inside = [entry.path for entry in entries if entry.path.split("/")[0].casefold() == name]
        reasons += [f"{summarize_paths(inside)} {why} and cannot be committed"] if inside else []
    return reasons if links else reasons[1:]


def introduced_paths(worktree: Worktree, base: str, head: str) -> list[CommittedPath]:
    """Return what *head* has that *base* has not, path by path."""
    old = list_tree(worktree.repository, base)
    items = list_tree(worktree.repository, head).items()
    return [CommittedPath(item.mode, path) for path, item in items if old.get(path) != item]


def summarize_paths(paths: list[str]) -> str:
    """Return the first of *paths*, and how many more there are."""
    shown = ", ".join(sorted(paths)[:PATHS_NAMED])
    return f"{shown} and {len(paths) - PATHS_NAMED} more" if len(paths) > PATHS_NAMED else shown


def _branch_problems(branch: str | None, task: str) -> list[str]:
    if branch == f"{TASK_PREFIX}/{task}":
        return []
    where = f"on the branch {branch}" if branch else "on no branch"
    return [f"the worktree is {where}; check out {TASK_PREFIX}/{task} and commit there"]


def _history_problems(worktree: Worktree, head: str, base: str) -> list[str]:
    if head == base:
        return ["nothing was committed since the base"]
    if not worktree.repository.contains(head, base):
        return [f"the commit {head[:12]} does not descend from the base {base[:12]}; keep the base's history"]
    return []


def _uncommitted_problems(worktree: Worktree, head: str) -> list[str]:
    if worktree.is_exactly(head):
        return []
    with worktree.private_index(head) as index:
        changes = worktree.changes(index)
    untracked = [change.path for change in changes if change.is_untracked]
    changed = [change.path for change in changes if not change.is_untracked]
    sentences = {"has uncommitted changes": changed, "has untracked files": untracked}
    return [
        f"the worktree {what} ({summarize_paths(paths)}); commit or remove them"
        for what, paths in sentences.items()
        if paths
    ]
