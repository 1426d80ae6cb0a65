"""The refs of the remote that hosts share, and who may push what: rules over the board alone."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain.lifecycle import TERMINAL
from liza.domain.model import Status

if TYPE_CHECKING:
    from datetime import datetime

    from liza.domain.model import State, Task

HEADS: Final = "refs/heads/"
SUBMISSIONS: Final = f"{HEADS}liza/"  # below it: <task>/<digest of the token>
SALVAGES: Final = "refs/liza/salvage/"
DIGEST_LENGTH: Final = 16  # hexadecimal digits of the digest by which a ref names a token
TOO_LATE: Final = "so that the push comes too late"
_IN_PLACE: Final = ".task"  # behind a task that is called as the integration branch is


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


def token_digest(token: str) -> str:
    """Return by what a ref names the lease of *token*, which is a secret."""
    return hashlib.sha256(f"liza {token}".encode()).hexdigest()[:DIGEST_LENGTH]


def task_folder(task: str, integration: str) -> str:
    """Return the folder of the submissions of *task*; git has no room for one in place of a branch."""
    name = f"{SUBMISSIONS}{task}"
    return f"{name}{_IN_PLACE}/" if name == f"{HEADS}{integration}" else f"{name}/"


def why_refused(state: State, update: RefUpdate, now: datetime) -> str | None:
    """Return why the board does not allow *update* at the moment *now*; None where it does."""
    integration = state.config.integration_branch
    if update.ref == f"{HEADS}{integration}":
        return _why_not_integrated(state, update, now)
    if update.ref.startswith(SALVAGES):
        return None if update.is_new else "what was saved is neither changed nor deleted"
    if update.ref.startswith(SUBMISSIONS):
        return _why_not_submitted(state, update, now)
    return None


def _why_not_integrated(state: State, update: RefUpdate, now: datetime) -> str | None:
    name = state.config.integration_branch
    if update.is_deletion:
        return f"{name} has what was merged and is not deleted"
    if update.is_new:
        base = state.integration.base
        return None if base in {None, update.new} else f"{name} begins at {base}"
    for task in state.tasks.values():
        if (wanted := task.merging) and wanted.commit == update.new:
            if wanted.onto != update.old:
                return f"{task.id} was tested on {wanted.onto[:12]}, and {name} is at {update.old[:12]}"
            if task.status is not Status.APPROVED or not _is_held(task, now):
                return f"{task.id}: whoever merges it let its lease run out; the push comes too late"
            return None
    return f"no task of the board is being merged as {update.new[:12]}, and {name} moves by merges alone"


def _is_held(task: Task, now: datetime) -> bool:
    return task.lease is not None and task.lease.is_live(now)


def _why_not_submitted(state: State, update: RefUpdate, now: datetime) -> str | None:
    folder, _, digest = update.ref.rpartition("/")
    name = _task_in(state, f"{folder}/")
    if name is None:
        return f"{folder.removeprefix(SUBMISSIONS)} is no task of the board"
    task = state.tasks.get(name)
    if update.is_deletion:
        is_over = task is None or task.status in TERMINAL
        return None if is_over else f"{name} is {state.status_of(name)}, and its work is needed"
    if task is None or task.lease is None:
        return f"{name}: nobody holds it now, {TOO_LATE}"
    if token_digest(task.lease.token) != digest:
        return f"{name}: {task.lease.holder} holds it now, {TOO_LATE}"
    return None if task.lease.is_live(now) else f"{name}: its lease ran out, {TOO_LATE}"


def _task_in(state: State, folder: str) -> str | None:
    """Return the task whose submissions are in *folder*."""
    integration = state.config.integration_branch
    names = (*state.tasks, *state.archived)
    return next((name for name in names if task_folder(name, integration) == folder), None)
