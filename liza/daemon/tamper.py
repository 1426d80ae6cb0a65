"""What moved while agents ran without a sandbox that is not theirs to move: your things, and other tasks'.

Each look compares what is with what the last one saw, whoever looked then (`.liza/sight.json`), so that a
change is noticed once, and none falls between two. What others of Liza's own do meanwhile is no drift. It is
on the board: a task that somebody is at work on may move its branch, and the integration branch moves by
merges that were announced there. What moved while no run was going on is a person's doing. In a sandbox none
of this is in an agent's reach, and nobody looks.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from liza.daemon import integration_tip
from liza.daemon.sources import page_paths
from liza.domain.lifecycle import TERMINAL
from liza.domain.model import State, Status
from liza.domain.record import utc_now
from liza.errors import DiskTrouble
from liza.repo.fingerprint import Fingerprint, drift, take_fingerprint
from liza.repo.pool import Worktrees
from liza.repo.repository import BRANCHES, TASK_PREFIX, Repository, branch_of
from liza.repo.worktree import write_text_whole
from liza.repo.worktree_fingerprint import git_link_stamps
from liza.system.locks import hold_lock

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from datetime import datetime
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.repo.verify import ChainCommit

OBSERVATION_FILE: Final = "sight.json"  # below .liza
LOCK: Final = "sight.lock"
IDLE: Final = "no agent was at work"
ASKED: Final = "the board asked for it"
DRIFTED: Final = "moved what is yours: "  # what the reason of a task says that was blocked for it
RESUMED: Final = "a person looked and resumed"


class DriftReport(NamedTuple):
    """The result of a check: what only an agent does, what people may have done, and which workers were
    running.
    """

    stops: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    suspects: frozenset[str] = frozenset()
    strange: tuple[str, ...] = ()  # those of *stops* that are about commits on the integration branch


@dataclass(frozen=True)
class Observation:
    """What a check recorded; *at_rest* counts the events of tasks that nobody held when it began."""

    print: Fingerprint
    links: Mapping[str, str]
    at_rest: Mapping[str, int]
    running: Mapping[str, str | None] = field(default_factory=dict)  # worker: its task
    strange: tuple[str, ...] = ()  # commits on the integration branch that people have to decide about

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "print": self.print.to_json()}


@dataclass
class TamperMonitor:
    """Detects tampering for one worker or for the supervisor; *task* is the task of its runs."""

    home: Path
    board: Board
    repository: Repository
    name: str
    task: str | None = None
    clock: Callable[[], datetime] = utc_now
    is_registered: bool = False
    _is_fresh: bool = False  # whether this very turn has looked just before

    def begin(self) -> DriftReport:
        """Register a run of this worker; check first where no other worker is running."""
        if self.is_registered:
            return DriftReport()
        with hold_lock(self.home / LOCK):
            before, state = self._last_observation(), self.board.read()
            others = before and _running_workers(state, before.running, but=self.name)
            self.is_registered = True
            if before and (others or self._is_fresh):
                self._keep(before, running={**before.running, self.name: self.task})
                return DriftReport()
            return self._look(before, running={self.name: self.task})

    def end(self) -> DriftReport:
        """Check after a run of this worker."""
        if not self.is_registered:
            return DriftReport()
        with hold_lock(self.home / LOCK):
            before = self._last_observation()
            self.is_registered, self._is_fresh = False, True
            if before is None:
                self._look(None, running={})
                return DriftReport(
                    (f"{self.home / OBSERVATION_FILE} was removed or spoilt",), (), frozenset({self.name})
                )
            others = _running_workers(self.board.read(), before.running, but=self.name)
            return self._look(before, running=others)

    def start(self) -> DriftReport:
        """Look before anybody runs: what a run that was killed left is told, and stops nobody by itself.

        But for commits on the integration branch: somebody has to say whose they are.
        """
        with hold_lock(self.home / LOCK):
            seen = self._look(self._last_observation(), running={})
        return seen._replace(stops=seen.strange, told=(*seen.told, *(set(seen.stops) - set(seen.strange))))

    def look(self) -> DriftReport:
        """Check while other workers go on."""
        with hold_lock(self.home / LOCK):
            before = self._last_observation()
            running = _running_workers(self.board.read(), before.running, but="") if before else {}
            return self._look(before, running=running)

    def accept(self) -> list[str]:
        """Take all that is as a person wants it to be; return what was taken on the integration branch."""
        with hold_lock(self.home / LOCK):
            before = self._last_observation()
            print_ = take_fingerprint(self.repository)
            running = before.running if before else {}
            after = Observation(
                print_, git_link_stamps(Worktrees(self.repository)), _at_rest(self.board.read()), running
            )
            state = self._ensure_base(after)
            head = print_.refs.get(self._integration(state))
            found = integration_tip.unknown_commits(self.repository, self.home, state, head) if head else []
            self._keep(after)
        return [self._take(found, RESUMED)] if found else []

    def _look(self, before: Observation | None, *, running: Mapping[str, str | None]) -> DriftReport:
        # The board is read on both sides of the scan: who was at rest before it, and still is after it, was
        # at rest all the time. Whoever took a task meanwhile had every right to move what belongs to it.
        first = self.board.read()
        print_ = take_fingerprint(self.repository, since=before.print if before else None)
        after = Observation(print_, git_link_stamps(Worktrees(self.repository)), _at_rest(first), running)
        suspects = frozenset(before.running) if before else frozenset()
        if not print_.looked and before:
            # No git runs under a configuration that nobody has looked at, at this look or the next.
            self._keep(before, running=running)
            moved = tuple(map(str, drift(before.print, print_)))
            return DriftReport(moved, (), suspects)
        state = self._ensure_base(after)
        stops, told = self._compare(before, after, state) if before and suspects else ([], [])
        strange, taken = self._adopt_unknown(before, after, state, is_quiet=not suspects)
        self._keep(after, strange=tuple(link.commit for link in strange))
        news = [link for link in strange if not before or link.commit not in before.strange]
        named = (unknown_commits_sentence(state, integration_tip.commit_list(strange)),) if news else ()
        return DriftReport((*stops, *named), (*told, *taken), suspects, named)

    def _ensure_base(self, after: Observation) -> State:
        head = after.print.refs.get(self._integration(self.board.read()))
        return integration_tip.note_base(self.board, head, by=self.name) if head else self.board.read()

    def _compare(self, before: Observation, after: Observation, state: State) -> tuple[list[str], list[str]]:
        """Return what only an agent would do, and what a person may have done."""
        resting = {name for name, count in before.at_rest.items() if count == _at_rest(state).get(name)} - {
            self.task
        }
        refs = before.print.refs.keys() | after.print.refs.keys()
        theirs = [branch_of(task) for task in resting]
        allowed = [ref for ref in refs if ref.startswith(f"{BRANCHES}{TASK_PREFIX}/") and ref not in theirs]
        integration = self._integration(state)
        own = page_paths(state)  # the supervisor looks after these
        moved = [
            one
            for one in drift(before.print, after.print, [*allowed, integration])
            if not _is_of(one.ref, own)
        ]
        stops = [str(one) for one in moved if not one.may_be_yours]
        if after.print.looked:
            stops += self._lost_commits(before, after, integration)
        stops += [
            f".git in the worktree of {task} was touched"
            for task in sorted(resting & before.links.keys() & after.links.keys())
            if before.links[task] != after.links[task]
        ]
        return stops, [str(one) for one in moved if one.may_be_yours]

    def _lost_commits(self, before: Observation, after: Observation, ref: str) -> list[str]:
        """Return that the integration branch lost something; what it gained is looked at by itself."""
        old, new = before.print.refs.get(ref), after.print.refs.get(ref)
        name = f"the branch {ref.removeprefix(BRANCHES)}"
        if not old or old == new:
            return []
        if not new:
            return [f"{name} was removed: {old[:12]}, now nothing"]
        if not self.repository.contains(new, old):
            return [f"{name} was changed: {old[:12]}, now {new[:12]}"]
        return []

    def _adopt_unknown(
        self, before: Observation | None, after: Observation, state: State, *, is_quiet: bool
    ) -> tuple[list[ChainCommit], list[str]]:
        """Take what people put on the integration branch as theirs; return what is left, and what to say."""
        head = after.print.refs.get(self._integration(state))
        found = integration_tip.unknown_commits(self.repository, self.home, state, head) if head else []
        if not found:
            return [], []
        if integration_tip.is_requested_resolution(self.repository, state, str(head)):
            return [], [self._take(found, ASKED)]
        known = before.strange if before else ()
        if is_quiet and not any(link.commit in known for link in found):
            return [], [self._take(found, IDLE)]
        return found, []

    def _take(self, found: list[ChainCommit], why: str) -> str:
        return integration_tip.record_human_commits(self.board, found, why, by=self.name, at=self.clock())

    def _integration(self, state: State) -> str:
        return BRANCHES + state.config.integration_branch

    def _last_observation(self) -> Observation | None:
        with suppress(OSError, ValueError, TypeError, KeyError):
            plain = json.loads((self.home / OBSERVATION_FILE).read_text())
            return Observation(
                **{**plain, "print": Fingerprint(**plain["print"]), "strange": tuple(plain["strange"])}
            )
        return None

    def _keep(
        self,
        sight: Observation,
        *,
        running: Mapping[str, str | None] | None = None,
        strange: tuple[str, ...] | None = None,
    ) -> None:
        plain = sight.to_json()
        plain["running"] = dict(sight.running if running is None else running)
        plain["strange"] = sight.strange if strange is None else strange
        try:
            write_text_whole(self.home / OBSERVATION_FILE, json.dumps(plain))
        except OSError as error:
            raise DiskTrouble(f"write {self.home / OBSERVATION_FILE}", error) from error


def unknown_commits_sentence(state: State, told: str) -> str:
    """Return that the integration branch has commits which nobody announced."""
    name = state.config.integration_branch
    return f"the branch {name} was changed: it has what no merge of the board made: {told}"


def _is_of(path: str, own: Collection[str]) -> bool:
    return any(path == one or path.startswith(f"{one}/") for one in own)


def _at_rest(state: State) -> dict[str, int]:
    """Return the tasks that nobody is at work on, by how much ever happened to them."""
    return {
        name: task.event_count
        for name, task in state.tasks.items()
        if task.status not in TERMINAL and task.status is not Status.WORKING
    }


def _running_workers(state: State, running: Mapping[str, str | None], *, but: str) -> dict[str, str | None]:
    """Return those of *running* that the board still knows to be at work, without *but*."""
    held = {task.lease.holder for task in state.tasks.values() if task.lease}
    paid = {one.id for one in state.spend.reserved}
    return {name: task for name, task in running.items() if name != but and name in held | paid}
