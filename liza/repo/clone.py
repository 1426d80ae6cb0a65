"""A second repository with the same history, isolated from the first."""

from __future__ import annotations

from pathlib import Path

from liza.repo.command import encode_git, git
from liza.repo.repository import Repository


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
