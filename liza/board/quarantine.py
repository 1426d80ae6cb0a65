"""The quarantine of refused edits: the text is kept, people are alerted, the agents pause."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from liza.board.alerts import append_alert
from liza.board.disk import Disk
from liza.domain.anomalies import Anomaly, RejectedEdit
from liza.domain.changes import Change
from liza.domain.record import next_id, with_record
from liza.domain.switches import Switch
from liza.errors import DiskTrouble

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from liza.board.protocol import Board
    from liza.domain.model import State
    from liza.errors import InvalidBoard

NAME: Final = "rejected"


def quarantine_edit(board: Board, data: bytes, error: InvalidBoard, at: datetime) -> tuple[Path, Change]:
    """Keep *data* as a file, pause the agents, and return where it is and what the board should say."""
    home = board.home
    where = board.quarantine(data, at=at)
    board.alerts.append(
        f"an edit of state.yaml was not taken and is kept in {where}: {_one_line(error)}", at=at
    )
    said = f"an edit of state.yaml was not taken; see {where}, then `liza resume`"
    board.switches.throw(Switch.PAUSE, said)
    problems = tuple(str(violation) for violation in error.violations) or (str(error),)

    def make(state: State) -> State:
        anomaly = Anomaly(
            id=next_id(state.anomalies, "anomaly"),
            type="edit_rejected",
            logged_by="liza",
            timestamp=at,
            details=RejectedEdit(file=str(where.relative_to(home)), problems=problems),
        )
        return state.replace(anomalies=with_record(state.anomalies, anomaly))

    return where, Change("liza", "reject an edit", make)


def quarantine_wreck(home: Path, data: bytes, at: datetime) -> None:
    """Keep what a crash of the machine left of state.yaml; nobody wrote it, so nobody has to answer."""
    try:
        where = write_to_quarantine(home, data, at)
        append_alert(
            home, at, f"the machine went down while state.yaml was written; its remains are in {where}"
        )
    except OSError as trouble:
        raise DiskTrouble("keep what was left of state.yaml", trouble) from trouble


def _one_line(error: InvalidBoard) -> str:
    return " | ".join(str(violation) for violation in error.violations) or str(error)


def write_to_quarantine(home: Path, data: bytes, at: datetime) -> Path:
    """Write a refused text to the quarantine and return its path."""
    directory = home / NAME
    directory.mkdir(exist_ok=True)
    # Under its name it is whole: who dies in between leaves nothing that looks like an edit.
    fresh = home / f"{NAME}-{os.getpid()}.new"
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    stem, number = f"state-{at:%Y%m%dT%H%M%SZ}", 1
    while True:
        path = directory / f"{stem}-{number}.yaml"
        try:
            Disk().place(fresh, path)
        except FileExistsError:
            number += 1
            continue
        return path
