"""The repository as a set of facts, what is in a tree, and the one way in which Liza moves a ref.

Nothing here, or above it, writes to the user's checkout, index, HEAD or branches: what is asked of commits
and refs is asked of the shared git directory, where no checkout is in reach.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from liza.errors import GitFailed, UnfitRepository, UsageError
from liza.repo.command import (
    LOCK_PATIENCE,
    NEAR,
    NOTHING,
    QUICK_LIMIT,
    REPOSITORY_MODE,
    TREE_MODE,
    GitObject,
    GitResult,
    TreeEntry,
    ask_git,
    decode_git,
    encode_git,
    find_objects,
    git,
    git_version,
    is_near_ancestor,
    read_commit,
    read_objects,
    read_trees,
    top_level,
    tree_differences,
    walk_tree,
    write_commit,
    write_tree,
)
from liza.system.files import first_line, stamp_of

AREA: Final = ".worktrees"
BRANCHES: Final = "refs/heads/"
TASK_PREFIX: Final = "task"
IDENTITY: Final = ("Liza", "liza@localhost")  # signs merges and salvage where the user has no name in git
OLDEST_GIT: Final = (2, 38)  # the first that merges trees
# Seconds for which settings from other files than the usual, as included ones, are taken to be as they were.
SETTINGS_TTL: Final = 60.0
OWN_PATHS: Final = (".liza", AREA)
_IGNORES_CASE: Final = re.compile(r"^\s*ignorecase\s*=\s*(true|yes|on|1)", re.IGNORECASE | re.MULTILINE)
# Git takes some signs out of names, and others off their ends.
_PLAIN_SIGNER: Final = re.compile(r"""[^\x00-\x20.,:;<>"\\'](?:[^\x00-\x1f<>]*[^\x00-\x20.,:;<>"\\'])?""")
HASH: Final = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def branch_of(task: str) -> str:
    """Return the full name of the branch that *task* is worked on."""
    return f"{BRANCHES}{TASK_PREFIX}/{task}"


@dataclass(frozen=True)
class Repository:
    """Where a repository is: the user's checkout, its git directory, and the one all worktrees share."""

    root: Path
    home: Path
    common: Path

    @classmethod
    def around(cls, start: Path) -> Repository:
        words = ("--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir")
        places = ask_git("rev-parse", *words, cwd=start).text.splitlines()
        if len(places) != len(words) - 1:  # no repository, or a line break in its path: that is told there
            places = git("rev-parse", *words, cwd=top_level(start)).splitlines()
        root, home, common = map(Path, places)
        return cls(root, home, common)

    @cached_property
    def area(self) -> Path:
        """Where all of Liza's own worktrees are."""
        return self.root / AREA

    def ask(
        self,
        *words: str,
        stdin: bytes = b"",
        environment: Mapping[str, str] = NOTHING,
        cwd: Path | None = None,
    ) -> GitResult:
        """Run a command that needs objects and refs only: no checkout is in its reach."""
        return ask_git(*words, cwd=cwd or self.common, environment={**self._pins, **environment}, stdin=stdin)

    def git(self, *words: str, stdin: bytes = b"", environment: Mapping[str, str] = NOTHING) -> str:
        """Do as `ask` does, and raise git's sentence where it fails."""
        return git(*words, cwd=self.common, environment={**self._pins, **environment}, stdin=stdin)

    @property
    def _pins(self) -> dict[str, str]:
        return {"GIT_DIR": str(self.common)}

    def commit_at(self, name: str) -> str | None:
        """Return the commit that the ref or hash *name* stands for, or None where there is none."""
        try:
            (found,) = self._find_commits(name)
        except GitFailed:  # a process of its own tells more, or gets further
            words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
            answer = ask_git(*words, cwd=self.common, environment=self._pins, limit=QUICK_LIMIT)
            return answer.text if answer.code == 0 else None
        return found.name if found else None

    def tree_of(self, name: str) -> str:
        return _tree_of(self, name) if HASH.fullmatch(name) else self._resolve_tree(name)

    def _resolve_tree(self, name: str) -> str:
        with suppress(GitFailed):
            (found,) = find_objects(self.common, [f"{name}^{{tree}}"])
            if found:
                return found.name
        return self.git("rev-parse", "--verify", "--end-of-options", f"{name}^{{tree}}")

    def head(self) -> str | None:
        """Return the commit that the user's checkout is at; None before the first commit."""
        if self.home == self.common:
            return self.commit_at("HEAD")
        answer = self.ask_checkout("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        return answer.text if answer.code == 0 else None

    def branch(self) -> str | None:
        """Return the name of the branch that the user's checkout is on; None where it is on none."""
        answer = self.ask_checkout("symbolic-ref", "--quiet", "--short", "HEAD")
        return answer.text if answer.code == 0 else None

    def ask_checkout(self, *words: str) -> GitResult:
        """Run a command that looks at the user's checkout, its index or its HEAD."""
        pins = {"GIT_DIR": str(self.home), "GIT_WORK_TREE": str(self.root)}
        return ask_git(*words, cwd=self.root, environment=pins)

    def contains(self, ref: str, commit: str) -> bool:
        """Return whether *commit* is reachable from *ref*; what does not exist contains nothing."""
        with suppress(GitFailed):
            tip, wanted = (found and found.name for found in self._find_commits(ref, commit))
            if tip is None or wanted is None:
                return False
            if (is_near := is_near_ancestor(self.common, wanted, tip)) is not None:
                return is_near
        answer = self.ask("merge-base", "--is-ancestor", commit, ref)
        if answer.code > 1 and self.commit_at(ref) and self.commit_at(commit):
            raise GitFailed("merge-base", answer.said)
        return answer.code == 0

    def _find_commits(self, *names: str) -> list[GitObject | None]:
        return find_objects(self.common, [f"{name}^{{commit}}" for name in names])

    def checked_out_at(self, ref: str) -> Path | None:
        """Return the user's worktree that *ref* is checked out in; Liza's own do not count."""
        if self.has_reftable:
            where = self.git("for-each-ref", "--format=%(worktreepath)", ref).strip()
            return Path(where) if where and not Path(where).is_relative_to(self.area) else None
        # Git would read HEAD of every worktree, also of those in which an agent may have put a pipe there.
        known = ((path, head) for path, head in self._checkouts() if not path.is_relative_to(self.area))
        return next((path for path, head in known if first_line(head) == f"ref: {ref}"), None)

    def _checkouts(self) -> Iterator[tuple[Path, Path]]:
        """Yield every checkout of the repository, with the file that says what is checked out there."""
        yield self.root, self.home / "HEAD"
        if self.common.name == ".git":  # else it is bare, or the checkout that we stand in
            yield self.common.parent, self.common / "HEAD"
        for link in (self.common / "worktrees").glob("*/gitdir"):
            yield Path(first_line(link)).parent, link.with_name("HEAD")

    @property
    def has_reftable(self) -> bool:
        """Return whether refs are kept in git's own database instead of files."""
        return (self.common / "reftable").is_dir()

    def settings(self) -> tuple[tuple[str, str], ...]:
        """Return every setting of git's that holds here, in order: of several of a key, the last counts."""
        files = (self.common / "config", self.home / "config.worktree", *user_config_paths())
        return _read_settings(self, tuple(map(stamp_of, files)), int(time.monotonic() / SETTINGS_TTL))

    @property
    def folds_names(self) -> bool:
        """Return whether a file may have another name on disk than in git: other case, or composed signs."""
        if sys.platform != "linux":
            return True
        return bool(_IGNORES_CASE.search((self.common / "config").read_text(errors="replace")))

    @cached_property
    def author_variables(self) -> dict[str, str]:
        """The variables that sign a commit: the user's own name, or Liza's where there is none."""
        words = {key for key, value in self.settings() if value}
        fixed = {"NAME": ("user.name", IDENTITY[0]), "EMAIL": ("user.email", IDENTITY[1])}
        missing = {part: own for part, (key, own) in fixed.items() if key not in words}
        names = {f"GIT_{who}_{part}": own for who in ("AUTHOR", "COMMITTER") for part, own in missing.items()}
        return {name: own for name, own in names.items() if not os.environ.get(name)}

    def move_ref(self, ref: str, *, to: str, expected: str | None, why: str) -> bool:
        """Point *ref* at *to* if it is still at *expected* (None: absent); say whether it is there now."""
        # An empty old value asks git to check that the ref does not exist yet.
        words = ("update-ref", "--no-deref", "--create-reflog", "-m", f"liza: {why}", ref, to, expected or "")
        return self._update_ref(ref, words, to)

    def delete(self, ref: str, *, expected: str) -> bool:
        """Delete *ref* if it is still at *expected*; say whether it is gone."""
        return self._update_ref(ref, ("update-ref", "--no-deref", "-d", ref, expected), None)

    def _update_ref(self, ref: str, words: tuple[str, ...], wanted: str | None) -> bool:
        self._remove_stale_lock(ref)
        answer = self.ask(*words)
        if answer.code != 0 and self._remove_stale_lock(ref):
            answer = self.ask(*words)
        if answer.code == 0:
            return True
        if "but expected" in answer.said or "reference already exists" in answer.said:
            return self.commit_at(ref) == wanted
        if "unable to resolve reference" in answer.said:
            return wanted is None
        raise GitFailed(words[0], answer.said)

    def _remove_stale_lock(self, ref: str) -> bool:
        """Remove the lock that a killed git left on *ref*; say whether there was one."""
        lock = self.common / f"{ref}.lock"
        try:
            age = time.time() - lock.stat().st_mtime
        except (FileNotFoundError, NotADirectoryError):
            return False
        if age < LOCK_PATIENCE:
            return False
        lock.unlink(missing_ok=True)
        return True

    def ensure_branch(self, name: str) -> str:
        """Make sure that the integration branch *name* is there and free to move; return its full name."""
        ref = BRANCHES + name
        if git_version() < OLDEST_GIT:
            raise UnfitRepository(
                "git is too old to merge without a checkout; "
                f"install {OLDEST_GIT[0]}.{OLDEST_GIT[1]} or newer"
            )
        if self.ask("check-ref-format", "--branch", name).code != 0 or name.startswith("-"):
            raise UsageError(f"{name!r} cannot name a branch; choose another `integration_branch`")
        if name.partition("/")[0] in (TASK_PREFIX, "salvage"):
            raise UsageError(f"{name!r} is among the names that Liza gives to tasks; choose another")
        self.require_free(ref)
        self.require_room(name)
        if self.commit_at(ref) is None:
            self._begin(ref)
        return ref

    def require_free(self, ref: str) -> None:
        """Refuse to go on while the user has *ref* checked out: moving it would turn that checkout stale."""
        where = self.checked_out_at(ref)
        if where is not None:
            raise UnfitRepository(
                f"the branch {ref.removeprefix(BRANCHES)!r} is checked out in {where}, and Liza must be free "
                f"to move it; switch to another there, as by `git -C {where} switch --detach`"
            )

    def _begin(self, ref: str) -> None:
        head = self.head()
        if head is None:
            raise UnfitRepository(
                f"{self.root} has no commit yet; make one, as by "
                "`git commit --allow-empty -m 'the beginning'`, and try again"
            )
        if not self.move_ref(ref, to=head, expected=None, why="the integration branch begins"):
            raise UnfitRepository(f"{ref} came to be at another commit meanwhile; try again")

    def require_room(self, integration: str) -> None:
        """Refuse branches that leave no room for Liza's own: beside `task` git allows no `task/<id>`."""
        parts = integration.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts))]
        wanted = {
            TASK_PREFIX: f"{TASK_PREFIX}/<id>",
            "salvage": "salvage/<id>",
            **dict.fromkeys(above, integration),
        }
        for name, ours in wanted.items():
            if self.commit_at(BRANCHES + name) is not None:
                raise UnfitRepository(
                    f"the branch {name!r} stands where Liza puts {ours}; "
                    f"rename it, as by `git branch -m {name} {name}-old`"
                )
        words = ("for-each-ref", "--count=1", "--format=%(refname:short)", f"{BRANCHES}{integration}/")
        if below := self.git(*words):
            raise UnfitRepository(
                f"the branch {below!r} leaves no room for the integration branch {integration!r}; rename it, "
                "or choose another `integration_branch` in the settings"
            )

    def commit_tree(self, tree: str, *, parents: tuple[str, ...], message: str, at: datetime) -> str:
        """Make a commit, signed by nobody's key and reached by no hook, and return its hash."""
        with suppress(GitFailed):  # git itself tells more, or gets further
            if content := self._plain_commit(tree, parents, message, at):
                return write_commit(self.common, content)
        moment = f"@{int(at.timestamp())} +0000"
        dates = {"GIT_AUTHOR_DATE": moment, "GIT_COMMITTER_DATE": moment}
        words = [word for parent in parents for word in ("-p", parent)]
        return self.git(
            "commit-tree",
            "--no-gpg-sign",
            *words,
            "-F",
            "-",
            tree,
            stdin=encode_git(message),
            environment=self.author_variables | dates,
        )

    def _plain_commit(self, tree: str, parents: tuple[str, ...], message: str, at: datetime) -> bytes | None:
        """Return a commit as git writes it; None where names or message are such that git would mend them."""
        signers = [self._signer("AUTHOR"), self._signer("COMMITTER")]
        if not all(_PLAIN_SIGNER.fullmatch(name) for signer in signers for name in signer) or "\0" in message:
            return None
        found = find_objects(self.common, [tree, *dict.fromkeys(parents)])
        if [one and one.type for one in found] != ["tree", *["commit"] * (len(found) - 1)]:
            return None
        heads = [f"{one.type.replace('commit', 'parent')} {one.name}" for one in found if one]
        keys = zip(("author", "committer"), signers, strict=True)
        heads += [f"{key} {name} <{email}> {int(at.timestamp())} +0000" for key, (name, email) in keys]
        with suppress(UnicodeEncodeError):  # git looks what it may be instead of UTF-8
            return "\n".join([*heads, "", message]).encode()
        return None

    def _signer(self, who: str) -> tuple[str, str]:
        """Return name and address of *who* as git finds them: its variables, its own settings, the user's."""
        known, given = dict(self.settings()), {**os.environ, **self.author_variables}

        def find(part: str) -> str:
            key = part.lower()
            own = given.get(f"GIT_{who}_{part}") or known.get(f"{who.lower()}.{key}")
            return own or known.get(f"user.{key}", "")

        return find("NAME"), find("EMAIL")


def user_config_paths() -> list[Path]:
    """Return where the user's own configuration may be: agents like to put their name there."""
    named = os.environ.get("GIT_CONFIG_GLOBAL")
    if named is not None:
        return [Path(named)] if named else []
    home = Path.home()
    directory = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return [home / ".gitconfig", directory / "git" / "config", directory / "git" / "attributes"]


@lru_cache(4)
def _read_settings(
    repository: Repository, _stamps: tuple[tuple[int, ...], ...], _moment: int
) -> tuple[tuple[str, str], ...]:
    lines = repository.ask("config", "-z", "--list").text.split("\0")
    return tuple((key, value) for key, is_set, value in (line.partition("\n") for line in lines) if is_set)


@lru_cache(256)
def _tree_of(repository: Repository, commit: str) -> str:
    """Return the tree of *commit*, which never changes; each gate and each merge asks for it."""
    return repository._resolve_tree(commit)  # noqa: SLF001 - a cache on the method would keep unhashed names


# What is in a tree, read from git's objects: no checkout, one call for many files.

DEEPEST: Final = 100  # folders in each other that are written one by one; deeper ones are git's own affair


class TreeItem(NamedTuple):
    """A path of a tree."""

    mode: str
    blob: str


def list_tree(repository: Repository, tree: str) -> dict[str, TreeItem]:
    """Return every path of *tree*."""
    return dict(_list_tree(repository, repository.tree_of(tree)))


@lru_cache(8)
def _list_tree(repository: Repository, tree: str) -> Mapping[str, TreeItem]:
    """List *tree* by what it has otherwise than the last that was listed: most differ by a few files."""
    before = _LISTED.get(repository.common)
    found = _list_from(repository.common, *before, tree) if before else None
    if found is None:
        found = {path: TreeItem(*facts) for path, facts in walk_tree(repository.common, tree).items()}
    _LISTED.clear()
    _LISTED[repository.common] = (tree, found)
    return found


_LISTED: Final[dict[Path, tuple[str, dict[str, TreeItem]]]] = {}


def _list_from(
    common: Path, near: str, known: Mapping[str, TreeItem], tree: str
) -> dict[str, TreeItem] | None:
    try:
        differences = tree_differences(common, near, tree)
    except (ValueError, GitFailed):  # no tree of git's making, or one that git threw away meanwhile
        return None
    found = {**known}
    for path, facts in differences.items():
        if facts is None:
            del found[path]
        else:
            found[path] = TreeItem(*facts)
    if all(path in known for path in differences):
        return found
    return dict(sorted(found.items(), key=lambda item: encode_git(item[0])))


def blob_sizes(repository: Repository, blobs: Iterable[str]) -> dict[str, int]:
    """Return the bytes of each of *blobs* that is there."""
    return {found.name: found.size for found in find_objects(repository.common, list(set(blobs))) if found}


def blob_contents(repository: Repository, blobs: Iterable[str]) -> dict[str, bytes]:
    """Return what is in each of *blobs* that is there."""
    return {found.name: found.content for found in read_objects(repository.common, list(set(blobs))) if found}


class CommitInfo(NamedTuple):
    """A commit between base and head: its parent, message and authors."""

    commit: str
    before: str
    message: str
    people: str = ""  # who made it, as it says


def commits_between(repository: Repository, base: str, head: str) -> list[CommitInfo]:
    """Return the commits from *base* to *head*, each with what it was made from; a first one from nothing."""
    if (line := _line_between(repository, base, head)) is not None:
        return line
    text = repository.git(
        "log", "--no-color", "--format=%x00%H %P%n%an <%ae>, %cn <%ce>%n%B", f"{base}..{head}"
    )
    found = []
    for part in text.split("\0")[1:]:
        hashes, _, rest = part.partition("\n")
        people, _, said = rest.partition("\n")
        commit, *parents = hashes.split()
        before = parents[0] if parents else repository.git("hash-object", "-t", "tree", "--stdin")
        found.append(CommitInfo(commit, before, said.strip(), people))
    return found


def _line_between(repository: Repository, base: str, head: str) -> list[CommitInfo] | None:
    """Return the commits where each has one parent and says nothing odd; else None, and git is asked."""
    found: list[CommitInfo] = []
    name = head
    while name != base:
        commit = read_commit(repository.common, name)
        if commit is None or len(found) >= NEAR or not commit.is_plain or len(commit.parents) != 1:
            return None
        author, committer = (
            _PERSON.fullmatch(commit.header("author")),
            _PERSON.fullmatch(commit.header("committer")),
        )
        if not author or not committer:
            return None
        people = f"{author['name']} <{author['mail']}>, {committer['name']} <{committer['mail']}>"
        found.append(CommitInfo(commit.name, commit.parents[0], commit.message.strip(), people))
        name = commit.parents[0]
    return found


_PERSON: Final = re.compile(r"(?P<name>[^<>\s](?:[^<>]*[^<>\s])?) <(?P<mail>[^<>\s]*)> \d+ [+-]\d{4}")


def message_of(repository: Repository, commit: str) -> str:
    """Return the message of *commit*."""
    found = read_commit(repository.common, commit)
    if found is None or not found.is_plain:
        return repository.git("show", "--no-patch", "--format=%B", commit)
    return found.message


def objects_between(repository: Repository, base: str, head: str) -> list[str]:
    """Return the hashes of what *head* adds to *base*: commits, trees and blobs."""
    commits = _line_between(repository, base, head)
    if commits is None:
        return repository.git("rev-list", "--objects", "--no-object-names", f"{base}..{head}").split()
    trees = [repository.tree_of(commit.commit) for commit in commits]
    before = [repository.tree_of(commit.before) for commit in commits]
    new = {one for pair in zip(before, trees, strict=True) for one in _new_objects(repository, *pair)}
    return [*(commit.commit for commit in commits), *sorted(new)]


def _new_objects(repository: Repository, before: str, after: str) -> Iterator[str]:
    """Yield the trees and blobs of the tree *after* that are not at the same place in *before*."""
    waiting: list[tuple[str | None, str]] = [(before, after)]
    while waiting:
        old, new = waiting.pop()
        if old == new:
            continue
        yield new
        known = read_trees(repository.common, filter(None, (old, new)))
        there = {entry.name: entry for entry in (known[old] if old else ())}
        for entry in known[new]:
            was = there.get(entry.name)
            if entry.mode == TREE_MODE:
                waiting.append((was.object if was and was.mode == TREE_MODE else None, entry.object))
            elif (was is None or was.object != entry.object) and entry.mode != REPOSITORY_MODE:
                yield entry.object


def write_tree_with(repository: Repository, tree: str, items: Mapping[str, TreeItem | None]) -> str:
    """Write and return *tree* with *items* replaced; None removes a path."""
    if any(path.count("/") > DEEPEST for path in items):
        return _write_by_index(repository, tree, items)
    try:
        return _write_folder(repository, repository.tree_of(tree), items) or _empty_tree(repository)
    except (GitFailed, _InTheWay):
        return _write_by_index(repository, tree, items)


class _InTheWay(Exception):
    """A file and a directory have the same name; an index sorts that out."""


def _write_folder(
    repository: Repository, tree: str | None, items: Mapping[str, TreeItem | None]
) -> str | None:
    """Write the tree of one folder; *items* are named from there. Return None where nothing is left in it."""
    known = read_trees(repository.common, [tree])[tree] if tree else ()
    entries = {entry.name: entry for entry in known}
    inner: dict[str, dict[str, TreeItem | None]] = {}
    for path, item in items.items():
        name, is_inside, rest = path.partition("/")
        if is_inside:
            inner.setdefault(name, {})[rest] = item
        else:
            _put(entries, name, item)
    for name, below in inner.items():
        old = entries.get(name)
        if old is not None and old.mode != TREE_MODE:
            raise _InTheWay
        written = _write_folder(repository, old.object if old else None, below)
        _put(entries, name, TreeItem(TREE_MODE, written) if written else None)
    return write_tree(repository.common, entries.values()) if entries else None


def _put(entries: dict[str, TreeEntry], name: str, item: TreeItem | None) -> None:
    entries.pop(name, None)
    if item is not None:
        entries[name] = TreeEntry(item.mode, name, item.blob)


def _empty_tree(repository: Repository) -> str:
    return repository.git("mktree", stdin=b"")


def _write_by_index(repository: Repository, tree: str, items: Mapping[str, TreeItem | None]) -> str:
    gone = [f"0 {'0' * len(tree)}\t{path}\0" for path, item in items.items() if item is None]
    put = [f"{item.mode} {item.blob}\t{path}\0" for path, item in items.items() if item is not None]
    with TemporaryDirectory(prefix="liza-index-") as place:
        index = {"GIT_INDEX_FILE": str(Path(place) / "index")}
        repository.git("read-tree", tree, environment=index)
        # What goes, goes first: a file may come where a directory was.
        lines = encode_git("".join([*gone, *put]))
        repository.git("update-index", "-z", "--index-info", stdin=lines, environment=index)
        return repository.git("write-tree", environment=index)


# What differs between two trees: paths, sizes of the change and its lines, with one call of git.
#
# No file of either tree can hide anything: no attribute, filter, external program or textconv is asked.

LINK: Final = "120000"
REPOSITORY: Final = "160000"
EXECUTABLE: Final = "100755"
NO_MODE: Final = "000000"  # the mode of a path that is not there

_DIFF_OPTIONS: Final = ("-r", "-z", "-M", "--raw", "--numstat", "--patch", "--unified=0", "--full-index")
_PATCH_OPTIONS: Final = ("-r", "-z", "-M", "--raw", "--patch", "--unified=3", "--full-index")
_TEXT_OPTIONS: Final = ("-r", "-M", "--patch")
_BINARY_OPTIONS: Final = ("-r", "--patch", "--binary", "--full-index", "--no-renames")
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


def diff_text(repository: Repository, base: str, head: str) -> str:
    """Return what *head* has otherwise than *base* as a patch to read, whatever tools the user's git has."""
    return decode_git(_ask_diff(repository, _TEXT_OPTIONS, base, head)).removesuffix("\n")


def binary_patch(repository: Repository, base: str, head: str) -> bytes:
    """Return what *head* has otherwise than *base* as a patch that `git apply` takes."""
    return _ask_diff(repository, _BINARY_OPTIONS, base, head)


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
