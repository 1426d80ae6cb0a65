"""The refs of the remote that hosts share, and who may push what: rules over the board alone.

The hook asks them in a process of its own for each push, so nothing is imported here that takes long to load:
the rules are over the few facts of a board that they need.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

INTEGRATION_BRANCH: Final = "liza/integration"  # where the settings name no other
HEADS: Final = "refs/heads/"
SUBMISSIONS: Final = f"{HEADS}liza/"  # below it: <task>/<digest of the token>
SALVAGES: Final = "refs/liza/salvage/"
DIGEST_LENGTH: Final = 16  # hexadecimal digits of the digest by which a ref names a token
TOO_LATE: Final = "so that the push comes too late"
_IN_PLACE: Final = ".task"  # behind a task that is called as the integration branch is
# Words of the lifecycle, whose table takes most of the time of a push to load. A test compares them.
MERGEABLE: Final = "APPROVED"
ENDED: Final = frozenset({"MERGED", "COMPLETE", "NOTHING_TO_DO", "SUPERSEDED", "ABANDONED"})


class RefUpdate(NamedTuple):
    """What a push wants, as git says it to a hook: zeros stand for nothing."""

    old: str
    new: str
    ref: str

    @property
    def is_new(self) -> bool:
        return not self.old.strip("0")

    @property
    def is_deletion(self) -> bool:
        return not self.new.strip("0")


class LeaseFacts(NamedTuple):
    holder: str
    token: str
    expires: datetime


class MergeFacts(NamedTuple):
    onto: str
    commit: str


class TaskFacts(NamedTuple):
    status: str
    lease: LeaseFacts | None = None
    merging: MergeFacts | None = None


class RefFacts(NamedTuple):
    """What the rules ask of a board."""

    integration: str  # the name of the branch
    base: str | None  # where that branch was before the first merge
    tasks: Mapping[str, TaskFacts]
    archived: Mapping[str, str]


def token_digest(token: str) -> str:
    """Return by what a ref names the lease of *token*, which is a secret."""
    return hashlib.sha256(f"liza {token}".encode()).hexdigest()[:DIGEST_LENGTH]


def task_folder(task: str, integration: str) -> str:
    """Return the folder of the submissions of *task*; git has no room for one in place of a branch."""
    name = f"{SUBMISSIONS}{task}"
    return f"{name}{_IN_PLACE}/" if name == f"{HEADS}{integration}" else f"{name}/"


def why_refused(facts: RefFacts, update: RefUpdate, now: datetime) -> str | None:
    """Return why the board does not allow *update* at the moment *now*; None where it does."""
    if update.ref == f"{HEADS}{facts.integration}":
        return _why_not_integrated(facts, update, now)
    if update.ref.startswith(SALVAGES):
        return None if update.is_new else "what was saved is neither changed nor deleted"
    if update.ref.startswith(SUBMISSIONS):
        return _why_not_submitted(facts, update, now)
    return None


def _why_not_integrated(facts: RefFacts, update: RefUpdate, now: datetime) -> str | None:
    name = facts.integration
    if update.is_deletion:
        return f"{name} has what was merged and is not deleted"
    if update.is_new:
        return None if facts.base in {None, update.new} else f"{name} begins at {facts.base}"
    for task_id, task in facts.tasks.items():
        if (wanted := task.merging) and wanted.commit == update.new:
            if wanted.onto != update.old:
                return f"{task_id} was tested on {wanted.onto[:12]}, and {name} is at {update.old[:12]}"
            if task.status != MERGEABLE or not _is_held(task, now):
                return f"{task_id}: whoever merges it let its lease run out; the push comes too late"
            return None
    return f"no task of the board is being merged as {update.new[:12]}, and {name} moves by merges alone"


def _is_held(task: TaskFacts, now: datetime) -> bool:
    return task.lease is not None and now < task.lease.expires


def _why_not_submitted(facts: RefFacts, update: RefUpdate, now: datetime) -> str | None:
    folder, _, digest = update.ref.rpartition("/")
    name = _task_in(facts, f"{folder}/")
    if name is None:
        return f"{folder.removeprefix(SUBMISSIONS)} is no task of the board"
    task = facts.tasks.get(name)
    if update.is_deletion:
        if task is None or task.status in ENDED:
            return None
        return f"{name} is {task.status}, and its work is needed"
    if task is None or task.lease is None:
        return f"{name}: nobody holds it now, {TOO_LATE}"
    if token_digest(task.lease.token) != digest:
        return f"{name}: {task.lease.holder} holds it now, {TOO_LATE}"
    return None if _is_held(task, now) else f"{name}: its lease ran out, {TOO_LATE}"


def _task_in(facts: RefFacts, folder: str) -> str | None:
    """Return the task whose submissions are in *folder*."""
    names = (*facts.tasks, *facts.archived)
    return next((name for name in names if task_folder(name, facts.integration) == folder), None)
