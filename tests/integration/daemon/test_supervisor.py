"""A supervisor over real processes: what it keeps alive, what it takes back, and how it ends."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Final

import pytest

from liza.daemon.background import ensure_ended
from liza.daemon.turn import StopRequests
from liza.domain.changes import HUMAN, Change
from liza.domain.config import Workers
from liza.domain.lifecycle import Block, Defer, Release
from liza.domain.model import Actor, GoalStatus, Role, Status, WorkerStatus
from liza.domain.record import utc_now
from liza.system import files
from liza.workflow.transition import apply
from tests.support.supervisor_process import SupervisorProcess, is_alive, supervised_project

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from liza.domain.model import State


TOUCH: Final = Change("human", "touch", lambda state: state.replace(sprint=state.sprint.replace(goal="x")))


@pytest.fixture
def here(tmp_path: Path) -> Iterator[SupervisorProcess]:
    with supervised_project(tmp_path) as found:
        yield found


def is_working(state: State) -> bool:
    return state.task("t1").status is Status.WORKING


def everyone_started(here: SupervisorProcess) -> None:
    here.eventually(lambda: all(here.starts(name) for name in ("planner-1", "coder-1", "reviewer-1")))


class TestEnding:
    @pytest.mark.linux("there is a sandbox, so that nobody compares checkouts")
    def test_a_complete_goal_ends_it_with_0_and_leaves_nothing(self, here: SupervisorProcess) -> None:
        here.behave(coder="work", reviewer="work")
        assert here.ended(here.start()) == 0
        state = here.board.read()
        assert state.goal.status is GoalStatus.COMPLETE
        assert {agent.status for agent in state.agents.values()} == {WorkerStatus.STOPPED}
        assert here.is_quiet()
        assert [path.name for path in here.home.rglob("*.lock")] == ["state.yaml.lock"]

    def test_abort_ends_it_with_4_even_where_a_worker_is_deaf(self, here: SupervisorProcess) -> None:
        """Issue: ABORT; five seconds, SIGTERM, five more, SIGKILL."""
        here.behave(planner="deaf")
        run = here.start()
        everyone_started(here)
        here.eventually(lambda: "deaf" in here.said("planner-1"))
        (here.home / "ABORT").touch()
        assert here.ended(run) == 4
        assert here.is_quiet()

    def test_whoever_was_stopped_is_woken_by_abort(self, here: SupervisorProcess) -> None:
        """A supervisor and a worker that an agent without a sandbox stopped hear nothing by themselves."""
        here.behave(coder="hold")
        run = here.start()
        here.until(is_working)
        for pid in (here.starts("coder-1")[-1], int(run.pid or 0)):
            os.kill(pid, signal.SIGSTOP)
        (here.home / "ABORT").touch()
        assert ensure_ended(here.home) == ""
        assert here.ended(run) == 4
        assert here.is_quiet()

    def test_who_does_not_hear_of_abort_at_all_is_killed(self, here: SupervisorProcess) -> None:
        here.behave(coder="hold")
        run = here.start()
        here.until(is_working)
        assert "did not hear" in ensure_ended(here.home, patience=0.0)  # nobody had told it
        assert here.ended(run) == -signal.SIGKILL
        assert here.board.read().task("t1").lease is None
        assert here.is_quiet()

    def test_sigterm_ends_it_with_4_and_gives_back_what_was_held(self, here: SupervisorProcess) -> None:
        here.behave(coder="hold")
        run = here.start()
        here.until(is_working)
        here.eventually(lambda: len(here.said("coder-1")) == 2)
        run.terminate()
        assert here.ended(run) == 4
        assert here.board.read().task("t1").status is Status.IDLE
        assert here.is_quiet()

    def test_abort_reaches_also_who_looks_at_no_switch(self, here: SupervisorProcess) -> None:
        """By a signal, and at once: a grace is for saving work, not for hearing of it."""
        here.behave(planner="engrossed")
        run = here.start(grace=600.0)
        here.eventually(lambda: "engrossed" in here.said("planner-1"))
        (here.home / "ABORT").touch()
        assert here.ended(run) == 4
        assert here.is_quiet()

    def test_a_second_signal_means_now(self, here: SupervisorProcess) -> None:
        here.behave(planner="deaf")
        run = here.start(grace=600.0)  # what the first signal alone would take, and longer than any load
        here.eventually(lambda: "deaf" in here.said("planner-1"))
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(int(run.pid or 0), number)
        assert here.ended(run) == 4
        assert here.is_quiet()

    def test_abort_is_seen_during_pause(self, here: SupervisorProcess) -> None:
        run = here.start()
        everyone_started(here)
        (here.home / "PAUSE").touch()
        here.eventually(lambda: "PAUSE is thrown" in here.told())
        (here.home / "ABORT").touch()
        assert here.ended(run) == 4


class TestOnlyPeople:
    def ask(self, here: SupervisorProcess) -> None:
        planner = Actor(role=Role.PLANNER, id="planner-1")
        block = Block(reason="unclear", questions=("Which colour?",))
        here.board.update(apply(block, to="t1", by=HUMAN, at=utc_now()))
        here.board.update(apply(Defer(questions=("Which colour?",)), to="t1", by=planner, at=utc_now()))

    def test_until_idle_ends_with_3_and_says_what_waits(self, here: SupervisorProcess) -> None:
        self.ask(here)
        assert here.ended(here.start(until_idle=True)) == 3
        assert 't1 is BLOCKED: Which colour? (`liza answer t1 "…"`)' in here.told()

    def test_else_it_waits_and_people_are_told_once(self, here: SupervisorProcess) -> None:
        """Pains B: a BLOCKED task that needed a human respawned the planner 61 times in 10 seconds."""
        self.ask(here)
        run = here.start()
        everyone_started(here)
        here.board.update(TOUCH)
        here.eventually(lambda: "Which colour?" in here.alerts())
        run.terminate()
        assert here.ended(run) == 4
        assert here.alerts().count("Which colour?") == 1
        assert len(here.starts("planner-1")) == 1

    def test_what_a_worker_paused_everybody_for_ends_it_with_3(self, here: SupervisorProcess) -> None:
        """Nothing unattended stands for ever, in this run or in the next that finds the switch."""
        here.behave(planner="pause")
        for number in (1, 2):
            assert here.ended(here.start(until_idle=True)) == 3
            assert here.told().count("everybody pauses: nobody has the label; then `liza resume`") == number
        assert here.alerts().count("nobody has the label") == 1

    def test_who_works_when_a_worker_pauses_everybody_is_waited_for(self, here: SupervisorProcess) -> None:
        here.behave(coder="hold")
        run = here.start(until_idle=True)
        here.until(is_working)
        StopRequests(here.board).pause("nobody has the label")
        here.eventually(lambda: "PAUSE is thrown: by Liza: nobody has the label" in here.told())
        (here.home / "CHECKPOINT").touch()  # seen in a later turn, so that the one before did not end it
        here.eventually(lambda: "CHECKPOINT is thrown" in here.told())
        here.board.update(apply(Release(reason="enough"), to="t1", by=HUMAN, at=utc_now()))
        assert here.ended(run) == 3

    def test_the_pause_of_a_person_waits_for_them(self, here: SupervisorProcess) -> None:
        (here.home / "PAUSE").write_text("lunch")
        here.start(until_idle=True)
        here.eventually(lambda: "PAUSE is thrown: lunch" in here.told())
        here.board.update(TOUCH)
        (here.home / "PAUSE").unlink()
        everyone_started(here)


class TestKeepingAlive:
    @pytest.mark.linux("there is a sandbox, so that its lack is no anomaly")
    def test_three_crashes_stop_a_worker_and_the_board_says_so(self, here: SupervisorProcess) -> None:
        """Pains B: five crashes in 25 seconds and still going."""
        here.behave(coder="crash")
        run = here.start()
        state = here.until(
            lambda state: "coder-1" in state.agents and state.agents["coder-1"].status is WorkerStatus.STOPPED
        )
        assert len(here.starts("coder-1")) == 3
        agent = state.agents["coder-1"]
        assert agent.stopped_reason == "3 crashes in 5 minutes; the last one ended with exit code 1"
        assert len(agent.crashes) == 3
        assert [anomaly.type for anomaly in state.anomalies.values()] == ["crash_loop"]
        here.eventually(lambda: "ValueError: the worker is broken" in here.alerts())
        run.terminate()
        here.ended(run)
        assert len(here.starts("coder-1")) == 3

    def test_with_no_coder_left_only_people_can_make_progress(self, here: SupervisorProcess) -> None:
        here.behave(coder="crash")
        assert here.ended(here.start(until_idle=True)) == 3
        assert "coder-1 was stopped" in here.told()

    def test_a_stopped_worker_gets_a_new_chance_with_the_next_run(self, here: SupervisorProcess) -> None:
        here.behave(coder="crash")
        assert here.ended(here.start(until_idle=True)) == 3
        here.behave(coder="work", reviewer="work")
        assert here.ended(here.start(until_idle=True)) == 0

    def test_a_worker_that_was_stopped_is_replaced(self, here: SupervisorProcess) -> None:
        """It holds its task, and would hold it until the lease ends."""
        here.behave(coder="hold")
        here.start()
        here.until(is_working)
        first = here.starts("coder-1")[-1]
        os.kill(first, signal.SIGSTOP)
        here.eventually(lambda: len(here.starts("coder-1")) > 1)
        assert not is_alive(first)
        here.eventually(lambda: "coder-1 was stopped by somebody (SIGSTOP)" in here.alerts())

    def test_42_is_a_restart_and_no_crash(self, here: SupervisorProcess) -> None:
        """Pains B: after exit 42 the task stayed claimed for ever."""
        here.behave(coder="again")
        here.start()
        here.eventually(lambda: len(here.starts("coder-1")) == 3)
        assert here.board.read().agents["coder-1"].crashes == ()

    def test_a_killed_worker_gives_back_its_task_and_its_agent_ends(self, here: SupervisorProcess) -> None:
        here.behave(coder="hold")
        here.start()
        here.until(is_working)
        here.eventually(lambda: len(here.said("coder-1")) == 2)
        agent = int(here.said("coder-1")[1].split()[1])
        here.behave()
        os.kill(here.starts("coder-1")[0], signal.SIGKILL)
        state = here.until(lambda state: state.task("t1").status is Status.IDLE)
        assert state.task("t1").history[-1].facts["reason"] == "coder-1 does not run"
        assert not is_alive(agent)
        here.eventually(lambda: len(here.starts("coder-1")) == 2)

    def test_a_lease_that_ran_out_is_taken_back_from_a_living_holder(self, here: SupervisorProcess) -> None:
        here.behave(coder="dawdle")
        here.start()
        # That it is in work is over too soon for a busy machine to see; what was done with it stays.
        state = here.until(lambda state: "reclaim" in {item.event for item in state.task("t1").history})
        assert "let its lease run out" in state.task("t1").history[-1].facts["reason"]
        assert is_alive(here.starts("coder-1")[0])

    def test_a_changed_count_takes_effect(self, here: SupervisorProcess) -> None:
        run = here.start()
        everyone_started(here)
        two = Workers(coder=2)
        here.board.update(Change("human", "more", lambda s: s.replace(config=s.config.replace(workers=two))))
        here.eventually(lambda: len(here.starts("coder-2")) == 1)
        here.board.update(
            Change("human", "less", lambda s: s.replace(config=s.config.replace(workers=Workers(coder=1))))
        )
        here.eventually(lambda: not is_alive(here.starts("coder-2")[0]))
        here.until(lambda state: state.agents["coder-2"].status is WorkerStatus.STOPPED)
        assert here.board.read().agents["coder-2"].crashes == ()
        run.terminate()
        assert here.ended(run) == 4


class TestSwitches:
    def test_nothing_starts_during_pause_and_all_goes_on_after_it(self, here: SupervisorProcess) -> None:
        (here.home / "PAUSE").write_text("lunch")
        here.start()
        here.eventually(lambda: "PAUSE is thrown: lunch" in here.told())
        assert here.pids() == []
        (here.home / "PAUSE").unlink()
        everyone_started(here)

    def test_a_checkpoint_writes_one_summary_a_throw(self, here: SupervisorProcess) -> None:
        here.start()
        everyone_started(here)
        for number in (1, 2):
            (here.home / "CHECKPOINT").write_text(f"look {number}")
            here.eventually(lambda: here.told().count("the summary of this halt") == number)  # noqa: B023
            here.board.update(TOUCH)
            (here.home / "CHECKPOINT").unlink()
            here.eventually(lambda: here.told().count("CHECKPOINT was taken back") == number)  # noqa: B023
        texts = [path.read_text() for path in sorted((here.home / "checkpoints").iterdir())]
        assert [text.partition("Reason: ")[2].partition("\n")[0] for text in texts] == ["look 1", "look 2"]

    def test_what_cannot_be_written_is_told_once_and_tried_again(self, here: SupervisorProcess) -> None:
        (here.home / "checkpoints").write_text("in the way")
        (here.home / "CHECKPOINT").touch()
        here.start()
        here.eventually(lambda: "trouble, tried again until it is over: cannot write" in here.told())
        here.board.update(TOUCH)
        (here.home / "checkpoints").unlink()
        here.eventually(lambda: "the summary of this halt" in here.told())
        assert here.told().count("trouble") == 1


class TestBeingSingle:
    def test_a_second_one_is_told_who_is_first(self, here: SupervisorProcess) -> None:
        first = here.start()
        everyone_started(here)
        second = here.start()
        assert here.ended(second) == 1
        assert is_alive(int(first.pid or 0))
        who = files.holder_of(here.home / files.SUPERVISOR_LOCK)
        assert who is not None
        assert who.pid == first.pid

    def test_no_child_keeps_the_lock_of_a_dead_supervisor(self, here: SupervisorProcess) -> None:
        """Pains A 7: an orphan keeps the lock, and the new instance crash-loops."""
        here.behave(planner="deaf")
        run = here.start()
        here.eventually(lambda: "deaf" in here.said("planner-1"))
        run.kill()
        here.ended(run)
        assert is_alive(here.starts("planner-1")[0])
        assert not files.is_held(here.home / files.SUPERVISOR_LOCK)


class TestDying:
    def test_after_kill_9_workers_end_and_the_next_run_finishes(self, here: SupervisorProcess) -> None:
        here.behave(coder="hold")
        run = here.start()
        here.until(is_working)
        here.eventually(lambda: len(here.said("coder-1")) == 2)
        agent = int(here.said("coder-1")[1].split()[1])
        run.kill()
        here.ended(run)
        here.behave(coder="work", reviewer="work")
        assert here.ended(here.start(until_idle=True)) == 0
        assert not is_alive(agent)
        assert here.is_quiet()

    def test_an_orphan_that_does_not_end_is_cleared_by_the_next_run(self, here: SupervisorProcess) -> None:
        here.behave(planner="deaf")
        run = here.start()
        here.eventually(lambda: "deaf" in here.said("planner-1"))
        run.kill()
        here.ended(run)
        orphan = here.starts("planner-1")[0]
        here.behave(coder="work", reviewer="work")
        assert here.ended(here.start(until_idle=True)) == 0
        assert not is_alive(orphan)
        assert f"(pid {orphan})" in here.told()

    def test_a_damaged_board_ends_it_and_its_workers(self, here: SupervisorProcess) -> None:
        """Who has the board in memory does not see what was done to old lines; whoever starts does."""
        here.behave(coder="look")
        run = here.start()
        everyone_started(here)
        journal = here.home / "journal.jsonl"
        journal.write_bytes(journal.read_bytes().replace(b"say hello", b"say hallo"))
        os.kill(here.starts("coder-1")[0], signal.SIGKILL)
        assert here.ended(run) == 5
        here.eventually(here.is_quiet)
