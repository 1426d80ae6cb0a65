"""Commands that nobody runs or writes into a script unattended, as one table."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection
from typing import Final

_RM: Final = re.compile(r"\brm\s+(?P<words>(?:-{1,2}[\w-]+\s+)+(?P<rest>[^;&|\n]*))")

# What the name of each is in a sentence, and how it looks.
FORBIDDEN: Final[dict[str, re.Pattern[str]]] = {
    name: re.compile(text, re.IGNORECASE)
    for name, text in {
        "DROP TABLE": r"\bDROP\s+TABLE\b",
        "DROP DATABASE": r"\bDROP\s+(?:DATABASE|SCHEMA)\b",
        "DELETE of every row": r"\bDELETE\s+FROM\b.*\bWHERE\s+(?:1\s*=\s*1|true)\b"
        r"|\bDELETE\s+FROM\s+[\w.\"`]+\s*;",
        "TRUNCATE": r"\bTRUNCATE\s+TABLE\b",
        "a download piped into a shell": r"\b(?:curl|wget)\b[^|;&]*\|\s*(?:sudo\s+)?(?:ba|z|da|k)?sh\b"
        r"|\b(?:ba|z)?sh\s+(?:-c\s+)?[\"']?(?:<\(|\$\()\s*(?:curl|wget)\b",
        "a force push": r"\bgit\b.*\bpush\b.*(?:--force|\s-f\b|\s\+\w)",
        "git push": r"\bgit\b(?:\s+-\S+(?:\s+\S+)?)*?\s+push\b",
        "git config": r"\bgit\s+config\b(?!\s+(?:--get|--list|-l\b))",
        "chmod 777": r"\bchmod\s+(?:-\w+\s+)*(?:0?777|a\+rwx)\b",
        "a fork bomb": r":\(\)\s*\{\s*:\s*\|\s*:\s*&\s*\}",
        "writing to a disk": r"\bmkfs(?:\.\w+)?\s|\bdd\b.*\bof=/dev/|>\s*/dev/(?:sd|nvme|hd)\w",
        "a decoded script piped into a shell": r"\bbase64\s+(?:-d|--decode|-D)\b[^|]*\|\s*(?:ba|z)?sh\b",
        "a shell over the network": r"/dev/(?:tcp|udp)/|\bnc\b.*\s-e\b",
        "history removed": r"\bgit\s+(?:filter-branch|reflog\s+expire|update-ref\s+-d)\b",
    }.items()
}

_HARMLESS: Final = re.compile(r"[\w.+/@-]+")


def forbidden_command_in(line: str, tracked: Collection[str] = ()) -> str | None:
    """Return what on *line* is forbidden; *tracked* are the names at the top of the repository."""
    for name, pattern in FORBIDDEN.items():
        if pattern.search(line):
            return name
    match = _RM.search(line)
    if match and _is_recursive(match["words"]) and not _removes_products(match["rest"], tracked):
        return "rm -rf"
    return None


def removes_directories(line: str) -> bool:
    """Say whether *line* removes whole directories, of whatever kind."""
    match = _RM.search(line)
    return match is not None and _is_recursive(match["words"])


def _is_recursive(words: str) -> bool:
    options = [word for word in words.split() if word.startswith("-")]
    short = "".join(word[1:] for word in options if not word.startswith("--"))
    return "r" in short.lower() or "--recursive" in options


def _removes_products(rest: str, tracked: Collection[str]) -> bool:
    """Say whether only named things inside are removed, and none that the repository has."""
    try:
        targets = [word for word in shlex.split(rest, comments=True) if not word.startswith("-")]
    except ValueError:
        return False
    return bool(targets) and all(_is_product(target, tracked) for target in targets)


def _is_product(target: str, tracked: Collection[str]) -> bool:
    plain = target.replace("*", "x").removeprefix("./").rstrip("/")
    if not plain or target in ("*", "./*", ".") or not _HARMLESS.fullmatch(plain):
        return False
    parts = plain.split("/")
    return not target.startswith("/") and ".." not in parts and parts[0] not in {*tracked, ".git", ".liza"}
