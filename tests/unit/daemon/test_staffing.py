"""When a worker is started again, told as histories of what happened to its process."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import pytest

from liza.daemon.policy.staffing import (
    CRASH_LOOP,
    FIRST_DELAY,
    KILLED_CODE,
    LONGEST_DELAY,
    RESTART_CODE,
    STABLE_AFTER,
    Slot,
    exit_sentence,
    is_crash,
    is_due,
    record_crash,
    register_workers,
    with_exit,
    with_process,
    with_slots_for,
    worker_roles,
)
from liza.domain.config import Limits, Workers
from liza.domain.model import Role, WorkerStatus
from tests.support.sample_tasks import NOW, board

POST: Final = Slot(Role.CODER, "coder-1")
Life = tuple[float, int]  # seconds that a process lived, and how it ended


def lived(*lives: Life, post: Slot = POST, at: float = 1000.0) -> tuple[Slot, list[float]]:
    """Return the post after *lives*, each begun as soon as it was due, and how long it waited after each."""
    waits: list[float] = []
    state = register_workers([post], at=NOW)(board())
    for seconds, code in lives:
        if is_crash(code):
            state = record_crash(post, "it crashes", at=NOW + timedelta(seconds=at + seconds))(state)
        is_stopped = state.agents[post.name].status is WorkerStatus.STOPPED
        post = with_exit(with_process(post, at), code, at + seconds, is_stopped=is_stopped)
        at += seconds
        waits.append(float("inf") if post.due is None else round(post.due - at, 3))
        at = post.due or at
    return post, waits


class TestRestarting:
    @pytest.mark.parametrize(
        ("lives", "waits"),
        [
            pytest.param([(0, RESTART_CODE)], [0], id="42 restarts at once"),
            pytest.param([(0, RESTART_CODE)] * 5, [0, 0.1, 0.2, 0.4, 0.8], id="but never spins"),
            pytest.param([(5, RESTART_CODE)] * 5, [0] * 5, id="and what lived a while does not wait"),
            pytest.param([(0, 0)] * 3, [0, 0.1, 0.2], id="0 comes back where the goal is not complete"),
            pytest.param([(2, KILLED_CODE)] * 9, [0] * 9, id="a kill from outside is nobody's crash"),
            pytest.param([(1, 1)], [0.1], id="a crash waits"),
            pytest.param([(1, 1), (1, 1)], [0.1, 0.2], id="the second longer"),
            pytest.param([(1, 1), (1, -11), (1, 3)], [0.1, 0.2, float("inf")], id="three are a loop"),
            pytest.param([(1, 1), (1, RESTART_CODE), (1, 1)], [0.1, 0, 0.1], id="a good end between counts"),
            pytest.param([(120, 1)] * 9, [0.1, 0.1] + [float("inf")] * 7, id="slow crashes are a loop too"),
            pytest.param([(160, 1)] * 9, [0.1] * 9, id="two in five minutes are none"),
        ],
    )
    def test_a_history_of_ends(self, lives: list[Life], waits: list[float]) -> None:
        found: list[float] = []
        for number in range(1, len(lives) + 1):
            post, found = lived(*lives[:number])
            if post.is_stopped:
                break
        assert found == waits[: len(found)]

    def test_the_delay_has_an_end(self) -> None:
        _, waits = lived(*[(0.0, RESTART_CODE)] * 15)
        assert waits[-1] == LONGEST_DELAY

    def test_a_minute_of_life_makes_the_next_crash_the_first(self) -> None:
        post, _ = lived((0.0, RESTART_CODE), (0.0, RESTART_CODE), (0.0, RESTART_CODE), (0.0, RESTART_CODE))
        assert lived((1.0, 1), post=post)[1] == [0.8]
        assert lived((STABLE_AFTER, 1), post=post)[1] == [FIRST_DELAY]

    def test_old_crashes_are_forgotten(self) -> None:
        window = CRASH_LOOP.window_in(Limits()).total_seconds()
        post, _ = lived((window, 1), (window, 1), (window, 1), (window, 1))
        assert not post.is_stopped

    def test_it_is_due_once_it_waited_and_only_while_nobody_fills_it(self) -> None:
        post = with_exit(with_process(POST, 10.0), 1, 11.0)
        assert [is_due(post, at) for at in (11.0, 11.1, 99.0)] == [False, True, True]
        assert not is_due(with_process(post, 11.1), 99.0)
        assert not is_due(lived(*[(0.0, 1)] * 3)[0], 1e9)

    @pytest.mark.parametrize(
        ("code", "words"),
        [
            (0, "nothing more"),
            (RESTART_CODE, "again"),
            (KILLED_CODE, "SIGKILL"),
            (-11, "SIGSEGV"),
            (3, "exit code 3"),
        ],
    )
    def test_an_end_is_told_in_words(self, code: int, words: str) -> None:
        assert words in exit_sentence(code)


class TestStaff:
    def test_names_count_from_one_for_each_role(self) -> None:
        assert list(worker_roles(Workers(coder=2))) == ["planner-1", "coder-1", "coder-2", "reviewer-1"]

    def test_a_changed_count_keeps_who_is_there(self) -> None:
        posts = with_slots_for({}, worker_roles(Workers(coder=2)))
        posts = {name: with_process(post, 1.0) for name, post in posts.items()}
        assert with_slots_for(posts, worker_roles(Workers(coder=3))).keys() - posts.keys() == {"coder-3"}
        assert with_slots_for(posts, worker_roles(Workers(coder=3)))["coder-1"] is posts["coder-1"]

    def test_one_too_many_stays_until_its_process_ended(self) -> None:
        posts = {
            name: with_process(post, 1.0)
            for name, post in with_slots_for({}, worker_roles(Workers(coder=2))).items()
        }
        assert "coder-2" in with_slots_for(posts, worker_roles(Workers(coder=1)))
        posts["coder-2"] = with_exit(posts["coder-2"], 0, 2.0)
        assert "coder-2" not in with_slots_for(posts, worker_roles(Workers(coder=1)))


class TestOnTheBoard:
    def test_a_crash_is_counted_and_the_last_one_stops(self) -> None:
        state = register_workers([POST], at=NOW)(board())
        for number in (1, 2, 3):
            assert state.agents["coder-1"].status is not WorkerStatus.STOPPED
            state = record_crash(POST, "it crashes", at=NOW + timedelta(seconds=number))(state)
            assert len(state.agents["coder-1"].crashes) == number
        agent = state.agents["coder-1"]
        assert agent.status is WorkerStatus.STOPPED
        assert agent.stopped_reason == "3 crashes in 5 minutes; the last one it crashes"
        assert [anomaly.details.type for anomaly in state.anomalies.values()] == ["crash_loop"]

    def test_enlisting_again_forgets_why_it_was_stopped(self) -> None:
        state = board()
        for _ in range(3):
            state = record_crash(POST, "it crashes", at=NOW)(state)
        assert state.agents["coder-1"].status is WorkerStatus.STOPPED
        agent = register_workers([POST], at=NOW)(state).agents["coder-1"]
        assert (agent.status, agent.stopped_reason, agent.crashes) == (WorkerStatus.STARTING, None, ())
