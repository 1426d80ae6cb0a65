"""A walk without a plan: whatever anybody tries, in whatever order, the board stays valid."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from types import MappingProxyType
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from liza.board.journal import diff_states
from liza.domain import lifecycle as e
from liza.domain.changes import HUMAN, SUPERVISOR, Change, add_note, diff_violations, violations, waits_for
from liza.domain.lifecycle import BY_SOURCE, EVENTS, TERMINAL
from liza.domain.model import Actor, Lease, Role, State, Status, Task
from liza.errors import LizaError, Violation
from liza.workflow.transition import add_task, answer_task, apply
from tests.support.sample_tasks import (
    ASK_HUMAN,
    EXAMPLES,
    FAIL_INTEGRATION,
    FIND_NOTHING,
    FORCE_PASS,
    NOW,
    PLANNER,
    WAYS_FOR_EVENT,
    board,
    commit,
    new_task,
    reject,
    task_in,
)

FENCED = frozenset({Role.CODER, Role.REVIEWER})
WORKERS = ("coder-1", "coder-2", "reviewer-1", "reviewer-2")
NOBODY = "t99"  # an id that no task ever has
LARGEST_BOARD = 12

# What can only be judged on the whole board is stopped at its door, by the rules of the whole board.
GRAPH = (e.Amend, e.Supersede)
STARTS: list[tuple[Status, type[e.Event] | None]] = [*((status, None) for status in Status), *WAYS_FOR_EVENT]
SELDOM = (e.Abandon, e.Supersede, e.Block, e.Amend)  # possible nearly everywhere, and soon the end of a walk

Draw = st.DataObject
minutes = st.integers(-10, 90).map(lambda number: timedelta(minutes=number))
few_commits = st.integers(1, 3).map(commit)  # so few that a submission is now and then its own base
runs = st.sampled_from([None, "run of coder-1", "run of reviewer-1"])


class Walk(RuleBasedStateMachine):
    """Several tasks, five roles, workers that die and come back, and a clock that is set back at times."""

    happened: ClassVar[Counter[type[e.Event]]] = Counter()

    def __init__(self) -> None:
        super().__init__()
        self.state: State = board()
        self.now = NOW
        self.count = 0
        self.tokens = ["a guess"]

    def fresh(self) -> int:
        self.count += 1
        return self.count

    @initialize(start=st.sampled_from(STARTS))
    def begin(self, start: tuple[Status, type[e.Event] | None]) -> None:
        """Begin where few walks would come to by themselves."""
        status, ready_for = start
        self.state = board(
            task_in(status, ready_for=ready_for),
            new_task("t2"),
            new_task("t3", depends_on=("t1",)),
            new_task("t4", status=Status.DRAFT, depends_on=("t2", "t3")),
        )
        self.tokens += [task.lease.token for task in self.state.tasks.values() if task.lease]

    @rule(step=minutes)
    def time_passes(self, step: timedelta) -> None:
        self.now += step

    @rule(data=st.data(), times=st.integers(1, 12))
    def a_task_goes_its_way(self, data: Draw, times: int) -> None:
        """Take rows of the table that fit, by somebody who may, with facts that are mostly right."""
        tasks = self.state.tasks.values()
        free = [task.id for task in tasks if task.status not in TERMINAL and not waits_for(self.state, task)]
        name = data.draw(st.sampled_from(free or [*self.state.tasks]))
        for _ in range(times):
            task = self.state.tasks[name]
            careful = data.draw(st.integers(0, 9)) > 0
            if ways := self.ways_on(task, careful=careful):
                kind, role = data.draw(st.sampled_from(ways))
                by = self.actor(data, role, task, careful=careful)
                self.try_event(self.event(data, kind, task, by), name, by)

    def ways_on(self, task: Task, *, careful: bool) -> list[tuple[type[e.Event], Role]]:
        """Return what the table allows to happen to *task*; with *careful*, only what leads anywhere."""
        return [
            (row.event, role)
            for (source, _), row in BY_SOURCE.items()
            if source is task.status and not (careful and row.event in SELDOM)
            for role in sorted(row.who)
            if not (careful and row.held and role in FENCED and task.lease is None)
        ]

    @rule(data=st.data(), event=st.sampled_from(EVENTS), role=st.sampled_from(Role))
    def anybody_does_anything(self, data: Draw, event: type[e.Event], role: Role) -> None:
        name = data.draw(st.sampled_from([*self.state.tasks, *self.state.archived, NOBODY]))
        task = self.state.tasks.get(name, new_task(NOBODY))
        by = self.actor(data, role, task, careful=False)
        self.try_event(self.event(data, event, task, by), name, by)

    @rule(
        data=st.data(),
        role=st.sampled_from(Role),
        status=st.sampled_from([Status.DRAFT, Status.IDLE] * 7 + [*Status]),
    )
    def somebody_adds_a_task(self, data: Draw, role: Role, status: Status) -> None:
        if len(self.state.tasks) >= LARGEST_BOARD:
            return
        name = data.draw(st.sampled_from([f"new-{self.fresh()}", "t1", "T1"]))
        wanted = data.draw(st.lists(st.sampled_from([*self.state.tasks, name, NOBODY]), max_size=2))
        task = new_task(name, depends_on=wanted).replace(status=status, history=())
        by = self.actor(data, role, task, careful=False)
        self.update(add_task(task, by=by, at=self.now), may_break_the_graph=True)

    @rule(data=st.data(), role=st.sampled_from([*[Role.HUMAN] * 9, *Role]), is_answer=st.booleans())
    def somebody_speaks(self, data: Draw, role: Role, is_answer: bool) -> None:
        by = self.actor(data, role, None, careful=False)
        asking = [name for name, task in self.state.tasks.items() if task.status is Status.BLOCKED]
        name = data.draw(st.sampled_from([*asking * 9, *self.state.tasks, *self.state.archived, NOBODY]))
        if is_answer:
            self.update(answer_task(name, "blue", by=by, at=self.now))
        else:
            self.update(add_note("look here", about=name, by=by, at=self.now))

    @rule(data=st.data())
    def a_finished_task_is_archived(self, data: Draw) -> None:
        over = [name for name, task in self.state.tasks.items() if task.status in TERMINAL]
        if not over or len(self.state.tasks) == 1:
            return
        name = data.draw(st.sampled_from(over))

        def make(state: State) -> State:
            kept = {key: task for key, task in state.tasks.items() if key != name}
            archived = {**state.archived, name: state.tasks[name].status}
            return state.replace(tasks=MappingProxyType(kept), archived=MappingProxyType(archived))

        self.update(Change("supervisor", f"archive {name}", make))

    @invariant()
    def the_board_is_valid(self) -> None:
        assert violations(self.state) == []

    def actor(self, data: Draw, role: Role, task: Task | None, *, careful: bool) -> Actor:
        """Return somebody of *role*; with *careful*, the one who holds *task* if anybody does."""
        if role not in FENCED:
            return {Role.PLANNER: PLANNER, Role.SUPERVISOR: SUPERVISOR, Role.HUMAN: HUMAN}[role]
        if careful:
            name = data.draw(st.sampled_from([name for name in WORKERS if name.startswith(role)]))
            lease = task.lease if task else None
            holder, token = (lease.holder, lease.token) if lease else (name, None)
            return Actor(role=role, id=holder, token=token, run=f"run of {holder}")
        # Any name for any role: configurations are free, so that an author may well come back as a reviewer.
        name = data.draw(st.sampled_from(WORKERS))
        return Actor(role=role, id=name, token=data.draw(self.old_tokens()), run=data.draw(runs))

    def old_tokens(self) -> st.SearchStrategy[str | None]:
        return st.sampled_from([None, *self.tokens[-8:]])

    def lease(self, data: Draw, by: Actor) -> Lease:
        token = f"token {self.fresh()}"
        self.tokens.append(token)
        holder = data.draw(st.sampled_from([*[by.id] * 7, "coder-1"]))
        return Lease(holder=holder, token=token, expires=self.now + data.draw(minutes))

    def event(self, data: Draw, kind: type[e.Event], task: Task, by: Actor) -> e.Event:
        """Return an event of *kind* with facts that fit *task* more often than not."""
        facts: dict[type[e.Event], Callable[[], e.Event]] = {
            e.Take: lambda: e.Take(
                lease=self.lease(data, by),
                base_commit=None if by.role is Role.REVIEWER else data.draw(few_commits),
            ),
            e.Renew: lambda: e.Renew(expires=self.now + data.draw(minutes)),
            e.Report: lambda: self.report(data, task),
            # No two merges are one commit: git makes their hashes.
            e.Intend: lambda: e.Intend(onto=data.draw(few_commits), commit=commit(100 + self.fresh())),
            e.Land: lambda: e.Land(commit=task.merging.commit if task.merging else data.draw(few_commits)),
            e.Supersede: lambda: e.Supersede(superseded_by=self.some_names(data), rescope_reason="too big"),
            e.Amend: lambda: e.Amend(fields=self.amendment(data)),
        }
        return facts[kind]() if kind in facts else EXAMPLES[kind](by)

    def report(self, data: Draw, task: Task) -> e.Event:
        if task.status is Status.WORKING:
            reports: list[e.Event] = [e.Report(commit=data.draw(few_commits)), FIND_NOTHING[0], reject()[0]]
        else:
            judged = None if task.nothing_to_do else task.review_commit
            reports = [e.Report(commit=judged), reject()[0], ASK_HUMAN[0], FORCE_PASS[0], FAIL_INTEGRATION[0]]
        return data.draw(st.sampled_from(reports))

    def some_names(self, data: Draw) -> tuple[str, ...]:
        names = st.sampled_from([*self.state.tasks, *self.state.archived, NOBODY])
        return tuple(data.draw(st.lists(names, min_size=1, max_size=3)))

    def amendment(self, data: Draw) -> dict[str, object]:
        fields: list[dict[str, object]] = [
            {"depends_on": self.some_names(data)},
            {"priority": 3},
            {"status": "MERGED"},
        ]
        return data.draw(st.sampled_from(fields))

    def try_event(self, event: e.Event, name: str, by: Actor) -> None:
        change = apply(event, to=name, by=by, at=self.now)
        if self.update(change, may_break_the_graph=isinstance(event, GRAPH)):
            self.happened[type(event)] += 1

    def update(self, change: Change, *, may_break_the_graph: bool = False) -> bool:
        """Do what a board does with *change*, and tell whether it was taken."""
        before = self.state.to_json()
        try:
            made = change(self.state)
        except LizaError as refusal:
            note(f"refused: {refusal}")
            assert self.state.to_json() == before
            return False
        step = diff_states(self.state, made)
        if found := diff_violations(step):
            assert may_break_the_graph, found
            assert all(map(is_of_the_graph, found)), found
            return False
        assert violations(made) == []  # what the narrowed check lets pass, the whole check does too
        changed = [made.tasks[name] for name in step.put.get("tasks", ())]
        assert [Task.model_validate(task.to_json()) for task in changed] == changed
        for task in changed:
            made = made.with_task(task.with_recent_history())
        self.state = made.replace(revision=made.revision + 1)
        return True


def is_of_the_graph(violation: Violation) -> bool:
    return violation.path.endswith((".depends_on", ".superseded_by", ".id"))


def test_no_walk_leads_to_an_invalid_board() -> None:
    """Nor is it a timid walk: nearly every event happens."""
    Walk.happened.clear()

    run_state_machine_as_test(
        Walk,
        settings=settings(
            max_examples=30, stateful_step_count=40, deadline=None, derandomize=True, database=None
        ),
    )

    assert len(Walk.happened) > 0.75 * len(EVENTS)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_no_long_walk_does_either() -> None:
    run_state_machine_as_test(
        Walk,
        settings=settings(
            max_examples=1000,
            stateful_step_count=100,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
