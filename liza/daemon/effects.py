"""What the daemon does when work moves on; no agent does any of it.

An effect is intended on the board, then performed, then the move that asks for it is written down. It may
be performed again where a worker died in between: each finds what it did before. Where it is not wanted any
more by then, it is taken back as far as others see it. What came of it is told in the history.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.daemon.forge_effects import Delivery, ensure_draft, finalize, retract
from liza.daemon.idea_outcome import TriedIdea, write_outcome
from liza.daemon.sources import IDEA_SOURCE
from liza.repo.worktree import write_text_whole
from liza.workflow.document import Effect
from liza.workflow.load import workflow_on

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime
    from pathlib import Path

    from liza.domain.model import State, Task
    from liza.repo.pool import Worktrees

SUMMARIES: Final = "summaries"  # below .liza
FINISHED: Final = "finished"  # below .liza


class EffectPlace(NamedTuple):
    """Where effects are performed, and on what: the commit that was made or judged, and its marks."""

    home: Path
    worktrees: Worktrees
    at: datetime
    state: State
    after: Task
    commit: str | None = None
    taints: tuple[str, ...] = ()

    def delivery(self, task: Task) -> Delivery:
        return Delivery(self.state, self.home.parent, task, self.at, self.commit, self.taints)


class EffectPerformer(NamedTuple):
    """A row: what performs the effect and returns what came of it, and what it is for."""

    perform: Callable[[EffectPlace, Task], str]
    meaning: str


def _write_summary(place: EffectPlace, task: Task) -> str:
    if workflow_on(place.state).tasks.source == IDEA_SOURCE:
        return write_outcome(TriedIdea(place.home, place.worktrees.repository, place.state, place.after))
    return _write(place, task, SUMMARIES)


def _archive(place: EffectPlace, task: Task) -> str:
    return _write(place, task, FINISHED)


def _write(place: EffectPlace, task: Task, folder: str) -> str:
    path = place.home / folder / f"{task.id}.json"
    told = {key: value for key, value in task.to_json().items() if key != "lease"}
    write_text_whole(path, json.dumps(told, indent=1) + "\n")
    return f"written to .liza/{folder}/{path.name}"


def _cleanup_worktree(place: EffectPlace, task: Task) -> str:
    trees = place.worktrees
    worktree = trees.worktree_at(trees.path_of(task.id))
    if worktree is None:
        return "there is no worktree"
    if place.state.config.experiment.keep_worktrees:
        return f"the worktree is kept in {worktree.path.name}"
    trees.release(task.id, at=place.at)
    return "the worktree is gone; its branch is kept"


def _ensure_draft_pr(place: EffectPlace, task: Task) -> str:
    return ensure_draft(place.delivery(task))


def _finalize_pr(place: EffectPlace, task: Task) -> str:
    return finalize(place.delivery(task))


PERFORMERS: Final[dict[Effect, EffectPerformer]] = {
    Effect.WRITE_SUMMARY: EffectPerformer(_write_summary, "the task as JSON; of an idea, all its files"),
    Effect.ARCHIVE: EffectPerformer(_archive, "the same, of what succeeded"),
    Effect.CLEANUP_WORKTREE: EffectPerformer(_cleanup_worktree, "the worktree goes; its branch stays"),
    Effect.ENSURE_DRAFT_PR: EffectPerformer(_ensure_draft_pr, "a draft of the change on the forge"),
    Effect.FINALIZE_PR: EffectPerformer(_finalize_pr, "the draft is shown as ready"),
    Effect.MARK_NOMERGE: EffectPerformer(_finalize_pr, "the draft says that a person has to look"),
}


def take_back(place: EffectPlace, task: Task, wanted: tuple[Effect, ...]) -> dict[str, str]:
    """Take back what began for *task* before a crash and is not *wanted* any more; return what came of it."""
    begun = task.intended.effects if task.intended else ()
    if Effect.FINALIZE_PR not in begun or Effect.FINALIZE_PR in wanted:
        return {}
    return {str(Effect.FINALIZE_PR): retract(place.delivery(task))}


def perform(place: EffectPlace, task: Task, effects: tuple[Effect, ...]) -> dict[str, str]:
    """Perform *effects* one after the other; return what came of each."""
    return {str(effect): PERFORMERS[effect].perform(place, task) for effect in effects}
