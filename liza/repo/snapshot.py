"""What a worktree holds, as a tree, and a fingerprint of what agents must not touch: both to be compared."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from fnmatch import fnmatchcase
from hashlib import blake2b
from itertools import chain, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from liza.domain.record import Record, utc_now
from liza.errors import GitFailed, LizaError, UnfitRepository
from liza.repo import salvage, worktree
from liza.repo.command import ask_git, decode_git, encode_git
from liza.repo.pool import Worktrees
from liza.repo.repository import (
    BRANCHES,
    OWN_PATHS,
    TASK_PREFIX,
    Repository,
    binary_patch,
    branch_of,
    list_tree,
    message_of,
    user_config_paths,
)
from liza.repo.worktree import Worktree, write_text_whole
from liza.system.files import directories, plain_files, read_file


class Patch(Record):
    """A part of what a run did to its tree: one commit, or what it left without one."""

    message: str | None = None  # of the commit; None where there was none
    diff: bytes = b""  # as `git diff --binary` prints it, new files included


def snapshot(worktree: Worktree) -> str:
    """Return the tree that the directory is now, with what is not committed and not ignored."""
    return _snapshot(worktree, worktree.head())


def _snapshot(worktree: Worktree, head: str | None) -> str:
    if head is not None and worktree.is_exactly(head):
        return worktree.repository.tree_of(head)
    with worktree.private_index(head) as index:
        if not worktree.stage_all(index) and head is not None:
            return worktree.repository.tree_of(head)
        tree = worktree.git("write-tree", environment=index)
        worktree.keep_staged(index, tree)
        return tree


def commit_all(worktree: Worktree, message: str, *, at: datetime, tree: str | None = None) -> str | None:
    """Commit whatever is not committed on the branch of the worktree's task; return None where nothing is, or
    another branch is checked out: an agent writes what HEAD says, and it may say `main`.

    *tree* is what the directory is, for whoever knows it already.
    """
    spot, repository = worktree.head_position(), worktree.repository
    if spot is None or spot.branch is None or BRANCHES + spot.branch != branch_of(str(worktree.task)):
        return None
    head, branch = spot.head, spot.branch
    tree = tree or _snapshot(worktree, head)
    if tree == spot.tree:
        return None
    commit = repository.commit_tree(tree, parents=(head,), message=f"{message.strip()}\n", at=at)
    if not repository.move_ref(BRANCHES + branch, to=commit, expected=head, why="commit what the agent left"):
        raise LizaError(f"the branch {branch} moved while its work was being committed; nothing was changed")
    if not worktree.use_staged(tree, commit):
        worktree.git("read-tree", "--reset", commit)
    return commit


def overlay(worktree: Worktree, tree: str) -> None:
    """Make the directory the *tree*, without a commit."""
    head = str(worktree.head())
    worktree.checkout_tree(tree)
    worktree.git("read-tree", "--reset", head)


def roll_back(worktree: Worktree, task: str, *, head: str, tree: str, at: datetime) -> None:
    """Undo all that was done since the directory was *tree* on *head*; what that was is saved first."""
    repository, ref = worktree.repository, branch_of(task)
    salvage.save_work(repository, task, worktree, at=at, losing=ref)
    worktree.mend()
    if not repository.move_ref(ref, to=head, expected=repository.commit_at(ref), why=f"{task} is put back"):
        raise LizaError(f"{task}: its branch moved while it was being put back; nothing more was changed")
    worktree.git("symbolic-ref", "HEAD", ref)
    with worktree.private_index(head) as index:
        worktree.stage_all(index)
        worktree.git("read-tree", "--reset", "-u", tree, environment=index)
    worktree.git("read-tree", "--reset", head)


class WorktreeState(NamedTuple):
    """What a worktree is: the commit of its HEAD, and the tree of its directory."""

    head: str
    tree: str


def worktree_state(worktree: Worktree) -> WorktreeState:
    head = worktree.head()
    return WorktreeState(str(head), _snapshot(worktree, head))


def altered_paths(repository: Repository, before: str, after: str) -> list[str]:
    """Return the paths of the tree *before* that are not the same in *after*; additions do not count."""
    old, new = list_tree(repository, before), list_tree(repository, after)
    return [path for path, item in old.items() if new.get(path) != item]


def added_paths(repository: Repository, before: str, after: str) -> list[str]:
    """Return the paths of the tree *after* that *before* does not have."""
    old = list_tree(repository, before)
    return [path for path in list_tree(repository, after) if path not in old]


def restore_paths(worktree: Worktree, tree: str, paths: list[str]) -> None:
    """Put files back to what they are in *tree*; all else stays as it is."""
    with worktree.private_index(tree) as index:
        stdin = b"".join(encode_git(path) + b"\0" for path in paths)
        worktree.git("checkout-index", "--force", "-z", "--stdin", environment=index, stdin=stdin)


def conflict_marked_paths(repository: Repository, before: str, after: str) -> list[str]:
    """Return the paths in which git's marks of a conflict came with the change from *before* to *after*."""
    lines = repository.ask("diff", "--check", before, after).text.splitlines()
    return sorted({line.split(":")[0] for line in lines if line.endswith(": leftover conflict marker")})


@dataclass(eq=False)
class WorktreeTracker:
    """Records what runs do to their worktrees, and applies recorded patches.

    The state before the first run since `begin` and after the last is cached: reading a large tree is slow.
    """

    worktrees: Worktrees
    before: WorktreeState | None = None
    after: WorktreeState | None = None
    _known: WorktreeState | None = None  # what the next run begins with, where somebody has just looked

    def begin(self, known: WorktreeState | None = None) -> None:
        """Forget: what comes next is asked anew, perhaps in several runs; the first begins at *known*."""
        self.before = self.after = None
        self._known = known

    def mark(self, cwd: Path) -> str:
        known, self._known = self._known, None
        now = known or worktree_state(self._at(cwd))
        self.before, self.after = self.before or now, None
        return " ".join(now)

    def patches(self, cwd: Path, mark: str) -> list[Patch]:
        """Return what was done since *mark*: commit by commit where history only grew, else as one."""
        worktree = self._at(cwd)
        self.after = worktree_state(worktree)
        head, before = mark.split(" ")
        if self.after == (head, before):
            return []
        found = []
        for commit in _commits_since(worktree, head, self.after.head):
            message = message_of(worktree.repository, commit).strip()
            tree = worktree.repository.tree_of(commit)
            found.append(
                Patch(message=message or commit, diff=binary_patch(worktree.repository, before, tree))
            )
            before = tree
        rest = binary_patch(worktree.repository, before, self.after.tree)
        return [*found, *([Patch(diff=rest)] if rest else [])]

    def apply(self, cwd: Path, patch: Patch) -> None:
        worktree = self._at(cwd)
        if patch.diff:
            diff = _with_local_labels(patch.diff, cwd)
            worktree.git("apply", "--binary", "--whitespace=nowarn", "-", stdin=diff)
        if patch.message is not None:
            commit_all(worktree, patch.message, at=utc_now())

    def _at(self, cwd: Path) -> Worktree:
        worktree = self.worktrees.worktree_at(cwd)
        if worktree is None or not worktree.is_there:
            raise LizaError(f"{cwd} is no worktree of Liza's, or somebody deleted it")
        return worktree


def _commits_since(worktree: Worktree, head: str, now: str) -> list[str]:
    if now == head or not worktree.repository.contains(now, head):
        return []
    return worktree.git("rev-list", "--reverse", "--first-parent", f"{head}..{now}").split()


def _with_local_labels(diff: bytes, cwd: Path) -> bytes:
    """Return *diff* with the commits in git's conflict marks as *cwd* has them: they are new each time."""
    if not _MARK.search(diff):
        return diff
    here = dict(_LABEL.findall(b"\n".join(_file_content(cwd, name) for name in _OLD.findall(diff))))
    for label, commit in here.items():
        diff = re.sub(rb"^([ -]" + label + b")" + _HASH, rb"\g<1>" + commit, diff, flags=re.MULTILINE)
    return diff


def _file_content(cwd: Path, name: bytes) -> bytes:
    try:
        return read_file(cwd, os.fsdecode(name), _LARGEST)
    except OSError:  # it is gone, or no file
        return b""


_LARGEST: Final = 16 << 20  # bytes of a file in which marks are looked for
_HASH: Final = rb"([0-9a-f]{40,64})$"
_LABEL: Final = re.compile(rb"^(<{7} |>{7} )" + _HASH, re.MULTILINE)
_MARK: Final = re.compile(rb"^[ -](?:<{7}|>{7}) " + _HASH, re.MULTILINE)
_OLD: Final = re.compile(rb"^--- a/(.+?)\t?$", re.MULTILINE)


# The user's checkout as a commit, with what is changed, staged or new in it; the checkout is left alone.

_LIST: Final = ("ls-files", "-z", "--modified", "--deleted", "--others", "--exclude-standard")


def commit_checkout(repository: Repository, *, at: datetime) -> str:
    """Return a commit of the files as they are, on top of HEAD; HEAD itself where nothing differs.

    No branch points at it and no index changes. What is ignored stays out.
    """
    head = repository.head()
    if head is None:
        raise UnfitRepository(f"{repository.root} has no commit yet; make one first")
    tree = _tree_of_files(repository)
    if tree == repository.tree_of(head):
        return head
    message = "the checkout as it is\n"
    return repository.commit_tree(tree, parents=(head,), message=message, at=at)


def _tree_of_files(repository: Repository) -> str:
    with TemporaryDirectory(prefix="liza-") as directory:
        index = Path(directory) / "index"
        # A copy, not HEAD: it knows what a sparse checkout leaves out on purpose.
        if (repository.home / "index").exists():
            shutil.copy2(repository.home / "index", index)
        pins = {
            "GIT_DIR": str(repository.home),
            "GIT_WORK_TREE": str(repository.root),
            "GIT_INDEX_FILE": str(index),
        }
        names = _git(repository, pins, *_LIST).split(b"\0")
        # A directory is a repository of its own: nothing of ours to take along.
        changed = [name for name in names if name and not name.endswith(b"/") and not _is_own(name)]
        stdin = b"".join(name + b"\0" for name in changed)
        _git(repository, pins, "update-index", "--add", "--remove", "-z", "--stdin", stdin=stdin)
        return decode_git(_git(repository, pins, "write-tree")).strip()


def _is_own(name: bytes) -> bool:
    return decode_git(name).partition("/")[0] in OWN_PATHS


def _git(repository: Repository, pins: dict[str, str], *words: str, stdin: bytes = b"") -> bytes:
    answer = ask_git(*words, cwd=repository.root, environment=pins, stdin=stdin)
    if answer.code != 0:
        raise GitFailed(words[0], answer.said)
    return answer.output


# A patch that an agent wrote as text, put into its worktree whole or not at all.

EMPTY: Final = "the patch is empty"
_LONGEST: Final = 500  # characters of what git says that are kept
_HUNK_LINE: Final = re.compile(r"^(?!(?:---|\+\+\+) )[ +-].*$", re.MULTILINE)


def apply_patch(worktree: Worktree, patch: str) -> str | None:
    """Apply *patch* to the files; return why it does not apply, after which nothing is changed.

    Who writes a patch as text does not see how the lines of a file end: that is tried both ways.
    """
    if not patch.strip():
        return EMPTY
    bare = patch.replace("\r\n", "\n")
    said = ""
    for text in dict.fromkeys([patch, bare, _HUNK_LINE.sub("\\g<0>\r", bare)]):
        answer = worktree.ask("apply", "--whitespace=nowarn", "-", stdin=encode_git(text))
        if answer.code == 0:
            return None
        said = said or answer.said
    return f"the patch does not apply: {' '.join(said.split())[:_LONGEST]}"


# A fingerprint of what agents must not touch, and the differences between two, each as a sentence.
#
# A person works in the same repository. What people do there every day (edit, stage, commit, switch, tag,
# stash, track a branch) may have been either; what only an agent has a reason for is not.
#
# Covered: HEAD, every ref, the index with its flags, the tracked and untracked files of the user's checkout,
# and the files that tell git what to do (configuration, hooks, attributes, excludes, alternates, grafts). Not
# covered: ignored files, the inside of submodules beyond their HEAD, and hooks outside of the repository.

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
    answer = repository.ask_checkout(*worktree.STATUS_COMMAND)
    if answer.code != 0:
        raise GitFailed("status", answer.said)
    found = sorted(
        change for change in worktree.parse_status(answer.output) if not _is_liza_path(change.path)
    )
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


# Detects changes in a worktree while nobody works in it; without a sandbox only a later look can tell.
#
# States are compared by ctime, which no program can set, and not with a clock, since clocks step back. After
# each run only the `.git` file of each worktree is checked; the whole worktree is compared once, when its
# task is claimed again.


def git_link_stamps(worktrees: Worktrees) -> dict[str, str]:
    """Return a stamp of the `.git` file of each task's worktree."""
    area = worktrees.area
    if not area.is_dir():
        return {}
    return {
        entry.name: _path_stamp(os.path.join(entry.path, ".git"))  # noqa: PTH118 - one call for each of hundreds
        for entry in os.scandir(area)
        if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
    }


def record_idle_state(worktree: Worktree) -> None:
    """Record the state of *worktree*, to be compared when its task is claimed again."""
    write_text_whole(worktree.at_rest, json.dumps(dict(_folder_digests(worktree.path))))


def pop_idle_change(worktree: Worktree) -> str | None:
    """Return the first directory that changed since the state was recorded, and remove the record."""
    path = worktree.at_rest
    try:
        before = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    path.unlink(missing_ok=True)
    now = dict(_folder_digests(worktree.path))
    return next(
        (name for name in sorted(before.keys() | now.keys()) if before.get(name) != now.get(name)), None
    )


def _folder_digests(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each directory below *root* with a digest of what its entries are."""
    waiting = [""]
    while waiting:
        inside = waiting.pop()
        digest = blake2b(digest_size=16)
        try:
            with os.scandir(root / inside) as entries:
                for entry in sorted(entries, key=lambda one: one.name):
                    if not inside and entry.name == ".git":
                        continue  # it is looked at by itself, and Liza puts it right
                    name = os.path.join(inside, entry.name)  # noqa: PTH118 - a string is wanted
                    is_directory = entry.is_dir(follow_symlinks=False)
                    # The time of a directory says no more than its names do.
                    digest.update(
                        os.fsencode(f"{entry.name}\0{'' if is_directory else _entry_stamp(entry)}\0")
                    )
                    if is_directory:
                        waiting.append(name)
        except OSError:
            digest.update(b"unreadable")
        yield inside or ".", digest.hexdigest()


def _entry_stamp(entry: os.DirEntry[str]) -> str:
    facts = entry.stat(follow_symlinks=False)
    return f"{facts.st_mode} {facts.st_ino} {facts.st_size} {facts.st_ctime_ns}"


def _path_stamp(path: str) -> str:
    try:
        facts = os.lstat(path)
    except OSError:
        return "absent"
    return f"{facts.st_mode} {facts.st_ino} {facts.st_size} {facts.st_ctime_ns}"
