"""What checks the records of the board, built once where it is imported, so that no forked child has to.

Pydantic builds the check of a record when one is first met, which takes longer than most children live.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import liza.agents.protocol
import liza.domain.lifecycle  # noqa: F401 - its records are built, too
from liza.domain.record import build_validators
from tests.support.boards import is_whole, new_board, noted

build_validators()
with TemporaryDirectory(prefix="liza-built-") as place:
    board = new_board(Path(place) / ".liza")
    board.update(noted("built"))
    is_whole(board)
    board.close()
