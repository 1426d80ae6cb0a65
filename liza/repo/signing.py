"""Signatures of merge commits: anybody can write trailers, so a key of the board vouches for them.

The key is random bytes in `.liza/key`, which no agent in a sandbox can read. What is signed is the tree, the
parents and the message: a commit with a right signature was made by whoever has the key, just as it is.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from liza.errors import DiskTrouble
from liza.repo.trailers import Trailer

KEY_FILE: Final = "key"  # below .liza
_BYTES: Final = 32
_SIGNATURE_PREFIX: Final = f"\n{Trailer.SIGNATURE}: "


def ensure_key(home: Path) -> bytes:
    """Return the key of the board in *home*; create it where there is none."""
    path = home / KEY_FILE
    if (known := read_key(path)) is not None:
        return known
    try:
        draft = path.with_name(f"{KEY_FILE}.{secrets.token_hex(4)}")
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(secrets.token_hex(_BYTES).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        # Whole under its name, and only once: whoever else makes one at this moment uses this.
        with suppress(FileExistsError):
            os.link(draft, path)
        draft.unlink()
        return path.read_bytes().strip()
    except OSError as error:
        raise DiskTrouble(f"write {path}", error) from error


def adopt_key(home: Path, key: bytes) -> None:
    """Let *key* be the one of *home*: it is the one of its board, which several machines share."""
    if read_key(home / KEY_FILE) == key:
        return
    draft = home / f"{KEY_FILE}.{secrets.token_hex(4)}"
    try:
        with open(draft, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
            file.write(key + b"\n")
            file.flush()
            os.fsync(file.fileno())
        draft.replace(home / KEY_FILE)
    except OSError as error:
        raise DiskTrouble(f"write {home / KEY_FILE}", error) from error


def read_key(path: Path) -> bytes | None:
    """Return the key in the file *path*; None where there is none that may be read."""
    try:
        return path.read_bytes().strip() or None
    except OSError:
        return None


def key_label(key: bytes) -> str:
    """Return a short public label of *key*, which does not reveal it."""
    return hashlib.sha256(b"liza key " + key).hexdigest()[:8]


def signature_of(key: bytes, *, tree: str, parents: tuple[str, ...], message: str) -> str:
    """Return the value of the trailer that signs a commit with this *message*, which has none yet."""
    text = "\n".join(["liza merge 1", tree, *parents, message.rstrip("\n")])
    code = hmac.new(key, text.encode("utf-8", "surrogateescape"), hashlib.sha256).hexdigest()
    return f"{key_label(key)} {code}"


def with_signature(key: bytes, *, tree: str, parents: tuple[str, ...], message: str) -> str:
    """Return *message* with its signature as the last of its trailers."""
    signed = signature_of(key, tree=tree, parents=parents, message=message)
    return f"{message.rstrip()}{_SIGNATURE_PREFIX}{signed}\n"


def signer_label(message: str) -> str | None:
    """Return the label of the key that *message* says it was signed with; None where it is not signed."""
    _, found, value = message.rstrip().rpartition(_SIGNATURE_PREFIX)
    return value.split(" ")[0] if found else None


def is_signed(key: bytes, *, tree: str, parents: tuple[str, ...], message: str) -> bool:
    """Return whether a commit of just this *tree*, *parents* and *message* was signed with *key*."""
    plain, found, value = message.rstrip().rpartition(_SIGNATURE_PREFIX)
    if not found:
        return False
    expected = signature_of(key, tree=tree, parents=parents, message=plain)
    return hmac.compare_digest(expected.encode(), value.encode("utf-8", "surrogateescape"))
