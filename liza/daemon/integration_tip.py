"""The integration branch as the board knows it: merges of tasks, commits that people made, and strangers.

A commit on the branch is known where the board was told of it, or where the board's own key signed it. All
others are strangers: somebody put them there. In a sandbox no agent can, so that they are a person's. Without
one they are a person's where no agent was at work, or where the board itself had asked for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from liza.daemon.policy.reviewer import is_retriable
from liza.domain.changes import Change
from liza.domain.model import PersonCommit, Status
from liza.domain.record import printable
from liza.repo.signing import ensure_key
from liza.repo.trailers import single_line
from liza.repo.verify import ChainCommit, first_parent_chain

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.domain.model import State
    from liza.repo.repository import Repository


TAKEN_AS_YOURS: Final = "taken as yours, on the integration branch: "


def note_base(board: Board, head: str, *, by: str) -> State:
    """Write down where the integration branch is before this board merges anything, once."""
    state = board.read()
    if state.integration.base is not None:
        return state

    def make(latest: State) -> State:
        known = latest.integration
        return latest if known.base else latest.replace(integration=known.replace(base=head))

    return board.update(Change(by, "note where the integration branch begins", make))


def known_commits(state: State) -> frozenset[str]:
    """Return the commits on the integration branch that the board was told of."""
    merging = (task.merging.commit for task in state.tasks.values() if task.merging)
    merged = (task.merge_commit for task in state.tasks.values() if task.merge_commit)
    yours = (one.commit for one in state.integration.yours)
    return frozenset([*merging, *merged, *yours, *filter(None, [state.integration.base])])


def unknown_commits(repository: Repository, home: Path, state: State, head: str) -> list[ChainCommit]:
    """Return the commits below *head* that neither the board nor its key knows, oldest first."""
    known = known_commits(state)
    if head in known or state.integration.base is None:
        return []
    key = ensure_key(home)
    chain = first_parent_chain(repository, head, state.integration.base)
    return [link for link in chain if link.commit not in known and not link.is_signed_with(key)]


def is_requested_resolution(repository: Repository, state: State, head: str) -> bool:
    """Return whether *head* has the work of a task whose conflict the board asks people to resolve."""
    asked = (
        task
        for task in state.tasks.values()
        if is_retriable(task) or (task.status is Status.APPROVED and task.conflicted)
    )
    return any(repository.contains(head, str(task.review_commit)) for task in asked)


def record_human_commits(
    board: Board, found: Iterable[ChainCommit], why: str, *, by: str, at: datetime
) -> str:
    """Record that people made the commits *found*; return the sentence to tell them."""
    new = tuple(found)

    def make(state: State) -> State:
        known = {one.commit for one in state.integration.yours}
        more = tuple(
            PersonCommit(commit=link.commit, at=at, why=why) for link in new if link.commit not in known
        )
        yours = (*state.integration.yours, *more)
        return state.replace(integration=state.integration.replace(yours=yours)) if more else state

    board.update(Change(by, "take commits on the integration branch as yours", make))
    return f"{TAKEN_AS_YOURS}{commit_list(new)} ({why})"


def commit_list(found: Iterable[ChainCommit]) -> str:
    """Return *found* as a list of hashes and subjects."""
    return "; ".join(
        f"{link.commit[:12]} {single_line(printable(link.message.partition(chr(10))[0]))[:72]}".strip()
        for link in found
    )
