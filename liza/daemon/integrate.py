"""From APPROVED to MERGED: merge as trees, test exactly that tree, say so, move the ref, prove it, say so.

Every half of it converges after a crash: a merge that was started and is on the branch becomes MERGED, and
one that is not is made again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from liza.daemon import course
from liza.daemon.policy import reviewer
from liza.domain import events as e
from liza.domain.anomalies import MergeConflict
from liza.domain.changes import with_anomaly
from liza.domain.record import printable
from liza.domain.verdicts import Outcome
from liza.errors import BrokenGate, LizaError, UnfitRepository
from liza.repo.merge import (
    Conflict,
    Landed,
    Merged,
    MergeDescription,
    commit_merge,
    land_merge,
    merge,
    merge_doubts,
    resolve_conflict,
)
from liza.repo.signing import ensure_key
from liza.repo.squash import Squashing, squash
from liza.repo.trailers import Trailer
from liza.repo.verify import ChainCommit, first_parent_chain
from liza.system.masking import environment_mask
from liza.workflow.document import SQUASH, GateKind

if TYPE_CHECKING:
    from liza.daemon.turn import Turn
    from liza.domain.model import State, Taint, Task
    from liza.domain.verdicts import Verdict
    from liza.gates.context import GateContext
    from liza.workflow.document import Workflow

MOST_ROUNDS: Final = 20  # times that others may be faster before somebody else has a try
LONGEST_FAILURE: Final = 3000  # characters of what is wrong with a merged tree that the coder is shown

log = logging.getLogger(__name__)


def integrate(turn: Turn) -> None:
    """Bring the approved task of *turn* to the integration branch, or say what stands in the way."""
    for _ in range(MOST_ROUNDS):
        if _try_once(turn, turn.current()):
            return
    turn.record(e.Release(reason="the integration branch moved faster than the merge; it is tried again"))


def _try_once(turn: Turn, task: Task) -> bool:
    """Try once; return False where the branch moved meanwhile."""
    repository, ref = turn.place.repository, turn.place.integration(turn.state)
    turn.place.fetch(turn.state)
    if task.merging and repository.contains(ref, task.merging.commit):
        turn.record(e.Land(commit=task.merging.commit))
        return True
    if found := _merge_by_another(turn, task):
        turn.record(e.Intend(onto=found.parents[0], commit=found.commit), e.Land(commit=found.commit))
        return True
    head = repository.commit_at(ref)
    if head is None:
        raise UnfitRepository(
            f"{task.id}: the integration branch {ref} is gone; put it back, then `liza resume`"
        )
    if not turn.place.verify_head(head):
        turn.record(e.Release(reason=f"{ref} has commits that no merge of the board made"))
        return True
    commit = _commit_to_merge(turn, task)
    merged = merge(repository, head, commit)
    if isinstance(merged, Conflict):
        resolution = resolve_conflict(repository, merged)
        if resolution is None:
            _record_conflict(turn, task, merged)
            return True
        merged = resolution
    return _land_merge(turn, task, merged, head)


def _commit_to_merge(turn: Turn, task: Task) -> str:
    """Return what was judged; or one commit of the same tree, where the person who approved wants that."""
    judged, said = str(task.review_commit), task.position.approvals if task.position else ()
    wish = next((one for one in said if one.label == SQUASH), None)
    if wish is None or not turn.place.workflow(turn.state).offers_squash:
        return judged
    # Made of what does not change, it is the same commit however often it is made.
    what = Squashing(str(task.base_commit), judged, task.description)
    return squash(turn.place.repository, what, at=wish.at)


def _merge_by_another(turn: Turn, task: Task) -> ChainCommit | None:
    """Return the merge of *task* that is on the branch, though the board says another was started.

    A reviewer that was away for longer than its lease may have moved the ref after somebody took over.
    """
    repository, ref, commit = (
        turn.place.repository,
        turn.place.integration(turn.state),
        _commit_to_merge(turn, task),
    )
    if not repository.contains(ref, commit):
        return None
    key = ensure_key(turn.place.home)
    for link in first_parent_chain(repository, ref, task.base_commit):
        is_merge = link.trailers.get(Trailer.TASK) == task.id and commit in link.parents
        if is_merge and link.is_signed_with(key):  # anybody can write a trailer
            return link
    return None


def _land_merge(turn: Turn, task: Task, merged: Merged, head: str) -> bool:
    repository, ref = turn.place.repository, turn.place.integration(turn.state)
    commit = _commit_to_merge(turn, task)
    subject, key = f"Merge {task.id}: {task.description.splitlines()[0]}", ensure_key(turn.place.home)
    account = MergeDescription(subject, _trailers(task), key)
    sealed = commit_merge(repository, merged, account, onto=head, commit=commit, at=turn.place.clock())
    if not _test_merged_tree(turn, task, sealed, head):
        return True
    turn.record(e.Intend(onto=head, commit=sealed))
    remote = turn.place.remote(turn.state)
    landed = (
        remote.land_merge(sealed, onto=head)
        if remote
        else land_merge(repository, ref, sealed, onto=head, task=task.id)
    )
    if not isinstance(landed, Landed):
        return False
    if wrong := merge_doubts(repository, ref, sealed, commit=commit, tree=merged.tree):
        log.warning("%s: not merged yet: %s", task.id, "; ".join(wrong))
        return False
    turn.record(e.Land(commit=sealed))
    return True


def _test_merged_tree(turn: Turn, task: Task, sealed: str, head: str) -> bool:
    """Ask the machines about exactly the tree that would be merged; record what stands in the way."""
    flow = turn.place.workflow(turn.state)
    try:
        with course.gate_context(turn, task, head, sealed) as case:
            known = _verdicts_on_merged_tree(flow, task, case)
            found = course.run_gates(turn, flow, task.position, case, before=known)
    except course.Halted:
        turn.record(e.Release(reason="the merge was stopped before its tests were through"))
        return False
    except BrokenGate as error:
        turn.broken(error, e.Release(reason=printable(str(error))))
        return False
    if found.outcome is Outcome.PASS:
        return True
    shown = "".join(f"\n{one.evidence.tail}" for one in found.verdicts[-1:] if one.evidence)
    reason = f"on the merged tree, {found.reason}:{shown}"[:LONGEST_FAILURE]
    no = e.Report(outcome=Outcome.REVISE, reason=reason, verdicts=found.verdicts, known=found.known)
    turn.record(no)
    return False


def _verdicts_on_merged_tree(flow: Workflow, task: Task, case: GateContext) -> tuple[Verdict, ...]:
    """Return what the board has of the same commands on exactly the tree that would be merged.

    Where nothing else was merged since, that is the tree of the work, whose tests were just run.
    """
    gates = [gate for phase in flow.phases.values() for gate in phase.gates if gate.kind is GateKind.COMMAND]
    merged = {gate.options.get("command"): gate.id for gate in gates if gate.options.get("tree") == "merged"}
    lines = {gate.id: gate.options.get("command") for gate in gates if gate.id not in merged.values()}
    return tuple(
        one.replace(gate=merged[name])
        for one in task.verdicts
        if one.tree == case.tree and one.outcome is Outcome.PASS and one.label is None and one.evidence
        if (name := lines.get(one.gate)) in merged
        if one.evidence.command == getattr(case.config.gates, str(name))
    )


def _trailers(task: Task) -> dict[Trailer, str]:
    passed = [one for one in task.verdicts if one.outcome is Outcome.PASS and one.label != "skipped"]
    commands = {one.gate: one.judging_worker or (one.evidence and one.evidence.command) for one in passed}
    gates = [f"{gate}: {line}" if line else gate for gate, line in commands.items()]
    return {
        Trailer.TASK: task.id,
        Trailer.VERDICT: "approve",
        Trailer.APPROVED_BY: str(task.approved_by),
        Trailer.GATES: "; ".join(gates) or "none",
        Trailer.AGENT: ", ".join(task.authors),
        **({Trailer.TAINTS: marks} if (marks := ", ".join(map(_taint_text, task.taints))) else {}),
    }


def _taint_text(taint: Taint) -> str:
    return f"{taint.mark} (accepted by {taint.accepted_by})"


def _record_conflict(turn: Turn, task: Task, conflict: Conflict) -> None:
    paths = tuple(environment_mask().text(printable(path)) for path in conflict.paths)
    reason = printable(
        f"it conflicts with what was merged meanwhile ({conflict}); the work is laid over the new base "
        "without a commit, with conflict marks: resolve them"
    )
    events = reviewer.events_for_conflict(task, reason, paths)
    at, by = turn.place.clock(), turn.place.name

    def more(state: State) -> State:
        if not any(isinstance(event, e.Block) for event in events):
            return state
        return with_anomaly(state, MergeConflict(paths=paths), about=task.id, by=by, at=at)

    turn.record(*events, more=more)


def pause_and_release(turn: Turn, error: LizaError) -> None:
    """Release the task, and pause the run until a person has repaired the repository."""
    sentence = printable(str(error))
    turn.place.stop_requests.pause(sentence)
    turn.record(e.Release(reason=sentence))
