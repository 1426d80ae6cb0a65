"""The repository as a set of facts, and the one way in which Liza moves a ref.

Nothing here, or above it, writes to the user's checkout, index, HEAD or branches: what is asked of commits
and refs is asked of the shared git directory, where no checkout is in reach.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Final

from liza.errors import GitFailed, UnfitRepository, UsageError
from liza.repo.command import (
    LOCK_PATIENCE,
    NOTHING,
    QUICK_LIMIT,
    GitResult,
    ask,
    encode_git,
    git,
    git_version,
    top_level,
)
from liza.repo.object_reader import GitObject, find_objects, is_near_ancestor, write_commit
from liza.system.no_follow import first_line, stamp_of

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
        places = ask("rev-parse", *words, cwd=start).text.splitlines()
        if len(places) != len(words) - 1:  # no repository, or a line break in its path: that is told there
            places = git("rev-parse", *words, cwd=top_level(start)).splitlines()
        root, home, common = map(Path, places)
        return cls(root, home, common)

    @property
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
        return ask(*words, cwd=cwd or self.common, environment={**self._pins, **environment}, stdin=stdin)

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
            answer = ask(*words, cwd=self.common, environment=self._pins, limit=QUICK_LIMIT)
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
        return ask(*words, cwd=self.root, environment=pins)

    def contains(self, ref: str, commit: str) -> bool:
        """Say whether *commit* is reachable from *ref*; what does not exist contains nothing."""
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
        """Tell whether refs are kept in git's own database instead of files."""
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
            raise UsageError(f"{name!r} cannot name a branch; choose another `integration` in the settings")
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
