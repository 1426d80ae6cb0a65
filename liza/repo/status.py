"""What `git status` says, as values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from liza.repo.command import decode_git

# Renames are shown as what they are on disk, a file that went and one that came: each path stands alone.
STATUS_COMMAND: Final = (
    "status",
    "--porcelain=v2",
    "-z",
    "--untracked-files=all",
    "--no-renames",
    "--ignore-submodules=dirty",
    "--no-ahead-behind",
)

_FIELDS: Final = {"1": 8, "u": 10}  # how many spaces come before the path


class StatusEntry(NamedTuple):
    """One path that is not as the commit has it, with the line that git says about it."""

    path: str
    line: str

    @property
    def is_untracked(self) -> bool:
        return self.line.startswith("? ")

    @property
    def is_on_disk(self) -> bool:
        """Say whether the directory differs from the index; the second letter of `XY` is about that."""
        return self.is_untracked or self.line[3] != "."

    @property
    def is_deletion(self) -> bool:
        return not self.is_untracked and self.line[3] == "D"

    def has_content(self, root: Path) -> bool:
        """Tell whether below *root* is something that git can store: of a pipe or a socket it cannot."""
        path = root / self.path
        return not self.is_deletion and (path.is_symlink() or path.is_file() or path.is_dir())


def parse_status(output: bytes) -> Iterator[StatusEntry]:
    """Read what git printed for `WORDS`."""
    for line in decode_git(output).split("\0"):
        if line[:2] == "? ":
            yield StatusEntry(line[2:], line)
        elif line[:1] in _FIELDS:
            yield StatusEntry(line.split(" ", _FIELDS[line[0]])[-1], line)
