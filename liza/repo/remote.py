"""Other repositories with the same history: branches are fetched and published, never overwritten."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.errors import GitFailed
from liza.repo.command import GitResult, ask_git, encode_git, git
from liza.repo.repository import BRANCHES, Repository

if TYPE_CHECKING:
    from datetime import datetime


# A second repository with the same history, isolated from the first.


def clone_repository(repository: Repository, root: Path, *, at: str) -> Repository:
    """Make a repository in *root* that borrows every object of *repository*, and check out *at*.

    It has none of the refs: what Liza calls its branches there must be free. It writes its own objects.
    """
    kind = repository.git("rev-parse", "--show-object-format")
    git(
        "init", "--quiet", f"--object-format={kind}", "--initial-branch=rehearsal", str(root), cwd=root.parent
    )
    clone = Repository.around(root)
    objects = repository.common / "objects"
    (clone.common / "objects" / "info" / "alternates").write_bytes(encode_git(f"{objects}\n"))
    git("reset", "--quiet", "--hard", at, cwd=root)
    return clone


# What was published of a branch: later work goes on from it, so that nothing of it is ever taken back.

PUBLISHED: Final = "refs/liza/published/"  # below it, what each branch was published as last
MESSAGE: Final = (
    "Go on from what was published before\n\nWhoever began this could not go on; its work is replaced."
)


def publishable(repository: Repository, branch: str, commit: str, *, at: datetime) -> str:
    """Return *commit* as it can be published as *branch*, and note that before anybody publishes it.

    Another coder that starts anew has a history of its own: a commit with both histories, and the tree of
    *commit*, joins them. What somebody else pushed is not joined: the push says so.
    """
    ref = f"{PUBLISHED}{branch}"
    last = repository.commit_at(ref)
    if last == commit or (last and repository.commit_at(f"{last}^2") == commit):
        return last  # it was published, or was about to be
    joined = commit
    if last and not repository.contains(commit, last):
        tree = repository.tree_of(commit)
        joined = repository.commit_tree(tree, parents=(last, commit), message=MESSAGE, at=at)
    if not repository.move_ref(ref, to=joined, expected=last, why=f"publish {branch}"):
        raise GitFailed("publish", f"somebody else publishes {branch} at this moment; try again")
    return joined


LIMIT: Final = 300.0  # seconds; a first push of a large repository takes minutes
FETCHED: Final = "refs/liza/remote/"  # where fetched branches are kept, away from the user's own
_OVERTAKEN: Final = ("non-fast-forward", "fetch first", "stale info")


def push_branch(
    repository: Repository, remote: str, branch: str, commit: str, credentials: str | None = None
) -> None:
    """Point *branch* of *remote* at *commit*; *credentials* is the program that git asks for a login.

    It may be called again: a branch that is there already stays as it is.
    """
    words = ("push", "--porcelain", "--no-verify", "--end-of-options", remote, f"{commit}:{BRANCHES}{branch}")
    answer = _ask(repository, words, credentials)
    if answer.code == 0:
        return
    if any(word in f"{answer.text}\n{answer.said}" for word in _OVERTAKEN):
        raise GitFailed(
            "push",
            f"{branch} at {remote} has commits of somebody else; merge them, or delete that branch",
        )
    raise GitFailed("push", answer.said or answer.text)


def remote_branches(repository: Repository, remote: str, credentials: str | None = None) -> tuple[str, ...]:
    """Return the names of the branches of *remote*."""
    answer = _ask(repository, ("ls-remote", "--heads", "--end-of-options", remote), credentials)
    if answer.code != 0:
        raise GitFailed("ls-remote", answer.said)
    return tuple(line.partition("\t")[2].removeprefix(BRANCHES) for line in answer.text.splitlines())


def fetch_branch(repository: Repository, remote: str, branch: str, credentials: str | None = None) -> str:
    """Fetch *branch* of *remote*, and return its commit; no branch of the user's is touched."""
    ref = f"{FETCHED}{branch}"
    flags = ("--no-tags", "--no-write-fetch-head", "--no-recurse-submodules", "--end-of-options")
    answer = _ask(repository, ("fetch", *flags, remote, f"+{BRANCHES}{branch}:{ref}"), credentials)
    commit = repository.commit_at(ref) if answer.code == 0 else None
    if commit is None:
        raise GitFailed("fetch", answer.said or f"{remote} has no branch {branch}")
    return commit


def _ask(repository: Repository, words: tuple[str, ...], credentials: str | None) -> GitResult:
    # Liza's git has no credential helper; this one comes behind that setting, and so counts.
    helper = ("-c", f"credential.helper={credentials}") if credentials else ()
    environment = {"GIT_DIR": str(repository.common)}
    return ask_git(*helper, *words, cwd=repository.root, environment=environment, limit=LIMIT)
