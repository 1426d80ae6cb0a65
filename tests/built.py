"""What checks the records of the board, built once where it is imported, so that no forked child has to.

Pydantic builds the check of a record when one is first met, which takes longer than most children live.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from liza.agents.protocol import Brief
from liza.board.file import FileBoard
from liza.events import Event
from liza.record import Record
from tests.boards import is_whole, new_board, noted


def kinds(of: type[Record]) -> list[type[Record]]:
    return [of, *(kind for below in of.__subclasses__() for kind in kinds(below))]


for kind in (Brief, *kinds(Event)):
    kind.model_rebuild()
with TemporaryDirectory(prefix="liza-built-") as place:
    board: FileBoard = new_board(Path(place) / ".liza")
    board.update(noted("built"))
    is_whole(board)
    board.close()
