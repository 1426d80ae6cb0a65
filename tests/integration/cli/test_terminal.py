"""The live terminal: what is seen, and that every key does what the command of its name does."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from liza.board.file import FileBoard
from liza.board.presence import FilePresence
from liza.board.protocol import SUPERVISOR_NAME, HostSign
from liza.cli.terminal.keys import key_rows
from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN
from liza.domain.model import CostTotals, Goal, Metrics, Spend, Sprint, Status
from liza.domain.record import utc_now
from liza.workflow.transition import apply
from tests.support.board_screens import LARGE, SMALL, look_at
from tests.support.boards import noted
from tests.support.repos import Home
from tests.support.sample_tasks import ASK_HUMAN, NOW, board, claim, lease_of, new_task, task_in, worker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.board_screens import Viewer

SIZES: Final = pytest.mark.parametrize(
    "size", [SMALL, pytest.param(LARGE, marks=pytest.mark.torture)], ids=["80x24", "200x60"]
)
HOSTILE: Final = "[bold red]sale[/] [@click=app.quit]x[/] \x1b[31mred\x07 \u202eevil :smile:"


@pytest.fixture
def ours(tmp_path: Path) -> FileBoard:
    """A task that asks, one that is in work, one that nobody took, in a repository."""
    home = Home(tmp_path / "home")
    tasks = (task_in(Status.BLOCKED, name="asks"), new_task("busy"), new_task("idle", depends_on=("busy",)))
    found = FileBoard.create(home.directory / ".liza", board(*tasks))
    deed, by = claim(worker("coder-1"), at=utc_now())
    found.update(apply(deed, to="busy", by=by, at=utc_now()))
    return found


@pytest.fixture
def awaiting(tmp_path: Path) -> FileBoard:
    """A task whose work, three files of a real repository, waits for a person."""
    home = Home(tmp_path / "home")
    head = home.commit({"one.py": "a = 1\nb = 2\n", "two.py": "c = 3\n", "a.txt": "one\nTWO\nthree\n"})
    found = FileBoard.create(home.directory / ".liza", board(new_task("t1"), new_task("t2")))
    coder = worker("coder-1")
    taken = e.Take(lease=lease_of(coder, at=utc_now()), base_commit=home.base)
    for event, actor in ((taken, coder), (e.Report(commit=head), coder), ASK_HUMAN):
        found.update(apply(event, to="t1", by=actor, at=utc_now()))
    return found


def status(ours: FileBoard, name: str) -> Status | None:
    return ours.read().status_of(name)


class TwoHosts(FilePresence):
    """The names of two machines that share the board, one of which is silent."""

    def hosts(self) -> tuple[HostSign, ...]:
        here = {"leads": True, "slots": {"coder": 2}, "latency": 0.003}
        return HostSign("north", here, 1.0, is_live=True), HostSign("south", {}, 90.0, is_live=False)


def slow_board(home: Path) -> FileBoard:
    """Return a board of which half is done, with what was measured and paid."""
    counted = Metrics(outcomes={"MERGED": 1}, seconds={"WORKING": 6000})
    spent = Spend(total=CostTotals(runs=3, reported=1.5))
    state = board(task_in(Status.MERGED), new_task("t2"), sprint=Sprint(metrics=counted), spend=spent)
    return FileBoard.create(home / ".liza", state)


class TestSeeing:
    def test_what_is_known_of_the_end_is_whole_at_any_width(self, tmp_path: Path) -> None:
        """Where it is narrow, what matters least goes; where nobody works, no time of day is promised."""
        ours = slow_board(tmp_path)

        def ends_whole(shown: str) -> bool:
            lines = (line for line in shown.splitlines() if "about 1h40m left, until " in line)
            return next(lines, "").endswith("Z")

        async def story(viewer: Viewer) -> None:
            shown = await viewer.sees("1 of 2 tasks done  $1.50 of $20.00  about 1h40m of work left")
            assert "revision" not in shown
            await viewer.resize(*LARGE)
            await viewer.sees("[##########..........]  1 of 2", "work left (from 1 finished task)  revision")
            with ours.presence.hold(SUPERVISOR_NAME, at=utc_now()):
                ours.update(noted("somebody works again"))
                await viewer.sees("about 1h40m left, until ")
                await viewer.resize(*SMALL)
                await viewer.until(lambda: ends_whole(viewer.text), lambda: viewer.text)

        look_at(ours, story, SMALL)

    @SIZES
    def test_machines_that_share_the_board_have_a_line(self, tmp_path: Path, size: tuple[int, int]) -> None:
        ours = slow_board(tmp_path)
        ours.presence = TwoHosts(ours.home)

        async def story(viewer: Viewer) -> None:
            shown = await viewer.sees("1 of 2 hosts alive. south: no slots; has said nothing for 90 s")
            assert ("north: leads, 2 coder 3 ms" in shown) is (size == LARGE)
            assert all(len(line) <= size[0] for line in shown.splitlines())

        look_at(ours, story, size)

    @pytest.mark.parametrize("size", [SMALL, LARGE], ids=["80x24", "200x60"])
    def test_questions_tasks_and_workers_are_there(self, ours: FileBoard, size: tuple[int, int]) -> None:
        async def story(viewer: Viewer) -> None:
            shown = await viewer.sees(
                "0 of 3 tasks done", "? asks", "Which colour?", "coder-1", "waits for busy"
            )
            lines = shown.splitlines()
            assert lines[0].startswith("Nobody works: 0 of 3 tasks done, 1 question for you")
            assert next(line.split()[:2] for line in lines if "WORKING" in line) == ["busy", "WORKING"]
            assert "? help" in lines[-1]
            assert all(len(line) <= size[0] for line in lines)

        look_at(ours, story, size)

    def test_what_an_agent_says_is_beside_its_worker(self, ours: FileBoard) -> None:
        folder = ours.home / "runs" / "coder-1.20260101T120000.1-abc.implement"
        folder.mkdir(parents=True)
        (folder / "brief.json").write_text(json.dumps({"role": "coder", "step": "implement", "task": "busy"}))
        (folder / "stdout").write_text("thinking\nabout it\n")

        async def story(viewer: Viewer) -> None:
            await viewer.sees("implement busy", "about it", "thinking")
            with (folder / "stdout").open("a") as file:
                file.write("and more\n")
            await viewer.sees("and more")

        with ours.presence.hold("coder-1", at=NOW):
            look_at(ours, story, LARGE)

    def test_a_change_arrives_by_itself(self, ours: FileBoard) -> None:
        async def story(viewer: Viewer) -> None:
            await viewer.sees("idle")
            ours.update(apply(e.Abandon(reason="no longer"), to="idle", by=HUMAN, at=utc_now()))
            await viewer.sees("ABANDONED")

        look_at(ours, story)

    def test_columns_stand_side_by_side(self, ours: FileBoard) -> None:
        async def story(viewer: Viewer) -> None:
            await viewer.sees("idle")
            await viewer.press("v")
            await viewer.sees("IDLE 1", "WORKING 1", "BLOCKED 1")
            await viewer.press("right", "right", "enter")
            await viewer.sees("asks  BLOCKED")
            await viewer.press("escape", "v")
            await viewer.sees("waits for busy")

        look_at(ours, story)

    def test_search_leaves_only_what_is_meant(self, ours: FileBoard) -> None:
        async def story(viewer: Viewer) -> None:
            await viewer.sees("idle", "busy")
            await viewer.press("slash")
            await viewer.write("working")
            await viewer.until(lambda: "waits for busy" not in viewer.text)
            assert "busy" in viewer.text
            await viewer.press("escape")
            await viewer.sees("waits for busy")

        look_at(ours, story)

    @SIZES
    def test_nothing_that_agents_wrote_acts(self, tmp_path: Path, size: tuple[int, int]) -> None:
        """Markup of the screen's own library, sequences of terminals, and signs that turn text."""
        goal = Goal(description="x", created=NOW, questions=(HOSTILE,))
        ours = FileBoard.create(tmp_path / ".liza", board(new_task("t1", description=HOSTILE), goal=goal))

        async def story(viewer: Viewer) -> None:
            written = r"[bold red]sale[/] [@click=app.quit]x[/] \x1b[31mred"
            await viewer.sees("? plan", written[:30])
            assert "\x1b" not in viewer.text
            await viewer.press("enter")
            await viewer.sees("history:", "[bold red]sale[/]")
            await viewer.press("escape", "a")
            await viewer.sees("plan asks", written[:40])

        look_at(ours, story, size)

    def test_a_terminal_may_change_its_size(self, ours: FileBoard) -> None:
        async def story(viewer: Viewer) -> None:
            await viewer.sees("idle")
            for width, height in (LARGE, (30, 8), SMALL):
                await viewer.resize(width, height)
            await viewer.sees("waits for busy", "coder-1")

        look_at(ours, story)

    def test_a_thousand_tasks_can_be_walked_through(self, tmp_path: Path) -> None:
        ours = FileBoard.create(tmp_path / ".liza", board(*(new_task(f"t{n:04}") for n in range(1000))))

        async def story(viewer: Viewer) -> None:
            await viewer.sees("t0000", "0 of 1000 tasks done")
            await viewer.press("end")
            await viewer.sees("t0999")
            await viewer.press("v", "pagedown")
            await viewer.sees("IDLE 1000")

        look_at(ours, story)

    def test_a_save_that_breaks_a_rule_is_told_while_the_board_stays(self, ours: FileBoard) -> None:
        async def story(viewer: Viewer) -> None:
            await viewer.sees("idle")
            (ours.home / "state.yaml").write_text("tasks: [\n")
            await viewer.sees("the edit of state.yaml was not taken", "waits for busy")

        look_at(ours, story, LARGE)

    def test_a_board_that_goes_is_told_and_what_was_shown_stays(self, ours: FileBoard) -> None:
        async def story(viewer: Viewer) -> None:
            await viewer.sees("idle")
            (ours.home / "journal.jsonl").write_text("nonsense\n")
            ours.close()
            await viewer.sees("The board cannot be read", "waits for busy")

        look_at(FileBoard(ours.home), story, LARGE)


class TestActing:
    @SIZES
    def test_a_question_is_answered_or_left(self, ours: FileBoard, size: tuple[int, int]) -> None:
        async def story(viewer: Viewer) -> None:
            await viewer.sees("? asks")
            await viewer.press("a")
            await viewer.sees("asks asks", "Which colour?", "because the goal is not clear")
            await viewer.press("x", "escape")
            await viewer.until(lambda: "because the goal" not in viewer.text)
            assert status(ours, "asks") is Status.BLOCKED
            await viewer.press("a")
            await viewer.write("blue")
            await viewer.until(lambda: status(ours, "asks") is Status.IDLE)
            await viewer.sees("Answered; asks is IDLE again")

        look_at(ours, story, size)
        assert ours.read().task("asks").guidance == "blue"

    @SIZES
    def test_work_is_accepted_with_its_diff_beside_it(
        self, awaiting: FileBoard, size: tuple[int, int]
    ) -> None:
        async def story(viewer: Viewer) -> None:
            await viewer.sees("Ship it?")
            await viewer.press("y")
            await viewer.sees("t1: Ship it?", "one.py (added) +2 -0", "1 +a = 1", "2 -two", "2 +TWO")
            await viewer.press("y")
            await viewer.sees("Accepted t1.")

        look_at(awaiting, story, size)
        assert status(awaiting, "t1") is Status.APPROVED

    @SIZES
    def test_work_is_rejected_with_comments_on_its_lines(
        self, awaiting: FileBoard, size: tuple[int, int]
    ) -> None:
        """All comments go back as one round."""

        async def story(viewer: Viewer) -> None:
            await viewer.sees("Ship it?")
            await viewer.press("n")
            await viewer.sees("one.py (added)")
            await viewer.press("right_square_bracket", "down", "down", "down", "c")
            await viewer.sees("A comment on one.py, line 2", "b = 2")
            await viewer.write("why two")
            await viewer.sees("you: why two")
            await viewer.press("right_square_bracket", "c")
            await viewer.sees("A comment on two.py")
            await viewer.write("not needed")
            await viewer.press("y")
            await viewer.sees("your comments would be lost")
            await viewer.press("n")
            await viewer.sees("What is wrong with t1?", "see the comments on 2 lines")
            await viewer.press("enter")
            await viewer.sees("Rejected t1.")

        look_at(awaiting, story, size)
        task = awaiting.read().task("t1")
        assert (task.status, task.review_cycles_total) == (Status.REJECTED, 1)
        assert [(one.file, one.line, one.message) for one in task.rejection_feedback] == [
            (None, None, "see the comments on 2 lines"),
            ("one.py", 2, "why two"),
            ("two.py", None, "not needed"),
        ]

    def test_who_asks_nothing_cannot_be_accepted_and_has_no_diff(self, awaiting: FileBoard) -> None:
        async def story(viewer: Viewer) -> None:
            await viewer.sees("Ship it?")
            await viewer.press("end", "y")
            await viewer.sees("t2 asks for no consent")
            await viewer.press("d")
            await viewer.sees("there is no diff of 't2'")

        look_at(awaiting, story)
        assert status(awaiting, "t1") is Status.AWAITING_APPROVAL

    def test_a_diff_of_fifty_thousand_lines_opens(self, tmp_path: Path) -> None:
        home = Home(tmp_path / "home")
        head = home.commit({"long.txt": "".join(f"line {number}\n" for number in range(50_000))})
        ours = FileBoard.create(home.directory / ".liza", board(new_task("t1")))
        coder = worker("coder-1")
        taken = e.Take(lease=lease_of(coder, at=utc_now()), base_commit=home.base)
        for event in (taken, e.Report(commit=head)):
            ours.update(apply(event, to="t1", by=coder, at=utc_now()))

        async def story(viewer: Viewer) -> None:
            await viewer.sees("t1")
            await viewer.press("d")
            await viewer.sees("long.txt (added) +50000 -0")
            await viewer.press("end")
            await viewer.sees("line 49999")

        look_at(ours, story)

    def test_switches_are_thrown_and_taken_back_and_abort_asks_once(self, ours: FileBoard) -> None:
        async def story(viewer: Viewer) -> None:
            await viewer.sees("idle")
            await viewer.press("p")
            await viewer.until(lambda: "PAUSE" in ours.switches.thrown())
            await viewer.sees("Nothing new starts: PAUSE is thrown")
            await viewer.press("u")
            await viewer.until(lambda: not ours.switches.thrown())
            await viewer.press("c")
            await viewer.until(lambda: "CHECKPOINT" in ours.switches.thrown())
            await viewer.press("X")
            await viewer.sees("End every agent now?")
            await viewer.press("n")
            await viewer.sees("waits for busy")
            assert "ABORT" not in ours.switches.thrown()
            await viewer.press("X")
            await viewer.sees("End every agent now?")
            await viewer.press("y")
            await viewer.until(lambda: "ABORT" in ours.switches.thrown())

        look_at(ours, story)

    def test_notes_and_another_chance_are_for_the_chosen_task(self, ours: FileBoard) -> None:
        """There is no second door: what the command line refuses is refused here, in the same words."""

        async def story(viewer: Viewer) -> None:
            await viewer.sees("idle")
            await viewer.press("end", "m")
            await viewer.sees("A note for the agents that work on idle")
            await viewer.write("use tabs")
            await viewer.until(lambda: bool(ours.read().human_notes))
            await viewer.press("t")
            await viewer.sees("Try idle again")
            await viewer.press("enter")
            await viewer.sees("may not retry a task that is IDLE")
            await viewer.press("home", "t")
            await viewer.sees("Try asks again")
            await viewer.press("enter")
            await viewer.until(lambda: status(ours, "asks") is Status.IDLE)

        look_at(ours, story, LARGE)
        notes = ours.read().human_notes.values()
        assert [(note.about, note.message) for note in notes] == [("idle", "use tabs")]

    def test_explain_cost_and_help_are_pages(self, ours: FileBoard) -> None:
        async def story(viewer: Viewer) -> None:
            await viewer.sees("idle")
            await viewer.press("end", "e")
            await viewer.sees("Why idle does not go on", "who")
            await viewer.press("escape", "dollar_sign")
            await viewer.sees("What all runs cost", "By task")
            await viewer.press("escape", "question_mark")
            await viewer.sees("ABORT: end every agent; it asks once")
            await viewer.press("escape")
            await viewer.sees("waits for busy")

        look_at(ours, story)

    def test_what_was_told_does_not_lie_over_a_question(self, ours: FileBoard) -> None:
        async def story(viewer: Viewer) -> None:
            await viewer.sees("idle")
            await viewer.press("p")
            await viewer.until(lambda: len(viewer.app._notifications) == 1)
            await viewer.press("X")
            await viewer.sees("End every agent now?", "y: yes    n: no")
            assert len(viewer.app._notifications) == 0
            await viewer.press("n")

        look_at(ours, story)

    def test_a_page_is_folded_between_words_and_again_when_the_window_changes(self, ours: FileBoard) -> None:
        def is_whole(shown: str) -> bool:
            return all(says in " ".join(shown.split()) for _, says in key_rows())

        async def story(viewer: Viewer) -> None:
            await viewer.sees("idle")
            await viewer.press("question_mark")
            for width in (60, 40, 200):
                await viewer.resize(width, 60)
                await viewer.until(lambda: is_whole(viewer.text), lambda: viewer.text)
            await viewer.until(lambda: "\n" + " " * 17 not in viewer.text, lambda: viewer.text)

        look_at(ours, story)

    def test_logs_are_read_along_and_a_folder_that_goes_is_told(self, ours: FileBoard) -> None:
        folder = ours.home / "runs" / "coder-1.20260101T120000.1-abc.implement"
        folder.mkdir(parents=True)
        (folder / "brief.json").write_text(json.dumps({"role": "coder", "step": "implement", "task": "busy"}))
        (folder / "stdout").write_text("thinking\n")

        async def story(viewer: Viewer) -> None:
            await viewer.sees("idle")
            await viewer.press("down", "l")
            await viewer.sees("What busy says and does", "thinking")
            with (folder / "stdout").open("a") as file:
                file.write("$(touch x) [red]more\n")
            await viewer.sees("$(touch x) [red]more")
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
            await viewer.sees("is gone from .liza/runs")

        with ours.presence.hold("coder-1", at=NOW):
            look_at(ours, story)
