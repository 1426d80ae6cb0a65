"""The one reader behind all views, on boards, journals, runs and processes as they are on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from liza.board.file import FileBoard
from liza.cli.views.gather import Gatherer
from liza.cli.views.past import BoardPast, burn_up, seconds_by_status, timeline
from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN
from liza.domain.record import utc_now
from liza.system.process import RUN_MARK
from liza.workflow.transition import apply
from tests.support.sample_tasks import (
    CODER,
    MERGED,
    NOW,
    REVIEWER,
    SECOND,
    approve,
    board,
    claim,
    new_task,
    reject,
    start_merge,
    submit,
    take_review,
)
from tests.support.scripted_team import ScriptedTeam, dear

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.sample_tasks import Deed

STORY: tuple[Deed, ...] = (
    *(claim(), submit(), take_review(), reject()),
    *(claim(), submit(), take_review(), approve(), start_merge(), MERGED),
)


@pytest.fixture
def ours(tmp_path: Path) -> FileBoard:
    """A task that was rejected once and merged then, a second a step; and one that nobody took."""
    found = FileBoard.create(tmp_path / ".liza", board(new_task("t1"), new_task("t2")))
    for number, (event, actor) in enumerate(STORY, start=1):
        found.update(apply(event, to="t1", by=actor, at=NOW + number * SECOND))
    return found


class TestPast:
    def test_the_timeline_shows_who_held_it_and_what_sent_it_back(self, ours: FileBoard) -> None:
        spans = timeline(BoardPast().extend(ours.entries()).moves)
        shown = [(span.status, span.worker, span.ended_by) for span in spans if span.task == "t1"]

        assert shown == [
            ("IDLE", None, "claim"),
            ("WORKING", CODER.id, "submit"),
            ("READY_FOR_REVIEW", None, "take_review"),
            ("READY_FOR_REVIEW", REVIEWER.id, "reject"),
            ("REJECTED", None, "claim"),
            ("WORKING", CODER.id, "submit"),
            ("READY_FOR_REVIEW", None, "take_review"),
            ("READY_FOR_REVIEW", REVIEWER.id, "approve"),
            ("APPROVED", None, "merge"),
        ]
        assert [span.reason for span in spans if span.ended_by == "reject"] == ["no test"]
        assert [span.ended for span in spans if span.task == "t2"] == [None]

    def test_a_worker_that_lets_go_holds_it_no_more(self, tmp_path: Path) -> None:
        found = FileBoard.create(tmp_path / ".liza", board(new_task("t1")))
        deeds = (claim(), submit(), take_review(), (e.Release(reason="stop"), REVIEWER))
        for number, (event, actor) in enumerate(deeds, start=1):
            found.update(apply(event, to="t1", by=actor, at=NOW + number * SECOND))
        spans = timeline(BoardPast().extend(found.entries()).moves)

        assert [span.worker for span in spans] == [None, CODER.id, None, REVIEWER.id, None]

    def test_burn_up_counts_what_was_added_and_what_is_done(self, ours: FileBoard) -> None:
        points = burn_up(BoardPast().extend(ours.entries()).moves)

        assert [(point.total, point.done) for point in points] == [(2, 0), (2, 1)]
        assert points[-1].at == NOW + len(STORY) * SECOND

    def test_time_by_status_is_the_sum_of_the_timeline(self, ours: FileBoard) -> None:
        spans = timeline(BoardPast().extend(ours.entries()).moves)

        assert seconds_by_status(spans, NOW + 20 * SECOND) == {
            "IDLE": 21.0,
            "WORKING": 2.0,
            "READY_FOR_REVIEW": 4.0,
            "REJECTED": 1.0,
            "APPROVED": 2.0,
        }

    def test_reading_on_is_the_same_as_reading_all(self, ours: FileBoard) -> None:
        entries = list(ours.entries())
        whole = BoardPast().extend(entries)

        assert BoardPast().extend(entries[:4]).extend(entries[4:]) == whole
        assert whole.revision == ours.read().revision


class TestGatherer:
    def test_a_past_revision_is_shown_as_it_was(self, ours: FileBoard) -> None:
        reader = Gatherer(ours)
        then = reader.facts_at(3)
        shown, back = reader.view_at(3), reader.history(then)

        assert (shown.revision, shown.is_past) == (3, True)
        assert [task.status for task in shown.tasks] == ["READY_FOR_REVIEW", "IDLE"]
        assert [move.event for move in back.moves] == ["added", "added", "claim", "submit"]
        assert then.now == next(entry.at for entry in ours.entries() if entry.revision == 3)

    def test_looking_again_shows_what_came(self, ours: FileBoard) -> None:
        reader = Gatherer(ours)
        before = reader.view(utc_now())
        ours.alerts.append("look here", at=NOW)
        ours.update(apply(e.Abandon(reason="no"), to="t2", by=HUMAN, at=utc_now()))
        after = reader.view(utc_now())

        assert (before.tally.given_up, after.tally.given_up) == (0, 1)
        assert [alert.says for alert in after.alerts] == ["look here"]
        assert not before.alerts

    def test_a_save_that_breaks_a_rule_is_told_and_the_board_is_still_shown(self, ours: FileBoard) -> None:
        reader = Gatherer(ours)
        (ours.home / "state.yaml").write_text("tasks: [\n")
        shown = reader.view(utc_now())

        assert shown.trouble
        assert len(shown.tasks) == 2

    def test_a_run_that_goes_on_has_its_lines_and_its_processes(self, ours: FileBoard) -> None:
        """What an agent does right now can be seen, and what it takes."""
        name = "coder-1.20260101T120000.1-abc.implement"
        folder = ours.home / "runs" / name
        folder.mkdir(parents=True)
        (folder / "brief.json").write_text(json.dumps({"role": "coder", "step": "implement", "task": "t2"}))
        (folder / "stdout").write_text(
            '{"type":"item.started","item":{"type":"command_execution","command":"make"}}\n'
        )
        agent = subprocess.Popen(
            [sys.executable, "-c", "print('up', flush=True); input()"],
            env={RUN_MARK: str(folder.resolve())}, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )  # fmt: skip
        with agent, ours.presence.hold("coder-1", at=NOW):
            assert agent.stdout
            agent.stdout.readline()
            shown = {worker.id: worker for worker in Gatherer(ours).view(utc_now()).workers}["coder-1"]
            agent.communicate(b"\n")

        assert (shown.run, shown.step, shown.task) == (name, "implement", "t2")
        assert shown.lines == ("$ make",)
        assert shown.use
        assert shown.use.processes == 1
        assert shown.use.memory > 0
        assert shown.is_alive

    def test_a_gate_that_judges_is_what_its_worker_does(self, ours: FileBoard) -> None:
        """Until the task goes on: nobody writes down that a gate's command ended."""
        folder = ours.home / "runs" / "coder-1.20260101T120000.1-abc.test"
        folder.mkdir(parents=True)
        (folder / "stdout").write_text("3 passed\n")
        deed, by = claim(CODER, at=utc_now())
        with ours.presence.hold("coder-1", at=NOW):
            before = {worker.id: worker for worker in Gatherer(ours).view(utc_now()).workers}["coder-1"]
            ours.update(apply(deed, to="t2", by=by, at=utc_now()))
            after = {worker.id: worker for worker in Gatherer(ours).view(utc_now()).workers}["coder-1"]

        assert (before.step, before.lines) == (None, ())
        assert (after.step, after.lines, after.task) == ("test", ("3 passed",), "t2")

    def test_a_folder_of_runs_that_is_gone_is_an_empty_one(self, ours: FileBoard) -> None:
        reader = Gatherer(ours)

        assert reader.runs.records() == ()
        assert reader.history(reader.facts(utc_now())).cost.runs == 0

    def test_history_has_money_by_outcome(self, tmp_path: Path) -> None:
        team = ScriptedTeam(tmp_path, dear(0.5))
        team.task("t1")
        team.turns("coder-1", "reviewer-1")
        reader = Gatherer(team.board)
        back = reader.history(reader.facts(utc_now()))

        assert {name: one.runs for name, one in back.costs["outcome"].items()} == {"merged": 3}
        assert back.cost_per_merge == back.cost.usd > 0
        assert back.burn_up[-1].done == 1
        assert json.loads(json.dumps(back.to_json()))["figures"]["outcomes"] == {"MERGED": 1}
        assert [run.step for run in back.runs] == ["checkpoint", "implement", "review"]
        assert all(run.began <= utc_now() + timedelta(seconds=1) for run in back.runs)
