"""A process's view of a board that is a journal: followed to its end, shown, changed by new lines.

What stores the journal, a file or a server, is handed to it.
"""

from __future__ import annotations

import hashlib
import logging
from collections import deque
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from liza.board import edits
from liza.board.journal import (
    SNAPSHOT,
    SNAPSHOT_DRAFT,
    JournalPosition,
    Snapshot,
    diff_states,
    first_state,
    is_empty_diff,
    is_snapshot_due,
    journal_fields,
    json_of_changes,
    load_snapshot,
    replay_entries,
    replay_journal,
    save_snapshot,
    saved_place,
    snapshot_identity,
    with_trimmed_history,
)
from liza.board.protocol import BoardText, JournalEntry
from liza.board.statefile import StateDocument, render_state
from liza.domain.changes import Change, diff_violations, violations
from liza.domain.lifecycle import TERMINAL
from liza.domain.problems import line_of
from liza.domain.record import section_text
from liza.errors import (
    BoardUnreachable,
    ConcurrentChange,
    DiskTrouble,
    InvalidBoard,
    JournalDamaged,
    NotThere,
    Violation,
)
from liza.system.files import overwrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime
    from pathlib import Path

    from liza.board.journal import JournalLine
    from liza.board.statefile import TextPatch
    from liza.domain.changes import StateDiff
    from liza.domain.model import State, Task


# Finished tasks leave the board once there are many, and stay readable in `.liza/archive/`.

DIRECTORY: Final = "archive"
SLACK: Final = 20  # tasks beyond the limit before any is moved, so that not every merge moves one

log = logging.getLogger(__name__)


def retire_finished(state: State) -> State:
    """Return *state* without its oldest finished tasks, or the same one while there are few."""
    limit = state.config.limits.finished_on_board
    if len(state.tasks) <= limit + SLACK:
        return state
    finished = [task for task in state.tasks.values() if task.status in TERMINAL]
    if len(finished) <= limit + SLACK:
        return state
    finished.sort(key=lambda task: task.history[-1].at)
    gone = {task.id: task.status for task in finished[: len(finished) - limit]}
    return state.replace(
        tasks=MappingProxyType({name: task for name, task in state.tasks.items() if name not in gone}),
        handoff=MappingProxyType({name: note for name, note in state.handoff.items() if name not in gone}),
        # What it cost stays in the total; `liza cost` tells it from the recorded runs.
        accounts=MappingProxyType({name: one for name, one in state.accounts.items() if name not in gone}),
        archived=MappingProxyType({**state.archived, **gone}),
    )


def write_archive(home: Path, tasks: Iterable[Task]) -> None:
    """Write each task as a file; the journal can tell them again, so trouble here is only reported."""
    try:
        (home / DIRECTORY).mkdir(exist_ok=True)
        for task in tasks:
            overwrite(home / DIRECTORY / f"{task.id}.yaml", section_text("task", task.to_json()))
    except OSError as error:
        log.warning("archive/ is not complete: %s", error)


VIEWS: Final = 64  # boards of the past that a process remembers; they share all that did not change
# Revisions between two of them: so an edit from a copy of minutes ago replays a few lines.
VIEW_SPACING: Final = 8


class JournalStore(Protocol):
    """The lines of a board's journal, and the one way to add one."""

    @property
    def place(self) -> str:
        """Where it is, in people's words."""

    def holds(self, mark: JournalPosition) -> bool:
        """Return whether it still has all before *mark*: the last sum stands for every line."""

    def news(self, after: JournalPosition) -> list[JournalLine] | None:
        """Return the lines behind *after*; None where they have to be read from the beginning."""

    def reread(self, after: JournalPosition) -> Iterator[JournalLine]:
        """Yield the lines behind *after* without making other readers wait."""

    def append(self, entry: JournalEntry, after: JournalPosition) -> JournalPosition:
        """Write *entry* behind *after* and return the place behind it, once it is durable."""


class EditBase(NamedTuple):
    """The revision that an edit was made from, and the changes since."""

    state: State
    sum: str
    since: frozenset[str] = frozenset()


class JournalView:
    """The state at the end of the journal; not thread-safe: its users must take turns."""

    def __init__(self, home: Path, journal: JournalStore, clock: Callable[[], datetime]) -> None:
        self._home = home
        self._journal = journal
        self._clock = clock
        # One value, set at once: whatever interrupts a step, the state and its place belong together.
        self._view: Snapshot | None = None
        self._document: StateDocument | None = None  # the text of the view; None while the two may differ
        self._snapshot_at = (0, 0)  # place in the journal and length of the last snapshot
        self._snapshot_file: tuple[int, int] | None = None  # the one that was there when this looked
        self._latest_origin: tuple[tuple[int, JournalPosition], EditBase] | None = None
        self._stamps: deque[tuple[int, str]] = deque(maxlen=VIEWS)  # the latest revisions and sums
        self._views: deque[Snapshot] = deque(maxlen=VIEWS)  # of a while ago, for edits of old copies

    @property
    def mark(self) -> JournalPosition:
        return self._view.mark if self._view else JournalPosition()

    @property
    def state(self) -> State:
        if self._view is None:
            raise JournalDamaged(f"{self._journal.place} holds no board; `liza init` makes one")
        return self._view.state

    def forget(self) -> None:
        """Know nothing: the next look begins anew."""
        self._view, self._document = None, None
        self._views.clear()
        self._stamps.clear()

    def begin(self, state: State, by: str) -> None:
        """Make *state* the first revision."""
        put = {key: value for key, value in state.to_json().items() if key != "revision"}
        entry = JournalEntry(1, self._clock(), by, "init", put, {})
        first = first_state(entry)
        if wrong := violations(first):
            raise InvalidBoard("the board to begin with is not valid", wrong)
        self._view = Snapshot(self._journal.append(entry, JournalPosition()), entry.at, first)

    def catch_up(self) -> State:
        """Follow the journal to its end."""
        try:
            news = self._journal.news(self.mark) if self._view else None
        except JournalDamaged:  # a writer took back a line while this process was reading it
            news = None
        if news is None:
            return self._reload()
        self._follow(news)
        return self.state

    def _reload(self) -> State:
        self.forget()
        self._snapshot_file = snapshot_identity(self._home / SNAPSHOT)
        self._view = load_snapshot(self._home / SNAPSHOT)
        if self._view is not None and self._journal.holds(self.mark):
            self._snapshot_at = (self.mark.offset, (self._home / SNAPSHOT).stat().st_size)
        else:
            self._view = None
        self._follow(self._journal.news(self.mark) or [])
        return self.state

    def _follow(self, lines: list[JournalLine]) -> None:
        if not lines:
            return
        old, entries = self._view, [line.entry for line in lines]
        new = replay_entries(old.state, entries) if old else replay_journal(lines)
        document, self._document = self._document, None
        self._view = Snapshot(lines[-1].mark, entries[-1].at, new)
        self._stamps += [(line.entry.revision, line.mark.sum) for line in lines[-VIEWS:]]
        self._remember(self._view)
        if old and document:
            document.follow(new, entries)
            self._document = document

    def commit(self, change: Change) -> None:
        """Apply *change* to the state, if it changes anything."""
        old = self.state
        new = change(old)
        if new is old:
            return
        step = diff_states(old, new.replace(revision=old.revision + 1))
        if is_empty_diff(step):
            return
        if wrong := diff_violations(step):
            raise InvalidBoard(f"{change.told!r} by {change.by} would break the board", wrong)
        shown = step._replace(new=with_trimmed_history(step))
        plains = json_of_changes(shown)
        now = self._clock()
        at = max(now, self._view.at) if self._view else now
        entry = JournalEntry(
            step.new.revision, at, change.by, change.told, journal_fields(step, plains), _as_lists(step)
        )
        mark = self._journal.append(entry, self.mark)
        document, self._document = self._document, None
        self._view = Snapshot(mark, at, shown.new)
        self._stamps.append((entry.revision, mark.sum))
        self._remember(self._view)
        if document:
            document.follow(shown.new, [entry])
            self._document = document
        if any(shown.new.tasks[name].status in TERMINAL for name in step.put.get("tasks", ())):
            self._tidy()

    def _tidy(self) -> None:
        """Move finished tasks off the board once there are too many of them."""
        before = self.state
        after = retire_finished(before)
        if after is not before:
            gone = [task for name, task in before.tasks.items() if name not in after.tasks]
            try:
                self.commit(Change("liza", f"archive {len(gone)} finished tasks", lambda _: after))
            # What led here is durable: this can wait for the next one.
            except (DiskTrouble, BoardUnreachable, ConcurrentChange) as error:
                log.warning("%d finished tasks stay on the board: %s", len(gone), error)
                return
            write_archive(self._home, gone)

    def text(self) -> StateDocument:
        if self._document is None:
            self._document = StateDocument(self.state)
        return self._document

    def whole(self) -> bytes:
        """Return the text."""
        return self.text().bytes(self.mark.sum)

    def patch_of(self, revision: int, stamp: str) -> TextPatch | None:
        """Return what to write over the text of an earlier revision; None if this process knows none such."""
        return self.text().patch(revision, self.mark.sum) if (revision, stamp) in self._stamps else None

    def shown(self) -> BoardText:
        """Return the text with the revision and the stamp that it says."""
        return BoardText(self.state.revision, self.mark.sum, self.whole())

    def save_snapshot_if_due(self, draft: str = SNAPSHOT_DRAFT) -> None:
        """Save a snapshot where one is due; a caller without the lock gives a *draft* name of its own."""
        if self._view is None or not is_snapshot_due(self.mark.offset, *self._snapshot_at):
            return
        path = self._home / SNAPSHOT
        others = saved_place(path) if snapshot_identity(path) != self._snapshot_file else None
        if others and not is_snapshot_due(self.mark.offset, *others):
            self._snapshot_at = others  # one for all processes of this machine
            return
        try:
            size = save_snapshot(path, self._view, draft)
        except OSError as error:
            log.warning("no snapshot was written: %s", error)
            size = 0
        self._snapshot_at = (self._view.mark.offset, size)

    def judge(self, data: bytes) -> None:
        """Raise the problems of *data* as an edit of the board's text."""
        data = edits.normalize_saved(data)
        if not self._is_ours(data):
            step = diff_states(self.state, self._merge_edit(data))
            if wrong := diff_violations(step):
                raise _with_lines(data, wrong)

    def take(self, data: bytes) -> None:
        """Apply the edit *data* to the board."""
        data = edits.normalize_saved(data)
        what = f"edit {hashlib.blake2b(data, digest_size=8).hexdigest()}"
        if self._is_ours(data) or self._was_taken(data, what):
            return
        merged = self._merge_edit(data)
        try:
            self.commit(Change("human", what, lambda _: merged))
        except InvalidBoard as error:
            raise _with_lines(data, error.violations) from error

    def _is_ours(self, data: bytes) -> bool:
        """Return whether *data* is what Liza wrote at the revision it names, untouched."""
        revision = edits.stated_revision(data.decode(errors="replace"))
        if revision is None or not 1 <= revision <= self.state.revision:
            return False
        if revision == self.state.revision:
            return data == self.whole()
        origin = self._origin(revision)
        return data == render_state(origin.state, origin.sum)

    def _was_taken(self, data: bytes, what: str) -> bool:
        """Return whether this very text was taken in already, perhaps by a process that died right after."""
        revision = edits.stated_revision(data.decode(errors="replace"))
        if revision is None or not 1 <= revision < self.state.revision:
            return False
        return what in self._origin(revision).since

    def _origin(self, revision: int) -> EditBase:
        """Return the board that an edit was made from; the last is kept, for an edit is looked at often."""
        key = (revision, self.mark)
        if self._latest_origin is None or self._latest_origin[0] != key:
            self._latest_origin = (key, self._replay_to(revision))
        return self._latest_origin[1]

    def _replay_to(self, revision: int) -> EditBase:
        """Replay to *revision* from the nearest board before it that is known: everybody waits meanwhile."""
        base = self._view_before(revision)
        lines = list(self._journal.reread(base.mark if base else JournalPosition()))
        before = [line for line in lines if line.entry.revision <= revision]
        since = frozenset(line.entry.what for line in lines[len(before) :])
        if base is None:
            return EditBase(replay_journal(before), before[-1].mark.sum, since)
        state = replay_entries(base.state, (line.entry for line in before))
        return EditBase(state, before[-1].mark.sum if before else base.mark.sum, since)

    def _view_before(self, revision: int) -> Snapshot | None:
        """Return the latest board up to *revision* that this process remembers, or the last snapshot."""
        for view in reversed(self._views):
            if view.state.revision <= revision and self._journal.holds(view.mark):
                return view
        kept = load_snapshot(self._home / SNAPSHOT)
        fits = kept and kept.state.revision <= revision and self._journal.holds(kept.mark)
        return kept if fits else None

    def _remember(self, view: Snapshot) -> None:
        """Keep *view* for a while, some revisions apart from the one before."""
        if len(self._views) > 1 and view.state.revision - self._views[-2].state.revision < VIEW_SPACING:
            self._views[-1] = view
        else:
            self._views.append(view)

    def _merge_edit(self, data: bytes) -> State:
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            line = data[: error.start].count(b"\n") + 1
            wrong = Violation("state.yaml", "it is not UTF-8 text", "save it as UTF-8", line)
            raise InvalidBoard("state.yaml is not valid", [wrong]) from error
        current, now = self.state, self._clock()
        draft = edits.read_draft(text, self.text().untouched(current))
        revision = edits.check_revision(draft, text, current.revision)
        edited = edits.parse_state(draft, now)
        origin = self._origin(revision) if revision < current.revision else EditBase(current, self.mark.sum)
        edits.check_stamp(draft, text, revision, origin.sum)
        return edits.merge_edit(draft, edited, origin.state, current, now)


def state_at(lines: Iterable[JournalLine], moment: int | datetime) -> tuple[State, str]:
    """Return the state as it was at a revision or time, and the sum of the journal there."""
    kept: list[JournalLine] = []
    for line in lines:
        if (line.entry.revision if isinstance(moment, int) else line.entry.at) > moment:  # type: ignore[operator]
            break
        kept.append(line)
    if not isinstance(moment, int) and not kept:
        raise NotThere(
            "revision at", f"{moment:%Y-%m-%dT%H:%M:%SZ}", "the board was made later, as `liza log` says"
        )
    if not kept or (isinstance(moment, int) and kept[-1].entry.revision != moment):
        raise NotThere("revision", str(moment), "`liza log` lists them")
    return replay_journal(kept), kept[-1].mark.sum


def _with_lines(data: bytes, violations: Sequence[Violation]) -> InvalidBoard:
    """Say where in the edited text each rule was broken."""
    lines = edits.read_draft(data.decode(), {}).lines
    located = [wrong._replace(line=line_of(wrong.path, lines)) for wrong in violations]
    return InvalidBoard("state.yaml is not valid", located)


def _as_lists(step: StateDiff) -> dict[str, list[str]]:
    return {section: list(names) for section, names in step.gone.items()}
