"""The gauntlet under the other workflows: who wears which hat there, as their documents say."""

from __future__ import annotations

from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from liza.errors import UsageError
from liza.gauntlet.cases import ALL_WORKFLOWS, DEFAULT_WORKFLOW, ExpectedEnd
from liza.workflow.document import GateKind, HatAccess, load_workflow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from liza.gauntlet.cases import Case


class WorkflowSetting(NamedTuple):
    """How a case is played in a workflow of another shape than the default."""

    hats: Mapping[str, str]  # who plays the misbehaving role, by the key of `agents.overrides`
    files: Mapping[str, str] = {}  # what the workflow needs in the repository
    own: tuple[str, ...] = ()  # what Liza itself writes into the checkout


@cache
def workflow_setting(name: str) -> WorkflowSetting:
    """Return what the document of the workflow *name* says of who works, who decides, and on which files."""
    flow = load_workflow(name)
    workers = [phase.worker for phase in flow.phases.values() if phase.worker]
    writer = next(hat for hat in workers if flow.hat(hat).access is HatAccess.WRITE)
    gates = [gate for phase in flow.phases.values() for gate in phase.gates]
    judge = next(str(gate.role) for gate in gates if gate.kind is GateKind.AGENT and gate.decides)
    return WorkflowSetting(
        {"coder": writer, "reviewer": judge},
        {flow.tasks.file: "Give discounts.\n"} if flow.tasks.file else {},
        (f"project/{PurePosixPath(flow.page.path).parent}/",) if flow.page else (),
    )


def in_workflow(case: Case, name: str) -> Case:
    """Return *case* as it is played under the workflow *name*.

    Its gates are others: what is asked there is that nothing but honest work is merged, nothing of the user's
    changes, nothing is left and it comes to an end; and that honest work comes to where the workflow ends it.
    """
    if name == DEFAULT_WORKFLOW:
        return case
    row = workflow_setting(name)
    return case._replace(
        roles=tuple(row.hats[role] for role in case.roles),
        ends=ExpectedEnd.FINISHED if case.is_control else ExpectedEnd.SAFE,
        by=(),
        reason="",
        never=(),
        told="",
        settings={**case.settings, "workflow": name},
        base={**case.base, **row.files},
        own=row.own,
    )


def require_workflow(name: str) -> None:
    if name not in ALL_WORKFLOWS:
        known = ", ".join(ALL_WORKFLOWS)
        raise UsageError(f"there is no gauntlet for the workflow {name!r}; known: {known}")
