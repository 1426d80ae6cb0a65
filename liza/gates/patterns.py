"""Paths as people and agents write them: files, directories and globs, perhaps inside a sentence."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from liza.domain.model import TaskScope

_WILD: Final = re.compile(r"[*?\[{]")
_PATHLIKE: Final = re.compile(r"/|\.\w{1,10}$|[*]")
_ASIDE: Final = re.compile(r"\s+[(#\u2013\u2014-]|:\s")  # behind it, a sentence says something about the path
_GLOB: Final = re.compile(r"\*\*/|\*\*|\*|\?|\[[^\]/]+\]|\{[^{}]*\}|.", re.DOTALL)


class ScopePatterns(NamedTuple):
    """A task's scope as paths; *prose* is what only a reader can judge."""

    inside: tuple[str, ...]
    outside: tuple[str, ...]
    prose: tuple[str, ...]

    def includes(self, path: str) -> bool:
        return any(matches(pattern, path) for pattern in self.inside)

    def excludes(self, path: str) -> bool:
        """Say whether *path* is out; a different case, or a deeper directory, does not get round it."""
        folded = path.casefold()
        return any(matches(pattern.casefold(), folded, anywhere=True) for pattern in self.outside)

    def names(self, path: str) -> bool:
        """Say whether the scope means this very file; a directory or a glob around it is no name."""
        return path in self.inside


def scope_patterns(scope: TaskScope) -> ScopePatterns:
    """Return *scope* with its paths taken out of the words around them."""
    inside = {entry: paths_in_entry(entry) for entry in scope.include}
    outside = {entry: paths_in_entry(entry) for entry in scope.exclude}
    prose = [entry for entries in (inside, outside) for entry, paths in entries.items() if not paths]
    return ScopePatterns(_flat(inside.values()), _flat(outside.values()), tuple(prose))


def _flat(groups: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(path for group in groups for path in group)


def paths_in_entry(entry: str) -> tuple[str, ...]:
    """Return the paths and globs that *entry* names; nothing where it is a sentence without any."""
    quoted = re.findall(r"`([^`]+)`", entry)
    if quoted:
        return tuple(map(_normalize, quoted))
    named = _ASIDE.split(entry.strip(), maxsplit=1)[0].strip()
    if not re.search(r"\s", named):
        return (_normalize(named.rstrip(",;:")),)
    words = (word.strip(",;:()\"'") for word in entry.split())
    return tuple(_normalize(word) for word in words if _PATHLIKE.search(word))


def _normalize(path: str) -> str:
    path = path.strip().replace("\\", "/")
    while path.startswith(("./", "/")):
        path = path[2:] if path.startswith("./") else path[1:]
    return path.rstrip("/") or "**"


@lru_cache(maxsize=4096)
def matches(pattern: str, path: str, *, anywhere: bool = False) -> bool:
    """Say whether *pattern* is *path*, a directory around it, or a glob that covers it."""
    if pattern in (".", "*", "**"):
        return True
    return bool(_compile_glob(pattern, anywhere=anywhere).fullmatch(path))


@lru_cache(maxsize=1024)
def _compile_glob(pattern: str, *, anywhere: bool) -> re.Pattern[str]:
    # `*.sql` means every such file; `setup.py` in a scope means the one at the top.
    floats = "/" not in pattern and (anywhere or bool(_WILD.search(pattern)))
    body = "".join(_glob_token(found[0]) for found in _GLOB.finditer(pattern))
    return re.compile(f"{'(?:.*/)?' if floats else ''}{body}(?:/.*)?", re.DOTALL)


def _glob_token(token: str) -> str:
    fixed = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    if token in fixed:
        return fixed[token]
    if len(token) > 1 and token.startswith("["):
        inner = token[1:-1].replace("\\", "\\\\")
        return f"[{'^' + inner[1:] if inner.startswith('!') else inner}]"
    if len(token) > 1 and token.startswith("{"):
        return f"(?:{'|'.join(re.escape(part) for part in token[1:-1].split(','))})"
    return re.escape(token)
