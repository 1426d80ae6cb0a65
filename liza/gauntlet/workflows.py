"""The gauntlet under the other workflows: who wears which hat there, and how honest work ends."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.errors import UsageError
from liza.gauntlet.cases import DEFAULT_WORKFLOW, ExpectedEnd

if TYPE_CHECKING:
    from liza.gauntlet.cases import Case


class WorkflowRow(NamedTuple):
    """How a case is played in a workflow of another shape than the default."""

    hats: Mapping[str, str]  # who plays the misbehaving role, by the key of `agents.overrides`
    files: Mapping[str, str] = {}  # what the workflow needs in the repository
    own: tuple[str, ...] = ()  # what Liza itself writes into the checkout


WORKFLOWS: Final[dict[str, WorkflowRow]] = {
    "phased": WorkflowRow({"coder": "worker", "reviewer": "judge"}),
    "cycle": WorkflowRow({"coder": "actor", "reviewer": "judge"}, own=("project/docs/context/",)),
    "experiment": WorkflowRow(
        {"coder": "coder", "reviewer": "reviewer"}, files={"ideas.md": "Give discounts.\n"}
    ),
}
KNOWN_WORKFLOWS: Final = (DEFAULT_WORKFLOW, *WORKFLOWS)


def in_workflow(case: Case, name: str) -> Case:
    """Return *case* as it is played under the workflow *name*.

    Its gates are others: what is asked there is that nothing but honest work is merged, nothing of the user's
    changes, nothing is left and it comes to an end; and that honest work comes to where the workflow ends it.
    """
    if name == DEFAULT_WORKFLOW:
        return case
    row = WORKFLOWS[name]
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


def require_workflow(name: str) -> str:
    if name not in KNOWN_WORKFLOWS:
        raise UsageError(
            f"there is no gauntlet for the workflow {name!r}; known: {', '.join(KNOWN_WORKFLOWS)}"
        )
    return name
