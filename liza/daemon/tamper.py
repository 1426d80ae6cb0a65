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
from liza.domain.lifecycle import TERMINAL
from liza.domain.model import State, Status
from liza.domain.record import utc_now
from liza.errors import DiskTrouble
from liza.repo.fingerprint import Fingerprint, drift, fingerprint
from liza.repo.pool import Worktrees
from liza.repo.repository import BRANCHES, TASKS, Repository, branch_of
from liza.repo.trespass import links_of
from liza.repo.worktree import write
from liza.repo.worktree_locks import locked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.repo.verify import Link

SIGHT: Final = "sight.json"  # below .liza
LOCK: Final = "sight.lock"
IDLE: Final = "no agent was at work"
ASKED: Final = "the board asked for it"
DRIFTED: Final = "moved what is yours: "  # what the reason of a task says that was blocked for it
RESUMED: Final = "a person looked and resumed"


class Seen(NamedTuple):
    """What a look noticed: what only an agent does, what people do as well, and whose runs were going on."""

    stops: tuple[str, ...] = ()
    told: tuple[str, ...] = ()
    suspects: frozenset[str] = frozenset()
    strange: tuple[str, ...] = ()  # those of *stops* that are about commits on the integration branch


@dataclass(frozen=True)
class Sight:
    """What a look saw; *at_rest* counts the events of tasks that nobody held when it began."""

    print: Fingerprint
    links: Mapping[str, str]
    at_rest: Mapping[str, int]
    running: Mapping[str, str | None] = field(default_factory=dict)  # worker: its task
    strange: tuple[str, ...] = ()  # commits on the integration branch that people have to decide about

    def plain(self) -> dict[str, Any]:
        return {**vars(self), "print": self.print.plain()}


@dataclass
class Lookout:
    """The eyes of one worker, or of the supervisor; *task* is what its runs are about."""

    home: Path
    board: Board
    repository: Repository
    name: str
    task: str | None = None
    clock: Callable[[], datetime] = utc_now
    is_registered: bool = False
    _is_fresh: bool = False  # whether this very turn has looked just before

    def begin(self) -> Seen:
        """Note that a run of ours begins; look first, where nobody else's is going on."""
        if self.is_registered:
            return Seen()
        with locked(self.home / LOCK):
            before, state = self._last(), self.board.read()
            others = before and _alive(state, before.running, but=self.name)
            self.is_registered = True
            if before and (others or self._is_fresh):
                self._keep(before, running={**before.running, self.name: self.task})
                return Seen()
            return self._look(before, running={self.name: self.task})

    def end(self) -> Seen:
        """Look after a run of ours."""
        if not self.is_registered:
            return Seen()
        with locked(self.home / LOCK):
            before = self._last()
            self.is_registered, self._is_fresh = False, True
            if before is None:
                self._look(None, running={})
                return Seen((f"{self.home / SIGHT} was removed or spoilt",), (), frozenset({self.name}))
            others = _alive(self.board.read(), before.running, but=self.name)
            return self._look(before, running=others)

    def start(self) -> Seen:
        """Look before anybody runs: what a run that was killed left is told, and stops nobody by itself.

        But for commits on the integration branch: somebody has to say whose they are.
        """
        with locked(self.home / LOCK):
            seen = self._look(self._last(), running={})
        return seen._replace(stops=seen.strange, told=(*seen.told, *(set(seen.stops) - set(seen.strange))))

    def look(self) -> Seen:
        """Look while others go on."""
        with locked(self.home / LOCK):
            before = self._last()
            running = _alive(self.board.read(), before.running, but="") if before else {}
            return self._look(before, running=running)

    def accept(self) -> list[str]:
        """Take all that is as a person wants it to be; return what was taken on the integration branch."""
        with locked(self.home / LOCK):
            before = self._last()
            print_ = fingerprint(self.repository)
            running = before.running if before else {}
            after = Sight(print_, links_of(Worktrees(self.repository)), _at_rest(self.board.read()), running)
            state = self._based(after)
            head = print_.refs.get(self._integration(state))
            found = integration_tip.strangers(self.repository, self.home, state, head) if head else []
            self._keep(after)
        return [self._take(found, RESUMED)] if found else []

    def _look(self, before: Sight | None, *, running: Mapping[str, str | None]) -> Seen:
        # The board is read on both sides of the scan: who was at rest before it, and still is after it, was
        # at rest all the time. Whoever took a task meanwhile had every right to move what belongs to it.
        first = self.board.read()
        print_ = fingerprint(self.repository, since=before.print if before else None)
        after = Sight(print_, links_of(Worktrees(self.repository)), _at_rest(first), running)
        suspects = frozenset(before.running) if before else frozenset()
        if not print_.looked and before:
            # No git runs under a configuration that nobody has looked at, at this look or the next.
            self._keep(before, running=running)
            moved = tuple(map(str, drift(before.print, print_)))
            return Seen(moved, (), suspects)
        state = self._based(after)
        stops, told = self._compared(before, after, state) if before and suspects else ([], [])
        strange, taken = self._strangers(before, after, state, is_quiet=not suspects)
        self._keep(after, strange=tuple(link.commit for link in strange))
        news = [link for link in strange if not before or link.commit not in before.strange]
        named = (stranger_sentence(state, integration_tip.told(strange)),) if news else ()
        return Seen((*stops, *named), (*told, *taken), suspects, named)

    def _based(self, after: Sight) -> State:
        head = after.print.refs.get(self._integration(self.board.read()))
        return integration_tip.note_base(self.board, head, by=self.name) if head else self.board.read()

    def _compared(self, before: Sight, after: Sight, state: State) -> tuple[list[str], list[str]]:
        """Return what only an agent would do, and what a person may have done."""
        resting = {name for name, count in before.at_rest.items() if count == _at_rest(state).get(name)} - {
            self.task
        }
        refs = before.print.refs.keys() | after.print.refs.keys()
        own = [branch_of(task) for task in resting]
        allowed = [ref for ref in refs if ref.startswith(f"{BRANCHES}{TASKS}/") and ref not in own]
        integration = self._integration(state)
        moved = drift(before.print, after.print, [*allowed, integration])
        stops = [str(one) for one in moved if not one.may_be_yours]
        if after.print.looked:
            stops += self._set_back(before, after, integration)
        stops += [
            f".git in the worktree of {task} was touched"
            for task in sorted(resting & before.links.keys() & after.links.keys())
            if before.links[task] != after.links[task]
        ]
        return stops, [str(one) for one in moved if one.may_be_yours]

    def _set_back(self, before: Sight, after: Sight, ref: str) -> list[str]:
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

    def _strangers(
        self, before: Sight | None, after: Sight, state: State, *, is_quiet: bool
    ) -> tuple[list[Link], list[str]]:
        """Take what people put on the integration branch as theirs; return what is left, and what to say."""
        head = after.print.refs.get(self._integration(state))
        found = integration_tip.strangers(self.repository, self.home, state, head) if head else []
        if not found:
            return [], []
        if integration_tip.are_asked_for(self.repository, state, str(head)):
            return [], [self._take(found, ASKED)]
        known = before.strange if before else ()
        if is_quiet and not any(link.commit in known for link in found):
            return [], [self._take(found, IDLE)]
        return found, []

    def _take(self, found: list[Link], why: str) -> str:
        return integration_tip.take_as_yours(self.board, found, why, by=self.name, at=self.clock())

    def _integration(self, state: State) -> str:
        return BRANCHES + state.config.integration_branch

    def _last(self) -> Sight | None:
        with suppress(OSError, ValueError, TypeError, KeyError):
            plain = json.loads((self.home / SIGHT).read_text())
            return Sight(
                **{**plain, "print": Fingerprint(**plain["print"]), "strange": tuple(plain["strange"])}
            )
        return None

    def _keep(
        self,
        sight: Sight,
        *,
        running: Mapping[str, str | None] | None = None,
        strange: tuple[str, ...] | None = None,
    ) -> None:
        plain = sight.plain()
        plain["running"] = dict(sight.running if running is None else running)
        plain["strange"] = sight.strange if strange is None else strange
        try:
            write(self.home / SIGHT, json.dumps(plain))
        except OSError as error:
            raise DiskTrouble(f"write {self.home / SIGHT}", error) from error


def stranger_sentence(state: State, told: str) -> str:
    """Return that the integration branch has commits which nobody announced."""
    name = state.config.integration_branch
    return f"the branch {name} was changed: it has what no merge of the board made: {told}"


def _at_rest(state: State) -> dict[str, int]:
    """Return the tasks that nobody is at work on, by how much ever happened to them."""
    return {
        name: task.events_ever
        for name, task in state.tasks.items()
        if task.status not in TERMINAL and task.status is not Status.WORKING
    }


def _alive(state: State, running: Mapping[str, str | None], *, but: str) -> dict[str, str | None]:
    """Return those of *running* that the board still knows to be at work, without *but*."""
    held = {task.lease.holder for task in state.tasks.values() if task.lease}
    paid = {one.id for one in state.spend.reserved}
    return {name: task for name, task in running.items() if name != but and name in held | paid}
