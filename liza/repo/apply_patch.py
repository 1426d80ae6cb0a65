"""A patch that an agent wrote as text, put into its worktree whole or not at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.repo.command import encode_git

if TYPE_CHECKING:
    from liza.repo.worktree import Worktree

EMPTY: Final = "the patch is empty"
_LONGEST: Final = 500  # characters of what git says that are kept


def apply_patch(worktree: Worktree, patch: str) -> str | None:
    """Apply *patch* to the files; return why it does not apply, after which nothing is changed."""
    if not patch.strip():
        return EMPTY
    answer = worktree.ask("apply", "--whitespace=nowarn", "-", stdin=encode_git(patch))
    if answer.code == 0:
        return None
    return f"the patch does not apply: {' '.join(answer.said.split())[:_LONGEST]}"
