"""What must be true of a whole board, and of the step from one board to the next.

Both tables are linear in what they look at. A board that is opened is checked whole; an update is checked
by the same rows, narrowed to the records that changed and to the rules that read a changed field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.domain.lifecycle import ADDED, SUCCEEDED, TERMINAL, is_allowed_entry, label_of, unmet_requirements
from liza.domain.model import BreakerStatus, GoalStatus, State, Status, Task
from liza.errors import Violation

if TYPE_CHECKING:
    from liza.domain.record import Record

Violations = Iterator[Violation]
MOST_CYCLES: Final = 20  # cycles told at once: each is a look at all dependencies


class BoardRule(NamedTuple):
    """A rule over the whole board and the fields it reads (`tasks.lease`, `sprint.tasks`, or a section)."""

    reads: frozenset[str]
    find: Callable[[State], Violations]


def violations(state: State) -> list[Violation]:
    """Return everything that is wrong with *state*."""
    found = [violation for task in state.tasks.values() for violation in task_violations(task)]
    found += [violation for rule in BOARD_RULES for violation in rule.find(state)]
    return found


def task_violations(task: Task) -> Violations:
    """Yield what is wrong with one task by itself."""
    for check in TASK_CHECKS:
        yield from check(task)


def _keeps_promises(task: Task) -> Violations:
    """A task keeps every promise of its status."""
    for promise in unmet_requirements(task):
        yield Violation(
            f"tasks.{task.id}.{promise.field}",
            f"a task that is {task.status} {promise.says}",
            "undo the edit, or use `liza task` to move it",
        )


def _judged_by_another(task: Task) -> Violations:
    """Nobody approves their own work, in whatever status it is."""
    if task.approved_by is not None and task.approved_by in task.authors:
        yield Violation(
            f"tasks.{task.id}.approved_by",
            f"{task.approved_by} wrote this and approved it",
            "let a reviewer judge it",
        )


def _depends_sensibly(task: Task) -> Violations:
    """A task neither waits for itself nor replaces itself, and names each dependency once."""
    path = f"tasks.{task.id}.depends_on"
    if task.id in task.depends_on:
        yield Violation(path, "it waits for itself", f"remove {task.id} from the list")
    if len(set(task.depends_on)) < len(task.depends_on):
        yield Violation(path, "a dependency is named twice", "name it once")
    if task.id in task.superseded_by:
        yield Violation(f"tasks.{task.id}.superseded_by", "it replaces itself", "name other tasks")


def _counts_add_up(task: Task) -> Violations:
    """The review cycles of the current coder are no more than all of them."""
    if task.review_cycles_current > task.review_cycles_total:
        yield Violation(
            f"tasks.{task.id}.review_cycles_current",
            f"{task.review_cycles_current} cycles of {task.review_cycles_total} in all",
            "put both numbers back",
        )


def _history_tells_the_status(task: Task) -> Violations:
    """History begins with the adding, follows the rows of the lifecycle in order, and ends in the status."""
    path = f"tasks.{task.id}.history"
    mend = "history is Liza's own: put it back as it was"
    if not task.history:
        yield Violation(path, "there is none", mend)
        return
    if task.history_earlier == 0 and task.history[0].event != ADDED:
        yield Violation(f"{path}[0]", f"it begins with {task.history[0].event!r}, not with {ADDED!r}", mend)
    before = None
    for number, entry in enumerate(task.history):
        if not is_allowed_entry(entry):
            way = f"{entry.event} from {entry.source} to {entry.target} by a {entry.role}"
            yield Violation(f"{path}[{number}]", f"no row of the lifecycle allows {way}", mend)
        if before and (before.target != entry.source or before.at > entry.at):
            yield Violation(f"{path}[{number}]", "it does not follow from the entry before it", mend)
        before = entry
    if task.history[-1].target != task.status:
        yield Violation(
            f"tasks.{task.id}.status",
            f"it says {task.status}, but its history ends in {task.history[-1].target}",
            "put the status back, or use `liza task` to move it",
        )


def _position_has_its_label(task: Task) -> Violations:
    """The status of a task is the label of its position in the workflow."""
    if task.position is None:
        yield Violation(f"tasks.{task.id}.position", "there is none", "positions are Liza's own: put it back")
    elif (label := label_of(task.position, task.lease)) is not task.status:
        problem = f"it says {task.status}, but its position in the workflow is that of a task that is {label}"
        yield Violation(
            f"tasks.{task.id}.status", problem, "put the status back, or use `liza task` to move it"
        )


TASK_CHECKS: Final[tuple[Callable[[Task], Violations], ...]] = (
    _keeps_promises,
    _judged_by_another,
    _depends_sensibly,
    _counts_add_up,
    _history_tells_the_status,
    _position_has_its_label,
)


def _duplicates(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, str]]:
    """Yield (key, first name, later name) for every repeated key."""
    first: dict[str, str] = {}
    for key, name in pairs:
        if key in first:
            yield key, first[key], name
        else:
            first[key] = name


def _ids_are_unique(state: State) -> Violations:
    """No two tasks, live or archived, have ids that differ in nothing or only in case."""
    names = ((name.casefold(), name) for section in (state.tasks, state.archived) for name in section)
    for _, one, other in _duplicates(names):
        same = (
            "is used twice, here and in the archive" if one == other else f"differs from {one!r} only in case"
        )
        yield Violation(f"tasks.{other}.id", f"the id {other!r} {same}", "choose another id")


def _dependencies_exist(state: State) -> Violations:
    """Every dependency is a task, live or archived."""
    for task in state.tasks.values():
        for name in task.depends_on:
            if state.status_of(name) is None:
                yield Violation(
                    f"tasks.{task.id}.depends_on",
                    f"there is no task {name!r}",
                    "add it, or remove the dependency",
                )


def _dependencies_have_no_cycle(state: State) -> Violations:
    """No task waits for itself by way of others."""
    waits = {
        task.id: {name for name in task.depends_on if name != task.id and name in state.tasks}
        for task in state.tasks.values()
        if task.depends_on
    }
    for _ in range(MOST_CYCLES):
        ring = _cycle_in(waits)
        if not ring:
            return
        yield Violation(
            f"tasks.{ring[0]}.depends_on",
            f"{' waits for '.join([*ring, ring[0]])}: a cycle",
            "remove one of these dependencies",
        )
        for name in ring:
            del waits[name]


def _cycle_in(waits: Mapping[str, set[str]]) -> list[str]:
    """Return tasks that wait for each other in a circle, from the first by name; empty where none do."""
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        ring: list[str] = error.args[1][:0:-1]  # who waits comes last there, and the first twice
        first = ring.index(min(ring))
        return ring[first:] + ring[:first]
    return []


def _one_task_a_holder(state: State) -> Violations:
    """A worker holds one task at most, and no two leases have the same token."""
    leases = [(task.lease, task.id) for task in state.tasks.values() if task.lease]
    for holder, one, other in _duplicates((lease.holder, name) for lease, name in leases):
        yield Violation(
            f"tasks.{other}.lease", f"{holder} holds {one} as well", f"`liza task release {other}`"
        )
    for _, one, other in _duplicates((lease.token, name) for lease, name in leases):
        yield Violation(
            f"tasks.{other}.lease.token", f"it is the token of {one}", f"`liza task release {other}`"
        )


def _work_waits_its_turn(state: State) -> Violations:
    """A task is WORKING only after all that it depends on succeeded."""
    for task in state.tasks.values():
        if task.status is not Status.WORKING:
            continue
        for name in task.depends_on:
            status = state.status_of(name)
            if status is not None and status not in SUCCEEDED:
                yield Violation(
                    f"tasks.{task.id}.depends_on",
                    f"it is WORKING while {name} is {status}",
                    f"remove the dependency, or `liza task release {task.id}`",
                )


def _one_merge_a_task(state: State) -> Violations:
    """No two tasks have the same merge_commit."""
    merges = ((task.merge_commit, task.id) for task in state.tasks.values() if task.merge_commit)
    for _, one, other in _duplicates(merges):
        yield Violation(f"tasks.{other}.merge_commit", f"it is the merge of {one}", "put the commit back")


def _named_tasks_exist(state: State) -> Violations:
    """Successors, notes, anomalies, discoveries, handoffs and the sprint name tasks that are there."""
    named = [
        *((f"tasks.{t.id}.superseded_by", name) for t in state.tasks.values() for name in t.superseded_by),
        *((f"human_notes.{n.id}.for", n.about) for n in state.human_notes.values()),
        *((f"anomalies.{a.id}.task_id", a.task_id) for a in state.anomalies.values()),
        *((f"discovered.{d.id}.task_id", d.task_id) for d in state.discovered.values()),
        *((f"discovered.{d.id}.became_task", d.became_task) for d in state.discovered.values()),
        *((f"handoff.{h.id}.id", h.id) for h in state.handoff.values()),
        *(("sprint.tasks", name) for name in state.sprint.tasks),
    ]
    for path, name in named:
        if name is not None and state.status_of(name) is None:
            yield Violation(path, f"there is no task {name!r}", "name a task of this board")


def _notes_are_marked_whole(state: State) -> Violations:
    """A processed note says both when and by whom."""
    for note in state.human_notes.values():
        if (note.processed is None) != (note.processed_by is None):
            yield Violation(
                f"human_notes.{note.id}.processed",
                "it says when or by whom, but not both",
                "remove both to have the note read again",
            )


def _goal_is_truly_complete(state: State) -> Violations:
    """A goal is COMPLETE only when every task is finished and at least one succeeded."""
    if state.goal.status is not GoalStatus.COMPLETE:
        return
    open_ones = [task.id for task in state.tasks.values() if task.status not in TERMINAL]
    if open_ones:
        yield Violation(
            "goal.status",
            f"it says COMPLETE, but {', '.join(open_ones[:3])} is not finished",
            "set it to IN_PROGRESS",
        )
    statuses = [*(task.status for task in state.tasks.values()), *state.archived.values()]
    if not SUCCEEDED.intersection(statuses):
        yield Violation("goal.status", "it says COMPLETE, but nothing was done", "set it to IN_PROGRESS")


def _breaker_says_its_trips(state: State) -> Violations:
    """The breaker is TRIPPED exactly while a trip is not resolved, and trips have ids of their own."""
    trips = state.circuit_breaker.trips
    unresolved = any(trip.resolved_at is None for trip in trips)
    if unresolved != (state.circuit_breaker.status is BreakerStatus.TRIPPED):
        yield Violation(
            "circuit_breaker.status",
            f"it says {state.circuit_breaker.status}, but "
            + ("a trip is not resolved" if unresolved else "no trip is open"),
            "undo the edit",
        )
    for _, one, other in _duplicates((trip.id, f"{number}") for number, trip in enumerate(trips)):
        yield Violation(f"circuit_breaker.trips[{other}].id", f"it is the id of trip {one}", "undo the edit")


def _rule(find: Callable[[State], Violations], *reads: str) -> BoardRule:
    return BoardRule(frozenset(reads), find)


BOARD_RULES: Final[tuple[BoardRule, ...]] = (
    _rule(_ids_are_unique, "tasks.id", "archived"),
    _rule(_dependencies_exist, "tasks.id", "tasks.depends_on", "archived"),
    _rule(_dependencies_have_no_cycle, "tasks.id", "tasks.depends_on"),
    _rule(_one_task_a_holder, "tasks.lease"),
    _rule(_work_waits_its_turn, "tasks.status", "tasks.depends_on", "archived"),
    _rule(_one_merge_a_task, "tasks.merge_commit"),
    _rule(
        _named_tasks_exist,
        *("tasks.id", "tasks.superseded_by", "archived"),
        *("human_notes", "anomalies", "discovered", "handoff", "sprint.tasks"),
    ),
    _rule(_notes_are_marked_whole, "human_notes"),
    _rule(_goal_is_truly_complete, "goal", "tasks.status", "tasks.id", "archived"),
    _rule(_breaker_says_its_trips, "circuit_breaker"),
)


class StateDiff(NamedTuple):
    """The difference between two boards: the records added, changed or removed, by section."""

    old: State
    new: State
    put: Mapping[str, tuple[str, ...]]  # section: ids of records that are new or changed
    gone: Mapping[str, tuple[str, ...]]  # section: ids of records that are no longer there

    def fields(self) -> frozenset[str]:
        """Return what changed, in the words of `Rule.reads`."""
        changed = {section for section in (*self.put, *self.gone) if section not in {"tasks", "sprint"}}
        if "sprint" in self.put:
            changed |= {f"sprint.{field}" for field in _changed_fields(self.old.sprint, self.new.sprint)}
        if "tasks" in self.gone:
            changed.add("tasks.id")
        for name in self.put.get("tasks", ()):
            changed |= {
                f"tasks.{field}" for field in _changed_fields(self.old.tasks.get(name), self.new.tasks[name])
            }
        return frozenset(changed)


def _changed_fields(old: Record | None, new: Record) -> Iterable[str]:
    """Return the names of the fields that differ; values are shared between copies, so identity tells."""
    if old is None:
        return new.__class__.model_fields
    before, after = old.__dict__, new.__dict__
    return [name for name in after if before[name] is not after[name]]


def diff_violations(step: StateDiff) -> list[Violation]:
    """Return what is wrong with the new board of *step*, or with how it came to be."""
    found = [violation for check in DIFF_CHECKS for violation in check(step)]
    found += [
        violation for name in step.put.get("tasks", ()) for violation in task_violations(step.new.tasks[name])
    ]
    fields = step.fields()
    found += [violation for rule in BOARD_RULES if rule.reads & fields for violation in rule.find(step.new)]
    return found


def _changed_tasks(step: StateDiff) -> Iterator[tuple[Task, Task]]:
    for name in step.put.get("tasks", ()):
        if (old := step.old.tasks.get(name)) is not None:
            yield old, step.new.tasks[name]


def _history_only_grows(step: StateDiff) -> Violations:
    """No entry of a history is changed or removed."""
    for old, new in _changed_tasks(step):
        kept = new.history[: len(old.history)]
        if new.history_earlier != old.history_earlier or kept != old.history:
            yield Violation(f"tasks.{new.id}.history", "an entry was changed or removed", "append only")


def _status_moves_by_the_table(step: StateDiff) -> Violations:
    """A status changes by an event only, and nothing of a task changes once its status is final."""
    for old, new in _changed_tasks(step):
        added = new.history[len(old.history) :]
        if old.status in TERMINAL:
            yield Violation(f"tasks.{new.id}.status", f"{old.status} is final", "make a new task")
        elif old.status is not new.status and not added:
            yield Violation(
                f"tasks.{new.id}.status", f"{old.status} became {new.status} without an event", "use an event"
            )


def _new_tasks_begin(step: StateDiff) -> Violations:
    """A new task comes with its whole history."""
    for name in step.put.get("tasks", ()):
        if name not in step.old.tasks:
            task = step.new.tasks[name]
            if task.history_earlier or not task.history or task.history[0].event != ADDED:
                yield Violation(f"tasks.{name}.history", "a new task begins with its adding", "add it anew")


def _totals_never_fall(step: StateDiff) -> Violations:
    """Counts of all review cycles never fall, and authors are never forgotten."""
    for old, new in _changed_tasks(step):
        if new.review_cycles_total < old.review_cycles_total:
            yield Violation(f"tasks.{new.id}.review_cycles_total", "it was lowered", "it never resets")
        if not set(old.authors) <= set(new.authors):
            yield Violation(f"tasks.{new.id}.authors", "an author was removed", "put the name back")


def _nothing_vanishes(step: StateDiff) -> Violations:
    """Tasks leave only finished and for the archive; notes, anomalies and discoveries stay for good."""
    for name in step.gone.get("tasks", ()):
        status = step.old.tasks[name].status
        if status not in TERMINAL or step.new.archived.get(name) is not status:
            yield Violation(f"tasks.{name}", "it was removed", "`liza task` abandons a task; none is removed")
    for section in ("human_notes", "anomalies", "discovered"):
        for name in step.gone.get(section, ()):
            yield Violation(
                f"{section}.{name}", "it was removed", "entries are marked processed, never removed"
            )
    for name, status in step.old.archived.items() if "archived" in step.put else ():
        if step.new.archived.get(name) is not status:
            yield Violation(f"archived.{name}", "it was changed", "the archive only grows")


def _trips_stay(step: StateDiff) -> Violations:
    """A trip of the circuit breaker is resolved, never removed."""
    if "circuit_breaker" not in step.put:
        return
    there = {trip.id for trip in step.new.circuit_breaker.trips}
    for trip in step.old.circuit_breaker.trips:
        if trip.id not in there:
            yield Violation(f"circuit_breaker.trips.{trip.id}", "it was removed", "resolve it with a reason")


DIFF_CHECKS: Final[tuple[Callable[[StateDiff], Violations], ...]] = (
    _history_only_grows,
    _status_moves_by_the_table,
    _new_tasks_begin,
    _totals_never_fall,
    _nothing_vanishes,
    _trips_stay,
)
