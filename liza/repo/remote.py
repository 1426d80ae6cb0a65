"""Branches of another repository: listed, fetched and published; nothing there is overwritten."""

from __future__ import annotations

from typing import Final

from liza.errors import GitFailed
from liza.repo.command import GitResult, ask
from liza.repo.repository import BRANCHES, Repository

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
    return ask(*helper, *words, cwd=repository.common, environment=environment, limit=LIMIT)
