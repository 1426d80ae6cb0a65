"""The private git directory of a sandboxed agent: its own branch and objects writable, all else read-only.

Git writes a ref by renaming a lock over it, so one ref of a directory cannot be opened for writing alone, and
whoever can write in `objects` can forge or delete the history of everybody. So an agent gets copies: a
directory with the one ref, and an empty object store that borrows from the real one. After the run Liza
imports the new objects, each under the name that git itself computes, then moves the real ref by
compare-and-swap. What a crash left is imported before the worktree is used again.

The worktree is seen at another path than its own, and the git directory at one where nothing else is: files
that lead from the one to the other are mounted over the real ones.
"""

from __future__ import annotations

import hashlib
import logging
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from liza.errors import GitFailed, LizaError
from liza.repo.repository import BRANCHES, HASH, TASK_PREFIX, branch_of
from liza.repo.worktree import Worktree, escape_pattern, write_text_whole
from liza.system.files import directories, first_line, plain_files, read_file, remove
from liza.system.sandbox.bubblewrap import SANDBOX_ROOT, Access, Mount

GIT: Final = SANDBOX_ROOT / "git"  # where the sandbox has the git directory
BORROWED: Final = SANDBOX_ROOT / "objects"  # where it has the real objects
LENT_STORES: Final = SANDBOX_ROOT / "lent"  # where it has the stores that those borrow from
_CREDENTIALS: Final = re.compile(r"(?<=://)[^/@\s]+@")
_SECRET_LINE: Final = re.compile(r"^\s*(extraheader|password|token|helper)\s*=", re.IGNORECASE)
_LOOSE: Final = re.compile(r"[0-9a-f]{38}(?:[0-9a-f]{24})?")
_PREFIX: Final = re.compile(r"[0-9a-f]{2}")

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PrivateGitDir:
    """The copies of one worktree, in *folder*; *task* is whose branch they are for, or None to read only."""

    worktree: Worktree
    folder: Path
    task: str | None

    @property
    def _objects(self) -> Path:
        return self.folder / "objects"

    @property
    def _moved_objects(self) -> Path:
        return self.folder / "lifted"

    @property
    def _refs(self) -> Path:
        return self.folder / "refs"

    def create_copies(self, at: Path | None = None, ignored: Iterable[str] = ()) -> list[Mount]:
        """Create the private copies and return the mounts by which the sandbox sees the git directory.

        The worktree is seen at *at*; *ignored* are paths in it that are no part of the work.
        """
        common = self.worktree.repository.common
        root, name = at or self.worktree.path, self.worktree.admin.name
        self.worktree.mend()  # the mounts below are laid over files that must be there
        write_text_whole(
            self.folder / "config", without_credentials((common / "config").read_text(errors="replace"))
        )
        write_text_whole(self.folder / "pointer", f"gitdir: {GIT / 'worktrees' / name}\n")
        write_text_whole(self.folder / "gitdir", f"{root / '.git'}\n")
        admin = Mount(
            GIT / "worktrees" / name, Access.WRITE if self.task else Access.READ, self.worktree.admin
        )
        return [
            *([] if common.is_relative_to(root) else [Mount(common, Access.NOTHING)]),
            Mount(GIT, Access.READ, common),
            Mount(GIT / "config", Access.READ, self.folder / "config"),
            Mount(GIT / "worktrees", Access.NOTHING),
            admin,
            Mount(admin.path / "gitdir", Access.READ, self.folder / "gitdir"),
            Mount(root / ".git", Access.READ, self.folder / "pointer"),
            *self._excludes(common / "info" / "exclude", ignored),
            *self._alternate_mounts(),
            *(self._branch_mounts(self.task) if self.task else ()),
        ]

    def _excludes(self, real: Path, ignored: Iterable[str]) -> list[Mount]:
        if not real.is_file():
            return []
        lines = "".join(f"/{escape_pattern(name)}\n" for name in ignored)
        own = self.worktree.excluded
        lines += own.read_text() if own.exists() else ""
        write_text_whole(self.folder / "exclude", f"{real.read_text(errors='replace')}\n{lines}")
        return [Mount(GIT / "info" / "exclude", Access.READ, self.folder / "exclude")]

    def _alternate_mounts(self) -> list[Mount]:
        """Return the stores that the real one borrows from, at paths where nothing else is."""
        stores = dict(enumerate(_alternates(self.worktree.repository.common / "objects"), start=1))
        if not stores:
            return []
        write_text_whole(self.folder / "lent", "".join(f"{LENT_STORES / str(number)}\n" for number in stores))
        borrower = BORROWED if self.task else GIT / "objects"
        file = Mount(borrower / "info" / "alternates", Access.READ, self.folder / "lent")
        return [
            file,
            *(Mount(LENT_STORES / str(number), Access.READ, store) for number, store in stores.items()),
        ]

    def _branch_mounts(self, task: str) -> list[Mount]:
        repository = self.worktree.repository
        real, logs = repository.common / "objects", self.folder / "logs"
        remove(self._moved_objects)
        for directory in (self._refs, logs, self._objects):
            remove(directory)
            directory.mkdir(parents=True)
        write_text_whole(self._objects / "info" / "alternates", f"{BORROWED}\n")
        tip = repository.commit_at(branch_of(task))
        if tip:
            write_text_whole(self._refs / task, f"{tip}\n")
            write_text_whole(self.folder / "tip", f"{tip}\n")
        heads = Path(BRANCHES) / TASK_PREFIX
        for directory in (repository.common / heads, repository.common / "logs" / heads):
            directory.mkdir(parents=True, exist_ok=True)
        return [
            Mount(BORROWED, Access.READ, real),
            Mount(GIT / "objects", Access.WRITE, self._objects),
            Mount(GIT / heads, Access.WRITE, self._refs),
            Mount(GIT / "logs" / heads, Access.WRITE, logs),
        ]

    def import_commits(self) -> None:
        """Import what was committed in the sandbox into the real repository, then remove the copies."""
        if not self.task or not self._refs.is_dir():
            return
        self._import_objects()
        was, now = first_line(self.folder / "tip"), _hash_in(self._refs / self.task)
        if now and now != was:
            self._move(self.task, was, now)
        for directory in (self._refs, self._objects, self._moved_objects, self.folder / "logs"):
            remove(directory)

    def _move(self, task: str, was: str, now: str) -> None:
        repository = self.worktree.repository
        whole = repository.ask("rev-list", "--objects", "--quiet", now, "--not", "--glob=refs/*")
        if whole.code != 0:
            raise LizaError(f"{task}: the commit {now[:12]} is not whole, so it is not taken: {whole.said}")
        if not repository.move_ref(
            branch_of(task), to=now, expected=was or None, why=f"{task} was committed to"
        ):
            raise LizaError(f"{task}: its branch moved while its agent was at work; nothing was taken over")

    def _import_objects(self) -> None:
        """Copy every object that was made; one whose content is not what its name says gets another name."""
        repository = self.worktree.repository
        self._move_loose_objects()
        names = sorted(self._loose_names())
        if names:
            pack = _pack_of(self._moved_objects, names) or self._pack_by_git(names)
            repository.git("unpack-objects", "-q", stdin=pack)
        for name in plain_files(self._objects, "pack"):
            if name.endswith(".pack"):
                pack = read_file(self._objects, f"pack/{name}")
                repository.git("index-pack", "--stdin", "--fix-thin", stdin=pack)

    def _pack_by_git(self, names: Iterable[str]) -> bytes:
        repository = self.worktree.repository
        lent = {
            "GIT_OBJECT_DIRECTORY": str(self._moved_objects),
            "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(repository.common / "objects"),
        }
        words = ("pack-objects", "--stdout", "-q", "--window=0")
        stdin = "".join(f"{name}\n" for name in names).encode()
        packed = repository.ask(*words, stdin=stdin, environment=lent)
        if packed.code != 0:
            raise GitFailed(words[0], packed.said)
        return packed.output

    def _move_loose_objects(self) -> None:
        """Bring the loose objects to a store that no agent has touched: git itself would follow any link."""
        self._moved_objects.mkdir(exist_ok=True)  # what a crash left there was brought over in the same way
        for prefix in filter(_PREFIX.fullmatch, directories(self._objects)):
            for name in filter(_LOOSE.fullmatch, plain_files(self._objects, prefix)):
                (self._moved_objects / prefix).mkdir(exist_ok=True)
                (self._objects / prefix / name).rename(self._moved_objects / prefix / name)

    def _loose_names(self) -> Iterator[str]:
        for prefix in directories(self._moved_objects):
            yield from (prefix + name for name in plain_files(self._moved_objects, prefix))


# A pack of a few loose objects, made without a git process: git itself then computes their names from it.

MOST_PACKED: Final = 1000  # objects; git is quicker with more
LARGEST_PACK: Final = 16 << 20  # bytes of objects that are in memory at once; git packs what is larger
_LOOSE_HEADER: Final = re.compile(rb"(commit|tree|blob|tag) (0|[1-9][0-9]{0,9})\0")
_KINDS: Final = {b"commit": 1, b"tree": 2, b"blob": 3, b"tag": 4}  # as packs number them
_HASHES: Final = {40: hashlib.sha1, 64: hashlib.sha256}  # of a repository, by the letters of a name
_PACK_VERSION: Final = 2


def _pack_of(store: Path, names: Sequence[str]) -> bytes | None:
    """Return the objects *names* of *store* as a pack; None where one is not plain, or they are too much."""
    if len(names) > MOST_PACKED:
        return None
    entries, left = list[bytes](), LARGEST_PACK
    for name in names:
        found = _loose_object(store, name, left)
        if found is None:
            return None
        kind, content = found
        entries.append(_entry_header(kind, len(content)) + zlib.compress(content, 1))
        left -= len(content)
    pack = struct.pack(">4sII", b"PACK", _PACK_VERSION, len(entries)) + b"".join(entries)
    return pack + _HASHES[len(names[0])](pack).digest()


def _loose_object(store: Path, name: str, most: int) -> tuple[int, bytes] | None:
    """Return kind and content of a loose object of *most* bytes; None where it is larger, or none at all."""
    if most <= 0:
        return None
    data, reader = read_file(store, f"{name[:2]}/{name[2:]}", most + 1), zlib.decompressobj()
    try:
        text = reader.decompress(data, most)
    except zlib.error:
        return None
    header = _LOOSE_HEADER.match(text)
    if header is None or not reader.eof or reader.unused_data or len(text) - header.end() != int(header[2]):
        return None
    return _KINDS[header[1]], text[header.end() :]


def _entry_header(kind: int, size: int) -> bytes:
    """Return what stands before an object in a pack: its kind with four bits of its size, then seven each."""
    found, first, size = bytearray(), kind << 4 | size & 0x0F, size >> 4
    while size:
        found.append(first | 0x80)
        first, size = size & 0x7F, size >> 7
    return bytes([*found, first])


def import_after_crash(shadows: Path, worktree: Worktree, task: str) -> None:
    """Import what an agent of *task* had committed when its worker died."""
    for folder in sorted(shadows.glob(f"{task}.*/git")):
        try:
            PrivateGitDir(worktree, folder, task).import_commits()
        except LizaError as error:  # its files are there all the same, and are asked for again
            log.warning("%s: what an agent committed before a crash is not taken over: %s", task, error)
            remove(folder)


def without_credentials(text: str) -> str:
    """Return a configuration of git's without what opens doors: passwords in addresses, headers, helpers."""
    lines = (_CREDENTIALS.sub("", line) for line in text.splitlines() if not _SECRET_LINE.match(line))
    return "".join(f"{line}\n" for line in lines)


def _hash_in(path: Path) -> str:
    """Return the hash that a ref file has; nothing where somebody put something else there."""
    text = "" if path.is_symlink() else first_line(path)
    return text if HASH.fullmatch(text) else ""


def _alternates(objects: Path) -> list[Path]:
    """Return the stores that the real one borrows from, as a clone with `--shared` does, near and far."""
    found: dict[Path, None] = {}
    waiting = [objects]
    while waiting:
        store = waiting.pop(0)
        path = store / "info" / "alternates"
        lines = path.read_text().splitlines() if path.exists() else []
        near = [lender for line in lines if line and (lender := (store / line).resolve()).is_dir()]
        waiting += [lender for lender in near if lender not in found]
        found |= dict.fromkeys(near)
    return list(found)
