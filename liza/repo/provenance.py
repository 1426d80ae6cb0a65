"""Where a file's content comes from: what tasks brought to the integration branch is an agent's."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from liza.repo.repository import Repository


def blobs_by_agents(
    repository: Repository, path: str, *, base: str, ref: str, yours: Iterable[str] = ()
) -> frozenset[str]:
    """Return the blobs of *path* that merged tasks wrote on *ref* after *base*.

    Commits in *yours*, and what they merged, are a person's.
    """
    own = set(yours)
    sides = [side for one in own if (side := repository.commit_at(f"{one}^2"))]
    words = ("log", "-m", "--full-history", "--raw", "--no-abbrev", "--no-renames", "--format=%H")
    span = (f"{base}..{ref}", *(f"^{side}" for side in sides))
    answer = repository.ask(*words, *span, "--", path)
    found, commit = set(), ""
    for line in answer.text.splitlines() if answer.code == 0 else ():
        if line.startswith(":"):
            found |= {line.split(" ")[3]} if commit not in own else set()
        elif line:
            commit = line
    return frozenset(blob for blob in found if blob.strip("0"))
