"""The cycle file beside the board: it grows with the board, and what people add becomes their word.

The board is the truth, and the page a rendering of it that only grows. What Liza wrote last is kept below
`.liza`, so that every other change is seen: an addition is an answer, a change further up pauses the run.
An agent without a sandbox reaches the page as well: what appears while one is at work is nobody's word.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from liza.daemon.policy.cycle_log import CycleLog
from liza.daemon.project_sandbox import is_sandboxed
from liza.domain.answers import issued_step
from liza.domain.changes import HUMAN, Change
from liza.domain.config import Switch
from liza.domain.cycle_archive import (
    ARCHIVE,
    FAIL,
    INSUFFICIENT,
    PAUSED,
    ArchiveNaming,
    CycleEnd,
    CycleName,
    archive_name,
    cycle_id,
    failure_summary,
    pause_summary,
)
from liza.domain.cycle_file import (
    UNCLEAR,
    Addition,
    CycleAnswer,
    CycleHead,
    HowToMerge,
    goal_in,
    read_addition,
    read_answer,
    render_entries,
    render_head,
)
from liza.domain.lifecycle import SUCCEEDED
from liza.domain.model import Outcome, Status
from liza.domain.record import NonEmptyStr, Record
from liza.domain.rules import RuleAction
from liza.errors import DiskTrouble, LizaError
from liza.repo.repository import diff_text
from liza.system.files import environment_mask, overwrite, write_new
from liza.system.host import host
from liza.workflow.document import SQUASH, workflow_on
from liza.workflow.transition import (
    accept_task,
    reject_task,
    reply,
    with_answer_noted,
)

if TYPE_CHECKING:
    from datetime import datetime

    from liza.board.protocol import Board
    from liza.domain.model import State, Task
    from liza.repo.repository import Repository
    from liza.workflow.document import Workflow, WorkflowPage


# The cycle file and its archives on disk; a person who saves at the same moment loses nothing.

_MODE: Final = 0o644


def read_page(path: Path) -> str | None:
    """Return the page; None where there is none."""
    try:
        return path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DiskTrouble(f"read {path}", error) from error


def publish_page(path: Path, text: str, last: str | None) -> str | None:
    """Write the page in place of the *last* one; return what a person saved meanwhile, which is put back.

    The caller then reads the addition, and publishes again.
    """
    found = read_page(path)
    if found != last:
        return found if found is not None else _write_first(path, text)
    if found is None:
        return _write_first(path, text)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(text.encode())
        draft.chmod(_MODE)
        return _swap(draft, path, found)
    except OSError as error:
        raise DiskTrouble(f"write {path}", error) from error
    finally:
        draft.unlink(missing_ok=True)


def _swap(draft: Path, path: Path, expected: str) -> str | None:
    if not host().exchange_names(draft, path):
        draft.replace(path)  # without an exchange, a save in this very moment is replaced
        return None
    saved = read_page(draft)
    if saved in {expected, None}:
        return None
    # Somebody saved between the look and the exchange: theirs goes back to its place.
    host().exchange_names(draft, path)
    return saved


def _write_first(path: Path, text: str) -> str | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return None if write_new(path, text) else read_page(path)
    except OSError as error:
        raise DiskTrouble(f"write {path}", error) from error


def archive_page(root: Path, text: str, name: CycleName, naming: ArchiveNaming, end: CycleEnd) -> Path:
    """Write an archive under a free name, unless the same text is archived under that name already."""
    folder = root / ARCHIVE
    content = text.encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken: set[str] = set()
        while True:
            path = folder / archive_name(name, naming, end, taken)
            if write_new(path, content) or path.read_bytes() == content:
                return path
            taken.add(path.name)
    except OSError as error:
        raise DiskTrouble(f"write an archive to {folder}", error) from error


MEMORY: Final = "cycle.json"  # below .liza
SET_ASIDE: Final = "set_aside"  # below .liza: pages that were not taken
NO_SQUASH: Final = (
    "work is merged with its commits, which the gates have seen; add `Approved` without `squash`"
)
TOO_EARLY: Final = "nothing asks for a yes or a no now; what you added is a note for the next worker"
_ASKING: Final = frozenset({Status.AWAITING_APPROVAL, Status.BLOCKED})
LONGEST_DIFF: Final = 20_000  # characters of a change that the page shows
# Seconds that a page has to stay as it is before it is read: many editors empty the file and write it then.
SETTLE: Final = 0.3


class PageMemory(Record):
    """What Liza knows of the page: all of it can be read again, but for what people did to it meanwhile."""

    goal: int = 0
    id: NonEmptyStr = "none"
    ids: tuple[str, ...] = ()
    text: str = ""  # the page as the board has it
    written: str | None = None  # what was written last, with what is not taken yet at its end
    loop: int = 0  # of its last entry
    known: int = 0  # events of the task that it tells of
    events: int = 0  # on the whole board, when the page was read last
    is_busy: bool = False  # somebody was at work then
    taken: str = ""  # an addition that the board has, and the page not yet
    told: str = ""  # a digest of the page that people were told of
    archived: tuple[str, ...] = ()


class CyclePage:
    """Keeps the page of a workflow that has one; called by the supervisor at every turn."""

    def __init__(
        self,
        board: Board,
        repository: Repository,
        *,
        alert: Callable[[str], None] | None = None,
        settle: float = SETTLE,
    ) -> None:
        """Keep the page of *board*; *alert* tells people what they have to know, and logs it."""
        self._board = board
        self._alert = alert or self._log_alert
        self._repository = repository
        self._settle = settle
        self._seen: tuple[object, ...] = ()
        self._changed: tuple[str | None, float] = (None, 0.0)  # the page at the last look, since when

    def sync(self) -> None:
        """Apply to the board what people added to the page, then write the page anew."""
        page = workflow_on(self._board.read()).page
        if page is None:
            return
        path = self._repository.root / page.path
        # The page first: who is at work when the board is read after it may have written what was found.
        found = read_page(path)
        if not self._is_settled(found):
            return
        state = self._board.read()
        thrown = Switch.PAUSE.name in self._board.switches.thrown()
        seen = (found, state.revision, thrown)
        if seen == self._seen:
            return
        before = self._memory(state, found)
        after = self._with_board(before, page, found, state)
        is_written = after is not None and self._publish(path, after, found)
        # Not as it is on disk by now: what somebody saved meanwhile was not looked at.
        self._seen = (after.written if after and is_written else found, state.revision, thrown)

    def _is_settled(self, found: str | None) -> bool:
        """Return whether nobody is in the middle of saving; what was there at the first look is taken."""
        now = time.monotonic()
        if found != self._changed[0]:
            self._changed = found, now
        is_known = not self._seen or found in {None, self._seen[0]}
        return is_known or now - self._changed[1] >= self._settle

    def _memory(self, state: State, found: str | None) -> PageMemory:
        """Return what is known of the page of this goal; a new goal begins a new one."""
        try:
            kept = PageMemory.model_validate_json((self._board.home / MEMORY).read_bytes())
        except (OSError, ValueError):
            kept = PageMemory()
        if kept.goal == state.goal.number:
            return kept
        name = cycle_id(state.goal.since, kept.ids)
        head = CycleHead(
            id=name, goal=state.goal.description, docs=tuple(filter(None, [state.goal.spec_ref]))
        )
        is_foreign = found is not None and found != kept.written
        if found is not None and is_foreign and goal_in(found) != state.goal.description:
            self._tell(
                f"the page of the cycle begins anew; the one that was there is kept in {self._save(found)}"
            )
        text = _masked(render_head(head))
        new = PageMemory(goal=state.goal.number, id=name, ids=(*kept.ids, name), text=text, written=found)
        self._keep(new)
        return new

    def _keep(self, memory: PageMemory) -> None:
        path = self._board.home / MEMORY
        try:
            overwrite(path, memory.model_dump_json())
        except OSError as error:
            raise DiskTrouble(f"write {path}", error) from error

    def _with_board(
        self, memory: PageMemory, page: WorkflowPage, found: str | None, state: State
    ) -> PageMemory | None:
        """Return the new page, with additions applied to the board; None where a person has to look first."""
        is_busy = any(task.lease for task in state.tasks.values())
        events = sum(task.event_count for task in state.tasks.values())
        is_quiet = not is_busy and not memory.is_busy and events == memory.events
        said, rest = "", ""
        addition = read_addition(found, memory.text) if found is not None else Addition()
        if found == memory.written:
            rest = addition.text  # what was said to be unclear waits until it is mended
        elif found is not None:
            if addition.problem is not None:
                if not self._may_rewrite(memory, page, found, addition.problem):
                    return None
            elif addition.text and not is_quiet and not is_sandboxed(state.config.sandbox):
                self._set_aside(memory, found, page, state)
            elif new := addition.text.removeprefix(memory.taken).strip():
                said, rest = self._take(memory, page, state, new)
                memory = memory.replace(taken=addition.text if said else memory.taken)
                self._keep(memory)
                state = self._board.read()
        after = self._with_entries(memory, state, said)
        kept = f"{after.text}\n{rest}\n" if rest else after.text
        return after.replace(written=kept, is_busy=is_busy, events=events)

    def _may_rewrite(self, memory: PageMemory, page: WorkflowPage, found: str, problem: str) -> bool:
        """Pause once for a page whose earlier part was edited; after `liza resume` it is set aside."""
        told = _digest(found)
        if memory.told != told:
            sentence = f"{page.path}: {problem}"
            self._board.switches.throw(Switch.PAUSE, f"{sentence}; then `liza resume`")
            self._log_alert(f"everybody pauses: {sentence}; then `liza resume`")  # the switch is said anyway
            self._keep(memory.replace(told=told))
            return False
        if Switch.PAUSE.name in self._board.switches.thrown():
            return False
        where = self._save(found)
        self._tell(f"{page.path} is as the board has it again; your page is kept in {where}")
        return True

    def _set_aside(self, memory: PageMemory, found: str, page: WorkflowPage, state: State) -> None:
        where = self._save(found)
        name = f"goal-{memory.goal}"
        task = state.tasks.get(name)
        is_consent = task is not None and task.status is not Status.BLOCKED and not task.asks_for_answer
        how = f"`liza task accept {name}`" if is_consent else f"`liza answer {name} …`"
        self._tell(
            f"what was added to {page.path} while agents were at work without a sandbox does not count, "
            f"because one of them may have written it; it is kept in {where}: say it again, or {how}"
        )

    def _save(self, found: str) -> str:
        folder = self._board.home / SET_ASIDE
        path = folder / f"{_digest(found)}.md"
        try:
            folder.mkdir(exist_ok=True)
            overwrite(path, found)
        except OSError as error:
            raise DiskTrouble(f"write {path}", error) from error
        return f".liza/{SET_ASIDE}/{path.name}"

    def _take(self, memory: PageMemory, page: WorkflowPage, state: State, added: str) -> tuple[str, str]:
        """Apply an addition to the board; return it as applied and "", or "" and it as it stays."""
        task = state.tasks.get(f"goal-{memory.goal}")
        if task is None:
            return "", added
        answer = self._answer(state, task, added)
        if answer.problem is None:
            decision = read_answer(added, is_question=False)
            if task.status not in _ASKING and decision and decision.outcome is not Outcome.NONE:
                self._tell(f"{page.path}: {TOO_EARLY}")
            return answer.text or added, ""
        self._tell(f"{page.path}: {answer.problem}")
        return "", added

    def _answer(self, state: State, task: Task, added: str) -> CycleAnswer:
        """Apply a person's words to the board; return them, with the problem where that is not possible."""
        is_question = task.status is not Status.AWAITING_APPROVAL or task.asks_for_answer
        answer = read_answer(added, is_question=is_question) or CycleAnswer(Outcome.NONE, problem=UNCLEAR)
        if answer.outcome is Outcome.NONE:
            return answer
        if answer.how is HowToMerge.SQUASH:
            if not workflow_on(state).offers_squash:
                return answer._replace(problem=NO_SQUASH)
            answer = answer._replace(label=answer.label or SQUASH)
        try:
            self._board.update(_change_for(task, answer, added, self._board.now()))
        except LizaError as error:
            return answer._replace(problem=str(error))
        return answer

    def _with_entries(self, memory: PageMemory, state: State, said: str) -> PageMemory:
        """Return the page with what happened since; its end is archived."""
        task, flow = state.tasks.get(f"goal-{memory.goal}"), workflow_on(state)
        if task is None:
            return memory
        step = issued_step(task.artifacts)
        base = str(step.base if step else task.base_commit)
        log = CycleLog(flow, task, memory.goal, lambda commit: self._show(base, commit), said)
        entries = log.entries_since(memory.known)
        if said and not any(one.role == "human" for one in entries):
            entries.append(log.note_entry())
        text = memory.text + _masked(render_entries(entries, memory.loop))
        last = entries[-1].loop if entries else memory.loop
        after = memory.replace(text=text, known=task.event_count, loop=last)
        return self._archive(after, state, log)

    def _archive(self, memory: PageMemory, state: State, log: CycleLog) -> PageMemory:
        """Archive a page whose cycle is over or paused, once, with its summary below."""
        task, flow = log.task, log.flow
        end = _cycle_end(flow, task)
        key = f"{task.status} {task.asked}"
        if end is None or key in memory.archived:
            return memory
        summary = ""
        if end is CycleEnd.INCOMPLETE:
            loops = log.counted_loops(memory.text)
            word = FAIL if task.blocked_rule == "actor_fail_pause" else INSUFFICIENT
            summary = pause_summary(loops, word)
            self._tell(PAUSED.format(count=len(loops), word=word))
        elif end is CycleEnd.FAILED:
            summary = failure_summary(task.closing_reason or task.blocked_reason or "it was given up", ())
        text = memory.text + (f"\n{_masked(summary)}\n---\n" if summary else "")
        name = CycleName(memory.id, state.goal.since, state.goal.description)
        naming = flow.page.naming if flow.page else ArchiveNaming.NUMBER
        archive_page(self._repository.root, text, name, naming, end)
        return memory.replace(text=text, archived=(*memory.archived, key))

    def _show(self, base: str, commit: str) -> str:
        """Return the message of *commit*, and what changed since *base*."""
        message = self._repository.git("log", "-1", "--format=%B", commit).strip()
        diff = diff_text(self._repository, base, commit)
        cut = diff if len(diff) <= LONGEST_DIFF else f"{diff[:LONGEST_DIFF]}\n(cut; git has the rest)"
        return "\n\n".join([message, "\n".join(f"    {line}" for line in cut.splitlines())])

    def _publish(self, path: Path, memory: PageMemory, found: str | None) -> bool:
        """Write the page; return False where a person saved it at the same moment."""
        written = memory.written or ""
        if found == written or publish_page(path, written, found) is None:
            self._keep(memory.replace(taken=""))
            return True
        # What the board has from the page is not taken a second time.
        self._keep(memory.replace(written=found))
        return False

    def _tell(self, sentence: str) -> None:
        self._alert(environment_mask().text(sentence))

    def _log_alert(self, sentence: str) -> None:
        self._board.alerts.append(environment_mask().text(sentence), at=self._board.now())


def _change_for(task: Task, answer: CycleAnswer, added: str, at: datetime) -> Change:
    """Return the change of the board for a person's words: an answer to a question, else a note."""
    said = answer.text or added
    if task.status is Status.BLOCKED or task.asks_for_answer:
        return reply(task.id, said, by=HUMAN, at=at)
    if task.status is not Status.AWAITING_APPROVAL:
        return Change(
            HUMAN.id,
            f"note {task.id}",
            lambda latest: with_answer_noted(latest, task.id, said, by=HUMAN, at=at),
        )
    if answer.outcome is Outcome.REVISE:
        return reject_task(task.id, said, by=HUMAN, at=at)
    return accept_task(task.id, said, by=HUMAN, at=at, label=answer.label)


def _cycle_end(flow: Workflow, task: Task) -> CycleEnd | None:
    """Return how the cycle ended; None while it goes on."""
    if task.status in SUCCEEDED:
        return CycleEnd.COMPLETE
    if task.status is Status.ABANDONED:
        return CycleEnd.FAILED
    pauses = {rule.name for rule in flow.watched_rules() if rule.action is RuleAction.PAUSE}
    is_paused = task.status is Status.BLOCKED and task.blocked_rule in pauses
    return CycleEnd.INCOMPLETE if is_paused else None


def _masked(text: str) -> str:
    return environment_mask().text(text).encode(errors="replace").decode()


def _digest(text: str) -> str:
    return blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()
