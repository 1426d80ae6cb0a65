"""The cycle file and its archives on disk; a person who saves at the same moment loses nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from liza.domain.cycle_archive import ARCHIVE, ArchiveNaming, CycleEnd, CycleName, archive_name
from liza.domain.cycle_file import CycleEntry, CycleHead, render_cycle
from liza.errors import DiskTrouble
from liza.system.files import write_new
from liza.system.host import host
from liza.system.masking import environment_mask

_MODE: Final = 0o644


def page_text(head: CycleHead, entries: Sequence[CycleEntry]) -> str:
    """Return the page as it is on disk, without secrets; also what an addition is held against."""
    return environment_mask().text(render_cycle(head, entries)).encode(errors="replace").decode()


def read_page(path: Path) -> str | None:
    """Return the page; None where there is none."""
    try:
        return path.read_bytes().decode(errors="replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DiskTrouble(f"read {path}", error) from error


def publish_page(path: Path, text: str, last: str | None) -> str | None:
    """Write the page in place of the *last* one; return what a person saved meanwhile, which is put back.

    The caller then reads the addition, and publishes again.
    """
    found = read_page(path)
    if found != last:
        return found if found is not None else _write_first(path, text)
    if found is None:
        return _write_first(path, text)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        draft.write_bytes(text.encode())
        draft.chmod(_MODE)
        return _swap(draft, path, found)
    except OSError as error:
        raise DiskTrouble(f"write {path}", error) from error
    finally:
        draft.unlink(missing_ok=True)


def _swap(draft: Path, path: Path, expected: str) -> str | None:
    if not host().exchange_names(draft, path):
        draft.replace(path)  # without an exchange, a save in this very moment is replaced
        return None
    saved = read_page(draft)
    if saved in {expected, None}:
        return None
    # Somebody saved between the look and the exchange: theirs goes back to its place.
    host().exchange_names(draft, path)
    return saved


def _write_first(path: Path, text: str) -> str | None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return None if write_new(path, text) else read_page(path)
    except OSError as error:
        raise DiskTrouble(f"write {path}", error) from error


def archive_page(root: Path, text: str, name: CycleName, naming: ArchiveNaming, end: CycleEnd) -> Path:
    """Write an archive under a free name; the same text under the same name is there already, not twice."""
    folder = root / ARCHIVE
    content = text.encode()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken: set[str] = set()
        while True:
            path = folder / archive_name(name, naming, end, taken)
            if write_new(path, content) or path.read_bytes() == content:
                return path
            taken.add(path.name)
    except OSError as error:
        raise DiskTrouble(f"write an archive to {folder}", error) from error
