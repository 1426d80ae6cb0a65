"""What a phase hands on to the next: as whoever worked in it says, and as git knows it."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING

from liza.domain.phase_handoff import HandoffKind, ImplementHandoff, parse_handoff
from liza.repo.objects import commits_between

if TYPE_CHECKING:
    from liza.domain.answers import Implement
    from liza.domain.events import Report
    from liza.domain.model import Task
    from liza.domain.record import Record
    from liza.repo.repository import Repository
    from liza.workflow.document import Phase

log = logging.getLogger(__name__)


def handoff_in(phase: Phase, task: Task, answer: Implement) -> Record | None:
    """Return what *answer* hands on from *phase*, without what is wrong in it, which is told."""
    kind, said = phase.hands_on, answer.handoff
    if kind is None or said is None:
        return None
    found = parse_handoff(kind, {"summary": answer.summary, **said} if kind is HandoffKind.PLAN else said)
    for remark in found.remarks:
        log.warning("%s: not handed on: %s", task.id, remark)
    return found.value


def handoff_artifact(phase: Phase, handed: Record | None) -> dict[str, str]:
    """Return *handed* as it is kept on a task."""
    return {phase.hands_on.artifact: json.dumps(handed.to_json())} if phase.hands_on and handed else {}


def with_work_handed_on(
    repository: Repository, phase: Phase, task: Task, answer: Implement, event: Report
) -> Report:
    """Return *event* with what was done for who works next; of commits and files git knows better."""
    handed = handoff_in(phase, task, answer)
    if phase.hands_on is HandoffKind.WORK and event.commit:
        base = str(task.base_commit)
        made = commits_between(repository, base, event.commit)
        changed = repository.git("diff", "--name-only", "-z", base, event.commit)
        known = {
            "commits": [{"hash": one.commit, "message": one.message.partition("\n")[0]} for one in made],
            "files_changed": [path for path in changed.split("\0") if path],
        }
        handed = ImplementHandoff.model_validate({**(handed.to_json() if handed else {}), **known})
    return event.replace(artifacts={**event.artifacts, **handoff_artifact(phase, handed)})
