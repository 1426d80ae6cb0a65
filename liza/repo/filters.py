"""The user's content filters, started where no agent decides which program they are.

Git starts the programs of `filter.*` in the top directory of the checkout that it works on. In a worktree
that directory is an agent's, and so would be whatever a filter finds there: `./tools/clean.sh`, the module of
`python3 -m nbstripout`, the rule of a Makefile. So Liza's own git starts them in the user's checkout, as the
user's git does. They get the content on stdin and the path as a word; what else they look up, they find in
the repository as the user has it.
"""

from __future__ import annotations

import re
import shlex
from typing import Final

from liza.repo.repository import Repository

_PROGRAM: Final = re.compile(r"filter\..*\.(clean|smudge|process)$", re.DOTALL)
_EXPANDED: Final = re.compile(r"\.(clean|smudge)$")  # in which git replaces %f
# What leads git to the worktree: a filter that asks git for the top directory must not be led there either.
_LOCATION_VARIABLES: Final = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_CONFIG_COUNT"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "OLDPWD"),
)


def filter_settings(repository: Repository) -> dict[str, str]:
    """Return git settings that start every content filter of the user's in the user's checkout."""
    known = {key: value for key, value in repository.settings() if _PROGRAM.match(key)}
    return {key: _in_user_checkout(repository, key, value) for key, value in known.items() if value}


def _in_user_checkout(repository: Repository, key: str, command: str) -> str:
    home = shlex.quote(str(repository.root))
    if _EXPANDED.search(key):
        home = home.replace("%", "%%")
    return f"cd {home} && unset {' '.join(_LOCATION_VARIABLES)} && {{ {command}\n}}"
