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
import time
from functools import lru_cache
from typing import Final

from liza.repo.repository import Repository

# Seconds for which the settings are taken to be as they were; people change them rarely.
SETTINGS_TTL: Final = 5.0
_PATTERN: Final = r"^filter\..*\.(clean|smudge|process)$"
_EXPANDED: Final = re.compile(r"\.(clean|smudge)$")  # in which git replaces %f
# What leads git to the worktree: a filter that asks git for the top directory must not be led there either.
_LOCATION_VARIABLES: Final = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_CONFIG_COUNT"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "OLDPWD"),
)


def filter_settings(repository: Repository) -> dict[str, str]:
    """Return git settings that start every content filter of the user's in the user's checkout."""
    return dict(_read_filter_settings(repository, int(time.monotonic() / SETTINGS_TTL)))


@lru_cache(4)
def _read_filter_settings(repository: Repository, _moment: int) -> tuple[tuple[str, str], ...]:
    lines = repository.ask("config", "-z", "--get-regexp", _PATTERN).text.split("\0")
    known = dict(line.split("\n", 1) for line in lines if "\n" in line)  # of several, the last counts
    return tuple((key, _in_user_checkout(repository, key, value)) for key, value in known.items() if value)


def _in_user_checkout(repository: Repository, key: str, command: str) -> str:
    home = shlex.quote(str(repository.root))
    if _EXPANDED.search(key):
        home = home.replace("%", "%%")
    return f"cd {home} && unset {' '.join(_LOCATION_VARIABLES)} && {{ {command}\n}}"
