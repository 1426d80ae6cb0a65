"""Secrets that an agent prints, says or commits are masked before the bytes reach the disk."""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MASKED: Final = b"[masked]"
SHORTEST: Final = 8  # characters: a shorter value is a word that would be masked everywhere
LONGEST: Final = 256  # bytes of a token that are looked for; also what is held back while a line is not whole

_SECRET_NAME: Final = re.compile(r"KEY|TOKEN|SECRET|PASSW|CREDENTIAL|AUTH(?!OR)", re.IGNORECASE)
_IN_ADDRESS: Final = re.compile(r"://[^/@\s:]*:([^/@\s]+)@")  # the password in an address, as of a database
# What a token of a well-known service begins with, and the rest of it. `task-…` must not be taken for sk-….
_TOKENS: Final = {
    b"sk-": rb"[\w-]{20,200}",
    b"ghp_": rb"\w{36,200}",
    b"gho_": rb"\w{36,200}",
    b"ghs_": rb"\w{36,200}",
    b"ghu_": rb"\w{36,200}",
    b"ghr_": rb"\w{36,200}",
    b"hf_": rb"\w{30,200}",
    b"npm_": rb"\w{36,200}",
    b"pypi-": rb"[\w-]{50,200}",
    b"xapp-": rb"[\w-]{10,200}",
    b"gsk_": rb"\w{40,200}",
    b"github_pat_": rb"\w{22,200}",
    b"glpat-": rb"[\w-]{20,200}",
    b"xoxb-": rb"[\w-]{10,200}",
    b"xoxp-": rb"[\w-]{10,200}",
    b"AKIA": rb"[0-9A-Z]{16}",
    b"AIza": rb"[\w-]{35}",
}

_SHORTEST_TOKEN: Final = 15  # bytes of the shortest that one of the patterns above takes for a token


def secrets_of(environment: Mapping[str, str]) -> list[str]:
    """Return the values in *environment* that nobody should read in a transcript."""
    # Where a secret is kept is none: masking it would make a path in a transcript unreadable.
    named = [
        value for name, value in environment.items() if _SECRET_NAME.search(name) and not Path(value).exists()
    ]
    return [*named, *(word for value in environment.values() for word in _IN_ADDRESS.findall(value))]


def spellings_of(secret: str) -> set[bytes]:
    """Return the ways in which *secret* may be written, line by line: as it is, in JSON, in an address."""
    forms = {secret, json.dumps(secret)[1:-1], quote(secret, safe="")}
    return {line.encode(errors="replace") for form in forms for line in form.splitlines()}


class Mask:
    """Masks a stream: a secret is found also where it arrives in pieces."""

    def __init__(self, secrets: Iterable[str]) -> None:
        lines = {line for secret in secrets for line in spellings_of(secret)}
        values = sorted((line for line in lines if len(line) >= SHORTEST), key=len, reverse=True)
        self._values = tuple(values)
        self._marks = (*values, *_TOKENS)
        tokens = [rb"(?<![\w-])" + re.escape(start) + rest for start, rest in _TOKENS.items()]
        self._pattern = re.compile(b"|".join([*map(re.escape, values), *tokens]), re.ASCII)
        self.longest = max([LONGEST, *map(len, values)])
        self._shortest = min([_SHORTEST_TOKEN, *map(len, values)])
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Return what is safe to write of *data* and of what was held back before."""
        data = self._held + data
        end = max(data.rfind(b"\n") + 1, len(data) - self.longest)
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

    def whole(self, data: bytes) -> bytes:
        """Return *data*, which is all there is, masked."""
        if len(data) < self._shortest:  # most of what is masked are names and numbers
            return data
        return self._pattern.sub(MASKED, data) if any(mark in data for mark in self._marks) else data

    def has_value(self, data: bytes) -> bool:
        """Return whether *data* holds a secret that is known, not only what looks like one."""
        return any(value in data for value in self._values)

    def text(self, text: str) -> str:
        data = text.encode(errors="surrogatepass")
        masked = self.whole(data)
        return text if masked is data else masked.decode(errors="surrogatepass")

    def values(self, value: Any) -> Any:  # noqa: ANN401 - whatever JSON can say
        """Return *value* with every string in it masked, keys included."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.values(key): self.values(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self.values, value))
        return value

    def dropped(self) -> int:
        """Forget what was held back, and return how much it was: the stream is cut here."""
        held, self._held = self._held, b""
        return len(held)

    def _found(self, data: bytes) -> Iterable[tuple[int, int]]:
        # Searching for fixed bytes is a hundred times faster than the pattern, and mostly there are none.
        if not any(mark in data for mark in self._marks):
            return ()
        return (match.span() for match in self._pattern.finditer(data))


@lru_cache(8)
def _mask_of(environment: tuple[tuple[bytes, bytes], ...]) -> Mask:
    known = {os.fsdecode(name): os.fsdecode(value) for name, value in environment}
    return Mask(frozenset(secrets_of(known)))


def environment_mask() -> Mask:
    """Return the mask of what is secret in our own environment; for whole texts."""
    return _mask_of(tuple(os.environb.items()))
