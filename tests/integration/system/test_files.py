"""Files that are whole or not there, whoever reads or dies meanwhile."""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

from liza.system.files import overwrite, plain_files, write_new

if TYPE_CHECKING:
    from pathlib import Path


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    """Whatever a file was written over with, it is one text or the other."""
    path, texts, stop = tmp_path / "report", {"a" * 100_000, "b" * 200_000}, threading.Event()
    overwrite(path, min(texts))

    def write() -> None:
        while not stop.is_set():
            for text in texts:
                overwrite(path, text.encode())

    writer = threading.Thread(target=write)
    writer.start()
    try:
        seen = {path.read_text() for _ in range(300)}
    finally:
        stop.set()
        writer.join()

    assert seen <= texts
    assert [one.name for one in tmp_path.iterdir()] == ["report"]


def test_what_lies_in_the_way_of_the_draft_is_not_written_through(tmp_path: Path) -> None:
    """Its name can be guessed, and a link there must not lead a write anywhere."""
    precious = tmp_path / "precious"
    precious.write_text("precious")
    draft = tmp_path / f"report.{os.getpid()}-{threading.get_native_id()}.draft"
    draft.symlink_to(precious)

    overwrite(tmp_path / "report", "text")

    assert precious.read_text() == "precious"
    assert not (tmp_path / "report").is_symlink()
    assert (tmp_path / "report").read_text() == "text"


def test_a_new_file_replaces_nothing(tmp_path: Path) -> None:
    """Of two who write the same name, the first is kept whole."""
    assert write_new(tmp_path / "PAUSE", "mine")
    assert not write_new(tmp_path / "PAUSE", b"yours")
    assert (tmp_path / "PAUSE").read_text() == "mine"


def test_a_file_that_goes_meanwhile_hides_no_other(tmp_path: Path) -> None:
    """As git's locks do among refs that are read for the fingerprint: the others would seem to be removed."""
    names = [f"t{number}" for number in range(50)]
    for name in names:
        (tmp_path / name).touch()
    is_over = threading.Event()

    def come_and_go() -> None:
        while not is_over.is_set():
            (tmp_path / "a.lock").touch()
            (tmp_path / "a.lock").unlink()

    other = threading.Thread(target=come_and_go)
    other.start()
    try:
        found = [set(plain_files(tmp_path)) for _ in range(500)]
    finally:
        is_over.set()
        other.join()

    assert all(set(names) <= one for one in found)
