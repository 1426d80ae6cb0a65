"""One of Liza's worktrees, looked at without believing anything that an agent could have written in it.

An agent may replace `.git` in its worktree, point its `commondir` elsewhere, plant a `config.worktree`, or
set flags in its index that hide changes. So git is told where everything is instead of finding it, and
what is clean is judged by an index of our own: the one that Liza kept from when it made the checkout.
A file that was touched since has another ctime there, which cannot be set back.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.errors import GitFailed
from liza.repo import status
from liza.repo.command import NOTHING, QUICK_LIMIT, GitResult, ask, encode_git
from liza.repo.filters import filter_settings
from liza.repo.objects import list_tree
from liza.repo.repository import BRANCHES, Repository
from liza.repo.unchanged import is_unchanged
from liza.system.no_follow import (
    first_line,
    make_writable,
    read_file,
    remove,
    remove_others,
    remove_special,
    write_file,
)

NO_BRANCH: Final = f"{BRANCHES}liza/nowhere"  # a branch that never is: what a HEAD names that was spoiled
KEPT: Final = ".kept"  # beside the worktrees, where a sandboxed agent cannot write

# A task's worktree is whole, even where the user's own checkout is sparse.
_WHOLE: Final = {"core.sparseCheckout": "false", "index.sparse": "false"}
_ADMINISTRATION: Final = {"HEAD", "commondir", "gitdir"}  # all that git itself puts there for a new worktree
_LARGEST_LOG: Final = 16 << 20  # bytes; reflogs stay far below, and a planted file must not fill our memory
_LONGEST_REF: Final = 256  # bytes of the file of a ref; one hash and a line feed
_EXECUTABLE: Final = stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH
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

    @property
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
        """What the files were when the task of the worktree was let go; absent while somebody has it."""
        return self.kept / "rest"

    def exclude(self, names: Iterable[str]) -> None:
        """Take the paths of these *names* for no part of the work."""
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
        return ask(*words, cwd=self.path, environment=pins, settings=settings, stdin=stdin)

    @property
    def exclusion(self) -> dict[str, str]:
        """The setting by which git ignores what is no part of the work."""
        return {"core.excludesFile": str(self.excluded)} if self.excluded.exists() else {}

    def _ask_git_directory(self, *words: str) -> GitResult:
        return ask(*words, cwd=self.admin, environment=self._pin_git(), limit=QUICK_LIMIT)

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
        return is_unchanged(self.path, self.kept_index, len(at) // 2)

    def keep_staged(self, environment: Mapping[str, str], tree: str) -> None:
        """Remember the index in *environment*, which is *tree*, for whoever commits that."""
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

    def changes(self, environment: Mapping[str, str]) -> list[status.StatusEntry]:
        """Return every path that differs from the index in *environment*, or is untracked and not ignored."""
        answer = self.ask(*status.STATUS_COMMAND, environment=environment)
        if answer.code != 0:
            raise GitFailed("status", answer.said)
        # The index has been read from a commit, so what is staged against another HEAD says nothing.
        return [change for change in status.parse_status(answer.output) if change.is_on_disk]

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
        index = self.admin / "index"
        if self.is_exactly(at):
            copy_index(self.kept_index, index)
            return
        self._kept_at.unlink(missing_ok=True)  # first: it must never name what the index is not
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
        self.checkout_tree(at)
        self.remove_untracked(at)

    def remove_untracked(self, at: str) -> None:
        """Remove whatever is in the directory and not in the tree of *at*, ignored or not."""
        if not self.repository.folds_names:
            with suppress(OSError, GitFailed):  # git says what is in the way
                items = list_tree(self.repository, at)
                remove_others(self.path, {".git", *items})
                return
        self.git("clean", "-ffdxq")

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

    def stage(self, changes: Sequence[status.StatusEntry], environment: Mapping[str, str]) -> None:
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
        """Do as `reset` does, but for the files of *at* itself: whoever takes it next puts them right."""
        self._forget(at)
        self.remove_untracked(at)

    def _forget(self, at: str) -> None:
        self.setup_record.unlink(missing_ok=True)
        self.excluded.unlink(missing_ok=True)
        self.strip(at)

    def normalize_modes(self) -> None:
        """Reset modes of files and directories and remove pipes and sockets, which git does not look at."""
        usual = stat.S_IMODE(self.repository.area.stat().st_mode)
        for path, mode in _unusual_modes(self.path, usual):
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
    paths = (Path(parent) / name for parent, _, names in os.walk(directory) for name in names)
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
    wanted = usual if mode & stat.S_IXUSR else usual & ~_EXECUTABLE
    if not stat.S_ISREG(mode):
        yield Path(entry.path), None
    elif stat.S_IMODE(mode) != wanted:
        yield Path(entry.path), wanted
