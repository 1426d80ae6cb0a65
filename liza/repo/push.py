"""Publishes a commit as a branch of another repository; what others pushed there is never overwritten."""

from __future__ import annotations

from typing import Final

from liza.errors import GitFailed
from liza.repo.command import ask
from liza.repo.repository import BRANCHES, Repository

LIMIT: Final = 300.0  # seconds; a first push of a large repository takes minutes
_OVERTAKEN: Final = ("non-fast-forward", "fetch first", "stale info")


def push_branch(
    repository: Repository, remote: str, branch: str, commit: str, credentials: str | None = None
) -> None:
    """Point *branch* of *remote* at *commit*; *credentials* is the program that git asks for a login.

    It may be called again: a branch that is there already stays as it is.
    """
    # Liza's git has no credential helper; this one comes behind that setting, and so counts.
    helper = ("-c", f"credential.helper={credentials}") if credentials else ()
    words = ("push", "--porcelain", "--no-verify", "--end-of-options", remote, f"{commit}:{BRANCHES}{branch}")
    environment = {"GIT_DIR": str(repository.common)}
    answer = ask(*helper, *words, cwd=repository.common, environment=environment, limit=LIMIT)
    if answer.code == 0:
        return
    said = f"{answer.text}\n{answer.said}"
    if any(word in said for word in _OVERTAKEN):
        raise GitFailed(
            "push",
            f"{branch} at {remote} has commits of somebody else; merge them, or delete that branch",
        )
    raise GitFailed("push", answer.said or answer.text)
