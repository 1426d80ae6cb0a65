"""`state.yaml` on disk: put there in one step, and no save of a person is lost while that happens.

Two files trade places at every update. The one that is not in use is written over, which is far cheaper
than making a new one, and only when the kernel confirms that nobody has it open. What an exchange brought
out is compared with what Liza had put there: if it differs, somebody saved in between, and it is an edit.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final, NamedTuple

from liza.board.disk import FileId, file_id_at, file_id_of, has_no_writer
from liza.board.lock_state import write_lock_state
from liza.errors import DiskTrouble, InvalidBoard
from liza.system.host import host

if TYPE_CHECKING:
    from pathlib import Path

    from liza.board.disk import Disk
    from liza.board.lock_state import LockState

NAME: Final = "state.yaml"
LOCK: Final = f"{NAME}.lock"
SPARE: Final = "state.yaml.spare"
HELD: Final = "state.yaml.held"
NO_FILE: Final = FileId(0, 0, 0)  # the print of no file: whatever is there differs from it


class SavedText(NamedTuple):
    """What somebody saved, and the print of the very file that it was read from."""

    data: bytes
    there: FileId


class StateFile:
    def __init__(self, home: Path, disk: Disk) -> None:
        self.path = home / NAME
        self.spare = home / SPARE
        self._disk = disk

    def is_as_left(self, baton: LockState) -> bool:
        """Return whether state.yaml is there as Liza put it."""
        return baton.state is not None and file_id_at(self.path) == baton.state

    def suspects(self, baton: LockState) -> list[Path]:
        """Return the files that are not as Liza left them, oldest first."""
        if not baton.pid:
            self._search(baton)
        there, spare = file_id_at(self.path), file_id_at(self.spare)
        if there is not None and there == baton.spare and spare == baton.state:
            # A writer died right after its exchange, before it could leave a baton.
            baton.state, baton.spare = baton.spare, baton.state
        held = (self.path.with_name(name) for name in baton.held)
        found = [path for path in held if file_id_at(path) not in {baton.held[path.name], None}]
        if baton.spare is not None and spare not in {baton.spare, None}:
            found.append(self.spare)
        if there not in {baton.state, None}:
            found.append(self.path)
        return found

    def _search(self, baton: LockState) -> None:
        """Without a baton, whatever is there may be somebody's."""
        baton.held = {path.name: NO_FILE for path in sorted(self.path.parent.glob(f"{HELD}-*"))}
        baton.spare = NO_FILE

    def is_wreck(self, there: FileId, baton: LockState) -> bool:
        """Return whether this is Liza's own file, half on disk when the machine went down: nobody's edit."""
        own = {known.inode for known in (baton.state, baton.spare) if known}
        return there.inode in own and baton.is_from_before_a_crash()

    def settled(self, path: Path, there: FileId, baton: LockState) -> None:
        """Forget a suspect whose print was *there* when it was dealt with; a later save is another one."""
        if path == self.path:
            baton.state, baton.sum = there, ""
        elif path == self.spare:
            baton.spare = there
        else:
            self._forget(path, baton)

    def forget_closed(self, baton: LockState) -> None:
        """Forget the files that an editor had open, and closed without writing."""
        for path in [self.path.with_name(name) for name in baton.held]:
            there = file_id_at(path)
            if there is None or (has_no_writer(path) and file_id_at(path) == baton.held[path.name]):
                self._forget(path, baton)

    def _forget(self, path: Path, baton: LockState) -> None:
        path.unlink(missing_ok=True)
        baton.held.pop(path.name, None)

    def put(self, data: bytes, baton: LockState) -> None:
        """Make *data* the content of state.yaml and the file before it the spare."""
        descriptor = self._open_spare(baton)
        try:
            baton.spare = None  # from here on the spare is half written, and no edit
            write_lock_state(baton)
            self._disk.overwrite(descriptor, data)
            fresh = file_id_of(os.fstat(descriptor))
        finally:
            os.close(descriptor)
        baton.spare = fresh
        write_lock_state(baton)
        self._trade()
        came_out = file_id_at(self.spare)
        # What Liza did not put there was saved between its look and the exchange: the next look finds it.
        baton.spare = came_out if came_out in {baton.state, None} else NO_FILE
        baton.state = fresh

    def _trade(self) -> None:
        try:
            self._disk.exchange(self.spare, self.path)
        except FileNotFoundError:  # somebody removed state.yaml
            try:
                self._disk.place(self.spare, self.path)
            except FileExistsError:  # and saved another one since
                self._disk.exchange(self.spare, self.path)

    def _open_spare(self, baton: LockState) -> int:
        """Return a descriptor of a file that nobody else has open and that holds nobody's edit."""
        try:
            descriptor = os.open(self.spare, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except FileNotFoundError:
            return self._make_spare(baton)
        except PermissionError:
            descriptor = -1  # somebody changed its mode while it was state.yaml
        if descriptor >= 0 and self._is_free(descriptor, baton):
            return descriptor
        # Half written it is Liza's own, and open still only because an exception kept it from being closed.
        if baton.spare is None or (has_no_writer(self.spare) and self._is_known(baton)):
            self.spare.unlink()  # somebody still reads it, who must not see it change
        else:
            self._hold(baton)
        return self._make_spare(baton)

    def _make_spare(self, baton: LockState) -> int:
        baton.spare = None
        write_lock_state(baton)  # before there is a file, or an empty one would be taken for an edit
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.open(self.spare, flags, 0o644)

    def _is_free(self, descriptor: int, baton: LockState) -> bool:
        """Return whether the open spare may be written over; it is closed if not."""
        is_free = False
        try:
            # Asked in this order: once nobody else has it open, its print cannot change any more.
            is_free = host().is_opened_by_us_alone(descriptor) and self._is_known(baton)
        finally:
            # Also if a signal handler raised: the descriptor may hold a lease that makes others wait.
            if not is_free:
                os.close(descriptor)
        return is_free

    def _is_known(self, baton: LockState) -> bool:
        return baton.spare is None or file_id_at(self.spare) == baton.spare

    def _hold(self, baton: LockState) -> None:
        """Keep the spare under a name of its own: somebody writes it still, or did since Liza looked."""
        number = 1
        while (held := self.path.with_name(f"{HELD}-{number}")).exists():
            number += 1
        baton.held[held.name] = baton.spare or NO_FILE
        write_lock_state(
            baton
        )  # before the rename, or nobody would look for the file if this process died now
        self.spare.rename(held)


def read_saved(path: Path) -> SavedText | None:
    """Return what is in *path*, or None while somebody is writing it; raise where it is no plain file."""
    try:
        found = path.lstat()
        if not stat.S_ISREG(found.st_mode):
            raise not_a_file_error(path)
        data = path.read_bytes() if has_no_writer(path) else None
    except FileNotFoundError:  # an editor is between two steps of its save
        return None
    except OSError as error:
        raise DiskTrouble(f"read {path}", error) from error
    there = file_id_of(found)
    return SavedText(data, there) if data is not None and file_id_at(path) == there else None


def not_a_file_error(path: Path) -> InvalidBoard:
    kind = f"a link to {path.readlink()}" if path.is_symlink() else "not a plain file"
    return InvalidBoard(f"{path} is {kind}; put the plain file back, or remove it and Liza writes it anew")
