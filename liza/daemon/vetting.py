"""Whether a person has seen the file of the workflow as it is: it decides what is run and who may merge."""

from __future__ import annotations

from posixpath import normpath
from typing import TYPE_CHECKING, Final

from liza.repo.provenance import blobs_by_agents
from liza.repo.repository import BRANCHES
from liza.repo.worktree import write_text_whole
from liza.workflow.load import SUFFIX

if TYPE_CHECKING:
    from pathlib import Path

    from liza.domain.model import State
    from liza.repo.repository import Repository

VETTED: Final = "vetted"  # below .liza: the version of the workflow's file that a person said yes to


def workflow_file(state: State, root: Path) -> Path | None:
    """Return the file of the workflow; None where it is one that comes with Liza."""
    name = state.config.workflow
    path = root / name
    return path if ("/" in name or name.endswith(SUFFIX)) and path.is_file() else None


def why_unvetted(home: Path, repository: Repository, state: State) -> str | None:
    """Return why nobody follows the workflow as it is: a task brought it, and no person has said yes."""
    path, base = workflow_file(state, repository.root), state.integration.base
    if path is None or base is None:
        return None
    blob, name = _blob(repository, path), normpath(state.config.workflow)
    if _vetted_blob(home) == blob:
        return None
    yours = [one.commit for one in state.integration.yours]
    ref = BRANCHES + state.config.integration_branch
    if blob not in blobs_by_agents(repository, name, base=base, ref=ref, yours=yours):
        return None
    return f"the workflow {name} is as an agent made it; look at it (`git log -p -- {name}`)"


def vet(home: Path, repository: Repository, state: State) -> None:
    """Note that a person has seen the file of the workflow as it is now."""
    if path := workflow_file(state, repository.root):
        write_text_whole(home / VETTED, f"{_blob(repository, path)}\n")


def _blob(repository: Repository, path: Path) -> str:
    return repository.git("hash-object", "--stdin", stdin=path.read_bytes())


def _vetted_blob(home: Path) -> str:
    path = home / VETTED
    return path.read_text().strip() if path.is_file() else ""
