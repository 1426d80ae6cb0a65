"""From APPROVED to MERGED: merge as trees, test exactly that tree, say so, move the ref, prove it, say so.

Every half of it converges after a crash: a merge that was started and is on the branch becomes MERGED, and
one that is not is made again.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final, NamedTuple

from liza import events as e
from liza.agents import process
from liza.agents.cage import Visit
from liza.agents.environment import allowed
from liza.agents.masking import mask, secrets_of
from liza.agents.protocol import Ending, Limits
from liza.anomalies import MergeConflict
from liza.changes import with_anomaly
from liza.errors import LizaError, UnfitRepository
from liza.model import IntegrationFailure
from liza.record import printable
from liza.repo.merging import Account, Conflict, Landed, Merged, doubts, land, merge, resolve, seal
from liza.repo.scratch import scratch
from liza.repo.trailers import Trailer
from liza.repo.verify import Link, links
from liza.roles import reviewer
from liza.work.turn import RUNS, SLACK

if TYPE_CHECKING:
    from pathlib import Path

    from liza.model import State, Task
    from liza.work.turn import Turn

MOST_ROUNDS: Final = 20  # times that others may be faster before somebody else has a try
TAIL: Final = 2000  # characters of a red gate's output that the coder is shown

log = logging.getLogger(__name__)


class Red(NamedTuple):
    """A gate that did not pass, or could not be asked to the end."""

    ending: Ending
    why: str


def integrate(turn: Turn) -> None:
    """Bring the approved task of *turn* to the integration branch, or say what stands in the way."""
    for _ in range(MOST_ROUNDS):
        if _tried(turn, turn.current()):
            return
    turn.record(e.Release(reason="the integration branch moved faster than the merge; it is tried again"))


def _tried(turn: Turn, task: Task) -> bool:
    """Try once; return False where the branch moved meanwhile."""
    repository, ref = turn.place.repository, turn.place.integration(turn.state)
    if task.merging and repository.contains(ref, task.merging.commit):
        turn.record(e.Merge(commit=task.merging.commit))
        return True
    if found := _merged_by_another(turn, task):
        turn.record(e.StartMerge(onto=found.parents[0], commit=found.commit), e.Merge(commit=found.commit))
        return True
    head = repository.commit_at(ref)
    if head is None:
        raise UnfitRepository(
            f"{task.id}: the integration branch {ref} is gone; put it back, then `liza resume`"
        )
    commit = str(task.review_commit)
    merged = merge(repository, head, commit)
    if isinstance(merged, Conflict):
        resolution = resolve(repository, merged)
        if resolution is None:
            _conflicted(turn, task, merged)
            return True
        merged = resolution
    return _landed(turn, task, merged, head)


def _merged_by_another(turn: Turn, task: Task) -> Link | None:
    """Return the merge of *task* that is on the branch, though the board says another was started.

    A reviewer that was away for longer than its lease may have moved the ref after somebody took over.
    """
    repository, ref, commit = (
        turn.place.repository,
        turn.place.integration(turn.state),
        str(task.review_commit),
    )
    if not repository.contains(ref, commit):
        return None
    chain = links(repository, ref, task.base_commit)
    return next(
        (link for link in chain if link.trailers.get(Trailer.TASK) == task.id and commit in link.parents),
        None,
    )


def _landed(turn: Turn, task: Task, merged: Merged, head: str) -> bool:
    repository, ref = turn.place.repository, turn.place.integration(turn.state)
    commit = str(task.review_commit)
    account = Account(f"Merge {task.id}: {task.description.splitlines()[0]}", _trailers(turn.state, task))
    sealed = seal(repository, merged, account, onto=head, commit=commit, at=turn.place.clock())
    red = gate(turn, sealed)
    if red is not None:
        _red(turn, red)
        return True
    turn.record(e.StartMerge(onto=head, commit=sealed))
    if not isinstance(land(repository, ref, sealed, onto=head, task=task.id), Landed):
        return False
    if wrong := doubts(repository, ref, sealed, commit=commit, tree=merged.tree):
        log.warning("%s: not merged yet: %s", task.id, "; ".join(wrong))
        return False
    turn.record(e.Merge(commit=sealed))
    return True


def _trailers(state: State, task: Task) -> dict[Trailer, str]:
    gates = {"setup": state.config.gates.setup, "test": state.config.gates.test}
    return {
        Trailer.TASK: task.id,
        Trailer.VERDICT: "approve",
        Trailer.APPROVED_BY: str(task.approved_by),
        Trailer.GATES: "; ".join(f"{name}: {line}" for name, line in gates.items() if line) or "none",
        Trailer.AGENT: ", ".join(task.authors),
    }


def _conflicted(turn: Turn, task: Task, conflict: Conflict) -> None:
    paths = tuple(mask().text(printable(path)) for path in conflict.paths)
    reason = printable(
        f"it conflicts with what was merged meanwhile ({conflict}); the work is laid over the new base "
        "without a commit, with conflict marks: resolve them"
    )
    events = reviewer.conflicted(task, reason, paths)
    at, by = turn.place.clock(), turn.place.name

    def more(state: State) -> State:
        if not any(isinstance(event, e.Block) for event in events):
            return state
        return with_anomaly(state, MergeConflict(paths=paths), about=task.id, by=by, at=at)

    turn.record(*events, more=more)


def _red(turn: Turn, red: Red) -> None:
    if red.ending is Ending.STOPPED:
        turn.record(e.Release(reason="the merge was stopped before its tests were through"))
        return
    turn.record(e.FailIntegration(failure=IntegrationFailure(reason=red.why)))


def gate(turn: Turn, commit: str) -> Red | None:
    """Run the project's own commands on exactly *commit*; return what is wrong, or None where all pass."""
    gates = turn.state.config.gates
    commands = {name: line for name, line in (("setup", gates.setup), ("test", gates.test)) if line}
    if not commands:
        return None
    with scratch(turn.place.worktrees, commit) as path:
        for name, line in commands.items():
            if red := _run(turn, name, line, path):
                return red
    return None


def _run(turn: Turn, name: str, line: str, cwd: Path) -> Red | None:
    limits = Limits(total=turn.state.config.limits.agent_minutes * 60)
    job = process.Job(
        argv=("/bin/sh", "-c", line),
        cwd=cwd,
        folder=turn.place.home / RUNS / turn.place.run_id(name),
        environment=allowed(os.environ),
        limits=limits,
        secrets=secrets_of(os.environ),
    )
    with turn.keeper.expecting_life(limits.total + SLACK):
        # Agents wrote what runs here. Setup and test share a home: what one installs, the other finds.
        visit = Visit(f"{turn.task}.gate-{turn.place.name}")
        with turn.place.warden(turn.state).caged(job, visit) as caged:
            outcome = process.run(caged, turn.stop)
    if outcome.ending is Ending.DONE and outcome.code == 0:
        return None
    if outcome.ending is not Ending.DONE:
        return Red(outcome.ending, f"{name} ({line}) was not through: {outcome.why}")
    said = printable(f"{outcome.out}\n{outcome.err}".strip()[-TAIL:])
    return Red(
        outcome.ending, f"{name} ({line}) ended with exit code {outcome.code} on the merged tree:\n{said}"
    )


def unfit(turn: Turn, error: LizaError) -> None:
    """Give the task back and let everybody wait for a person who puts the repository right."""
    sentence = printable(str(error))
    turn.place.orders.pause(sentence)
    turn.record(e.Release(reason=sentence))
