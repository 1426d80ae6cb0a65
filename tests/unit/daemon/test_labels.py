"""Which host may take what: labels that a task or a role needs."""

from __future__ import annotations

from typing import Any

import pytest

from liza.daemon.policy import pick
from liza.daemon.policy.pick import Candidate, first_blocker
from liza.daemon.policy.progress import only_people
from liza.daemon.policy.staffing import HostOffer, foreign_workers, team_of
from liza.domain.config import Config, Needs, Workers
from liza.domain.model import Role, State, Status, WorkerRecord, WorkerStatus
from liza.domain.record import records_by_id
from tests.support.sample_tasks import NOW, board, new_task, task_in


def worker(name: str, **fields: Any) -> WorkerRecord:  # noqa: ANN401 - of the record
    role: Any = Role(name.partition("-")[0])
    return WorkerRecord(id=name, role=role, since=NOW, status=WorkerStatus.RUNNING, **fields)


def hosted(*tasks: Any, config: Config | None = None, **labels: tuple[str, ...]) -> State:  # noqa: ANN401
    agents = [
        worker(f"{role}-{host}-1", host=host, labels=its)
        for host, its in labels.items()
        for role in ("coder", "reviewer")
    ]
    return board(*tasks, config=config or Config(), agents=records_by_id(agents))


class TestWhoTakes:
    def test_only_a_host_with_the_label_takes_a_task(self) -> None:
        state = hosted(new_task("t1", needs=("gpu",)), one=(), two=("gpu", "arm"))
        assert pick.pick_work(state, "coder-one-1") is None
        assert pick.pick_work(state, "coder-two-1") == state.tasks["t1"]

    def test_whoever_reviews_needs_it_as_well(self) -> None:
        task = task_in(Status.READY_FOR_REVIEW).replace(needs=("gpu",), lease=None)
        state = hosted(task, one=(), two=("gpu",))
        assert pick.to_review(state, "reviewer-one-1", NOW) is None
        assert pick.to_review(state, "reviewer-two-1", NOW) == task

    def test_a_role_can_need_a_label(self) -> None:
        config = Config(needs=Needs(coder=("gpu",)), workers=Workers(coder=2))
        assert "coder-1" not in HostOffer().roles(config)
        assert "coder-1" in HostOffer(labels=("gpu",)).roles(config)
        state = hosted(new_task("t1"), config=config, one=(), two=("gpu",))
        assert pick.pick_work(state, "coder-one-1") is None
        assert pick.pick_work(state, "coder-two-1") is not None

    @pytest.mark.parametrize(
        ("labels", "said"),
        [((), "the label gpu, and no host has it"), (("gpu",), "and coder-one-1 is on one without")],
    )
    def test_it_is_explained(self, labels: tuple[str, ...], said: str) -> None:
        state = hosted(new_task("t1", needs=("gpu",)), one=(), two=labels)
        found = first_blocker(pick.CONDITIONS, Candidate(state, state.tasks["t1"], "coder-one-1", NOW))
        assert found is not None
        assert said in found[1].what

    def test_a_run_that_waits_for_a_label_names_the_command_that_gives_it(self) -> None:
        """On a board in files there is no `liza host`; the run itself has the labels."""
        config = Config(needs=Needs(coder=("gpu",)))
        alone = board(new_task("t1"), config=config, agents=records_by_id([worker("reviewer-1")]))
        many = hosted(new_task("t1", needs=("gpu",)), one=())
        said = "t1: it needs a host with the label gpu, and no host has it"

        assert [str(one) for one in only_people(alone, NOW)] == [f"{said} (`liza run --label gpu`)"]
        assert [str(one) for one in only_people(many, NOW)] == [f"{said} (`liza host --label gpu`)"]

    def test_a_label_of_a_worker_that_is_stopped_counts_for_nothing(self) -> None:
        state = hosted(new_task("t1", needs=("gpu",)), two=("gpu",))
        gone = state.agents["coder-two-1"].replace(status=WorkerStatus.STOPPED)
        state = state.replace(agents={**state.agents, gone.id: gone})
        assert pick.pick_work(state, "coder-two-1") is None


class TestTeams:
    def test_names_are_unique_over_hosts(self) -> None:
        slots: Any = {Role.CODER: 2, Role.REVIEWER: 1}
        named = [HostOffer(name, slots).roles(Config()) for name in ("one", "two")]
        assert list(named[0]) == ["coder-one-1", "coder-one-2", "reviewer-one-1"]
        assert not named[0].keys() & named[1].keys()

    def test_the_team_is_the_one_of_the_hosts_where_there_are_any(self) -> None:
        assert list(team_of(board())) == ["planner-1", "coder-1", "coder-2", "reviewer-1"]
        assert set(team_of(hosted(one=()))) == {"coder-one-1", "reviewer-one-1"}

    def test_only_workers_of_other_machines_are_foreign(self) -> None:
        state = hosted(one=(), two=())
        assert foreign_workers(state, "one") == {"coder-two-1", "reviewer-two-1"}
        assert foreign_workers(board(), None) == frozenset()
