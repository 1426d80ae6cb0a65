"""Code on its way between hosts: where the settings name a remote, work is fetched and published through it.

A remote that fails loses nothing: what was made stays on its host, people are told once, and it is tried
again after a while. Without a remote nothing of this is used.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from liza.domain.record import printable
from liza.errors import DiskTrouble, RemoteTrouble
from liza.repo.pool import Worktrees
from liza.repo.repository import BRANCHES, branch_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.domain.config import Config
    from liza.domain.model import Task
    from liza.repo.repository import Repository
    from liza.repo.shared_remote import SharedRemote

FIRST_PAUSE: Final = 1.0  # seconds after which a remote that failed is tried again; it doubles each time
LONGEST_PAUSE: Final = 30.0  # seconds
RECENT_ALERTS: Final = 2000  # how far back it is looked whether people were told already
TOLD_FOR: Final = timedelta(minutes=10)  # in which nobody is told the same of a remote again
GOES_ON: Final = "the work waits on its host and goes on once that is over"

log = logging.getLogger(__name__)


def shared_remote(repository: Repository, config: Config) -> SharedRemote | None:
    """Return the remote through which hosts exchange work, where the settings name one."""
    if config.remote is None:
        return None
    from liza.repo.shared_remote import SharedRemote  # noqa: PLC0415 - few boards have one

    return SharedRemote(repository, config.remote, config.integration_branch)


def integration_ref(repository: Repository, config: Config) -> str:
    """Return the full name of the ref that says where the integration branch is."""
    remote = shared_remote(repository, config)
    return remote.tracked if remote else BRANCHES + config.integration_branch


def begin_integration(repository: Repository, config: Config) -> None:
    """Make sure that the integration branch is there, on the remote if there is one, and free to move."""
    if remote := shared_remote(repository, config):
        # First: where others began, this clone follows.
        remote.begin(repository.commit_at(BRANCHES + config.integration_branch) or repository.head())
    repository.ensure_branch(config.integration_branch)


def retry_pause(failures: int) -> float:
    """Return for how many seconds a remote is left alone that failed *failures* times in a row."""
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** max(0, failures - 1)))


@dataclass
class CodeExchange:
    """What one worker fetches and publishes, and how often in a row that failed."""

    repository: Repository
    board: Board
    failures: int = 0
    told: str = ""  # what people were told of the failures, without what git said

    def fetch(self, config: Config, *tasks: str) -> None:
        """Bring here what other hosts merged, and what they handed in of *tasks*."""
        if remote := shared_remote(self.repository, config):
            remote.fetch(tasks)
            self.failures = 0

    def fetch_missing(self, config: Config, task: Task) -> None:
        """Bring the commits here that the board names of *task* and that another host made."""
        named = [commit for commit in (task.base_commit, task.review_commit) if commit]
        if any(self.repository.commit_at(commit) is None for commit in named):
            self.fetch(config, task.id)

    def bring_branch(self, config: Config, task: Task, *, at: datetime) -> None:
        """Move the local branch of *task* to its last submission, from whichever host."""
        commit = task.review_commit
        if config.remote is None or commit is None or self.repository.contains(branch_of(task.id), commit):
            return
        # What is there is of an earlier try, and is saved first.
        Worktrees(self.repository).renew(task.id, commit, at=at)

    def publish_work(
        self, config: Config, task: str, token: str, commit: str, *, wait: Callable[[float], bool]
    ) -> None:
        """Let every host have *commit* before the board names it; repeat it until *wait* says to give up."""
        remote = shared_remote(self.repository, config)
        while remote:
            try:
                remote.publish_work(task, token, commit)
            except RemoteTrouble as error:
                log.info("%s: not published yet: %s", task, error)
                if not wait(self.note_failure(error)):
                    raise
            else:
                self.failures = 0
                return

    def publish_salvages(self, config: Config) -> None:
        """Let every host have what was saved here; what cannot be sent now is sent later."""
        if remote := shared_remote(self.repository, config):
            with suppress(RemoteTrouble, DiskTrouble):
                remote.publish_salvages()

    def note_failure(self, error: RemoteTrouble) -> float:
        """Tell people that the remote fails, once for all hosts; return for how long to leave it alone."""
        # What git says behind the bracket may differ from try to try.
        first = printable(str(error)).partition(" (")[0]
        if first != self.told or not self.failures:
            self.told = first
            if not self._was_told(first):
                sentence = f"{printable(str(error))}; {GOES_ON}"
                log.warning("%s", sentence)
                self.board.alerts.append(sentence, at=self.board.now())
        self.failures += 1
        return retry_pause(self.failures)

    def _was_told(self, first: str) -> bool:
        alerts, since = self.board.alerts, f"{self.board.now() - TOLD_FOR:%Y-%m-%dT%H:%M:%SZ}"
        recent = alerts.after(max(0, alerts.end() - RECENT_ALERTS))
        return any(one.says.startswith(first) and one.at >= since for one in recent)
