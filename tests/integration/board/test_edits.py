"""Every kind of edit: what a person may change is done, the rest is set aside with a sentence of its own."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final, NamedTuple

import pytest
import yaml

from liza.board.file import FileBoard
from liza.domain import lifecycle as e
from liza.domain.model import Role, State, Status
from liza.errors import EditRejected
from liza.workflow.transition import apply
from tests.support.boards import is_whole, messages, noted, was_not_disturbed
from tests.support.editors import by_rename, long_ago
from tests.support.sample_tasks import NOW, PLANNER, lease_of, new_task, task_in, worker
from tests.support.sample_tasks import board as story

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Edit = Callable[[str], str]


@pytest.fixture
def board(tmp_path: Path) -> FileBoard:
    """Return a board with a task in each of several statuses, and two notes."""
    tasks = (
        new_task("t1", scope={"in": ["src"]}),
        task_in(Status.BLOCKED, name="t2"),
        task_in(Status.WORKING, name="t3"),
        task_in(Status.MERGED, name="t4"),
        task_in(Status.DRAFT, name="t5"),
        new_task("t6", depends_on=("t1",)),
        task_in(Status.AWAITING_APPROVAL, name="t7"),
    )
    board = FileBoard.create(tmp_path / ".liza", story(*tasks))
    board.update(noted("hello"))
    board.update(noted("again"))
    return board


def block(text: str, name: str) -> str:
    """Return the text of the entry whose id is *name*."""
    found = re.search(rf"^- id: {name}\n(?:  .*\n)*", text, re.MULTILINE)
    assert found
    return found[0]


def within(name: str, old: str, new: str) -> Edit:
    """Replace *old* once in the entry *name*."""

    def edit(text: str) -> str:
        entry = block(text, name)
        assert old in entry
        return text.replace(entry, entry.replace(old, new, 1))

    return edit


def replacing(old: str, new: str) -> Edit:
    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return edit


def without(name: str) -> Edit:
    return lambda text: text.replace(block(text, name), "")


def save(board: FileBoard, data: bytes) -> None:
    by_rename(board.home / "state.yaml", data)
    long_ago(board.home / "state.yaml")


def shown(board: FileBoard) -> str:
    return (board.home / "state.yaml").read_text()


class Bad(NamedTuple):
    edit: Edit
    sentence: str  # a pattern for the sentence of one violation
    line: Callable[[str], int]  # the line of that violation in the edited text


def line(marker: str) -> Callable[[str], int]:
    """The first line that matches *marker*."""
    return lambda text: next(n for n, row in enumerate(text.splitlines(), start=1) if re.search(marker, row))


def line_in(name: str, marker: str) -> Callable[[str], int]:
    """The first line in the entry *name* that matches *marker*."""
    return lambda text: text[: text.index(block(text, name))].count("\n") + line(marker)(block(text, name))


def last_line(marker: str) -> Callable[[str], int]:
    return lambda text: max(n for n, row in enumerate(text.splitlines(), start=1) if re.search(marker, row))


def twice(name: str) -> Edit:
    return lambda text: text.replace("agents: []\n", block(text, name) + "agents: []\n")


def cut_at(marker: str) -> Edit:
    return lambda text: text[: text.index(marker)]


OWN: Final = "it was changed; it is Liza's own: put it back as it was"

BAD: Final[dict[str, Bad]] = {
    "an open quote": Bad(within("t2", "do t2", '"do t2'), "mend the YAML there", line('"do t2')),
    "no colon": Bad(
        within("t2", "description: do t2", "description do t2"),
        "mend the YAML there",
        line("description do t2"),
    ),
    "a bad indent": Bad(within("t2", "  status", "   status"), "mend the YAML there", line("   status")),
    "a tab": Bad(within("t2", "  status", "\tstatus"), "a tab: indent with spaces", line("\tstatus")),
    "carriage returns": Bad(
        within("t2", "do t2", "do t2\r# so"),
        "a carriage return: save the file with Unix line ends",
        line("do t2"),
    ),
    "a key twice": Bad(
        within("t2", "  status", "  description: x\n  status"),
        "the key description is already on line",
        line("description: x"),
    ),
    "an alias": Bad(within("t1", "do t1", "*x"), "aliases .* are not allowed", line(r"\*x")),
    "an unknown status": Bad(
        within("t1", "IDLE", "IDEL"),
        "'IDEL' is not one of the known words; did you mean 'IDLE'",
        line("IDEL"),
    ),
    "a status in small letters": Bad(
        within("t1", "IDLE", "idle"),
        "'idle' is not one of the known words; did you mean 'IDLE'",
        line("idle"),
    ),
    "an entry twice": Bad(twice("t6"), "the id 't6' is used twice", last_line("- id: t6")),
    "an id twice": Bad(within("t6", "id: t6", "id: t1"), "the id 't1' is used twice", last_line("- id: t1")),
    "ids that differ in case only": Bad(
        replacing("agents: []", "- id: T1\n  description: x\nagents: []"),
        "differs from 't1' only in case",
        line("- id: T1"),
    ),
    "an id that is a path": Bad(within("t6", "id: t6", "id: ../x"), "'../x' is not an id", line("id: ../x")),
    "an id that is a shell word": Bad(
        within("t6", "id: t6", "id: $(x) y"), r"'\$\(x\) y' is not an id", line("id: ..x. y")
    ),
    "a cycle": Bad(
        within("t1", "  created:", "  depends_on:\n  - t6\n  created:"),
        "waits for .*: a cycle",
        line_in("t1", "depends_on"),
    ),
    "a task that waits for itself": Bad(
        within("t6", "- t1", "- t6"), "it waits for itself", line_in("t6", "depends_on")
    ),
    "a task that waits for nobody": Bad(
        within("t6", "- t1", "- t99"), "there is no task 't99'", line_in("t6", "depends_on")
    ),
    "IDLE to MERGED": Bad(
        within("t1", "IDLE", "MERGED"),
        "a person may not move a task from IDLE to MERGED",
        line_in("t1", "status"),
    ),
    "BLOCKED to APPROVED": Bad(within("t2", "BLOCKED", "APPROVED"), "t2", line_in("t2", "status")),
    "MERGED to IDLE": Bad(
        within("t4", "MERGED", "IDLE"), "from MERGED to IDLE; .*it is final", line_in("t4", "status")
    ),
    "IDLE to BLOCKED without a question": Bad(
        within("t1", "IDLE", "BLOCKED"),
        "this status needs .*questions; write it beside the status",
        line_in("t1", "status"),
    ),
    "a changed history": Bad(
        within("t2", "reason: the goal is not clear\n      q", "reason: forged\n      q"),
        "history is append-only, and it was changed",
        line_in("t2", "history"),
    ),
    "a removed history": Bad(
        lambda text: text.replace(block(text, "t1"), block(text, "t1").partition("  history")[0]),
        "history is append-only",
        line_in("t1", "id: t1"),
    ),
    "a longer history": Bad(
        within("t1", "  history:\n", "  history_earlier: 7\n  history:\n"),
        "history is append-only",
        line_in("t1", "history_earlier"),
    ),
    "a lowered revision under its stamp": Bad(
        replacing("revision: 3", "revision: 2"),
        "the file was written as revision 3, and now says 2",
        line("^revision"),
    ),
    "a lowered revision without a stamp": Bad(
        lambda text: re.sub("# stamp.*\n", "", text).replace("revision: 3", "revision: 1"),
        "it says 1, but the file shows .*, which came later",
        line("^revision"),
    ),
    "a lowered revision under a forged stamp": Bad(
        lambda text: text.replace("stamp: 3", "stamp: 2").replace("revision: 3", "revision: 2"),
        "not written as revision 2 of this board",
        line("^revision"),
    ),
    "a revision to come": Bad(
        lambda text: re.sub("# stamp.*\n", "", text).replace("revision: 3", "revision: 4"),
        "it says 4, but the board is at 3",
        line("^revision"),
    ),
    "no revision at all": Bad(
        replacing("revision: 3\n", ""), "it has no revision: the file looks cut off", last_line("")
    ),
    "a revision that is no number": Bad(
        replacing("revision: 3", "revision: three"), "'three' is not a revision", line("^revision")
    ),
    "another version": Bad(
        replacing("version: 2", "version: 3"),
        "the file is of version 3, and this Liza reads version 2",
        line("^version"),
    ),
    "a file cut between sections": Bad(
        cut_at("human_notes:"), "it has no human_notes, .*, archived: the file looks cut off", last_line("")
    ),
    "a file cut in a task": Bad(
        cut_at("    event: ask_human"), "it has no agents, .*: the file looks cut off", last_line("")
    ),
    "an empty file": Bad(lambda _: "", "the file is empty", lambda _: 1),
    "a file of one word": Bad(lambda _: "hello\n", "state.yaml", line("hello")),
    "an unknown key of a task": Bad(
        within("t1", "  status", "  statsu: IDLE\n  status"),
        "'statsu' is not a key that belongs here; did you mean 'status'",
        line("statsu"),
    ),
    "an unknown key of the settings": Bad(
        replacing("    agent_minutes", "    agent_minuets: 3\n    agent_minutes"),
        "'agent_minuets' is not a key .*; did you mean 'agent_minutes'",
        line("agent_minuets"),
    ),
    "an unknown section": Bad(
        replacing("agents: []", "agents: []\nnotes: []"), "it is not a section of the board", line("^notes")
    ),
    "a section twice": Bad(
        replacing("agents: []", "agents: []\nagents: []"), "agents.* (twice|already)", last_line("^agents")
    ),
    "a removed task": Bad(
        without("t5"), "tasks.t5: the task was removed; put it back, or set it to ABANDONED", line("^tasks:")
    ),
    "a task that somebody calls done": Bad(
        within("t1", "status: IDLE", "status: DONE"),
        "'DONE' is not one of the known words; a task is done when Liza has merged it .MERGED.; put its",
        line("DONE"),
    ),
    "a removed note": Bad(
        without("note-1"), "the note was removed; put it back: notes are kept", line("^human_notes:")
    ),
    "a prolonged lease": Bad(within("t3", "T13:00", "T23:00"), OWN, line_in("t3", "lease:")),
    "a stolen token": Bad(within("t3", "token of coder-1", "mine"), OWN, line_in("t3", "lease:")),
    "a removed lease": Bad(
        lambda text: re.sub(r"  lease:\n(    .*\n)*", "", text), OWN, line_in("t3", "id: t3")
    ),
    "a changed counter": Bad(within("t3", "iteration: 1", "iteration: 9"), OWN, line("iteration: 9")),
    "an added counter": Bad(
        within("t1", "  created:", "  review_cycles_total: 3\n  created:"), OWN, line("review_cycles_total")
    ),
    "a changed author": Bad(within("t4", "- coder-1", "- coder-2"), OWN, line_in("t4", "authors")),
    "a changed approver": Bad(
        within("t4", "approved_by: reviewer-1", "approved_by: reviewer-2"),
        OWN,
        line("approved_by: reviewer-2"),
    ),
    "a changed merge": Bad(
        within("t4", 'merge_commit: "0003', 'merge_commit: "0004'), OWN, line('merge_commit: "0004')
    ),
    "an amended task that is final": Bad(
        within("t4", "do t4", "do something else"),
        "t4: human may not amend a task that is MERGED",
        line("do something else"),
    ),
    "an agent made up": Bad(
        replacing("agents: []", "agents:\n- id: coder-9\n  role: coder\n  since: 2026-01-01T12:00:00Z"),
        "agents.coder-9: it was changed",
        line("coder-9"),
    ),
    "a tripped breaker without a trip": Bad(
        replacing("  status: OK", "  status: TRIPPED"),
        "circuit_breaker.status: it was changed",
        line("TRIPPED"),
    ),
    "a goal that is not complete": Bad(
        replacing("status: IN_PROGRESS", "status: COMPLETE"),
        "it says COMPLETE, but t1, t2, t3 is not finished",
        line("COMPLETE"),
    ),
    "a sprint of no task": Bad(
        replacing("  tasks: []", "  tasks:\n  - t99"), "there is no task 't99'", line("^  tasks:")
    ),
    "settings out of range": Bad(replacing("coder: 2", "coder: 0"), "at least 1", line("coder: 0")),
    "settings that are a list": Bad(
        lambda text: re.sub(r"config:\n(  .*\n)+", "config: []\n", text), "config: ", line("^config")
    ),
    "a new task that is WORKING": Bad(
        replacing("agents: []", "- id: t9\n  description: x\n  status: WORKING\nagents: []"),
        "a new task starts as DRAFT or IDLE, not as WORKING",
        line("id: t9"),
    ),
    "a new task with a past": Bad(
        replacing("agents: []", "- id: t9\n  description: x\n  iteration: 3\nagents: []"),
        "a new task has no past",
        line("iteration: 3"),
    ),
    "a new task that nothing is said of": Bad(
        replacing("agents: []", "- id: t9\nagents: []"), "tasks.t9.description: it is missing", line("id: t9")
    ),
    "a note about no task": Bad(
        replacing("human_notes:", "human_notes:\n- message: x\n  for: t99"),
        "there is no task 't99'",
        line("for: t99"),
    ),
    "a note that is processed already": Bad(
        replacing(
            "human_notes:",
            "human_notes:\n- message: x\n  processed: 2026-01-01T12:00:00Z\n  processed_by: planner-1",
        ),
        "a new note is not processed",
        line("processed: "),
    ),
    "an empty note": Bad(
        replacing("human_notes:", "human_notes:\n- message: ' '"),
        "at least 1 character",
        line("message: ' '"),
    ),
    "a time without a zone": Bad(
        within("note-1", "Z\n", "\n"), "has no time zone; write it in UTC", line_in("note-1", "timestamp")
    ),
    "a list that is a word": Bad(
        replacing("discovered: []", "discovered: nothing"), "it is not a list of entries", line("discovered")
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_edit_is_set_aside(name: str, board: FileBoard) -> None:
    """It gets a sentence with its line, its text is kept, agents pause, and the board is as it was."""
    bad, before = BAD[name], board.read()
    text = bad.edit(shown(board))
    save(board, text.encode())
    with pytest.raises(EditRejected) as caught:
        board.absorb()
    was_set_aside(board, text.encode(), before, caught.value)
    found = [wrong for wrong in caught.value.violations if re.search(bad.sentence, str(wrong))]
    assert found
    assert found[0].line == bad.line(text)


def was_set_aside(board: FileBoard, data: bytes, before: State, error: EditRejected) -> None:
    home = board.home
    assert error.exit_code == 5
    assert error.kept.parent == home / "rejected"
    assert error.kept.read_bytes() == data
    told = (home / "PAUSE").read_text()
    assert " ".join(str(error.violations[0]).split()) in told
    assert f"rejected/{error.kept.name}" in told
    alerts = (home / "alerts.log").read_text().splitlines()
    assert len(alerts) == 1
    assert str(error.kept) in alerts[0]
    assert all(wrong.problem in alerts[0] for wrong in error.violations)
    after = is_whole(board)
    (anomaly,) = after.anomalies.values()
    assert anomaly.type == "edit_rejected"
    assert after.replace(revision=before.revision, anomalies=before.anomalies) == before


def test_what_is_not_utf_8_is_set_aside(board: FileBoard) -> None:
    before, text = board.read(), shown(board).replace("do t2", "dö t2")
    data = text.encode("latin-1")
    save(board, data)
    with pytest.raises(
        EditRejected, match=rf"line {line('dö')(text)}: state\.yaml: it is not UTF-8 text; save it as UTF-8"
    ) as caught:
        board.absorb()
    was_set_aside(board, data, before, caught.value)


def test_every_mistake_is_said_at_once(board: FileBoard) -> None:
    text = within("t1", "IDLE", "IDEL")(replacing("coder: 2", "coder: 0")(shown(board)))
    save(board, without("note-2")(text).replace("id: t6", "id: t 6").encode())
    with pytest.raises(EditRejected) as caught:
        board.absorb()
    assert [wrong.path for wrong in caught.value.violations] == [
        "tasks.t1.status",
        "tasks.t 6.id",
        "config.workers.coder",
    ]


def test_a_line_break_in_a_key_does_not_forge_an_alert(board: FileBoard) -> None:
    text = replacing("agents: []", 'agents: []\n"a\\n2026-01-01T12:00:00Z all is well": 1')(shown(board))
    save(board, text.encode())
    with pytest.raises(EditRejected):
        board.absorb()
    assert len((board.home / "alerts.log").read_text().splitlines()) == 1


def test_a_file_that_was_only_saved_with_other_line_ends_is_no_edit(board: FileBoard) -> None:
    """Some editors write returns, and a mark at the top, to whatever they save."""
    before = board.read()
    save(board, b"\xef\xbb\xbf" + shown(board).replace("\n", "\r\n").encode())

    assert board.absorb() is before
    assert is_whole(board) == before


def test_an_edit_of_an_old_copy_does_not_replay_the_whole_journal(board: FileBoard) -> None:
    """The lock is held meanwhile, and everybody waits; who was there then still knows the board of then.

    The beginning of the journal is spoilt, so that reading it would be noticed.
    """
    board.update(noted("before"))
    old = shown(board)
    for number in range(30):
        board.update(noted(f"meanwhile {number}"))
    with (board.home / "journal.jsonl").open("r+b") as journal:
        journal.write(b'["spoilt')

    save(board, within("t1", "do t1", "do more")(old).encode())
    board.update(noted("later"))

    assert board.read().task("t1").description == "do more"
    assert len(messages(board.read())) == 34


def test_workers_go_on_with_the_good_board(board: FileBoard) -> None:
    """A bad edit is nobody's fault but its author's: an update of a worker is done all the same."""
    text = within("t1", "IDLE", "IDEL")(shown(board))
    save(board, text.encode())
    board.update(noted("from a worker"))
    assert messages(is_whole(board)) == ["hello", "again", "from a worker"]
    assert [path.read_text() for path in (board.home / "rejected").iterdir()] == [text]
    assert (board.home / "PAUSE").exists()


def test_a_save_in_progress_is_given_time(board: FileBoard) -> None:
    """A young file that makes no sense is looked at again: its writer may not be done."""
    text = shown(board)
    by_rename(board.home / "state.yaml", text[:500].encode())
    board.update(noted("meanwhile"))
    assert shown(board) == text[:500]
    by_rename(board.home / "state.yaml", within("t1", "do t1", "do more")(text).encode())
    board.update(noted("later"))
    assert is_whole(board).task("t1").description == "do more"
    was_not_disturbed(board.home)


def test_a_save_from_the_future_is_not_waited_for(board: FileBoard) -> None:
    """The clock of a file may be wrong; a bad edit is set aside all the same."""
    by_rename(board.home / "state.yaml", b"hello\n")
    os.utime(board.home / "state.yaml", (4_000_000_000, 4_000_000_000))
    board.update(noted("meanwhile"))
    is_whole(board)
    assert (board.home / "PAUSE").exists()


class Good(NamedTuple):
    edit: Edit
    holds: Callable[[State], bool]  # what is true of the board afterwards


def moved(name: str, event: str, source: Status, target: Status) -> Callable[[State], bool]:
    """The task went by *event*, as its history says, and a person did it."""

    def holds(state: State) -> bool:
        last = state.task(name).history[-1]
        way = (last.event, last.source, last.target, last.role, last.by)
        return way == (event, source, target, Role.HUMAN, "human") and state.task(name).status is target

    return holds


BLOCKING: Final = "status: BLOCKED\n  blocked_reason: too hard\n  blocked_questions:\n  - Why?"

GOOD: Final[dict[str, Good]] = {
    "as an editor on Windows saves it": Good(
        lambda text: "\ufeff" + within("t1", "do t1", "do more")(text).replace("\n", "\r\n"),
        lambda state: state.task("t1").description == "do more",
    ),
    "BLOCKED to IDLE": Good(
        within("t2", "BLOCKED", "IDLE"), moved("t2", "retry", Status.BLOCKED, Status.IDLE)
    ),
    "IDLE to ABANDONED": Good(
        within("t1", "IDLE", "ABANDONED"), moved("t1", "abandon", Status.IDLE, Status.ABANDONED)
    ),
    "DRAFT to IDLE": Good(within("t5", "DRAFT", "IDLE"), moved("t5", "ready", Status.DRAFT, Status.IDLE)),
    "WORKING to IDLE": Good(
        within("t3", "WORKING", "IDLE"), moved("t3", "release", Status.WORKING, Status.IDLE)
    ),
    "IDLE to BLOCKED": Good(
        within("t1", "status: IDLE", BLOCKING), moved("t1", "block", Status.IDLE, Status.BLOCKED)
    ),
    "AWAITING_APPROVAL to APPROVED": Good(
        within("t7", "AWAITING_APPROVAL", "APPROVED"),
        moved("t7", "approve", Status.AWAITING_APPROVAL, Status.APPROVED),
    ),
    "AWAITING_APPROVAL to REJECTED": Good(
        within("t7", "status: AWAITING_APPROVAL", "status: REJECTED\n  rejection_reason: ugly"),
        moved("t7", "reject", Status.AWAITING_APPROVAL, Status.REJECTED),
    ),
    "another scope": Good(
        within("t1", "- src", "- lib"), lambda state: state.task("t1").scope.include == ("lib",)
    ),
    "a new dependency": Good(
        within("t5", "  created:", "  depends_on: [t1]\n  created:"),
        lambda state: state.task("t5").depends_on == ("t1",),
    ),
    "a new task": Good(
        replacing("agents: []", "- id: t9\n  description: x\nagents: []"),
        lambda state: state.task("t9").history[0].by == "human",
    ),
    "the settings": Good(
        replacing("agent_minutes: 30.0", "agent_minutes: 45"),
        lambda state: state.config.limits.agent_minutes == 45,
    ),
    "a note on top": Good(
        replacing("human_notes:", "human_notes:\n- message: stop"),
        lambda state: messages(state) == ["hello", "again", "stop"],
    ),
    "a note at the end": Good(
        replacing("anomalies:", "- message: stop\nanomalies:"),
        lambda state: messages(state) == ["hello", "again", "stop"],
    ),
    "two notes": Good(
        replacing("human_notes:", "human_notes:\n- message: one\n- message: two\n  for: t1"),
        lambda state: messages(state) == ["hello", "again", "one", "two"],
    ),
    "a bare text": Good(
        replacing("anomalies:", "- stop that, please\nanomalies:"),
        lambda state: messages(state) == ["hello", "again", "stop that, please"],
    ),
    "the same note once more": Good(
        replacing("anomalies:", "- message: again\nanomalies:"),
        lambda state: messages(state) == ["hello", "again", "again"],
    ),
    "a note with an id of its own": Good(
        replacing("human_notes:", "human_notes:\n- id: mine\n  message: stop"),
        lambda state: state.human_notes["mine"].message == "stop",
    ),
    "another wording of a note": Good(
        within("note-1", "hello", "hullo"), lambda state: messages(state) == ["hullo", "again"]
    ),
    "a goal given up": Good(
        replacing("status: IN_PROGRESS", "status: ABANDONED"), lambda state: state.goal.status == "ABANDONED"
    ),
    "nothing but a comment": Good(
        within("t1", "  status", "  # hm\n  status"), lambda state: state.revision == 3
    ),
    "nothing but the order": Good(
        lambda text: yaml.safe_dump(yaml.safe_load(text)), lambda state: state.revision == 3
    ),
    "all by a program": Good(
        lambda text: yaml.safe_dump(yaml.safe_load(text.replace("do t1", "do more"))),
        lambda state: state.task("t1").description == "do more",
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_what_a_person_may_change_is_done(name: str, board: FileBoard) -> None:
    """A moved status is an event with its history; the file then shows what became of it."""
    good = GOOD[name]
    save(board, good.edit(shown(board)).encode())
    state = board.absorb()
    assert good.holds(state)
    assert is_whole(FileBoard(board.home)) == state
    was_not_disturbed(board.home)


class TestStaleCopy:
    def test_both_sides_are_kept_where_they_touch_different_fields(self, board: FileBoard) -> None:
        """The scope of a task may be edited while the task moves on."""
        copy = shown(board)
        coder = worker("coder-7")
        board.update(
            apply(e.Take(lease=lease_of(coder), base_commit="0" * 39 + "1"), to="t1", by=coder, at=NOW)
        )
        save(board, within("t1", "- src", "- lib")(copy).encode())
        task = board.absorb().task("t1")
        assert (task.status, task.scope.include) == (Status.WORKING, ("lib",))
        assert task.lease is not None
        is_whole(board)
        was_not_disturbed(board.home)

    @pytest.mark.parametrize(
        ("theirs", "ours", "path"),
        [
            (
                e.Amend(fields={"priority": 3}),
                within("t1", "  created:", "  priority: 4\n  created:"),
                "priority",
            ),
            (e.Block(reason="hm", questions=("Why?",)), within("t1", "IDLE", "ABANDONED"), "status"),
        ],
    )
    def test_two_wills_about_one_field_are_refused(
        self, theirs: e.Event, ours: Edit, path: str, board: FileBoard
    ) -> None:
        copy = shown(board)
        before = board.update(apply(theirs, to="t1", by=PLANNER, at=NOW))
        text = ours(copy)
        save(board, text.encode())
        with pytest.raises(EditRejected) as caught:
            board.absorb()
        (wrong,) = caught.value.violations
        assert wrong.path == f"tasks.t1.{path}"
        assert wrong.line == line_in("t1", path)(text)
        assert "it was changed after your copy was made; look again and edit anew" in str(wrong)
        was_set_aside(board, text.encode(), before, caught.value)

    def test_one_will_about_one_field_is_no_conflict(self, board: FileBoard) -> None:
        """Both set the same: done is done, and nobody lowered a revision."""
        copy = shown(board)
        board.update(apply(e.Amend(fields={"priority": 3}), to="t1", by=PLANNER, at=NOW))
        save(board, within("t1", "  created:", "  priority: 3\n  created:")(copy).encode())
        assert board.absorb().task("t1").priority == 3
        is_whole(board)
        was_not_disturbed(board.home)

    def test_a_released_task_is_not_taken_from_who_claimed_it_since(self, board: FileBoard) -> None:
        """A person unblocks a task, a coder claims it, and the person saves once more from the same copy."""
        copy = within("t2", "BLOCKED", "IDLE")(shown(board))
        save(board, copy.encode())
        board.absorb()
        coder = worker("coder-7")
        board.update(
            apply(e.Take(lease=lease_of(coder), base_commit="0" * 39 + "1"), to="t2", by=coder, at=NOW)
        )
        save(board, within("t1", "do t1", "do more")(copy).encode())
        state = board.absorb()
        assert state.task("t1").description == "do more"
        assert state.task("t2").status is Status.WORKING
        was_not_disturbed(board.home)

    def test_saving_again_and_again_from_one_copy_adds_nothing_twice(self, board: FileBoard) -> None:
        copy = shown(board)
        for number in range(1, 4):
            notes = "".join(f"\n- message: note {n}" for n in range(number))
            task = "- id: t9\n  description: x\nagents: []"
            save(
                board,
                replacing("agents: []", task)(
                    replacing("human_notes:", f"human_notes:{notes}")(copy)
                ).encode(),
            )
            assert sorted(messages(board.absorb())) == [
                "again",
                "hello",
                *(f"note {n}" for n in range(number)),
            ]
        was_not_disturbed(board.home)

    def test_saving_the_same_text_twice_is_one_edit(self, board: FileBoard) -> None:
        """Even if it was taken in by a process that died before it could say so."""
        text = replacing(
            "human_notes:", "human_notes:\n- id: x\n  timestamp: 2026-01-01T12:00:00Z\n  message: x"
        )(shown(board))
        for _ in range(3):
            save(board, re.sub("# stamp.*\n", "", text).encode())
            assert board.absorb().revision == 4
        was_not_disturbed(board.home)

    def test_a_copy_of_another_board_is_refused(self, board: FileBoard, tmp_path: Path) -> None:
        other = FileBoard.create(tmp_path / "other", story(new_task("t1")))
        before, text = board.read(), shown(other)
        save(board, text.encode())
        with pytest.raises(EditRejected, match="not written as revision 1 of this board") as caught:
            board.absorb()
        was_set_aside(board, text.encode(), before, caught.value)
