"""What was published of a branch: later work goes on from it, so that nothing of it is ever taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.errors import GitFailed

if TYPE_CHECKING:
    from datetime import datetime

    from liza.repo.repository import Repository

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
