"""What moved while an agent ran that is not the agent's to move: your things, and those of other tasks.

What others of Liza's own do meanwhile is no drift. It is on the board: a task that somebody is at work on may
move its branch, and the integration branch moves by merges that were announced there.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from liza.lifecycle import TERMINAL
from liza.model import State, Status
from liza.repo.fingerprint import Fingerprint, drift, fingerprint
from liza.repo.pool import Worktrees
from liza.repo.repository import BRANCHES, TASKS, Repository, branch_of
from liza.repo.trespass import trespasses

if TYPE_CHECKING:
    from collections.abc import Iterator

    from liza.board.protocol import Board


class Sight(NamedTuple):
    """A look: the board as it was, then the repository, and when the look was over."""

    state: State
    print: Fingerprint
    at: float


@dataclass
class Lookout:
    """Compares what is with what was at the look before; each look serves as the next one's before."""

    board: Board
    repository: Repository
    last: Sight | None = None

    def begin(self) -> None:
        """Look, unless there was a look at the end of a run just before."""
        self.last = self.last or self._look()

    def _look(self, since: Fingerprint | None = None) -> Sight:
        # The board first: what happens in between is then seen as having happened after.
        return Sight(self.board.read(), fingerprint(self.repository, since=since), time.time())

    def moved(self, task: str | None, integration: str, *, is_caged: bool) -> list[str]:
        """Return what moved since the last look, without what *task* and the others of Liza's may."""
        before = self.last or self._look()
        self.last = after = self._look(before.print)
        now = self.board.read()
        resting = _resting(before.state, now, but=task)
        refs = before.print.refs.keys() | after.print.refs.keys()
        allowed = [ref for ref in refs if _is_of_a_task(ref, resting)]
        if is_caged or not after.print.looked or self._is_announced(before, after, now, integration):
            allowed.append(integration)
        found = [str(one) for one in drift(before.print, after.print, allowed)]
        if is_caged:
            return found
        return found + trespasses(Worktrees(self.repository), resting, since=before.at)

    def _is_announced(self, before: Sight, after: Sight, now: State, integration: str) -> bool:
        """Tell whether the integration branch only went on by merges that the board knows."""
        old, new = before.print.refs.get(integration), after.print.refs.get(integration)
        if old == new or before.state.archived != now.archived:  # what was archived is not told here
            return True
        if not old or not new or not self.repository.contains(new, old):
            return False
        chain = self.repository.git("rev-list", "--first-parent", f"{old}..{new}").split()
        return set(chain) <= set(_merges(now))


def _merges(state: State) -> Iterator[str]:
    for task in state.tasks.values():
        if task.merging:
            yield task.merging.commit
        if task.merge_commit:
            yield task.merge_commit


def _is_of_a_task(ref: str, resting: frozenset[str]) -> bool:
    return ref.startswith(f"{BRANCHES}{TASKS}/") and ref not in {branch_of(task) for task in resting}


def _resting(before: State, after: State, *, but: str | None) -> frozenset[str]:
    """Return the tasks that nobody was at work on meanwhile: nothing of theirs has any reason to move."""
    return frozenset(
        name
        for name, task in before.tasks.items()
        if name != but
        and task == after.tasks.get(name)
        and task.status not in TERMINAL
        and task.status is not Status.WORKING
    )
