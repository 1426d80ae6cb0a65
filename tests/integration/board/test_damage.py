"""Files that were cut, changed, lost or refused by the disk: the board holds, or says what is wrong."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from liza.board import journal as journal_module
from liza.board.file import FileBoard
from liza.board.journal import Disk
from liza.errors import DiskTrouble, JournalDamaged
from liza.system.host import host
from tests.support.boards import PROCESSES, ended, is_whole, messages, new_board, noted, was_not_disturbed
from tests.support.child_processes import update_slowly, write_note, write_until_refused
from tests.support.crash_scenes import SCENES, has_kept_everything
from tests.support.dying_disk import Failing, Mortal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the directory of a board with three notes."""
    home = tmp_path / ".liza"
    board = new_board(home)
    for message in ("one", "two", "three"):
        board.update(noted(message))
    board.close()
    return home


def journal_of(home: Path) -> Path:
    return home / "journal.jsonl"


def goes_on(home: Path, *expected: str) -> None:
    """Assert that a new process finds *expected* on the board and can write."""
    board = FileBoard(home)
    assert messages(board.absorb()) == list(expected)
    board.update(noted("more"))
    assert messages(is_whole(board)) == [*expected, "more"]
    was_not_disturbed(home)
    board.close()


class TestJournal:
    def test_a_cut_in_the_last_line_takes_that_line_only(self, home: Path) -> None:
        """Wherever a dying writer stopped within its line, the line was not acknowledged and goes."""
        whole = journal_of(home).read_bytes()
        start = whole.rindex(b"\n", 0, -1) + 1
        for cut in range(start, len(whole)):
            journal_of(home).write_bytes(whole[:cut])
            board = FileBoard(home)
            assert messages(board.read()) == ["one", "two"]
            board.close()
        goes_on(home, "one", "two")

    @pytest.mark.parametrize(
        "tail",
        [
            b"\0",
            b"\0" * 5000,
            b'{"revision":5,\0\0\0\0"}\n',
            b"\xff\xfe garbage",
            b"garbage\n",
            b"{}\n",
            b"\n",
        ],
    )
    def test_what_a_power_cut_left_behind_the_last_line_goes(self, tail: bytes, home: Path) -> None:
        with journal_of(home).open("ab") as journal:
            journal.write(tail)
        goes_on(home, "one", "two", "three")

    def test_a_byte_changed_in_any_line_is_said_and_nothing_is_dropped(self, home: Path) -> None:
        """The last line too: it was acknowledged, and a whole line with a wrong sum is no torn one."""
        for copy in ("snapshot.json", "state.yaml.lock"):
            (home / copy).unlink(missing_ok=True)
        whole = journal_of(home).read_bytes()
        for place in range(0, len(whole) - 1, 7):
            changed = bytearray(whole)
            changed[place] ^= 1
            journal_of(home).write_bytes(changed)
            board = FileBoard(home)
            with pytest.raises(JournalDamaged, match=r"the line at byte \d+ was changed") as caught:
                board.read()
            assert caught.value.exit_code == 5
            with pytest.raises(JournalDamaged):
                board.update(noted("more"))
            board.close()
            assert journal_of(home).read_bytes() == changed

    def test_what_came_before_the_damage_can_still_be_listed(self, home: Path) -> None:
        whole = journal_of(home).read_bytes()
        journal_of(home).write_bytes(whole.replace(b'"two"', b'"owt"'))
        revisions: list[int] = []
        with pytest.raises(JournalDamaged):
            revisions.extend(entry.revision for entry in FileBoard(home).entries())
        assert revisions == [1, 2]

    def test_a_missing_journal_is_said(self, home: Path) -> None:
        running = FileBoard(home)
        running.read()
        journal_of(home).unlink()
        for board in (running, FileBoard(home)):
            for attempt in (board.read, lambda board=board: board.update(noted("more"))):
                with pytest.raises(JournalDamaged, match="is missing; put it back") as caught:
                    attempt()
                assert caught.value.exit_code == 5
        assert not journal_of(home).exists()

    def test_a_journal_that_is_a_link_is_said(self, home: Path) -> None:
        elsewhere = home / "elsewhere"
        journal_of(home).rename(elsewhere)
        journal_of(home).symlink_to(elsewhere)
        with pytest.raises(DiskTrouble, match=r"cannot open .*journal\.jsonl"):
            FileBoard(home).read()

    @pytest.mark.parametrize("put_back", ["in its place", "over it"])
    def test_a_restored_copy_is_followed_by_running_processes(self, put_back: str, home: Path) -> None:
        """A process that knew later changes forgets them when an older journal is put back."""
        copy = journal_of(home).read_bytes()
        running = FileBoard(home)
        running.update(noted("lost"))
        other = FileBoard(home)
        if put_back == "over it":
            journal_of(home).write_bytes(copy)
        else:
            (home / "copy").write_bytes(copy)
            (home / "copy").replace(journal_of(home))
        for name in ("state.yaml", "state.yaml.spare", "state.yaml.lock", "snapshot.json"):
            (home / name).unlink(missing_ok=True)
        # As long as the line that is gone, or longer: the place in the file alone tells nothing.
        other.update(noted("made" if put_back == "over it" else "made meanwhile, and longer than the other"))
        expected = messages(other.read())
        assert messages(running.read()) == expected
        running.update(noted("last"))
        assert messages(is_whole(running)) == [*expected, "last"]
        assert messages(other.read()) == [*expected, "last"]


class RollingBack(Disk):
    """Fails to sync once, after it called *meanwhile*: what was written has to be taken back."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile
        self._is_spent = False

    def sync(self, descriptor: int) -> None:
        if self._is_spent:
            super().sync(descriptor)
            return
        self._is_spent = True
        self._meanwhile()
        raise OSError(errno.EIO, os.strerror(errno.EIO))


@pytest.mark.parametrize("next_one", ["same size", "a longer line than the one taken back", "short"])
def test_a_reader_forgets_a_line_that_was_taken_back(next_one: str, home: Path) -> None:
    """Reading takes no lock, so a reader may see a line whose sync then fails."""
    reader = FileBoard(home)
    writer = FileBoard(home, disk=RollingBack(reader.read))
    with pytest.raises(DiskTrouble):
        writer.update(noted("no matter"))
    writer.update(noted(next_one))
    assert messages(reader.read()) == ["one", "two", "three", next_one]
    reader.update(noted("last"))
    assert messages(is_whole(reader)) == ["one", "two", "three", next_one, "last"]
    assert messages(writer.read())[-1] == "last"


class TestSnapshot:
    @pytest.fixture(autouse=True)
    def often(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(journal_module, "SNAPSHOT_EVERY", 1)

    @pytest.mark.parametrize(
        "damage",
        [
            lambda path: path.unlink(),
            lambda path: path.write_bytes(b""),
            lambda path: path.write_bytes(b"\0" * path.stat().st_size),
            lambda path: path.write_bytes(path.read_bytes()[:-1]),
            lambda path: path.write_bytes(path.read_bytes().replace(b"one", b"eno")),
            lambda path: (path.unlink(), path.mkdir()),
            lambda path: (path.unlink(), path.symlink_to("nowhere")),
        ],
        ids=["missing", "empty", "zeros", "cut", "changed", "a directory", "a dangling link"],
    )
    def test_one_that_does_not_fit_is_passed_over(self, damage: Callable[[Path], object], home: Path) -> None:
        board = FileBoard(home)
        for number in range(5):
            board.update(noted(f"{number}"))
        assert (home / journal_module.SNAPSHOT).exists()
        damage(home / journal_module.SNAPSHOT)
        goes_on(home, "one", "two", "three", *"01234")

    def test_one_of_another_board_is_passed_over(self, home: Path, tmp_path: Path) -> None:
        """Even where its place in the journal is the end of a line, or behind the last one."""
        other = new_board(tmp_path / "other")
        for message in ("uno", "due", "tre", "uno"):
            other.update(noted(message))
            shutil.copy(tmp_path / "other" / journal_module.SNAPSHOT, home)
            assert messages(FileBoard(home).read()) == ["one", "two", "three"]
        goes_on(home, "one", "two", "three")

    def test_one_that_says_what_no_board_can_say_is_passed_over(self, home: Path) -> None:
        """As after an upgrade: whole, but of another shape."""
        board = FileBoard(home)
        board.update(noted("four"))
        _, head, body = (home / journal_module.SNAPSHOT).read_bytes().split(b"\n", 2)
        body = body.replace(b'"human_notes"', b'"inhuman_notes"')
        digest = hashlib.blake2b(head + b"\n" + body, digest_size=8).hexdigest().encode()
        (home / journal_module.SNAPSHOT).write_bytes(b"\n".join([digest, head, body]))
        goes_on(home, "one", "two", "three", "four")

    def test_an_old_one_is_brought_up_to_date(self, home: Path) -> None:
        board = FileBoard(home)
        board.update(noted("four"))
        old = (home / journal_module.SNAPSHOT).read_bytes()
        for number in range(5):
            board.update(noted(f"{number}"))
        (home / journal_module.SNAPSHOT).write_bytes(old)
        goes_on(home, "one", "two", "three", "four", *"01234")


class TestOtherFiles:
    @pytest.mark.parametrize("name", ["state.yaml", "state.yaml.spare", "state.yaml.lock"])
    def test_one_that_is_missing_is_made_anew(self, name: str, home: Path) -> None:
        (home / name).unlink()
        goes_on(home, "one", "two", "three")

    def test_all_but_the_journal_may_be_missing(self, home: Path) -> None:
        for path in home.iterdir():
            if path != journal_of(home):
                path.unlink()
        goes_on(home, "one", "two", "three")

    def test_an_older_state_yaml_is_brought_up_to_date(self, home: Path) -> None:
        """As from a backup: it is Liza's own text, so it is nobody's edit."""
        board = FileBoard(home)
        for revision in range(1, 5):
            (home / "state.yaml").write_bytes(board.text_at(revision))
            assert messages(board.absorb()) == ["one", "two", "three"]
            is_whole(board)
        goes_on(home, "one", "two", "three")

    def test_a_lock_file_full_of_garbage_costs_nothing(self, home: Path) -> None:
        (home / "state.yaml.lock").write_bytes(os.urandom(3000))
        goes_on(home, "one", "two", "three")

    def test_removing_the_lock_file_lets_no_two_writers_in(self, home: Path) -> None:
        """People clean up lock files, also under running processes."""
        one, other = FileBoard(home), FileBoard(home)
        one.update(noted("four"))
        ours, theirs = PROCESSES.Pipe()
        process = PROCESSES.Process(target=update_slowly, args=(home, theirs))
        process.start()
        assert ours.recv() == "inside"
        (home / "state.yaml.lock").unlink()
        late = PROCESSES.Process(target=write_note, args=(home, "late"))
        late.start()
        late.join(0.3)
        assert late.is_alive()  # it waits for the one that is inside
        ours.send("go on")
        assert [ended(process), ended(late)] == [0, 0]
        for board in (one, other):
            board.update(noted("again"))
        assert messages(is_whole(other)) == ["one", "two", "three", "four", "slow", "late", "again", "again"]


class TestRefusingDisk:
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
    def test_each_step_may_fail_once(self, number: int, home: Path, tmp_path: Path) -> None:
        """Either the update is refused and nothing changed, or it is done; the next one works."""
        counting = Mortal()
        FileBoard(home, disk=counting).update(noted("four"))
        for step in range(len(counting.steps)):
            copy = tmp_path / f"{step}"
            shutil.copytree(home, copy)
            board = FileBoard(copy, disk=Failing(step, number))
            before = messages(board.read())
            trouble = trouble_with(board, "five")
            if trouble is None:
                before.append("five")
            else:
                assert (trouble.errno, trouble.exit_code) == (number, 1)
                assert str(trouble).endswith(f"{os.strerror(number)}; nothing was changed")
            assert messages(board.read()) == before
            assert messages(FileBoard(copy).read()) == before
            goes_on(copy, *before)
            board.update(noted("last"))
            is_whole(board)

    @pytest.mark.parametrize("name", SCENES)
    def test_each_step_of_each_scene_may_fail_once(self, name: str, tmp_path: Path) -> None:
        """What was refused is not there, what was said to be done is, and every edit is taken in once."""
        scene, step, steps = SCENES[name], 0, 1
        while step < steps:
            home, disk, said = tmp_path / f"{step}", Failing(step, errno.EIO), list[str]()
            with scene.prepare(home), contextlib.suppress(DiskTrouble):
                scene.act(home, disk, said.append)
            has_kept_everything(home, scene, said, unheard=0)
            step, steps = step + 1, max(steps, len(disk.steps))

    def test_a_file_that_may_not_grow(self, home: Path) -> None:
        """The limit of the kernel on the size of files, in a process of its own."""
        size = journal_of(home).stat().st_size
        process = PROCESSES.Process(target=write_until_refused, args=(home, size + 300))
        process.start()
        assert ended(process) == 0
        found = messages(FileBoard(home).read())
        assert found[:3] == ["one", "two", "three"]
        goes_on(home, *found)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a disk of its own")
    def test_a_disk_that_is_really_full(self, tmp_path: Path) -> None:
        with small_disk(tmp_path / "disk") as disk:
            board = new_board(disk / ".liza")
            done = [f"{number}" for number in range(3)]
            for message in done:
                board.update(noted(message))
            filler = disk / "filler"
            fill(filler)
            while (trouble := trouble_with(board, f"{len(done)}")) is None:
                done.append(f"{len(done)}")
            assert str(trouble).endswith("No space left on device; nothing was changed")
            assert messages(board.read()) == messages(FileBoard(disk / ".liza").read()) == done
            filler.unlink()
            goes_on(disk / ".liza", *done)


def trouble_with(board: FileBoard, message: str) -> DiskTrouble | None:
    """Try to write a note; return what stood in the way."""
    try:
        board.update(noted(message))
    except DiskTrouble as trouble:
        return trouble
    return None


@contextlib.contextmanager
def small_disk(path: Path) -> Iterator[Path]:
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "liza-test", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", path], check=True)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"\0" * 4096)


def test_a_state_file_that_the_machine_left_half_written_pauses_nobody(home: Path) -> None:
    """A power cut may mix the pages of two revisions: the journal has the truth, and the run goes on."""
    board = FileBoard(home)
    board.update(noted("before the cut"))
    state, lock = home / "state.yaml", home / "state.yaml.lock"
    text = state.read_bytes()
    with state.open("r+b") as file:  # the same file, as a crash leaves it, with the time of long ago
        file.write(text[: len(text) // 2] + b"\0" * (len(text) - len(text) // 2))
    os.utime(state, (1, 1))
    lock.write_text(lock.read_text().replace(host().boot_id(), "another-boot"))
    after = FileBoard(home)
    after.absorb()
    assert state.read_bytes() == text
    assert not (home / "PAUSE").exists()
    assert "the machine went down" in (home / "alerts.log").read_text()
    assert len(list((home / "rejected").iterdir())) == 1
