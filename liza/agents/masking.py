"""Secrets that an agent prints are masked before the bytes reach the disk."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MASKED: Final = b"[masked]"
SHORTEST: Final = 8  # characters: a shorter value is a word that would be masked everywhere
LONGEST: Final = 256  # bytes of a token that are looked for; also what is held back while a line is not whole

_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH", re.IGNORECASE)
# What a token of a well-known service begins with, and the rest of it. `task-…` must not be taken for sk-….
_TOKENS: Final = {
    b"sk-": rb"[\w-]{20,200}",
    b"ghp_": rb"\w{36,200}",
    b"gho_": rb"\w{36,200}",
    b"ghs_": rb"\w{36,200}",
    b"github_pat_": rb"\w{22,200}",
    b"glpat-": rb"[\w-]{20,200}",
    b"xoxb-": rb"[\w-]{10,200}",
    b"xoxp-": rb"[\w-]{10,200}",
    b"AKIA": rb"[0-9A-Z]{16}",
    b"AIza": rb"[\w-]{35}",
}


def secrets_of(environment: Mapping[str, str]) -> list[str]:
    """Return the values in *environment* that nobody should read in a transcript."""
    return [value for name, value in environment.items() if _SECRET_NAME.search(name)]


class Mask:
    """Masks a stream: a secret is found also where it arrives in pieces."""

    def __init__(self, secrets: Iterable[str]) -> None:
        lines = {line.encode() for secret in secrets for line in secret.splitlines()}
        values = sorted((line for line in lines if len(line) >= SHORTEST), key=len, reverse=True)
        self._marks = (*values, *_TOKENS)
        tokens = [rb"(?<![\w-])" + re.escape(start) + rest for start, rest in _TOKENS.items()]
        self._pattern = re.compile(b"|".join([*map(re.escape, values), *tokens]), re.ASCII)
        self._longest = max([LONGEST, *map(len, values)])
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what is safe to write of *data* and of what was held back before."""
        data = self._held + data
        end = max(data.rfind(b"\n") + 1, len(data) - self._longest)
        done, at = [], 0
        for start, stop in self._found(data):
            if stop > end:
                end = min(end, start)
                break
            done += [data[at:start], MASKED]
            at = stop
        self._held = data[end:]
        return b"".join([*done, data[at:end]])

    def rest(self) -> bytes:
        """Return what was held back; only for where the stream ends."""
        held, self._held = self._held, b""
        return self._pattern.sub(MASKED, held)

    def dropped(self) -> int:
        """Forget what was held back, and return how much it was: the stream is cut here."""
        held, self._held = self._held, b""
        return len(held)

    def _found(self, data: bytes) -> Iterable[tuple[int, int]]:
        # Searching for fixed bytes is a hundred times faster than the pattern, and mostly there are none.
        if not any(mark in data for mark in self._marks):
            return ()
        return (match.span() for match in self._pattern.finditer(data))
