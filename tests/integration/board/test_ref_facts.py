"""The facts that the rules of pushes ask of a board, followed without the model: the same as with it."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from liza.board.journal import (
    JournalPosition,
    diff_states,
    encode_entry,
    first_state,
    journal_fields,
    json_of_changes,
    replay_entries,
)
from liza.board.protocol import JournalEntry
from liza.board.ref_facts import FactsFollower, facts_of
from liza.domain.model import Integration, Lease, MergeIntent, Status
from tests.support.sample_tasks import BASE, NOW, board, new_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from liza.domain.model import State, Task

LEASE: Final = Lease(holder="coder-1", token="token", expires=NOW + timedelta(hours=1, microseconds=7))  # noqa: S106


def with_task(state: State, name: str, **fields: object) -> State:
    return state.replace(tasks={**state.tasks, name: state.tasks[name].replace(**fields)})


def without_task(state: State, name: str) -> State:
    kept: dict[str, Task] = {key: task for key, task in state.tasks.items() if key != name}
    return state.replace(tasks=kept)


STEPS: Final[dict[str, Callable[[State], State]]] = {
    "a lease": lambda state: with_task(state, "t1", lease=LEASE),
    "another one": lambda state: with_task(state, "t1", lease=LEASE.replace(token="other")),  # noqa: S106
    "a merge": lambda state: with_task(state, "t1", merging=MergeIntent(onto=BASE, commit="b" * 40)),
    "none": lambda state: with_task(state, "t1", lease=None, merging=None),
    "nothing of it": lambda state: with_task(state, "t1", priority=3),
    "a new task": lambda state: state.replace(tasks={**state.tasks, "t3": new_task("t3")}),
    "a base": lambda state: state.replace(integration=Integration(base=BASE)),
    "a branch": lambda state: state.replace(config=state.config.replace(integration_branch="trunk")),
    "the usual branch": lambda state: state.replace(
        config=state.config.replace(integration_branch="liza/integration")
    ),
    "no task": lambda state: without_task(state, "t2"),
    "one again": lambda state: state.replace(tasks={**state.tasks, "t2": new_task("t2")}),
}


class Lines:
    """A journal in memory, of which each line is made as a board makes it; no rule is in the way."""

    def __init__(self, state: State) -> None:
        put = {key: value for key, value in state.to_json().items() if key != "revision"}
        entry = JournalEntry(1, NOW, "human", "init", put, {})
        self.state = first_state(entry)
        line, self.mark = encode_entry(entry, JournalPosition())
        self.texts = [line.decode().rstrip("\n")]

    def write(self, what: str, step: Callable[[State], State]) -> None:
        diff = diff_states(self.state, step(self.state).replace(revision=self.state.revision + 1))
        put, gone = journal_fields(diff, json_of_changes(diff)), diff.gone
        names = {section: list(ids) for section, ids in gone.items()}
        entry = JournalEntry(diff.new.revision, NOW, "human", what, put, names)
        self.state = replay_entries(self.state, [entry])
        line, self.mark = encode_entry(entry, self.mark)
        self.texts.append(line.decode().rstrip("\n"))


def test_every_change_is_followed() -> None:
    lines, follower = Lines(board(new_task("t1"), new_task("t2"))), FactsFollower()
    assert follower.follow(lines.texts)
    assert follower.facts() == facts_of(lines.state)
    for what, step in STEPS.items():
        before = follower.facts()
        lines.write(what, step)
        assert follower.follow(lines.texts[-1:]), what
        assert follower.facts() == facts_of(lines.state), what
        assert list(follower.facts().tasks) == list(lines.state.tasks), what
        assert (follower.facts() == before) == (what == "nothing of it"), what
    assert (follower.offset, follower.sum) == lines.mark
    assert FactsFollower.from_json(follower.to_json()).facts() == follower.facts()


def test_the_first_line_has_it_all() -> None:
    begun = board(new_task("t1")).replace(archived={"old": Status.MERGED}, integration=Integration(base=BASE))
    lines = Lines(with_task(begun, "t1", lease=LEASE, status=Status.WORKING))
    follower = FactsFollower()
    assert follower.follow(lines.texts)
    assert follower.facts() == facts_of(lines.state)
    assert follower.facts().tasks["t1"].lease == (LEASE.holder, LEASE.token, LEASE.expires)


def test_a_line_that_was_changed_is_not_followed() -> None:
    (first,) = Lines(board(new_task("t1"))).texts
    assert not FactsFollower().follow([first.replace("t1", "t2", 1)])
