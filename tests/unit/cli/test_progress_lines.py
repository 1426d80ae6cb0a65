"""What people see of a run, on a terminal, in a log, and in the summary of a checkpoint."""

from __future__ import annotations

import io
from datetime import timedelta
from typing import Final

import pytest

from liza.cli.views.headline import headline_of
from liza.cli.views.progress import latest_news, news_between, progress_lines
from liza.cli.views.screen import LineView, LiveView
from liza.cli.views.words import EVENT_WORDS
from liza.daemon.policy.staffing import WorkerRole
from liza.daemon.reports.checkpoint import checkpoint_summary
from liza.domain.anomalies import Anomaly, CrashLoop
from liza.domain.changes import HUMAN, add_note
from liza.domain.lifecycle import ADDED, EVENT_BY_WORD
from liza.domain.model import GoalStatus, Metrics, Role, Sprint, Status, WorkerRecord, WorkerStatus
from liza.domain.record import records_by_id
from liza.domain.report_words import duration_text, run_outcome
from tests.support.sample_tasks import (
    CODER,
    HOUR,
    NOW,
    SECOND,
    board,
    claim,
    new_task,
    reject,
    submit,
    take_review,
    task_in,
    walked,
)

AGENTS: Final = records_by_id(
    [
        WorkerRecord(id="planner-1", role=Role.PLANNER, status=WorkerStatus.WAITING, since=NOW),
        WorkerRecord(id="coder-1", role=Role.CODER, status=WorkerStatus.RUNNING, since=NOW - HOUR),
        WorkerRecord(
            id="coder-2",
            role=Role.CODER,
            status=WorkerStatus.STOPPED,
            since=NOW,
            stopped_reason="3 crashes in five minutes",
        ),
    ]
)
STATE: Final = board(
    task_in(Status.WORKING),
    task_in(Status.BLOCKED, name="t2"),
    task_in(Status.MERGED, name="t3"),
    new_task("t4"),
    agents=AGENTS,
)
LATER: Final = NOW + 75 * SECOND


class TestView:
    def test_it_says_who_works_on_what_since_when(self) -> None:
        shown = [line.split() for line in progress_lines(STATE, LATER, {})]
        assert ["coder-1", "t1", "1m14s", "WORKING:", "do", "t1"] in shown
        assert ["planner-1", "waiting", "1m15s"] in shown
        assert ["coder-2", "stopped", "1m15s:", "3", "crashes", "in", "five", "minutes"] in shown

    def test_who_runs_and_holds_nothing_waits(self) -> None:
        """It follows from the board, so that no worker has to write it there."""
        who: dict[str, WorkerRole] = {"coder-1": Role.CODER, "coder-3": Role.CODER, "planner-1": Role.PLANNER}
        agents = [
            WorkerRecord(id=name, role=role, status=WorkerStatus.RUNNING, since=NOW)
            for name, role in who.items()
        ]
        busy = board(task_in(Status.WORKING), agents=records_by_id(agents))
        shown = [line.split()[:2] for line in progress_lines(busy, LATER, {}) if line.startswith("  ")]
        assert shown == [["coder-1", "t1"], ["coder-3", "waiting"], ["planner-1", "waiting"]], shown
        empty = [line.split()[:2] for line in progress_lines(board(agents=records_by_id(agents)), LATER, {})]
        assert ["planner-1", "running"] in empty

    def test_it_counts_by_status(self) -> None:
        assert (
            "[#######.......................] 1 of 4 tasks done: 1 IDLE, 1 WORKING, 1 BLOCKED, 1 MERGED"
            in progress_lines(STATE, LATER, {})
        )

    def test_it_shows_questions_with_the_command_that_answers(self) -> None:
        assert '  t2 asks: Which colour? (`liza answer t2 "…"`)' in progress_lines(STATE, LATER, {})

    def test_it_shows_switches_first(self) -> None:
        assert progress_lines(STATE, LATER, {"PAUSE": "lunch"})[1] == "PAUSE: lunch (`liza resume` goes on)"

    def test_it_ends_with_what_happened_last(self) -> None:
        assert progress_lines(STATE, LATER, {})[-1].split(maxsplit=2)[1:] == [
            "reviewer-1",
            "t3: merged -> MERGED",
        ]

    def test_a_holder_that_did_not_register_is_shown(self) -> None:
        assert any("coder-1" in line for line in progress_lines(board(task_in(Status.WORKING)), LATER, {}))

    def test_nothing_in_it_can_drive_the_terminal(self) -> None:
        evil = board(walked(new_task(description="a\x1b[2Jb\nc"), claim()))
        assert all(line.isprintable() for line in progress_lines(evil, LATER, {}))

    @pytest.mark.parametrize(
        ("length", "words"),
        [(-1, "0s"), (59, "59s"), (60, "1m00s"), (3599, "59m59s"), (3600, "1h00m"), (90_061, "25h01m")],
    )
    def test_lengths_of_time(self, length: int, words: str) -> None:
        assert duration_text(timedelta(seconds=length)) == words

    def test_what_came_of_it(self) -> None:
        assert run_outcome(STATE) == "1 of 4 tasks done, the goal is IN_PROGRESS"
        done = STATE.replace(goal=STATE.goal.replace(status=GoalStatus.COMPLETE))
        assert run_outcome(done) == "1 of 4 tasks done"

    def test_every_view_counts_what_was_given_up_alike(self) -> None:
        given_up = board(task_in(Status.ABANDONED), task_in(Status.ABANDONED, name="t2"))
        count = "0 of 2 tasks done, 2 given up"
        assert run_outcome(given_up).startswith(f"{count}, the goal is")
        assert f": {count}" in str(headline_of(given_up, {}, is_running=False))
        assert f"[{'#' * 30}] {count}: 2 ABANDONED" in progress_lines(given_up, LATER, {})


class TestNews:
    def test_each_event_is_told_once_in_order(self) -> None:
        task = walked(new_task(), claim())
        after = walked(task, submit(), take_review(), reject(), at=NOW + 10 * SECOND)
        assert [item.what for item in news_between(board(task), board(after))] == [
            "t1: handed in -> READY_FOR_REVIEW",
            "t1: began the review",
            "t1: rejected -> REJECTED (no test)",
        ]
        assert news_between(board(after), board(after)) == []

    def test_a_history_that_was_trimmed_meanwhile_is_told_as_far_as_it_is_there(self) -> None:
        task = task_in(Status.MERGED)
        assert len(news_between(board(new_task()), board(task.with_recent_history()))) == len(
            task.with_recent_history().history
        )

    def test_notes_and_anomalies_are_news(self) -> None:
        old = board(task_in(Status.MERGED))
        anomaly = Anomaly(
            id="anomaly-1",
            type="crash_loop",
            logged_by="supervisor",
            timestamp=NOW,
            details=CrashLoop(agent=CODER.id, crashes=3),
        )
        noted = add_note("blue", about=None, by=HUMAN, at=LATER)(old)
        new = noted.replace(anomalies=records_by_id([anomaly]))
        assert [item.what for item in news_between(old, new)] == [
            "anomaly: crash_loop",
            "note: blue",
        ]

    def test_every_event_of_a_history_has_words_for_people(self) -> None:
        assert set(EVENT_WORDS) == {ADDED, *EVENT_BY_WORD}

    def test_the_latest_are_few(self) -> None:
        assert len(latest_news(STATE, 3)) == 3


class TestScreens:
    def test_a_log_gets_a_line_an_event(self) -> None:
        out = io.StringIO()
        view = LineView(out, clock=lambda: NOW)
        task = new_task()
        view.show(board(task), {})
        view.show(board(walked(task, claim())), {"PAUSE": ""})
        view.show(board(walked(task, claim())), {})
        view.say("hello")
        assert out.getvalue().splitlines() == [
            "12:00:01  coder-1      t1: claimed -> WORKING",
            "12:00:00  PAUSE is thrown; `liza resume` goes on",
            "12:00:00  PAUSE was taken back",
            "12:00:00  hello",
        ]

    def test_a_terminal_is_redrawn_in_place(self) -> None:
        out = io.StringIO()
        view = LiveView(out, clock=lambda: NOW)
        view.show(STATE, {})
        height = out.getvalue().count("\n")
        view.show(STATE, {})
        assert out.getvalue().count("\n") == height
        view.show(STATE, {"PAUSE": "lunch"})
        assert f"\x1b[{height}F\x1b[J" in out.getvalue()

    def test_what_was_said_stays_above(self) -> None:
        out = io.StringIO()
        view = LiveView(out, clock=lambda: NOW)
        view.show(STATE, {})
        view.say("hello")
        view.show(STATE, {})
        assert out.getvalue().count("12:00:00  hello\n") == 1

    def test_it_fits_the_terminal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLUMNS", "30")
        monkeypatch.setenv("LINES", "6")
        out = io.StringIO()
        LiveView(out, clock=lambda: NOW).show(STATE, {})
        shown = out.getvalue().removeprefix("\x1b[J").splitlines()
        assert len(shown) == 5
        assert max(map(len, shown)) < 30


class TestSummary:
    TEXT: Final = checkpoint_summary(STATE, LATER, "have a look")

    @pytest.mark.parametrize(
        "title",
        [
            "Metrics",
            "Tasks by status",
            "Anomalies",
            "Blocked questions",
            "Goal alignment",
            "Next steps",
        ],
    )
    def test_it_has_every_section_of_the_contract(self, title: str) -> None:
        assert f"\n## {title}\n\n- " in self.TEXT

    def test_it_says_why_where_and_what_next(self) -> None:
        assert "Reason: have a look" in self.TEXT
        assert "- WORKING (1): t1" in self.TEXT
        assert '- t2: Which colour? (`liza answer t2 "…"`)' in self.TEXT
        assert "- t2: answer it, or let the planner replan it" in self.TEXT
        assert "- 1 of 4 tasks succeeded" in self.TEXT

    @pytest.mark.parametrize("status", Status)
    def test_every_status_has_its_line(self, status: Status) -> None:
        text = checkpoint_summary(board(task_in(status)), LATER, "")
        assert f"- {status} (1): t1" in text


class TestForecast:
    """How far it is and when it will be done, from measured times, on a terminal and in a log."""

    DONE: Final = board(
        task_in(Status.MERGED),
        new_task("t2"),
        sprint=Sprint(metrics=Metrics(outcomes={"MERGED": 1}, seconds={"WORKING": 600})),
    )

    def test_a_terminal_shows_it_below_the_bar(self) -> None:
        shown = progress_lines(self.DONE, LATER, {})

        assert "[###############...............] 1 of 2 tasks done: 1 IDLE, 1 MERGED" in shown
        assert "about 10m00s left, until 12:11Z (from 1 finished task)" in shown

    def test_while_everybody_is_halted_no_end_is_promised(self) -> None:
        quick = self.DONE.replace(sprint=Sprint(metrics=Metrics(outcomes={"MERGED": 1}, seconds={})))
        halted = {"PAUSE": "lunch"}

        assert "about 10m00s of work left (from 1 finished task)" in progress_lines(self.DONE, LATER, halted)
        assert "about 1s of work left (from 1 finished task)" in progress_lines(quick, LATER, halted)

    def test_a_log_says_it_when_something_is_finished(self) -> None:
        stream = io.StringIO()
        view = LineView(stream, clock=lambda: LATER)
        view.show(board(task_in(Status.APPROVED), new_task("t2")), {})
        view.show(self.DONE, {})
        view.show(self.DONE, {})
        over = self.DONE.goal.replace(status=GoalStatus.COMPLETE, completed=LATER)
        view.show(board(task_in(Status.MERGED), task_in(Status.MERGED, name="t2")).replace(goal=over), {})

        told = [line for line in stream.getvalue().splitlines() if "tasks done" in line]
        assert told == ["12:01:15  1 of 2 tasks done, about 10m00s left, until 12:11Z (from 1 finished task)"]
